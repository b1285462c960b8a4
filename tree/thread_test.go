package tree

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// threadCases trace the value at a place after all changes.
var threadCases = map[string]struct {
	reason  string
	changes []Change
	place   string
	want    []string // The result of Touches.
	first   string   // Empty if equal to place.
	born    int      // Counted from 1; 0 if the value existed before all changes.
}{
	"Nobody": {
		reason: "No change is there.",
		place:  "/a",
	},
	"Sibling": {
		reason:  "A change beside the place is none of it.",
		changes: []Change{member(OpAdd, "/ab")},
		place:   "/a",
	},
	"Same": {
		reason:  "The last of two comes first.",
		changes: []Change{member(OpAdd, "/a"), member(OpReplace, "/a")},
		place:   "/a",
		want:    []string{"1 /a", "0 /a"},
	},
	"Around": {
		reason:  "The value came with what is around it.",
		changes: []Change{member(OpAdd, "/a")},
		place:   "/a/b",
		want:    []string{"0 /a/b"},
	},
	"Inside": {
		reason:  "A part of the value was changed.",
		changes: []Change{member(OpAdd, "/a/b")},
		place:   "/a",
		want:    []string{"0 /a"},
	},
	"Removed": {
		reason:  "Who removed it made it absent, and a member that is added again is the same.",
		changes: []Change{member(OpReplace, "/a"), member(OpRemove, "/a"), member(OpAdd, "/a")},
		place:   "/a",
		want:    []string{"2 /a", "1 /a", "0 /a"},
	},
	"Inserted": {
		reason:  "The element is the one that was inserted; what was at the place before is another.",
		changes: []Change{element(OpReplace, "/l/0"), element(OpAdd, "/l/0")},
		place:   "/l/0/x",
		want:    []string{"1 /l/0/x"},
		born:    2,
	},
	"MovedUp": {
		reason:  "An element behind the one inserted was changed before.",
		changes: []Change{element(OpReplace, "/l/0"), element(OpAdd, "/l/0")},
		place:   "/l/1",
		want:    []string{"0 /l/0"},
		first:   "/l/0",
	},
	"MovedDown": {
		reason:  "An element behind the one removed was changed before.",
		changes: []Change{member(OpReplace, "/l/2/x"), element(OpRemove, "/l/0")},
		place:   "/l/1/x",
		want:    []string{"0 /l/2/x"},
		first:   "/l/2/x",
	},
	"NotMoved": {
		reason:  "An element in front of the one removed stays.",
		changes: []Change{element(OpReplace, "/l/1"), element(OpRemove, "/l/2")},
		place:   "/l/1",
		want:    []string{"0 /l/1"},
	},
	"NewNeighbour": {
		reason:  "An insertion behind an element is none of it.",
		changes: []Change{element(OpAdd, "/l/1")},
		place:   "/l/0",
	},
	"TakenPlace": {
		reason:  "What is at the place of a removed element was there, one further.",
		changes: []Change{element(OpRemove, "/l/0")},
		place:   "/l/0",
		first:   "/l/1",
	},
	"Array": {
		reason:  "Whoever inserts or removes an element changes the array.",
		changes: []Change{element(OpReplace, "/l/0"), element(OpRemove, "/l/0"), element(OpAdd, "/l/4")},
		place:   "/l",
		want:    []string{"2 /l", "1 /l", "0 /l"},
	},
	"AroundArray": {
		reason:  "And all that the array is in.",
		changes: []Change{element(OpAdd, "/a/l/4")},
		place:   "/a",
		want:    []string{"0 /a"},
	},
	"NoIndex": {
		reason:  "A name means nothing in an array, and neither does what only looks like an index.",
		changes: []Change{element(OpRemove, "/l/0")},
		place:   "/l/01",
	},
	"OtherArray": {
		reason:  "Elements of another array stay.",
		changes: []Change{element(OpReplace, "/l/1/m/0"), element(OpAdd, "/l/0/m/0")},
		place:   "/l/1/m/0",
		want:    []string{"0 /l/1/m/0"},
	},
	"InMoved": {
		reason:  "An array inside an element moves with it.",
		changes: []Change{element(OpReplace, "/l/0/m/0"), element(OpAdd, "/l/0")},
		place:   "/l/1/m/0",
		want:    []string{"0 /l/0/m/0"},
		first:   "/l/0/m/0",
	},
	"PlaceWhenTouched": {
		reason:  "Each change comes with where the value was then.",
		changes: []Change{element(OpReplace, "/l/0"), element(OpAdd, "/l/0"), element(OpReplace, "/l/1"), element(OpAdd, "/l/0")},
		place:   "/l/2",
		want:    []string{"2 /l/1", "0 /l/0"},
		first:   "/l/0",
	},
}

func member(op Op, path string) Change  { return Change{Op: op, Path: path} }
func element(op Op, path string) Change { return Change{Op: op, Path: path, Element: true} }

func TestTrace(t *testing.T) {
	for name, tc := range threadCases {
		t.Run(name, func(t *testing.T) {
			for i := range tc.changes {
				tc.changes[i].By = &Author{Rule: i}
			}
			thread := Trace(tc.changes, tc.place, len(tc.changes))
			var got []string
			for i, place := range thread.Touches() {
				got = append(got, fmt.Sprint(i, " ", place))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nTouches(): -want, +got:\n%s", tc.reason, diff)
			}
			by := ""
			if author := thread.Author(); author != nil {
				by = fmt.Sprint(author.Rule)
			}
			if want := append(tc.want, "")[0]; by != want[:min(1, len(want))] {
				t.Errorf("%s\nAuthor(): want that of %q, got %q", tc.reason, want, by)
			}
			first := tc.first
			if first == "" {
				first = tc.place
			}
			if thread.First != first || thread.Born != tc.born-1 || thread.Last != tc.place || thread.Gone != len(tc.changes) {
				t.Errorf("%s\nwant it from %s and change %d on, got %+v", tc.reason, first, tc.born-1, thread)
			}
		})
	}
}

// TestTraceOn follows values forward from before a change.
func TestTraceOn(t *testing.T) {
	changes := []Change{
		element(OpAdd, "/l/0"), element(OpReplace, "/l/2"), element(OpRemove, "/l/0"), element(OpRemove, "/l/1"),
	}
	cases := map[string]struct {
		reason string
		place  string
		at     int
		want   Thread
	}{
		"FromBefore":   {"It moves up and down again.", "/l/0/v", 0, Thread{Born: -1, Gone: 4, First: "/l/0/v", Last: "/l/0/v"}},
		"Removed":      {"Its last place is where it was removed from.", "/l/1", 0, Thread{Born: -1, Gone: 3, First: "/l/1", Last: "/l/1"}},
		"InTheMiddle":  {"It is followed back and on.", "/l/3", 1, Thread{Born: -1, Gone: 4, First: "/l/2", Last: "/l/1"}},
		"CameAndWent":  {"It came with the first change and went with the third.", "/l/0/v", 1, Thread{Born: 0, Gone: 2, First: "/l/0/v", Last: "/l/0/v"}},
		"OtherBefore":  {"At the same place before the first change is another.", "/l/0", 0, Thread{Born: -1, Gone: 4, First: "/l/0", Last: "/l/0"}},
		"Array":        {"The array stays where it is.", "/l", 2, Thread{Born: -1, Gone: 4, First: "/l", Last: "/l"}},
		"OtherMembers": {"What has another name stays, too.", "/l1/0", 2, Thread{Born: -1, Gone: 4, First: "/l1/0", Last: "/l1/0"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Trace(changes, tc.place, tc.at)
			got.changes = nil
			if got.Born != tc.want.Born || got.Gone != tc.want.Gone || got.First != tc.want.First || got.Last != tc.want.Last {
				t.Errorf("%s\nTrace(): want %+v, got %+v", tc.reason, tc.want, got)
			}
		})
	}
}

// TestTouchesOfGone verifies that the change that removed the value comes first, and that a later removal of another
// value from the same place does not appear.
func TestTouchesOfGone(t *testing.T) {
	changes := []Change{element(OpReplace, "/l/0"), element(OpRemove, "/l/0"), element(OpRemove, "/l/0")}
	var got []int
	for i := range Trace(changes, "/l/0/v", 0).Touches() {
		got = append(got, i)
	}
	if want := []int{1, 0}; !slices.Equal(want, got) {
		t.Errorf("want changes %v, got %v", want, got)
	}
}
