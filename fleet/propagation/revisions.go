package propagation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/fleet/revision"
	"refract.dev/tree"
)

const (
	// sweepDelay is the delay between the end of a rollout and the search for unneeded revisions. leastAge is the
	// minimum time without a reference before a revision is deleted: a revision that was stored a moment ago is about
	// to be named.
	sweepDelay = 30 * time.Second
	leastAge   = time.Minute
	// keptAgain is the interval between checks that the named revisions still exist.
	keptAgain = 10 * time.Minute
	// keyReadAgain is the interval between reads of the key.
	keyReadAgain = time.Minute
)

// revisions stores revisions on the hub. Each part, the content of one object or one policy, is a ControllerRevision
// that all objects of the namespace share. Parts have no owner: the leading replica deletes those that no rollout
// names.
type revisions struct {
	client   client.Client
	live     client.Reader
	rollouts func() map[Key]*refractv1alpha1.RolloutStatus // Returns the recorded rollouts.
	decider  *decider
	leads    func() bool
	system   string // The namespace for cluster-scoped and for sealed parts.
	key      sealingKey
	cache    *parts
	stored   noted
	failed   failedTries
	queue    *workQueue[string]                 // Namespaces with revisions that may be unneeded or missing.
	reread   *workQueue[struct{}]               // Reads the key, which a user may have replaced.
	watched  sync.Map                           // Namespaces with periodic checks.
	spare    map[string]map[types.UID]time.Time // When this replica first saw each revision without a reference, by namespace. Only sweep uses it.
	now      func() time.Time
}

func newRevisions(v *revisions, log logr.Logger) (*revisions, error) {
	v.cache, v.spare, v.now = &parts{}, map[string]map[types.UID]time.Time{}, time.Now
	var err error
	if v.queue, err = newWorkQueue("revisions", 1, log, v.sweep); err != nil {
		return nil, err
	}
	if v.reread, err = newWorkQueue("sealing", 1, log, v.readKeyAgain); err != nil {
		return nil, err
	}
	v.reread.addAfter(struct{}{}, keyReadAgain)
	return v, nil
}

// objectPlace returns the namespace and name of the part of an object.
func objectPlace(key Key, name, system string) types.NamespacedName {
	if key.Namespace == "" || isSealed(key) {
		return types.NamespacedName{Namespace: system, Name: name}
	}
	return types.NamespacedName{Namespace: key.Namespace, Name: name}
}

// policyPlace returns the namespace and name of the part of a policy. The part of a cluster-scoped policy is in the
// system namespace, because the readers of an object's namespace may lack the right to read such policies.
func policyPlace(key Key, policy *refractv1alpha1.PolicyRevision, system string) types.NamespacedName {
	if key.Namespace == "" || policy.Kind == corev1alpha1.KindClusterOverridePolicy {
		return types.NamespacedName{Namespace: system, Name: policy.Revision}
	}
	return types.NamespacedName{Namespace: key.Namespace, Name: policy.Revision}
}

// plainPlace returns the place where earlier versions stored the part of an object in plain text, if that part is
// sealed today. They sealed only Secrets.
func plainPlace(key Key, name, system string) types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(key.Namespace, system), Name: name}
}

// fill reads the revisions that clusters are to have, except the newest.
func (v *revisions) fill(ctx context.Context, key Key, g *governance) error {
	if g.recorded == nil {
		return nil
	}
	g.kept = map[string]*material{}
	for _, r := range revisionsIn(g.recorded) {
		if r.Name == g.target.Name || r.Name == rollout.Found || g.kept[r.Name] != nil {
			continue
		}
		if g.recorded.Phase == refractv1alpha1.RolloutComplete && r == &g.recorded.LastGood {
			continue // The last good revision equals the target then.
		}
		m, err := v.read(ctx, key, r)
		if err != nil {
			return err
		}
		g.kept[r.Name] = m
	}
	return nil
}

// read reads one revision. The error of a missing or unreadable part goes into the result, and the copies that need
// the revision report it.
func (v *revisions) read(ctx context.Context, key Key, r *refractv1alpha1.Revision) (*material, error) {
	m := &material{generation: r.Generation, kept: true, allowed: r.Allowed}
	text, err := v.objectPart(ctx, key, r.Object)
	if err != nil || text == nil {
		m.err = fmt.Errorf("revision %s, which the cluster must keep, is gone from the hub", r.Name)
		return m, err
	}
	if m.object, m.err = revision.DecodeObject(text, r.Object, v.key.known()); m.err != nil {
		return m, nil //nolint:nilerr // The copies report the error.
	}
	for i := range r.Policies {
		ref := &r.Policies[i]
		text, err := v.part(ctx, policyPlace(key, ref, v.system), false)
		if err != nil || text == nil {
			m.err = fmt.Errorf("%s %s of revision %s, which the cluster must keep, is gone from the hub", ref.Kind, ref.Name, r.Name)
			return m, err
		}
		policy, err := revision.DecodePolicy(text, ref.Revision, ref.Generation)
		if err != nil {
			m.err = err
			return m, nil //nolint:nilerr // The copies report the error.
		}
		m.policies = append(m.policies, policy)
	}
	return m, nil
}

// objectPart reads the part of an object; nil if it does not exist.
func (v *revisions) objectPart(ctx context.Context, key Key, name string) ([]byte, error) {
	text, err := v.part(ctx, objectPlace(key, name, v.system), isSealed(key))
	if text != nil || err != nil || !isSealed(key) || revision.IsSealed(name) {
		return text, err
	}
	text, err = v.part(ctx, plainPlace(key, name, v.system), false) // An earlier version stored it in plain text.
	if err != nil || revision.Check(text, name, nil) != nil {
		return nil, err // The part is sealed, or another client has changed it.
	}
	return text, nil
}

// part reads a part; nil if it does not exist.
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
	if revision.Check(text, at.Name, v.key.known()) == nil { // A changed part is not cached, because it may be restored.
		v.cache.add(at, text)
	}
	return text, nil
}

// fetch reads a part from the hub. The error for a part that was sealed with a lost key is [revision.ErrSealed].
func (v *revisions) fetch(ctx context.Context, at types.NamespacedName, secret bool) ([]byte, error) {
	c := &appsv1.ControllerRevision{}
	if err := v.live.Get(ctx, at, c); err != nil {
		return nil, err
	}
	return v.open(ctx, c, secret)
}

// open returns the content of a part. If the known key does not open the part, open reads the key from the hub once
// more, because a user may have replaced it.
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

// keep stores the newest revision of an object and its followers, from the cached objects. It returns errRevision if
// these differ from the revision. After a failure, keep returns the same error for refusedFor, without another attempt.
// The report contains the error, a changed report causes a decision, and the decision calls keep again: different
// errors would make this a loop without a pause.
func (v *revisions) keep(ctx context.Context, key Key, d *decider, is *refractv1alpha1.Revision) error {
	if err := v.failed.of(key, is.Name, v.now()); err != nil {
		return err
	}
	err := v.keepAll(ctx, key, d, is)
	if !errors.Is(err, errRevision) {
		v.failed.note(key, is.Name, err, v.now())
	}
	return err
}

func (v *revisions) keepAll(ctx context.Context, key Key, d *decider, is *refractv1alpha1.Revision) error {
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

// store stores a part unless it exists. It checks the hub, because another client may have deleted the part.
func (v *revisions) store(ctx context.Context, at types.NamespacedName, p *revision.Part, secret bool) error {
	data, err := p.Encode()
	if err != nil {
		return err
	}
	return v.storeData(ctx, at, data, secret)
}

// storeData does the same as [revisions.store] for an encoded part.
func (v *revisions) storeData(ctx context.Context, at types.NamespacedName, data []byte, secret bool) error {
	v.stored.note(at, v.now())
	if there, err := v.there(ctx, at, secret); err != nil || there {
		return err
	}
	return v.put(ctx, at, data, secret)
}

// put creates the ControllerRevision of an encoded part, and verifies the stored content.
func (v *revisions) put(ctx context.Context, at types.NamespacedName, data []byte, secret bool) error {
	kept := data
	if secret {
		key, err := v.key.make(ctx, v.live, v.client, v.system)
		if err != nil {
			return err
		}
		if revision.IsSealed(at.Name) && !revision.IsSealedWith(key, at.Name) {
			return errRevision // The key has changed since the part was named.
		}
		if kept, err = revision.Seal(data, key, at.Name); err != nil {
			return err
		}
	}
	meta := metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name, Labels: map[string]string{refractv1alpha1.RevisionLabel: "true"}}
	obj := &appsv1.ControllerRevision{ObjectMeta: meta, Data: runtime.RawExtension{Raw: kept}, Revision: 1}
	switch err := v.client.Create(ctx, obj); {
	case apierrors.IsAlreadyExists(err): // A former leader, or another client, has created an object of the name.
		obj = &appsv1.ControllerRevision{}
		if err := v.live.Get(ctx, at, obj); err != nil {
			return fmt.Errorf("reading revision %s, which already exists: %w", at, err)
		}
	case err != nil:
		return fmt.Errorf("storing revision %s: %w", at, err)
	}
	switch same, err := v.holds(ctx, obj, secret); {
	case err != nil:
		return err
	case !same:
		return fmt.Errorf("the ControllerRevision %s does not have the sent content: "+
			"exempt those with the label %s from the webhook or policy that changes them", at, refractv1alpha1.RevisionLabel)
	case obj.DeletionTimestamp != nil:
		return leaving(obj)
	}
	v.cache.add(at, data)
	return nil
}

// there reports whether the hub has a part with the right content. It deletes a part with other content, or with
// content that cannot be read. It returns an error if a finalizer keeps a part in deletion: the name is not free, and
// the content may disappear at any time.
func (v *revisions) there(ctx context.Context, at types.NamespacedName, secret bool) (bool, error) {
	c := &appsv1.ControllerRevision{}
	if err := v.live.Get(ctx, at, c); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if c.DeletionTimestamp != nil {
		return false, leaving(c)
	}
	v.key.forget() // A part that opens only with the key in memory is lost for the next leader.
	if same, err := v.holds(ctx, c, secret); err != nil || same {
		return same, err
	}
	preconditions := client.Preconditions{UID: new(c.GetUID()), ResourceVersion: new(c.GetResourceVersion())}
	if err := v.client.Delete(ctx, c, preconditions); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("replacing revision %s: %w", at, err)
	}
	return false, nil
}

// holds reports whether a ControllerRevision has the content that its name stands for.
func (v *revisions) holds(ctx context.Context, c *appsv1.ControllerRevision, secret bool) (bool, error) {
	text, err := v.open(ctx, c, secret)
	if errors.Is(err, revision.ErrSealed) {
		return false, nil
	}
	return err == nil && revision.Check(text, c.Name, v.key.known()) == nil, err
}

// refusedFor is the time before another attempt to store a failed revision. mostFailedTries is the maximum number of
// failed revisions in memory.
const (
	refusedFor      = 5 * time.Second
	mostFailedTries = 10_000
)
