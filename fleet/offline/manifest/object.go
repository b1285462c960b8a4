package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxSize is the size of the largest object that can be stored, as JSON, in bytes.
//
// Source: https://etcd.io/docs/v3.6/dev-guide/limit/ (request size limit).
const maxSize = 1536 * 1024

// object is a manifest that is being checked for the Set.
type object struct {
	Object

	// source is the object without modifications.
	source *unstructured.Unstructured
	gvk    schema.GroupVersionKind
	// stored reports whether the object comes from an API server.
	stored bool
	// former is the outdated apiVersion of the object, if it was replaced.
	former string
	// local reports whether the object describes others and is not propagated itself.
	local bool
	// wrong reports whether the object has a problem, so that it is not in the Set.
	wrong bool
	// problems are the problems that have not been collected yet.
	problems []*Problem
	// notes are remarks that are no problems.
	notes []*Problem
	// reported are the fields that have a problem.
	reported map[string]bool
	// add appends the object to its list. It is set by decoding.
	add func(*Set)
	// found are the results of checking the object by itself.
	found found
}

// found are the results of checking an object by itself, in steps.
type found struct {
	identity, place, content step
	// namespaced and known are the scope of the kind when the namespace of the object was set.
	namespaced, known bool
}

// step is the result of one step of the checks.
type step struct {
	done, wrong bool
	problems    []*Problem
}

// take runs a step, unless its result is known, and moves its problems from the object to the step.
func (o *object) take(s *step, do func()) {
	if !s.done {
		do()
		*s = step{done: true, wrong: o.wrong, problems: o.problems}
	}
	o.wrong, o.problems = s.wrong, nil
}

func newObject(place Place, content *unstructured.Unstructured, l lines) *object {
	return &object{
		Object: Object{Place: place, Content: content, lines: l}, source: content, local: staysLocal(content.Object), reported: map[string]bool{},
	}
}

// forget discards all results for the object.
func (o *object) forget() {
	fresh := newObject(o.Place, o.source, o.lines)
	fresh.stored, fresh.local = o.stored, o.local
	*o = *fresh
}

// report records a problem of an object at one of its fields. If the argument at is empty, the problem concerns the
// object as a whole.
func (o *object) report(at, fact, hint string) {
	o.wrong, o.reported[at] = true, true
	o.problems = append(o.problems, o.problem(at, fact, hint))
}

// note records a remark that is no problem.
func (o *object) note(at, fact, hint string) { o.notes = append(o.notes, o.problem(at, fact, hint)) }

func (o *object) problem(at, fact, hint string) *Problem {
	place := o.Place
	if at != "" {
		place = o.At(at)
	}
	kind, _ := o.Content.Object["kind"].(string)
	name, _, _ := unstructured.NestedString(o.Content.Object, "metadata", "name")
	namespace, _, _ := unstructured.NestedString(o.Content.Object, "metadata", "namespace")
	return &Problem{Place: place, Kind: kind, Namespace: namespace, Name: name, Field: at, Fact: fact, Hint: hint}
}

// reportAll records problems, except those of fields that already have one: a missing value is also invalid. Problems
// of the same field are sorted, because the validation of labels in Kubernetes follows the random order of a map.
func (o *object) reportAll(errs field.ErrorList) {
	before := maps.Clone(o.reported)
	errs = slices.Clone(errs)
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		if a.Field != b.Field {
			return 0
		}
		return strings.Compare(a.ErrorBody(), b.ErrorBody())
	})
	for _, err := range errs {
		if !before[err.Field] {
			o.report(err.Field, err.ErrorBody(), "")
		}
	}
}

// place gives the namespace home to a namespaced object without a namespace. It removes the namespace of a
// cluster-scoped object, except for a policy or FederatedCluster, where it reports a mistake.
func (o *object) place(namespaced, known bool, home string) {
	namespace := o.Content.GetNamespace()
	if !known {
		// An object from an API server without a namespace must be cluster-scoped.
		namespaced = !o.stored || namespace != ""
	}
	o.Namespaced = namespaced
	switch {
	case namespaced && namespace == "":
		o.setNamespace(home)
	case !namespaced && ours(o.gvk.Group) && namespace != "":
		o.report("metadata.namespace", fmt.Sprintf("must be absent: a %s belongs to no namespace", o.gvk.Kind), "")
	case !namespaced:
		o.setNamespace("") // Like an API server.
	}
}

// setNamespace sets or removes the namespace. The content may be shared with other objects, and is not modified.
func (o *object) setNamespace(namespace string) {
	metadata, ok := o.Content.Object["metadata"].(map[string]any)
	if _, named := metadata["namespace"]; !ok || (namespace == "" && !named) {
		return
	}
	metadata = maps.Clone(metadata)
	if namespace == "" {
		delete(metadata, "namespace")
	} else {
		metadata["namespace"] = namespace
	}
	content := maps.Clone(o.Content.Object)
	content["metadata"] = metadata
	o.Content = &unstructured.Unstructured{Object: content}
}

// decode checks the content of an object that was parsed without errors, and chooses the list of the set for it.
func (o *object) decode() {
	if !o.stored && atMost(o.Content.Object) > maxSize {
		if data, ok := o.encode(); !ok || len(data) > maxSize {
			if ok {
				o.report("", fmt.Sprintf("has %d bytes; more than %d cannot be stored", len(data), maxSize), "")
			}
			return
		}
	}
	switch gk := o.gvk.GroupKind(); {
	case ours(gk.Group):
		o.decodeOurs()
	case isReport(gk):
		o.decodeReport()
	case isRollout(gk):
		o.decodeRollout()
	case isInjection(gk):
		o.decodeInjection()
	case explains(o.Content.Object):
		o.add = func(s *Set) {
			to := &s.Definitions
			if isNamespace(o.Content.Object) {
				to = &s.Namespaces
			}
			*to = append(*to, o.Object)
			if !o.local {
				s.Objects = append(s.Objects, o.Object)
			}
		}
	default:
		o.add = func(s *Set) { s.Objects = append(s.Objects, o.Object) }
	}
}

// encode returns the object as JSON, or reports the error.
func (o *object) encode() ([]byte, bool) {
	data, err := json.Marshal(o.Content.Object)
	if err != nil {
		o.report("", fmt.Sprintf("cannot be written as JSON: %v", err), "")
		return nil, false
	}
	return data, true
}

// atMost returns an upper bound of the length of a value as JSON. It is faster to compute than the length, and nearly
// always small enough.
func atMost(value any) int {
	const mark = 1 // A quote, bracket, colon or comma.
	switch v := value.(type) {
	case nil, bool:
		return len("false")
	case int64, float64:
		return len("-0.0000012345678901234567") // The longest number.
	case string:
		return len(`\u0000`)*len(v) + 2*mark
	case []any:
		n := 2 * mark
		for _, item := range v {
			n += atMost(item) + mark
		}
		return n
	case map[string]any:
		n := 2 * mark
		for key, item := range v {
			n += atMost(key) + mark + atMost(item) + mark
		}
		return n
	default:
		return maxSize + 1 // The value does not come from JSON or YAML, so its length is unknown.
	}
}
