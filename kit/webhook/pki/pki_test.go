package pki

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/cert"
)

// begin is the time at which the tests begin.
var begin = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// clock is a clock that the test sets.
type clock struct{ now time.Time }

func issuer(c *clock, names ...string) *Issuer {
	return &Issuer{Names: names, Now: func() time.Time { return c.now }}
}

func renew(t *testing.T, i *Issuer, b *Bundle) (*Bundle, []string) {
	t.Helper()
	next, did, err := i.Renew(b)
	if err != nil {
		t.Fatalf("Renew(): %v", err)
	}
	return next, did
}

// trusts returns nil if a client with these authorities accepts the serving certificate for this name, and otherwise
// the error.
func trusts(authorities []byte, b *Bundle, name string, now time.Time) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authorities)
	_, err := b.Serving().Leaf.Verify(x509.VerifyOptions{
		Roots: pool, DNSName: name, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

func TestRenew(t *testing.T) {
	noAuthority := []string{"issued an authority: there was none", "issued a serving certificate: it was signed by another authority"}
	cases := map[string]struct {
		reason string
		names  []string // Names of the server after the first issue; nil for no change.
		after  time.Duration
		spoil  func(map[string][]byte)
		want   []string
		damage bool
	}{
		"Fresh": {
			reason: "A valid bundle is not replaced, because all replicas load the Secret after each write.",
		},
		"BeforeTwoThirds": {
			reason: "A certificate is not renewed early.",
			after:  ServingLife/3*2 - 2*time.Hour,
		},
		"ServingAfterTwoThirds": {
			reason: "A certificate is renewed while a third of its lifetime is left, in case renewals fail.",
			after:  ServingLife / 3 * 2,
			want:   []string{"issued a serving certificate: two thirds of its life are over"},
		},
		"AllExpired": {
			reason: "A hub that was off for years gets new certificates.",
			after:  AuthorityLife + time.Hour,
			want: []string{
				"dropped an authority that has expired", "issued an authority: there was none",
				"issued a serving certificate: it was signed by another authority",
			},
		},
		"ClockWentBack": {
			reason: "Certificates that are not valid yet are replaced.",
			after:  -48 * time.Hour,
			want: []string{
				"dropped an authority that is not valid yet", "issued an authority: there was none",
				"issued a serving certificate: it is not valid yet",
			},
		},
		"OtherNames": {
			reason: "A changed name needs a new certificate.",
			names:  []string{"10.1.2.3"},
			want:   []string{"issued a serving certificate: it was for other names"},
		},
		"SameNamesInAnotherOrder": {
			reason: "Names are a set, and an address may be written in several ways.",
			names:  []string{"::1", "hub.example", "0:0:0:0:0:0:0:1"},
		},
		"ServingKeyDamaged": {
			reason: "The authority is intact, so clients need to trust no new one.",
			spoil:  func(d map[string][]byte) { d[ServingKey] = []byte("secret rubbish") },
			want:   []string{"issued a serving certificate: there was none"},
			damage: true,
		},
		"KeyOfAnother": {
			reason: "A key that does not belong to the certificate counts as missing.",
			spoil:  func(d map[string][]byte) { d[ServingKey] = d[AuthorityKeys] },
			want:   []string{"issued a serving certificate: there was none"},
			damage: true,
		},
		"AuthorityDamaged": {
			reason: "Without the authority no client can verify the certificate, so both are issued again.",
			spoil:  func(d map[string][]byte) { d[Authorities] = []byte("secret rubbish") },
			want:   noAuthority,
			damage: true,
		},
		"AuthorityIsNone": {
			reason: "A certificate that must not sign is no authority.",
			spoil:  func(d map[string][]byte) { d[Authorities] = d[ServingCertificate] },
			want:   noAuthority,
			damage: true,
		},
		"AuthorityKeyLost": {
			reason: "An authority without its key stays trusted, and a new one is added that can sign.",
			spoil:  func(d map[string][]byte) { delete(d, AuthorityKeys) },
			want:   []string{"issued an authority: the key of the last one is missing"},
		},
		"Empty": {
			reason: "An empty Secret gets new certificates.",
			spoil:  func(d map[string][]byte) { clear(d) },
			want:   []string{"issued an authority: there was none", "issued a serving certificate: there was none"},
			damage: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &clock{begin}
			i := issuer(c, "hub.example", "::1")
			first, _ := renew(t, i, nil)
			data, err := first.Data()
			if err != nil {
				t.Fatal(err)
			}
			if tc.spoil != nil {
				tc.spoil(data)
			}
			stored, err := Parse(data)
			if (err != nil) != tc.damage {
				t.Errorf("%s\nParse(): got error %v, want one: %t", tc.reason, err, tc.damage)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("An error must not repeat a key: %v", err)
			}
			if tc.names != nil {
				i.Names = tc.names
			}
			c.now = begin.Add(tc.after)
			next, did := renew(t, i, stored)
			if diff := cmp.Diff(tc.want, did); diff != "" {
				t.Errorf("%s\nRenew(): -want, +got:\n%s", tc.reason, diff)
			}
			if err := trusts(next.Trusted(), next, i.Names[0], c.now); err != nil {
				t.Errorf("%s\nThe serving certificate is not trusted: %v", tc.reason, err)
			}
			if again, did := renew(t, i, next); again != next || did != nil {
				t.Errorf("A second Renew() must change nothing, got %v", did)
			}
		})
	}
}

func TestCommonNames(t *testing.T) {
	cases := map[string]struct{ reason, name, want string }{
		"Given": {"The common name tells a reader the owner of the certificate.", "pizza", "pizza"},
		"None":  {"The common name has a default.", "", "webhook"},
		"Long":  {"RFC 5280 allows 64 characters, including the authority's suffix.", strings.Repeat("x", 80), strings.Repeat("x", 61)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			i := issuer(&clock{begin}, "hub.example")
			i.CommonName = tc.name
			b, _ := renew(t, i, nil)
			if leaf := b.Serving().Leaf; leaf.Subject.CommonName != tc.want || leaf.Issuer.CommonName != tc.want+"-ca" {
				t.Errorf("%s\ngot %s, signed by %s", tc.reason, leaf.Subject, leaf.Issuer)
			}
		})
	}
}

// TestServersShareABundle: two servers with different names renew one bundle. The certificate is valid for both, and
// neither server undoes the changes of the other.
func TestServersShareABundle(t *testing.T) {
	c := &clock{begin}
	hub, member := issuer(c, "hub.example", "10.0.0.1"), issuer(c, "injection.refract.svc")
	b, _ := renew(t, hub, nil)
	b, did := renew(t, member, b)
	if diff := cmp.Diff([]string{"issued a serving certificate: it was for other names"}, did); diff != "" {
		t.Errorf("The certificate must get the second server's name: -want, +got:\n%s", diff)
	}
	for _, renewals := range []string{"The first certificate", "The renewed one"} {
		for _, i := range []*Issuer{hub, member} {
			if _, did := renew(t, i, b); did != nil {
				t.Errorf("%s: it serves %v, and it was replaced: %v", renewals, i.Names, did)
			}
			for _, name := range i.Names {
				if err := trusts(b.Trusted(), b, name, c.now); err != nil {
					t.Errorf("%s is not for %s: %v", renewals, name, err)
				}
			}
		}
		c.now = c.now.Add(ServingLife / 3 * 2)
		b, _ = renew(t, hub, b)
	}
}

// TestNamesAreBounded changes the name of a server many times. The certificate must not get more and more names.
func TestNamesAreBounded(t *testing.T) {
	c := &clock{begin}
	b, _ := renew(t, issuer(c, "first.example"), nil)
	for n := range 2 * mostNames {
		b, _ = renew(t, issuer(c, fmt.Sprintf("hub-%d.example", n)), b)
	}
	if got := len(namesIn(b.Serving().Leaf)); got != mostNames {
		t.Errorf("The certificate has %d names, want %d", got, mostNames)
	}
}

// TestNoGap simulates three years, with steps of one hour after a change. At each step, clients with the old
// authorities and clients with the new ones trust the new certificate, and clients with the new authorities trust the
// old certificate.
func TestNoGap(t *testing.T) {
	c := &clock{begin}
	i := issuer(c, "hub.example")
	b, _ := renew(t, i, nil)
	authorities, servings, both := 1, 1, 0
	const hours = 12 // The length in hours of a step without changes.
	step := time.Hour
	for c.now.Before(begin.AddDate(3, 0, 0)) {
		c.now = c.now.Add(step)
		data, err := b.Data()
		if err != nil {
			t.Fatal(err)
		}
		stored, err := Parse(data) // As after a restart.
		if err != nil {
			t.Fatal(err)
		}
		next, did := renew(t, i, stored)
		for _, d := range did {
			if strings.HasPrefix(d, "issued an authority") {
				authorities++
			}
			if strings.HasPrefix(d, "issued a serving") {
				servings++
			}
		}
		if trusted, err := cert.ParseCertsPEM(next.Trusted()); err != nil || len(trusted) > 2 {
			t.Fatalf("At %s %d authorities are trusted, want 1 or 2; error %v", c.now, len(trusted), err)
		} else if len(trusted) == 2 {
			both += int(step / time.Hour)
		}
		for what, err := range map[string]error{
			"new for new": trusts(next.Trusted(), next, "hub.example", c.now),
			"new for old": trusts(b.Trusted(), next, "hub.example", c.now),
			"old for new": trusts(next.Trusted(), b, "hub.example", c.now),
		} {
			if err != nil {
				t.Fatalf("At %s, %s: %v", c.now, what, err)
			}
		}
		b, step = next, hours*time.Hour
		if did != nil {
			step = time.Hour
		}
	}
	if authorities != 3 || servings < 18 || servings > 21 {
		t.Errorf("In three years there were %d authorities and %d serving certificates, want 3 and about 19", authorities, servings)
	}
	if least := int(AuthorityLife / 3 / time.Hour); both < least {
		t.Errorf("Two authorities were trusted for %d hours, want at least %d: until the old one had expired", both, least)
	}
	if bytes.Count(mustData(t, b)[AuthorityKeys], []byte("BEGIN")) != 1 {
		t.Error("The key of an authority that does not sign any more must be forgotten.")
	}
}

func mustData(t *testing.T, b *Bundle) map[string][]byte {
	t.Helper()
	data, err := b.Data()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRenewChangesNothingOfItsArgument(t *testing.T) {
	c := &clock{begin}
	i := issuer(c, "hub.example")
	b, _ := renew(t, i, nil)
	before := mustData(t, b)
	c.now = begin.Add(AuthorityLife - 48*time.Hour)
	renew(t, i, b)
	if diff := cmp.Diff(before, mustData(t, b)); diff != "" {
		t.Errorf("Renew() changed its argument: -before, +after:\n%s", diff)
	}
}
