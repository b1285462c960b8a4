package propagation

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/member"
)

// TestGuard: the guard allows a few deletions; many deletions wait for an approval.
func TestGuard(t *testing.T) {
	cases := map[string]struct {
		reason      string
		total, gone int
		want        answer
	}{
		"One":           {"One object was deleted.", 100, 1, allow},
		"Few":           {"Ten deletions are allowed even if no copy is left.", 10, 10, allow},
		"SomeOfMany":    {"Twenty of a hundred are normal.", 100, 20, allow},
		"ManyOfMany":    {"Half of the copies are a mistake unless a user approves.", 100, 50, deny},
		"AllOfSome":     {"The hub was emptied.", 11, 11, deny},
		"JustTooMany":   {"More than 30 %.", 100, 31, deny},
		"JustFewEnough": {"Exactly 30 %.", 100, 30, allow},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			g := newGuard(DefaultGuard, func() time.Time { return now })
			for i := range tc.gone {
				if got, left := g.ask(removal{Key: numbered(i)}, of(tc.total), ""); got != notYet || left <= 0 {
					t.Fatalf("ask() before all deletions are known: want to wait, got %v, %s", got, left)
				}
			}
			now = now.Add(guardSettles)
			for i := range tc.gone {
				if got, _ := g.ask(removal{Key: numbered(i)}, of(tc.total), ""); got != tc.want {
					t.Fatalf("%s\nask() number %d of %d: want %v, got %v", tc.reason, i, tc.gone, tc.want, got)
				}
			}
		})
	}
}

// of returns a member with this number of copies, all in one namespace.
func of(n int) func() map[string]int {
	return func() map[string]int { return map[string]int{"shop": n} }
}

func numbered(i int) Key { return keyOf("configmaps", strconv.Itoa(i)) }

// held20 returns a guard with 40 copies, 20 of them pending.
func held20(t *testing.T, now *time.Time) *guard {
	t.Helper()
	g := newGuard(DefaultGuard, func() time.Time { return *now })
	hold20(t, g, now)
	return g
}

// hold20 makes the deletions of 20 of 40 copies pending.
func hold20(t *testing.T, g *guard, now *time.Time) {
	t.Helper()
	for i := range 20 {
		g.ask(removal{Key: numbered(i)}, of(40), "")
	}
	*now = now.Add(guardSettles)
	if got, _ := g.ask(removal{Key: numbered(0)}, of(40), ""); got != deny {
		t.Fatalf("ask(): want deny, got %v", got)
	}
}

// TestGuardOutdated: the status of a cluster is outdated as soon as other deletions are pending, and not before.
func TestGuardOutdated(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	steps := []struct {
		reason string
		do     func()
		want   bool
	}{
		{"The pending deletions have not been shown yet.", func() {}, true},
		{"The deletions are shown.", func() { g.show() }, false},
		{"The same deletions are pending.", func() { g.ask(removal{Key: numbered(3)}, of(40), "") }, false},
		{"One copy is wanted again.", func() { g.stays(numbered(3)) }, true},
		{"The deletions are shown.", func() { g.show() }, false},
		{"One more copy is to be deleted.", func() { g.ask(removal{Key: numbered(20)}, of(40), "") }, true},
		{"The deletions are shown.", func() { g.show() }, false},
		{"One deletion has another cause.", func() { g.ask(removal{Key: numbered(4), cause: causeDeleted}, of(40), "") }, true},
		{"A user approves all.", func() { g.ask(removal{Key: numbered(1)}, of(40), token(t, g)) }, true},
		{"The status shows no pending deletion.", func() { g.show() }, false},
		{"The deleted copy was not pending any more.", func() { g.went(numbered(1)) }, false},
	}
	for _, s := range steps {
		if s.do(); g.outdated() != s.want {
			t.Fatalf("%s\noutdated(): want %t", s.reason, s.want)
		}
	}
}

func token(t *testing.T, g *guard) string {
	t.Helper()
	held, _, _ := g.show()
	if held == nil || held.Token == "" {
		t.Fatalf("show() has no token: %+v", held)
	}
	return held.Token
}

// message returns the message of a cluster about its pending deletions.
func message(g *guard) string {
	held, _, _ := g.show()
	if held == nil {
		return ""
	}
	return member.PendingMessage(held, "eu-1")
}

func TestGuardIsApproved(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	approved := token(t, g)
	if got, _ := g.ask(removal{Key: numbered(1)}, of(40), "another"); got != deny {
		t.Errorf("ask() with another token: want deny, got %v", got)
	}
	for i := range 20 {
		if got, _ := g.ask(removal{Key: numbered(i)}, of(40), approved); got != allow {
			t.Fatalf("ask() with the token: want allow, got %v", got)
		}
		g.went(numbered(i))
	}
	if message := message(g); message != "" {
		t.Errorf("show() after all deletions: %q", message)
	}
}

// TestGuardApprovesWhatWasSeen: further deletions after an approval need another approval.
func TestGuardApprovesWhatWasSeen(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	before := token(t, g)
	if got, _ := g.ask(removal{Key: numbered(21)}, of(40), ""); got != deny {
		t.Errorf("ask() for one more: want deny, got %v", got)
	}
	if token(t, g) == before {
		t.Error("the token is the same for more copies")
	}
}

// TestGuardHoldsUpNobodyElse: deletions in one namespace are allowed while those in another are pending.
func TestGuardHoldsUpNobodyElse(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	before := token(t, g)
	other := numbered(99)
	other.Namespace = "other"
	if got, _ := g.ask(removal{Key: other}, of(40), ""); got != notYet {
		t.Errorf("ask() of another namespace: want wait, got %v", got)
	}
	now = now.Add(guardSettles)
	if got, _ := g.ask(removal{Key: other}, of(40), ""); got != allow {
		t.Errorf("ask() of another namespace: want allow, got %v", got)
	}
	if token(t, g) != before {
		t.Error("the token has changed, but the pending deletions have not")
	}
}

// TestGuardForgetsWhatCameBack: copies whose objects exist again need no approval.
func TestGuardForgetsWhatCameBack(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	for i := range 15 {
		g.done(numbered(i))
	}
	if got, _ := g.ask(removal{Key: numbered(16)}, of(40), ""); got != allow {
		t.Errorf("ask() when 5 are left: want allow, got %v", got)
	}
}

// TestGuardRemembers: deletions in small steps add up.
func TestGuardRemembers(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGuard(DefaultGuard, func() time.Time { return now })
	went := 0
	for i := range 100 {
		g.ask(removal{Key: numbered(i)}, of(100-went), "")
		now = now.Add(guardSettles)
		if got, _ := g.ask(removal{Key: numbered(i)}, of(100-went), ""); got == deny {
			break
		}
		g.went(numbered(i))
		went++
	}
	if went != 30 {
		t.Errorf("one after the other: want 30 of 100 deleted within a minute without approval, got %d", went)
	}
	now = now.Add(2 * guardWindow)
	if got, _ := g.ask(removal{Key: numbered(went)}, of(100-went), ""); got != allow {
		t.Error("old losses still count")
	}
}

// TestGuardIsNotHeldUp: a steady stream of deletions is allowed.
func TestGuardIsNotHeldUp(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGuard(DefaultGuard, func() time.Time { return now })
	for i := range 100 {
		now = now.Add(guardSettles * 9 / 10)
		if got, _ := g.ask(removal{Key: numbered(i)}, of(10_000), ""); got == allow {
			return
		}
	}
	t.Error("a steady stream of deletions delays itself forever")
}

// TestGuardAwaits: deletions that were collected before all deletions were known are judged together. Neither the time
// that this took nor the order of the questions matters.
func TestGuardAwaits(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGuard(DefaultGuard, func() time.Time { return now })
	for i := range 40 {
		now = now.Add(guardSettles)
		g.await(removal{Key: numbered(i)})
	}
	if got, _ := g.ask(removal{Key: numbered(39)}, of(100), ""); got != notYet {
		t.Errorf("ask() as soon as all is known: want a wait for further deletions, got %v", got)
	}
	now = now.Add(guardSettles)
	for _, i := range []int{39, 0, 20} {
		if got, _ := g.ask(removal{Key: numbered(i)}, of(100), ""); got != deny {
			t.Errorf("ask() for copy %d of 40: want deny, got %v", i, got)
		}
	}
	if message := message(g); !strings.HasPrefix(message, "40 of 100 copies wait for approval of their deletion") {
		t.Errorf("show(): want all of them together, got %q", message)
	}
	g.await(removal{Key: numbered(0)}) // The member was away.
	if got, _ := g.ask(removal{Key: numbered(0)}, of(100), token(t, g)); got != allow {
		t.Errorf("ask() with the token: want allow, got %v", got)
	}
	g.await(removal{Key: numbered(0)})
	if got, _ := g.ask(removal{Key: numbered(0)}, of(100), ""); got != allow {
		t.Errorf("ask() for an approved deletion: want allow, got %v", got)
	}
}

// TestGuardForgetsApprovals: copies that were created again need a new approval.
func TestGuardForgetsApprovals(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	approved := token(t, g)
	for i := range 20 {
		g.ask(removal{Key: numbered(i)}, of(40), approved)
		g.went(numbered(i))
	}
	now = now.Add(2 * guardWindow)
	for i := range 20 {
		g.ask(removal{Key: numbered(i), uid: "another"}, of(40), approved)
	}
	now = now.Add(guardSettles)
	if got, _ := g.ask(removal{Key: numbered(0), uid: "another"}, of(40), approved); got != deny {
		t.Errorf("ask() for other copies of the same names with the old token: want deny, got %v", got)
	}
}

// TestGuardTakesAnOlderToken: a token approves its deletions even if others were added later.
func TestGuardTakesAnOlderToken(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	approved := token(t, g)
	if got, _ := g.ask(removal{Key: numbered(21)}, of(40), ""); got != deny {
		t.Fatalf("ask() for one more: want deny, got %v", got)
	}
	if got, _ := g.ask(removal{Key: numbered(3)}, of(40), approved); got != allow {
		t.Errorf("ask() for an approved deletion: want allow, got %v", got)
	}
}

// TestGuardAsksForADefinition: a deletion that deletes further objects needs an approval.
func TestGuardAsksForADefinition(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGuard(DefaultGuard, func() time.Time { return now })
	one := removal{Key: keyOf("customresourcedefinitions", "widgets"), needsApproval: true}
	g.ask(removal{Key: numbered(1)}, of(1000), "")
	if got, _ := g.ask(one, of(1000), ""); got != deny {
		t.Errorf("ask(): want deny, got %v", got)
	}
	now = now.Add(guardSettles)
	if got, _ := g.ask(removal{Key: numbered(1)}, of(1000), ""); got != allow {
		t.Errorf("ask() for another copy of the same pass: want allow, got %v", got)
	}
	one.needsApproval = false // The objects of its type are gone.
	if got, _ := g.ask(one, of(1000), ""); got != allow {
		t.Errorf("ask() when no objects would be deleted with it: want allow, got %v", got)
	}
}

// TestGuardKeepsGravesApart: when only few deletions are still pending, the guard allows them without an approval. The
// deletion of a CustomResourceDefinition with objects still needs one.
func TestGuardKeepsGravesApart(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	one := removal{Key: keyOf("customresourcedefinitions", "widgets"), needsApproval: true}
	g.ask(one, of(40), "")
	for i := range 15 {
		g.done(numbered(i))
	}
	if got, _ := g.ask(removal{Key: numbered(16)}, of(40), ""); got != allow {
		t.Errorf("ask() when 5 are left: want allow, got %v", got)
	}
	if got, _ := g.ask(one, of(40), ""); got != deny {
		t.Errorf("ask() for the definition: want deny, got %v", got)
	}
}

// TestGuardIsOff: at 100 percent all deletions are allowed.
func TestGuardIsOff(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGuard(100, func() time.Time { return now })
	for i := range 50 {
		g.ask(removal{Key: numbered(i)}, of(50), "")
	}
	now = now.Add(guardSettles)
	if got, _ := g.ask(removal{Key: numbered(0)}, of(20), ""); got != allow {
		t.Errorf("ask(): want allow, got %v", got)
	}
}

// step is a number of deletions in one pass.
type step struct {
	namespace string
	cause     cause
	n         int
}

// play simulates deletions on a member: each step asks the guard about its deletions, waits, and carries out those that
// are allowed. It returns the number of carried out and pending deletions, by namespace and cause.
func play(g *guard, now *time.Time, copies map[string]int, together bool, steps ...step) (went, held map[string]int) {
	went, held = map[string]int{}, map[string]int{}
	var all []removal
	settle := func() {
		*now = now.Add(guardSettles)
		for _, r := range all {
			if got, _ := g.ask(r, func() map[string]int { return maps.Clone(copies) }, ""); got == allow {
				went[fmt.Sprintf("%s %s", r.Namespace, r.cause)]++
				copies[r.Namespace]--
				g.went(r.Key)
				continue
			}
			held[fmt.Sprintf("%s %s", r.Namespace, r.cause)]++
		}
		all = nil
	}
	for i, s := range steps {
		for j := range s.n {
			r := removal{Key: numbered(100*i + j), cause: s.cause}
			r.Namespace = s.namespace
			all = append(all, r)
			g.ask(r, func() map[string]int { return maps.Clone(copies) }, "")
		}
		if !together {
			settle()
		}
	}
	settle()
	return went, held
}

// TestGuardJudgesByNamespaceAndCause: too many unrequested losses of one tenant wait, while losses of another tenant
// are allowed. Too many losses in all namespaces together wait as well.
func TestGuardJudgesByNamespaceAndCause(t *testing.T) {
	type counts = map[string]int
	small := func(n, size int) counts {
		all := counts{}
		for i := range n {
			all[fmt.Sprintf("team-%02d", i)] = size
		}
		return all
	}
	each := func(c cause, n, of int) []step {
		var steps []step
		for i := range n {
			steps = append(steps, step{fmt.Sprintf("team-%02d", i), c, of})
		}
		return steps
	}
	of := func(c cause, n, size int) counts {
		all := counts{}
		for i := range n {
			all[fmt.Sprintf("team-%02d %s", i, c)] = size
		}
		return all
	}
	with := func(all, more counts) counts {
		maps.Copy(all, more)
		return all
	}
	cases := map[string]struct {
		reason     string
		copies     counts
		apart      bool // Whether each step is a pass of its own; otherwise all are in one pass.
		steps      []step
		went, held counts
	}{
		"OneTenantsLabels": {
			reason: "Forty objects of one tenant lost their labels: their copies wait, and a copy of another tenant is deleted.",
			copies: counts{"a": 40, "b": 1},
			steps:  []step{{"a", causeWithdrawn, 40}, {"b", causeWithdrawn, 1}},
			went:   counts{"b Withdrawn": 1}, held: counts{"a Withdrawn": 40},
		},
		"Later": {
			reason: "Later deletions in another namespace are judged separately.",
			copies: counts{"a": 40, "b": 12}, apart: true,
			steps: []step{{"a", causeWithdrawn, 40}, {"b", causeWithdrawn, 5}, {"b", causeWithdrawn, 3}},
			went:  counts{"b Withdrawn": 8}, held: counts{"a Withdrawn": 40},
		},
		"Causes": {
			reason: "Deletions that wait for one cause do not delay those for another.",
			copies: counts{"a": 60},
			steps:  []step{{"a", causePlacement, 40}, {"a", causeWithdrawn, 2}},
			went:   counts{"a Withdrawn": 2}, held: counts{"a NoLongerPlaced": 40},
		},
		"SameGroup": {
			reason: "Further deletions of a group that waits, wait with it.",
			copies: counts{"a": 60}, apart: true,
			steps: []step{{"a", causeWithdrawn, 40}, {"a", causeWithdrawn, 1}},
			went:  counts{}, held: counts{"a Withdrawn": 41},
		},
		"AllIUsed": {
			reason: "A tenant who reaches the limit does not use up the limit of others.",
			copies: counts{"a": 10, "b": 10},
			steps:  []step{{"a", causeWithdrawn, 10}, {"b", causeWithdrawn, 4}},
			went:   counts{"a Withdrawn": 10, "b Withdrawn": 4}, held: counts{},
		},
		"AllIUsedInTime": {
			reason: "The same in one pass and in many.",
			copies: counts{"a": 100, "b": 10}, apart: true,
			steps: []step{{"a", causeWithdrawn, 10}, {"a", causeWithdrawn, 10}, {"a", causeWithdrawn, 10}, {"b", causeWithdrawn, 10}},
			went:  counts{"a Withdrawn": 30, "b Withdrawn": 10}, held: counts{},
		},
		"SmallNamespaces": {
			reason: "A mistake in all namespaces, small in each, is detected over all of them.",
			copies: small(10, 5), steps: each(causeWithdrawn, 10, 5),
			went: counts{}, held: of(causeWithdrawn, 10, 5),
		},
		"SmallBesideLarge": {
			reason: "A large namespace, whether it waits or is complete, does not make the share of the others small.",
			copies: with(small(10, 5), counts{"a": 500}),
			steps:  append(each(causeWithdrawn, 10, 5), step{"a", causeWithdrawn, 500}),
			went:   counts{}, held: with(of(causeWithdrawn, 10, 5), counts{"a Withdrawn": 500}),
		},
		"SomeOfAll": {
			reason: "If the share in each namespace is permitted, so is the share over all.",
			copies: small(10, 50), steps: each(causePlacement, 10, 15),
			went: of(causePlacement, 10, 15), held: counts{},
		},
		"Forgotten": {
			reason: "A restored hub does not know new objects: their copies are judged over the whole member, and all other deletions wait.",
			copies: counts{"a": 9, "b": 9, "c": 20},
			steps:  []step{{"a", causeForgotten, 8}, {"b", causeForgotten, 8}, {"c", causePlacement, 1}},
			went:   counts{}, held: counts{"a Forgotten": 8, "b Forgotten": 8, "c NoLongerPlaced": 1},
		},
		"ForgottenLittle": {
			reason: "A few copies without an object on the hub do not prove a restored hub.",
			copies: counts{"a": 9, "b": 9},
			steps:  []step{{"a", causeForgotten, 3}, {"b", causePlacement, 1}},
			went:   counts{"a Forgotten": 3, "b NoLongerPlaced": 1}, held: counts{},
		},
		"Forged": {
			reason: "Users of a namespace create objects with the marks of copies that the hub never had: these wait, and no others.",
			copies: counts{"a": 31, "b": 20, "c": 5},
			steps:  []step{{"a", causeForgotten, 11}, {"a", causePlacement, 1}, {"b", causePlacement, 6}, {"b", causeWithdrawn, 1}, {"c", causeLeaves, 5}},
			went:   counts{"b NoLongerPlaced": 6, "b Withdrawn": 1, "c ClusterLeaves": 5}, held: counts{"a Forgotten": 11, "a NoLongerPlaced": 1},
		},
		"ForgedMany": {
			reason: "The same, however many they are, and with an unknown copy in another namespace.",
			copies: counts{"a": 1000, "b": 20, "c": 5},
			steps:  []step{{"a", causeForgotten, 90}, {"a", causeForgotten, 90}, {"a", causeForgotten, 90}, {"a", causeForgotten, 90}, {"b", causePlacement, 6}, {"c", causeForgotten, 1}},
			went:   counts{"b NoLongerPlaced": 6}, held: counts{"a Forgotten": 360, "c Forgotten": 1},
		},
		"ForgottenBesideLarge": {
			reason: "One large namespace, whether complete or forgotten, does not hide the forgotten copies of others.",
			copies: with(small(3, 5), counts{"a": 500, "b": 4}),
			steps:  append(each(causeForgotten, 3, 5), step{"a", causeForgotten, 95}, step{"a", causeForgotten, 95}, step{"b", causeMissing, 4}),
			went:   counts{}, held: with(of(causeForgotten, 3, 5), counts{"a Forgotten": 190, "b Missing": 4}),
		},
		"Type": {
			reason: "The deletion of a type is judged over the whole member, and delays no other.",
			copies: counts{"a": 9, "b": 9},
			steps:  []step{{"a", causeType, 6}, {"b", causeType, 6}, {"b", causeWithdrawn, 1}},
			went:   counts{"b Withdrawn": 1}, held: counts{"a TypeDeleted": 6, "b TypeDeleted": 6},
		},
		"Leaves": {
			reason: "A leaving cluster loses all copies, however small its namespaces are.",
			copies: counts{"": 4, "a": 4, "b": 4},
			steps:  []step{{"", causeLeaves, 4}, {"a", causeLeaves, 4}, {"b", causeLeaves, 4}},
			went:   counts{}, held: counts{" ClusterLeaves": 4, "a ClusterLeaves": 4, "b ClusterLeaves": 4},
		},
		"ClusterScoped": {
			reason: "Cluster-scoped copies are a group of their own.",
			copies: counts{"": 20, "a": 5},
			steps:  []step{{"", causeWithdrawn, 20}, {"a", causeWithdrawn, 5}},
			went:   counts{"a Withdrawn": 5}, held: counts{" Withdrawn": 20},
		},
		"Outage": {
			reason: "Deletions by a tenant while Refract did not watch wait. Simultaneous deletions of others do not.",
			copies: counts{"a": 40, "b": 40},
			steps:  []step{{"a", causeMissing, 40}, {"b", causeMissing, 3}},
			went:   counts{"b Missing": 3}, held: counts{"a Missing": 40},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			g := newGuard(DefaultGuard, func() time.Time { return now })
			went, held := play(g, &now, tc.copies, !tc.apart, tc.steps...)
			if diff := cmp.Diff([]counts{tc.went, tc.held}, []counts{went, held}); diff != "" {
				t.Errorf("%s\ncarried out and pending deletions: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestGuardCountsWhatIsLost: losses that have come back do not count.
func TestGuardCountsWhatIsLost(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGuard(DefaultGuard, func() time.Time { return now })
	for i := range 100 { // One copy is deleted and created again and again.
		g.ask(removal{Key: numbered(0)}, of(50), "")
		now = now.Add(guardSettles)
		if got, _ := g.ask(removal{Key: numbered(0)}, of(50), ""); got != allow {
			t.Fatalf("ask() number %d for a copy that comes and goes: want allow, got %v", i, got)
		}
		g.went(numbered(0))
		g.stays(numbered(0))
	}
}

// TestGuardSays: administrators of members see all pending deletions. Tenants see only those of their namespace.
func TestGuardSays(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGuard(DefaultGuard, func() time.Time { return now })
	play(g, &now, map[string]int{"a": 40, "b": 15, "c": 5}, true,
		step{"a", causeWithdrawn, 40}, step{"b", causePlacement, 12}, step{"c", causeWithdrawn, 1})
	want := "52 of 60 copies wait for approval of their deletion (40 of 40 copies in namespace a, whose objects no longer request " +
		"propagation; 12 of 15 copies in namespace b, which are no longer placed here): `refract approve eu-1` shows and approves them; " +
		"objects that return to the hub stay"
	if diff := cmp.Diff(want, message(g)); diff != "" {
		t.Errorf("show(): -want, +got:\n%s", diff)
	}
	held, _, _ := g.show()
	if diff := cmp.Diff(&corev1alpha1.DeletionsHeld{Token: held.Token, Copies: 52, Of: 60, Groups: []corev1alpha1.HeldDeletions{
		{Namespace: "a", Cause: "whose objects no longer request propagation", Copies: 40, Of: 40},
		{Namespace: "b", Cause: "which are no longer placed here", Copies: 12, Of: 15},
	}}, held); diff != "" {
		t.Errorf("show(): -want, +got:\n%s", diff)
	}
	r := removal{Key: numbered(0), cause: causeWithdrawn}
	r.Namespace = "a"
	want = "40 of 40 copies in namespace a, whose objects no longer request propagation, wait for approval of their deletion: " +
		"`refract approve eu-1` shows and approves them; objects that return to the hub stay"
	if diff := cmp.Diff(want, g.says(r, "eu-1")); diff != "" {
		t.Errorf("says(): -want, +got:\n%s", diff)
	}
}

// TestGuardResumes: a token can still be approved after a restart, when the same deletions are pending again. Before
// that, the token cannot be guessed from the set of deletions.
func TestGuardResumes(t *testing.T) {
	now := time.Unix(0, 0)
	before := held20(t, &now)
	held, _, _ := before.show()
	digest, _, _ := strings.Cut(held.Token, "-")

	after := newGuard(DefaultGuard, func() time.Time { return now })
	after.resume(held)
	if is, _, known := after.show(); is != nil || known {
		t.Errorf("show() before deletions are pending again: want them unknown, got %+v, %t", is, known)
	}
	hold20(t, after, &now)
	if got := token(t, after); got != held.Token {
		t.Errorf("the token was %q before the start, and now is %q", held.Token, got)
	}
	if got, _ := after.ask(removal{Key: numbered(1)}, of(40), held.Token); got != allow {
		t.Errorf("ask() with the token from before the start: want allow, got %v", got)
	}

	another := newGuard(DefaultGuard, func() time.Time { return now })
	another.resume(held)
	now = now.Add(2 * guardResumes)
	if is, _, known := another.show(); is != nil || !known {
		t.Errorf("show() without pending deletions after a while: want none, and known, got %+v, %t", is, known)
	}

	later := newGuard(DefaultGuard, func() time.Time { return now })
	hold20(t, later, &now)
	for _, guess := range []string{held.Token, digest, digest + "-"} {
		if got, _ := later.ask(removal{Key: numbered(1)}, of(40), guess); got != deny {
			t.Errorf("ask() with %q, which this guard has not issued: want deny, got %v", guess, got)
		}
	}
}

// TestGuardForgetsTokens: a token is valid only until no deletions are pending.
func TestGuardForgetsTokens(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	old := token(t, g)
	for i := range 20 { // All of the objects exist on the hub again.
		g.stays(numbered(i))
	}
	g.show()
	hold20(t, g, &now)
	if got, _ := g.ask(removal{Key: numbered(1)}, of(40), old); got != deny {
		t.Errorf("ask() with an earlier token: want deny, got %v", got)
	}
	if got := token(t, g); got == old {
		t.Errorf("the token %q is an earlier one", got)
	}
}
