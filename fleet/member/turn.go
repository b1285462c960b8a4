package member

import (
	"context"
	"math"
	"time"

	"refract.dev/internal/fair"
)

const (
	// listsAtOnce is the maximum number of lists of copies under way at the same time, for all members. If a process
	// listed a thousand members at once, it would read all of them so slowly that connections are lost in the middle of
	// the lists. The lists would be repeated, and the fleet would not recover. Half of the turns are for members
	// without a list under way.
	listsAtOnce = 64
	// longestTurn is the maximum duration of a turn. A malicious API server could make a list last arbitrarily long.
	longestTurn = 30 * time.Second
)

// newTurns returns the turns of lists: members with the fewest lists under way come first.
func newTurns() *fair.Places {
	return fair.New(fair.Options{Places: listsAtOnce, Apart: listsAtOnce / 2, Each: mostTypes, All: math.MaxInt})
}

// turn is the permission to list one type of a member. Lists of the type run one after the other, so only one goroutine
// uses the turn.
type turn struct {
	turns  *fair.Places // Nil if no list has to wait.
	member string
	end    context.CancelFunc // Nil before the first turn.
}

// take waits until a list may begin. The turn lasts until it is released, the context life ends, or longestTurn has
// passed.
func (t *turn) take(life context.Context) error {
	t.give()
	if t.turns == nil {
		return nil
	}
	done, err := t.turns.Take(life, t.member, 1)
	if err != nil {
		return err
	}
	ctx, end := context.WithTimeout(life, longestTurn)
	context.AfterFunc(ctx, done)
	t.end = end
	return nil
}

// giveOn releases the turn if there is an error.
func (t *turn) giveOn(err *error) {
	if *err != nil {
		t.give()
	}
}

// give releases the turn, if the list has one.
func (t *turn) give() {
	if t.end != nil {
		t.end()
	}
}
