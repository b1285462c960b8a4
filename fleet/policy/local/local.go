// Package local decides which fields of an object on the hub are left to each cluster. Fields that a user requested are
// sent to clusters. Fields that the hub's API server or its controllers assigned, such as the clusterIP of a Service,
// are not sent: each cluster assigns its own. The decision precedes all override rules. A field that a rule writes
// counts as requested.
//
// The package does no I/O and never modifies its arguments. docs/design/other-writers.md describes the rules and their
// sources.
package local

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// ByHub is the author of the changes that remove fields because each cluster assigns its own values. It is shared, and
// must not be modified.
var ByHub = &tree.Author{Rule: tree.NoRule, Left: "assigned by the hub"}

// Assigned returns the fields of an object that the hub assigned. They can be removed one by one in the returned order.
// The decision uses the first of these sources that the object has:
//
//  1. metadata.managedFields: a field that no manager owns was allocated after admission, and a field that only
//     controllers own was set by them;
//  2. the annotation [refractv1alpha1.AssignedAnnotation], see [WithoutManagers];
//  3. the table by kind, if the object has a UID: an API server stored the object, and its fields have no known owner.
//
// A manifest without a UID keeps all fields except those that only a cluster can know.
func Assigned(object map[string]any) []tree.Pointer {
	metadata, _ := object["metadata"].(map[string]any)
	rules := rulesFor(object)
	managers := managersIn(metadata)
	annotations, _ := metadata["annotations"].(map[string]any)
	record, recorded := annotations[refractv1alpha1.AssignedAnnotation].(string)
	if len(rules) == 0 && len(managers) == 0 && !recorded {
		return nil
	}
	uid, _ := metadata["uid"].(string)
	version, _ := metadata["resourceVersion"].(string) // An exported object may lack the UID.
	stored := uid != "" || version != "" || recorded
	origin := origin{object: object, managers: managers, stored: stored, byUser: slices.ContainsFunc(managers, manager.requests)}
	var places []tree.Pointer
	if recorded && len(managers) == 0 {
		origin.recorded = true
		places = pointersIn(record, object)
	}
	for i := range rules {
		places = append(places, origin.assigned(&rules[i])...)
	}
	places = append(places, origin.setByControllers()...)
	return removable(places)
}

// WithoutManagers returns the object without metadata.managedFields, which are about half of an object's size. The
// annotation [refractv1alpha1.AssignedAnnotation] lists the assigned fields instead, so that [Assigned] returns the
// same result. An earlier annotation is replaced or removed, because the author of the object must not decide which
// fields are assigned.
func WithoutManagers(object map[string]any) map[string]any {
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return object
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	_, marked := annotations[refractv1alpha1.AssignedAnnotation]
	record, needed := record(object, managersIn(metadata))
	metadata = maps.Clone(metadata)
	delete(metadata, "managedFields")
	if marked || needed {
		annotations = maps.Clone(annotations)
		delete(annotations, refractv1alpha1.AssignedAnnotation)
		if needed {
			if annotations == nil {
				annotations = map[string]any{}
			}
			annotations[refractv1alpha1.AssignedAnnotation] = record
		}
		metadata["annotations"] = annotations
	}
	object = maps.Clone(object)
	object["metadata"] = metadata
	return object
}

// record returns the value of the annotation AssignedAnnotation. Needed is false for an object that needs no
// annotation.
func record(object map[string]any, managers []manager) (value string, needed bool) {
	if len(managers) == 0 || len(rulesFor(object)) == 0 && !slices.ContainsFunc(managers, manager.controls) {
		return "", false
	}
	pointers := []string{}
	for _, place := range Assigned(object) {
		pointers = append(pointers, place.String())
	}
	text, err := json.Marshal(pointers)
	return string(text), err == nil // Strings can always be marshaled.
}

// Fields returns the fields that the changes leave to each cluster. The index of an element is replaced by *, because
// the element may have another index on a cluster.
func Fields(changes []tree.Change) []tree.Pattern {
	var fields []tree.Pattern
	for i := range changes {
		if changes[i].By != ByHub {
			continue
		}
		segments := strings.Split(changes[i].Path, "/")
		for j := range segments {
			if _, err := strconv.ParseUint(segments[j], 10, 32); err == nil {
				segments[j] = "*"
			}
		}
		pattern, err := tree.ParsePattern(strings.Join(segments, "/"))
		if err != nil || slices.ContainsFunc(fields, pattern.Equal) {
			continue // A recorded change always has a path.
		}
		fields = append(fields, pattern)
	}
	return fields
}

// Assignable returns the fields that a cluster may assign to objects of this kind, and that the object lacks. It leaves
// out fields that are elements of lists.
func Assignable(object map[string]any) []tree.Pattern {
	var fields []tree.Pattern
	for _, r := range rulesFor(object) {
		keys := r.pattern.Keys()
		if keys[len(keys)-1] != "*" && len(r.pattern.Places(object)) == 0 {
			fields = append(fields, r.pattern)
		}
	}
	return fields
}

// origin describes the source of an object's fields.
type origin struct {
	object   map[string]any
	managers []manager
	byUser   bool // Whether a user's manager owns any field; otherwise controllers created the object.
	recorded bool // The annotation lists the assigned fields.
	stored   bool // An API server has stored the object.
}

// assigned returns the fields that a rule matches and the hub assigned.
func (o *origin) assigned(r *rule) []tree.Pointer {
	if r.applies != nil && !r.applies(o.object) {
		return nil
	}
	owned := r.when == unowned || r.when == unownedOnly
	switch {
	case r.when == stored && !o.stored, owned && o.recorded, owned && !o.stored && len(o.managers) == 0, r.when == unownedOnly && !o.byUser:
		return nil
	}
	places := r.pattern.Places(o.object)
	return slices.DeleteFunc(places, func(place tree.Pointer) bool {
		value, err := tree.Lookup(o.object, place)
		switch {
		case err != nil, r.keeps != nil && r.keeps(value):
			return true
		case owned && len(o.managers) > 0:
			return o.requested(place)
		default:
			return owned && r.chosen != nil && r.chosen(value)
		}
	})
}

// requested reports whether a user's manager owns a field.
func (o *origin) requested(place tree.Pointer) bool {
	return slices.ContainsFunc(o.managers, func(m manager) bool { return m.requests() && m.owns(o.object, place) })
}

// setByControllers returns the fields that only controllers of the hub's control plane own. In an object that
// controllers created, such as a claim of a StatefulSet, these fields are requested.
func (o *origin) setByControllers() []tree.Pointer {
	if !o.byUser {
		return nil
	}
	var places []tree.Pointer
	for _, m := range o.managers {
		if !m.controls() {
			continue
		}
		for _, place := range m.leaves(o.object) {
			if leavable(place.Keys()) && !o.requested(place) {
				places = append(places, place)
			}
		}
	}
	return places
}

// leavable reports whether a field may be left to a cluster. Fields that identify the object, and fields that are never
// propagated, may not.
func leavable(keys []string) bool {
	switch {
	case len(keys) == 0, keys[0] == "apiVersion", keys[0] == "kind", keys[0] == "status":
		return false
	case keys[0] == "metadata":
		return len(keys) == 3 && (keys[1] == "labels" || keys[1] == "annotations")
	default:
		return true
	}
}

// pointersIn parses the value of AssignedAnnotation. It leaves out fields that the object does not have.
func pointersIn(record string, object map[string]any) []tree.Pointer {
	var texts []string
	if json.Unmarshal([]byte(record), &texts) != nil {
		return nil // The hub writes only valid texts; a file may have an invalid one.
	}
	var places []tree.Pointer
	for _, text := range texts {
		place, err := tree.Parse(text)
		if err != nil || !leavable(place.Keys()) {
			continue
		}
		if _, err := tree.Lookup(object, place); err == nil {
			places = append(places, place)
		}
	}
	return places
}

// removable sorts pointers by their keys, and elements of an array from the last to the first, so that they can be
// removed one by one. It leaves out a pointer to a part of another pointer's value.
func removable(places []tree.Pointer) []tree.Pointer {
	slices.SortFunc(places, func(a, b tree.Pointer) int { return compare(a.Keys(), b.Keys()) })
	var kept []tree.Pointer
	for _, p := range places { // Pointers to parts of a value directly follow the pointer to the value.
		if len(kept) == 0 || !tree.Covers(kept[len(kept)-1].String(), p.String()) {
			kept = append(kept, p)
		}
	}
	return kept
}

// compare orders pointers by their segments, and indexes in descending order.
func compare(a, b []string) int {
	return slices.CompareFunc(a, b, func(a, b string) int {
		i, err := strconv.Atoi(a)
		j, err2 := strconv.Atoi(b)
		if err == nil && err2 == nil {
			return j - i
		}
		return strings.Compare(a, b)
	})
}

func rulesFor(object map[string]any) []rule {
	kind, _ := object["kind"].(string)
	version, _ := object["apiVersion"].(string)
	group, _, found := strings.Cut(version, "/")
	if !found {
		group = ""
	}
	return byKind[schema.GroupKind{Group: group, Kind: kind}]
}
