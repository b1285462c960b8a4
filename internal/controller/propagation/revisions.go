package propagation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/revision"
	"refract.dev/release"
	"refract.dev/tree"
)

const (
	// sweepDelay is how long after a rollout it is looked which revisions nobody needs any more, and
	// leastAge how long nothing has named one that is deleted: what was kept a moment ago is about to be named.
	sweepDelay = 30 * time.Second
	leastAge   = time.Minute
	// keptAgain is how often it is looked whether all that rollouts name is still there.
	keptAgain = 10 * time.Minute
)

// revisions keeps revisions on the hub: each part in a ControllerRevision, which all objects of the namespace share
// that need it. They belong to nobody: what no rollout names is deleted.
type revisions struct {
	client   client.Client
	live     client.Reader
	rollouts func() map[Key]*refractv1alpha1.RolloutStatus // That are written down.
	decider  *decider
	leads    func() bool
	system   string // The namespace of what has none, and of what Secrets say.
	key      sealingKey
	cache    *parts
	stored   noted
	queue    *workQueue[string]                 // Namespaces with revisions that may not be needed any more, or may be gone.
	watched  sync.Map                           // Namespaces that are looked at again and again.
	spare    map[string]map[types.UID]time.Time // Since when it is known, by namespace, that nothing names a revision. It is of sweep.
	now      func() time.Time
}

func newRevisions(v *revisions, log logr.Logger) (*revisions, error) {
	v.cache, v.spare, v.now = &parts{}, map[string]map[types.UID]time.Time{}, time.Now
	var err error
	v.queue, err = newWorkQueue("revisions", 1, log, v.sweep)
	return v, err
}

// objectPlace is where the part of an object is kept.
func objectPlace(key Key, name, system string) types.NamespacedName {
	if key.Namespace == "" || isSealed(key) {
		return types.NamespacedName{Namespace: system, Name: name}
	}
	return types.NamespacedName{Namespace: key.Namespace, Name: name}
}

// policyPlace is where that of a policy is kept: who may read in the namespace of an object need not be allowed to read
// policies that are in none.
func policyPlace(key Key, policy *refractv1alpha1.PolicyRevision, system string) types.NamespacedName {
	if key.Namespace == "" || policy.Kind == corev1alpha1.KindClusterOverridePolicy {
		return types.NamespacedName{Namespace: system, Name: policy.Revision}
	}
	return types.NamespacedName{Namespace: key.Namespace, Name: policy.Revision}
}

// plainPlace is where earlier versions kept the part of an object that is sealed today, and no Secret.
func plainPlace(key Key, name, system string) types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(key.Namespace, system), Name: name}
}

// fill reads the revisions that are not the newest and that clusters are to have.
func (v *revisions) fill(ctx context.Context, key Key, g *governance) error {
	if g.recorded == nil {
		return nil
	}
	g.kept = map[string]*material{}
	for _, r := range revisionsIn(g.recorded) {
		if r.Name == g.target.Name || r.Name == release.Found || g.kept[r.Name] != nil {
			continue
		}
		if g.recorded.Phase == refractv1alpha1.RolloutComplete && r == &g.recorded.LastGood {
			continue // It is what the target is.
		}
		m, err := v.read(ctx, key, r)
		if err != nil {
			return err
		}
		g.kept[r.Name] = m
	}
	return nil
}

// read reads one; what is not there, or cannot be read, is said of the copies that need it.
func (v *revisions) read(ctx context.Context, key Key, r *refractv1alpha1.Revision) (*material, error) {
	m := &material{generation: r.Generation, kept: true, allowed: r.Allowed}
	text, err := v.objectPart(ctx, key, r.Object)
	if err != nil || text == nil {
		m.err = fmt.Errorf("revision %s, which the cluster is to keep, is gone from the hub", r.Name)
		return m, err
	}
	if m.object, m.err = revision.DecodeObject(text, r.Object, v.key.known()); m.err != nil {
		return m, nil //nolint:nilerr // The copies say so.
	}
	for i := range r.Policies {
		ref := &r.Policies[i]
		text, err := v.part(ctx, policyPlace(key, ref, v.system), false)
		if err != nil || text == nil {
			m.err = fmt.Errorf("%s %s of revision %s, which the cluster is to keep, is gone from the hub", ref.Kind, ref.Name, r.Name)
			return m, err
		}
		policy, err := revision.DecodePolicy(text, ref.Revision, ref.Generation)
		if err != nil {
			m.err = err
			return m, nil //nolint:nilerr // The copies say so.
		}
		m.policies = append(m.policies, policy)
	}
	return m, nil
}

// objectPart reads the part of an object; nil if it is not there.
func (v *revisions) objectPart(ctx context.Context, key Key, name string) ([]byte, error) {
	text, err := v.part(ctx, objectPlace(key, name, v.system), isSealed(key))
	if text != nil || err != nil || !isSealed(key) || revision.IsSealed(name) {
		return text, err
	}
	text, err = v.part(ctx, plainPlace(key, name, v.system), false) // An earlier version has kept it in plain text.
	if err != nil || revision.Check(text, name, nil) != nil {
		return nil, err // It is sealed, or somebody has changed it.
	}
	return text, nil
}

// part reads a part; nil if it is not there.
func (v *revisions) part(ctx context.Context, at types.NamespacedName, secret bool) ([]byte, error) {
	if text := v.cache.get(at); text != nil {
		return text, nil
	}
	text, err := v.fetch(ctx, at, secret)
	switch {
	case apierrors.IsNotFound(err), errors.Is(err, revision.ErrSealed):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading revision %s: %w", at, err)
	}
	if revision.Check(text, at.Name, v.key.known()) == nil { // What is not what it was may be put right.
		v.cache.add(at, text)
	}
	return text, nil
}

// fetch reads a part from the hub. One that was sealed with a key that is gone is [revision.ErrSealed].
func (v *revisions) fetch(ctx context.Context, at types.NamespacedName, secret bool) ([]byte, error) {
	c := &appsv1.ControllerRevision{}
	if err := v.live.Get(ctx, at, c); err != nil {
		return nil, err
	}
	return v.open(ctx, c, secret)
}

// open returns what a part says. A key that does not open it is read once more: somebody may have put another
// there.
func (v *revisions) open(ctx context.Context, c *appsv1.ControllerRevision, secret bool) ([]byte, error) {
	if !secret {
		return c.Data.Raw, nil
	}
	var text []byte
	for _, known := range []bool{true, false} {
		key, err := v.key.read(ctx, v.live, v.system, known)
		switch {
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading revision %s: %w", c.Name, revision.ErrSealed)
		case err != nil:
			return nil, err
		}
		if text, err = revision.Open(c.Data.Raw, key, c.Name); err == nil {
			return text, nil
		}
	}
	return nil, fmt.Errorf("reading revision %s: %w", c.Name, revision.ErrSealed)
}

// keep keeps the newest revision of an object, with what it leads, of what is known of them now: that must be what the revision says.
func (v *revisions) keep(ctx context.Context, key Key, d *decider, is *refractv1alpha1.Revision) error {
	for i := range is.Followers {
		f := &is.Followers[i]
		if err := v.keepOne(ctx, followerKey(key, f), d, f.Object, f.Policies); err != nil {
			return err
		}
	}
	return v.keepOne(ctx, key, d, is.Object, is.Policies)
}

func (v *revisions) keepOne(ctx context.Context, key Key, d *decider, name string, policies []refractv1alpha1.PolicyRevision) error {
	src, known := d.sources.get(key)
	if !known || src.object == nil {
		return errRevision
	}
	object, err := revision.ObjectPart(src.object)
	if err != nil {
		return err
	}
	switch is, err := v.nameOf(ctx, key, &object); {
	case err != nil:
		return err
	case is != name:
		return errRevision
	}
	if err := v.store(ctx, objectPlace(key, name, v.system), &object, isSealed(key)); err != nil {
		return err
	}
	for i := range policies {
		ref := &policies[i]
		policy := d.policies.object(tree.Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
		if policy == nil {
			return errRevision
		}
		part, err := revision.PolicyPart(policy)
		if err != nil {
			return err
		}
		if part.Name != ref.Revision {
			return errRevision
		}
		if err := v.store(ctx, policyPlace(key, ref, v.system), &part, false); err != nil {
			return err
		}
	}
	return nil
}

// store stores a part unless it is there, which is looked at on the hub: another replica may have deleted it.
func (v *revisions) store(ctx context.Context, at types.NamespacedName, p *revision.Part, secret bool) error {
	data, err := p.Encode()
	if err != nil {
		return err
	}
	return v.storeData(ctx, at, data, secret)
}

// storeData is store of what a part is stored as.
func (v *revisions) storeData(ctx context.Context, at types.NamespacedName, data []byte, secret bool) error {
	v.stored.note(at, v.now())
	if there, err := v.there(ctx, at, secret); err != nil || there {
		return err
	}
	return v.put(ctx, at, data, secret)
}

// put stores what a part is stored as.
func (v *revisions) put(ctx context.Context, at types.NamespacedName, data []byte, secret bool) error {
	kept := data
	if secret {
		key, err := v.key.make(ctx, v.live, v.client, v.system)
		if err != nil {
			return err
		}
		if revision.IsSealed(at.Name) && !revision.IsSealedWith(key, at.Name) {
			return errRevision // It was named with a key that is another by now.
		}
		if kept, err = revision.Seal(data, key, at.Name); err != nil {
			return err
		}
	}
	meta := metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name, Labels: map[string]string{refractv1alpha1.RevisionLabel: "true"}}
	obj := &appsv1.ControllerRevision{ObjectMeta: meta, Data: runtime.RawExtension{Raw: kept}, Revision: 1}
	switch err := v.client.Create(ctx, obj); {
	case apierrors.IsAlreadyExists(err): // Another replica may have been first, or somebody else has an object of the name.
		obj = &appsv1.ControllerRevision{}
		if err := v.live.Get(ctx, at, obj); err != nil {
			return fmt.Errorf("reading revision %s, which was there already: %w", at, err)
		}
	case err != nil:
		return fmt.Errorf("keeping revision %s: %w", at, err)
	}
	switch same, err := v.holds(ctx, obj, secret); {
	case err != nil:
		return err
	case !same:
		return fmt.Errorf("the ControllerRevision %s does not hold what was sent: "+
			"exempt those with the label %s from the webhook or policy that changes them", at, refractv1alpha1.RevisionLabel)
	case obj.DeletionTimestamp != nil:
		return leaving(obj)
	}
	v.cache.add(at, data)
	return nil
}

// there reports whether a part is on the hub as it was. What is something else, or cannot be read, is deleted. It is an error if
// somebody's finalizer keeps what is deleted: the name is not free, and what it holds may go at any time.
func (v *revisions) there(ctx context.Context, at types.NamespacedName, secret bool) (bool, error) {
	c := &appsv1.ControllerRevision{}
	if err := v.live.Get(ctx, at, c); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if c.DeletionTimestamp != nil {
		return false, leaving(c)
	}
	v.key.forget() // What only this process can read any more is lost to all others.
	if same, err := v.holds(ctx, c, secret); err != nil || same {
		return same, err
	}
	preconditions := client.Preconditions{UID: new(c.GetUID()), ResourceVersion: new(c.GetResourceVersion())}
	if err := v.client.Delete(ctx, c, preconditions); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("replacing revision %s: %w", at, err)
	}
	return false, nil
}

// holds reports whether an object holds the part that it is named after.
func (v *revisions) holds(ctx context.Context, c *appsv1.ControllerRevision, secret bool) (bool, error) {
	text, err := v.open(ctx, c, secret)
	if errors.Is(err, revision.ErrSealed) {
		return false, nil
	}
	return err == nil && revision.Check(text, c.Name, v.key.known()) == nil, err
}

// leaving is the error for an object that is being deleted.
func leaving(c *appsv1.ControllerRevision) error {
	return fmt.Errorf("the ControllerRevision %s is being deleted, and its finalizers %q keep it: remove them",
		client.ObjectKeyFromObject(c), c.Finalizers)
}

// named is told that the rollout of an object names revisions: somebody may delete them.
func (v *revisions) named(key Key) {
	for _, namespace := range []string{key.Namespace, v.system} {
		if _, watched := v.watched.LoadOrStore(namespace, true); namespace != "" && !watched {
			v.queue.addAfter(namespace, sweepDelay)
		}
	}
}

// later has the revisions of a namespace looked at that may not be needed any more.
func (v *revisions) later(key Key) {
	if key.Namespace != "" {
		v.queue.addAfter(key.Namespace, sweepDelay)
	}
	v.queue.addAfter(v.system, sweepDelay)
}

// sweep deletes the revisions of a namespace that no rollout names, and keeps again those that one names and that are gone.
func (v *revisions) sweep(ctx context.Context, namespace string) (reconcile.Result, error) {
	if !v.leads() {
		v.watched.Delete(namespace)
		delete(v.spare, namespace)
		return reconcile.Result{}, nil
	}
	again, spare := time.Duration(0), map[types.UID]time.Time{}
	var errs []error
	look := func(o client.Object, needed map[types.NamespacedName]bool) {
		at := client.ObjectKeyFromObject(o)
		if needed[at] {
			return
		}
		if left := leastAge - v.unnamed(o, spare); left > 0 {
			again = max(again, left)
			return
		}
		v.cache.drop(at)
		errs = append(errs, client.IgnoreNotFound(v.client.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())})))
	}
	ours := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{refractv1alpha1.RevisionLabel: "true"}}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevisionList"))
	if err := v.live.List(ctx, list, ours...); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing revisions of namespace %s: %w", namespace, err)
	}
	rollouts := v.rollouts() // What was named meanwhile is.
	needed := map[types.NamespacedName]bool{}
	for key, s := range rollouts {
		for at, part := range partsOf(key, s, v.system) {
			needed[at] = true
			if part.sealed { // Until the record has the names of today, it may be all that there is.
				needed[plainPlace(part.of, at.Name, v.system)] = true
			}
		}
	}
	there := map[types.NamespacedName]bool{}
	for i := range list.Items {
		there[client.ObjectKeyFromObject(&list.Items[i])] = list.Items[i].DeletionTimestamp == nil
		look(&list.Items[i], needed)
	}
	v.spare[namespace] = spare
	for key, s := range rollouts {
		names, err := v.keepAgain(ctx, namespace, key, s, there)
		if errs = append(errs, err); names && again == 0 {
			again = keptAgain
		}
	}
	if again == 0 {
		v.watched.Delete(namespace)
		delete(v.spare, namespace)
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(errs...)
}

// unnamed returns for how long nothing has named a revision, as far as this replica knows, and notes since when. When it was made says the clock
// of another machine.
func (v *revisions) unnamed(o client.Object, spare map[types.UID]time.Time) time.Duration {
	now := v.now()
	since, known := v.spare[o.GetNamespace()][o.GetUID()]
	if !known {
		since = now
	}
	if stored := v.stored.last(client.ObjectKeyFromObject(o), now); stored.After(since) {
		since = stored
	}
	spare[o.GetUID()] = since
	return now.Sub(since)
}

// keepAgain keeps what a rollout names in a namespace and is not there: the newest revision as it is on the hub, and others as far as this
// process has read them. It reports whether the rollout names anything there.
func (v *revisions) keepAgain(
	ctx context.Context, namespace string, key Key, s *refractv1alpha1.RolloutStatus, there map[types.NamespacedName]bool,
) (names bool, err error) {
	gone := map[types.NamespacedName]bool{}
	for at, part := range partsOf(key, s, v.system) {
		if at.Namespace != namespace {
			continue
		}
		if names = true; !there[at] {
			gone[at] = part.sealed
		}
	}
	if len(gone) == 0 && s.Phase != refractv1alpha1.RolloutStalled {
		return names, nil
	}
	var errs []error
	if err := v.keep(ctx, key, v.decider, &s.Target); err != nil && !errors.Is(err, errRevision) {
		errs = append(errs, err)
	}
	for at, sealed := range gone {
		if text := v.cache.get(at); text != nil {
			if err := v.put(ctx, at, text, sealed); !errors.Is(err, errRevision) {
				errs = append(errs, err)
			}
		}
	}
	v.decider.add(key, priorityDependency) // Somebody may have put back what was lost.
	return names, errors.Join(errs...)
}

// sealingKey is the key that parts are sealed with, and digests made, of what not everybody may read. The zero value reads it
// when it is needed.
type sealingKey struct {
	mu  sync.Mutex
	key []byte
	// last is the one that was read last.
	last []byte
}

// ready returns the key as it was known last. It is made unless it is there.
func (k *sealingKey) ready(ctx context.Context, live client.Reader, c client.Client, system string) ([]byte, error) {
	if last := k.known(); last != nil {
		return last, nil
	}
	return k.make(ctx, live, c, system)
}

// known returns the key as it was known last; nil before it was read.
func (k *sealingKey) known() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// digest returns what a report says in the place of the hash of a content; nothing before the key was read.
func (k *sealingKey) digest(key Key, hash string) string {
	if hash == "" || !isSealed(key) || revision.IsDigest(hash) {
		return hash
	}
	last := k.known()
	if last == nil {
		return ""
	}
	return revision.Digest(last, hash)
}

// read returns the key, as it is known if that will do, or the error of not finding it.
func (k *sealingKey) read(ctx context.Context, live client.Reader, system string, known bool) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known && k.key != nil {
		return k.key, nil
	}
	k.key = nil
	s := &corev1.Secret{}
	if err := live.Get(ctx, types.NamespacedName{Namespace: system, Name: revision.KeySecret}, s); err != nil {
		return nil, fmt.Errorf("reading the key of revisions: %w", err)
	}
	if key := s.Data[revision.KeyName]; revision.IsKey(key) {
		k.key, k.last = key, key
		return key, nil
	}
	return nil, fmt.Errorf("the Secret %s/%s, which seals what Secrets were, holds no key: delete it, and one is made", system, revision.KeySecret)
}

// forget has the key read when it is needed the next time.
func (k *sealingKey) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.key = nil
}

// make returns the key, which it makes unless it is there.
func (k *sealingKey) make(ctx context.Context, live client.Reader, c client.Client, system string) ([]byte, error) {
	key, err := k.read(ctx, live, system, false) // What is sealed with a key that is gone is lost.
	if !apierrors.IsNotFound(err) {
		return key, err
	}
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: revision.KeySecret}, Immutable: new(true),
		Data: map[string][]byte{revision.KeyName: revision.NewKey()},
	}
	if err := c.Create(ctx, s); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("keeping the key of revisions: %w", err)
	}
	return k.read(ctx, live, system, false) // Another replica may have been first.
}

// noted is when parts were stored, or found to be, a moment ago. The zero value has none.
type noted struct {
	mu    sync.Mutex
	times map[types.NamespacedName]time.Time
}

func (n *noted) note(at types.NamespacedName, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.times == nil {
		n.times = map[types.NamespacedName]time.Time{}
	}
	n.times[at] = now
}

// last is when that was; the zero time if it was not lately.
func (n *noted) last(at types.NamespacedName, now time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.times, func(_ types.NamespacedName, then time.Time) bool { return now.Sub(then) > leastAge })
	return n.times[at]
}

// parts are those that were read or written last, up to maxParts bytes. The zero value has none.
type parts struct {
	mu    sync.Mutex
	items map[types.NamespacedName][]byte
	size  int
}

const maxParts = 64 << 20

func (p *parts) get(at types.NamespacedName) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.items[at]
}

func (p *parts) add(at types.NamespacedName, text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.items == nil {
		p.items = map[types.NamespacedName][]byte{}
	}
	p.size += len(text) - len(p.items[at])
	p.items[at] = text
	for other, is := range p.items { // Any of the others.
		if p.size <= maxParts {
			break
		}
		if other != at {
			p.size -= len(is)
			delete(p.items, other)
		}
	}
}

func (p *parts) drop(at types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size -= len(p.items[at])
	delete(p.items, at)
}
