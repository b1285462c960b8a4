package member

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/kit/webhook/pki"
)

// start is the time from which the credentials of the tests are valid.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// token returns a token for a subject with this period.
func token(subject string, from time.Time, life time.Duration) string {
	claims := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, subject, from.Unix(), from.Add(life).Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

const (
	ofAccount = "system:serviceaccount:sys:refract"
	life      = 90 * 24 * time.Hour
)

func TestLastingOf(t *testing.T) {
	issuer := pki.Issuer{CommonName: "a", Names: []string{"a"}, Now: func() time.Time { return start }}
	bundle, _, err := issuer.Renew(nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := bundle.Data()
	if err != nil {
		t.Fatal(err)
	}
	account := types.NamespacedName{Namespace: "sys", Name: "refract"}
	claims := func(text string) string { return "e30." + base64.RawURLEncoding.EncodeToString([]byte(text)) + ".c2ln" }
	cases := map[string]struct {
		reason string
		cfg    rest.Config
		until  time.Time
		of     types.NamespacedName
		known  bool
	}{
		"Token":       {"A token has a period of validity and an account.", rest.Config{BearerToken: token(ofAccount, start, life)}, start.Add(life), account, true},
		"OfAUser":     {"A user's token has no service account.", rest.Config{BearerToken: token("ann", start, life)}, start.Add(life), types.NamespacedName{}, true},
		"Certificate": {"A certificate has a period of validity.", rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: data[corev1.TLSCertKey]}}, start.Add(pki.ServingLife), types.NamespacedName{}, true},
		"Static":      {"A static token has no period.", rest.Config{BearerToken: "abc"}, time.Time{}, types.NamespacedName{}, false},
		"NoEnd":       {"A token may never expire.", rest.Config{BearerToken: claims(`{"sub":"a"}`)}, time.Time{}, types.NamespacedName{}, false},
		"Backwards":   {"An end before the begin is invalid.", rest.Config{BearerToken: claims(`{"iat":2,"exp":1}`)}, time.Time{}, types.NamespacedName{}, false},
		"Never":       {"A time out of range is invalid.", rest.Config{BearerToken: claims(`{"iat":1,"exp":1e300}`)}, time.Time{}, types.NamespacedName{}, false},
		"NoClaims":    {"The claims may be unreadable.", rest.Config{BearerToken: claims(`[`)}, time.Time{}, types.NamespacedName{}, false},
		"Long":        {"A token that is too long is not read.", rest.Config{BearerToken: token(ofAccount, start, life) + strings.Repeat("a", longestToken)}, time.Time{}, types.NamespacedName{}, false},
		"NoBlock":     {"A certificate may be unreadable.", rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("a")}}, time.Time{}, types.NamespacedName{}, false},
		"Nothing":     {"The credentials may be missing.", rest.Config{}, time.Time{}, types.NamespacedName{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, known := lastingOf(&tc.cfg)
			if known != tc.known || !got.until.Equal(tc.until) || got.account != tc.of {
				t.Errorf("%s\nwant %s, %v, %t, got %s, %v, %t", tc.reason, tc.until, tc.of, tc.known, got.until, got.account, known)
			}
		})
	}
}

// issuing is a member that issues tokens.
type issuing struct {
	stub   http.Handler
	answer func() (code int, token string)
	asked  atomic.Int32
	life   atomic.Int64 // The last requested lifetime, in seconds.
}

func (s *issuing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/api/v1/namespaces/sys/serviceaccounts/refract/token" {
		s.stub.ServeHTTP(w, r)
		return
	}
	s.asked.Add(1)
	var request struct {
		Spec struct {
			ExpirationSeconds int64 `json:"expirationSeconds"`
		} `json:"spec"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.life.Store(request.Spec.ExpirationSeconds)
	code, text := s.answer()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if code != http.StatusCreated {
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"no","code":%d}`, code)
		return
	}
	_, _ = fmt.Fprintf(w, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":%q}}`, text)
}

// TestRenewal: after two thirds of its lifetime, a token is replaced by a token of the same account that expires later.
// A condition reports credentials that cannot be renewed from two weeks before their end.
func TestRenewal(t *testing.T) {
	first, second := token(ofAccount, start, life), token(ofAccount, start.Add(61*24*time.Hour), life)
	cases := map[string]struct {
		reason string
		token  string
		answer func() (int, string)
		after  time.Duration
		want   string // The token afterwards.
		asked  int32
		says   string // Of the condition.
	}{
		"NotDue": {reason: "With enough time left, no token is requested.", token: first, after: 59 * 24 * time.Hour, want: first},
		"Due": {
			reason: "The token is renewed in time.", token: first, answer: func() (int, string) { return http.StatusCreated, second },
			after: 61 * 24 * time.Hour, want: second, asked: 1,
		},
		"Forbidden": {
			reason: "Without the right, the token stays. There is no condition while enough time is left.", token: first,
			answer: func() (int, string) { return http.StatusForbidden, "" }, after: 61 * 24 * time.Hour, want: first, asked: 1,
		},
		"ForbiddenAndSoon": {
			reason: "Two weeks before the end, the condition reports it.", token: first,
			answer: func() (int, string) { return http.StatusForbidden, "" }, after: 77 * 24 * time.Hour, want: first, asked: 1,
			says: "True NotRenewed: the token of serviceaccount sys/refract expires at 2026-04-01T00:00:00Z, and cannot be renewed: requesting a token: ",
		},
		"OfAnother": {
			reason: "A token of another account is not accepted.", token: first,
			answer: func() (int, string) {
				return http.StatusCreated, token("system:serviceaccount:sys:other", start, 2*life)
			},
			after: 77 * 24 * time.Hour, want: first, asked: 1, says: "True NotRenewed: ",
		},
		"NoLonger": {
			reason: "A token that does not expire later is not accepted.", token: first, answer: func() (int, string) { return http.StatusCreated, first },
			after: 77 * 24 * time.Hour, want: first, asked: 1, says: "True NotRenewed: ",
		},
		"Rubbish": {
			reason: "An invalid token is not accepted.", token: first, answer: func() (int, string) { return http.StatusCreated, "a\r\nHost: b" },
			after: 77 * 24 * time.Hour, want: first, asked: 1, says: "True NotRenewed: ",
		},
		"OfAUser": {
			reason: "Refract does not renew the token of a user.", token: token("ann", start, life), after: 77 * 24 * time.Hour,
			want: token("ann", start, life), says: "True NotRenewed: the token expires at 2026-04-01T00:00:00Z: write a new one to secret sys/m before then",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			member := &issuing{stub: s.Config.Handler, answer: tc.answer}
			s.Config.Handler = member
			f := newFleet(t, s.URL)
			f.Now = func() time.Time { return start.Add(tc.after) }
			secret := f.secret()
			secret.Data[corev1alpha1.SecretServiceAccountToken] = []byte(tc.token)
			if err := f.Client.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			f.look()
			fc := f.look() // Shortly afterwards, no token is requested.
			if got := string(f.secret().Data[corev1alpha1.SecretServiceAccountToken]); got != tc.want {
				t.Errorf("%s\nwant the token %s, got %s", tc.reason, tc.want, got)
			}
			if got := member.asked.Load(); got != tc.asked {
				t.Errorf("%s\nwant %d requests for a token, got %d", tc.reason, tc.asked, got)
			}
			if got := member.life.Load(); tc.asked > 0 && got != int64(life/time.Second) {
				t.Errorf("want the same lifetime requested as before, got %d s", got)
			}
			got := messageOf(fc, corev1alpha1.ClusterCredentialsExpiring)
			if !strings.HasPrefix(got, tc.says) || (tc.says == "") != (got == "") {
				t.Errorf("%s\nwant %q, got %q", tc.reason, tc.says, got)
			}
		})
	}
}

func (f *fleet) secret() *corev1.Secret {
	f.t.Helper()
	secret := &corev1.Secret{}
	if err := f.Client.Get(f.t.Context(), client.ObjectKey{Namespace: "sys", Name: "m"}, secret); err != nil {
		f.t.Fatal(err)
	}
	return secret
}

// TestNextToken: a new token does not cause new lists of a member, and the next requests have the new token.
func TestNextToken(t *testing.T) {
	s := newStub(t)
	seen := &headers{stub: s.Config.Handler}
	s.Config.Handler = seen
	f := newFleet(t, s.URL)
	f.look()
	before := f.Set.Get("m")
	if got := seen.last.Load(); got != "Bearer t" {
		t.Errorf("want the token of the Secret, got %v", got)
	}
	secret := f.secret()
	secret.Data[corev1alpha1.SecretServiceAccountToken] = []byte("next")
	if err := f.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	f.look()
	if got := seen.last.Load(); got != "Bearer next" {
		t.Errorf("want the next token, got %v", got)
	}
	if f.Set.Get("m") != before {
		t.Error("want the same member, got another one")
	}
}

// headers is a member that records the credentials of the last probe.
type headers struct {
	stub http.Handler
	last atomic.Value
}

func (h *headers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" {
		h.last.Store(r.Header.Get("Authorization"))
	}
	h.stub.ServeHTTP(w, r)
}
