package simulate

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// difference lists the fields of an object whose values have changed, with the old and new values. A nil object has no fields.
func difference(was, is *unstructured.Unstructured) string { return list(differences(was, is)) }

func differences(was, is *unstructured.Unstructured) (all []string) {
	compare("", told(was), told(is), &all)
	return all
}

// told returns the fields that the author of an object wrote, without the fields of the API server and of controllers.
// It decodes the data of a Secret.
func told(o *unstructured.Unstructured) map[string]any {
	if o == nil {
		return nil
	}
	fields := o.DeepCopy().Object
	delete(fields, "status")
	metadata, _ := fields["metadata"].(map[string]any)
	for _, name := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"} {
		delete(metadata, name)
	}
	if data, _ := fields["data"].(map[string]any); o.GetKind() == kindSecret.name {
		for key, v := range data {
			text, _ := v.(string)
			if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
				data[key] = string(plain)
			}
		}
	}
	return fields
}

// compare appends a text for each field below a path with different values.
func compare(path string, was, is any, to *[]string) {
	before, isMap := byName(was)
	after, isToo := byName(is)
	switch {
	case isMap && isToo: // One of the values may be nil. If both are, the recursion ends.
		keys := maps.Clone(before)
		maps.Copy(keys, after)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			compare(strings.TrimPrefix(path+"."+key, "."), before[key], after[key], to)
		}
	case string(encoded(was)) != string(encoded(is)):
		*to = append(*to, fmt.Sprintf("%s %s → %s", path, short(was), short(is)))
	}
}

// byName returns the fields of a map, or the elements of a list by name if all have unique names. An absent value has none.
func byName(v any) (all map[string]any, ok bool) {
	switch v := v.(type) {
	case nil:
		return map[string]any{}, true
	case map[string]any:
		return v, true
	case []any:
		all = map[string]any{}
		for _, e := range v {
			m, _ := e.(map[string]any)
			name, _ := m["name"].(string)
			if all[name] != nil || name == "" {
				return nil, false
			}
			all[name] = e
		}
		return all, len(v) > 0
	default:
		return nil, false
	}
}

// short formats a value for a story.
func short(v any) string {
	const most = 120
	text := "none"
	switch v := v.(type) {
	case nil:
	case string:
		text = v
	default:
		text = string(encoded(v))
	}
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
