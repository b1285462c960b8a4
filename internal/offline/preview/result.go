package preview

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
	"refract.dev/tree"
)

// Result is what pods get, and what there is to say about it. Its lists are not
// nil.
type Result struct {
	// Objects are the pods that result, in the order of the input. They share parts
	// with it, so they may not be modified. A pod that is refused is not among them.
	Objects []map[string]any `json:"objects"`
	// Skipped are the policies that were left out, pod by pod.
	Skipped []Skipped `json:"skipped"`
	// Errors are about policies that are not in force, and pods that are not created.
	Errors []Finding `json:"errors"`
	// Warnings are about what had no effect.
	Warnings []Finding `json:"warnings"`
}

// Skipped is a policy that was left out for a pod that it selects.
type Skipped struct {
	// Object is KIND/NAMESPACE/NAME of the pod, or of its workload.
	Object string `json:"object"`
	// Policy is the name of the policy, which is in the same namespace.
	Policy string `json:"policy"`
	// Reason is one of the reasons of [refract.dev/inject].
	Reason string `json:"reason"`
	// Message says what and where, without an end mark.
	Message string `json:"message"`

	// Deliberate is whether somebody wanted it so.
	Deliberate bool `json:"-"`
	// Refused is whether the pod is refused for this reason, which is an error, too.
	Refused bool `json:"-"`
	// Place is where it stands, if it is a conflict.
	Place manifest.Place `json:"-"`

	about *render.Object
	by    tree.Policy // Without generation.
}

// String returns PLACE: OBJECT: POLICY is left out: REASON: MESSAGE.
func (s *Skipped) String() string {
	return fmt.Sprintf("%s: %s: %s is left out: %s: %s", s.Place, s.about, s.by, s.Reason, s.Message)
}

// Finding is an error or a warning. What does not apply is empty.
type Finding struct {
	render.Finding

	// Place is where in the input something is wrong.
	Place *manifest.Place `json:"place,omitempty"`
	// Field is the path of the field there.
	Field string `json:"field,omitempty"`
}

// String returns PLACE: OBJECT: POLICY: FIELD: MESSAGE, without what is empty.
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

// Result returns what there is to show. The problems are those of reading policies,
// which are then not in the set.
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
		r.Warnings = append(r.Warnings, Finding{Finding: render.Finding{Message: "the input has no pod, and nothing that pods are made of"}})
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
		message := fmt.Sprintf("%s, with what the annotations of its Service say", err.ErrorBody())
		r.Errors = append(r.Errors, Finding{Finding: render.Finding{Policy: name, Message: message}, Place: &place, Field: err.Field})
	}
	if isExempt(name.Namespace) {
		place := p.Manifest.At("metadata.namespace")
		message := fmt.Sprintf("nothing is injected into pods of namespace %s, whatever policies there say", name.Namespace)
		r.Warnings = append(r.Warnings, Finding{Finding: render.Finding{Policy: name, Message: message}, Place: &place, Field: "metadata.namespace"})
	}
	if p.Missing {
		place := p.Manifest.At("spec.service")
		message := fmt.Sprintf("Service %q is not in the input, so what its annotations say is not injected (condition ServiceFound)",
			p.Manifest.Policy.Spec.Service)
		r.Warnings = append(r.Warnings, Finding{Finding: render.Finding{Policy: name, Message: message}, Place: &place, Field: "spec.service"})
	}
}

// addElsewhere warns of a policy that selects pods of another namespace alone, whose
// pods it has nothing to do with: a namespace was forgotten somewhere.
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
			Message: fmt.Sprintf("selects no pod of its own namespace in the input, and would select %s if that were in namespace %s "+
				"(-n sets the namespace of what names none)",
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
