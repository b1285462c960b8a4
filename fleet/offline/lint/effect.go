package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/tree"
)

// checkCreated finds replace operations that add a value.
func checkCreated(overriding []*policy, out *report) {
	for it := range itemsOf(overriding) {
		if len(it.created) == 0 || it.reported || it.rule.reported {
			continue
		}
		it.reported = true
		first := it.created[0]
		finding := it.rule.policy.finding(JSONPatchReplaceCreates, it.field+".path",
			"%s does not exist, so replace adds it", first.path)
		finding.Path = first.path
		if meant := nearPath(first.template(), first.path); meant != "" {
			finding.hint("did you mean %s?", meant)
		}
		runs := make([]run, len(it.created))
		for i, c := range it.created {
			runs[i] = c.run
		}
		out.add(finding.hint("use operator add if this is intended").on(affected(runs)))
	}
}

// checkEffect finds rules and items that set only values which already exist.
func checkEffect(overriding []*policy, lost *lost, out *report) {
	if lost.objects() {
		return
	}
	for _, p := range overriding {
		for _, r := range p.rules {
			idle := slices.DeleteFunc(slices.Clone(r.items), func(it *item) bool { return it.changed > 0 || r.failed || !it.quiet() })
			switch {
			case len(idle) == 0:
			case len(idle) == len(r.items):
				out.add(p.finding(ValueAlreadySet, r.field, "changes nothing: %s", r.idleness()).on(affected(r.runs)))
			default:
				for _, it := range idle {
					out.add(p.finding(ValueAlreadySet, it.field, "changes nothing: %s", it.idleness()).on(affected(r.runs)))
				}
			}
			for _, it := range idle {
				it.reported = true
			}
		}
	}
}

const present = "its values are already set"

// idleness returns the reason why a rule changes nothing.
func (r *rule) idleness() string {
	why := r.items[0].idleness()
	for _, it := range r.items[1:] {
		if it.idleness() != why {
			return "its values are already set, or already absent"
		}
	}
	if why == present {
		return "all its values are already set"
	}
	return why
}

// idleness returns the reason why an item changes nothing.
func (it *item) idleness() string {
	switch spec := it.spec.(type) {
	case *corev1alpha1.JSONPatchOverrider:
		if spec.Operator == corev1alpha1.OpRemove {
			return spec.Path + " holds only protected values, such as the labels and annotations of Refract"
		}
	case *corev1alpha1.ImageOverrider:
		if why := noComponent(spec.Operations); why != "" {
			return why
		}
	}
	return present
}

// noComponent returns the reason why image operations have no effect if all of them are deletions. It returns "" if
// there are other operations.
func noComponent(operations []corev1alpha1.ImageOperation) string {
	var components []string
	for i := range operations {
		if operations[i].Operator != corev1alpha1.OpDelete {
			return ""
		}
		components = append(components, string(operations[i].ImageComponent))
	}
	return "no image has a " + strings.Join(components, " or a ")
}

// checkIndexes finds JSON patches that refer by index to elements with a name.
func checkIndexes(overriding []*policy, out *report) {
	for it := range itemsOf(overriding) {
		spec, ok := it.spec.(*corev1alpha1.JSONPatchOverrider)
		if !ok || it.ran == 0 || it.reported || it.rule.reported {
			continue
		}
		e := it.indexed(spec)
		if e == nil {
			continue
		}
		it.reported = true
		finding := it.rule.policy.finding(JSONPatchByIndex, it.field+".path",
			"element %s of %s is %q now, but another element when the list changes", e.index, e.list, e.name)
		finding.Path = spec.Path
		out.add(finding.hint("%s", e.advice()).on(affected(it.rule.runs)))
	}
}

// element is an element of a list whose elements all have names.
type element struct {
	list  string // The key of the list.
	index string
	name  string
	rest  []string // The further keys of the path, inside the element.
}

// indexed returns the first element with a name that the patch refers to by index; nil without one.
func (it *item) indexed(spec *corev1alpha1.JSONPatchOverrider) *element {
	keys := tree.MustParse(spec.Path).Keys() // The path has been compiled before.
	for _, at := range it.rule.runs[:min(len(it.rule.runs), enough)] {
		for _, object := range at.objects() {
			if e := namedElement(object, keys, spec.Operator == corev1alpha1.OpAdd); e != nil {
				return e
			}
		}
	}
	return nil
}

// namedElement follows the keys to the first array whose elements have names. An add at an index inserts a value before
// the element, and does not refer to the element.
func namedElement(value any, keys []string, add bool) *element {
	for i, key := range keys {
		switch v := value.(type) {
		case map[string]any:
			value = v[key]
		case []any:
			index, err := strconv.Atoi(key)
			if index == -1 {
				index = len(v) - 1
			}
			if err != nil || index < 0 || index >= len(v) || (add && i == len(keys)-1) {
				return nil
			}
			if i > 0 && !slices.ContainsFunc(v, func(e any) bool { return nameOf(e) == "" }) {
				return &element{list: keys[i-1], index: key, name: nameOf(v[index]), rest: keys[i+1:]}
			}
			value = v[index]
		default:
			return nil
		}
	}
	return nil
}

// byName has, for each field of a container, the overrider that changes the field and finds the container by its name.
var byName = map[string]string{
	"image":   "image with containerNames: [%s]",
	"command": "command with containerName: %s",
	"args":    "args with containerName: %s",
	"env":     "envs with containerName: %s",
}

// advice suggests an overrider that refers to the element by name.
func (e *element) advice() string {
	if (e.list == "containers" || e.list == "initContainers") && len(e.rest) > 0 && byName[e.rest[0]] != "" {
		return "use overrider " + fmt.Sprintf(byName[e.rest[0]], e.name)
	}
	return "no overrider finds it by name; keep the order of the list"
}
