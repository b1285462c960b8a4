package override

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/tree"
)

// rulesOf returns a policy with one rule for each argument. The argument is the number of operations in the rule. All
// operations are at the same place.
func rulesOf(operations ...int) *corev1alpha1.OverridePolicy {
	p := &corev1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	written := 0
	for _, n := range operations {
		items := make([]corev1alpha1.JSONPatchOverrider, n)
		for i := range items {
			written++
			items[i] = corev1alpha1.JSONPatchOverrider{Path: "/data/x", Value: &apiextensionsv1.JSON{Raw: fmt.Appendf(nil, "%q", fmt.Sprint(written))}}
		}
		p.Spec.OverrideRules = append(p.Spec.OverrideRules, corev1alpha1.OverrideRule{Overriders: &corev1alpha1.Overriders{JSONPatch: items}})
	}
	return p
}

func configMap() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "default", "name": "c"}, "data": map[string]any{"x": "0"},
	}}
}

func TestTooManyItems(t *testing.T) {
	values := func(n int, more func(*corev1alpha1.OverrideRule)) *corev1alpha1.OverridePolicy {
		p := rulesOf(0)
		entries := map[string]string{}
		for i := range n {
			entries[fmt.Sprint("k", i)] = "v"
		}
		p.Spec.OverrideRules[0].Overriders.Annotations = []corev1alpha1.StringMapOverrider{{Operator: corev1alpha1.OpAddIfAbsent, Value: entries}}
		more(&p.Spec.OverrideRules[0])
		return p
	}
	const tooMany = ": spec.overrideRules: Forbidden: is too much: the rules have 15001 values together (items, entries of maps, elements of " +
		"lists, names of clusters), and a policy may have 15000: select clusters by labels, or make several policies of it"
	segments := func(n int) *corev1alpha1.OverridePolicy {
		p := rulesOf(1)
		p.Spec.OverrideRules[0].Overriders.JSONPatch[0] = corev1alpha1.JSONPatchOverrider{Path: strings.Repeat("/a", n), Operator: corev1alpha1.OpRemove}
		return p
	}
	for name, tc := range map[string]struct {
		reason string
		policy *corev1alpha1.OverridePolicy
		want   string // After "OverridePolicy default/web"; empty if the object gets its variant.
	}{
		"Items": {
			reason: "The rules may have 5,000 items together, the limit of the schema.",
			policy: rulesOf(1000, 1000, 1000, 1000, 1000),
		},
		"OneItemMore": {
			reason: "An excess item in a rule for another cluster fails the policy on all clusters.",
			policy: values(MaxValues-1, func(r *corev1alpha1.OverrideRule) {
				r.Overriders.Image = make([]corev1alpha1.ImageOverrider, 1)
			}),
			want: tooMany,
		},
		"Rules": {
			reason: "The maximum number of rules is allowed.",
			policy: rulesOf(make([]int, MaxRules)...),
		},
		"OneRuleMore": {
			reason: "Empty rules count, too.",
			policy: rulesOf(make([]int, MaxRules+1)...),
			want:   ": spec.overrideRules: Too many: 1001: must have at most 1000 items",
		},
		"Values": {
			reason: "One item may have the maximum number of values.",
			policy: values(MaxValues-1, func(*corev1alpha1.OverrideRule) {}),
		},
		"OneValueMore": {
			reason: "A single item may be as large as thousands of items when compiled.",
			policy: values(MaxValues, func(*corev1alpha1.OverrideRule) {}),
			want:   tooMany,
		},
		"OneClusterMore": {
			reason: "The clusters of a rule count.",
			policy: values(MaxValues-1, func(r *corev1alpha1.OverrideRule) {
				r.TargetClusters = &corev1alpha1.TargetClusters{Clusters: []string{"a"}}
			}),
			want: tooMany,
		},
		"OneElementMore": {
			reason: "The values inside a patch value count. A string is one value, whatever its characters.",
			policy: values(MaxValues-6, func(r *corev1alpha1.OverrideRule) {
				r.Overriders.JSONPatch = []corev1alpha1.JSONPatchOverrider{{Path: "/data", Value: &apiextensionsv1.JSON{
					Raw: []byte(`{"a": ["[,{", {"b": "\",{[\\"}]}`),
				}}}
			}),
			want: tooMany,
		},
		"Depth": {
			reason: "A path of the maximum depth is allowed; the error is that the place does not exist.",
			policy: segments(MaxDepth),
			want:   " rule 0 jsonpatch[0]: /a does not exist",
		},
		"Deeper": {
			reason: "A deeper path is rejected without a lookup.",
			policy: segments(MaxDepth + 1),
			want:   " rule 0 jsonpatch[0]: spec.overrideRules[0].overriders.jsonpatch[0].path: Forbidden: is too much: it has 101 segments, and a path may have 100",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := Compile(tc.policy)
			v := Apply(configMap(), match.Cluster{Name: "a"}, p)
			got := ""
			if v.Err != nil {
				got = strings.TrimPrefix(v.Err.Error(), "OverridePolicy default/web")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if p.Rules() != len(tc.policy.Spec.OverrideRules) {
				t.Errorf("the policy has %d rules, and %d compiled: want every index valid", len(tc.policy.Spec.OverrideRules), p.Rules())
			}
		})
	}
}

// TestStoredBeforeTheLimit verifies that a policy that was stored before the limits existed, and an object that names
// it, cannot exhaust the controllers of a fleet.
func TestStoredBeforeTheLimit(t *testing.T) {
	for _, n := range []int{12_000, 20_000} {
		p := rulesOf(n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		compiled, _ := Compile(p)
		v := Apply(configMap(), match.Cluster{Name: "a"}, compiled)
		runtime.ReadMemStats(&after)
		if !errors.Is(v.Err, ErrTooMuch) {
			t.Errorf("%d operations: want ErrTooMuch, got %v", n, v.Err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("%d operations take %d bytes: want them not compiled", n, got)
		}
	}
}

// containersOf returns a Deployment with n containers.
func containersOf(n int) *unstructured.Unstructured {
	list := make([]any, n)
	for i := range list {
		list[i] = map[string]any{"name": fmt.Sprint("c", i), "image": "i:0", "args": []any{}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "default", "name": "d"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": list}}},
	}}
}

// tags returns a policy that sets 200 tags on the images of all containers, one after the other. Each cluster has its
// own rule.
func tags(clusters ...string) *corev1alpha1.OverridePolicy {
	p := &corev1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	for _, cluster := range clusters {
		images := make([]corev1alpha1.ImageOverrider, MaxChanges/500)
		for i := range images {
			images[i].Operations = []corev1alpha1.ImageOperation{{ImageComponent: corev1alpha1.ImageTag, Value: fmt.Sprint("t", i)}}
		}
		p.Spec.OverrideRules = append(p.Spec.OverrideRules, corev1alpha1.OverrideRule{
			TargetClusters: &corev1alpha1.TargetClusters{Clusters: []string{cluster}}, Overriders: &corev1alpha1.Overriders{Image: images},
		})
	}
	return p
}

// arguments returns a policy that appends n arguments several times.
func arguments(times, n int) *corev1alpha1.OverridePolicy {
	p := &corev1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	args := make([]corev1alpha1.EntrypointOverrider, times)
	for i := range args {
		args[i] = corev1alpha1.EntrypointOverrider{ContainerName: "c0", Operator: corev1alpha1.OpAppend, Value: make([]string, n)}
	}
	p.Spec.OverrideRules = []corev1alpha1.OverrideRule{{Overriders: &corev1alpha1.Overriders{Args: args}}}
	return p
}

// TestBudget applies policies whose size is within all limits, but whose effect on an object is not.
func TestBudget(t *testing.T) {
	const a, b, c, d, e, f = "a", "b", "c", "d", "e", "f"
	missing := tags(a, b, c, d, e)
	missing.Spec.OverrideRules[0].Overriders.Image[0].ContainerNames = strings.Fields(strings.Repeat("nobody ", 101))
	for name, tc := range map[string]struct {
		reason string
		object *unstructured.Unstructured
		policy *corev1alpha1.OverridePolicy
		want   []error // The error of each cluster.
	}{
		"Warnings": {
			reason: "Warnings count like changes.",
			object: containersOf(100), policy: missing, want: []error{nil, nil, nil, nil, errChanges},
		},
		"Changes": {
			reason: "All variants together may have the maximum number of changes.",
			object: containersOf(100), policy: tags(a, b, c, d, e), want: []error{nil, nil, nil, nil, nil, nil},
		},
		"OneVariantMore": {
			reason: "Variants beyond the budget fail. A variant without changes does not fail.",
			object: containersOf(100), policy: tags(a, b, c, d, e, f), want: []error{nil, nil, nil, nil, nil, errChanges, nil},
		},
		"Work": {
			reason: "A list grows with each item, within the limit of work.",
			object: containersOf(1), policy: arguments(60, 100), want: []error{nil},
		},
		"TooMuchWork": {
			reason: "The changes are few, but each keeps the previous list.",
			object: containersOf(1), policy: arguments(900, 11), want: []error{errWork},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, errs := Compile(tc.policy)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			clusters := make([]match.Cluster, len(tc.want))
			for i := range clusters {
				clusters[i].Name = string(rune('a' + i))
			}
			got := make([]error, len(tc.want))
			for _, v := range Render(tc.object, clusters, p) {
				for _, i := range v.Clusters {
					got[i] = v.Err
				}
			}
			for i, want := range tc.want {
				if !errors.Is(got[i], want) {
					t.Errorf("%s\ncluster %s: want %v, got %v", tc.reason, clusters[i].Name, want, got[i])
				}
				var failed *RuleError
				if want != nil && (!errors.As(got[i], &failed) || failed.Policy.Name != "web" || !errors.Is(want, ErrTooMuch)) {
					t.Errorf("%s\ncluster %s: want an error that names the policy, got %v", tc.reason, clusters[i].Name, got[i])
				}
			}
		})
	}
}

// TestTotalBytes renders an object of almost 1 MiB for as many clusters as MaxTotalBytes has MiB. A rule for each
// cluster fills the object up to 1 MiB.
func TestTotalBytes(t *testing.T) {
	const mib, written = 1 << 20, `"12345678"`
	policy := &corev1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	var clusters []match.Cluster
	for i := range MaxTotalBytes / mib {
		name := fmt.Sprint("c", i)
		clusters = append(clusters, match.Cluster{Name: name})
		policy.Spec.OverrideRules = append(policy.Spec.OverrideRules, corev1alpha1.OverrideRule{
			TargetClusters: &corev1alpha1.TargetClusters{Clusters: []string{name}},
			Overriders: &corev1alpha1.Overriders{JSONPatch: []corev1alpha1.JSONPatchOverrider{
				{Path: "/data/x", Value: &apiextensionsv1.JSON{Raw: []byte(written)}},
			}},
		})
	}
	clusters = append(clusters, match.Cluster{Name: "plain"})
	p, errs := Compile(policy)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	for name, tc := range map[string]struct {
		reason string
		more   int
		want   int // Number of clusters that get no object.
	}{
		"Bytes":       {"All clusters together may get the maximum number of bytes.", 0, 0},
		"OneByteMore": {"The last variant exceeds the budget. A cluster without a rule gets the unchanged object.", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			obj := configMap()
			data := obj.Object["data"].(map[string]any)
			data["big"] = ""
			data["big"] = strings.Repeat("a", mib-len(written)-tree.Size(begin(obj).doc.Root())+tc.more)
			var failed []match.Cluster
			for _, v := range Render(obj, clusters, p) {
				if v.Err == nil {
					continue
				}
				if !errors.Is(v.Err, errTotalBytes) || !strings.HasPrefix(v.Err.Error(), "OverridePolicy default/web rule ") {
					t.Errorf("want an error that names the rule and the limit, got %v", v.Err)
				}
				for _, i := range v.Clusters {
					failed = append(failed, clusters[i])
				}
			}
			if len(failed) != tc.want || tc.want > 0 && failed[0].Name != "c63" {
				t.Errorf("%s\nwant %d failed clusters, got %v", tc.reason, tc.want, failed)
			}
		})
	}
}

// TestBudgetOfSeveralGoes renders the clusters of an object in several calls with one Budget.
func TestBudgetOfSeveralGoes(t *testing.T) {
	p, _ := Compile(tags("a", "b", "c", "d", "e", "f"))
	var budget Budget
	var errs []error
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		errs = append(errs, budget.Render(containersOf(100), []match.Cluster{{Name: name}}, p)[0].Err)
	}
	if err := errors.Join(errs[:5]...); err != nil {
		t.Errorf("within the budget: %v", err)
	}
	if !errors.Is(errs[5], errChanges) {
		t.Errorf("want one budget for all calls, got %v", errs[5])
	}
}
