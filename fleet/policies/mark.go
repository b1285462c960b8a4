package policies

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/rescue"
)

const (
	// storing is the longest time from the admission of an object until the API server stores it: the longest timeout
	// of another webhook, and a reserve.
	storing = 35 * time.Second
	// writing is the longest time from the first check that finds a policy stored until its mark is written.
	writing = 20 * time.Second
	// soonest and latest are the shortest and the longest interval between two checks of a claim.
	soonest, latest = 10 * time.Millisecond, time.Second
	// settling is the time between the claim of references and the mark. The other replicas remove references in this
	// time. Each replica checks at least every second.
	settling = 3 * time.Second
	// heeded is the longest time from the registration of a webhook until every API server calls it.
	heeded = 3 * time.Second
	// The memory of a claim is measured in pieces: one for the claim, and one for every fewReferences references. The
	// claims of one namespace may have mostPending pieces, those of all namespaces mostAwaited.
	mostPending, mostAwaited = 60, 600
	fewReferences            = 50
	// recent is the time after the last review in which the claim of a change is never dropped.
	recent = 2 * time.Second
	// mostSpent is the maximum length of marker.spent.
	mostSpent = 20_000
	// longestName is the longest name of an object. A longer name refers to no object.
	longestName = 253
	// longestApproval is the longest approval that is recorded unchanged. A longer one is recorded as its digest.
	longestApproval = 64
)

// marker writes the mark of a policy: the references that the author of the policy may use. The mark is in the status,
// because the author cannot write the status. During the review the policy is not stored yet, so the mark is written a
// moment later. If the process ends before this, the policy has no mark. Then the references that the policy adds are
// not propagated until a user approves them.
//
// Any client that reaches the webhook can send forged reviews. But the API server sends a review of every write before
// it stores the policy, and until then no client knows the UID of a new policy. So marks follow these rules:
//   - A review leads to a mark only if the write is not stored yet at the end of the review. A later review cannot come
//     from the API server.
//   - All reviews of the same write share one mark. The mark has only the references that every review allows. So a
//     forged review from an earlier time, when other objects existed, adds nothing to the review of the API server.
//   - A mark only shrinks: a later mark for the same generation and approval may remove references, but not add any.
//
// A replica does not know the reviews that the other replicas received. So for a change, each replica first writes its
// references as claimed, which has no effect yet. A replica removes the claimed references of the others that it has
// not claimed itself. The remaining references become the mark after a moment. See docs/design/overrides.md.
type marker struct {
	client     client.Client // Not a cache.
	registered func(context.Context) (time.Time, error)
	log        logr.Logger

	mu      sync.Mutex
	claims  map[subject]*claim
	pending map[string]int // By namespace, in pieces, like awaited.
	awaited int
	// spent are writes to existing policies whose claims were dropped to make room. The value is the time until which
	// the API server may store the write. Until then, another claim of the write is ignored, because it does not know
	// the reviews of the dropped claim.
	spent map[subject]time.Time
}

// subject identifies a reviewed write.
type subject struct {
	kind       schema.GroupVersionKind
	name       client.ObjectKey
	uid        types.UID
	generation int64
	approval   string
	spec       [sha256.Size]byte
}

// claim describes a reviewed write until its mark is written. The marker's lock guards the fields that change.
type claim struct {
	of       subject
	isNew    bool
	approves bool // The write sets a new approval.
	// going is true if the stored policy is being deleted. A deletion increments the generation without a review.
	going bool
	stop  context.CancelFunc

	items  []corev1alpha1.CheckedReference
	pieces int
	last   time.Time // Time of the last review.
	stored time.Time // Time when the policy was first found stored; zero before.
	// settled is the time when the claimed references become the mark. Before this time, other replicas remove
	// references. It is zero until this replica has written the claimed references. Only the goroutine of follow uses it.
	settled time.Time
}

func newMarker(o *Options) *marker {
	return &marker{
		client: o.Client, registered: o.Registered, log: o.Log,
		claims: map[subject]*claim{}, pending: map[string]int{}, spent: map[subject]time.Time{},
	}
}

// mark records the objects to which the policy in w may refer. It is called before the policy is admitted, and does not
// wait until the mark is written. If this write or a later one is stored already, mark does nothing, because no review
// of this write can then come from the API server. If mark returns an error, the caller must not admit the policy:
// otherwise a forged review of the same write could be the only claim.
func (m *marker) mark(ctx context.Context, w *write, refs []referent) error {
	c, err := claimOf(w, refs)
	if err != nil {
		return err
	}
	is := &metav1.PartialObjectMetadata{}
	is.SetGroupVersionKind(c.of.kind)
	err = m.client.Get(ctx, c.of.name, is)
	switch {
	case apierrors.IsNotFound(err):
		is = nil
	case err != nil:
		return fmt.Errorf("reading the policy: %w", err)
	}
	if !c.comesInTime(is) {
		return nil
	}
	c.going = is != nil && is.GetUID() == c.of.uid && is.GetDeletionTimestamp() != nil
	return m.take(ctx, c)
}

// claimOf returns the claim of a write.
func claimOf(w *write, refs []referent) (*claim, error) {
	c := &claim{
		of: subject{
			kind: w.now.GroupVersionKind(), name: client.ObjectKey{Namespace: w.ref.Namespace, Name: w.ref.Name},
			uid: w.now.GetUID(), generation: w.now.GetGeneration(), approval: approvalOf(w.now),
		},
		isNew: w.was == nil, approves: w.approves(), items: itemsOf(w, refs), last: time.Now(),
	}
	c.pieces = 1 + len(c.items)/fewReferences
	var err error
	c.of.spec, err = digest(w.now)
	return c, err
}

// comesInTime reports whether the API server may still store this write: neither the write nor a later one is stored.
// The argument is the stored policy of this name, or nil.
func (c *claim) comesInTime(is *metav1.PartialObjectMetadata) bool {
	switch {
	case c.isNew:
		return is == nil || is.GetUID() != c.of.uid // An older policy of the same name may still be terminating.
	case is == nil || is.GetUID() != c.of.uid:
		return false
	case is.GetGeneration() == c.of.generation:
		return c.approves && approvalOf(is) != c.of.approval
	default:
		return is.GetGeneration()+1 == c.of.generation
	}
}

// approvalOf returns the value of the annotation that approves references, or the digest of a long value.
func approvalOf(o metav1.Object) string {
	value := o.GetAnnotations()[refractv1alpha1.ApproveReferencesAnnotation]
	if len(value) <= longestApproval {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])
}

// digest identifies the spec of a policy.
func digest(u *unstructured.Unstructured) ([sha256.Size]byte, error) {
	text, err := json.Marshal(u.Object["spec"])
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("spec: %w", err)
	}
	return sha256.Sum256(text), nil
}

// take starts the work on a claim. If the same write already has a claim, take only removes from it the references that
// are not in c. If there is no room for c, take drops old claims, and prefers those whose policies are not stored.
func (m *marker) take(ctx context.Context, c *claim) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.spent[c.of]) {
		return nil
	}
	if had := m.claims[c.of]; had != nil {
		had.items, had.last = common(had.items, c.items), c.last
		return nil
	}
	namespace := c.of.name.Namespace
	for m.pending[namespace] > 0 && m.pending[namespace]+c.pieces > mostPending {
		if err := m.giveUp(func(other *claim) bool { return other.of.name.Namespace == namespace }); err != nil {
			return err
		}
	}
	for m.awaited > 0 && m.awaited+c.pieces > mostAwaited {
		if err := m.giveUp(func(*claim) bool { return true }); err != nil {
			return err
		}
	}
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx)) // The request ends earlier.
	m.claims[c.of] = c
	m.pending[namespace] += c.pieces
	m.awaited += c.pieces
	go m.follow(ctx, c)
	return nil
}

// giveUp drops one of the claims to make room: a claim of the namespace with the most pieces. There it prefers a claim
// whose policy is not stored, because the API server may never store it, and then the oldest claim. It never drops a
// recent claim of a change. The policy may be stored at this moment, and then the other replicas need the claim.
func (m *marker) giveUp(among func(*claim) bool) error {
	var oldest *claim
	for _, c := range m.claims {
		if among(c) && (c.isNew || time.Since(c.last) >= recent) && (oldest == nil || m.before(c, oldest)) {
			oldest = c
		}
	}
	if oldest == nil {
		return errManyClaims
	}
	if !oldest.isNew {
		if len(m.spent) >= mostSpent {
			maps.DeleteFunc(m.spent, func(_ subject, until time.Time) bool { return time.Now().After(until) })
		}
		if len(m.spent) >= mostSpent {
			return errManyClaims
		}
		m.spent[oldest.of] = oldest.last.Add(storing)
	}
	m.log.V(1).Info("The objects that a policy brings in stay on the hub until they are approved, as many policies were written at once",
		"kind", oldest.of.kind.Kind, "policy", oldest.of.name.String())
	m.forget(oldest)
	return nil
}

// before reports whether giveUp drops a before b.
func (m *marker) before(a, b *claim) bool {
	return cmp.Or(
		cmp.Compare(m.pending[b.of.name.Namespace], m.pending[a.of.name.Namespace]), a.stored.Compare(b.stored), a.last.Compare(b.last),
	) < 0
}

// errManyClaims means that there is no room for another claim.
var errManyClaims = errors.New("too many policies are being written")

// forget ends a claim, if it has not ended.
func (m *marker) forget(c *claim) {
	c.stop()
	if m.claims[c.of] != c {
		return
	}
	delete(m.claims, c.of)
	namespace := c.of.name.Namespace
	m.awaited -= c.pieces
	if m.pending[namespace] -= c.pieces; m.pending[namespace] == 0 {
		delete(m.pending, namespace)
	}
}

// follow waits until a policy is stored, and writes the mark.
func (m *marker) follow(ctx context.Context, c *claim) {
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.forget(c)
	}()
	var last error
	for {
		next, ends := m.times(c)
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if time.Now().After(ends) {
			break
		}
		trying, cancel := context.WithDeadline(ctx, ends)
		done, err := m.try(trying, c)
		cancel()
		if done && err == nil {
			return
		}
		if last = err; done {
			break
		}
	}
	if last != nil && ctx.Err() == nil {
		m.log.Error(last, "Cannot record the permitted references of a policy: these objects stay on the hub until they are approved",
			"kind", c.of.kind.Kind, "policy", c.of.name.String())
	}
}

// times returns the delay until the next check of a claim, and the time when the claim ends.
func (m *marker) times(c *claim) (next time.Duration, ends time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next = min(max(time.Since(c.last), soonest), latest)
	switch {
	case c.stored.IsZero():
		return next, c.last.Add(storing)
	case !c.settled.IsZero():
		next = max(min(next, time.Until(c.settled)), soonest)
	}
	return next, c.stored.Add(writing)
}

// try writes the mark if the stored policy is the reviewed one. done is true if no further attempt is necessary: the
// mark is written, or will never be written.
func (m *marker) try(ctx context.Context, c *claim) (done bool, err error) {
	defer rescue.To(&err, m.log, "recording the permitted references of a policy")
	known := &metav1.PartialObjectMetadata{}
	known.SetGroupVersionKind(c.of.kind)
	err = m.client.Get(ctx, c.of.name, known)
	switch {
	case apierrors.IsNotFound(err):
		return !c.isNew, nil // A new policy is not stored yet.
	case err != nil:
		return false, err
	case known.GetUID() != c.of.uid && c.isNew:
		return false, nil // An older policy may still be terminating.
	case known.GetUID() != c.of.uid, known.GetGeneration() > c.of.generation:
		return true, nil
	case known.GetGeneration() < c.of.generation:
		return false, nil
	case approvalOf(known) != c.of.approval:
		return !c.approves, nil // The new approval may not be stored yet. Without one, a concurrent write was stored instead.
	}
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(c.of.kind)
	if err := m.client.Get(ctx, c.of.name, is); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if is.GetUID() != c.of.uid || is.GetGeneration() != c.of.generation || approvalOf(is) != c.of.approval {
		return false, nil // The policy changed a moment ago: the next check decides.
	}
	if !c.isNew && c.going != (is.GetDeletionTimestamp() != nil) {
		return true, nil // The deletion has incremented the generation.
	}
	spec, err := digest(is)
	if err != nil || spec != c.of.spec {
		return true, err // Of two concurrent writes, the other one was stored.
	}
	items, since := m.found(c)
	if asked, err := m.asksSince(ctx, since); err != nil || !asked {
		return err == nil, err
	}
	return m.write(ctx, c, is, items)
}

// found records that the policy is stored. It returns the references that the policy may use, and the time of the last
// review.
func (m *marker) found(c *claim) (items []corev1alpha1.CheckedReference, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.stored.IsZero() {
		c.stored = time.Now()
	}
	return c.items, c.last
}

// asksSince reports whether the API server already called the webhook for every write at the time since. The result is
// false if the webhook was registered later, or is not registered.
func (m *marker) asksSince(ctx context.Context, since time.Time) (bool, error) {
	if m.registered == nil {
		return true, nil
	}
	from, err := m.registered(ctx)
	if err != nil {
		return false, fmt.Errorf("looking for the webhook's registration: %w", err)
	}
	return !from.IsZero() && !since.Before(from.Add(heeded)), nil
}

// write writes the mark of a stored policy into its status. For a change, the first call writes the references as
// claimed, and a call after settling writes the mark.
func (m *marker) write(ctx context.Context, c *claim, is *unstructured.Unstructured, items []corev1alpha1.CheckedReference) (done bool, err error) {
	had, err := markIn(is)
	if err != nil {
		return true, err
	}
	settled := !c.settled.IsZero() && !time.Now().Before(c.settled)
	mark := c.mark(had, items, settled)
	if mark != nil {
		if done, err := m.patch(ctx, is, mark); !done {
			return false, err
		}
	}
	if c.isNew || settled {
		return true, nil
	}
	if c.settled.IsZero() {
		c.settled = time.Now().Add(settling)
	}
	return false, nil
}

// mark returns the new mark of a policy; nil if the present mark stays.
func (c *claim) mark(had *corev1alpha1.CheckedReferences, items []corev1alpha1.CheckedReference, settled bool) *corev1alpha1.CheckedReferences {
	out := &corev1alpha1.CheckedReferences{ObservedGeneration: c.of.generation, Approval: c.of.approval}
	switch same := had.ObservedGeneration == out.ObservedGeneration && had.Approval == out.Approval; {
	case same:
		out.Items, out.Claimed = common(had.Items, items), common(had.Claimed, items)
		if settled {
			out.Items, out.Claimed = slices.Concat(out.Items, out.Claimed), nil
		}
		if slices.Equal(out.Items, had.Items) && slices.Equal(out.Claimed, had.Claimed) {
			return nil
		}
	case settled:
		return nil // Another replica has removed the claim.
	case !c.isNew:
		out.Claimed = items
	case len(items) == 0:
		return nil // No other client knew the UID, so there is no other claim.
	default:
		out.Items = items
	}
	return out
}

// patch writes the mark. It returns false if the policy has changed in the meantime.
func (m *marker) patch(ctx context.Context, is *unstructured.Unstructured, references *corev1alpha1.CheckedReferences) (done bool, err error) {
	mark, err := runtime.DefaultUnstructuredConverter.ToUnstructured(references)
	if err != nil {
		return false, err
	}
	before := is.DeepCopy()
	if err := unstructured.SetNestedMap(is.Object, mark, "status", "references"); err != nil {
		return false, fmt.Errorf("status: %w", err)
	}
	// The optimistic lock makes the patch fail if the policy is no longer the reviewed one.
	err = m.client.Status().Patch(ctx, is, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// markIn returns the mark of a policy; an empty mark if there is none.
func markIn(is *unstructured.Unstructured) (*corev1alpha1.CheckedReferences, error) {
	out := &corev1alpha1.CheckedReferences{}
	has, found, err := unstructured.NestedMap(is.Object, "status", "references")
	if err != nil || !found {
		return out, err
	}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(has, out)
}

// common returns the references that are in both a and b, in the order of a.
func common(a, b []corev1alpha1.CheckedReference) []corev1alpha1.CheckedReference {
	in := make(map[corev1alpha1.CheckedReference]bool, len(b))
	for _, r := range b {
		in[r] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(r corev1alpha1.CheckedReference) bool { return !in[r] })
}

// itemsOf returns the references in the form of the status.
func itemsOf(w *write, refs []referent) []corev1alpha1.CheckedReference {
	var items []corev1alpha1.CheckedReference
	for i := range refs {
		r := &refs[i]
		if len(r.Name) > longestName {
			continue
		}
		item := corev1alpha1.CheckedReference{Kind: r.Kind, Name: r.Name}
		if w.ref.Namespace == "" {
			item.Namespace = r.namespace
		}
		items = append(items, item)
	}
	return items
}
