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

// rulesOf returns a policy with one rule for each argument. The argument is the number of operations of the rule, all
// at one place.
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
			reason: "All rules together may have as many, and 5,000 pass the schema.",
			policy: rulesOf(1000, 1000, 1000, 1000, 1000),
		},
		"OneItemMore": {
			reason: "An item of a rule for another cluster fails the policy everywhere.",
			policy: values(MaxValues-1, func(r *corev1alpha1.OverrideRule) {
				r.Overriders.Image = make([]corev1alpha1.ImageOverrider, 1)
			}),
			want: tooMany,
		},
		"Rules": {
			reason: "A policy may have as many.",
			policy: rulesOf(make([]int, MaxRules)...),
		},
		"OneRuleMore": {
			reason: "Rules with nothing in them cost something, too.",
			policy: rulesOf(make([]int, MaxRules+1)...),
			want:   ": spec.overrideRules: Too many: 1001: must have at most 1000 items",
		},
		"Values": {
			reason: "One item may have as many.",
			policy: values(MaxValues-1, func(*corev1alpha1.OverrideRule) {}),
		},
		"OneValueMore": {
			reason: "It is one item, and compiled it is as much as thousands.",
			policy: values(MaxValues, func(*corev1alpha1.OverrideRule) {}),
			want:   tooMany,
		},
		"OneClusterMore": {
			reason: "So are the clusters of a rule.",
			policy: values(MaxValues-1, func(r *corev1alpha1.OverrideRule) {
				r.TargetClusters = &corev1alpha1.TargetClusters{Clusters: []string{"a"}}
			}),
			want: tooMany,
		},
		"OneElementMore": {
			reason: "What is in the value of a patch is decoded when the policy is compiled. A string is one, whatever is in it.",
			policy: values(MaxValues-6, func(r *corev1alpha1.OverrideRule) {
				r.Overriders.JSONPatch = []corev1alpha1.JSONPatchOverrider{{Path: "/data", Value: &apiextensionsv1.JSON{
					Raw: []byte(`{"a": ["[,{", {"b": "\",{[\\"}]}`),
				}}}
			}),
			want: tooMany,
		},
		"Depth": {
			reason: "A path may be as deep: what fails is that nothing is there.",
			policy: segments(MaxDepth),
			want:   " rule 0 jsonpatch[0]: /a does not exist",
		},
		"Deeper": {
			reason: "A deeper one is not even looked for.",
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
				t.Errorf("The policy has %d rules, and compiled %d: whoever asks for one by its index gets it", len(tc.policy.Spec.OverrideRules), p.Rules())
			}
		})
	}
}

// TestStoredBeforeTheLimit verifies that a policy from the time before the limits, and one object that names it, cannot
// exhaust the controllers of a fleet.
func TestStoredBeforeTheLimit(t *testing.T) {
	for _, n := range []int{12_000, 20_000} {
		p := rulesOf(n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		compiled, _ := Compile(p)
		v := Apply(configMap(), match.Cluster{Name: "a"}, compiled)
		runtime.ReadMemStats(&after)
		if !errors.Is(v.Err, ErrTooMuch) {
			t.Errorf("%d operations: want an error that says that it is too much, got %v", n, v.Err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("%d operations take %d bytes, and are not to be looked at", n, got)
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

// tags returns a policy that sets 200 tags on the images of all containers, one after the other. Each cluster has a
// rule of its own.
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

// arguments returns a policy that appends n arguments, the given number of times.
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
		want   []error // By cluster.
	}{
		"Warnings": {
			reason: "Warnings take memory like changes.",
			object: containersOf(100), policy: missing, want: []error{nil, nil, nil, nil, errChanges},
		},
		"Changes": {
			reason: "All variants together may have as many.",
			object: containersOf(100), policy: tags(a, b, c, d, e), want: []error{nil, nil, nil, nil, nil, nil},
		},
		"OneVariantMore": {
			reason: "The variants that there is nothing left for fail. One that nothing is done for is there.",
			object: containersOf(100), policy: tags(a, b, c, d, e, f), want: []error{nil, nil, nil, nil, nil, errChanges, nil},
		},
		"Work": {
			reason: "A list that grows with each item.",
			object: containersOf(1), policy: arguments(60, 100), want: []error{nil},
		},
		"TooMuchWork": {
			reason: "It is few changes, and all of them keep what was before.",
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

// TestTotalBytes renders an object of almost 1 MiB for as many clusters as MaxTotalBytes has MiB. The rule of each
// cluster writes the rest.
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
		"Bytes":       {"All clusters together may get as many.", 0, 0},
		"OneByteMore": {"There is nothing left for the last one. The one that no rule is for gets the object as it is.", 1, 1},
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
					t.Errorf("want an error that names the rule and what there is too much of, got %v", v.Err)
				}
				for _, i := range v.Clusters {
					failed = append(failed, clusters[i])
				}
			}
			if len(failed) != tc.want || tc.want > 0 && failed[0].Name != "c63" {
				t.Errorf("%s\nwant %d to fail, got %v", tc.reason, tc.want, failed)
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
		t.Errorf("Within the budget: %v", err)
	}
	if !errors.Is(errs[5], errChanges) {
		t.Errorf("Each go has the budget to itself: %v", errs[5])
	}
}
