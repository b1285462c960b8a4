package diff

import (
	"strconv"
	"strings"

	"refract.dev/tree"
)

// authored returns the step with who is behind it, given what made the variants
// before and after.
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

// writer returns who last wrote to what is at a place after all changes, to a part
// of it or to something around it; nil if nobody did.
func writer(changes []tree.Change, place string) *tree.Author {
	for i := len(changes) - 1; i >= 0; i-- {
		c := &changes[i]
		inside, around := tree.Covers(place, c.Path), tree.Covers(c.Path, place)
		if moves(c) && c.Op == tree.OpRemove && around { // What is there now was behind what was removed.
			inside, around = false, false
		}
		if inside || around {
			return c.By
		}
		place = placeBefore(place, c)
	}
	return nil
}

// remover returns who last took an element like this one out of the array at a
// place after all changes, or wrote the array as a whole; nil if nobody did.
func remover(changes []tree.Change, array string, element any) *tree.Author {
	for i := len(changes) - 1; i >= 0; i-- {
		c := &changes[i]
		in := c.Element && c.Path[:strings.LastIndexByte(c.Path, '/')] == array
		switch {
		case in && c.Op != tree.OpAdd && alike(c.Before, element):
			return c.By
		case in:
		case tree.Covers(c.Path, array) && (!moves(c) || c.Op == tree.OpAdd):
			return c.By
		}
		array = placeBefore(array, c)
	}
	return nil
}

// alike reports whether two elements of arrays are the same one, or have the same
// name.
func alike(a, b any) bool {
	if was, is, ok := keysOf([]any{a}, []any{b}); ok {
		return was[0] == is[0]
	}
	return tree.Equal(a, b)
}

// moves reports whether the change moves the elements behind its place.
func moves(c *tree.Change) bool { return c.Element && c.Op != tree.OpReplace }

// placeBefore returns where the value that is at a place after c, which did not
// insert it, was before c.
func placeBefore(place string, c *tree.Change) string {
	if !moves(c) {
		return place
	}
	slash := strings.LastIndexByte(c.Path, '/')
	array := c.Path[:slash]
	if place == array || !tree.Covers(array, place) {
		return place
	}
	text, _, _ := strings.Cut(place[slash+1:], "/")
	index, err := strconv.Atoi(text)
	if err != nil {
		return place // A name, which means nothing in an array.
	}
	edited, _ := strconv.Atoi(c.Path[slash+1:]) // Recorded changes have indexes.
	switch {
	case c.Op == tree.OpRemove && index >= edited:
		index++
	case c.Op == tree.OpAdd && index > edited:
		index--
	default:
		return place
	}
	return at(array, index) + place[slash+1+len(text):]
}
