package inject

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMatching: the index finds the policies that match, and no others.
func TestMatching(t *testing.T) {
	selectors := []string{
		`{}`, `{matchLabels: {a: "1"}}`, `{matchLabels: {a: "2"}}`, `{matchLabels: {a: "1", b: "1"}}`,
		`{matchExpressions: [{key: a, operator: In, values: ["1", "2", "3"]}]}`, `{matchExpressions: [{key: b, operator: Exists}]}`,
		`{matchExpressions: [{key: b, operator: DoesNotExist}]}`, `{matchExpressions: [{key: a, operator: NotIn, values: ["1"]}]}`,
		`{matchExpressions: [{key: b, operator: Exists}, {key: a, operator: In, values: ["3"]}]}`,
		`{matchExpressions: [{key: b, operator: Exists}, {key: c, operator: NotIn, values: ["1"]}, {key: c, operator: Exists}]}`,
	}
	specs := make([]string, len(selectors))
	for i, selector := range selectors {
		specs[i] = fmt.Sprintf(`{selector: %s, env: [{name: A, value: "1"}]}`, selector)
	}
	set := testSet(t, specs...)
	values := []string{"", "1", "2", "3"}
	for _, a := range values {
		for _, b := range values {
			for _, c := range values {
				podLabels := map[string]string{}
				for key, value := range map[string]string{"a": a, "b": b, "c": c} {
					if value != "" {
						podLabels[key] = value
					}
				}
				var want, got []string
				for _, p := range set.Policies() {
					if p.Matches(podLabels) {
						want = append(want, p.Name())
					}
				}
				head, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": podLabels}})
				if err != nil {
					t.Fatal(err)
				}
				h, err := readHead(head)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range set.matching(h.labels) {
					got = append(got, p.Name())
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%v: -want, +got:\n%s", podLabels, diff)
				}
			}
		}
	}
}

// TestLabelTwice: the last one of a key counts, and a policy is applied once.
func TestLabelTwice(t *testing.T) {
	set := testSet(t, `{selector: {matchExpressions: [{key: a, operator: In, values: ["1", "2"]}]}, env: [{name: A, value: "1"}]}`, `{selector: {matchLabels: {a: "1"}}, env: [{name: B, value: "1"}]}`)
	result := mustInject(t, set, []byte(`{"metadata":{"labels":{"a":"1","a":"2"}},"spec":{"containers":[{"name":"a"}]}}`))
	if len(result.Applied) != 1 || result.Applied[0].Policy.Name() != "p0" {
		t.Errorf("applied %+v", result.Applied)
	}
}

// TestEmptySet: without policies nothing happens to anything.
func TestEmptySet(t *testing.T) {
	pod := []byte(`{"metadata":{"labels":{"a":"b"},"annotations":{"refract.dev/injection-hash":"0123"}},"spec":{"containers":[{"name":"a"}]}}`)
	for _, set := range []*Set{nil, NewSet()} {
		if set.Policies() != nil && len(set.Policies()) > 0 {
			t.Error("there are policies")
		}
		result, err := set.Inject(pod)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&Result{TemplateHash: "0123"}, result); diff != "" {
			t.Errorf("Inject(): -want, +got:\n%s", diff)
		}
		if result, err = set.InjectEphemeral(pod, pod); err != nil || result.Patch != nil {
			t.Errorf("InjectEphemeral() = %+v, %v", result, err)
		}
		x, err := set.Examine(pod)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&Examination{}, x); diff != "" {
			t.Errorf("Examine(): -want, +got:\n%s", diff)
		}
	}
}

// TestMany: many policies that all choose a pod, and many containers, are all there in
// the end.
func TestMany(t *testing.T) {
	specs := make([]string, 1000)
	for i := range specs {
		specs[i] = fmt.Sprintf(`{selector: {}, env: [{name: V%d, value: "1"}], volumes: [{name: v%d, emptyDir: {}}], volumeMounts: [{name: v%d, mountPath: /v%d}]}`, i, i, i, i)
	}
	var containers []any
	for i := range 10 {
		containers = append(containers, map[string]any{"name": fmt.Sprintf("c%d", i)})
	}
	pod := encoded(t, map[string]any{"metadata": map[string]any{}, "spec": map[string]any{"containers": containers}})
	set := testSet(t, specs...)
	after := patched(t, set, pod)
	body, err := readBody(after, containersPart)
	if err != nil {
		t.Fatal(err)
	}
	for i := range body.containers {
		if c := &body.containers[i]; len(c.env.entries) != len(specs) || len(c.mounts.entries) != len(specs) {
			t.Fatalf("%s has %d variables and %d mounts", c.name, len(c.env.entries), len(c.mounts.entries))
		}
	}
	if second := mustInject(t, set, after); second.Patch != nil {
		t.Error("the second time adds something")
	}
}

// TestExplain: each change says which item of which policy made it.
func TestExplain(t *testing.T) {
	set := testSet(t, `{selector: {}, env: [{name: A, value: "1"}, {name: B, value: "2"}], envPosition: Prepend}`)
	result, err := set.Explain([]byte(`{"metadata":{"annotations":{"refract.dev/injection":"old"}},"spec":{"containers":[{"name":"a","env":[{"name":"A","value":"1"},{"name":"C"}]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range result.Changes {
		got = append(got, fmt.Sprintf("%s %s %t %v %s %d", c.Op, c.Path, c.Element, c.Before, c.By.Overrider, c.By.Item))
	}
	want := []string{
		"add /spec/containers/0/env/1 true <nil> env 1",
		"add /metadata/annotations/serviceinjectionpolicy.k8s.io~1no_service false <nil>  0",
		"replace /metadata/annotations/refract.dev~1injection false old  0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if plain := mustInject(t, set, []byte(`{"metadata":{},"spec":{"containers":[{"name":"a"}]}}`)); plain.Changes != nil {
		t.Error("Inject() lists changes, which nobody asked for")
	}
}
