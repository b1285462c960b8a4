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

// Copies are the managed objects of a member: what is known of them, kept up to date by watches, and
// the writes that are remembered with it. Of types that are not watched [unwatched] knows. The zero Copies
// know of nothing.
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
		unwatched: unwatched{await: o.awaited, refused: map[schema.GroupResource]error{}, without: map[schema.GroupResource]bool{}},
	}
}

// Get returns what is known of a copy.
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

// ListError returns why copies of a type could not be listed the last time; nil
// if they could, or were not yet asked for.
func (c *Copies) ListError(resource schema.GroupResource) error {
	s, u := c.of(resource)
	if s != nil {
		return s.listError()
	}
	return u.err
}

// Swept reports whether all types of the member were looked at for copies, as far as
// they could be. Before that nobody knows how many there are. If not, that is done next.
func (c *Copies) Swept() bool {
	if c.unwatched.looked() {
		return true
	}
	c.unwatched.wait()
	return false
}

// complete reports whether the copies of all types are known that the credentials
// may list.
func (c *Copies) complete() bool {
	return c.unwatched.complete() && !slices.ContainsFunc(c.watches.stores(), func(s *store) bool { return !s.complete() })
}

// doubts reports whether there may be copies of types that are not known, and it
// is time to look.
func (c *Copies) doubts() bool {
	return c.unwatched.doubts(c.watches.anyRests(), c.versions.some())
}

// known reports whether a type is watched, or was found to have no copies.
func (c *Copies) known(resource schema.GroupResource) bool {
	return c.unwatched.knowsNone(resource) || c.watches.store(resource) != nil
}

// of returns the copies of a type, or what is known of one that is not watched. What begins to be
// watched meanwhile is: nobody takes a type of which there are copies for one without.
func (c *Copies) of(resource schema.GroupResource) (*store, doubt) {
	if s := c.watches.store(resource); s != nil {
		return s, doubt{}
	}
	u := c.unwatched.of(resource)
	return c.watches.store(resource), u
}

// Resource returns in which version the copies of a type are watched; ok is false
// if they are not.
func (c *Copies) Resource(resource schema.GroupResource) (gvr schema.GroupVersionResource, ok bool) {
	s := c.watches.store(resource)
	if s == nil {
		return gvr, false
	}
	return s.gvr, true
}

// Unserved reports whether the member was found not to serve a version of a type, when its copies were to be listed.
func (c *Copies) Unserved(gvr schema.GroupVersionResource) bool {
	s := c.watches.store(gvr.GroupResource())
	return s != nil && s.gvr == gvr && apierrors.IsNotFound(s.listError())
}

// Rediscover has the member asked soon which types it serves.
func (c *Copies) Rediscover() { c.unwatched.await() }

// Count returns how many copies there are, as far as it is known.
func (c *Copies) Count() int {
	n := 0
	for _, s := range c.watches.stores() {
		n += s.len()
	}
	return n
}

// InNamespace returns how many copies there are in a namespace.
func (c *Copies) InNamespace(ns string) int {
	n := 0
	for _, s := range c.watches.stores() {
		n += s.inNamespace(ns)
	}
	return n
}

// Each calls f for every copy that is known, in no order, until it returns false.
func (c *Copies) Each(f func(Key, Copy) bool) {
	for _, s := range c.watches.stores() {
		if !s.each(f) {
			return
		}
	}
}

// ConflictingManager returns the field manager that changed or removed fields of ours in a
// copy since it was last written; "" if nobody did, or it is not known.
func (c *Copies) ConflictingManager(key Key) string {
	if s := c.watches.store(key.GroupResource); s != nil {
		return s.conflictingManager(key.NamespacedName)
	}
	return ""
}

// newest is the newest version that a list or watch of any type told of. If a type is
// stored elsewhere than the others, its versions have nothing to do with theirs: then
// the member is taken up anew without need, which does no harm if it was away.
func (c *Copies) newest() uint64 {
	var newest uint64
	for _, s := range c.watches.stores() {
		newest = max(newest, s.newest())
	}
	return newest
}

// Apply writes the body by server-side apply and forces the fields in it. It is
// one request. The answer is remembered for [Copies.Get].
func (c *Copies) Apply(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, body []byte) error {
	got, err := c.api.patch(ctx, gvr, name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: FieldManager, Force: new(true)})
	if err != nil {
		return err
	}
	c.watches.resume(gvr) //nolint:contextcheck // The watch lives as long as the member.
	c.remember(Key{gvr.GroupResource(), name}, c.decode.copyOf(got, gvr.GroupResource()), true)
	return nil
}

// Delete begins the deletion of the copy with this UID. Found is false, and there
// is no error, if the copy is not there, or another object in its place.
func (c *Copies) Delete(ctx context.Context, key Key, uid types.UID) (found bool, err error) {
	gvr, watched := c.Resource(key.GroupResource)
	if !watched {
		return false, nil
	}
	return c.api.delete(ctx, gvr, key.NamespacedName, metav1.Preconditions{UID: &uid})
}

// Watch begins to watch the copies of a type, unless it is watched already in a
// version that the member serves, and returns a channel that is closed when they have been listed once.
func (c *Copies) Watch(gvr schema.GroupVersionResource) <-chan struct{} {
	synced := c.watches.watch(gvr)
	c.unwatched.accept(gvr.GroupResource())
	return synced
}

// Remember records what was read of an object, for [Copies.Get].
func (c *Copies) Remember(key Key, item Copy) { c.remember(key, item, false) }

// RememberWritten is [Copies.Remember] of what was found written by [Copies.Apply] without an answer: it is taken for the answer.
func (c *Copies) RememberWritten(key Key, item Copy) {
	c.remember(key, item, true)
	c.api.breaker.note(writeScope{}, nil)
}

func (c *Copies) remember(key Key, item Copy, written bool) {
	if s := c.watches.store(key.GroupResource); s != nil {
		s.remember(key.NamespacedName, item, written)
	}
}

// Forget records that the object is not there, for [Copies.Get].
func (c *Copies) Forget(key Key) {
	if s := c.watches.store(key.GroupResource); s != nil {
		s.forget(key.NamespacedName)
	}
}

// reviewRights asks whether what was missing has been granted since.
func (c *Copies) reviewRights(ctx context.Context) {
	missing := c.api.rights.all()
	for _, a := range missing[:min(len(missing), rightsAsked)] {
		s := c.watches.store(a.resource)
		gone := s != nil && !c.api.serves(ctx, s.gvr) // It was just going when the right was refused.
		if !gone && !c.api.may(ctx, a) {
			continue
		}
		c.api.rights.granted(a)
		if s != nil && a.namespace == "" && apierrors.IsForbidden(s.listError()) {
			c.watches.again(s) //nolint:contextcheck // The watch lives as long as the member.
		}
	}
}
