package sharding

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlan(t *testing.T) {
	cases := map[string]struct {
		reason   string
		have     string // "" for no assignment.
		members  []string
		replicas map[string]report
		want     string
	}{
		"Begin": {
			reason:   "Nobody knows what replicas were given before: they must say so first.",
			members:  []string{"m1"},
			replicas: map[string]report{"a": {Version: "6"}, "b": {}},
			want:     `{"fence":["a","b"]}`,
		},
		"Fenced": {
			reason:   "A replica that still goes by something else may work on anything.",
			have:     `{"fence":["a","b"]}`,
			members:  []string{"m1"},
			replicas: map[string]report{"a": {Version: "7"}, "b": {Version: "6"}},
			want:     `{"fence":["b"]}`,
		},
		"FenceOpens": {
			reason:   "What is in flight yet must end; a replica that is gone has stopped.",
			have:     `{"fence":["a","b","c"]}`,
			members:  []string{"m1", "m2"},
			replicas: map[string]report{"a": {Version: "7", Holding: []string{"m2"}}, "b": {Version: "7"}},
			want:     `{"owned":{"b":["m1"]},"leaving":{"a":["m2"]}}`,
		},
		"First": {
			reason:   "Members that nobody has are given away at once.",
			have:     `{}`,
			members:  []string{"m1", "m2"},
			replicas: map[string]report{"a": {Version: "7"}},
			want:     `{"owned":{"a":["m1","m2"]}}`,
		},
		"Settled": {
			reason:   "What is fair stays.",
			have:     `{"owned":{"a":["m1"],"b":["m2"]}}`,
			members:  []string{"m1", "m2"},
			replicas: map[string]report{"a": {Version: "7"}, "b": {Version: "7"}},
			want:     `{"owned":{"a":["m1"],"b":["m2"]}}`,
		},
		"ReplicaJoins": {
			reason:   "A member that goes to another is first given to nobody.",
			have:     `{"owned":{"a":["m1","m2"]}}`,
			members:  []string{"m1", "m2"},
			replicas: map[string]report{"a": {Version: "7"}, "b": {Version: "7"}},
			want:     `{"owned":{"a":["m2"]},"leaving":{"a":["m1"]}}`,
		},
		"NotYet": {
			reason:   "A report of an older version says nothing of what this one takes away.",
			have:     `{"owned":{"a":["m1"]},"leaving":{"a":["m2"]}}`,
			members:  []string{"m1", "m2"},
			replicas: map[string]report{"a": {Version: "6"}, "b": {Version: "7"}},
			want:     `{"owned":{"a":["m1"]},"leaving":{"a":["m2"]}}`,
		},
		"InFlight": {
			reason:   "One member that hangs does not hold up another.",
			have:     `{"owned":{"a":["m3","m4"]},"leaving":{"a":["m1","m2"]}}`,
			members:  []string{"m1", "m2", "m3", "m4"},
			replicas: map[string]report{"a": {Version: "7", Holding: []string{"m1"}}, "b": {Version: "7"}},
			want:     `{"owned":{"a":["m3","m4"],"b":["m2"]},"leaving":{"a":["m1"]}}`,
		},
		"Stopped": {
			reason:   "When it has stopped, the other begins.",
			have:     `{"owned":{"a":["m1"]},"leaving":{"a":["m2"]}}`,
			members:  []string{"m1", "m2"},
			replicas: map[string]report{"a": {Version: "7"}, "b": {}},
			want:     `{"owned":{"a":["m1"],"b":["m2"]}}`,
		},
		"ReplicaGone": {
			reason:   "A replica without a Lease has stopped, whatever it had.",
			have:     `{"owned":{"a":["m1"],"b":["m3"]},"leaving":{"a":["m2"]}}`,
			members:  []string{"m1", "m2", "m3"},
			replicas: map[string]report{"b": {Version: "7"}},
			want:     `{"owned":{"b":["m1","m2","m3"]}}`,
		},
		"MemberGone": {
			reason:   "A member that is none any more might come again: its worker has to stop, too.",
			have:     `{"owned":{"a":["m1","m2"]}}`,
			members:  []string{"m2"},
			replicas: map[string]report{"a": {Version: "7"}},
			want:     `{"owned":{"a":["m2"]},"leaving":{"a":["m1"]}}`,
		},
		"MemberForgotten": {
			reason:   "When it has, nothing is left to remember.",
			have:     `{"owned":{"a":["m2"]},"leaving":{"a":["m1"]}}`,
			members:  []string{"m2"},
			replicas: map[string]report{"a": {Version: "7"}},
			want:     `{"owned":{"a":["m2"]}}`,
		},
		"NobodyLeft": {
			reason:  "The last to go leaves all to whoever comes.",
			have:    `{"owned":{"a":["m1"]}}`,
			members: []string{"m1"},
			want:    `{}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var have *assignment
			if tc.have != "" {
				var err error
				if have, err = parse(tc.have); err != nil {
					t.Fatal(err)
				}
			}
			before := encode(have)
			got := encode(plan(have, "7", tc.members, tc.replicas))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nplan(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, encode(have)); diff != "" {
				t.Errorf("plan() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "{", `{"owned":{"a":["m1"],"b":["m1"]}}`, `{"owned":{"a":["m1"]},"leaving":{"a":["m1"]}}`} {
		if a, err := parse(text); err == nil {
			t.Errorf("parse(%q): want an error, as it cannot be trusted, got %v", text, a)
		}
	}
}

// TestShare adds and removes replicas and members, and checks each step.
func TestShare(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	owner := map[string]string{}
	for step := range 3000 {
		members, replicas := some(random, "m", 1+random.IntN(60)), some(random, "r", 1+random.IntN(6))
		got := share(members, replicas, owner)

		shuffled := slices.Clone(members)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if diff := cmp.Diff(got, share(shuffled, reversed(replicas), owner)); diff != "" {
			t.Fatalf("step %d: another order of the arguments makes a difference: -first, +second:\n%s", step, diff)
		}
		has, had := map[string]int{}, map[string]int{}
		var moved int
		for _, m := range members {
			has[got[m]]++
			if slices.Contains(replicas, owner[m]) {
				had[owner[m]]++
				if owner[m] != got[m] {
					moved++
				}
			}
		}
		if diff := cmp.Diff(members, slices.Sorted(maps.Keys(got))); diff != "" {
			t.Fatalf("step %d: not every member is shared out, or others are: -want, +got:\n%s", step, diff)
		}
		least, most := len(members), 0
		for _, id := range replicas {
			least, most = min(least, has[id]), max(most, has[id])
		}
		if most-least > 1 {
			t.Fatalf("step %d: the shares are %v: want them equal but for one", step, has)
		}
		if want := fewest(len(members), replicas, had); moved != want {
			t.Fatalf("step %d: %d members change their owner, %d would do: had %v, has %v", step, moved, want, had, has)
		}
		owner = got
	}
}

// fewest returns the minimum number of members that must move for equal shares.
func fewest(members int, replicas []string, had map[string]int) int {
	counts := make([]int, 0, len(replicas))
	for _, id := range replicas {
		counts = append(counts, had[id])
	}
	slices.Sort(counts)
	slices.Reverse(counts)
	var move int
	for i, n := range counts {
		quota := members / len(counts)
		if i < members%len(counts) {
			quota++
		}
		move += max(0, n-quota)
	}
	return move
}

// some returns a few of the names with a prefix, sorted.
func some(random *rand.Rand, prefix string, n int) []string {
	names := map[string]bool{}
	for range n {
		names[fmt.Sprintf("%s%d", prefix, random.IntN(n+3))] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func TestShareSpreadsNeighbours(t *testing.T) {
	members := make([]string, 0, 100)
	owner := map[string]string{}
	for i := range 100 {
		m := fmt.Sprintf("member-%02d", i)
		members = append(members, m)
		owner[m] = "a"
	}
	got := share(members, []string{"a", "b"}, owner)
	var changes int
	for i := 1; i < len(members); i++ {
		if got[members[i]] != got[members[i-1]] {
			changes++
		}
	}
	if changes < 25 {
		t.Errorf("Clusters with names alike are busy alike, so they should not go to one replica: the owner changes %d times along the list", changes)
	}
}

func reversed(names []string) []string {
	names = slices.Clone(names)
	slices.Reverse(names)
	return names
}
