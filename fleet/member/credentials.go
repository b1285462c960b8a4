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
	// expiringSoon is the remaining time at which a condition begins to report credentials that are not renewed.
	expiringSoon = 14 * 24 * time.Hour
	// renewAgain is the time between two attempts to renew a token. It is short in comparison to the remaining third of
	// the token's life.
	renewAgain = 10 * time.Minute
	// longestToken is the maximum length of a token in bytes; tokens of API servers have about 1 KB.
	longestToken = 16 << 10
	// shortestLife is the shortest lifetime that is requested for a token: API servers issue no tokens with a shorter
	// one.
	shortestLife = 10 * time.Minute
)

// lasting is the period of validity of credentials.
type lasting struct {
	from, until time.Time
	// account is the service account of a token; the zero value for other credentials.
	account types.NamespacedName
}

// lastingOf returns the period of the credentials; false if they have none, such as a token that does not expire.
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

// plainToken matches a signed JSON Web Token.
var plainToken = regexp.MustCompile(`^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$`)

// lastingToken reads the claims of a token. It does not verify the signature: only the API server of the token relies
// on the claims.
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
	const latest = 1 << 40 // Seconds; a later time is invalid.
	if json.Unmarshal(text, &claims) != nil || claims.Expires <= claims.Issued || claims.Issued < 0 || claims.Expires > latest {
		return lasting{}, false
	}
	l := lasting{from: time.Unix(int64(claims.Issued), 0), until: time.Unix(int64(claims.Expires), 0)}
	if account, ok := strings.CutPrefix(claims.Subject, "system:serviceaccount:"); ok {
		l.account.Namespace, l.account.Name, _ = strings.Cut(account, ":")
	}
	return l, true
}

// AccountOf returns the service account of a token in the credentials; the zero value for other credentials.
func AccountOf(cfg *rest.Config) types.NamespacedName {
	l, _ := lastingOf(cfg)
	return l.account
}

// due reports whether two thirds of the period have passed.
func (l *lasting) due(now time.Time) bool { return now.After(l.from.Add(l.until.Sub(l.from) / 3 * 2)) }

// renewal is the state of the renewal of a member's token.
type renewal struct {
	next time.Time // When the next attempt is due.
	err  error     // Of the last attempt; nil if it succeeded or there was none.
}

// keepCredentials renews the token of a ready member if that is due. It returns a message about credentials that expire
// soon and cannot be renewed; "" if there is nothing to report.
func (r *Reconciler) keepCredentials(ctx context.Context, m *Member, cfg *rest.Config, secret *corev1.Secret) string {
	if secret.Annotations[refractv1alpha1.InventoryAnnotation] != "" {
		return "" // The inventory that lists the cluster renews them.
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
		return fmt.Sprintf("the token of serviceaccount %s expires at %s, and cannot be renewed: %s", l.account, at, plain(m.renewal.err))
	case cfg.BearerToken != "":
		return fmt.Sprintf("the token expires at %s: write a new one to secret %s/%s before then", at, secret.Namespace, secret.Name)
	default:
		return fmt.Sprintf("the client certificate expires at %s: write a new one to secret %s/%s before then", at, secret.Namespace, secret.Name)
	}
}

var accounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// renewToken requests another token of the same account from the member, and writes the token to the Secret. The change
// of the Secret triggers a reconciliation of the cluster, and its connection takes the new token.
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
		return errors.New("requesting a token: want a token of this account that expires later")
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
