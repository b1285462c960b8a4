package tree

import (
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecordShadows(t *testing.T) {
	type edit struct {
		verb, path string
		value      any
	}
	const doc = "{m: {a: 1}, l: [{v: 1}, {v: 2}, {v: 3}]}"
	cases := map[string]struct {
		reason string
		edits  []edit
		want   [][]int // Shadows of each change.
	}{
		"SamePlace": {
			"A change hides the last visible change of the same place.",
			[]edit{{"set", "/m/a", 2}, {"set", "/m/a", 3}, {"set", "/m/a", 4}},
			[][]int{nil, {0}, {1}},
		},
		"Around": {
			"A change of an object hides the changes inside it.",
			[]edit{{"set", "/m/a", 2}, {"add", "/m/b", 2}, {"set", "/m", map[string]any{}}},
			[][]int{nil, nil, {0, 1}},
		},
		"Inside": {
			"A change inside an object does not hide the change of the object.",
			[]edit{{"set", "/m", map[string]any{"a": 1, "ab": 2}}, {"set", "/m/a", 2}, {"set", "/m/ab", 2}},
			[][]int{nil, nil, nil},
		},
		"RemovedAndAdded": {
			"An addition at a place hides the removal there.",
			[]edit{{"remove", "/m/a", nil}, {"add", "/m/a", 5}},
			[][]int{nil, {0}},
		},
		"InsertHidesNothing": {
			"An insertion hides nothing, because the earlier element at the index has moved up.",
			[]edit{{"set", "/l/0/v", 9}, {"add", "/l/0", "x"}},
			[][]int{nil, nil},
		},
		"MovedUp": {
			"After an insertion the earlier element has the next index, and its changes moved with it.",
			[]edit{{"set", "/l/0/v", 9}, {"add", "/l/0", map[string]any{"v": 0}}, {"set", "/l/0/v", 8}, {"set", "/l/1/v", 7}},
			[][]int{nil, nil, nil, {0}},
		},
		"MovedDown": {
			"After a removal the next element has the index, and its changes moved with it.",
			[]edit{{"set", "/l/0/v", 9}, {"set", "/l/1/v", 8}, {"remove", "/l/0", nil}, {"set", "/l/0/v", 7}},
			[][]int{nil, nil, {0}, {1}},
		},
		"RemovalAtTheSameIndex": {
			"The removal of an element does not hide the removal of another one at the same index.",
			[]edit{{"remove", "/l/0", nil}, {"remove", "/l/0", nil}},
			[][]int{nil, nil},
		},
		"WholeArray": {
			"The replacement of an array hides all insertions and removals of its elements.",
			[]edit{{"add", "/l/-", 1}, {"remove", "/l/0", nil}, {"set", "/l", []any{}}},
			[][]int{nil, nil, {0, 1}},
		},
		"InsertedAndRemoved": {
			"The removal of an inserted element hides its insertion and later changes, but no earlier change of another element.",
			[]edit{{"set", "/l/1", "a"}, {"add", "/l/1", "b"}, {"set", "/l/1", "c"}, {"remove", "/l/1", nil}, {"set", "/l/1", "d"}},
			[][]int{nil, nil, {1}, {2}, {0}},
		},
		"RemovalsAndInsertionAround": {
			"The replacement of an array hides the changes of its elements, of removed ones, too.",
			[]edit{{"set", "/l/2/v", 9}, {"remove", "/l/0", nil}, {"add", "/l/0", map[string]any{"v": 0}}, {"set", "/l/0/v", 1}, {"remove", "/l/2", nil}, {"set", "/l", []any{}}},
			[][]int{nil, nil, nil, nil, {0}, {1, 2, 3, 4}},
		},
		"KeysLikeIndexes": {
			"Members whose keys are numbers do not move.",
			[]edit{{"set", "/m", map[string]any{"0": 0, "1": 1}}, {"set", "/m/1", 2}, {"remove", "/m/0", nil}, {"set", "/m/1", 3}},
			[][]int{nil, nil, nil, {1}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := Edit(parse(t, doc))
			var record Record
			for _, e := range tc.edits {
				record.Add(mustDo(t, d, e.verb, e.path, e.value))
			}
			var got [][]int
			for _, c := range record.Changes() {
				got = append(got, c.Shadows)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nShadows: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestHidden(t *testing.T) {
	d := Edit(parse(t, "{m: {a: 1}}"))
	var record Record
	for i := range 5 {
		record.Add(mustDo(t, d, "set", "/m/a", i+2))
	}
	record.Add(mustDo(t, d, "add", "/m/b", 1))
	record.Add(mustDo(t, d, "set", "/m", map[string]any{}))
	got := slices.Sorted(Hidden(record.Changes(), 6))
	if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5}, got); diff != "" {
		t.Errorf("Hidden must also yield the changes that hidden changes hide: -want, +got:\n%s", diff)
	}
	for range Hidden(record.Changes(), 6) {
		break // The consumer may stop early.
	}
}

// BenchmarkRecord records changes at one place, inside one array, and at distinct places. The time per change must not
// grow with the number of changes.
func BenchmarkRecord(b *testing.B) {
	for name, path := range map[string]func(i int) Change{
		"Same":   func(int) Change { return Change{Path: "/data/x", Op: OpReplace} },
		"Insert": func(int) Change { return Change{Path: "/spec/l/0", Op: OpAdd, Element: true} },
		"Apart":  func(i int) Change { return Change{Path: "/data/" + strconv.Itoa(i), Op: OpReplace} },
	} {
		for _, n := range []int{10, 1000, 20_000} {
			changes := make([]Change, n)
			for i := range changes {
				changes[i] = path(i)
			}
			b.Run(name+"/"+strconv.Itoa(n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					var r Record
					for i := range changes {
						r.Add(changes[i])
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/change")
			})
		}
	}
}
