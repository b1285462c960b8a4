package member

import (
	"context"
	"math"
	"time"

	"refract.dev/internal/fair"
)

const (
	// listsAtOnce is how many lists of copies are under way at a time, of all members together. A process that begins to list a thousand
	// members at once reads all of them so slowly that connections are given up in the middle, and what was read of these has to be
	// read again: such a fleet does not come back. Half of them are for members that have none under way.
	listsAtOnce = 64
	// longestTurn is how long one of them keeps others from beginning. Whoever serves a member may have a list last as long as they like.
	longestTurn = 30 * time.Second
)

// newTurns returns what lists take turns by: those of members that have the fewest go first.
func newTurns() *fair.Places {
	return fair.New(fair.Options{Places: listsAtOnce, Apart: listsAtOnce / 2, Each: mostTypes, All: math.MaxInt})
}

// turn is that of the lists of one type of a member, of which there is one at a time. It is for one goroutine.
type turn struct {
	turns  *fair.Places // Nil if nobody has to wait.
	member string
	end    context.CancelFunc // Nil before the first.
}

// take waits until a list may begin. The turn lasts until it is given back, life ends, or longestTurn has passed.
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

// giveOn gives the turn back if there is an error.
func (t *turn) giveOn(err *error) {
	if *err != nil {
		t.give()
	}
}

// give gives the turn back, if it has it.
func (t *turn) give() {
	if t.end != nil {
		t.end()
	}
}
