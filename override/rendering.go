package override

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/podtemplate"
	"refract.dev/tree"
)

// rendering is one object on its way through the rules.
type rendering struct {
	doc      *tree.Doc
	kind     schema.GroupKind
	pods     *podtemplate.Places // Nil for a kind without a pod template.
	record   tree.Record
	warnings []Warning
	emptied  []emptied
	left     []string // Places that were left to each cluster, before the rules.

	budget  *Budget
	work    int // Other than what the doc has copied.
	written int // Bytes.

	scratch [8]container // For containers.
}

// render applies the rules of the set.
func render(budget *Budget, obj *unstructured.Unstructured, policies []*Policy, rules ruleSet) Variant {
	var v Variant
	r := begin(obj)
	r.budget = budget
	r.leave(obj.Object)
	budget.weigh(r.doc.Root())
	bit := 0
	for i, p := range policies {
		holds := false
		for j := range p.rules {
			if rules.has(bit) {
				holds = true
				if v.Err == nil {
					v.Err = r.apply(&p.rules[j])
				}
			}
			bit++
		}
		if holds {
			v.Policies = append(v.Policies, i)
		}
	}
	changes, work := r.spent()
	budget.changes += changes
	budget.work += work
	v.Warnings = r.warnings
	if v.Err != nil {
		return v
	}
	budget.variants++
	budget.written += r.written
	v.Changes = r.record.Changes()
	v.Object = &unstructured.Unstructured{Object: r.finish()}
	return v
}

func (r *rendering) apply(rule *rule) error {
	if rule.err != nil {
		return rule.err
	}
	for i := range rule.steps {
		s := &rule.steps[i]
		if err := r.step(s); err != nil {
			return &RuleError{Author: *s.author, Path: placeOf(err), Err: err}
		}
	}
	return nil
}

func (r *rendering) step(s *step) error {
	before := r.record.Len()
	r.work += workOfStep
	if err := s.action.apply(r, s.author); err != nil {
		return err
	}
	if err := r.exceeded(); err != nil {
		return err
	}
	return r.granted(s.author, r.record.Changes()[before:])
}

// granted returns an error if one of these changes, which a step of a policy has
// made, is not for a namespaced policy to make: to finalizers, or to what an object
// permits. Who may write such a policy need not have the rights that it would
// grant, and the hub's API server has checked those of the object alone.
func (r *rendering) granted(by *tree.Author, changes []tree.Change) error {
	if by.Policy.Kind != corev1alpha1.KindOverridePolicy {
		return nil
	}
	for i := range changes {
		path := changes[i].Path
		if err := held(by, path); err != nil {
			return err
		}
		if r.kind.Group == "rbac.authorization.k8s.io" && permits(path) {
			return failAt(path, errGrants)
		}
	}
	return nil
}

// permits reports whether a place of a role, or of a binding of one, says who may do
// what.
func permits(path string) bool {
	for _, member := range []string{"/rules", "/aggregationRule", "/roleRef", "/subjects"} {
		if path == member || strings.HasPrefix(path, member+"/") {
			return true
		}
	}
	return false
}

// note adds a change that was made, unless it changed nothing.
func (r *rendering) note(c tree.Change, by *tree.Author) {
	if c.Op == tree.OpReplace && tree.Equal(c.Before, c.After) {
		return
	}
	c.By = by
	if r.record.Len() == 0 {
		r.record.Grow(16)
	}
	r.record.Add(c)
}

func (r *rendering) warnf(by *tree.Author, path, format string, args ...any) {
	r.warnings = append(r.warnings, Warning{Author: *by, Path: path, Message: fmt.Sprintf(format, args...)})
}
