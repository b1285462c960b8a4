package inject

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMatching: the index finds exactly the policies that match.
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

// TestLabelTwice: if the JSON has a label twice, its last value counts, and a policy applies only once.
func TestLabelTwice(t *testing.T) {
	set := testSet(t, `{selector: {matchExpressions: [{key: a, operator: In, values: ["1", "2"]}]}, env: [{name: A, value: "1"}]}`, `{selector: {matchLabels: {a: "1"}}, env: [{name: B, value: "1"}]}`)
	result := mustInject(t, set, []byte(`{"metadata":{"labels":{"a":"1","a":"2"}},"spec":{"containers":[{"name":"a"}]}}`))
	if len(result.Applied) != 1 || result.Applied[0].Policy.Name() != "p0" {
		t.Errorf("applied %+v", result.Applied)
	}
}

// TestEmptySet: without policies nothing changes.
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

// TestMany: many policies that select the same pod are all applied to all of its many containers.
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

// TestExplain: each change names the policy and the item that caused it.
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

// TestTooLarge: a policy is skipped if it would make the pod too large, and a later policy that fits still applies.
// Examine gives the same result.
func TestTooLarge(t *testing.T) {
	value := strings.Repeat("x", 30_000)
	env := fmt.Sprintf("[{name: A, value: %s}, {name: B, value: %s}, {name: C, value: %s}]", value, value, value)
	set := testSet(t, "{selector: {}, env: "+env+"}", `{selector: {}, env: [{name: SMALL, value: "1"}]}`)
	for containers, want := range map[int]string{5: "p0 p1", 20: "p1"} {
		var list []any
		for i := range containers {
			list = append(list, map[string]any{"name": fmt.Sprintf("c%d", i)})
		}
		pod := encoded(t, map[string]any{"metadata": map[string]any{}, "spec": map[string]any{"containers": list}})
		checkLaws(t, set, pod)
		result := mustInject(t, set, pod)
		var got []string
		for _, a := range result.Applied {
			got = append(got, a.Policy.Name())
		}
		if strings.Join(got, " ") != want || len(result.Patch) > maxPod+10_000 {
			t.Errorf("%d containers: got %v applied with %d bytes, want %s", containers, got, len(result.Patch), want)
		}
		for _, s := range result.Skipped {
			if s.Reason != ReasonTooLarge {
				t.Errorf("%d containers: got %s, want %s", containers, s.Reason, ReasonTooLarge)
			}
		}
		x, err := set.Examine(pod)
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Skipped) > 0 && (x.Statuses[0].State != StateSkipped || x.Statuses[0].Reason != ReasonTooLarge) {
			t.Errorf("%d containers: the pod without it is %+v", containers, x.Statuses[0])
		}
	}
}

// TestMostOfAPod: a pod may have exactly maxPod bytes after injection.
func TestMostOfAPod(t *testing.T) {
	set := testSet(t, `{selector: {}, env: [{name: A, value: "1"}]}`)
	const around = len(`{"metadata":{},"spec":{"containers":[{"name":"c","image":""}]}}`)
	room := maxPod - around - len(set.Policies()[0].env[0].raw)
	for name, tc := range map[string]struct {
		reason string
		image  int
		want   string // The reason for skipping the policy; empty if it applies.
	}{
		"Most":        {"A pod of the maximum size can be stored.", room, ""},
		"OneByteMore": {"With one byte more, the policy is skipped, and the record has the reason.", room + 1, "with the items of the policy the pod would have more than 1048576 bytes, and could not be stored"},
	} {
		t.Run(name, func(t *testing.T) {
			result := mustInject(t, set, fmt.Appendf(nil, `{"metadata":{},"spec":{"containers":[{"name":"c","image":%q}]}}`, strings.Repeat("i", tc.image)))
			got := ""
			if len(result.Skipped) > 0 {
				got = result.Skipped[0].Message
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || (len(result.Applied) == 1) != (tc.want == "") {
				t.Errorf("%s\n%d are applied: -want, +got:\n%s", tc.reason, len(result.Applied), diff)
			}
		})
	}
}

// TestSpent: an injection may use exactly maxWork units of work.
func TestSpent(t *testing.T) {
	if b := (&body{work: maxWork}); b.spent() {
		t.Error("a pod may be as much")
	}
	if b := (&body{work: maxWork + 1}); !b.spent() {
		t.Error("a unit more is too much")
	}
}

// TestTooMuchWork: a pod that would delay the pods of other users gets no policies, and its record says so.
func TestTooMuchWork(t *testing.T) {
	specs := make([]string, 400)
	for i := range specs {
		specs[i] = `{selector: {}, env: [{name: A, value: "1"}]}`
	}
	container := `{"name":"c","env":[{"name":"A","value":"1"}]}`
	pod := []byte(`{"metadata":{},"spec":{"containers":[` + strings.Repeat(container+",", 15_000) + container + `]}}`)
	set := testSet(t, specs...)
	result := mustInject(t, set, pod)
	if len(result.Skipped) != len(specs) || result.Hash != "" || !strings.Contains(string(result.Patch), ReasonTooMuchWork) || strings.Contains(string(result.Patch), "/spec") {
		t.Errorf("Inject(): %d are left out, and the patch is %.200s, want all and a record that says so", len(result.Skipped), result.Patch)
	}
	x, err := set.Examine(pod)
	if err != nil {
		t.Fatal(err)
	}
	for i := range specs {
		if got := result.Skipped[i].Reason; got != ReasonTooMuchWork {
			t.Errorf("Inject(): a policy is left out for %s", got)
		}
		if got := x.Statuses[i]; got.State != StateSkipped || got.Reason != ReasonTooMuchWork {
			t.Errorf("Examine(): the pod would only be created without again: it is %+v", got)
		}
	}
}

// TestChain: policies that each mount a volume of the next policy need no more work than other policies.
func TestChain(t *testing.T) {
	specs := make([]string, 300)
	for i := range specs {
		specs[i] = fmt.Sprintf(`{selector: {}, volumes: [{name: v%d, emptyDir: {}}], volumeMounts: [{name: v%d, mountPath: /m%d}]}`, i, (i+1)%len(specs), i)
	}
	specs[len(specs)-1] = strings.Replace(specs[len(specs)-1], "name: v0,", "name: v299,", 1)
	set := testSet(t, specs...)
	pod := []byte(`{"metadata":{},"spec":{"containers":[{"name":"c"}]}}`)
	body, err := readBody(pod, containersPart)
	if err != nil {
		t.Fatal(err)
	}
	d := injection{body: body}
	outcomes, _ := d.run(set.Policies(), (&past{}).trust)
	for i := range outcomes {
		if !outcomes[i].holds {
			t.Errorf("%s is left out: %+v", set.policies[i].Name(), outcomes[i].skipped)
		}
	}
	if most := (2*workOfPolicy + 4*workOfAddition) * len(specs); d.work > most {
		t.Errorf("that took %d steps, want %d at most", d.work, most)
	}
}
