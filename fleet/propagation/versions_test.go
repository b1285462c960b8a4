package propagation

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/override"
)

// TestVersions: each cluster gets the first version of the hub that it serves, rendered from the object in that version.
func TestVersions(t *testing.T) {
	type outcome struct {
		Version string // The version of the copy; empty for none.
		Reason  string
		Said    string // The error or the warning.
		Field   string // A field of the object in that version, after the overrides.
	}
	preferred := outcome{Version: "v2", Field: "as v2"}
	const note = "the copy is sent in version v1: the cluster does not serve version v2, which the hub prefers"
	cases := map[string]struct {
		reason string
		hub    []string
		older  []string // The versions that us-1 serves; nil if they include the hub's preferred one.
		fails  error
		rule   *corev1alpha1.OverrideRule
		want   outcome // For us-1.
		reads  []string
	}{
		"Preferred": {reason: "No request is needed when all clusters serve the preferred version.", hub: []string{"v2", "v1"}, want: preferred},
		"Older": {
			reason: "The object is read in the version of the cluster.", hub: []string{"v2", "v1", "v1beta1"}, older: []string{"v1beta1", "v1"},
			want: outcome{Version: "v1", Said: note, Field: "as v1"}, reads: []string{"v1"},
		},
		"Overridden": {
			reason: "Overrides apply to the version that is sent.", hub: []string{"v2", "v1"}, older: []string{"v1"},
			rule: new(rule("us-1", "/field", `"changed"`)), want: outcome{Version: "v1", Said: note, Field: "changed"}, reads: []string{"v1"},
		},
		"None": {
			reason: "The message names the versions of both.", hub: []string{"v2", "v1"}, older: []string{"v4", "v3"},
			want: outcome{
				Reason: reasonTypeNotServed,
				Said: "the cluster serves widgets.example.com in version v4, v3, the hub has it in version v2, v1, and the copy would have version v2. " +
					"Install a version of the hub on the cluster, or place the object elsewhere",
			},
		},
		"Named": {
			reason: "An override may set a version that the hub does not have.", hub: []string{"v2"}, older: []string{"v1"},
			rule: new(rule("us-1", "/apiVersion", `"example.com/v1"`)), want: outcome{Version: "v1", Field: "as v2"},
		},
		"Unconverted": {
			reason: "The other cluster gets its copy in any case.", hub: []string{"v2", "v1"}, older: []string{"v1"}, fails: errors.New("no answer"),
			want:  outcome{Reason: reasonUnconverted, Said: "the cluster needs the object in version v1, which cannot be read from the hub: no answer"},
			reads: []string{"v1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := func(version string) *unstructured.Unstructured {
				u := sourceObject("example.com/"+version, "Widget", "web", "pp")
				u.Object["field"] = "as " + version
				return u
			}
			obj, overrides := in("v2"), map[string]override.Policy{}
			if tc.rule != nil {
				overrides["op"] = *compile(t, "op", *tc.rule)
				obj.SetLabels(map[string]string{corev1alpha1.PropagationPolicyLabel: "pp", corev1alpha1.OverridePolicyLabel: "op"})
			}
			s := around(t, "", false, overrides)
			s.versions = tc.hub
			if tc.older != nil {
				s.older = map[string][]string{"us-1": tc.older}
			}
			var reads []string
			s.convert = func(version string) (*unstructured.Unstructured, error) {
				reads = append(reads, version)
				if tc.fails != nil {
					return nil, &unconvertedError{version, tc.fails}
				}
				return in(version), nil
			}
			gvr := widgets
			gvr.Version = "v2"
			p := decide(source{gvr: gvr, kind: "Widget", object: obj, versions: tc.hub}, previous{uid: "1"}, s)
			of := func(cluster string) (o outcome) {
				target := p.targets[cluster]
				if target.err != nil {
					return outcome{Reason: reasonOf(target.err), Said: target.err.Error()}
				}
				o.Version, o.Said = target.variant.gvr.Version, strings.Join(target.warnings, "; ")
				_, rest, _ := strings.Cut(string(target.variant.body.Load().forNew()), `"field":"`)
				o.Field, _, _ = strings.Cut(rest, `"`)
				return o
			}
			if diff := cmp.Diff(preferred, of("eu-1")); diff != "" {
				t.Errorf("%s\nthe cluster that serves v2: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, of("us-1")); diff != "" {
				t.Errorf("%s\nthe other cluster: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.reads, reads); diff != "" {
				t.Errorf("%s\nread from the hub: -want, +got:\n%s", tc.reason, diff)
			}
			again := decide(source{gvr: gvr, kind: "Widget", object: obj, versions: tc.hub}, previous{uid: "1"}, s)
			if t1, t2 := p.targets["us-1"], again.targets["us-1"]; t1.variant != nil && t1.variant.hash != t2.variant.hash {
				t.Errorf("%s\nwant the same content after another decision, as after a restart", tc.reason)
			}
			if to := p.targets["us-1"]; to.from != nil {
				c := p.encodeFor(to.from.object, &s.clusters[1].Cluster, to.from.policies, sourceOf("hub", p.uid, gvr.GroupResource(), "shop", "web"))
				if c == nil || c.hash != to.variant.hash {
					t.Errorf("%s\nwant the same content after another rendering", tc.reason)
				}
			}
		})
	}
}
