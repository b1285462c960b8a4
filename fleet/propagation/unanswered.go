package propagation

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"refract.dev/fleet/member"
)

// unanswered has the copies whose last write got no answer, as from a member that is overloaded or became
// unreachable. The member may have carried out the write, and a repeated write would add to its load. The zero value
// is empty. It is safe for concurrent use.
type unanswered struct {
	mu   sync.Mutex
	keys map[Key]struct{}
}

// note records the result of a write of the copy.
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

// errArrived means that an earlier write without an answer was carried out.
var errArrived = errors.New("the copy was written before")

// arrived returns [errArrived] if a write without an answer has given the copy the wanted content, nil if the copy
// must be written, and another error if the member does not answer. It makes one request if there was such a write,
// and none otherwise.
func (a *applier) arrived(ctx context.Context, key Key, p *desiredState, t *target) error {
	if !a.unanswered.has(key) {
		return nil
	}
	if before, _ := a.state.clusterStatus(key, a.member.Name); before.hash == t.variant.hash {
		return nil // The earlier write was to correct a change by another client. The hash does not show whether it did.
	}
	have, err := a.member.Objects.ReadWritten(ctx, t.variant.gvr, key.NamespacedName)
	if member.ConcernsAll(err) || member.ConcernsType(err) {
		a.wrote(err)
		return fmt.Errorf("reading the result of an unanswered write: %w", err)
	}
	if err != nil || have.Hash != t.variant.hash || have.Source != a.sourceOf(key, p) {
		return nil //nolint:nilerr // The copy is missing, unchanged or unreadable, so it must be written.
	}
	a.unanswered.note(key, nil)
	a.member.Copies.RememberWritten(key, have)
	a.answered()
	return errArrived
}
