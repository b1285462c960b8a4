package policytest

import (
	"strconv"
	"strings"

	"refract.dev/tree"
)

// lastAuthor returns who wrote last to the value that is at place after all
// changes, to what is around it or to something inside it; nil if nobody did. It
// goes back in time and keeps track of where the value was.
func lastAuthor(changes []tree.Change, place string) *tree.Author {
	for i := len(changes) - 1; i >= 0; i-- {
		c := &changes[i]
		if !c.Element || c.Op == tree.OpReplace {
			if tree.Covers(c.Path, place) || tree.Covers(place, c.Path) {
				return c.By
			}
			continue
		}
		slash := strings.LastIndexByte(c.Path, '/')
		array := c.Path[:slash]
		switch {
		case c.Op == tree.OpAdd && tree.Covers(c.Path, place):
			return c.By
		case tree.Covers(place, array):
			return c.By // The array has another length now.
		case tree.Covers(array, place):
			place = placeBefore(place, array, c)
		}
	}
	return nil
}

// placeBefore returns where the value at place inside an array was before c moved
// elements of it.
func placeBefore(place, array string, c *tree.Change) string {
	index, rest, inside := strings.Cut(place[len(array)+1:], "/")
	i, err := strconv.Atoi(index)
	at, errAt := strconv.Atoi(c.Path[len(array)+1:])
	switch {
	case err != nil || errAt != nil:
		return place
	case c.Op == tree.OpRemove && i >= at:
		i++
	case c.Op == tree.OpAdd && i > at:
		i--
	}
	place = array + "/" + strconv.Itoa(i)
	if inside {
		place += "/" + rest
	}
	return place
}
