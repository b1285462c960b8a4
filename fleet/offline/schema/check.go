package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/tree"
)

// checker walks an object along its shape.
type checker struct {
	secret bool     // The object is a Secret.
	path   []string // The keys and indexes that lead to the current value.
	found  []Mismatch
}

// report reports a mismatch of the current value, or of the place inside it that the keys lead to.
func (c *checker) report(message, hint string, keys ...string) {
	var at tree.Pointer
	for _, key := range slices.Concat(c.path, keys) {
		at = at.Member(key)
	}
	c.found = append(c.found, Mismatch{Path: at.String(), Message: message, Hint: hint})
}

// show formats a value at the current place.
func (c *checker) show(value any) string {
	return show(value, c.hides())
}

// hides reports whether the current place is inside the values of a Secret.
func (c *checker) hides() bool {
	return c.secret && len(c.path) > 0 && (c.path[0] == "data" || c.path[0] == "stringData")
}

// value checks a value, except for parts that are unchanged. The argument before is the value at the same place before
// the change.
func (c *checker) value(value, before any, s *shape) {
	if value == nil {
		c.null(s)
		return
	}
	if want := s.wants(value); want != "" {
		c.report(fmt.Sprintf("is %s, want %s", c.show(value), want), hintType(value, s))
		return
	}
	switch value := value.(type) {
	case map[string]any:
		c.object(value, before, s)
	case []any:
		c.array(value, before, s)
	case string:
		c.checkFormat(value, s)
	}
	c.checkLimits(value, s)
}

// inside checks a member or an element.
func (c *checker) inside(key string, value, before any, s *shape) {
	c.path = append(c.path, key)
	c.value(value, before, s)
	c.path = c.path[:len(c.path)-1]
}

// null checks an element that is null, or a member for which null is a valid value. All other members that are null
// count as absent.
func (c *checker) null(s *shape) {
	if s.typed || s.fallback != nil {
		return
	}
	if s.Type != anything && !s.Nullable {
		c.report("is null, want "+typeWords[s.Type], "")
		return
	}
	c.checkEnum(nil, s)
}

func (c *checker) object(object map[string]any, before any, s *shape) {
	was, _ := before.(map[string]any)
	for key, value := range object {
		m := s.member(key)
		before, there := was[key]
		switch {
		case m == nil && s.open:
		case m == nil:
			c.report(NoSuchField, didYouMean(key, slices.Sorted(maps.Keys(s.members))), key)
		case there && same(value, before):
		case value != nil || m.Nullable:
			c.inside(key, value, before, m)
		}
	}
	for _, name := range s.Required {
		if !s.has(object, name) {
			c.report(IsMissing, "", name)
		}
	}
}

func (c *checker) array(array []any, before any, s *shape) {
	if s.UniqueItems || s.XListType != nil && *s.XListType == "set" {
		c.differ(array, "is the same as", func(_ int, value any) string { return identity(value) })
	}
	if s.items == nil {
		return
	}
	if len(s.XListMapKeys) > 0 {
		message := "has the same " + strings.Join(s.XListMapKeys, " and ") + " as"
		c.differ(array, message, func(i int, value any) string { return c.key(i, value, s) })
	}
	was, _ := before.([]any)
	for i, value := range array {
		if i >= len(was) {
			c.inside(strconv.Itoa(i), value, nil, s.items)
		} else if !same(value, was[i]) {
			c.inside(strconv.Itoa(i), value, was[i], s.items)
		}
	}
}

// differ reports every element with the identity of an earlier one. Elements whose identity is empty differ from all.
func (c *checker) differ(array []any, message string, identify func(int, any) string) {
	first := make(map[string]int, len(array))
	for i, value := range array {
		id := identify(i, value)
		if before, ok := first[id]; ok {
			c.report(fmt.Sprintf("%s element %d", message, before), "", strconv.Itoa(i))
		} else if id != "" {
			first[id] = i
		}
	}
}

// key returns the identity of an element in a list with keys; empty without one. It reports a missing key, unless the
// missing member is reported anyway.
func (c *checker) key(i int, value any, s *shape) string {
	object, ok := value.(map[string]any)
	if !ok {
		return ""
	}
	values := make([]any, len(s.XListMapKeys))
	complete := true
	for k, name := range s.XListMapKeys {
		values[k] = object[name]
		if m := s.items.members[name]; values[k] == nil && m != nil {
			values[k] = m.fallback
		}
		if values[k] != nil {
			continue
		}
		required := slices.Contains(s.items.Required, name)
		if !required && !s.typed {
			c.report(IsMissing, "", strconv.Itoa(i), name)
		}
		// In a Go type, a member that is absent and not required has the zero value.
		complete = complete && !required && s.typed
	}
	if !complete {
		return ""
	}
	return identity(values)
}

// identity returns a text that is equal for equal values only; empty for a value that has no JSON.
func identity(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

// same reports whether two values are certainly equal: maps and slices if they are identical in memory, other values if
// they are equal.
func same(value, before any) bool {
	a, b := reflect.ValueOf(value), reflect.ValueOf(before)
	if a.Kind() != reflect.Map && a.Kind() != reflect.Slice {
		return value == before
	}
	return a.Kind() == b.Kind() && a.Len() == b.Len() && a.Pointer() == b.Pointer()
}

// didYouMean returns a hint with the candidate that is nearest to a name; empty without a near one.
func didYouMean(name string, candidates []string) string {
	if near := nearest.To(name, candidates); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return ""
}
