package propagation

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestGuard lets some copies go, and asks before many do.
func TestGuard(t *testing.T) {
	cases := map[string]struct {
		reason      string
		total, gone int
		want        answer
	}{
		"One":           {"One object was deleted.", 100, 1, pass},
		"Few":           {"Ten may go even if they are all there are.", 10, 10, pass},
		"SomeOfMany":    {"Twenty of a hundred are an ordinary day.", 100, 20, pass},
		"ManyOfMany":    {"Half of them are a mistake until somebody says otherwise.", 100, 50, hold},
		"AllOfSome":     {"A hub that was emptied.", 11, 11, hold},
		"JustTooMany":   {"More than 30 %.", 100, 31, hold},
		"JustFewEnough": {"Exactly 30 %.", 100, 30, pass},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			g := newGuard(DefaultGuard, func() time.Time { return now })
			for i := range tc.gone {
				if got, left := g.ask(removal{Key: numbered(i)}, of(tc.total), ""); got != notYet || left <= 0 {
					t.Fatalf("ask() before it is known what else is to go: want to wait, got %v, %s", got, left)
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

func of(n int) func() int { return func() int { return n } }

func numbered(i int) Key { return keyOf("configmaps", strconv.Itoa(i)) }

// held20 is a guard of 40 copies that holds 20 of them back.
func held20(t *testing.T, now *time.Time) *guard {
	t.Helper()
	g := newGuard(DefaultGuard, func() time.Time { return *now })
	for i := range 20 {
		g.ask(removal{Key: numbered(i)}, of(40), "")
	}
	*now = now.Add(guardSettles)
	if got, _ := g.ask(removal{Key: numbered(0)}, of(40), ""); got != hold {
		t.Fatalf("ask(): want held, got %v", got)
	}
	return g
}

func token(t *testing.T, g *guard) string {
	t.Helper()
	message, _ := g.show("eu-1")
	_, token, ok := strings.Cut(message, "token=")
	if !ok {
		t.Fatalf("waiting() has no token: %q", message)
	}
	return token
}

func TestGuardIsApproved(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	approved := token(t, g)
	if got, _ := g.ask(removal{Key: numbered(1)}, of(40), "another"); got != hold {
		t.Errorf("ask() with another token: want held, got %v", got)
	}
	for i := range 20 {
		if got, _ := g.ask(removal{Key: numbered(i)}, of(40), approved); got != pass {
			t.Fatalf("ask() with the token: want pass, got %v", got)
		}
		g.done(numbered(i))
	}
	if message := g.waiting("eu-1"); message != "" {
		t.Errorf("waiting() after all went: %q", message)
	}
}

// TestGuardApprovesWhatWasSeen asks anew when more is to go than was approved.
func TestGuardApprovesWhatWasSeen(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	before := token(t, g)
	if got, _ := g.ask(removal{Key: numbered(21)}, of(40), ""); got != hold {
		t.Errorf("ask() for one more: want hold, got %v", got)
	}
	if token(t, g) == before {
		t.Error("the token is the same for more copies")
	}
}

// TestGuardHoldsUpNobodyElse lets the copies of another namespace go while those of
// one are held.
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
	if got, _ := g.ask(removal{Key: other}, of(40), ""); got != pass {
		t.Errorf("ask() of another namespace: want pass, got %v", got)
	}
	if token(t, g) != before {
		t.Error("the token is another though the same is held")
	}
}

// TestGuardForgetsWhatCameBack needs no approval when the objects are there again.
func TestGuardForgetsWhatCameBack(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	for i := range 15 {
		g.done(numbered(i))
	}
	if got, _ := g.ask(removal{Key: numbered(16)}, of(40), ""); got != pass {
		t.Errorf("ask() when 5 are left: want pass, got %v", got)
	}
}

// TestGuardRemembers adds up what goes in small steps.
func TestGuardRemembers(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGuard(DefaultGuard, func() time.Time { return now })
	went := 0
	for i := range 100 {
		g.ask(removal{Key: numbered(i)}, of(100-went), "")
		now = now.Add(guardSettles)
		if got, _ := g.ask(removal{Key: numbered(i)}, of(100-went), ""); got == hold {
			break
		}
		g.done(numbered(i))
		went++
	}
	if went != 30 {
		t.Errorf("one after the other: want 30 of 100 to go within a minute unasked, got %d", went)
	}
	now = now.Add(2 * guardWindow)
	if got, _ := g.ask(removal{Key: numbered(went)}, of(100-went), ""); got != pass {
		t.Error("what went long ago counts for ever")
	}
}

// TestGuardIsNotHeldUp lets a steady stream of removals go.
func TestGuardIsNotHeldUp(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGuard(DefaultGuard, func() time.Time { return now })
	for i := range 100 {
		now = now.Add(guardSettles * 9 / 10)
		if got, _ := g.ask(removal{Key: numbered(i)}, of(10_000), ""); got == pass {
			return
		}
	}
	t.Error("while more and more is to go nothing goes")
}

// TestGuardForgetsApprovals asks anew about copies that were made again.
func TestGuardForgetsApprovals(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	approved := token(t, g)
	for i := range 20 {
		g.ask(removal{Key: numbered(i)}, of(40), approved)
		g.done(numbered(i))
	}
	now = now.Add(2 * guardWindow)
	for i := range 20 {
		g.ask(removal{Key: numbered(i), uid: "another"}, of(40), approved)
	}
	now = now.Add(guardSettles)
	if got, _ := g.ask(removal{Key: numbered(0), uid: "another"}, of(40), approved); got != hold {
		t.Errorf("ask() for other copies of the same names with the old token: want hold, got %v", got)
	}
}

// TestGuardTakesAnOlderToken lets go what was approved though more came to it.
func TestGuardTakesAnOlderToken(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	approved := token(t, g)
	if got, _ := g.ask(removal{Key: numbered(21)}, of(40), ""); got != hold {
		t.Fatalf("ask() for one more: want hold, got %v", got)
	}
	if got, _ := g.ask(removal{Key: numbered(3)}, of(40), approved); got != pass {
		t.Errorf("ask() for what was approved: want pass, got %v", got)
	}
}

// TestGuardAsksForADefinition holds back what takes more along than itself.
func TestGuardAsksForADefinition(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGuard(DefaultGuard, func() time.Time { return now })
	one := removal{Key: keyOf("customresourcedefinitions", "widgets"), grave: true}
	g.ask(removal{Key: numbered(1)}, of(1000), "")
	if got, _ := g.ask(one, of(1000), ""); got != hold {
		t.Errorf("ask(): want hold, got %v", got)
	}
	now = now.Add(guardSettles)
	if got, _ := g.ask(removal{Key: numbered(1)}, of(1000), ""); got != pass {
		t.Errorf("ask() for another copy of the same pass: want pass, got %v", got)
	}
	one.grave = false // Its objects went.
	if got, _ := g.ask(one, of(1000), ""); got != pass {
		t.Errorf("ask() when nothing would go along: want pass, got %v", got)
	}
}

// TestGuardKeepsGravesApart lets what is held go when it is little, and not the
// definition that is held beside it.
func TestGuardKeepsGravesApart(t *testing.T) {
	now := time.Unix(0, 0)
	g := held20(t, &now)
	one := removal{Key: keyOf("customresourcedefinitions", "widgets"), grave: true}
	g.ask(one, of(40), "")
	for i := range 15 {
		g.done(numbered(i))
	}
	if got, _ := g.ask(removal{Key: numbered(16)}, of(40), ""); got != pass {
		t.Errorf("ask() when 5 are left: want pass, got %v", got)
	}
	if got, _ := g.ask(one, of(40), ""); got != hold {
		t.Errorf("ask() for the definition: want hold, got %v", got)
	}
}

// TestGuardIsOff lets everything go at 100 percent.
func TestGuardIsOff(t *testing.T) {
	now := time.Unix(0, 0)
	g := newGuard(100, func() time.Time { return now })
	for i := range 50 {
		g.ask(removal{Key: numbered(i)}, of(50), "")
	}
	now = now.Add(guardSettles)
	if got, _ := g.ask(removal{Key: numbered(0)}, of(20), ""); got != pass {
		t.Errorf("ask(): want pass, got %v", got)
	}
}
