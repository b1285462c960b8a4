package preview

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/tree"
)

// Result is the resulting pods, with errors and warnings. Its lists are not nil.
type Result struct {
	// Objects are the resulting pods, in the order of the input, without rejected ones. They share parts with the
	// input, so they must not be modified.
	Objects []map[string]any `json:"objects"`
	// Skipped are the omitted policies, pod by pod.
	Skipped []Skipped `json:"skipped"`
	// Errors concern invalid policies, and pods that are not created.
	Errors []Finding `json:"errors"`
	// Warnings concern policies and settings without effect.
	Warnings []Finding `json:"warnings"`
}

// Skipped is a policy that selects a pod and was omitted.
type Skipped struct {
	// Object is KIND/NAMESPACE/NAME of the pod, or of its workload.
	Object string `json:"object"`
	// Policy is the name of the policy, which is in the same namespace.
	Policy string `json:"policy"`
	// Reason is one of the reasons of [refract.dev/injection/inject].
	Reason string `json:"reason"`
	// Message describes the reason and its place, without a final period.
	Message string `json:"message"`

	// Deliberate reports whether a setting of the policy or the pod requests the omission.
	Deliberate bool `json:"-"`
	// Refused reports whether the pod is rejected for this reason, which is an error, too.
	Refused bool `json:"-"`
	// Place is the place of a conflict in the input.
	Place manifest.Place `json:"-"`

	about *render.Object
	by    tree.Policy // Without generation.
}

// String returns PLACE: OBJECT: POLICY is left out: REASON: MESSAGE.
func (s *Skipped) String() string {
	return fmt.Sprintf("%s: %s: %s is left out: %s: %s", s.Place, s.about, s.by, s.Reason, s.Message)
}

// Finding is an error or a warning. Fields that do not apply are empty.
type Finding struct {
	render.Finding

	// Place is the place of the mistake in the input.
	Place *manifest.Place `json:"place,omitempty"`
	// Field is the path of the field there.
	Field string `json:"field,omitempty"`
}

// String returns PLACE: OBJECT: POLICY: FIELD: MESSAGE, without empty parts.
func (f *Finding) String() string {
	said := f.Finding
	if f.Field != "" {
		said.Message = f.Field + ": " + said.Message
	}
	if f.Place == nil {
		return said.String()
	}
	return f.Place.String() + ": " + said.String()
}

// Result returns the output of the evaluation. The problems are errors of reading policies, so the set does not contain
// these policies.
func (e *Evaluation) Result(set *manifest.Set, problems []*manifest.Problem) *Result {
	r := &Result{Objects: []map[string]any{}, Skipped: []Skipped{}, Errors: []Finding{}, Warnings: []Finding{}}
	for _, p := range problems {
		r.Errors = append(r.Errors, findingOf(p))
	}
	for _, n := range set.Notes {
		r.Warnings = append(r.Warnings, findingOf(n))
	}
	asked := map[*manifest.Object]bool{}
	for i := range e.Policies {
		p := &e.Policies[i]
		if p.Service != nil && !asked[p.Service] {
			asked[p.Service] = true
			r.addService(p.Service, p.AnnotationErrors)
		}
		r.addPolicy(p)
		r.addElsewhere(p, e.Pods)
	}
	for i := range e.Pods {
		r.addPod(&e.Pods[i])
	}
	if len(e.Pods) == 0 {
		r.Warnings = append(r.Warnings, Finding{Finding: render.Finding{Message: "the input has no pod and no workload"}})
	}
	return r
}

func findingOf(p *manifest.Problem) Finding {
	return Finding{
		Finding: render.Finding{Policy: &render.Policy{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}, Message: p.Fact, Hint: p.Hint},
		Place:   &p.Place, Field: p.Field,
	}
}

func (r *Result) addService(o *manifest.Object, errs field.ErrorList) {
	for _, err := range errs {
		place := o.At(err.Field)
		r.Errors = append(r.Errors, Finding{Finding: render.Finding{Object: nameOf(o), Message: err.ErrorBody()}, Place: &place, Field: err.Field})
	}
}

func (r *Result) addPolicy(p *Policy) {
	name := &render.Policy{Kind: p.Manifest.Policy.Kind, Namespace: p.Manifest.Policy.Namespace, Name: p.Manifest.Policy.Name}
	for _, err := range p.CompileErrors {
		place := p.Manifest.At(err.Field)
		message := fmt.Sprintf("%s, with the annotations of its Service", err.ErrorBody())
		r.Errors = append(r.Errors, Finding{Finding: render.Finding{Policy: name, Message: message}, Place: &place, Field: err.Field})
	}
	if isExempt(name.Namespace) {
		place := p.Manifest.At("metadata.namespace")
		message := fmt.Sprintf("nothing is injected into pods of namespace %s, despite its policies", name.Namespace)
		r.Warnings = append(r.Warnings, Finding{Finding: render.Finding{Policy: name, Message: message}, Place: &place, Field: "metadata.namespace"})
	}
	if p.Missing {
		place := p.Manifest.At("spec.service")
		message := fmt.Sprintf("Service %q is not in the input, so its annotations have no effect (condition ServiceFound)",
			p.Manifest.Policy.Spec.Service)
		r.Warnings = append(r.Warnings, Finding{Finding: render.Finding{Policy: name, Message: message}, Place: &place, Field: "spec.service"})
	}
}

// addElsewhere warns about a policy that selects only pods of other namespaces, in which it has no effect. Perhaps a
// manifest lacks its namespace.
func (r *Result) addElsewhere(p *Policy, pods []Pod) {
	if p.Compiled == nil {
		return
	}
	var elsewhere *Pod
	for i := range pods {
		if !p.Compiled.Matches(pods[i].Labels()) {
			continue
		}
		if pods[i].Object.Content.GetNamespace() == p.Compiled.Namespace() {
			return
		}
		if elsewhere == nil {
			elsewhere = &pods[i]
		}
	}
	if elsewhere == nil {
		return
	}
	place := p.Manifest.At("metadata.namespace")
	author := p.Compiled.Author()
	r.Warnings = append(r.Warnings, Finding{
		Finding: render.Finding{
			Policy: &render.Policy{Kind: author.Kind, Namespace: author.Namespace, Name: author.Name},
			Message: fmt.Sprintf("selects no pod of its own namespace in the input, and would select %s if it were in namespace %s "+
				"(-n sets the namespace of objects that name none)",
				elsewhere, author.Namespace),
		},
		Place: &place, Field: "metadata.namespace",
	})
}

func (r *Result) addPod(p *Pod) {
	if p.Err != nil {
		place := p.Object.Place
		r.Errors = append(r.Errors, Finding{Finding: render.Finding{Object: nameOf(p.Object), Message: p.Err.Error()}, Place: &place})
	}
	if p.After != nil {
		r.Objects = append(r.Objects, p.After)
	}
	if p.Result == nil {
		return
	}
	if s := p.Result.Rejected; s != nil {
		place := p.Place(s)
		author := s.Policy.Author()
		r.Errors = append(r.Errors, Finding{
			Finding: render.Finding{
				Object: nameOf(p.Object), Policy: &render.Policy{Kind: author.Kind, Namespace: author.Namespace, Name: author.Name},
				Path: p.Pointer(s), Message: fmt.Sprintf("the pod is refused: %s: %s", s.Reason, s.Message),
			},
			Place: &place,
		})
	}
	for i := range p.Result.Skipped {
		s := &p.Result.Skipped[i]
		by := s.Policy.Author()
		by.Generation = 0
		r.Skipped = append(r.Skipped, Skipped{
			about: nameOf(p.Object), by: by,
			Object: p.String(), Policy: s.Policy.Name(), Reason: s.Reason, Message: s.Message,
			Deliberate: Deliberate(s), Refused: p.Result.Rejected != nil && p.Result.Rejected.Policy == s.Policy, Place: p.Place(s),
		})
	}
}

func nameOf(o *manifest.Object) *render.Object {
	c := o.Content
	return &render.Object{
		APIVersion: c.GetAPIVersion(), Kind: c.GetKind(), Namespace: c.GetNamespace(), Name: cmp.Or(c.GetName(), c.GetGenerateName()),
	}
}
