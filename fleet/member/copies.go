package member

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// managed selects the copies on a member.
const managed = corev1alpha1.ManagedLabel + "=true"

// Copies are the managed objects of a member. Watches and the answers to writes keep them up to date. [unwatched]
// covers types without a watch. The zero Copies has no copies.
type Copies struct {
	api       *connection
	decode    decoder
	watches   watches
	unwatched unwatched
	versions  versions
}

func newCopies(member string, api *connection, decode decoder, o observer) *Copies {
	return &Copies{
		api: api, decode: decode,
		watches:   watches{member: member, api: api, decode: decode, observer: o, all: map[schema.GroupResource]*typeWatch{}},
		unwatched: unwatched{await: o.awaited, refused: map[schema.GroupResource]refusal{}, without: map[schema.GroupResource]bool{}},
	}
}

// Get returns a copy. The [Lookup] says whether the copy exists, or that this is not known.
func (c *Copies) Get(key Key) (Copy, Lookup) {
	s, u := c.of(key.GroupResource)
	if s != nil {
		return s.look(key.NamespacedName)
	}
	if u.unswept {
		c.unwatched.wait()
	}
	if u.mayHave {
		return Copy{}, Unlisted
	}
	return Copy{}, Unwatched
}

// ListError returns the error of the last list of the copies of a type. It is nil if the list succeeded or was not made
// yet.
func (c *Copies) ListError(resource schema.GroupResource) error {
	s, u := c.of(resource)
	if s != nil {
		return s.listError()
	}
	return u.err
}

// Swept reports whether the last requested search of all types of the member for copies has ended, even with an error.
// Before its end, the number of copies is not known. If Swept returns false, it gives this search priority.
func (c *Copies) Swept() bool {
	if c.unwatched.looked() {
		return true
	}
	c.unwatched.wait()
	return false
}

// complete reports whether all copies of the types that the credentials may list are known.
func (c *Copies) complete() bool {
	return c.unwatched.complete() && !slices.ContainsFunc(c.watches.stores(), func(s *store) bool { return !s.complete() })
}

// doubts reports whether types without a known result may have copies, and the next search for them is due.
func (c *Copies) doubts() bool {
	return c.unwatched.doubts(c.watches.anyRests(), c.versions.some())
}

// known reports whether a type is watched, or was found to have no copies.
func (c *Copies) known(resource schema.GroupResource) bool {
	return c.unwatched.knowsNone(resource) || c.watches.store(resource) != nil
}

// of returns the copies of a type, or the [doubt] about a type without a watch. It reads the watches twice, because a
// watch may begin meanwhile. So a type with copies never counts as a type without copies.
func (c *Copies) of(resource schema.GroupResource) (*store, doubt) {
	if s := c.watches.store(resource); s != nil {
		return s, doubt{}
	}
	u := c.unwatched.of(resource)
	return c.watches.store(resource), u
}

// Resource returns the watched version of a type; ok is false if the type is not watched.
func (c *Copies) Resource(resource schema.GroupResource) (gvr schema.GroupVersionResource, ok bool) {
	s := c.watches.store(resource)
	if s == nil {
		return gvr, false
	}
	return s.gvr, true
}

// Unserved reports whether a list of copies has shown that the member does not serve a version of a type.
func (c *Copies) Unserved(gvr schema.GroupVersionResource) bool {
	s := c.watches.store(gvr.GroupResource())
	return s != nil && s.gvr == gvr && apierrors.IsNotFound(s.listError())
}

// Rediscover requests another discovery of the member's types soon.
func (c *Copies) Rediscover() { c.unwatched.await() }

// Count returns the number of known copies.
func (c *Copies) Count() int {
	n := 0
	for _, s := range c.watches.stores() {
		n += s.len()
	}
	return n
}

// InNamespace returns the number of known copies in a namespace.
func (c *Copies) InNamespace(ns string) int {
	n := 0
	for _, s := range c.watches.stores() {
		n += s.inNamespace(ns)
	}
	return n
}

// Each calls f for every known copy, in no order, until f returns false.
func (c *Copies) Each(f func(Key, Copy) bool) {
	for _, s := range c.watches.stores() {
		if !s.each(f) {
			return
		}
	}
}

// ConflictingManager returns the field manager that has changed or removed fields of Refract in a copy since the last
// write of Refract; "" if there is none, or if it is not known.
func (c *Copies) ConflictingManager(key Key) string {
	if s := c.watches.store(key.GroupResource); s != nil {
		return s.conflictingManager(key.NamespacedName)
	}
	return ""
}

// newest returns the newest resourceVersion that a list or watch of any type has shown. Types with a separate storage
// have unrelated resourceVersions. If their versions are newer, Refract may reconnect to a member unnecessarily after
// an outage, which is harmless.
func (c *Copies) newest() uint64 {
	var newest uint64
	for _, s := range c.watches.stores() {
		newest = max(newest, s.newest())
	}
	return newest
}

// Apply writes the body by server-side apply, with force, in one request. It remembers the answer for [Copies.Get].
func (c *Copies) Apply(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, body []byte) error {
	got, err := c.api.patch(ctx, gvr, name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: FieldManager, Force: new(true)})
	if err != nil {
		return err
	}
	c.watches.resume(gvr) //nolint:contextcheck // The watch lives as long as the member.
	c.remember(Key{gvr.GroupResource(), name}, c.decode.copyOf(got, gvr.GroupResource()), true)
	return nil
}

// Delete begins the deletion of the copy with this UID. Found is false, without an error, if there is no such copy.
func (c *Copies) Delete(ctx context.Context, key Key, uid types.UID) (found bool, err error) {
	gvr, watched := c.Resource(key.GroupResource)
	if !watched {
		return false, nil
	}
	return c.api.delete(ctx, gvr, key.NamespacedName, metav1.Preconditions{UID: &uid})
}

// Watch begins to watch the copies of a type, unless the type is watched already in a version that the member serves.
// It returns a channel that is closed after the first list.
func (c *Copies) Watch(gvr schema.GroupVersionResource) <-chan struct{} {
	synced := c.watches.watch(gvr)
	c.unwatched.accept(gvr.GroupResource())
	return synced
}

// Miss reports that a type may have a copy that must be deleted. If the right to list the type is missing, Miss begins
// to watch the type. Then the status of the cluster names the missing right, and Refract soon notices when the right is
// granted.
func (c *Copies) Miss(resource schema.GroupResource) {
	if gvr, refused := c.unwatched.refusedIn(resource); refused {
		c.Watch(gvr)
	}
}

// Remember records an object that was read, for [Copies.Get].
func (c *Copies) Remember(key Key, item Copy) { c.remember(key, item, false) }

// RememberWritten is [Copies.Remember] for an object that a read has found after an [Copies.Apply] without an answer.
// The object has the applied content, so it counts as the answer.
func (c *Copies) RememberWritten(key Key, item Copy) {
	c.remember(key, item, true)
	c.api.breaker.note(writeScope{}, nil)
}

func (c *Copies) remember(key Key, item Copy, written bool) {
	if s := c.watches.store(key.GroupResource); s != nil {
		s.remember(key.NamespacedName, item, written)
	}
}

// Forget records that the object does not exist, for [Copies.Get].
func (c *Copies) Forget(key Key) {
	if s := c.watches.store(key.GroupResource); s != nil {
		s.forget(key.NamespacedName)
	}
}

// reviewRights checks whether missing rights have been granted since.
func (c *Copies) reviewRights(ctx context.Context) {
	missing := c.api.rights.all()
	for _, a := range missing[:min(len(missing), rightsAsked)] {
		s := c.watches.store(a.resource)
		gone := s != nil && !c.api.serves(ctx, s.gvr) // The type was being removed when the right was refused.
		if !gone && !c.api.may(ctx, a) {
			continue
		}
		c.api.rights.granted(a)
		if _, refused := c.unwatched.refusedIn(a.resource); refused {
			c.Rediscover() // A right to list the type may have been granted at the same time.
		}
		if s != nil && a.namespace == "" && apierrors.IsForbidden(s.listError()) {
			c.watches.again(s) //nolint:contextcheck // The watch lives as long as the member.
		}
	}
}
