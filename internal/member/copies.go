package member

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
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

	excess func(what string, limit int) error // There is too much of something; it returns the error to fail with.
	log    logr.Logger                        // Told of answers that Refract stumbles over.
}

// copies are the managed objects of one type on one member: a store that a
// reflector keeps up to date.
type copies struct {
	gvr  schema.GroupVersionResource
	stop context.CancelFunc // Of the reflector; guarded by the lock of the member.
	hooks

	mu     sync.RWMutex
	synced chan struct{} // Closed after the first list.
	// items are by namespace and name.
	items map[string]map[string]*record
	count int
	// culprits are the managers that changed copies which are not corrected yet.
	culprits map[types.NamespacedName]string
	seenAt   uint64 // The newest version that a list or watch told of.
	err      error  // Of the last list or watch.
	streamed int    // Objects that the watch has begun with which is a list.
}

func newCopies(gvr schema.GroupVersionResource, h hooks) *copies {
	return &copies{
		gvr:      gvr,
		hooks:    h,
		synced:   make(chan struct{}),
		items:    map[string]map[string]*record{},
		culprits: map[types.NamespacedName]string{},
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

func (c *copies) culprit(name types.NamespacedName) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.culprits[name]
}

// news is what is different about a copy.
type news struct{ changed, readied bool }

func (n news) tell(h hooks, key Key) {
	if n.changed {
		h.changed(key)
	}
	if n.readied {
		h.readied(key)
	}
}

// see keeps what a list or watch says unless something newer is known: the answer
// to our own write comes before the event of the watch, and an older event may
// come after it. The lock must be held.
func (c *copies) see(s *sighting) news {
	before, ok := c.items[s.name.Namespace][s.name.Name]
	switch {
	case ok && before.version > s.version:
		return news{}
	case ok && before.version == s.version:
		// The answer to a write does not have the status.
		return news{readied: s.Readiness != "" && before.ready(s.Readiness, s.ReadinessMessage)}
	}
	if ok && before.uid == uidOf(s.UID) && before.owned == s.Owned && s.Owned.unsigned(s.managers, before.generation != s.generation) {
		s.Hash = "" // Whatever it was applied with, it may not be that any more: to write it again tells.
	}
	if ok && before.uid == uidOf(s.UID) {
		s.Doubted = before.doubted || c.regained(before.owned, s)
	}
	n := c.set(s.name, s.Copy, before)
	if ok && before.owned != s.Owned && before.uid == uidOf(s.UID) && before.hash == intern(s.Hash) {
		if who, is := c.blame(before.owned, s); is {
			c.culprits[s.name] = who
		}
	}
	return n
}

// regained reports whether Refract owns what it did not, or at another time. By what
// others do to fields it only loses them. So this is a write of our own, whose answer
// is still to come and ends the doubt; or somebody has written down who manages what,
// as anybody may who writes the object.
func (c *copies) regained(before Ownership, s *sighting) (is bool) {
	var err error
	defer rescue.To(&err, c.log, "reading what is owned of a copy", "resource", c.gvr.Resource, "copy", s.name.String())
	return before != s.Owned && s.Owned.gained(before)
}

// blame names who took fields from Refract; is says that somebody did.
func (c *copies) blame(before Ownership, s *sighting) (who string, is bool) {
	var err error
	defer rescue.To(&err, c.log, "reading who changed a copy", "resource", c.gvr.Resource, "copy", s.name.String())
	lost := before.without(s.Owned)
	if lost.Empty() {
		return "", false
	}
	return cut(culprit(lost, s.managers)), true
}

// remember keeps what was read, or answered to a write, unless something newer is
// known.
func (c *copies) remember(name types.NamespacedName, item Copy, written bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if written {
		delete(c.culprits, name)
	}
	before, ok := c.items[name.Namespace][name.Name]
	if ok && before.version > item.version {
		return
	}
	item.Doubted = ok && !written && before.doubted && before.uid == uidOf(item.UID)
	c.set(name, item, before)
}

// set puts the item in the place of what was there before, if anything was. The lock must be held.
func (c *copies) set(name types.NamespacedName, item Copy, before *record) news {
	after := recordOf(c.key(name), &item)
	if item.Readiness == "" {
		if before != nil && before.uid == after.uid && before.generation == after.generation {
			after.readiness, after.message = before.readiness, before.message
		} else {
			after.ready(refractv1alpha1.ReadinessInProgress, notSeenYet)
		}
	}
	items := c.items[name.Namespace]
	if items == nil {
		items = map[string]*record{}
		c.items[name.Namespace] = items
	}
	items[name.Name] = after
	if before == nil {
		c.count++
		return news{changed: true, readied: true}
	}
	return news{
		changed: before.uid != after.uid || before.source != after.source || before.hash != after.hash || before.owned != after.owned ||
			before.orphan != after.orphan || before.adopted != after.adopted || before.native != after.native || before.deleting != after.deleting ||
			before.fault != after.fault || before.doubted != after.doubted,
		readied: before.readiness != after.readiness || before.message != after.message,
	}
}

func (c *copies) drop(name types.NamespacedName, id types.UID) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	items := c.items[name.Namespace]
	if before, ok := items[name.Name]; !ok || before.uid != uidOf(id) {
		return false
	}
	delete(items, name.Name)
	if len(items) == 0 {
		delete(c.items, name.Namespace)
	}
	delete(c.culprits, name)
	c.count--
	return true
}

// Add is called by the reflector.
func (c *copies) Add(obj any) error {
	s := c.sight(obj)
	if s == nil {
		return nil
	}
	n, err := c.take(s)
	if err != nil {
		return err
	}
	n.tell(c.hooks, c.key(s.name))
	return nil
}

func (c *copies) take(s *sighting) (news, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seenAt = max(c.seenAt, s.version)
	if c.count >= mostCopies && c.items[s.name.Namespace][s.name.Name] == nil {
		c.err = c.excess("copies of one type", mostCopies)
		return news{}, c.err
	}
	return c.see(s), nil
}

// Update is called by the reflector.
func (c *copies) Update(obj any) error { return c.Add(obj) }

// Delete is called by the reflector, also for a copy that lost its label.
func (c *copies) Delete(obj any) error {
	s := c.sight(obj)
	if s != nil && c.drop(s.name, s.UID) {
		c.changed(c.key(s.name))
	}
	return nil
}

// Replace is called by the reflector with the result of a list. What was written
// since the list was made is not in it, and stays.
func (c *copies) Replace(list []any, version string) error {
	for name, n := range c.replace(list, number(version)) {
		n.tell(c.hooks, c.key(name))
	}
	return nil
}

func (c *copies) replace(list []any, listedAt uint64) map[types.NamespacedName]news {
	told := map[types.NamespacedName]news{}
	c.mu.Lock()
	defer c.mu.Unlock()
	if listedAt < c.seenAt {
		c.setBack()
	}
	c.seenAt = listedAt
	listed := make(map[types.NamespacedName]bool, len(list))
	for _, obj := range list {
		if s := c.sight(obj); s != nil {
			listed[s.name] = true
			if n := c.see(s); n != (news{}) {
				told[s.name] = n
			}
		}
	}
	for ns, items := range c.items {
		for name, r := range items {
			at := types.NamespacedName{Namespace: ns, Name: name}
			if listed[at] || r.version > listedAt {
				continue
			}
			delete(items, name)
			delete(c.culprits, at)
			c.count--
			told[at] = news{changed: true}
		}
		if len(items) == 0 {
			delete(c.items, ns)
		}
	}
	c.sync()
	return told
}

// setBack is for an API server that was set back to an old state: what was newer
// is not. The lock must be held.
func (c *copies) setBack() {
	for _, items := range c.items {
		for _, r := range items {
			r.version = 0
		}
	}
}

// Transformer keeps what a watch brings small that begins with a list, while that is
// under way.
func (c *copies) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		s := c.condense(obj)
		if s == nil {
			return obj, nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.streamed++; c.streamed > mostCopies {
			return nil, c.excess("copies of one type", mostCopies)
		}
		return s, nil
	}
}

// begins is told that a list, or a watch that is one, begins.
func (c *copies) begins() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streamed = 0
}

// condense is sight for one of many objects: who manages its fields is kept only if
// somebody seems to have taken one.
func (c *copies) condense(obj any) *sighting {
	s := c.sight(obj)
	if s == nil {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if before := c.items[s.name.Namespace][s.name.Name]; before == nil || before.owned == s.Owned {
		s.managers = nil
	}
	return s
}

// heard is told how a list or watch went. A type that the member does not serve
// has no copies: that is known, too.
func (c *copies) heard(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	if apierrors.IsNotFound(err) {
		c.sync()
	}
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

// sighting is what a list or watch says of a copy. A copy of a type with a status
// has no Readiness if its metadata alone was seen.
type sighting struct {
	Copy

	name     types.NamespacedName
	managers []metav1.ManagedFieldsEntry
}

// sight reads what a reflector got; nil for what is no object.
func (c *copies) sight(obj any) *sighting {
	var s *sighting
	switch o := obj.(type) {
	case *sighting:
		return o
	case *metav1.PartialObjectMetadata:
		s = &sighting{Copy: c.copyOf(o, c.gvr.GroupResource()), name: nameOf(o), managers: o.ManagedFields}
	case *unstructured.Unstructured:
		s = &sighting{Copy: c.copyOf(o, c.gvr.GroupResource()), name: nameOf(o)}
		if s.Fault == "" {
			s.Readiness, s.ReadinessMessage = c.readinessOf(o)
			s.managers = o.GetManagedFields()
		}
	default:
		return nil
	}
	if !isName(s.name.Name) || (s.name.Namespace != "" && !isName(s.name.Namespace)) {
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

// isName reports whether an object can have the name.
func isName(name string) bool {
	const most = 253 // https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
	return name != "" && len(name) <= most
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// copyOf is [copyOf] for what cannot be read, too.
func (h hooks) copyOf(o metav1.Object, resource schema.GroupResource) Copy {
	c, err := h.read(o, resource)
	if err != nil {
		c = Copy{Fault: cut(err.Error()), version: number(o.GetResourceVersion())}
		if uid := o.GetUID(); len(uid) <= mostMark {
			c.UID = uid
		}
	}
	return c
}

func (h hooks) read(o metav1.Object, resource schema.GroupResource) (c Copy, err error) {
	defer rescue.To(&err, h.log, "reading a copy", "resource", resource.String(), "namespace", o.GetNamespace(), "name", o.GetName())
	c = copyOf(o, resource)
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

// copyOf reads an object's metadata.
func copyOf(o metav1.Object, resource schema.GroupResource) Copy {
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
		Owned:      ours(o.GetManagedFields()),
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

// record is a Copy as it is kept: some 100 bytes, and strings that it shares with
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
	readiness  uint8 // Index of readinesses.
	adopted    bool
	native     bool
	deleting   bool
	doubted    bool
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
