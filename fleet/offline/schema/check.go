package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/tree"
)

// checker walks an object along its shape.
type checker struct {
	secret bool // The object is a Secret.
	path   []step
	found  []Mismatch
}

// A step leads to a member by key, or with array set to an element by index.
type step struct {
	key   string
	index int
	array bool
}

func (c *checker) report(message, hint string) {
	var path strings.Builder
	for _, s := range c.path {
		path.WriteByte('/')
		if s.array {
			path.WriteString(strconv.Itoa(s.index))
			continue
		}
		path.WriteString(tree.Escape(s.key))
	}
	c.found = append(c.found, Mismatch{Path: path.String(), Message: message, Hint: hint})
}

// at reports a mismatch of a member or element of the current value.
func (c *checker) at(s step, message, hint string) {
	c.path = append(c.path, s)
	c.report(message, hint)
	c.path = c.path[:len(c.path)-1]
}

// show formats a value at the current place.
func (c *checker) show(value any) string {
	return show(value, c.hides())
}

// hides reports whether the current place is inside the values of a Secret.
func (c *checker) hides() bool {
	return c.secret && len(c.path) > 0 && (c.path[0].key == "data" || c.path[0].key == "stringData")
}

// value checks a value, unless it is equal to the value before.
func (c *checker) value(value, before any, s *shape) {
	if same(value, before) {
		return
	}
	if value == nil {
		c.null(s)
		return
	}
	if want := s.wants(value); want != "" {
		c.report(fmt.Sprintf("is %s, want %s", c.show(value), want), hintType(value, s.want))
		return
	}
	switch value := value.(type) {
	case map[string]any:
		c.object(value, before, s)
		return
	case []any:
		c.array(value, before, s)
	case string:
		c.checkFormat(value, s)
	}
	c.checkLimits(value, s)
}

// null checks an element that is null, or a member for which null is a valid value. All other members that are null
// count as absent.
func (c *checker) null(s *shape) {
	if s.typed || s.fallback != nil {
		return
	}
	if s.want != anything && !s.nullable {
		c.report("is null, want "+typeWords[s.want], "")
		return
	}
	if s.limits != nil {
		c.checkEnum(nil, s)
	}
}

func (c *checker) object(object map[string]any, before any, s *shape) {
	was, _ := before.(map[string]any)
	for key, value := range object {
		m := s.member(key)
		switch {
		case m == nil && s.open:
		case m == nil:
			hint := ""
			if near := nearest.To(key, slices.Sorted(maps.Keys(s.members))); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			c.at(step{key: key}, NoSuchField, hint)
		case value != nil || m.nullable:
			c.path = append(c.path, step{key: key})
			c.value(value, memberOf(was, key), m)
			c.path = c.path[:len(c.path)-1]
		}
	}
	for _, name := range s.required {
		if !s.has(object, name) {
			c.at(step{key: name}, IsMissing, "")
		}
	}
	c.checkLimits(object, s)
}

func (c *checker) array(array []any, before any, s *shape) {
	was, _ := before.([]any)
	if s.items != nil {
		for i, value := range array {
			c.path = append(c.path, step{index: i, array: true})
			c.value(value, elementOf(was, i), s.items)
			c.path = c.path[:len(c.path)-1]
		}
	}
	if s.unique {
		c.same(array, "is the same as", func(_ int, value any) (string, bool) { return identity(value) })
	}
	if len(s.keys) > 0 && s.items != nil {
		message := "has the same " + strings.Join(s.keys, " and ") + " as"
		c.same(array, message, func(i int, value any) (string, bool) { return c.key(i, value, s) })
	}
}

// same reports every element with the identity of an earlier one.
func (c *checker) same(array []any, message string, identify func(int, any) (string, bool)) {
	first := make(map[string]int, len(array))
	for i, value := range array {
		id, ok := identify(i, value)
		if !ok {
			continue
		}
		if before, ok := first[id]; ok {
			c.at(step{index: i, array: true}, fmt.Sprintf("%s element %d", message, before), "")
			continue
		}
		first[id] = i
	}
}

// key returns the identity of an element in a list with keys. It reports a missing key, unless the missing member is
// reported anyway.
func (c *checker) key(i int, value any, s *shape) (string, bool) {
	object, ok := value.(map[string]any)
	if !ok {
		return "", false
	}
	values := make([]any, len(s.keys))
	complete := true
	for k, name := range s.keys {
		values[k] = object[name]
		if m := s.items.members[name]; values[k] == nil && m != nil {
			values[k] = m.fallback
		}
		if values[k] != nil {
			continue
		}
		required := slices.Contains(s.items.required, name)
		if !required && !s.typed {
			c.path = append(c.path, step{index: i, array: true})
			c.at(step{key: name}, IsMissing, "")
			c.path = c.path[:len(c.path)-1]
		}
		// In a Go type, a member that is absent and not required has the zero value.
		complete = complete && !required && s.typed
	}
	id, ok := identity(values)
	return id, ok && complete
}

// identity returns a text that is equal for equal values only.
func identity(value any) (string, bool) {
	text, err := json.Marshal(value)
	return string(text), err == nil
}
