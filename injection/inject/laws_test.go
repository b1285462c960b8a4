package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/tree"
	"refract.dev/tree/raw"
)

// checkLaws checks the laws that hold for every pod and every set of policies.
func checkLaws(t *testing.T, set *Set, pod []byte) {
	t.Helper()
	before := bytes.Clone(pod)
	result, err := set.Inject(pod)
	if err != nil {
		t.Fatalf("%v in %s", err, pod)
	}
	explained, err := set.Explain(pod)
	if err != nil {
		t.Fatal(err)
	}
	x, err := set.Examine(pod)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, pod) {
		t.Fatalf("the pod was modified: %s, now %s", before, pod)
	}
	if !bytes.Equal(result.Patch, explained.Patch) {
		t.Fatalf("explained, the patch is another one: %s, %s", result.Patch, explained.Patch)
	}
	checkReport(t, set, pod, result, x)
	checkOrder(t, set, pod, result)
	after := apply(t, pod, result.Patch)
	checkAdditions(t, pod, after, result)
	checkChanges(t, pod, after, explained)
	if result.Rejected == nil {
		checkTwice(t, set, after, result, bytes.Contains(pod, []byte(refractv1beta1.InjectionAnnotation)))
		checkStatus(t, set, after, result)
		checkRevert(t, pod, after)
	}
}

// checkStatus: an injected pod is never stale for the applied policies, because a stale pod would be recreated in vain.
// This is true right after the injection, after a later webhook has added a container, and after a later webhook has
// changed injected items. The policies still apply at a second injection.
func checkStatus(t *testing.T, set *Set, after []byte, result *Result) {
	t.Helper()
	mute := isMute(after)
	checkInjected(t, set, after, result, mute)
	for name, change := range map[string]func(map[string]any){
		"a container came": func(spec map[string]any) {
			containers, _ := spec["containers"].([]any)
			spec["containers"] = append(slices.Clone(containers), map[string]any{
				"name": "late", "env": []any{map[string]any{"name": "A", "value": "of its own"}, map[string]any{"name": "B"}},
			})
		},
		"items were changed": func(spec map[string]any) { changeInjected(t, spec, recordIn(t, after)) },
	} {
		object, ok := decode(after).(map[string]any)
		if !ok {
			t.Fatalf("%s is no object", after)
		}
		change(member(object, "spec"))
		changed := encoded(t, object)
		checkInjected(t, set, changed, result, mute)
		if mute || name == "a container came" || recordIn(t, after).Trimmed {
			continue // The policy may be skipped for the new container, and a conflict may reject the pod.
		}
		again := mustInject(t, set, changed)
		if why := again.Rejected; why != nil && !slices.ContainsFunc(result.Applied, func(a Applied) bool { return a.Policy == why.Policy }) {
			continue // The rejecting policy did not apply the first time either.
		}
		for i := range result.Applied {
			holds := func(a Applied) bool { return a.Policy == result.Applied[i].Policy }
			if again.Rejected != nil || !slices.ContainsFunc(again.Applied, holds) {
				t.Errorf("%s: when asked again, %s does not hold any more: %v in %s", name, result.Applied[i].Policy.Name(), outline(again), changed)
			}
		}
		checkInjected(t, set, apply(t, changed, again.Patch), again, false)
	}
}

// isMute reports whether an injected pod had no room for a record.
func isMute(pod []byte) bool {
	return !bytes.Contains(pod, []byte(`"refract.dev/injection":"{\"v\":1`))
}

// checkInjected: a pod has the injected items. Without a record Examine may not be sure of that, but then the pod is
// skipped and not stale.
func checkInjected(t *testing.T, set *Set, pod []byte, result *Result, mute bool) {
	t.Helper()
	x, err := set.Examine(pod)
	if err != nil {
		t.Fatal(err)
	}
	for i := range result.Applied {
		p := result.Applied[i].Policy
		at := slices.IndexFunc(x.Statuses, func(s PodStatus) bool { return s.Policy == p })
		if s := x.Statuses[at]; s.State != StateInjected && (!mute || s.State != StateSkipped) {
			t.Errorf("%s was applied, but is %+v in %s", p.Name(), s, pod)
		}
	}
}

func recordIn(t *testing.T, pod []byte) *past {
	t.Helper()
	h, err := readHead(pod)
	if err != nil {
		t.Fatal(err)
	}
	return h.record()
}

// changeInjected changes the injected items of a spec and keeps their names.
func changeInjected(t *testing.T, spec map[string]any, record *past) {
	t.Helper()
	from := record.sources()
	change := func(c *container, of itemKind, object map[string]any) {
		r := bodyReader{Scanner: raw.New(encoded(t, object))}
		if id := r.id(of); !from.gave(c, of, id) {
			return
		}
		switch of {
		case envItem:
			delete(object, "valueFrom")
			object["value"] = "changed"
		case envFromItem:
			for _, key := range []string{"secretRef", "configMapRef"} {
				if ref := member(object, key); ref != nil {
					ref["optional"] = ref["optional"] != true
				}
			}
		case volumeItem:
			for key := range object {
				if key != "name" {
					delete(object, key)
				}
			}
			object["hostPath"] = map[string]any{"path": "/changed"}
		default:
			object["readOnly"] = object["readOnly"] != true
		}
	}
	for _, volume := range elements(spec, "volumes") {
		change(nil, volumeItem, volume)
	}
	for _, part := range []containerPart{initContainersPart, containersPart} {
		for _, object := range elements(spec, string(part)) {
			name, _ := object["name"].(string)
			for _, of := range inContainers {
				for _, it := range elements(object, of.field()) {
					change(&container{part: part, name: name}, of, it)
				}
			}
		}
	}
}

// checkRevert: Revert restores the original spec, except for empty lists.
func checkRevert(t *testing.T, before, after []byte) {
	t.Helper()
	if record := recordIn(t, after); bytes.Contains(before, []byte(refractv1beta1.InjectionAnnotation)) || record.Version == 0 || record.Trimmed {
		return
	}
	patch, err := Revert(after)
	if err != nil {
		t.Fatal(err)
	}
	undone := apply(t, after, patch)
	want, got := withoutEmpty(decode(before)), withoutEmpty(decode(undone))
	if diff := cmp.Diff(member(want.(map[string]any), "spec"), member(got.(map[string]any), "spec")); diff != "" {
		t.Errorf("reverted, the pod is another one: -want, +got:\n%s", diff)
	}
}

// withoutEmpty returns a value without null members and empty lists.
func withoutEmpty(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, inner := range v {
			if list, isList := inner.([]any); inner != nil && (!isList || len(list) > 0) {
				out[key] = withoutEmpty(inner)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = withoutEmpty(v[i])
		}
		return out
	default:
		return value
	}
}

// checkReport: the result reports each policy that selects the pod and has items, as applied or skipped, in order. It
// reports no other policies. If it reports no policy, the pod remains unchanged.
func checkReport(t *testing.T, set *Set, pod []byte, result *Result, x *Examination) {
	t.Helper()
	var selecting []string
	podLabels := labelsOf(t, pod)
	for _, p := range set.Policies() {
		if p.Matches(podLabels) && !p.empty() {
			selecting = append(selecting, p.Name())
		}
	}
	var reported, skipped, examined []string
	for _, a := range result.Applied {
		reported = append(reported, a.Policy.Name())
	}
	for _, s := range result.Skipped {
		skipped = append(skipped, s.Policy.Name())
		if s.Reason == "" || s.Message == "" || strings.Contains(s.Message, "secret value") {
			t.Errorf("skipped for %+v", s)
		}
	}
	for _, s := range x.Statuses {
		examined = append(examined, s.Policy.Name())
		if (s.State == StateInjected) != (s.Reason == "") || (s.Reason == "") != (s.Message == "") {
			t.Errorf("examined %+v", s)
		}
	}
	if diff := cmp.Diff(selecting, examined); diff != "" {
		t.Errorf("-selecting, +examined:\n%s", diff)
	}
	if !subsequence(reported, selecting) || !subsequence(skipped, selecting) {
		t.Errorf("applied %v and skipped %v of %v are not in order", reported, skipped, selecting)
	}
	if result.Rejected != nil {
		if result.Patch != nil || result.Applied != nil || result.Hash != "" || result.Rejected.Policy.OnConflict() != refractv1beta1.ConflictReject {
			t.Errorf("rejected, but %+v", result)
		}
		return
	}
	if len(reported)+len(skipped) != len(selecting) {
		t.Errorf("%v select the pod; applied %v, skipped %v", selecting, reported, skipped)
	}
	if len(selecting) == 0 && result.Patch != nil {
		t.Errorf("no policy selects the pod, but %s", result.Patch)
	}
	if (result.Hash == "") != (len(reported) == 0) {
		t.Errorf("applied %v, hash %q", reported, result.Hash)
	}
}

func subsequence(part, all []string) bool {
	for _, name := range all {
		if len(part) > 0 && part[0] == name {
			part = part[1:]
		}
	}
	return len(part) == 0
}

func labelsOf(t *testing.T, pod []byte) map[string]string {
	t.Helper()
	var head struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(pod, &head); err != nil {
		t.Fatal(err)
	}
	return head.Metadata.Labels
}

// checkOrder: the order of the arguments does not matter.
func checkOrder(t *testing.T, set *Set, pod []byte, want *Result) {
	t.Helper()
	policies := set.Policies()
	slices.Reverse(policies)
	for range 2 {
		got, err := NewSet(policies...).Inject(pod)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(outline(want), outline(got)); diff != "" {
			t.Errorf("policies in another order: -want, +got:\n%s", diff)
		}
		half := len(policies) / 2
		policies = slices.Concat(policies[half:], policies[:half])
	}
}

func outline(r *Result) []string {
	out := []string{r.Hash, string(r.Patch)}
	for _, a := range r.Applied {
		out = append(out, fmt.Sprint(a.Policy.Name(), a.Env, a.EnvFrom, a.Volumes, a.Mounts))
	}
	for _, s := range r.Skipped {
		out = append(out, fmt.Sprint(s.Policy.Name(), s.Reason, s.Message, s.Path))
	}
	return out
}

// checkTwice: a second injection adds nothing and reports the same policies, and the pod is not stale.
func checkTwice(t *testing.T, set *Set, after []byte, first *Result, copied bool) {
	t.Helper()
	second, err := set.Inject(after)
	if err != nil {
		t.Fatal(err)
	}
	if second.Patch != nil {
		t.Errorf("the second time adds %s to %s", second.Patch, after)
	}
	if second.Hash != first.Hash || len(second.Applied) != len(first.Applied) || len(second.Skipped) != len(first.Skipped) {
		t.Errorf("the second time is another one: %v, %v", outline(first), outline(second))
	}
	if copied {
		return // Inject trusts a copied record, so its hash may be wrong.
	}
	x, err := set.Examine(after)
	if err != nil {
		t.Fatal(err)
	}
	if x.Stale() || x.Hash != first.Hash && !isMute(after) {
		t.Errorf("right after the injection %q the pod is %+v, hash %q\n%s", first.Hash, x.Statuses, x.Hash, after)
	}
}

// checkAdditions: the patch only adds. All original content of the pod remains, including unknown fields. Only the
// annotations of this package may change their values.
func checkAdditions(t *testing.T, before, after []byte, result *Result) {
	t.Helper()
	if result.Patch == nil {
		return
	}
	var operations []struct {
		Op   string `json:"op"`
		Path string `json:"path"`
	}
	if err := json.Unmarshal(result.Patch, &operations); err != nil {
		t.Fatal(err)
	}
	if len(operations) == 0 {
		t.Errorf("an empty patch: %s", result.Patch)
	}
	for _, o := range operations {
		if o.Op != "add" || !strings.HasPrefix(o.Path, "/spec/") && !strings.HasPrefix(o.Path, "/metadata") {
			t.Errorf("operation %s %s", o.Op, o.Path)
		}
	}
	if place, ok := contained(decode(before), decode(after), ""); !ok {
		t.Errorf("%s changed:\n%s\n%s", place, before, after)
	}
}

// contained reports whether part is contained in whole: objects in whole may have more members, and arrays more
// elements. It returns the first place that differs.
func contained(part, whole any, place string) (string, bool) {
	switch part := part.(type) {
	case nil:
		return place, true // A list may replace null.
	case map[string]any:
		object, ok := whole.(map[string]any)
		for key, value := range part {
			inner, has := object[key]
			if !has {
				return place + "/" + key, false
			}
			if strings.HasPrefix(key, refractv1beta1.ServicePrefix) || key == refractv1beta1.InjectionAnnotation {
				continue
			}
			if where, in := contained(value, inner, place+"/"+key); !in {
				return where, false
			}
		}
		return place, ok
	case []any:
		array, ok := whole.([]any)
		for _, value := range part {
			i := slices.IndexFunc(array, func(v any) bool {
				_, in := contained(value, v, "")
				return in
			})
			if i < 0 {
				return place, false
			}
			array = array[i+1:]
		}
		return place, ok
	default:
		return place, tree.Equal(part, whole)
	}
}

// checkChanges: the pod is the same after the individual changes as after the patch.
func checkChanges(t *testing.T, before, after []byte, explained *Result) {
	t.Helper()
	object, ok := decode(before).(map[string]any)
	if !ok {
		t.Fatalf("%s is no object", before)
	}
	doc := tree.Edit(object)
	for _, c := range explained.Changes {
		p, err := tree.Parse(c.Path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := doc.Add(p, c.After); err != nil {
			t.Fatalf("change %+v: %v", c, err)
		}
		if c.By == nil || c.By.Policy.Name == "" {
			t.Errorf("nobody made %+v", c)
		}
	}
	if want := decode(after); !tree.Equal(want, doc.Root()) {
		t.Errorf("the changes do not make what the patch does: -patch, +changes:\n%s", cmp.Diff(want, any(doc.Root())))
	}
}
