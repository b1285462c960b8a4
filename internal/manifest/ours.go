package manifest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utiljson "sigs.k8s.io/json"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/manifest/nearest"
	"refract.dev/override"
	"refract.dev/placement"
)

// ourKind says how objects of one of our kinds are sorted into the Set, and
// whether the kind is namespaced. Add is called with an object and its JSON.
type ourKind struct {
	namespaced bool
	add        func(c *collector, o *object, data []byte)
}

var ourKinds = map[string]ourKind{
	corev1alpha1.KindOverridePolicy:           {true, addOverridePolicy},
	corev1alpha1.KindClusterOverridePolicy:    {false, addClusterOverridePolicy},
	corev1alpha1.KindPropagationPolicy:        {true, addPropagationPolicy},
	corev1alpha1.KindClusterPropagationPolicy: {false, addClusterPropagationPolicy},
	corev1alpha1.KindFederatedCluster:         {false, addCluster},
}

// ours reports whether a group is that of policies and clusters.
func ours(group string) bool { return group == corev1alpha1.GroupVersion.Group }

// checkOurs checks that there is such a kind.
func (c *collector) checkOurs(o *object) {
	if o.gvk.Version != corev1alpha1.GroupVersion.Version {
		c.report(o, "apiVersion", fmt.Sprintf("%s is not served, only %s", o.gvk.GroupVersion(), corev1alpha1.GroupVersion), "")
	}
	if _, ok := ourKinds[o.gvk.Kind]; ok {
		return
	}
	names := slices.Sorted(maps.Keys(ourKinds))
	hint := "its kinds are " + strings.Join(names, ", ")
	if near := nearest.To(o.gvk.Kind, names); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	c.report(o, "kind", fmt.Sprintf("group %s has no kind %s", o.gvk.Group, o.gvk.Kind), hint)
}

// sortOurs decodes an object of ours and puts it into its list.
func (c *collector) sortOurs(o *object, data []byte) {
	for _, msg := range validation.NameIsDNSSubdomain(o.Content.GetName(), false) {
		c.report(o, "metadata.name", fmt.Sprintf("is %q: %s", o.Content.GetName(), msg), "")
	}
	ourKinds[o.gvk.Kind].add(c, o, data)
}

func addOverridePolicy(c *collector, o *object, data []byte) {
	if p := decodePolicy[corev1alpha1.OverridePolicy](c, o, data); p != nil {
		addPolicy(c, o, &c.set.OverridePolicies, p, override.Compile)
	}
}

func addClusterOverridePolicy(c *collector, o *object, data []byte) {
	if p := decodePolicy[corev1alpha1.ClusterOverridePolicy](c, o, data); p != nil {
		addPolicy(c, o, &c.set.ClusterOverridePolicies, p, override.CompileCluster)
	}
}

func addPropagationPolicy(c *collector, o *object, data []byte) {
	if p := decodePolicy[corev1alpha1.PropagationPolicy](c, o, data); p != nil {
		addPolicy(c, o, &c.set.PropagationPolicies, p, placement.Compile)
	}
}

func addClusterPropagationPolicy(c *collector, o *object, data []byte) {
	if p := decodePolicy[corev1alpha1.ClusterPropagationPolicy](c, o, data); p != nil {
		addPolicy(c, o, &c.set.ClusterPropagationPolicies, p, placement.CompileCluster)
	}
}

// addPolicy compiles a policy and adds it to its list if it is valid.
func addPolicy[T, C any](c *collector, o *object, list *[]Policy[T, C], p *T, compile func(*T) (*C, field.ErrorList)) {
	compiled, errs := compile(p)
	c.reportAll(o, errs)
	if !o.wrong {
		*list = append(*list, Policy[T, C]{Place: o.Place, Policy: p, Compiled: compiled})
	}
}

// maxPolicyName is how long a label value, by which objects name a policy, can
// be.
const maxPolicyName = 63

func decodePolicy[T any](c *collector, o *object, data []byte) *T {
	if name := o.Content.GetName(); len(name) > maxPolicyName {
		c.report(o, "metadata.name", fmt.Sprintf("has %d characters, want at most %d: objects name the policy in a label value", len(name), maxPolicyName), "")
	}
	return decodeStrictly[T](c, o, data, true)
}

// addCluster adds a cluster. Offline nothing is asked of it but its name: it is
// not going to be reached.
func addCluster(c *collector, o *object, data []byte) {
	cluster := decodeStrictly[corev1alpha1.FederatedCluster](c, o, data, false)
	if cluster != nil && !o.wrong {
		c.set.Clusters = append(c.set.Clusters, Cluster{Place: o.Place, Cluster: cluster})
	}
}

// decodeStrictly decodes an object and reports what is not as T wants it: the
// status excepted, which is not for a manifest to say. What can be decoded all
// the same is returned, so that more mistakes can be found.
func decodeStrictly[T any](c *collector, o *object, data []byte, required bool) *T {
	content := maps.Clone(o.Content.Object)
	delete(content, "status")
	for _, m := range conform(content, reflect.TypeFor[T](), nil, required) {
		c.report(o, m.path.String(), m.fact, m.hint)
	}
	var typed T
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(data, &typed); err != nil {
		if !o.wrong {
			c.report(o, "", fmt.Sprintf("is no %s: %v", o.gvk.Kind, err), "")
		}
		return nil
	}
	return &typed
}
