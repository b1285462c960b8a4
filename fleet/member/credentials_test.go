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

// start is when the credentials of the tests begin.
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
		"Token":       {"A token says how long it lasts, and whose it is.", rest.Config{BearerToken: token(ofAccount, start, life)}, start.Add(life), account, true},
		"OfAUser":     {"Nobody can renew that of a user.", rest.Config{BearerToken: token("ann", start, life)}, start.Add(life), types.NamespacedName{}, true},
		"Certificate": {"So does a certificate.", rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: data[corev1.TLSCertKey]}}, start.Add(pki.ServingLife), types.NamespacedName{}, true},
		"Static":      {"A password of old says nothing.", rest.Config{BearerToken: "abc"}, time.Time{}, types.NamespacedName{}, false},
		"NoEnd":       {"A token may last for ever.", rest.Config{BearerToken: claims(`{"sub":"a"}`)}, time.Time{}, types.NamespacedName{}, false},
		"Backwards":   {"What ends before it begins is no time.", rest.Config{BearerToken: claims(`{"iat":2,"exp":1}`)}, time.Time{}, types.NamespacedName{}, false},
		"Never":       {"Nor is what no calendar has.", rest.Config{BearerToken: claims(`{"iat":1,"exp":1e300}`)}, time.Time{}, types.NamespacedName{}, false},
		"NoClaims":    {"What is between the points may be anything.", rest.Config{BearerToken: claims(`[`)}, time.Time{}, types.NamespacedName{}, false},
		"Long":        {"Of what is too long nothing is read.", rest.Config{BearerToken: token(ofAccount, start, life) + strings.Repeat("a", longestToken)}, time.Time{}, types.NamespacedName{}, false},
		"NoBlock":     {"A certificate may be none.", rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("a")}}, time.Time{}, types.NamespacedName{}, false},
		"Nothing":     {"There may be no credentials.", rest.Config{}, time.Time{}, types.NamespacedName{}, false},
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
	life   atomic.Int64 // The last requested life, in seconds.
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

// TestRenewal: a token is renewed after two thirds of its life, by a token of the same account that lasts longer. A
// condition reports credentials that cannot be renewed two weeks before their end.
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
		"NotDue": {reason: "Who has long left asks for nothing.", token: first, after: 59 * 24 * time.Hour, want: first},
		"Due": {
			reason: "It is renewed in time.", token: first, answer: func() (int, string) { return http.StatusCreated, second },
			after: 61 * 24 * time.Hour, want: second, asked: 1,
		},
		"Forbidden": {
			reason: "Without the right it stays, and while there is time nothing is said.", token: first,
			answer: func() (int, string) { return http.StatusForbidden, "" }, after: 61 * 24 * time.Hour, want: first, asked: 1,
		},
		"ForbiddenAndSoon": {
			reason: "Two weeks before the end it is said.", token: first,
			answer: func() (int, string) { return http.StatusForbidden, "" }, after: 77 * 24 * time.Hour, want: first, asked: 1,
			says: "True NotRenewed: the token of serviceaccount sys/refract expires at 2026-04-01T00:00:00Z, and cannot be renewed: requesting a token: ",
		},
		"OfAnother": {
			reason: "The token of somebody else is not taken.", token: first,
			answer: func() (int, string) {
				return http.StatusCreated, token("system:serviceaccount:sys:other", start, 2*life)
			},
			after: 77 * 24 * time.Hour, want: first, asked: 1, says: "True NotRenewed: ",
		},
		"NoLonger": {
			reason: "Nor is one that does not last longer.", token: first, answer: func() (int, string) { return http.StatusCreated, first },
			after: 77 * 24 * time.Hour, want: first, asked: 1, says: "True NotRenewed: ",
		},
		"Rubbish": {
			reason: "Nor is what is none.", token: first, answer: func() (int, string) { return http.StatusCreated, "a\r\nHost: b" },
			after: 77 * 24 * time.Hour, want: first, asked: 1, says: "True NotRenewed: ",
		},
		"OfAUser": {
			reason: "A user's is for somebody else to renew.", token: token("ann", start, life), after: 77 * 24 * time.Hour,
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
			fc := f.look() // Shortly afterwards it does not ask again.
			if got := string(f.secret().Data[corev1alpha1.SecretServiceAccountToken]); got != tc.want {
				t.Errorf("%s\nwant the token %s, got %s", tc.reason, tc.want, got)
			}
			if got := member.asked.Load(); got != tc.asked {
				t.Errorf("%s\nwant it asked for %d times, got %d", tc.reason, tc.asked, got)
			}
			if got := member.life.Load(); tc.asked > 0 && got != int64(life/time.Second) {
				t.Errorf("want one asked for that lasts as long as the last, got %d s", got)
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

// TestNextToken: a member is not read again because of a new token, and the next requests have the new token.
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
		t.Error("want the member that is known, got another")
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
