package diff

import (
	"strings"

	"refract.dev/tree"
)

// authored returns the step as a Change, with its cause and author. The arguments are the changes that produced the
// variants before and after.
func (s *step) authored(before, after []tree.Change) Change {
	c := Change{Change: s.Change, Cause: Own}
	var was *tree.Author
	switch {
	case s.Element && s.Op == tree.OpAdd:
		was, c.By = remover(before, s.was, s.After), writer(after, s.is)
	case s.Element && s.Op == tree.OpRemove:
		was, c.By = writer(before, s.was), remover(after, s.is, s.Before)
	default:
		was, c.By = writer(before, s.was), writer(after, s.is)
	}
	switch {
	case c.By != nil:
		c.Cause = ByPolicy
	case was != nil:
		c.By, c.Cause = was, Withdrawn
	}
	return c
}

// writer returns the author of the last change to the value at a place, to a part of the value, or to a value around
// it; nil if no change concerns it. The place is the one after all changes.
func writer(changes []tree.Change, place string) *tree.Author {
	return tree.Trace(changes, place, len(changes)).Author()
}

// remover returns the author of the last change that removed an element like this one from the array at a place, or
// that replaced the whole array; nil without such a change. The place is the one after all changes.
func remover(changes []tree.Change, array string, element any) *tree.Author {
	for i, place := range tree.Trace(changes, array, len(changes)).Touches() {
		c := &changes[i]
		in := c.Element && c.Path[:strings.LastIndexByte(c.Path, '/')] == place
		if (in && c.Op != tree.OpAdd && alike(c.Before, element)) || tree.Covers(c.Path, place) {
			return c.By
		}
	}
	return nil
}

// alike reports whether two elements of arrays are equal or have the same key.
func alike(a, b any) bool {
	if was, is, ok := keysOf([]any{a}, []any{b}); ok {
		return was[0] == is[0]
	}
	return tree.Equal(a, b)
}
