package member

import (
	"context"
	"math"
	"time"

	"refract.dev/internal/fair"
)

const (
	// listsAtOnce is how many lists of copies of all members are under way at the same time. A process that begins to
	// list a thousand members at once reads all of them so slowly that connections are lost in the middle of the lists,
	// which must then be repeated: such a fleet does not recover. Half of the turns are for members without a list
	// under way.
	listsAtOnce = 64
	// longestTurn is how long a list keeps others from beginning. A false API server can make a list last as long as it
	// likes.
	longestTurn = 30 * time.Second
)

// newTurns returns the turns of lists: lists of members with the fewest go first.
func newTurns() *fair.Places {
	return fair.New(fair.Options{Places: listsAtOnce, Apart: listsAtOnce / 2, Each: mostTypes, All: math.MaxInt})
}

// turn is the turn of the lists of one type of a member, which run one after the other. One goroutine uses it.
type turn struct {
	turns  *fair.Places // Nil if no list has to wait.
	member string
	end    context.CancelFunc // Nil before the first turn.
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

// give gives the turn back, if the list has one.
func (t *turn) give() {
	if t.end != nil {
		t.end()
	}
}
