package override

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/podtemplate"
	"refract.dev/tree"
)

// rendering is one object on its way through the rules.
type rendering struct {
	doc      *tree.Doc
	kind     schema.GroupKind
	pods     *podtemplate.Places // Nil for a kind without a pod template.
	changes  []tree.Change
	warnings []Warning
	emptied  []emptied

	scratch [8]container // For containers.
}

// render applies the rules of the set.
func render(obj *unstructured.Unstructured, policies []*Policy, rules ruleSet) Variant {
	var v Variant
	r := begin(obj)
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
	v.Warnings = r.warnings
	if v.Err != nil {
		return v
	}
	v.Changes = r.changes
	v.Object = &unstructured.Unstructured{Object: r.finish()}
	return v
}

func (r *rendering) apply(rule *rule) error {
	if rule.err != nil {
		return rule.err
	}
	for i := range rule.steps {
		s := &rule.steps[i]
		if err := s.action.apply(r, s.author); err != nil {
			return &RuleError{Author: *s.author, Path: placeOf(err), Err: err}
		}
	}
	return nil
}

// record adds a change that was made, unless it changed nothing.
func (r *rendering) record(c tree.Change, by *tree.Author) {
	if c.Op == tree.OpReplace && tree.Equal(c.Before, c.After) {
		return
	}
	c.By = by
	if r.changes == nil {
		r.changes = make([]tree.Change, 0, 16)
	}
	r.changes = tree.Record(r.changes, c)
}

func (r *rendering) warnf(by *tree.Author, path, format string, args ...any) {
	r.warnings = append(r.warnings, Warning{Author: *by, Path: path, Message: fmt.Sprintf(format, args...)})
}
