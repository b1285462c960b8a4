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
// copy, in whatever order the versions arrive. It is safe for concurrent use.
type store struct {
	gvr    schema.GroupVersionResource
	decode decoder
	synced latch // Closed after the first list.

	mu      sync.RWMutex
	records records
	listing listRound
	seenAt  uint64 // The newest version that a list or watch has shown.
	err     error  // Of the last list or watch.
	missed  bool   // Whether it is known already that the member does not serve the type.
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

// listRound is the list under way, or the next one; a watch may begin with a list, too. Copies are stored as they
// arrive. Their differences are reported when the list has ended, as no reader gets an answer before.
type listRound struct {
	round    uint32 // Its number. Each copy in the list is marked with it.
	begun    bool   // Whether its first page has arrived.
	streamed bool   // Whether the watch under way has shown an item of its list.
	// older has the known versions of the copies that the list has shown in an older version. This happens if a write
	// is answered while the list is made.
	older   map[types.NamespacedName]uint64
	pending map[types.NamespacedName]difference
}

// shows takes the version of a copy in the list, and the known version.
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

// isOfAnother reports whether the list, which was made at a version, belongs to another history than the known copies:
// it has an older version of a copy that must have had the newer version by then. This is the case after an etcd was
// restored from a snapshot with its revision raised above all versions that clients may know (etcdctl snapshot restore
// --bump-revision).
func (l *listRound) isOfAnother(version uint64) bool {
	for _, known := range l.older {
		if known <= version {
			return true
		}
	}
	return false
}

// before returns the number of a round that has ended. A list under way has not shown copies that are marked with it.
func (l *listRound) before() uint32 { return l.round - 1 }

// next begins a round: no item of its list has been shown.
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

// halted says whether and why no copies are kept at the moment.
type halted struct {
	over    error              // There is more than may be kept. The store tries again after a rest.
	rest    time.Time          // The end of the rest.
	unwatch context.CancelFunc // Ends the watch under way; nil before the first watch.
	goesOn  *atomic.Bool       // Whether another watch continues this one after an interruption.
	ended   bool               // The copies are not needed any more.
}

// err returns the error of a list or watch that may not run; nil if it may.
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

// look returns a copy, and how much is known of it.
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
	for _, p := range all { // Without the lock, as f may read copies.
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

// update stores a copy from a list or watch unless a newer version is known: the answer to Refract's own write comes
// before the event of the watch, and an older event may come after the answer. Round is the round of the list, or the
// previous round for a copy from any other source. It returns an error if there is no room. The lock must be held.
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
		return difference{}, nil // The record already has this, and more.
	case before.version == e.version:
		// The answer to a write does not have the status.
		changed, err := s.records.setReadiness(before, &e.Copy)
		return difference{readiness: changed}, err
	case before.uid != uidOf(e.UID):
		return s.records.put(e.name, &e.Copy, before, round)
	}
	if before.owned == e.Owned && e.Owned.unsigned(e.managers, before.generation != e.generation) {
		e.Hash = "" // The content may differ from the last apply; another write settles this.
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

// remember stores an object that was read, or that answers a write, unless a newer version is known. If there is no
// room, the store gives up all copies.
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

// vanish forgets a copy that does not exist any more and whose deletion was not seen. The lock must be held.
func (s *store) vanish(name types.NamespacedName, before *record) {
	s.vanished.note(s.gvr.GroupResource(), name, before.vanishedJob())
	s.records.remove(name)
}

// onDeleted forgets a copy whose deletion a watch has shown, and reports whether the deletion is new: a late event may
// be about the previous object of this name.
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

// giveUp forgets all copies, as there are more than may be kept, and begins a rest. The lock must be held.
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

// onRead stores the readiness of a known copy that was read, and returns the difference. The error is errOld if a newer
// version is known.
func (s *store) onRead(e *copyEvent) (difference, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.records.get(e.name)
	switch {
	case s.halted.err() != nil, before == nil, before.uid != uidOf(e.UID):
		return difference{}, nil // A watch shows it.
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

// beginWatch takes the function that ends a watch that begins, and the flag to set at the end of its list: from then on
// another watch can continue it. It returns an error if the watch must wait.
func (s *store) beginWatch(end context.CancelFunc, goesOn *atomic.Bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.halted.err(); err != nil {
		return err
	}
	if s.halted.unwatch != nil {
		s.halted.unwatch() // The previous watch has ended.
	}
	s.halted.unwatch, s.halted.goesOn = end, goesOn
	return nil
}

// onPage stores a page of a list that was made at a version. Life is the context of the watch: pages for a watch that
// has ended are rejected, as the list of another one may be under way.
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

// onStreamed stores an item of a watch that begins with a list. The item is nil if its name is one that no object can
// have. If there is no room, the watch ends. Life is as in [store.onPage].
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

// endList stores the last items of a list that was made at a version, and returns the differences of the whole list.
// Copies that were written after that version are not in the list, and stay. Life is as in [store.onPage].
func (s *store) endList(life context.Context, last []*copyEvent, listedAt uint64) (map[types.NamespacedName]difference, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(life.Err(), s.halted.err()); err != nil {
		return nil, err
	}
	if s.listedAt(listedAt) && s.listing.streamed {
		return nil, errSetBack // Its items seemed to be old and were skipped.
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

// listedAt takes the version of a list, and reports whether it is older than before. Then the newer versions do not
// exist any more. The lock must be held.
func (s *store) listedAt(version uint64) (setBack bool) {
	setBack = version < s.seenAt
	s.seenAt = version
	if setBack {
		s.forgetVersions()
	}
	return setBack
}

// forgetVersions makes the next version of each copy count as the newest. The lock must be held.
func (s *store) forgetVersions() {
	s.records.each(func(_ types.NamespacedName, r *record) { r.version = 0 })
}

// onError takes the result of a list or watch. A type that the member does not serve has no copies, so they are known.
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

// onUnserved is called when the member does not serve the type, and reports whether that is new.
func (s *store) onUnserved() (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = !s.missed
	s.missed = true
	return first
}
