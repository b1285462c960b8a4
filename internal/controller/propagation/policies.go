package propagation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/rescue"
	"refract.dev/internal/revision"
	variants "refract.dev/internal/variant"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/reference"
	"refract.dev/release"
	"refract.dev/tree"
)

// policies are the policies of the hub, as they are and compiled. Nobody else keeps them:
// they may be large.
type policies struct {
	changed func(tree.Policy)                // Called with a reference without generation.
	deleted func(tree.Policy, client.Object) // Called before that with a policy that is deleted, as it was.
	log     logr.Logger

	mu           sync.RWMutex
	objects      map[tree.Policy]client.Object // Not to be modified.
	overrides    map[tree.Policy]*override.Policy
	propagations map[tree.Policy]*placement.Policy
	rollouts     map[tree.Policy]*release.Policy
	parts        map[tree.Policy]string // What each override policy is kept as.
	problems     map[tree.Policy]error  // Of policies that are not valid.
	// checked is what override policies may have objects refer to.
	checked map[tree.Policy]*corev1alpha1.CheckedReferences
}

func newPolicies(log logr.Logger) *policies {
	return &policies{
		changed:      func(tree.Policy) {},
		deleted:      func(tree.Policy, client.Object) {},
		log:          log,
		objects:      map[tree.Policy]client.Object{},
		overrides:    map[tree.Policy]*override.Policy{},
		propagations: map[tree.Policy]*placement.Policy{},
		rollouts:     map[tree.Policy]*release.Policy{},
		parts:        map[tree.Policy]string{},
		problems:     map[tree.Policy]error{},
		checked:      map[tree.Policy]*corev1alpha1.CheckedReferences{},
	}
}

func (p *policies) override(ref tree.Policy) *override.Policy {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.overrides[ref]
}

func (p *policies) propagation(ref tree.Policy) *placement.Policy {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.propagations[ref]
}

// rollout returns what is known of a rollout policy; nil if there is none.
func (p *policies) rollout(ref tree.Policy) *release.Known {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.objects[ref] == nil {
		return nil
	}
	return &release.Known{Policy: p.rollouts[ref], Err: p.problems[ref]}
}

// revision returns an override policy, and the name of the part that it is kept as; nil if
// there is none.
func (p *policies) revision(ref tree.Policy) (policy *override.Policy, part string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.overrides[ref], p.parts[ref]
}

// object returns a policy as it was last seen; nil if there is none. It is shared, and not
// to be modified.
func (p *policies) object(ref tree.Policy) client.Object {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.objects[ref]
}

// all returns all policies, which are shared and not to be modified.
func (p *policies) all() []client.Object {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Collect(maps.Values(p.objects))
}

// problem returns what is wrong with the policy, or nil.
func (p *policies) problem(ref tree.Policy) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.problems[ref]
}

// may reports whether an override policy, of this generation, may have an object of a
// namespace refer to something: whether it was found that who wrote the policy, or
// approved it, may read that.
func (p *policies) may(policy tree.Policy, namespace string, ref reference.Reference) bool {
	p.mu.RLock()
	checked := p.checked[anyGeneration(policy)]
	p.mu.RUnlock()
	return variants.Allows(checked, policy.Generation, namespace, ref)
}

// watch follows the policies until ctx ends, and returns when all of them are known.
func (p *policies) watch(ctx context.Context, mgr ctrl.Manager, running *sync.WaitGroup) error {
	var synced []cache.InformerSynced
	for _, kind := range []client.Object{
		&corev1alpha1.OverridePolicy{}, &corev1alpha1.ClusterOverridePolicy{},
		&corev1alpha1.PropagationPolicy{}, &corev1alpha1.ClusterPropagationPolicy{},
		&refractv1alpha1.RolloutPolicy{}, &refractv1alpha1.ClusterRolloutPolicy{},
	} {
		gvk, err := mgr.GetClient().GroupVersionKindFor(kind)
		if err != nil {
			return err
		}
		mapping, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return fmt.Errorf("watching %s: %w", gvk.Kind, err)
		}
		view := &policyView{policies: p, kind: gvk.Kind}
		if err := reflect(ctx, mgr, gvk, mapping.Resource.Resource, kind, view, running); err != nil {
			return err
		}
		synced = append(synced, view.hasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	return nil
}

// patience is how soon what the hub holds is asked for again after that failed.
// The default, up to half a minute, would have changes wait for as long when a hub
// was away for seconds.
func patience() *wait.Backoff {
	return &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.5, Steps: 50, Cap: 2 * time.Second}
}

// reflect keeps a store in line with the objects of a kind until ctx ends.
func reflect(ctx context.Context, mgr ctrl.Manager, gvk schema.GroupVersionKind, resource string,
	kind client.Object, into cache.ReflectorStore, running *sync.WaitGroup,
) error {
	rest, err := apiutil.RESTClientForGVK(gvk, false, false, mgr.GetConfig(), serializer.NewCodecFactory(mgr.GetScheme()), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("watching %s: %w", resource, err)
	}
	lw := cache.NewListWatchFromClient(rest, resource, metav1.NamespaceAll, fields.Everything())
	reflector := cache.NewReflectorWithOptions(lw, kind, into, cache.ReflectorOptions{
		Name: "hub/" + resource, TypeDescription: resource, Backoff: patience(),
	})
	running.Go(func() { reflector.RunWithContext(ctx) })
	return nil
}

// policyView is what a reflector writes the policies of one kind to.
type policyView struct {
	policies *policies
	kind     string
	synced   atomic.Bool
}

func (v *policyView) hasSynced() bool { return v.synced.Load() }

// Add is called by the reflector.
func (v *policyView) Add(obj any) error {
	o, ok := obj.(client.Object)
	if !ok {
		return nil
	}
	o.SetManagedFields(nil)
	before := v.policies.object(referenceTo(o))
	// A status that was written is no change of the policy, but for what it may do. Nor are labels and annotations, but
	// for the approval of a placement.
	if before == nil || before.GetGeneration() != o.GetGeneration() || before.GetUID() != o.GetUID() ||
		!equality.Semantic.DeepEqual(checkedIn(before), checkedIn(o)) || askedIn(before) != askedIn(o) || answerIn(before) != answerIn(o) {
		v.policies.store(o)
		return nil
	}
	v.policies.restate(o)
	return nil
}

// Update is called by the reflector.
func (v *policyView) Update(obj any) error { return v.Add(obj) }

// Delete is called by the reflector.
func (v *policyView) Delete(obj any) error {
	if o, ok := obj.(client.Object); ok {
		v.policies.forget(referenceTo(o))
	}
	return nil
}

// Replace is called by the reflector with the result of a list: how things are, be it
// that the hub was set back.
func (v *policyView) Replace(list []any, _ string) error {
	there := make(map[tree.Policy]bool, len(list))
	for _, obj := range list {
		o, ok := obj.(client.Object)
		if !ok {
			continue
		}
		there[referenceTo(o)] = true
		if err := v.Add(o); err != nil {
			return err
		}
	}
	for _, o := range v.policies.all() {
		if ref := referenceTo(o); ref.Kind == v.kind && !there[ref] {
			v.policies.forget(ref)
		}
	}
	v.synced.Store(true)
	return nil
}

// Resync is called by the reflector; there is nothing to do.
func (v *policyView) Resync() error { return nil }

// checkedIn returns what the status of an override policy says of its references.
func checkedIn(obj client.Object) *corev1alpha1.CheckedReferences {
	switch o := obj.(type) {
	case *corev1alpha1.OverridePolicy:
		return o.Status.References
	case *corev1alpha1.ClusterOverridePolicy:
		return o.Status.References
	default:
		return nil
	}
}

// approvedIn returns the token by which a policy approves a change of the placement of its objects; empty if it
// approves none.
func approvedIn(obj client.Object) string { return placement.Approval(obj, statusIn(obj)) }

// answerIn returns the token by which a policy would do so, be it asked or not.
func answerIn(obj client.Object) string {
	return obj.GetAnnotations()[refractv1alpha1.ApprovePlacementAnnotation]
}

// askedIn returns the token that a policy asks to be approved by; empty if it asks nothing.
func askedIn(obj client.Object) string {
	if held := statusIn(obj).PlacementHeld; held != nil {
		return held.Token
	}
	return ""
}

// wrote is told what the hub answered to our own write of a status. It changes what the policy does if it ends an approval.
func (p *policies) wrote(obj client.Object) {
	obj.SetManagedFields(nil)
	if before := p.object(referenceTo(obj)); before != nil && approvedIn(before) != approvedIn(obj) {
		p.store(obj)
		return
	}
	p.restate(obj)
}

// restate keeps a policy that is as it was, with another status.
func (p *policies) restate(obj client.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.objects[referenceTo(obj)] = obj
}

func (p *policies) store(obj client.Object) {
	ref := referenceTo(obj)
	c := p.compile(obj)
	p.mu.Lock()
	p.objects[ref] = obj
	if c.override != nil {
		p.overrides[ref] = c.override
	}
	if c.propagation != nil {
		p.propagations[ref] = c.propagation
	}
	if c.rollout != nil {
		p.rollouts[ref] = c.rollout
	}
	if c.part != "" {
		p.parts[ref] = c.part
	}
	p.checked[ref] = checkedIn(obj)
	delete(p.problems, ref)
	if c.err != nil {
		p.problems[ref] = c.err
	}
	p.mu.Unlock()
	p.changed(ref)
}

// compiled is one kind of policy, or none if Refract stumbled over it: then the one
// before holds.
type compiled struct {
	override    *override.Policy
	propagation *placement.Policy
	rollout     *release.Policy
	part        string // What an override policy is kept as.
	err         error  // What is wrong with it.
}

func (p *policies) compile(obj client.Object) (c compiled) {
	defer rescue.To(&c.err, p.log, "compiling a policy", "namespace", obj.GetNamespace(), "policy", obj.GetName())
	var errs field.ErrorList
	switch o := obj.(type) {
	case *corev1alpha1.OverridePolicy:
		c.override, errs = override.Compile(o)
	case *corev1alpha1.ClusterOverridePolicy:
		c.override, errs = override.CompileCluster(o)
	case *corev1alpha1.PropagationPolicy:
		c.propagation, errs = placement.Compile(o)
	case *corev1alpha1.ClusterPropagationPolicy:
		c.propagation, errs = placement.CompileCluster(o)
	case *refractv1alpha1.RolloutPolicy:
		c.rollout, errs = release.Compile(o)
	case *refractv1alpha1.ClusterRolloutPolicy:
		c.rollout, errs = release.CompileCluster(o)
	}
	if c.override != nil {
		part, err := revision.PolicyPart(obj)
		if err != nil {
			c.err = err
			return c
		}
		c.part = part.Name
	}
	c.err = errs.ToAggregate()
	return c
}

func (p *policies) forget(ref tree.Policy) {
	p.mu.Lock()
	was := p.objects[ref]
	delete(p.objects, ref)
	delete(p.overrides, ref)
	delete(p.propagations, ref)
	delete(p.rollouts, ref)
	delete(p.parts, ref)
	delete(p.problems, ref)
	delete(p.checked, ref)
	p.mu.Unlock()
	if was != nil {
		p.deleted(ref, was)
	}
	p.changed(ref)
}

// referenceTo returns the reference to a policy, without generation.
func referenceTo(o client.Object) tree.Policy {
	return tree.Policy{Kind: kindOf(o), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// kindOf returns the kind of a policy; objects from a watch do not carry it.
func kindOf(o client.Object) string {
	switch o.(type) {
	case *corev1alpha1.OverridePolicy:
		return corev1alpha1.KindOverridePolicy
	case *corev1alpha1.ClusterOverridePolicy:
		return corev1alpha1.KindClusterOverridePolicy
	case *corev1alpha1.PropagationPolicy:
		return corev1alpha1.KindPropagationPolicy
	case *refractv1alpha1.RolloutPolicy:
		return refractv1alpha1.KindRolloutPolicy
	case *refractv1alpha1.ClusterRolloutPolicy:
		return refractv1alpha1.KindClusterRolloutPolicy
	default:
		return corev1alpha1.KindClusterPropagationPolicy
	}
}

// anyGeneration returns the reference without the generation: the key of a policy.
func anyGeneration(ref tree.Policy) tree.Policy {
	ref.Generation = 0
	return ref
}
