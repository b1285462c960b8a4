package lint

import (
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// checkUsed finds policies that no object names.
func checkUsed(objects []manifest.Object, policies *policies, lost *lost, out *report) {
	if lost.objects() {
		return
	}
	unused := func(s *subject, ref tree.Policy) {
		if policies.named[ref] {
			return
		}
		finding := s.finding(PolicyNotUsed, "", "no object names it")
		if o := sameName(ref, objects); o != nil {
			finding.hint("%s has no label %s", objectOf(o), labelOf(ref.Kind))
		}
		out.add(finding)
	}
	for _, p := range policies.overriding {
		unused(&p.subject, p.ref)
	}
	for _, p := range policies.placing {
		unused(&p.subject, p.ref)
	}
}

// sameName returns an object that has the name of a policy and could name the policy, but does not; otherwise the only
// object that could name it.
func sameName(ref tree.Policy, objects []manifest.Object) *manifest.Object {
	var could []*manifest.Object
	for i := range objects {
		o := &objects[i]
		_, names := o.Content.GetLabels()[labelOf(ref.Kind)]
		if names || (ref.Namespace != "" && o.Content.GetNamespace() != ref.Namespace) {
			continue
		}
		if o.Content.GetName() == ref.Name {
			return o
		}
		if _, ok, _, _ := placement.Named(o.Content.GetLabels(), o.Content.GetNamespace()); ok {
			could = append(could, o)
		}
	}
	if len(could) != 1 {
		return nil
	}
	return could[0]
}
