package policytest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/tree"
)

func TestLastAuthor(t *testing.T) {
	change := func(op tree.Op, path string, element bool) tree.Change {
		return tree.Change{Op: op, Path: path, Element: element}
	}
	cases := map[string]struct {
		reason  string
		changes []tree.Change
		place   string
		want    int // Index of the change; -1 for the hub.
	}{
		"Nobody":        {"No change is there.", nil, "/a", -1},
		"Sibling":       {"A change beside the place is none of it.", []tree.Change{change(tree.OpAdd, "/ab", false)}, "/a", -1},
		"Same":          {"The last of two counts.", []tree.Change{change(tree.OpAdd, "/a", false), change(tree.OpReplace, "/a", false)}, "/a", 1},
		"Around":        {"The value came with what is around it.", []tree.Change{change(tree.OpAdd, "/a", false)}, "/a/b", 0},
		"Inside":        {"A part of the value was changed.", []tree.Change{change(tree.OpAdd, "/a/b", false)}, "/a", 0},
		"Removed":       {"Who removed it made it absent.", []tree.Change{change(tree.OpRemove, "/a", false)}, "/a", 0},
		"Inserted":      {"The element is the one that was inserted.", []tree.Change{change(tree.OpAdd, "/l/0", true)}, "/l/0/x", 0},
		"MovedUp":       {"An element behind the one inserted was changed before.", []tree.Change{change(tree.OpReplace, "/l/0", true), change(tree.OpAdd, "/l/0", true)}, "/l/1", 0},
		"MovedDown":     {"An element behind the one removed was changed before.", []tree.Change{change(tree.OpReplace, "/l/2/x", false), change(tree.OpRemove, "/l/0", true)}, "/l/1/x", 0},
		"NotMoved":      {"An element in front of the one removed stays.", []tree.Change{change(tree.OpReplace, "/l/1", true), change(tree.OpRemove, "/l/2", true)}, "/l/1", 0},
		"NewNeighbour":  {"An insertion behind an element is none of it.", []tree.Change{change(tree.OpAdd, "/l/1", true)}, "/l/0", -1},
		"TakenPlace":    {"What is at the place of a removed element was there.", []tree.Change{change(tree.OpRemove, "/l/0", true)}, "/l/0", -1},
		"Array":         {"Whoever removes an element changes the array.", []tree.Change{change(tree.OpReplace, "/l/0", true), change(tree.OpRemove, "/l/0", true)}, "/l", 1},
		"NoIndex":       {"A name means nothing in an array.", []tree.Change{change(tree.OpRemove, "/l/0", true)}, "/l/x", -1},
		"NestedInsert":  {"Elements of another array stay.", []tree.Change{change(tree.OpReplace, "/l/1/m/0", true), change(tree.OpAdd, "/l/0/m/0", true)}, "/l/1/m/0", 0},
		"NestedInMoved": {"An array inside an element moves with it.", []tree.Change{change(tree.OpReplace, "/l/0/m/0", true), change(tree.OpAdd, "/l/0", true)}, "/l/1/m/0", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for i := range tc.changes {
				tc.changes[i].By = &tree.Author{Rule: i}
			}
			got := -1
			if by := lastAuthor(tc.changes, tc.place); by != nil {
				got = by.Rule
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
