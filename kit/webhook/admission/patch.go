package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// operation is an operation of a JSON patch. Value is unused by "remove".
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// difference returns the JSON patch that applies to object the change between before and after, or nil without a
// change. before and after encode the decoded object: before and after the function changed it. again decodes an object
// and encodes the result; it returns nil if that fails.
//
// The patch is a three-way merge: an unknown field of the object is in neither encoding, and so remains. The time is
// proportional to the size of the three texts.
func difference(object, before, after []byte, again func([]byte) []byte) ([]byte, error) {
	if bytes.Equal(before, after) {
		return nil, nil
	}
	var read [3]map[string]any
	for i, text := range [...][]byte{object, before, after} {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber() // A float64 does not hold every integer.
		if err := decoder.Decode(&read[i]); err != nil {
			return nil, fmt.Errorf("reading the object: %w", err)
		}
	}
	d := differ{}
	for d.leaves = nullsAndEmpties; d.leaves > nothing; d.leaves-- {
		if text, err := json.Marshal(d.bare(read[2])); err == nil && bytes.Equal(again(text), after) {
			break
		}
	}
	if err := d.members("", read[0], read[1], read[2]); err != nil || d.patch == nil {
		return nil, err
	}
	text, err := json.Marshal(d.patch)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch: %w", err)
	}
	return text, nil
}

// differ makes a patch. In its methods, have, was and is are the values at one place of the object, and of the encodings
// before and after the change.
type differ struct {
	patch  []operation
	leaves meaningless
}

// meaningless selects the members of added values that a patch omits, because they mean nothing to the type. Go encodes
// a nil slice as null, and an empty struct as {}, and an API server may reject both.
type meaningless int

const (
	nothing meaningless = iota
	nulls
	nullsAndEmpties
)

// members adds the operations for an object at a path: each sets or removes one member.
func (d *differ) members(path string, have, was, is map[string]any) error {
	for _, key := range changed(was, is) {
		old, there := have[key]
		at := operation{Op: "remove", Path: path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)}
		value, stays := is[key]
		h, w, i := objects(old, was[key], value)
		switch {
		case !stays || value == nil && d.leaves > nothing:
			if there {
				d.patch = append(d.patch, at)
			}
			continue
		case h != nil && w != nil && i != nil:
			if err := d.members(at.Path, h, w, i); err != nil {
				return err
			}
			continue
		case there:
			at.Op = "replace"
		default:
			at.Op = "add"
		}
		var err error
		if at.Value, err = json.Marshal(d.merged(old, was[key], value)); err != nil {
			return fmt.Errorf("encoding %s: %w", at.Path, err)
		}
		d.patch = append(d.patch, at)
	}
	return nil
}

// changed returns the sorted keys whose values differ.
func changed(was, is map[string]any) (keys []string) {
	for key, value := range is {
		if old, there := was[key]; !there || !reflect.DeepEqual(old, value) {
			keys = append(keys, key)
		}
	}
	for key := range was {
		if _, stays := is[key]; !stays {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// objects returns the values that are objects; nil for others.
func objects(have, was, is any) (h, w, i map[string]any) {
	h, _ = have.(map[string]any)
	w, _ = was.(map[string]any)
	i, _ = is.(map[string]any)
	return h, w, i
}

// merged returns have with the change between was and is. It modifies no argument.
func (d *differ) merged(have, was, is any) any {
	if h, w, i := objects(have, was, is); h != nil && w != nil && i != nil {
		out := maps.Clone(h)
		for _, key := range changed(w, i) {
			if value, stays := i[key]; stays && (value != nil || d.leaves == nothing) {
				out[key] = d.merged(h[key], w[key], value)
			} else {
				delete(out, key)
			}
		}
		return out
	}
	h, _ := have.([]any)
	w, _ := was.([]any)
	i, _ := is.([]any)
	if h == nil || len(h) != len(w) || i == nil {
		return d.bare(is)
	}
	out := make([]any, len(i))
	for to, from := range matches(w, i) {
		switch {
		case from < 0:
			out[to] = d.bare(i[to])
		case reflect.DeepEqual(w[from], i[to]):
			out[to] = h[from]
		default:
			out[to] = d.merged(h[from], w[from], i[to])
		}
	}
	return out
}

// matches returns, for each element of is, the index of the same element in was, or -1: an equal element, or else one
// with the same name. If as many elements of was without a name are left as elements of is, they match in order.
func matches(was, is []any) []int {
	out := slices.Repeat([]int{-1}, len(is))
	if inPlace(was, is) {
		for n := range out {
			out[n] = n
		}
		return out
	}
	taken := make([]bool, len(was))
	match := func(identity func(any) string) {
		free := map[string][]int{}
		for from, element := range was {
			if id := identity(element); id != "" && !taken[from] {
				free[id] = append(free[id], from)
			}
		}
		for to, element := range is {
			if id := identity(element); id != "" && out[to] < 0 && len(free[id]) > 0 {
				out[to], taken[free[id][0]] = free[id][0], true
				free[id] = free[id][1:]
			}
		}
	}
	match(encodingOf)
	match(nameOf)
	var from, to []int
	for at, element := range was {
		if !taken[at] && nameOf(element) == "" {
			from = append(from, at)
		}
	}
	for at := range is {
		if out[at] < 0 {
			to = append(to, at)
		}
	}
	if len(from) == len(to) {
		for n := range to {
			out[to[n]] = from[n]
		}
	}
	return out
}

// inPlace reports whether both arrays have the same names in the same order, each once. This is the usual case.
func inPlace(was, is []any) bool {
	if len(was) != len(is) {
		return false
	}
	seen := map[string]bool{}
	for i := range is {
		name := nameOf(is[i])
		if name == "" || name != nameOf(was[i]) || seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}

// encodingOf returns an encoding that only equal values share.
func encodingOf(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "" // Decoded values can be encoded.
	}
	return string(text)
}

// nameOf returns the name of an element of an array, or "".
func nameOf(element any) string {
	object, ok := element.(map[string]any)
	if !ok {
		return ""
	}
	for _, key := range []string{"name", "key", "id", "uid", "type", "mountPath", "devicePath", "containerPort", "port", "ip"} {
		if value := object[key]; value != nil && value != "" {
			return key + ":" + encodingOf(value)
		}
	}
	return ""
}

// bare returns a value without the meaningless members of its objects. It modifies no argument.
func (d *differ) bare(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, inner := range value {
			inner = d.bare(inner)
			object, ok := inner.(map[string]any)
			if inner == nil && d.leaves >= nulls || ok && len(object) == 0 && d.leaves >= nullsAndEmpties {
				continue
			}
			out[key] = inner
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i := range value {
			out[i] = d.bare(value[i])
		}
		return out
	default:
		return value
	}
}
