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
	// storing is how long the API server may take to store what was admitted: as long
	// as it waits for another webhook, and more.
	storing = 35 * time.Second
	// writing is how long it may take from then until the mark is written.
	writing = 20 * time.Second
	// soonest and latest are how long it takes until it is looked at again whether a
	// policy is stored.
	soonest, latest = 10 * time.Millisecond, time.Second
	// settling is how long what one replica has claimed waits for the others to take
	// something away: each looks every second at least.
	settling = 3 * time.Second
	// heeded is how long it takes an API server, at most, to ask a webhook that has been
	// registered.
	heeded = 3 * time.Second
	// mostPending is how much of a namespace is awaited at a time, and mostAwaited how
	// much of all: so many policies, of which one that brings in more than fewReferences
	// counts for several. Of each little is kept.
	mostPending, mostAwaited = 60, 600
	fewReferences            = 50
	// recent is how long a change is not given up.
	recent = 2 * time.Second
	// mostSpent is how many writes are remembered whose claims were given up.
	mostSpent = 20_000
	// longestName is that of an object: a longer one names none.
	longestName = 253
	// longestApproval is how much of an approval is written down as it is.
	longestApproval = 64
)

// marker writes into the status of policies what who wrote them may have objects refer
// to: there, their authors cannot. While a policy is admitted it is not stored, so this
// is done a moment later, and not at all if the process ends in between: then what the
// policy brings in stays on the hub until somebody approves it.
//
// Whoever reaches the webhook may ask as the API server does. But the API server asks
// about every write before it stores it, and the UID of a new policy is not known to
// anybody then. So
//   - a review has a mark written only if what it is about is not stored when it has been
//     judged: one that comes later is nobody's who wrote it;
//   - all reviews of the same write have one mark together, of what each of them allows:
//     what is asked in advance, when other objects are there, adds nothing to what the
//     API server asks;
//   - a mark is final: of the same generation and approval another one takes away at most.
//
// Of replicas one does not know what the other is asked. So each writes down what was claimed
// of it, which is nobody's to use yet, and takes away what another one claimed and it did not;
// what is left after a moment is the mark.
type marker struct {
	client     client.Client // Not a cache.
	registered func(context.Context) (time.Time, error)
	log        logr.Logger

	mu      sync.Mutex
	claims  map[subject]*claim
	pending map[string]int // By namespace, like awaited in pieces.
	awaited int
	// spent are writes of policies that were there, whose claims were given up to make room,
	// and until when they may be stored: what is claimed of one meanwhile would be all that
	// is known of it.
	spent map[subject]time.Time
}

// subject is a write that is reviewed.
type subject struct {
	kind       schema.GroupVersionKind
	name       client.ObjectKey
	uid        types.UID
	generation int64
	approval   string
	spec       [sha256.Size]byte
}

// claim is what is kept of a write until the policy is stored. What is in it is the
// marker's lock's to guard, but for what never changes.
type claim struct {
	of       subject
	isNew    bool
	approves bool // The write sets another approval.
	// going is whether what is stored is being deleted, which counts a generation, too, and
	// nobody is asked about.
	going bool
	stop  context.CancelFunc

	items  []corev1alpha1.CheckedReference
	pieces int
	last   time.Time // When it was last claimed.
	stored time.Time // When it was first found to be stored; zero until it is.
	// settled is when the other replicas have written what was claimed of them; zero until
	// this one has. It is for who follows the claim.
	settled time.Time
}

func newMarker(o *Options) *marker {
	return &marker{
		client: o.Client, registered: o.Registered, log: o.Log,
		claims: map[subject]*claim{}, pending: map[string]int{}, spent: map[subject]time.Time{},
	}
}

// mark has it written that a policy, which is about to be admitted as it is in w, may have
// objects refer to these. It does not wait for that, and what is stored meanwhile by another
// write is left to that one. After an error the policy must not be admitted: whoever claims
// the same would be believed then.
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

// claimOf returns what is kept of a write.
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

// comesInTime reports whether what is claimed is not stored yet, but may be next. What there
// is of the name, or nil, it is given.
func (c *claim) comesInTime(is *metav1.PartialObjectMetadata) bool {
	switch {
	case c.isNew:
		return is == nil || is.GetUID() != c.of.uid // One of another UID is going, perhaps.
	case is == nil || is.GetUID() != c.of.uid:
		return false
	case is.GetGeneration() == c.of.generation:
		return c.approves && approvalOf(is) != c.of.approval
	default:
		return is.GetGeneration()+1 == c.of.generation
	}
}

// approvalOf returns the approval that a policy has, shortened.
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

// take keeps a claim until its policy is stored. There is room for it: who claims what is
// never stored has the oldest of that given up.
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
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx)) // The request ends before.
	m.claims[c.of] = c
	m.pending[namespace] += c.pieces
	m.awaited += c.pieces
	go m.follow(ctx, c)
	return nil
}

// giveUp ends the oldest claim of the namespace with the most: rather one whose policy is not
// stored, for it may never be. Of a change that may be stored in this moment other replicas
// have to be told, so that is not given up.
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
	m.log.V(1).Info("What a policy brings in stays on the hub until somebody approves it, as many were written at once",
		"kind", oldest.of.kind.Kind, "policy", oldest.of.name.String())
	m.forget(oldest)
	return nil
}

// before reports whether rather the first of two claims is given up.
func (m *marker) before(a, b *claim) bool {
	return cmp.Or(
		cmp.Compare(m.pending[b.of.name.Namespace], m.pending[a.of.name.Namespace]), a.stored.Compare(b.stored), a.last.Compare(b.last),
	) < 0
}

// errManyClaims says that nothing can be claimed at the moment.
var errManyClaims = errors.New("too many policies are being written")

// forget ends a claim, unless it has ended.
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
		m.log.Error(last, "Cannot write down what a policy may refer to: that stays on the hub until somebody approves it",
			"kind", c.of.kind.Kind, "policy", c.of.name.String())
	}
}

// times returns in which time to look after a claim, and until when at most.
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

// try writes the mark if the policy is stored as it was admitted. It is done if that
// has been written, or will never be.
func (m *marker) try(ctx context.Context, c *claim) (done bool, err error) {
	defer rescue.To(&err, m.log, "writing down what a policy may refer to")
	known := &metav1.PartialObjectMetadata{}
	known.SetGroupVersionKind(c.of.kind)
	err = m.client.Get(ctx, c.of.name, known)
	switch {
	case apierrors.IsNotFound(err):
		return !c.isNew, nil // One that is new is not stored yet.
	case err != nil:
		return false, err
	case known.GetUID() != c.of.uid && c.isNew:
		return false, nil // One that is going, perhaps.
	case known.GetUID() != c.of.uid, known.GetGeneration() > c.of.generation:
		return true, nil
	case known.GetGeneration() < c.of.generation:
		return false, nil
	case approvalOf(known) != c.of.approval:
		return !c.approves, nil // Of two writes at a time the other one was stored.
	}
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(c.of.kind)
	if err := m.client.Get(ctx, c.of.name, is); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if is.GetUID() != c.of.uid || is.GetGeneration() != c.of.generation || approvalOf(is) != c.of.approval {
		return false, nil // Since a moment: it is looked at again.
	}
	if !c.isNew && c.going != (is.GetDeletionTimestamp() != nil) {
		return true, nil // The generation is that of the deletion.
	}
	spec, err := digest(is)
	if err != nil || spec != c.of.spec {
		return true, err // Of two writes at a time the other one was stored.
	}
	items, since := m.found(c)
	if asked, err := m.asksSince(ctx, since); err != nil || !asked {
		return err == nil, err
	}
	return m.write(ctx, c, is, items)
}

// found notes that a policy is stored. It returns what the policy may refer to, and when that
// was claimed last.
func (m *marker) found(c *claim) (items []corev1alpha1.CheckedReference, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.stored.IsZero() {
		c.stored = time.Now()
	}
	return c.items, c.last
}

// asksSince reports whether the API server has asked about every write from this time on.
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

// write writes the mark into the status of a policy that is stored as it was admitted, or
// what is claimed, which becomes the mark after a moment.
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

// mark returns the mark that a policy is to have in place of the one that it has; nil if that
// stays.
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
		return nil // Somebody has taken the claim away.
	case !c.isNew:
		out.Claimed = items
	case len(items) == 0:
		return nil // Nobody knew the UID, so nobody else has a claim.
	default:
		out.Items = items
	}
	return out
}

// patch has a policy have a mark, unless it has changed since.
func (m *marker) patch(ctx context.Context, is *unstructured.Unstructured, references *corev1alpha1.CheckedReferences) (done bool, err error) {
	mark, err := runtime.DefaultUnstructuredConverter.ToUnstructured(references)
	if err != nil {
		return false, err
	}
	before := is.DeepCopy()
	if err := unstructured.SetNestedMap(is.Object, mark, "status", "references"); err != nil {
		return false, fmt.Errorf("status: %w", err)
	}
	// The lock has it that this is still what was admitted.
	err = m.client.Status().Patch(ctx, is, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// markIn returns the mark that a policy has; an empty one for none.
func markIn(is *unstructured.Unstructured) (*corev1alpha1.CheckedReferences, error) {
	out := &corev1alpha1.CheckedReferences{}
	has, found, err := unstructured.NestedMap(is.Object, "status", "references")
	if err != nil || !found {
		return out, err
	}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(has, out)
}

// common returns the references that are in both, in the order of the first.
func common(a, b []corev1alpha1.CheckedReference) []corev1alpha1.CheckedReference {
	in := make(map[corev1alpha1.CheckedReference]bool, len(b))
	for _, r := range b {
		in[r] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(r corev1alpha1.CheckedReference) bool { return !in[r] })
}

// itemsOf are references as they are written down.
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
