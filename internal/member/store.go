package member

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// store has the copies of one type, as lists, watches and answers to writes show them. Of what they
// say of one copy the newest is kept, in whatever order it comes. It is safe for many goroutines.
type store struct {
	gvr    schema.GroupVersionResource
	decode decoder
	synced latch // Closed after the first list.

	mu      sync.RWMutex
	records records
	listing listRound
	seenAt  uint64 // The newest version that a list or watch told of.
	err     error  // Of the last list or watch.
	missed  bool   // Whether it was said that the member does not serve the type.
	halted  halted
	// vanished are Jobs that are not there any more.
	vanished vanished
}

// latch is a channel that is closed once. Who closes it must have the lock of what it is in.
type latch chan struct{}

func (l latch) isClosed() bool {
	select {
	case <-l:
		return true
	default:
		return false
	}
}

func (l latch) close() {
	if !l.isClosed() {
		close(l)
	}
}

// listRound is a list under way, or the next one; a watch may begin with a list, too. Copies are kept as
// they come, and what is different about them is told when the list has ended: nobody could
// be answered before.
type listRound struct {
	round    uint32 // Its number. Each copy that it shows is marked with that.
	begun    bool   // Whether its first page has come.
	streamed bool   // Whether the watch under way has shown something of its list.
	// older are copies of which the list has shown an older version than is known, and that version. There are some where a write is
	// answered while the list is made.
	older   map[types.NamespacedName]uint64
	pending map[types.NamespacedName]difference
}

// shows is told which version of a copy the list shows, and which is known.
func (l *listRound) shows(name types.NamespacedName, version, known uint64) {
	if version >= known {
		delete(l.older, name)
		return
	}
	if l.older == nil {
		l.older = map[types.NamespacedName]uint64{}
	}
	l.older[name] = known
}

// isOfAnother reports whether the list, which was made at a version, is of another history than what is known: it shows the older
// version of a copy that must have been there in the newer by then. Such is an etcd that was restored from a snapshot, and whose
// revision was raised above all that clients might know (etcdctl snapshot restore --bump-revision).
func (l *listRound) isOfAnother(version uint64) bool {
	for _, known := range l.older {
		if known <= version {
			return true
		}
	}
	return false
}

// before is a round that is over: a list that is under way has not shown what is marked with it.
func (l *listRound) before() uint32 { return l.round - 1 }

// next begins a round: nothing of a list has been shown.
func (l *listRound) next() {
	l.round++
	l.begun, l.streamed, l.older = false, false, nil
}

// add has it told later that something is new of a copy.
func (l *listRound) add(name types.NamespacedName, d difference) {
	if d == (difference{}) {
		return
	}
	if l.pending == nil {
		l.pending = map[types.NamespacedName]difference{}
	}
	before := l.pending[name]
	l.pending[name] = difference{d.content || before.content, d.readiness || before.readiness}
}

// halted is why nothing is to be known of the copies at the moment, if so.
type halted struct {
	over    error              // There is more than may be kept. It is tried again after a rest.
	rest    time.Time          // Until when.
	unwatch context.CancelFunc // Ends the watch under way; nil if there was none.
	goesOn  *atomic.Bool       // Whether another goes on where it was when it is cut.
	ended   bool               // Nobody wants to know of the copies any more.
}

// err is the error of what is not done; nil if nothing is in the way.
func (h *halted) err() error {
	switch {
	case h.ended && h.over == nil:
		return errLeft
	case h.ended, h.over != nil && time.Now().Before(h.rest):
		return h.over
	default:
		return nil
	}
}

func newStore(gvr schema.GroupVersionResource, bounds limits, d decoder) *store {
	return &store{gvr: gvr, decode: d, synced: make(latch), records: newRecords(gvr.GroupResource(), bounds)}
}

// look returns what is known of a copy.
func (s *store) look(name types.NamespacedName) (Copy, Lookup) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.halted.over != nil || !s.synced.isClosed() {
		return Copy{}, Unlisted
	}
	if r := s.records.get(name); r != nil {
		return r.copy(s.records.key(name)), Present
	}
	return Copy{}, Absent
}

// complete reports whether all copies are known.
func (s *store) complete() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.halted.over == nil && s.synced.isClosed()
}

// each calls f for what is there at the moment, until f returns false. It reports whether
// f wants more.
func (s *store) each(f func(Key, Copy) bool) bool {
	type pair struct {
		key  Key
		copy record
	}
	s.mu.RLock()
	all := make([]pair, 0, s.records.count)
	s.records.each(func(name types.NamespacedName, r *record) { all = append(all, pair{s.records.key(name), *r}) })
	s.mu.RUnlock()
	for _, p := range all { // Outside the lock: f may ask for copies.
		if !f(p.key, p.copy.copy(p.key)) {
			return false
		}
	}
	return true
}

// newest is the newest version that a list or watch told of.
func (s *store) newest() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.seenAt
}

func (s *store) len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.records.count
}

func (s *store) inNamespace(ns string) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.records.items[ns])
}

func (s *store) conflictingManager(name types.NamespacedName) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.records.conflictingManagers[name]
}

func (s *store) listError() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.err
}

// update keeps what a list or watch says of a copy unless something newer is known: the answer
// to our own write comes before the event of the watch, and an older event may
// come after it. Round is that of the list; of what was seen otherwise it is that before. It is
// an error if there is no room. The lock must be held.
func (s *store) update(e *copyEvent, round uint32) (difference, error) {
	before := s.records.get(e.name)
	if before == nil {
		delete(s.vanished, e.name)
		return s.records.put(e.name, &e.Copy, nil, round)
	}
	if round == s.listing.round {
		s.listing.shows(e.name, e.version, before.version)
	}
	if before.round == s.listing.round {
		round = before.round // A list that has shown it goes on to have.
	}
	before.round = round
	switch {
	case before.version > e.version:
		return difference{}, nil
	case before.version == e.version && (e.Readiness == "" || e.Judged == 0 && before.judged != 0):
		return difference{}, nil // It is known already, and more.
	case before.version == e.version:
		// The answer to a write does not have the status.
		changed, err := s.records.setReadiness(before, &e.Copy)
		return difference{readiness: changed}, err
	case before.uid != uidOf(e.UID):
		return s.records.put(e.name, &e.Copy, before, round)
	}
	if before.owned == e.Owned && e.Owned.unsigned(e.managers, before.generation != e.generation) {
		e.Hash = "" // Whatever it was applied with, it may not be that any more: to write it again tells.
	}
	e.Doubted = before.doubted || s.decode.regained(before.owned, e, s.gvr.GroupResource())
	d, err := s.records.put(e.name, &e.Copy, before, round)
	if err != nil {
		return difference{}, err
	}
	if before.owned != e.Owned && before.hash == intern(e.Hash) {
		if who, is := s.decode.blame(before.owned, e, s.gvr.GroupResource()); is {
			s.records.setConflictingManager(e.name, who)
		}
	}
	return d, nil
}

// remember keeps what was read, or answered to a write, unless something newer is
// known, or there is no room.
func (s *store) remember(name types.NamespacedName, item Copy, written bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if written {
		s.records.clearConflictingManager(name)
	}
	before, round := s.records.get(name), s.listing.before()
	if s.halted.err() != nil || before != nil && before.version > item.version {
		return
	}
	item.Doubted = !written && before != nil && before.doubted && before.uid == uidOf(item.UID)
	if before != nil && before.round == s.listing.round {
		round = before.round
	}
	delete(s.vanished, name)
	if _, err := s.records.put(name, &item, before, round); err != nil {
		s.giveUp(err)
	}
}

// forget forgets a copy, if it is there.
func (s *store) forget(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.records.get(name); before != nil {
		s.vanish(name, before)
	}
}

// vanish forgets a copy that is not there, and whose deletion was not seen. The lock must be held.
func (s *store) vanish(name types.NamespacedName, before *record) {
	s.vanished.note(s.gvr.GroupResource(), name, before.vanishedJob())
	s.records.remove(name)
}

// onDeleted forgets the copy that a watch says was deleted, and reports whether that is news: a deletion that is told late
// may be that of the object before.
func (s *store) onDeleted(e *copyEvent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.records.get(e.name)
	last, gone := s.vanished[e.name]
	switch {
	case before != nil && before.uid == uidOf(e.UID):
		last = before.vanishedJob()
		s.records.remove(e.name)
	case before == nil && gone && last.uid == uidOf(e.UID) && !last.seen:
	default:
		return false
	}
	last.seen = true
	if e.Ended != 0 {
		last.ended = e.Ended // The event has the object as it was last.
	}
	s.vanished.note(s.gvr.GroupResource(), e.name, last)
	return true
}

// giveUp forgets all copies, as there are more than may be kept, and rests. The lock must be held.
func (s *store) giveUp(why error) {
	s.err = why
	s.halted.over, s.halted.rest = why, time.Now().Add(overRest)
	s.records.clear()
	s.listing.pending = nil
	if s.halted.unwatch != nil {
		s.halted.unwatch()
	}
}

// end forgets all copies for good.
func (s *store) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halted.ended = true
	s.records.clear()
	s.listing.pending = nil
}

// onEvent takes an event of a watch, and returns what is different.
func (s *store) onEvent(e *copyEvent) difference {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halted.err() != nil {
		return difference{} // The watch is just ending.
	}
	s.seenAt = max(s.seenAt, e.version)
	d, err := s.update(e, s.listing.before())
	if err != nil {
		s.giveUp(err)
	}
	return d
}

// onRead takes what was read of a copy that is known, and returns what is different. It is errOld if what is known is newer.
func (s *store) onRead(e *copyEvent) (difference, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.records.get(e.name)
	switch {
	case s.halted.err() != nil, before == nil, before.uid != uidOf(e.UID):
		return difference{}, nil // A watch tells of it.
	case before.version > e.version:
		return difference{}, errOld
	}
	changed, err := s.records.setReadiness(before, &e.Copy)
	if err != nil {
		s.giveUp(err)
	}
	return difference{readiness: changed}, err
}

// beginList is told that a list, or a watch that is one, begins. It returns an error if
// that is to wait. Life is as in [store.onPage].
func (s *store) beginList(life context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(life.Err(), s.halted.err()); err != nil {
		return err
	}
	s.listing.next()
	return nil
}

// beginWatch is told how to end a watch that begins, and what to set when the list is over with which it may begin. It returns an
// error if that is to wait.
func (s *store) beginWatch(end context.CancelFunc, goesOn *atomic.Bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.halted.err(); err != nil {
		return err
	}
	if s.halted.unwatch != nil {
		s.halted.unwatch() // It has ended.
	}
	s.halted.unwatch, s.halted.goesOn = end, goesOn
	return nil
}

// onPage takes what a page of a list has, which was made at a version. Life is that of the watch: of one that has ended
// nothing is taken, as another may have begun to list.
func (s *store) onPage(life context.Context, page []*copyEvent, listedAt uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(life.Err(), s.halted.err()); err != nil {
		return err
	}
	if !s.listing.begun {
		s.listedAt(listedAt)
		s.listing.begun = true
	}
	return s.onListed(page)
}

// onListed takes copies that a list shows. The lock must be held.
func (s *store) onListed(shown []*copyEvent) error {
	for _, e := range shown {
		d, err := s.update(e, s.listing.round)
		if err != nil {
			s.giveUp(err)
			return err
		}
		s.listing.add(e.name, d)
	}
	return nil
}

// onStreamed takes a copy that a watch shows which begins with a list; nil for what has a name that no
// object can have. If there is no room the watch ends. Life is as in [store.onPage].
func (s *store) onStreamed(life context.Context, e *copyEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if life.Err() != nil {
		return
	}
	s.listing.streamed = true
	switch {
	case s.halted.err() != nil:
	case e == nil:
		s.giveUp(s.records.limits.excess.over("bytes of a name", mostName))
	default:
		_ = s.onListed([]*copyEvent{e}) // The error is told by the next list.
	}
}

var errSetBack = errors.New("the API server was set back to an old state: it is listed once more")

// endList takes the last of what a list has, which was made at a version, and returns what is different
// by all of it. What was written since the list was made is not in it, and stays. Life is as in [store.onPage].
func (s *store) endList(life context.Context, last []*copyEvent, listedAt uint64) (map[types.NamespacedName]difference, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(life.Err(), s.halted.err()); err != nil {
		return nil, err
	}
	if s.listedAt(listedAt) && s.listing.streamed {
		return nil, errSetBack // What it showed seemed to be old.
	}
	if err := s.onListed(last); err != nil {
		return nil, err
	}
	if s.listing.isOfAnother(listedAt) {
		s.forgetVersions()
		return nil, errSetBack
	}
	s.records.each(func(name types.NamespacedName, r *record) {
		if r.round != s.listing.round && r.version <= listedAt {
			s.vanish(name, r)
			s.listing.add(name, difference{content: true})
		}
	})
	told := s.listing.pending
	s.listing.pending = nil
	s.listing.next()
	s.halted.over = nil
	if s.halted.goesOn != nil {
		s.halted.goesOn.Store(true)
	}
	s.synced.close()
	return told, nil
}

// listedAt is told which version a list is of, and reports whether that is an older one
// than before: what was newer is not. The lock must be held.
func (s *store) listedAt(version uint64) (setBack bool) {
	setBack = version < s.seenAt
	s.seenAt = version
	if setBack {
		s.forgetVersions()
	}
	return setBack
}

// forgetVersions has what is shown next taken for the newest of each copy. The lock must be held.
func (s *store) forgetVersions() {
	s.records.each(func(_ types.NamespacedName, r *record) { r.version = 0 })
}

// onError is told how a list or watch went. A type that the member does not serve
// has no copies: that is known, too.
func (s *store) onError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	switch {
	case err == nil:
		s.missed = false
	case apierrors.IsNotFound(err):
		s.halted.over = nil
		s.synced.close()
	}
}

// onServed is told that the member serves the type again.
func (s *store) onServed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if apierrors.IsNotFound(s.err) {
		s.err = nil
	}
}

// onUnserved is told that the member does not serve the type, and reports whether that was not said before.
func (s *store) onUnserved() (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = !s.missed
	s.missed = true
	return first
}
