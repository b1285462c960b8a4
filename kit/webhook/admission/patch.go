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

// operation is an operation of a JSON patch. The operation "remove" has no Value.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// difference returns the JSON patch for object, or nil without a change. before and after are encodings of the decoded
// object: before and after the user's function changed it. again decodes an object and encodes the result; it returns
// nil if that fails.
//
// The patch is a three-way merge: neither encoding contains the unknown fields of object, so these fields stay. The
// time is proportional to the size of the three texts.
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

// differ makes a patch. In its methods, have is a value in the object; was and is are the values at the same place in
// the encodings before and after the change.
type differ struct {
	patch  []operation
	leaves meaningless
}

// meaningless selects members that a patch omits from added values, because the Go type does not distinguish them from
// missing members. Go encodes a nil slice as null, and an empty struct as {}. An API server may reject both.
type meaningless int

const (
	nothing meaningless = iota
	nulls
	nullsAndEmpties
)

// members adds the operations for the object at a path. Each operation sets or removes one member.
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

// changed returns the sorted keys whose values in was and is differ.
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

// objects returns its arguments as objects. The result for a value that is no object is nil.
func objects(have, was, is any) (h, w, i map[string]any) {
	h, _ = have.(map[string]any)
	w, _ = was.(map[string]any)
	i, _ = is.(map[string]any)
	return h, w, i
}

// merged applies the change between was and is to have, and returns the result. It modifies no argument.
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

// matches returns, for each element of is, the index of the same element in was; -1 for a new element. An equal element
// is the same element; otherwise an element with the same name is. If the two arrays then have the same number of
// unmatched elements, where those of was have no names, these elements match in order.
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

// inPlace reports whether both arrays have the same names in the same order, without duplicates. This is the usual
// case.
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

// encodingOf returns an encoding that is equal for equal values only.
func encodingOf(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "" // Cannot happen: every decoded value can be encoded.
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
