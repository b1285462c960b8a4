package member

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/output"
	"refract.dev/internal/rescue"
	"refract.dev/placement"
)

// Copy is what is known of an object on a member that carries the managed
// label.
type Copy struct {
	UID types.UID
	// Source is the annotation that names the hub and the object there.
	Source string
	// MadeFor is the hub for whose copies this namespace was made, if it was.
	MadeFor string
	// Hash is that of the content it was last applied with.
	Hash string
	// Orphan is the annotation that has it stay when its source goes: "all", "adopted" or "".
	Orphan string
	// Adopted is whether it was there before it became a copy.
	Adopted bool
	// Native is whether the member makes it for itself, as [placement.Native] has it.
	Native bool
	// Deleting is whether its deletion has begun.
	Deleting bool
	// Owned are the fields that Refract applied and nobody changed since.
	Owned Ownership
	// Doubted is whether somebody gave Refract fields back since it wrote the copy last:
	// then Owned says nothing of what is in them.
	Doubted bool
	// Readiness says whether the object has become what it asks for. Objects of a
	// type without a status that says so are ready when they are there.
	Readiness refractv1alpha1.Readiness
	// ReadinessMessage says why it is not ready.
	ReadinessMessage string
	// Fault says why what the member answers about the object cannot be read; "" if it can.
	// Nothing else is known of it then.
	Fault string

	generation int64
	version    uint64 // Its resourceVersion.
}

// ResourceVersion is that of the object when it was last seen.
func (c *Copy) ResourceVersion() string { return strconv.FormatUint(c.version, 10) }

// Key names an object on a member, whatever the version of its type.
type Key struct {
	schema.GroupResource
	types.NamespacedName
}

// hooks are told what happened to copies. They must not block.
type hooks struct {
	changed func(Key) // It appeared or went, or is another, or has other content.
	readied func(Key) // It is more, or less, ready than it was.
	awaited func()    // Somebody waits to know of which types there are copies.

	// served says which types the hub has, as soon as that is known; nil for all.
	served func(context.Context) (func(schema.GroupResource) bool, error)

	account *account                           // Of the member.
	excess  func(what string, limit int) error // There is too much of something; it returns the error to fail with.
	log     logr.Logger                        // Told of answers that Refract stumbles over.
}

// copies are the managed objects of one type on one member: a store that a
// reflector keeps up to date.
type copies struct {
	gvr  schema.GroupVersionResource
	stop context.CancelFunc // Of the reflector; guarded by the lock of the member.
	// resting is whether it has ended as the member does not serve the type; guarded by the
	// same.
	resting bool
	hooks

	mu     sync.RWMutex
	synced chan struct{} // Closed after the first list.
	// items are by namespace and name.
	items map[string]map[string]*record
	count int
	bytes int // What is taken of the account.
	// conflictingManagers are the managers that changed copies which are not corrected yet.
	conflictingManagers map[types.NamespacedName]string
	seenAt              uint64 // The newest version that a list or watch told of.
	err                 error  // Of the last list or watch.
	missed              bool   // Whether it was said that the member does not serve the type.

	// round numbers the list under way, or the next one; a watch may begin with a list, too.
	// Each copy that it returns is marked with the number. Copies are kept as they come, and
	// changed is called for them when the list has ended: nobody could be answered before.
	round    uint32
	first    bool // Whether the first page is to come.
	streamed bool // Whether the watch under way has shown something of its list.
	pending  map[types.NamespacedName]notification

	// over is why nothing is known of the copies: there is more than may be kept. It is
	// tried again after a rest.
	over    error
	rest    time.Time          // Until when.
	unwatch context.CancelFunc // Ends the watch under way; nil if there was none.
	ended   bool               // Nobody wants to know of the copies any more.
}

func newCopies(gvr schema.GroupVersionResource, h hooks) *copies {
	return &copies{
		gvr:                 gvr,
		hooks:               h,
		synced:              make(chan struct{}),
		items:               map[string]map[string]*record{},
		conflictingManagers: map[types.NamespacedName]string{},
	}
}

func (c *copies) hasSynced() bool {
	select {
	case <-c.synced:
		return true
	default:
		return false
	}
}

// look returns what is known of a copy.
func (c *copies) look(name types.NamespacedName) (Copy, Lookup) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.over != nil || !c.hasSynced() {
		return Copy{}, Unlisted
	}
	if r, ok := c.items[name.Namespace][name.Name]; ok {
		return r.copy(c.key(name)), Present
	}
	return Copy{}, Absent
}

// complete reports whether all copies are known.
func (c *copies) complete() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.over == nil && c.hasSynced()
}

func (c *copies) get(name types.NamespacedName) (Copy, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r, ok := c.items[name.Namespace][name.Name]
	if !ok {
		return Copy{}, false
	}
	return r.copy(c.key(name)), true
}

func (c *copies) key(name types.NamespacedName) Key {
	return Key{GroupResource: c.gvr.GroupResource(), NamespacedName: name}
}

// each calls f for what is there at the moment, until f returns false. It reports whether
// f wants more.
func (c *copies) each(f func(Key, Copy) bool) bool {
	type pair struct {
		key  Key
		copy record
	}
	c.mu.RLock()
	all := make([]pair, 0, c.count)
	for ns, items := range c.items {
		for name, r := range items {
			all = append(all, pair{c.key(types.NamespacedName{Namespace: ns, Name: name}), *r})
		}
	}
	c.mu.RUnlock()
	for _, p := range all { // Outside the lock: f may ask for copies.
		if !f(p.key, p.copy.copy(p.key)) {
			return false
		}
	}
	return true
}

// seen is the newest version that a list or watch told of.
func (c *copies) seen() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.seenAt
}

func (c *copies) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.count
}

func (c *copies) inNamespace(ns string) int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.items[ns])
}

func (c *copies) conflictingManager(name types.NamespacedName) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.conflictingManagers[name]
}

// notification is what is different about a copy.
type notification struct{ changed, readied bool }

func (n notification) send(h hooks, key Key) {
	if n.changed {
		h.changed(key)
	}
	if n.readied {
		h.readied(key)
	}
}

// onEvent keeps what a list or watch says unless something newer is known: the answer
// to our own write comes before the event of the watch, and an older event may
// come after it. Round is that of the list; of what was seen otherwise it is c.before. It is
// an error if there is no room. The lock must be held.
func (c *copies) onEvent(s *copyEvent, round uint32) (notification, error) {
	before, ok := c.items[s.name.Namespace][s.name.Name]
	if ok && round == c.round {
		before.round = round
	}
	switch {
	case ok && before.version > s.version:
		return notification{}, nil
	case ok && before.version == s.version:
		// The answer to a write does not have the status.
		size := before.bytes()
		if s.Readiness == "" || !before.ready(s.Readiness, s.ReadinessMessage) {
			return notification{}, nil
		}
		return notification{readied: true}, c.keep(0, before.bytes()-size)
	}
	if ok && before.uid == uidOf(s.UID) && before.owned == s.Owned && s.Owned.unsigned(s.managers, before.generation != s.generation) {
		s.Hash = "" // Whatever it was applied with, it may not be that any more: to write it again tells.
	}
	if ok && before.uid == uidOf(s.UID) {
		s.Doubted = before.doubted || c.regained(before.owned, s)
	}
	n, err := c.set(s.name, s.Copy, before, round)
	if err != nil {
		return notification{}, err
	}
	if ok && before.owned != s.Owned && before.uid == uidOf(s.UID) && before.hash == intern(s.Hash) {
		if who, is := c.blame(before.owned, s); is {
			c.setConflictingManager(s.name, who)
		}
	}
	return n, nil
}

// setConflictingManager records who changed a copy, if there is room for that. The lock must be held.
func (c *copies) setConflictingManager(name types.NamespacedName, who string) {
	c.clearConflictingManager(name)
	size := bytesOfManager(who)
	if what, _ := c.account.keep(0, size); what == "" {
		c.bytes += size
		c.conflictingManagers[name] = who
	}
}

// clearConflictingManager forgets who changed a copy. The lock must be held.
func (c *copies) clearConflictingManager(name types.NamespacedName) {
	if who, is := c.conflictingManagers[name]; is {
		delete(c.conflictingManagers, name)
		_ = c.keep(0, -bytesOfManager(who)) // There is room for less.
	}
}

func bytesOfManager(who string) int { return 100 + len(who) }

// keep takes room for copies in the account of the member, or gives it back. It is an
// error if there is none. The lock must be held.
func (c *copies) keep(copies, bytes int) error {
	if what, most := c.account.keep(copies, bytes); what != "" {
		return c.excess(what, most)
	}
	c.count += copies
	c.bytes += bytes
	return nil
}

// regained reports whether Refract owns more fields than before, or since another time. What
// others write only takes fields away. So this is a write of our own, whose answer is still to
// come and ends the doubt; or somebody has edited managedFields by hand, as anybody may who
// writes the object.
func (c *copies) regained(before Ownership, s *copyEvent) (is bool) {
	var err error
	defer rescue.To(&err, c.log, "reading what is owned of a copy", "resource", c.gvr.Resource, "copy", s.name.String())
	return before != s.Owned && s.Owned.gained(before)
}

// blame names who took fields from Refract; is says that somebody did.
func (c *copies) blame(before Ownership, s *copyEvent) (who string, is bool) {
	var err error
	defer rescue.To(&err, c.log, "reading who changed a copy", "resource", c.gvr.Resource, "copy", s.name.String())
	if before.fields != s.Owned.fields && before.fields != nil && (!before.named() || !s.Owned.named()) {
		return output.Cut(conflictingManager(&fieldpath.Set{}, s.managers), mostMessage), true
	}
	lost := before.without(s.Owned)
	if lost.Empty() {
		return "", false
	}
	return output.Cut(conflictingManager(lost, s.managers), mostMessage), true
}

// remember keeps what was read, or answered to a write, unless something newer is
// known, or there is no room.
func (c *copies) remember(name types.NamespacedName, item Copy, written bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if written {
		c.clearConflictingManager(name)
	}
	before, ok := c.items[name.Namespace][name.Name]
	if c.idle() || ok && before.version > item.version {
		return
	}
	item.Doubted = ok && !written && before.doubted && before.uid == uidOf(item.UID)
	if _, err := c.set(name, item, before, c.before()); err != nil {
		c.giveUp(err)
	}
}

// before is a round that is over: a list that is under way has not shown it. The lock must be held.
func (c *copies) before() uint32 { return c.round - 1 }

// set puts the item in the place of what was there before, if anything was. A list that has
// shown that goes on to have. It is an error if there is no room. The lock must be held.
func (c *copies) set(name types.NamespacedName, item Copy, before *record, round uint32) (notification, error) {
	after := recordOf(c.key(name), &item)
	after.round = round
	if before != nil && before.round == c.round {
		after.round = before.round
	}
	if item.Readiness == "" {
		if before != nil && before.uid == after.uid && before.generation == after.generation {
			after.readiness, after.message = before.readiness, before.message
		} else {
			after.ready(refractv1alpha1.ReadinessInProgress, notSeenYet)
		}
	}
	if err := c.setRecord(name, after, before); err != nil {
		return notification{}, err
	}
	if before == nil {
		return notification{changed: true, readied: true}, nil
	}
	return notification{
		changed: before.uid != after.uid || before.source != after.source || before.hash != after.hash || before.owned != after.owned ||
			before.orphan != after.orphan || before.adopted != after.adopted || before.native != after.native || before.deleting != after.deleting ||
			before.fault != after.fault || before.doubted != after.doubted,
		readied: before.readiness != after.readiness || before.message != after.message,
	}, nil
}

// setRecord puts a record in the place of the one before, if there was any. The lock must be held.
func (c *copies) setRecord(name types.NamespacedName, after, before *record) error {
	items := c.items[name.Namespace]
	more, bytes := 0, after.bytes()
	if before != nil {
		bytes -= before.bytes()
	} else {
		more, bytes = 1, bytes+len(name.Name)
	}
	if items == nil {
		bytes += namespaceBytes + len(name.Namespace)
	}
	if err := c.keep(more, bytes); err != nil {
		return err
	}
	if items == nil {
		items = map[string]*record{}
		c.items[name.Namespace] = items
	}
	items[name.Name] = after
	return nil
}

// lose forgets a copy that is there. The lock must be held.
func (c *copies) lose(name types.NamespacedName) {
	items := c.items[name.Namespace]
	bytes := items[name.Name].bytes() + len(name.Name)
	delete(items, name.Name)
	if len(items) == 0 {
		delete(c.items, name.Namespace)
		bytes += namespaceBytes + len(name.Namespace)
	}
	c.clearConflictingManager(name)
	_ = c.keep(-1, -bytes) // There is room for less.
}

// idle reports whether nothing is to be known of the copies at the moment. The lock must be held.
func (c *copies) idle() bool { return c.ended || c.over != nil && time.Now().Before(c.rest) }

// giveUp forgets all copies, as there are more than may be kept, and rests. The lock must be held.
func (c *copies) giveUp(why error) {
	c.over, c.err, c.rest = why, why, time.Now().Add(overRest)
	c.forget()
	if c.unwatch != nil {
		c.unwatch()
	}
}

// forget forgets all copies. The lock must be held.
func (c *copies) forget() {
	_ = c.keep(-c.count, -c.bytes) // There is room for less.
	clear(c.items)
	clear(c.conflictingManagers)
	c.pending = nil
}

// end forgets all copies for good.
func (c *copies) end() {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.forget()
}

func (c *copies) drop(name types.NamespacedName, id types.UID) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, ok := c.items[name.Namespace][name.Name]; !ok || before.uid != uidOf(id) {
		return false
	}
	c.lose(name)
	return true
}

// Add is called by the reflector.
func (c *copies) Add(obj any) error {
	if s := c.copyEventOf(obj); s != nil {
		c.handle(s).send(c.hooks, c.key(s.name))
	}
	return nil
}

func (c *copies) handle(s *copyEvent) notification {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle() {
		return notification{} // The watch is just ending.
	}
	c.seenAt = max(c.seenAt, s.version)
	n, err := c.onEvent(s, c.before())
	if err != nil {
		c.giveUp(err)
	}
	return n
}

// Update is called by the reflector.
func (c *copies) Update(obj any) error { return c.Add(obj) }

// Delete is called by the reflector, also for a copy that lost its label.
func (c *copies) Delete(obj any) error {
	s := c.copyEventOf(obj)
	if s != nil && c.drop(s.name, s.UID) {
		c.changed(c.key(s.name))
	}
	return nil
}

// Replace is called by the reflector at the end of a list, with what was not shown to
// [copies.list] or [copies.Transformer] before. What was written since the list was made is
// not in it, and stays.
func (c *copies) Replace(list []any, version string) error {
	told, err := c.replace(list, number(version))
	for name, n := range told {
		n.send(c.hooks, c.key(name))
	}
	return err
}

var errSetBack = errors.New("the API server was set back to an old state: it is listed once more")

func (c *copies) replace(list []any, listedAt uint64) (map[types.NamespacedName]notification, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle() {
		return nil, c.why()
	}
	if c.setBack(listedAt) && c.streamed {
		return nil, errSetBack // What it showed seemed to be old.
	}
	for _, obj := range list {
		if s := c.copyEventOf(obj); s != nil {
			if err := c.note(s); err != nil {
				return nil, err
			}
		}
	}
	for ns, items := range c.items {
		for name, r := range items {
			if r.round == c.round || r.version > listedAt {
				continue
			}
			at := types.NamespacedName{Namespace: ns, Name: name}
			c.lose(at)
			c.notifyLater(at, notification{changed: true})
		}
	}
	told := c.pending
	c.pending = nil
	c.begin()
	c.over = nil
	c.sync()
	return told, nil
}

// begin begins a round: nothing of a list has been shown. The lock must be held.
func (c *copies) begin() {
	c.round++
	c.first, c.streamed = true, false
}

// begins is told that a list, or a watch that is one, begins. It returns an error if
// that is to wait.
func (c *copies) begins() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle() {
		return c.why()
	}
	c.begin()
	return nil
}

// why is the error of what is not done as nothing is to be known of the copies. The lock must be held.
func (c *copies) why() error {
	if c.over != nil {
		return c.over
	}
	return errLeft
}

// watches is told how to end a watch that begins. It returns an error if that is to wait.
func (c *copies) watches(end context.CancelFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle() {
		return c.why()
	}
	if c.unwatch != nil {
		c.unwatch() // It has ended.
	}
	c.unwatch = end
	return nil
}

// note sees what a list shows. The lock must be held.
func (c *copies) note(s *copyEvent) error {
	n, err := c.onEvent(s, c.round)
	if err != nil {
		c.giveUp(err)
		return err
	}
	c.notifyLater(s.name, n)
	return nil
}

// notifyLater has it told later that something is new of a copy. The lock must be held.
func (c *copies) notifyLater(name types.NamespacedName, n notification) {
	if n == (notification{}) {
		return
	}
	if c.pending == nil {
		c.pending = map[types.NamespacedName]notification{}
	}
	before := c.pending[name]
	c.pending[name] = notification{n.changed || before.changed, n.readied || before.readied}
}

// show takes what a page of a list has, which was made at a version.
func (c *copies) show(page []*copyEvent, listedAt uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle() {
		return c.why()
	}
	if c.first {
		c.setBack(listedAt)
		c.first = false
	}
	for _, s := range page {
		if err := c.note(s); err != nil {
			return err
		}
	}
	return nil
}

// setBack is told which version a list is of, and reports whether that is an older one
// than before: what was newer is not. The lock must be held.
func (c *copies) setBack(listedAt uint64) bool {
	older := listedAt < c.seenAt
	c.seenAt = listedAt
	if older {
		for _, items := range c.items {
			for _, r := range items {
				r.version = 0
			}
		}
	}
	return older
}

// Transformer takes what a watch shows that begins with a list, while that is under way.
// Nothing of it is kept elsewhere.
func (c *copies) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		s := c.copyEventOf(obj)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.streamed = true
		switch {
		case c.idle():
		case s == nil: // What keeps its name does not ask whether it can be one.
			c.giveUp(c.excess("bytes of a name", mostName))
		default:
			_ = c.note(s) // If there is no room the watch ends.
		}
		return shown{}, nil
	}
}

// shown stands for a copy that was shown.
type shown struct{}

// onError is told how a list or watch went. A type that the member does not serve
// has no copies: that is known, too.
func (c *copies) onError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	switch {
	case err == nil:
		c.missed = false
	case apierrors.IsNotFound(err):
		c.over = nil
		c.sync()
	}
}

// miss is told that the member does not serve the type, and reports whether that is news.
func (c *copies) miss() (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news = !c.missed
	c.missed = true
	return news
}

func (c *copies) listError() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.err
}

// sync marks the copies as known. The lock must be held.
func (c *copies) sync() {
	if !c.hasSynced() {
		close(c.synced)
	}
}

// Resync is called by the reflector; there is nothing to do.
func (c *copies) Resync() error { return nil }

// copyEvent is what a list or watch says of a copy. A copy of a type with a status
// has no Readiness if its metadata alone was seen.
type copyEvent struct {
	Copy

	name     types.NamespacedName
	managers []metav1.ManagedFieldsEntry
}

// copyEventOf reads what a reflector got; nil for what is no object.
func (c *copies) copyEventOf(obj any) *copyEvent {
	var s *copyEvent
	switch o := obj.(type) {
	case *metav1.PartialObjectMetadata:
		s = &copyEvent{Copy: c.copyOf(o, c.gvr.GroupResource()), name: nameOf(o), managers: o.ManagedFields}
	case *unstructured.Unstructured:
		s = &copyEvent{Copy: c.copyOf(o, c.gvr.GroupResource()), name: nameOf(o)}
		if s.Fault == "" {
			s.Readiness, s.ReadinessMessage = c.readinessOf(o)
			s.managers = o.GetManagedFields()
		}
	default:
		return nil
	}
	if !isName(s.name.Name) || len(s.name.Namespace) > mostNamespace {
		return nil // No API server has such an object.
	}
	size := 0
	for i := range s.managers {
		size += len(s.managers[i].Manager)
		if fields := s.managers[i].FieldsV1; fields != nil {
			size += len(fields.GetRawBytes())
		}
	}
	if size > mostManagers {
		s.managers = nil
	}
	return s
}

// mostName is how many bytes the name of an object may have, and mostNamespace that of a
// namespace: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
const (
	mostName      = 253
	mostNamespace = 63
)

// isName reports whether an object can have the name.
func isName(name string) bool { return name != "" && len(name) <= mostName }

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// copyOf is [copyOf] for what cannot be read, too.
func (h hooks) copyOf(o metav1.Object, resource schema.GroupResource) Copy {
	c, err := h.read(o, resource)
	if err != nil {
		c = Copy{Fault: output.Cut(err.Error(), mostMessage), version: number(o.GetResourceVersion())}
		if uid := o.GetUID(); len(uid) <= mostMark {
			c.UID = uid
		}
	}
	return c
}

func (h hooks) read(o metav1.Object, resource schema.GroupResource) (c Copy, err error) {
	defer rescue.To(&err, h.log, "reading a copy", "resource", resource.String(), "namespace", o.GetNamespace(), "name", o.GetName())
	c = copyOf(o, resource, h.account)
	for at, mark := range map[string]string{
		"metadata.uid": string(c.UID), refractv1alpha1.SourceAnnotation: c.Source, refractv1alpha1.NamespaceAnnotation: c.MadeFor,
		refractv1alpha1.AppliedAnnotation: c.Hash, refractv1alpha1.OrphanAnnotation: c.Orphan,
	} {
		if len(mark) > mostMark {
			return Copy{}, fmt.Errorf("%s: want at most %d bytes, got %d", at, mostMark, len(mark))
		}
	}
	return c, nil
}

// copyOf reads an object's metadata. The account is that of the member, or nil if nothing of
// it will be kept.
func copyOf(o metav1.Object, resource schema.GroupResource, account *account) Copy {
	annotations := o.GetAnnotations()
	c := Copy{
		UID:        o.GetUID(),
		Source:     annotations[refractv1alpha1.SourceAnnotation],
		MadeFor:    annotations[refractv1alpha1.NamespaceAnnotation],
		Hash:       annotations[refractv1alpha1.AppliedAnnotation],
		Orphan:     annotations[refractv1alpha1.OrphanAnnotation],
		Adopted:    annotations[refractv1alpha1.AdoptedAnnotation] == "true",
		Native:     placement.Native(resource, o) != "",
		Deleting:   o.GetDeletionTimestamp() != nil,
		Owned:      ours(o.GetManagedFields(), account),
		generation: o.GetGeneration(),
		version:    number(o.GetResourceVersion()),
	}
	switch {
	case c.Deleting:
		c.Readiness, c.ReadinessMessage = refractv1alpha1.ReadinessInProgress, isGoing
	case !hasStatus(resource):
		c.Readiness = refractv1alpha1.ReadinessReady
	}
	return c
}

// number reads a resourceVersion: zero only if the server breaks its own contract.
func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

// record is a Copy as it is kept: some 150 bytes, and strings that it shares with
// others.
type record struct {
	uid        uid
	source     origin
	madeFor    text
	hash       text
	orphan     text
	message    text
	fault      text
	owned      Ownership
	generation int64
	version    uint64
	round      uint32 // Of the last list that has shown it.
	readiness  uint8  // Index of readinesses.
	adopted    bool
	native     bool
	deleting   bool
	doubted    bool
}

// What a record takes without its strings, with its place in the map, and what a map of
// a namespace takes.
const (
	recordBytes    = 200
	namespaceBytes = 300
)

// bytes is what the record takes, as if no other had the same strings.
func (r *record) bytes() int {
	return recordBytes + r.uid.other.bytes() + r.source.bytes() +
		r.madeFor.bytes() + r.hash.bytes() + r.orphan.bytes() + r.message.bytes() + r.fault.bytes()
}

var readinesses = [...]refractv1alpha1.Readiness{
	refractv1alpha1.ReadinessUnknown, refractv1alpha1.ReadinessReady, refractv1alpha1.ReadinessInProgress, refractv1alpha1.ReadinessFailed,
}

// ready sets the readiness and reports whether it was another.
func (r *record) ready(readiness refractv1alpha1.Readiness, message string) (changed bool) {
	before, said := r.readiness, r.message
	r.readiness, r.message = 0, intern(message)
	for i, one := range readinesses {
		if one == readiness {
			r.readiness = uint8(i)
		}
	}
	return before != r.readiness || said != r.message
}

func recordOf(key Key, c *Copy) *record {
	r := &record{
		uid:        uidOf(c.UID),
		source:     originOf(key, c.Source),
		madeFor:    intern(c.MadeFor),
		hash:       intern(c.Hash),
		orphan:     intern(c.Orphan),
		fault:      intern(c.Fault),
		owned:      c.Owned,
		generation: c.generation,
		version:    c.version,
		adopted:    c.Adopted,
		native:     c.Native,
		deleting:   c.Deleting,
		doubted:    c.Doubted,
	}
	r.ready(c.Readiness, c.ReadinessMessage)
	return r
}

func (r *record) copy(key Key) Copy {
	return Copy{
		UID:              r.uid.String(),
		Source:           r.source.of(key),
		MadeFor:          r.madeFor.String(),
		Hash:             r.hash.String(),
		Orphan:           r.orphan.String(),
		Fault:            r.fault.String(),
		Adopted:          r.adopted,
		Native:           r.native,
		Deleting:         r.deleting,
		Owned:            r.owned,
		Doubted:          r.doubted,
		Readiness:        readinesses[r.readiness],
		ReadinessMessage: r.message.String(),
		generation:       r.generation,
		version:          r.version,
	}
}

// origin is the annotation that names a copy's source. As it ends with the name
// of the copy itself, its beginning suffices.
type origin struct {
	hub    text // Or the whole, if it is not of that form.
	object uid
	short  bool
}

// bytes is what the origin takes beside itself. The hub is that of all copies, as a rule.
func (s origin) bytes() int {
	if !s.short {
		return s.hub.bytes()
	}
	const shared = 64
	return shared + len(s.hub.String()) + s.object.other.bytes()
}

func originOf(key Key, s string) origin {
	if start, ok := strings.CutSuffix(s, ending(key)); ok {
		if hub, object, ok := strings.Cut(start, "/"); ok {
			return origin{hub: intern(hub), object: uidOf(types.UID(object)), short: true}
		}
	}
	return origin{hub: intern(s)}
}

func (s origin) of(key Key) string {
	if !s.short {
		return s.hub.String()
	}
	return s.hub.String() + "/" + string(s.object.String()) + ending(key)
}

// ending is what refractv1alpha1.SourceAnnotation ends with.
func ending(key Key) string {
	return "/" + key.GroupResource.String() + "/" + key.Namespace + "/" + key.Name
}

// uid is a UID in 24 bytes.
type uid struct {
	bytes [16]byte
	other text // A UID that is not written as all API servers write it.
}

func uidOf(id types.UID) uid {
	var u uid
	if len(id) == 36 {
		digits := id[:8] + id[9:13] + id[14:18] + id[19:23] + id[24:]
		if _, err := hex.Decode(u.bytes[:], []byte(digits)); err == nil && u.String() == id {
			return u
		}
	}
	return uid{other: intern(string(id))}
}

// String returns the UID as the API server wrote it.
func (u uid) String() types.UID {
	if u.other != (text{}) || u.bytes == [16]byte{} {
		return types.UID(u.other.String())
	}
	var b [36]byte
	for i, at := range [...]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34} {
		hex.Encode(b[at:at+2], u.bytes[i:i+1])
	}
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return types.UID(b[:])
}
