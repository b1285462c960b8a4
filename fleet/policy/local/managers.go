package local

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"refract.dev/tree"
)

// manager is an entry of metadata.managedFields.
type manager struct {
	name        string
	applies     bool           // Whether it uses server-side apply.
	subresource string         // The subresource that it writes; empty for the object itself.
	fields      map[string]any // The content of fieldsV1.
	// lists caches the elements of lists by the pointer of the list. All copies of a manager share the map.
	lists map[string][]element
}

// beforeFirstApply is the manager that an API server invents for fields without a known owner.
const beforeFirstApply = "before-first-apply"

// mostManagers bounds the entries of managedFields. An object with more entries counts as one without managedFields.
// API servers keep ten entries of updates, and one for each manager that applies.
const mostManagers = 100

// managersIn returns the entries of an object. It leaves out entries of the subresource scale, because package
// propagation decides on replicas.
func managersIn(metadata map[string]any) []manager {
	list, _ := metadata["managedFields"].([]any)
	if len(list) > mostManagers {
		return nil
	}
	var managers []manager
	for _, item := range list {
		entry, _ := item.(map[string]any)
		name, _ := entry["manager"].(string)
		fields, _ := entry["fieldsV1"].(map[string]any)
		subresource, _ := entry["subresource"].(string)
		if subresource != "scale" && name != beforeFirstApply && len(fields) > 0 {
			managers = append(managers, manager{name, entry["operation"] == "Apply", subresource, fields, map[string][]element{}})
		}
	}
	return managers
}

// controllers has the manager names of Kubernetes' own controllers, and of controllers that only add fields to objects
// of other authors.
var controllers = []string{
	"kube-controller-manager", "kube-scheduler", "kubelet", "cloud-controller-manager", "clusterrole-aggregation-controller",
	"kube-webhook-certgen", "service-ca-operator", "cluster-policy-controller",
}

// controls reports whether the manager is a controller, and not a user's tool. It has the name of a known controller,
// or owns only caBundle fields, as injectors of CA bundles do.
func (m manager) controls() bool {
	return slices.Contains(controllers, m.name) || strings.HasSuffix(m.name, "-cloud-controller-manager") ||
		strings.HasSuffix(m.name, "cainjector") || onlyAuthorities(m.fields)
}

// requests reports whether the manager writes the object itself, and not a subresource, for a user.
func (m manager) requests() bool { return m.subresource == "" && !m.controls() }

// onlyAuthorities reports whether a part of fieldsV1 has no other fields than caBundle.
func onlyAuthorities(fields map[string]any) bool {
	found := false
	for key, inside := range fields {
		node, _ := inside.(map[string]any)
		switch {
		case key == ".":
		case key == "f:caBundle":
			found = true
		case len(node) == 0 || !onlyAuthorities(node):
			return false
		default:
			found = true
		}
	}
	return found
}

// owns reports whether the manager owns a field of the object, directly or as a part of an atomic value.
func (m manager) owns(object map[string]any, place tree.Pointer) bool {
	fields, value, at := m.fields, any(object), tree.Pointer{}
	for _, key := range place.Keys() {
		if len(fields) == 0 {
			return true // The enclosing value is atomic.
		}
		var found bool
		if _, fields, value, found = m.step(fields, value, at, key); !found {
			return false
		}
		at = at.Member(key)
	}
	return true
}

// step goes from a value to one of its members or list elements. It returns this member or element as next, and its
// entry in fieldsV1: the key of the entry as name, and the fields in the entry as inside.
func (m manager) step(fields map[string]any, value any, at tree.Pointer, key string) (name string, inside map[string]any, next any, found bool) {
	switch v := value.(type) {
	case map[string]any:
		name = "f:" + key
		inside, found = fields[name].(map[string]any)
		return name, inside, v[key], found
	case []any:
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= len(v) {
			return "", nil, nil, false
		}
		e := m.elements(fields, v, at)[i]
		return e.name, e.inside, v[i], e.inside != nil
	}
	return "", nil, nil, false
}

// element is the entry in fieldsV1 for one element of a list. The zero element means that fieldsV1 has no entry.
type element struct {
	name   string
	inside map[string]any
}

// elements returns the entry in fieldsV1 for each element of a list. The time grows with the sum of the numbers of
// elements and of entries, not with their product: objects may have thousands of both.
func (m manager) elements(fields map[string]any, list []any, at tree.Pointer) []element {
	if all, known := m.lists[at.String()]; known {
		return all
	}
	all := make([]element, len(list))
	for signature, byValues := range namesIn(fields) {
		for i := range list {
			if e, found := byValues[valuesOf(signature, list[i], i)]; found {
				all[i] = e
			}
		}
	}
	m.lists[at.String()] = all
	return all
}

// mostSignatures bounds the distinct signatures in one list, see namesIn. API servers use one.
const mostSignatures = 4

// Signatures of element names without key fields.
const (
	byValue = "v"
	byIndex = "i"
)

// namesIn returns the entries in fieldsV1 for the elements of a list, by signature and values. In the name
// k:{"port":80,"protocol":"TCP"}, the signature is the JSON list of the keys, and the values are the JSON list of the
// values. Other names have byValue or byIndex as their signature. With more than mostSignatures signatures, the result
// is empty.
func namesIn(fields map[string]any) map[string]map[string]element {
	all := map[string]map[string]element{}
	for name, node := range fields {
		inside, isSet := node.(map[string]any)
		signature, values, ok := parseName(name)
		if !isSet || !ok {
			continue
		}
		if all[signature] == nil {
			if len(all) == mostSignatures {
				return nil
			}
			all[signature] = map[string]element{}
		}
		// If a name has two spellings, the first one in alphabetical order counts, so that the result does not depend
		// on the order of a map.
		if was, known := all[signature][values]; !known || name < was.name {
			all[signature][values] = element{name, inside}
		}
	}
	return all
}

// parseName splits the name of an element into its signature and its values.
func parseName(name string) (signature, values string, ok bool) {
	kind, text, _ := strings.Cut(name, ":")
	switch kind {
	case "k":
		var keys map[string]any
		if json.Unmarshal([]byte(text), &keys) != nil || len(keys) == 0 {
			return "", "", false
		}
		names := slices.Sorted(maps.Keys(keys))
		all := make([]any, len(names))
		for i, n := range names {
			all[i] = keys[n]
		}
		return textOf(names), textOf(all), true
	case byValue:
		var value any
		if json.Unmarshal([]byte(text), &value) != nil {
			return "", "", false
		}
		return byValue, textOf(value), true
	case byIndex:
		return byIndex, text, true
	default:
		return "", "", false
	}
}

// valuesOf returns the values in the name of a list element, for names with this signature.
func valuesOf(signature string, value any, index int) string {
	switch signature {
	case byValue:
		return textOf(value)
	case byIndex:
		return strconv.Itoa(index)
	}
	of, ok := value.(map[string]any)
	var names []string
	if !ok || json.Unmarshal([]byte(signature), &names) != nil {
		return ""
	}
	all := make([]any, len(names))
	for i, n := range names {
		all[i] = of[n]
	}
	return textOf(all)
}

// textOf returns the JSON of a value; "" for a value that has no JSON. A whole number has the same text for all Go
// types.
func textOf(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

// leaves returns the fields of the object that the manager owns and that contain no other owned field.
func (m manager) leaves(object map[string]any) []tree.Pointer {
	var places []tree.Pointer
	var walk func(fields map[string]any, value any, at tree.Pointer)
	walk = func(fields map[string]any, value any, at tree.Pointer) {
		if len(fields) == 0 {
			places = append(places, at)
			return
		}
		switch v := value.(type) {
		case map[string]any:
			for key, node := range fields {
				name, ok := strings.CutPrefix(key, "f:")
				inside, isSet := node.(map[string]any)
				if next, there := v[name]; ok && isSet && there {
					walk(inside, next, at.Member(name))
				}
			}
		case []any:
			for i, e := range m.elements(fields, v, at) {
				if e.inside != nil {
					walk(e.inside, v[i], at.At(i))
				}
			}
		}
	}
	walk(m.fields, object, tree.Pointer{})
	return places
}
