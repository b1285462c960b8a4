package propagation

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"refract.dev/internal/member"
)

// unanswered are the copies whose last write was not answered, as by a member that is overloaded or that became
// unreachable meanwhile. It may have been done all the same, and to send it once more would add to what
// the member suffers from. The zero value has none. It is safe for many goroutines.
type unanswered struct {
	mu   sync.Mutex
	keys map[Key]struct{}
}

// note records how a write of the copy ended.
func (u *unanswered) note(key Key, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !member.OutcomeUnknown(err) {
		delete(u.keys, key)
		return
	}
	if u.keys == nil {
		u.keys = map[Key]struct{}{}
	}
	u.keys[key] = struct{}{}
}

func (u *unanswered) has(key Key) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, has := u.keys[key]
	return has
}

// errArrived is for a write that was done before, without an answer.
var errArrived = errors.New("the copy was written before")

// arrived returns [errArrived] if the copy is as it is to be by a write that was not answered, nil if it is to be written, and another
// error if the member does not answer. It is one request if there was such a write, and none otherwise.
func (a *applier) arrived(ctx context.Context, key Key, p *desiredState, t *target) error {
	if !a.unanswered.has(key) {
		return nil
	}
	if before, _ := a.state.clusterStatus(key, a.member.Name); before.hash == t.variant.hash {
		return nil // It was written to correct what somebody had changed: its hash does not tell whether that was done.
	}
	have, err := a.member.Objects.ReadWritten(ctx, t.variant.gvr, key.NamespacedName)
	if member.ConcernsAll(err) || member.ConcernsType(err) {
		a.wrote(err)
		return fmt.Errorf("reading what became of a write that was not answered: %w", err)
	}
	if err != nil || have.Hash != t.variant.hash || have.Source != a.sourceOf(key, p) {
		return nil //nolint:nilerr // It is not there, or as it was before, or may not be read: it is to be written.
	}
	a.unanswered.note(key, nil)
	a.member.Copies.RememberWritten(key, have)
	a.answered()
	return errArrived
}
