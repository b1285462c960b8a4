package local

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"refract.dev/tree"
)

// manager is an entry of metadata.managedFields.
type manager struct {
	name        string
	applies     bool           // By server-side apply.
	subresource string         // Through which it writes; empty for the object itself.
	fields      map[string]any // As fieldsV1 has it.
}

// beforeFirstApply is the manager that an API server makes up for fields of which it does not
// know the owner.
const beforeFirstApply = "before-first-apply"

// managersIn returns the entries of an object. Those of the subresource scale are left out:
// package propagation decides on replicas.
func managersIn(metadata map[string]any) []manager {
	list, _ := metadata["managedFields"].([]any)
	var managers []manager
	for _, item := range list {
		entry, _ := item.(map[string]any)
		name, _ := entry["manager"].(string)
		fields, _ := entry["fieldsV1"].(map[string]any)
		subresource, _ := entry["subresource"].(string)
		if subresource != "scale" && name != beforeFirstApply && len(fields) > 0 {
			managers = append(managers, manager{name, entry["operation"] == "Apply", subresource, fields})
		}
	}
	return managers
}

// controllers are the managers of Kubernetes' own controllers, and of those that only
// complete objects of others.
var controllers = []string{
	"kube-controller-manager", "kube-scheduler", "kubelet", "cloud-controller-manager", "clusterrole-aggregation-controller",
	"kube-webhook-certgen", "service-ca-operator", "cluster-policy-controller",
}

// controls reports whether the manager is a controller, and not a user's tool: it is known as
// one, or it owns certificates of authorities alone, as injectors do.
func (m manager) controls() bool {
	return slices.Contains(controllers, m.name) || strings.HasSuffix(m.name, "-cloud-controller-manager") ||
		strings.HasSuffix(m.name, "cainjector") || onlyAuthorities(m.fields)
}

// requests reports whether the manager writes the object itself for a user.
func (m manager) requests() bool { return m.subresource == "" && !m.controls() }

// onlyAuthorities reports whether all fields of a set are called caBundle.
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

// owns reports whether the manager owns a place of the object, by itself or as part of a
// value that has one owner.
func (m manager) owns(object map[string]any, place tree.Pointer) bool {
	fields, value := m.fields, any(object)
	for _, key := range place.Keys() {
		if len(fields) == 0 {
			return true // The value around has one owner.
		}
		var found bool
		if fields, value, found = step(fields, value, key); !found {
			return false
		}
	}
	return true
}

// step returns what is inside a place of the object, and of a set of fields.
func step(fields map[string]any, value any, key string) (inside map[string]any, next any, found bool) {
	switch v := value.(type) {
	case map[string]any:
		inside, found = fields["f:"+key].(map[string]any)
		return inside, v[key], found
	case []any:
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= len(v) {
			return nil, nil, false
		}
		for name, node := range fields {
			if names(name, v[i], i) {
				inside, found = node.(map[string]any)
				return inside, v[i], found
			}
		}
	}
	return nil, nil, false
}

// names reports whether a key of a set names an element of a list: by the values of its key
// fields, by its own value, or by its index.
func names(key string, element any, index int) bool {
	kind, text, _ := strings.Cut(key, ":")
	switch kind {
	case "k":
		var keys map[string]any
		of, ok := element.(map[string]any)
		if !ok || json.Unmarshal([]byte(text), &keys) != nil {
			return false
		}
		for name, value := range keys {
			if !same(of[name], value) {
				return false
			}
		}
		return len(keys) > 0
	case "v":
		var value any
		return json.Unmarshal([]byte(text), &value) == nil && same(element, value)
	case "i":
		return text == strconv.Itoa(index)
	default:
		return false
	}
}

// same compares a scalar of an object with one of a JSON text, in which numbers are floats.
func same(is, text any) bool {
	if f, ok := text.(float64); ok {
		switch n := is.(type) {
		case int64:
			return float64(n) == f
		case float64:
			return n == f
		}
	}
	switch is.(type) {
	case string, bool, nil:
		return is == text
	default:
		return false
	}
}

// leaves returns the places of the object that the manager owns and that have no owned
// place inside.
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
			for key, node := range fields {
				inside, isSet := node.(map[string]any)
				for i := range v {
					if isSet && names(key, v[i], i) {
						walk(inside, v[i], at.At(i))
					}
				}
			}
		}
	}
	walk(m.fields, object, tree.Pointer{})
	return places
}
