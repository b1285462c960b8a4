package suggest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// definition returns a definition with these versions. The first version is the storage version. If the name of a
// version is followed by a space and a suffix, the version is not served.
func definition(versions ...string) string {
	var text strings.Builder
	text.WriteString(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.example.com}
spec:
  group: example.com
  names: {kind: Shop, listKind: ShopList, plural: shops, singular: shop}
  scope: Namespaced
  versions:
`)
	for i, v := range versions {
		name, served, _ := strings.Cut(v, " ")
		fmt.Fprintf(&text, "  - {name: %s, served: %t, storage: %t, schema: {openAPIV3Schema: {type: object}}}\n", name, served == "", i == 0)
	}
	return text.String()
}

// TestVersions checks the choice of the hub and the spokes.
func TestVersions(t *testing.T) {
	type result struct {
		Hub    string
		Spokes []string
	}
	cases := map[string]struct {
		reason   string
		versions []string
		hub      string
		want     result
		err      error
	}{
		"Stable": {
			reason: "A stable version is preferred to newer unstable versions.", versions: []string{"v2alpha1", "v1", "v1beta1"},
			want: result{"v1", []string{"v2alpha1", "v1beta1"}},
		},
		"Newest": {
			reason: "Among versions of the same stability, the newest is preferred.", versions: []string{"v1beta2", "v1beta10", "v1beta9"},
			want: result{"v1beta10", []string{"v1beta2", "v1beta9"}},
		},
		"Asked": {
			reason: "A requested hub is used, even if it is neither served nor stored.", versions: []string{"v1", "v2 unused"}, hub: "v2",
			want: result{"v2", []string{"v1"}},
		},
		"Unused": {
			reason: "A version that is neither served nor stored needs no conversion.", versions: []string{"v1 stored", "v2", "v3 unused"},
			want: result{"v2", []string{"v1"}},
		},
		"OneIsLeft": {
			reason: "With only one version in use, there is nothing to convert.", versions: []string{"v1", "v2 unused"},
			err: errOneVersion,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, _, err := Policy(compile(t, []byte(definition(tc.versions...))), tc.hub)
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s\nerror %v, want %v", tc.reason, err, tc.err)
			}
			var got result
			if p != nil {
				got.Hub = p.Spec.Hub
				for _, s := range p.Spec.Spokes {
					got.Spokes = append(got.Spokes, s.Version)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestUnknownHub(t *testing.T) {
	if _, _, err := Policy(compile(t, []byte(definition("v1", "v2"))), "v3"); err == nil || !strings.HasPrefix(err.Error(), "looking for the hub: ") {
		t.Errorf("error %v, want one about the hub", err)
	}
}

func TestWords(t *testing.T) {
	cases := map[string][]string{
		"maxSurgePods":   {"max", "surge", "pod"},
		"hostIPRange":    {"host", "ip", "range"},
		"HTTPServer":     {"http", "server"},
		"if-not-present": {"if", "not", "present"},
		"":               nil,
	}
	for name, want := range cases {
		if diff := cmp.Diff(want, words(name)); diff != "" {
			t.Errorf("words(%q): -want, +got:\n%s", name, diff)
		}
	}
}

func TestDistance(t *testing.T) {
	cases := []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"size", "sizes", 1}, {"kitten", "sitting", 3}}
	for _, tc := range cases {
		if got := distance(tc.a, tc.b); got != tc.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
		if got := distance(tc.b, tc.a); got != tc.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tc.b, tc.a, got, tc.want)
		}
	}
}

// TestUnits checks that two numbers get a scale only if they have the same kind and their names end with units of the
// same quantity.
func TestUnits(t *testing.T) {
	cases := map[string]struct {
		hub, spoke, kind string
		want             string
	}{
		"Time":     {"timeoutSeconds", "timeoutHours", "integer", "3600:1 hours seconds"},
		"Up":       {"sizeGiB", "sizeMB", "number", "1:1024 MiB GiB"},
		"Odd":      {"ageDays", "ageMins", "integer", "1:1440 minutes days"},
		"Whole":    {"seconds", "minutes", "integer", "60:1 minutes seconds"},
		"Same":     {"aSeconds", "bSeconds", "integer", ""},
		"Other":    {"aSeconds", "aBytes", "integer", ""},
		"None":     {"size", "sizeMB", "integer", ""},
		"NoNumber": {"aSeconds", "aMinutes", "string", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			value := &schema.Structural{Generic: schema.Generic{Type: tc.kind}}
			got := ""
			if scale, from, to := unitsOf(&oneSided{name: tc.hub, value: value}, &oneSided{name: tc.spoke, value: value}); scale != nil {
				got = fmt.Sprintf("%d:%d %s %s", scale.Hub, scale.Spoke, from, to)
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
