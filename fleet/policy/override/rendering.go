package override

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/tree"
)

// rendering is the state of one object while the rules are applied.
type rendering struct {
	doc      *tree.Doc
	kind     schema.GroupKind
	pods     *podtemplate.Places // Nil for a kind without a pod template.
	record   tree.Record
	warnings []Warning
	emptied  []emptied
	left     []string // Places of values that the hub assigned, which are removed before the rules.

	budget  *Budget
	work    int // The work so far, except for copies, which doc counts.
	written int // The written bytes.

	scratch [8]container // For containers.
}

// render applies the rules of the set to the object.
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

// granted returns an error if a change by a namespaced policy concerns finalizers, or the rights that a role or binding
// grants. The author of such a policy may lack these rights: the hub's API server has checked only the author of the
// object.
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

// permits reports whether a place in a role or binding determines the granted rights.
func permits(path string) bool {
	for _, member := range []string{"/rules", "/aggregationRule", "/roleRef", "/subjects"} {
		if path == member || strings.HasPrefix(path, member+"/") {
			return true
		}
	}
	return false
}

// note records a change, unless the value stays the same.
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
