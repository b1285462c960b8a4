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

// store has the copies of one type, from lists, watches and answers to writes. It keeps the newest version of each
// copy, regardless of the order of arrival. It is safe for concurrent use.
type store struct {
	gvr    schema.GroupVersionResource
	decode decoder
	synced latch // Closed after the first list.

	mu      sync.RWMutex
	records records
	listing listRound
	seenAt  uint64 // The newest version that a list or watch has shown.
	err     error  // The error of the last list or watch.
	missed  bool   // Whether the last answer was that the member does not serve the type.
	halted  halted
	// vanished are the Jobs that do not exist any more.
	vanished vanished
}

// latch is a channel that is closed once. The lock of its owner must be held to close it.
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

// listRound is the list under way or, between two lists, the next one. A watch may begin with a list, too. Copies are
// stored as they arrive. Their differences are reported at the end of the list, because readers get no copies before
// the first list has ended.
type listRound struct {
	round    uint32 // Its number. Each copy in the list is marked with it.
	begun    bool   // Whether its first page has arrived.
	streamed bool   // Whether the watch under way has shown an item of its list.
	// older maps a copy to its known version if the list shows an older one. This happens if a write is answered during
	// the list.
	older   map[types.NamespacedName]uint64
	pending map[types.NamespacedName]difference
}

// shows records whether the list shows a copy in an older version than the known one.
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

// isOfAnother reports whether etcd was restored from a snapshot with a revision raised above all versions that clients
// may know (etcdctl snapshot restore --bump-revision). The argument is the version of the list. After such a restore, a
// list shows a copy in an older version than the known one, although the list itself is newer than the known version.
func (l *listRound) isOfAnother(version uint64) bool {
	for _, known := range l.older {
		if known <= version {
			return true
		}
	}
	return false
}

// before returns the number of the previous round. A copy marked with it was not shown by the list under way.
func (l *listRound) before() uint32 { return l.round - 1 }

// next begins a round.
func (l *listRound) next() {
	l.round++
	l.begun, l.streamed, l.older = false, false, nil
}

// add stores a difference of a copy to be reported later.
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

// halted says whether a store keeps no copies at the moment, and why. It also controls the watch.
type halted struct {
	over    error              // The copies exceed a bound. The store tries again after a rest.
	rest    time.Time          // The end of the rest.
	unwatch context.CancelFunc // Ends the watch under way; nil before the first watch.
	goesOn  *atomic.Bool       // Whether another watch continues this one after an interruption.
	ended   bool               // The copies are not needed any more.
}

// err returns the reason why no list or watch may run; nil if it may run.
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

// look returns a copy. The [Lookup] says whether the copy exists, or that this is not known.
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

// each calls f for each current copy, until f returns false. It reports whether f returned true for all.
func (s *store) each(f func(Key, Copy) bool) bool {
	type pair struct {
		key  Key
		copy record
	}
	s.mu.RLock()
	all := make([]pair, 0, s.records.count)
	s.records.each(func(name types.NamespacedName, r *record) { all = append(all, pair{s.records.key(name), *r}) })
	s.mu.RUnlock()
	for _, p := range all { // Without the lock, because f may read copies.
		if !f(p.key, p.copy.copy(p.key)) {
			return false
		}
	}
	return true
}

// newest returns the newest version that a list or watch has shown.
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

// update stores a copy from a list or watch unless a newer version is known: an older event may arrive after the answer
// to a write of Refract. Round is the round of the list, or the previous round for a copy from any other source. It
// returns an error if there is no room. The lock must be held.
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
		round = before.round // The list under way has shown the copy already.
	}
	before.round = round
	switch {
	case before.version > e.version:
		return difference{}, nil
	case before.version == e.version && (e.Readiness == "" || e.Judged == 0 && before.judged != 0):
		return difference{}, nil // The record already has all data of this version.
	case before.version == e.version:
		// The answer to a write does not have the status, but the event of the same version does.
		changed, err := s.records.setReadiness(before, &e.Copy)
		return difference{readiness: changed}, err
	case before.uid != uidOf(e.UID):
		return s.records.put(e.name, &e.Copy, before, round)
	}
	if before.owned == e.Owned && e.Owned.unsigned(e.managers, before.generation != e.generation) {
		e.Hash = "" // The content may differ from the last apply. An empty hash causes another write.
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

// remember stores an object from a read or from the answer to a write, unless a newer version is known. If there is no
// room, the store drops all copies.
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

// forget forgets a copy, if it is known.
func (s *store) forget(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.records.get(name); before != nil {
		s.vanish(name, before)
	}
}

// vanish forgets a copy that no longer exists and whose deletion event was not seen. The lock must be held.
func (s *store) vanish(name types.NamespacedName, before *record) {
	s.vanished.note(s.gvr.GroupResource(), name, before.vanishedJob())
	s.records.remove(name)
}

// onDeleted forgets a copy after a deletion event. It returns false for a late event about a previous object of this
// name.
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
		last.ended = e.Ended // The event has the last state of the object.
	}
	s.vanished.note(s.gvr.GroupResource(), e.name, last)
	return true
}

// giveUp forgets all copies, because they exceed a bound, and begins a rest. The lock must be held.
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

// onEvent stores an event of a watch, and returns the difference.
func (s *store) onEvent(e *copyEvent) difference {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halted.err() != nil {
		return difference{} // The watch is about to end.
	}
	s.seenAt = max(s.seenAt, e.version)
	d, err := s.update(e, s.listing.before())
	if err != nil {
		s.giveUp(err)
	}
	return d
}

// onRead stores the readiness of a known copy from a read, and returns the difference. The error is errOld if a newer
// version is known.
func (s *store) onRead(e *copyEvent) (difference, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.records.get(e.name)
	switch {
	case s.halted.err() != nil, before == nil, before.uid != uidOf(e.UID):
		return difference{}, nil // The watch will show an unknown copy.
	case before.version > e.version:
		return difference{}, errOld
	}
	changed, err := s.records.setReadiness(before, &e.Copy)
	if err != nil {
		s.giveUp(err)
	}
	return difference{readiness: changed}, err
}

// beginList is called when a list, or a watch that begins with a list, begins. It returns an error if the list must
// wait. Life is as in [store.onPage].
func (s *store) beginList(life context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(life.Err(), s.halted.err()); err != nil {
		return err
	}
	s.listing.next()
	return nil
}

// beginWatch is called when a watch begins. It returns an error if the watch must wait. End is the function that ends
// the watch. GoesOn is set at the end of the list with which the watch begins: from then on, another watch can continue
// this one.
func (s *store) beginWatch(end context.CancelFunc, goesOn *atomic.Bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.halted.err(); err != nil {
		return err
	}
	if s.halted.unwatch != nil {
		s.halted.unwatch() // The previous watch has ended. This releases its context.
	}
	s.halted.unwatch, s.halted.goesOn = end, goesOn
	return nil
}

// onPage stores a page of a list. ListedAt is the version of the list. Life is the context of the watch: pages for a
// watch that has ended are rejected, because the list of another watch may be under way.
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

// onListed stores copies from a list. The lock must be held.
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

// onStreamed stores an item of a watch that begins with a list. The item is nil if its name is invalid. If there is no
// room, the watch ends. Life is as in [store.onPage].
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
		_ = s.onListed([]*copyEvent{e}) // The next list returns the error.
	}
}

var errSetBack = errors.New("the API server was restored to an old state: listing again")

// endList stores the last items of a list, and returns the differences of the whole list. ListedAt is the version of
// the list. Copies that were written after that version are not in the list, and stay. Life is as in [store.onPage].
func (s *store) endList(life context.Context, last []*copyEvent, listedAt uint64) (map[types.NamespacedName]difference, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(life.Err(), s.halted.err()); err != nil {
		return nil, err
	}
	if s.listedAt(listedAt) && s.listing.streamed {
		return nil, errSetBack // The items seemed to be old and were skipped.
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

// listedAt notes the version of a list, and reports whether this version is older than the newest version seen. In that
// case the newer versions no longer exist. The lock must be held.
func (s *store) listedAt(version uint64) (setBack bool) {
	setBack = version < s.seenAt
	s.seenAt = version
	if setBack {
		s.forgetVersions()
	}
	return setBack
}

// forgetVersions makes the store accept the next version of each copy, even an older one. The lock must be held.
func (s *store) forgetVersions() {
	s.records.each(func(_ types.NamespacedName, r *record) { r.version = 0 })
}

// onError records the result of a list or watch. A type that the member does not serve has no copies, so its copies
// count as known.
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

// onServed is called when the member serves the type again.
func (s *store) onServed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if apierrors.IsNotFound(s.err) {
		s.err = nil
	}
}

// onUnserved is called when the member does not serve the type. It reports whether this is the first such answer.
func (s *store) onUnserved() (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = !s.missed
	s.missed = true
	return first
}
