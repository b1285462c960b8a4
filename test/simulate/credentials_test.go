package simulate

import (
	"encoding/base64"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRenewals: a token renewal counts as an effect of time only if it is due, and only once.
func TestRenewals(t *testing.T) {
	const account = "/api/v1/namespaces/kube-system/serviceaccounts/refract/token"
	for name, tc := range map[string]struct {
		reason string
		after  time.Duration // Time since the creation of the token, whose lifetime is an hour.
		again  bool          // Whether both requests are sent twice.
		want   []bool        // Results for the token request and for the write of the Secret.
	}{
		"Due":   {"Two thirds are over.", 40 * time.Minute, false, []bool{true, true}},
		"Early": {"That is not so yet.", 39 * time.Minute, false, []bool{false, false}},
		"Again": {"The token was replaced already.", 40 * time.Minute, true, []bool{true, true, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				of := &b.c.Lab.tokens
				of.life = soonOver
				b.newToken(b.c)
				old := of.last
				time.Sleep(tc.after)
				var got []bool
				renew := func() {
					b.grant(b.c, soonOver)
					for _, c := range []*call{
						{target: &b.c.Target, request: requestOf(account, "Bearer "+old)},
						{
							target: b.Hub, request: requestOf("/api/v1/namespaces/"+systemNamespace+"/secrets/"+b.c.Name, ""),
							body: []byte(`{"data":{"token":"` + base64.StdEncoding.EncodeToString([]byte(of.last)) + `"}}`),
						},
					} {
						got = append(got, b.renews(c))
					}
				}
				renew()
				if tc.again {
					renew()
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s\nrenews(): -want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// requestOf returns a request with a path and an Authorization header.
func requestOf(path, authorization string) *http.Request {
	r, err := http.NewRequest(http.MethodPost, "https://it"+path, http.NoBody)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Authorization", authorization)
	return r
}
