package simulate

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// accountName is the ServiceAccount of Refract on a cluster, in the namespace kube-system.
const accountName = "refract"

// tokens are the credentials with which a cluster accepts requests of Refract.
type tokens struct {
	// last is the newest token. valid maps the accepted tokens to their expiration by the clock of the cluster; the
	// zero time means no expiration.
	last  string
	valid map[string]time.Time
	// life is the lifetime of tokens that people create; most is the maximum lifetime of requested tokens. Zero means
	// no limit.
	life, most time.Duration
	// renewed contains the old tokens whose renewal was due and has happened. granted is the new token of such a
	// renewal, until Refract has stored it.
	renewed map[string]bool
	granted string
	// certificate is a client certificate instead of tokens; nil if there is none.
	certificate []byte
}

const (
	// soonOver is a lifetime short enough for a renewal within a run, even with a cluster clock that is wrong by 15
	// minutes.
	soonOver = time.Hour
	// warnedOf is a lifetime that is short enough for a warning by Refract; lasting is one without a warning.
	warnedOf = 10 * 24 * time.Hour
	lasting  = 30 * 24 * time.Hour
)

// firstToken chooses the credentials of a cluster that has been a member for some time.
func (w *World) firstToken(lab *Lab, name string) {
	t := &lab.tokens
	t.valid, t.renewed = map[string]time.Time{}, map[string]bool{}
	age := time.Duration(0)
	switch n := w.Rand.IntN(4); {
	case n == 0: // The token has no expiration.
	case lab.Kubeconfig && n == 1:
		lab.Kubeconfig, t.certificate = false, clientCertificate(w.began)
	case lab.Kubeconfig:
		t.life = warnedOf
	case n == 1:
		t.life, t.most, age = warnedOf, soonOver, warnedOf*4/5
	default:
		t.life, age = soonOver, time.Duration(w.Rand.IntN(40))*time.Minute
	}
	w.addToken(t, name, time.Now().Add(-age), t.life)
}

// addToken makes a cluster accept one more token.
func (w *World) addToken(t *tokens, name string, from time.Time, life time.Duration) {
	w.people.tokens++
	until := time.Time{}
	t.last = fmt.Sprintf("token-%s-%d", name, w.people.tokens)
	if life > 0 {
		until = from.Add(life)
		claims := encoded(map[string]any{
			"sub": "system:serviceaccount:" + metav1.NamespaceSystem + ":" + accountName, "iat": from.Unix(), "exp": until.Unix(), "jti": w.people.tokens,
		})
		t.last = "e30." + base64.RawURLEncoding.EncodeToString(claims) + "." + t.last // The header is never read.
	}
	t.valid[t.last] = until
}

// newToken replaces the credentials of a cluster. The cluster no longer accepts earlier ones.
func (w *World) newToken(c *Cluster) {
	t := &c.Lab.tokens
	clear(t.valid)
	if t.life > soonOver {
		t.life = pick(w, []time.Duration{warnedOf, lasting})
	}
	w.addToken(t, c.Name, time.Now().Add(c.Skew), t.life)
}

// grant answers a TokenRequest.
func (w *World) grant(c *Cluster, life time.Duration) (token string, until time.Time) {
	t := &c.Lab.tokens
	if t.most > 0 {
		life = min(life, t.most)
	}
	w.addToken(t, c.Name, time.Now().Add(c.Skew), life)
	return t.last, t.valid[t.last]
}

// renews reports whether a completed request is part of a renewal that is due: Refract renews a token after two thirds
// of its lifetime (docs/guide/install.md). A renewal has one request for a new token, authenticated by the old token,
// and one write of the new token.
func (w *World) renews(c *call) bool {
	for _, member := range w.Clusters {
		t := &member.Lab.tokens
		switch {
		case c.target == &member.Target && c.request.URL.Path == "/api/v1/namespaces/"+metav1.NamespaceSystem+"/serviceaccounts/"+accountName+"/token":
			old := bearer(c.request.Header.Get("Authorization"))
			if t.renewed[old] || !isDue(old, time.Now().Add(w.Hub.Skew)) { // Refract uses the time of the hub.
				return false
			}
			t.renewed[old], t.granted = true, t.last
			return true
		case c.target == w.Hub && t.granted != "" && strings.HasPrefix(c.request.URL.Path, "/api/v1/namespaces/"+systemNamespace+"/secrets/") &&
			bytes.Contains(c.body, []byte(base64.StdEncoding.EncodeToString([]byte(t.granted)))):
			t.granted = ""
			return true
		}
	}
	return false
}

// isDue reports whether two thirds of the lifetime of a token are over.
func isDue(token string, now time.Time) bool {
	parts := strings.Split(token, ".")
	if len(parts) < 2 {
		return false // The token has no expiration.
	}
	var claims struct {
		From  int64 `json:"iat"`
		Until int64 `json:"exp"`
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return false
	}
	return now.Unix() >= claims.From+(claims.Until-claims.From)*2/3
}

// bearer returns the token of an Authorization header, or "".
func bearer(authorization string) string {
	token, _ := strings.CutPrefix(authorization, "Bearer ")
	return token
}

// accept reports whether the cluster accepts a request with this header. A client certificate is not visible in the header.
func (t *tokens) accept(authorization string, now time.Time) bool {
	switch authorization {
	case "":
		return t.certificate != nil
	case podToken:
		return true
	}
	until, known := t.valid[bearer(authorization)]
	return known && (until.IsZero() || now.Before(until))
}

// credentials returns the data of the Secret for a cluster.
func (c *Cluster) credentials(string) map[string]any {
	data := map[string]string{corev1alpha1.SecretServiceAccountToken: c.Lab.tokens.last}
	switch {
	case c.Lab.tokens.certificate != nil:
		data = map[string]string{corev1alpha1.SecretClientCertificate: string(c.Lab.tokens.certificate), corev1alpha1.SecretClientKey: "its key"}
	case c.Lab.Kubeconfig:
		data = map[string]string{corev1alpha1.SecretKubeconfig: fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: it, cluster: {server: %q}}]
users: [{name: it, user: {token: %q}}]
contexts: [{name: it, context: {cluster: it, user: it}}]
current-context: it
`, c.endpoint(), c.Lab.tokens.last)}
	}
	encoded := map[string]any{}
	for key, value := range data {
		encoded[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return encoded
}

// clientCertificate returns a certificate that expires soon. The same time gives the same certificate.
func clientCertificate(now time.Time) []byte {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: accountName}, NotBefore: now.Add(-lasting), NotAfter: now.Add(warnedOf),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(nil, cert, cert, key.Public(), key)
	if err != nil {
		panic(fmt.Sprintf("making a certificate: %v", err)) // The template is valid.
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
