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

// maxSize is the largest object, as JSON, that can be stored.
//
// Source: https://etcd.io/docs/v3.6/dev-guide/limit/ (request size limit).
const maxSize = 1536 * 1024

// object is a manifest on its way into the Set.
type object struct {
	Object

	// source is the object as it was given.
	source *unstructured.Unstructured
	gvk    schema.GroupVersionKind
	// stored is whether an API server holds the object.
	stored bool
	// former is the apiVersion as it was, where another is meant today.
	former string
	// local is whether the object explains others and goes nowhere itself.
	local bool
	// wrong is whether a problem was found, which keeps it out of the Set.
	wrong bool
	// problems are those that were not gathered yet.
	problems []*Problem
	// notes are on what is no problem.
	notes []*Problem
	// reported are the fields that a problem was found with.
	reported map[string]bool
	// add puts the object into its list. It is set when the object is decoded.
	add func(*Set)
	// found is what was found out about the object alone.
	found found
}

// found is what was found out about an object alone, step by step.
type found struct {
	identity, place, content step
	// namespaced and known are what was said of the kind when the object was put into its
	// place.
	namespaced, known bool
}

// step is a part of what there is to find out.
type step struct {
	done, wrong bool
	problems    []*Problem
}

// take does a step, unless it was done the last time, and takes its problems from the object.
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

// forget has nothing be known of the object.
func (o *object) forget() {
	fresh := newObject(o.Place, o.source, o.lines)
	fresh.stored, fresh.local = o.stored, o.local
	*o = *fresh
}

// report notes a problem with an object, at one of its fields or, if that is
// empty, with the object as a whole.
func (o *object) report(at, fact, hint string) {
	o.wrong, o.reported[at] = true, true
	o.problems = append(o.problems, o.problem(at, fact, hint))
}

// note notes what there is to say and is no problem.
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

// reportAll notes problems, but for those at fields that have one already: what is
// missing is also not valid. Those at one field are sorted: the validations of
// Kubernetes go through labels in the order of a map.
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

// place puts an object into its namespace, which is home if it names none.
func (o *object) place(namespaced, known bool, home string) {
	namespace := o.Content.GetNamespace()
	if !known {
		// What an API server holds without a namespace cannot have one.
		namespaced = !o.stored || namespace != ""
	}
	o.Namespaced = namespaced
	switch {
	case namespaced && namespace == "":
		o.setNamespace(home)
	case !namespaced && ours(o.gvk.Group) && namespace != "":
		o.report("metadata.namespace", fmt.Sprintf("must be absent: a %s belongs to no namespace", o.gvk.Kind), "")
	case !namespaced:
		o.setNamespace("") // As an API server does.
	}
}

// setNamespace sets the namespace, or takes it away, without modifying the
// content, which the object may share with others.
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

// decode checks what is in a valid object, and finds out its list.
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

// encode returns the object as JSON, or reports why it cannot.
func (o *object) encode() ([]byte, bool) {
	data, err := json.Marshal(o.Content.Object)
	if err != nil {
		o.report("", fmt.Sprintf("cannot be written as JSON: %v", err), "")
		return nil, false
	}
	return data, true
}

// atMost returns a length that a value as JSON does not exceed. That is found
// sooner than the length itself, and nearly always small enough.
func atMost(value any) int {
	const mark = 1 // A quote, bracket, colon or comma.
	switch v := value.(type) {
	case nil, bool:
		return len("false")
	case int64, float64:
		return len("-0.0000012345678901234567") // None is longer.
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
		return maxSize + 1 // Not decoded from JSON or YAML, so anything.
	}
}
