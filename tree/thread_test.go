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
	born    int      // Number of the change, counted from 1; 0 if the value existed before all changes.
}{
	"Nobody": {
		reason: "Without changes a value has no author.",
		place:  "/a",
	},
	"Sibling": {
		reason:  "A change of a sibling does not touch the value.",
		changes: []Change{member(OpAdd, "/ab")},
		place:   "/a",
	},
	"Same": {
		reason:  "Changes are yielded from the last to the first.",
		changes: []Change{member(OpAdd, "/a"), member(OpReplace, "/a")},
		place:   "/a",
		want:    []string{"1 /a", "0 /a"},
	},
	"Around": {
		reason:  "A change of the object around the value touches the value.",
		changes: []Change{member(OpAdd, "/a")},
		place:   "/a/b",
		want:    []string{"0 /a/b"},
	},
	"Inside": {
		reason:  "A change inside the value touches the value.",
		changes: []Change{member(OpAdd, "/a/b")},
		place:   "/a",
		want:    []string{"0 /a"},
	},
	"Removed": {
		reason:  "A removal touches the value, and a member that is added again is the same value.",
		changes: []Change{member(OpReplace, "/a"), member(OpRemove, "/a"), member(OpAdd, "/a")},
		place:   "/a",
		want:    []string{"2 /a", "1 /a", "0 /a"},
	},
	"Inserted": {
		reason:  "The thread of an inserted element begins with the insertion: the earlier element at its place is another one.",
		changes: []Change{element(OpReplace, "/l/0"), element(OpAdd, "/l/0")},
		place:   "/l/0/x",
		want:    []string{"1 /l/0/x"},
		born:    2,
	},
	"MovedUp": {
		reason:  "An insertion moves the elements behind it up, together with their changes.",
		changes: []Change{element(OpReplace, "/l/0"), element(OpAdd, "/l/0")},
		place:   "/l/1",
		want:    []string{"0 /l/0"},
		first:   "/l/0",
	},
	"MovedDown": {
		reason:  "A removal moves the elements behind it down, together with their changes.",
		changes: []Change{member(OpReplace, "/l/2/x"), element(OpRemove, "/l/0")},
		place:   "/l/1/x",
		want:    []string{"0 /l/2/x"},
		first:   "/l/2/x",
	},
	"NotMoved": {
		reason:  "A removal does not move the elements before it.",
		changes: []Change{element(OpReplace, "/l/1"), element(OpRemove, "/l/2")},
		place:   "/l/1",
		want:    []string{"0 /l/1"},
	},
	"NewNeighbour": {
		reason:  "An insertion behind an element does not touch the element.",
		changes: []Change{element(OpAdd, "/l/1")},
		place:   "/l/0",
	},
	"TakenPlace": {
		reason:  "The element at the place of a removed one had the next index before.",
		changes: []Change{element(OpRemove, "/l/0")},
		place:   "/l/0",
		first:   "/l/1",
	},
	"Array": {
		reason:  "The insertion or removal of an element touches the array.",
		changes: []Change{element(OpReplace, "/l/0"), element(OpRemove, "/l/0"), element(OpAdd, "/l/4")},
		place:   "/l",
		want:    []string{"2 /l", "1 /l", "0 /l"},
	},
	"AroundArray": {
		reason:  "The insertion of an element touches the objects around the array.",
		changes: []Change{element(OpAdd, "/a/l/4")},
		place:   "/a",
		want:    []string{"0 /a"},
	},
	"NoIndex": {
		reason:  "A segment that is not an index, such as 01, does not move.",
		changes: []Change{element(OpRemove, "/l/0")},
		place:   "/l/01",
	},
	"OtherArray": {
		reason:  "An insertion into another array moves nothing.",
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
		reason:  "Each change is yielded with the place of the value at that time.",
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
				t.Errorf("%s\nAuthor(): want the author of %q, got %q", tc.reason, want, by)
			}
			first := tc.first
			if first == "" {
				first = tc.place
			}
			if thread.First != first || thread.Born != tc.born-1 || thread.Last != tc.place || thread.Gone != len(tc.changes) {
				t.Errorf("%s\nwant a thread from place %s and change %d, got %+v", tc.reason, first, tc.born-1, thread)
			}
		})
	}
}

// TestTraceOn verifies that Trace follows a value forward from a place before a change.
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
		"FromBefore":  {"The value moves up and down again.", "/l/0/v", 0, Thread{Born: -1, Gone: 4, First: "/l/0/v", Last: "/l/0/v"}},
		"Removed":     {"The last place of a removed value is the place of its removal.", "/l/1", 0, Thread{Born: -1, Gone: 3, First: "/l/1", Last: "/l/1"}},
		"InTheMiddle": {"A thread from the middle is followed in both directions.", "/l/3", 1, Thread{Born: -1, Gone: 4, First: "/l/2", Last: "/l/1"}},
		"CameAndWent": {
			"The value was inserted by the first change and removed by the third.",
			"/l/0/v", 1, Thread{Born: 0, Gone: 2, First: "/l/0/v", Last: "/l/0/v"},
		},
		"OtherBefore":  {"The value at the place before the insertion is another one.", "/l/0", 0, Thread{Born: -1, Gone: 4, First: "/l/0", Last: "/l/0"}},
		"Array":        {"The array itself does not move.", "/l", 2, Thread{Born: -1, Gone: 4, First: "/l", Last: "/l"}},
		"OtherMembers": {"A value in an object with a similar name does not move.", "/l1/0", 2, Thread{Born: -1, Gone: 4, First: "/l1/0", Last: "/l1/0"}},
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

// TestTouchesOfGone verifies that Touches begins with the change that removed the value. A later removal of another
// value from the same place is not in the list.
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
