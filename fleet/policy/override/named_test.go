package override

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/tree"
)

func TestNamed(t *testing.T) {
	const op, cop = "kubeadmiral.io/override-policy-name", "kubeadmiral.io/cluster-override-policy-name"
	cases := map[string]struct {
		reason    string
		labels    map[string]string
		namespace string
		want      []tree.Policy
		warnings  []string
		err       string
	}{
		"None":        {"Without a label, no policy is named.", map[string]string{"app": "web"}, "default", nil, nil, ""},
		"One":         {"An OverridePolicy is in the object's namespace.", map[string]string{op: "a"}, "default", []tree.Policy{{Kind: "OverridePolicy", Namespace: "default", Name: "a"}}, nil, ""},
		"Cluster":     {"A ClusterOverridePolicy has no namespace.", map[string]string{cop: "b"}, "default", []tree.Policy{{Kind: "ClusterOverridePolicy", Name: "b"}}, nil, ""},
		"Both":        {"The ClusterOverridePolicy takes effect first.", map[string]string{op: "a", cop: "b"}, "default", []tree.Policy{{Kind: "ClusterOverridePolicy", Name: "b"}, {Kind: "OverridePolicy", Namespace: "default", Name: "a"}}, nil, ""},
		"NoNamespace": {"A cluster-scoped object can have only a ClusterOverridePolicy.", map[string]string{op: "a", cop: "b"}, "", []tree.Policy{{Kind: "ClusterOverridePolicy", Name: "b"}}, []string{"label " + op + " has no effect on a cluster-scoped object"}, ""},
		"Empty":       {"An empty value is an error: an object must not be propagated without its overrides.", map[string]string{op: ""}, "default", nil, nil, "label " + op + " is empty; it must name a policy"},
		"EmptyToo": {
			"An empty value is an error for the other label, too.",
			map[string]string{op: "a", cop: ""}, "default", nil, nil, "label " + cop + " is empty; it must name a policy",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, warnings, err := Named(tc.labels, tc.namespace)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.warnings, warnings); diff != "" {
				t.Errorf("%s\nwarnings: -want, +got:\n%s", tc.reason, diff)
			}
			if (err == nil) != (tc.err == "") || (err != nil && err.Error() != tc.err) {
				t.Errorf("%s\nerror: want %q, got %v", tc.reason, tc.err, err)
			}
		})
	}
}
