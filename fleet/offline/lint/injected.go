package lint

import (
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/preview"
	"refract.dev/fleet/offline/validation"
	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/injection/inject"
	"refract.dev/tree"
)

// checkConflicts finds pods that conflict with a policy, so that the policy is omitted or the pod rejected.
func checkConflicts(all *injections, out *report) {
	reported := map[*inject.Policy]bool{}
	for _, p := range all.policies {
		reported[p.Compiled] = p.mountReported
	}
	for i := range all.pods {
		pod := &all.pods[i]
		if pod.Err != nil {
			out.add(subjectOf(pod.Object).finding(InvalidObject, "", "%v", pod.Err))
		}
		if pod.Result == nil {
			continue
		}
		for j := range pod.Result.Skipped {
			s := &pod.Result.Skipped[j]
			known := s.Reason == inject.ReasonVolumeMissing && reported[s.Policy]
			if r := pod.Result.Rejected; r != nil && r.Policy == s.Policy {
				known = true
			}
			if !known && !preview.Deliberate(s) && pod.Conflicts(s.Policy) {
				out.add(conflict(pod, PodConflicts, s, "is left out"))
			}
		}
		if s := pod.Result.Rejected; s != nil {
			out.add(conflict(pod, PodRefused, s, "refuses the pods"))
		}
	}
}

// conflict returns a finding at the conflicting place in a pod.
func conflict(pod *preview.Pod, code Code, s *inject.Skipped, what string) *Finding {
	pointer := pod.Pointer(s)
	finding := subjectOf(pod.Object).finding(code, manifest.FieldOf(pod.Object.Content.Object, pointer), "%s %s: %s", s.Policy.Author(), what, s.Message)
	finding.Path = pointer
	return finding
}

// checkReferences finds references of policies to missing objects and keys. A missing object is reported only if the
// input has other objects of the kind in the namespace.
func checkReferences(objects []manifest.Object, injecting []*injectionPolicy, lost *lost, out *report) {
	if lost.objects() {
		return
	}
	for _, p := range injecting {
		if p.Compiled == nil {
			continue
		}
		for _, r := range p.Compiled.References() {
			p.checkReference(&r, objects, out)
		}
	}
}

func (p *injectionPolicy) checkReference(r *inject.Reference, objects []manifest.Object, out *report) {
	kind := schema.GroupKind{Kind: r.Kind}
	there := namesIn(objects, kind, p.policy.Namespace)
	if r.Optional || len(there) == 0 {
		return
	}
	at := slices.IndexFunc(objects, func(o manifest.Object) bool {
		return o.Identity() == manifest.Identity{GroupKind: kind, Namespace: p.policy.Namespace, Name: r.Name}
	})
	if at < 0 {
		out.add(p.finding(ReferenceNotFound, r.Path, "%s %q is not in the input", r.Kind, r.Name).mean(r.Name, there))
		return
	}
	keys := keysOf(objects[at].Content.Object)
	for _, key := range r.Keys {
		if !slices.Contains(keys, key) {
			out.add(p.finding(ReferenceNotFound, r.Path, "%s %q has no key %q", r.Kind, r.Name, key).
				mean(key, keys).choices("it has %s", keys))
		}
	}
}

// keysOf returns the keys of a Secret or ConfigMap, sorted.
func keysOf(object map[string]any) []string {
	keys := map[string]bool{}
	for _, field := range []string{"data", "stringData", "binaryData"} {
		values, _ := object[field].(map[string]any)
		for key := range values {
			keys[key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// checkTooLate finds variables of pods that refer to a variable which is injected after them. Kubernetes does not
// expand such a reference.
func checkTooLate(pods []preview.Pod, out *report) {
	for i := range pods {
		pod := &pods[i]
		if !pod.Changed() {
			continue
		}
		for _, list := range podtemplate.ListKeys {
			path := "/spec/" + list
			after := map[string]map[string]any{}
			for _, container := range validation.Members(lookup(pod.After, path), path) {
				after[nameOf(container)] = container
			}
			for at, container := range validation.Members(lookup(pod.Before, path), path) {
				checkExpansions(out, pod, at, container, after[nameOf(container)])
			}
		}
	}
}

// expansion matches $(NAME), and $$, an escaped dollar.
var expansion = regexp.MustCompile(`\$(?:\$|\(([^()]*)\))`)

// checkExpansions checks the variables that a container had before the injection.
func checkExpansions(out *report, pod *preview.Pod, at string, before, after map[string]any) {
	order := map[string]int{}
	for i, v := range validation.NamesAt(after["env"]) {
		order[v] = i + 1
	}
	own := validation.NamesAt(before["env"])
	for path, variable := range validation.Members(before["env"], at+"/env") {
		value, _ := variable["value"].(string)
		for _, found := range expansion.FindAllStringSubmatch(value, -1) {
			name := found[1]
			if order[name] <= order[nameOf(variable)] || slices.Contains(own, name) {
				continue
			}
			pointer := pod.At.String() + path + "/value"
			finding := subjectOf(pod.Object).finding(VariableTooLate, manifest.FieldOf(pod.Object.Content.Object, pointer),
				"uses $(%s), which is injected after it, and stays unexpanded", name)
			finding.Path = pointer
			out.add(finding.hint("set envPosition: Prepend in %s", injector(pod, name)))
		}
	}
}

// injector names the policy that adds a variable to a pod.
func injector(pod *preview.Pod, variable string) string {
	for i := range pod.Result.Applied {
		if a := &pod.Result.Applied[i]; slices.Contains(a.Env, variable) {
			return a.Policy.Author().String()
		}
	}
	return "the policy"
}

// lookup returns the value at a place; nil without a value.
func lookup(object map[string]any, path string) any {
	value, err := tree.Lookup(object, tree.MustParse(path))
	if err != nil {
		return nil
	}
	return value
}
