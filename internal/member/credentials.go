package member

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

const (
	// expiringSoon is how long before credentials end it is said that nobody renews them.
	expiringSoon = 14 * 24 * time.Hour
	// renewAgain is how long after an attempt to renew a token the next one is made: it is
	// short against what is left of one then, a third of its life.
	renewAgain = 10 * time.Minute
	// longestToken is how many bytes a token may have; those of API servers have about 1 KB.
	longestToken = 16 << 10
	// shortestLife is how short a token is asked for at least: an API server gives none of less.
	shortestLife = 10 * time.Minute
)

// lasting is how long credentials last.
type lasting struct {
	from, until time.Time
	// account is the service account of a token; none for other credentials.
	account types.NamespacedName
}

// lastingOf returns how long the credentials last; false if they do not say, as a token that is
// bound to nothing.
func lastingOf(cfg *rest.Config) (lasting, bool) {
	if cfg.BearerToken != "" {
		return lastingToken(cfg.BearerToken)
	}
	block, _ := pem.Decode(cfg.CertData)
	if block == nil {
		return lasting{}, false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return lasting{}, false
	}
	return lasting{from: cert.NotBefore, until: cert.NotAfter}, true
}

// plainToken is a JSON Web Token, signed.
var plainToken = regexp.MustCompile(`^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$`)

// lastingToken reads a token. Nobody else's word is taken for what is in it: it is for its own API
// server to believe it or not.
func lastingToken(token string) (lasting, bool) {
	if len(token) > longestToken || !plainToken.MatchString(token) {
		return lasting{}, false
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		return lasting{}, false
	}
	var claims struct {
		Subject string  `json:"sub"`
		Issued  float64 `json:"iat"`
		Expires float64 `json:"exp"`
	}
	const latest = 1 << 40 // Seconds. What is later is no time.
	if json.Unmarshal(text, &claims) != nil || claims.Expires <= claims.Issued || claims.Issued < 0 || claims.Expires > latest {
		return lasting{}, false
	}
	l := lasting{from: time.Unix(int64(claims.Issued), 0), until: time.Unix(int64(claims.Expires), 0)}
	if account, ok := strings.CutPrefix(claims.Subject, "system:serviceaccount:"); ok {
		l.account.Namespace, l.account.Name, _ = strings.Cut(account, ":")
	}
	return l, true
}

// AccountOf returns the service account of a token in the credentials; the zero value if there is
// none.
func AccountOf(cfg *rest.Config) types.NamespacedName {
	l, _ := lastingOf(cfg)
	return l.account
}

// due reports whether two thirds of the life of what lasts are over.
func (l *lasting) due(now time.Time) bool { return now.After(l.from.Add(l.until.Sub(l.from) / 3 * 2)) }

// renewal is what came of renewing the token of a member.
type renewal struct {
	next time.Time // When it may be tried again.
	err  error     // Nil while it has not failed.
}

// keepCredentials renews the token of a member that is ready, if that is due, and returns what is
// to be said of credentials that end soon and that it cannot renew; empty if there is nothing.
func (r *Reconciler) keepCredentials(ctx context.Context, m *Member, cfg *rest.Config, secret *corev1.Secret) string {
	if secret.Annotations[refractv1alpha1.InventoryAnnotation] != "" {
		return "" // Whoever lists the cluster renews them.
	}
	l, known := lastingOf(cfg)
	if !known {
		return ""
	}
	now := r.now()
	kept := string(secret.Data[corev1alpha1.SecretServiceAccountToken]) == cfg.BearerToken && l.account.Name != ""
	if kept && l.due(now) && !now.Before(m.renewal.next) {
		m.renewal.next = now.Add(renewAgain)
		m.renewal.err = r.renewToken(ctx, m, &l, secret)
	}
	at := l.until.UTC().Format(time.RFC3339)
	switch {
	case l.until.Sub(now) > expiringSoon || kept && m.renewal.err == nil:
		return ""
	case kept:
		return fmt.Sprintf("the token of serviceaccount %s ends at %s, and cannot be renewed: %s", l.account, at, plain(m.renewal.err))
	case cfg.BearerToken != "":
		return fmt.Sprintf("the token ends at %s: write another into secret %s/%s before that", at, secret.Namespace, secret.Name)
	default:
		return fmt.Sprintf("the client certificate ends at %s: write another into secret %s/%s before that", at, secret.Namespace, secret.Name)
	}
}

var accounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// renewToken asks the member for another token of the same account, and writes it to the Secret:
// what has changed there has the member connected to anew.
func (r *Reconciler) renewToken(ctx context.Context, m *Member, l *lasting, secret *corev1.Secret) error {
	life := max(l.until.Sub(l.from), shortestLife)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(life / time.Second))}}
	request.SetGroupVersionKind(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"))
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	answer := &authenticationv1.TokenRequest{}
	err = m.api.request(ctx, func(ctx context.Context) error {
		r, err := at(m.api.rest.Post(), accounts, l.account.Namespace)
		if err != nil {
			return err
		}
		return r.Name(l.account.Name).SubResource("token").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Into(answer)
	})
	if err != nil {
		return fmt.Errorf("requesting a token: %w", err)
	}
	token := answer.Status.Token
	next, ok := lastingToken(token)
	if !ok || next.account != l.account || !next.until.After(l.until) {
		return errors.New("requesting a token: what the cluster answers is no token of this account that lasts longer")
	}
	before := secret.DeepCopy()
	after := secret.DeepCopy()
	after.Data[corev1alpha1.SecretServiceAccountToken] = []byte(token)
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing a token to secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

func (r *Reconciler) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}
