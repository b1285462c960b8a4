package offline_test

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/fleet/offline/explain"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/override"
	"refract.dev/test/generate"
	"refract.dev/tree"
)

// TestExplainAccountsForEveryDifference explains all objects of random fleets. The writes in an explanation, applied
// with an implementation of RFC 6902 only, must turn the hub's object into the content for each cluster. An explanation
// must contain every cluster once.
func TestExplainAccountsForEveryDifference(t *testing.T) {
	const fleets = 500
	writes, failed, elsewhere := 0, 0, 0
	for seed := range uint64(fleets) {
		set, problems := manifest.ReadFS(generate.Random(seed).FS())
		if len(problems) > 0 {
			t.Fatalf("seed %d: %v", seed, problems)
		}
		evaluation, err := render.Evaluate(set, render.Options{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range evaluation.Outcomes {
			o := &evaluation.Outcomes[i]
			x, err := explain.Explain(evaluation, o, tree.Pointer{})
			if err != nil {
				t.Fatalf("seed %d: %s: %v", seed, o.ID, err)
			}
			for j := range x.Groups {
				if x.Groups[j].Failed {
					failed++
				}
				writes += checkGroup(t, seed, o, &x.Groups[j])
			}
			elsewhere += len(x.Elsewhere)
			checkClusters(t, seed, evaluation, o, x)
		}
	}
	if writes < fleets || failed == 0 || elsewhere == 0 {
		t.Errorf("the fleets have %d writes, %d failures and %d reasons: too few to show anything", writes, failed, elsewhere)
	}
}

// checkGroup applies the writes of a group, checks the result, and returns the number of writes.
func checkGroup(t *testing.T, seed uint64, o *render.Outcome, g *explain.Group) int {
	t.Helper()
	var writes []explain.Write
	for _, f := range g.Fields {
		for _, w := range f.Writes {
			if !w.Around {
				writes = append(writes, w)
			}
		}
	}
	slices.SortFunc(writes, func(a, b explain.Write) int { return cmp.Compare(a.Change, b.Change) })
	for i, w := range writes {
		if w.Change != i {
			t.Errorf("seed %d: %s on %v: write %d is change %d", seed, o.ID, g.Clusters, i, w.Change)
			return 0
		}
	}
	if g.Failed || o.ID.Kind == "Secret" { // Values of Secrets are masked.
		return len(writes)
	}
	object := override.Template(o.Object.Content).DeepCopy().Object
	prepare(object)
	for _, w := range writes {
		var ok bool
		if object, ok = applied(object, w).(map[string]any); !ok {
			t.Fatalf("seed %d: %s on %v: %s %s leaves no object", seed, o.ID, g.Clusters, w.Op, w.Path)
		}
	}
	for _, c := range g.Clusters {
		want := gets(o, c).DeepCopy().Object
		prepare(want)
		if diff := gocmp.Diff(withoutEmptyLists(want), withoutEmptyLists(object)); diff != "" {
			t.Fatalf("seed %d: %s on %s: -rendered, +explained:\n%s", seed, o.ID, c, diff)
		}
	}
	return len(writes)
}

// gets returns the content for a cluster.
func gets(o *render.Outcome, cluster string) *unstructured.Unstructured {
	for i := range o.Variants {
		for _, c := range o.Variants[i].Clusters {
			if o.Clusters[c].Name == cluster {
				return o.Variants[i].Object
			}
		}
	}
	return nil
}

// prepare adds the parts of an object that rules may assume.
func prepare(object map[string]any) {
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return
	}
	for key, empty := range map[string]any{"labels": map[string]any{}, "annotations": map[string]any{}, "finalizers": []any{}} {
		if metadata[key] == nil {
			metadata[key] = empty
		}
	}
}

// withoutEmptyLists returns the value without empty lists of containers, because the rendering omits a list that
// overrides have emptied.
func withoutEmptyLists(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, inside := range v {
			list, ok := inside.([]any)
			if !ok || len(list) > 0 || !slices.Contains([]string{"command", "args", "env"}, key) {
				out[key] = withoutEmptyLists(inside)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = withoutEmptyLists(v[i])
		}
		return out
	default:
		return value
	}
}

// applied returns a value after a write. The write may change the value itself.
func applied(value any, w explain.Write) any {
	keys := strings.Split(w.Path, "/")[1:]
	for i := range keys {
		keys[i] = strings.ReplaceAll(strings.ReplaceAll(keys[i], "~1", "/"), "~0", "~")
	}
	return appliedAt(value, keys, w)
}

func appliedAt(value any, keys []string, w explain.Write) any {
	switch v := value.(type) {
	case map[string]any:
		out := maps.Clone(v)
		switch {
		case len(keys) > 1:
			out[keys[0]] = appliedAt(v[keys[0]], keys[1:], w)
		case w.Op == tree.OpRemove:
			delete(out, keys[0])
		default:
			out[keys[0]] = w.After
		}
		return out
	case []any:
		i, err := strconv.Atoi(keys[0])
		if err != nil || i < 0 || i > len(v) {
			return nil
		}
		switch {
		case len(keys) > 1:
			return slices.Concat(v[:i], []any{appliedAt(v[i], keys[1:], w)}, v[i+1:])
		case w.Op == tree.OpAdd:
			return slices.Concat(v[:i], []any{w.After}, v[i:])
		case w.Op == tree.OpRemove:
			return slices.Concat(v[:i], v[i+1:])
		default:
			return slices.Concat(v[:i], []any{w.After}, v[i+1:])
		}
	default:
		return nil
	}
}

// checkClusters checks that each cluster occurs once, unless the placement of the object is unknown.
func checkClusters(t *testing.T, seed uint64, e *render.Evaluation, o *render.Outcome, x *explain.Explanation) {
	t.Helper()
	var got, want []string
	for _, g := range x.Groups {
		got = append(got, g.Clusters...)
	}
	for _, r := range x.Elsewhere {
		if r.Reason == "" {
			t.Errorf("seed %d: %s: the explanation has no reason for %v", seed, o.ID, r.Clusters)
		}
		got = append(got, r.Clusters...)
	}
	if len(got) == 0 && len(x.Errors) > 0 {
		return
	}
	for i := range e.Clusters {
		want = append(want, e.Clusters[i].Name)
	}
	slices.Sort(got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("seed %d: %s: -clusters, +explained:\n%s", seed, o.ID, diff)
	}
}
