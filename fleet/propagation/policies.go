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
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/reference"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/fleet/revision"
	variants "refract.dev/fleet/variant"
	"refract.dev/internal/rescue"
	"refract.dev/tree"
)

// policies holds the policies of the hub, as objects and compiled. No other cache holds them, because they may be
// large.
type policies struct {
	changed func(tree.Policy) // Called with a reference without generation.
	// restated is called, with a reference without generation, when only the status of a policy has changed. The
	// reviewer needs the call because it compares with the cached status, which may be older than its own last write.
	restated func(tree.Policy)
	deleted  func(tree.Policy, client.Object) // Called with a deleted policy and its last state; changed is called next.
	log      logr.Logger

	mu           sync.RWMutex
	objects      map[tree.Policy]client.Object // Read-only.
	overrides    map[tree.Policy]*override.Policy
	propagations map[tree.Policy]*placement.Policy
	rollouts     map[tree.Policy]*rollout.Policy
	parts        map[tree.Policy]string // The name of the revision part that stores each override policy.
	problems     map[tree.Policy]error  // The errors of invalid policies.
	// checked has the references that each override policy is permitted to add.
	checked map[tree.Policy]*corev1alpha1.CheckedReferences
}

func newPolicies(log logr.Logger) *policies {
	return &policies{
		changed:      func(tree.Policy) {},
		restated:     func(tree.Policy) {},
		deleted:      func(tree.Policy, client.Object) {},
		log:          log,
		objects:      map[tree.Policy]client.Object{},
		overrides:    map[tree.Policy]*override.Policy{},
		propagations: map[tree.Policy]*placement.Policy{},
		rollouts:     map[tree.Policy]*rollout.Policy{},
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

// rollout returns the compiled rollout policy or its error; nil if it does not exist.
func (p *policies) rollout(ref tree.Policy) *rollout.Known {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.objects[ref] == nil {
		return nil
	}
	return &rollout.Known{Policy: p.rollouts[ref], Err: p.problems[ref]}
}

// revision returns an override policy and the name of the part that stores it; nil if the policy does not exist.
func (p *policies) revision(ref tree.Policy) (policy *override.Policy, part string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.overrides[ref], p.parts[ref]
}

// object returns a policy as last seen; nil if it does not exist. It is shared and read-only.
func (p *policies) object(ref tree.Policy) client.Object {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.objects[ref]
}

// all returns all policies. They are shared and read-only.
func (p *policies) all() []client.Object {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Collect(maps.Values(p.objects))
}

// problem returns the error of an invalid policy, or nil.
func (p *policies) problem(ref tree.Policy) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.problems[ref]
}

// may reports whether an override policy of this generation may add a reference to an object of a namespace. It may
// if the author of the policy, or a user who approved its references, is known to have the right to read the
// referenced object.
func (p *policies) may(policy tree.Policy, namespace string, ref reference.Reference) bool {
	p.mu.RLock()
	checked := p.checked[anyGeneration(policy)]
	p.mu.RUnlock()
	return variants.Allows(checked, policy.Generation, namespace, ref)
}

// watch starts watches of the policies until ctx ends. It returns when all policies are known.
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

// patience is the back-off after a failed list or watch of the hub. With the default of up to half a minute, changes
// would wait for as long after an outage of seconds.
func patience() *wait.Backoff {
	return &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.5, Steps: 50, Cap: 2 * time.Second}
}

// reflect keeps a store equal to the objects of a kind until ctx ends.
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

// policyView is the store into which a reflector writes the policies of one kind.
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
	// A written status does not change the effect of a policy, except for the permitted references. Neither do labels
	// and annotations, except for the approval of a placement. The generation alone is not sufficient: on a restored
	// hub it counts up again from an older value.
	if before == nil || before.GetGeneration() != o.GetGeneration() || before.GetUID() != o.GetUID() ||
		!equality.Semantic.DeepEqual(specIn(before), specIn(o)) ||
		!equality.Semantic.DeepEqual(checkedIn(before), checkedIn(o)) || askedIn(before) != askedIn(o) || answerIn(before) != answerIn(o) {
		v.policies.store(o)
		return nil
	}
	v.policies.restate(o)
	if before.GetResourceVersion() != o.GetResourceVersion() {
		v.policies.restated(referenceTo(o))
	}
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

// Replace is called by the reflector with the result of a list. This is the present state, even if the hub was
// restored to an earlier one.
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

// Resync is called by the reflector, and does nothing.
func (v *policyView) Resync() error { return nil }

// checkedIn returns the permitted references in the status of an override policy.
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

// specIn returns the spec of a policy.
func specIn(obj client.Object) any {
	switch o := obj.(type) {
	case *corev1alpha1.OverridePolicy:
		return &o.Spec
	case *corev1alpha1.ClusterOverridePolicy:
		return &o.Spec
	case *corev1alpha1.PropagationPolicy:
		return &o.Spec
	case *corev1alpha1.ClusterPropagationPolicy:
		return &o.Spec
	case *refractv1alpha1.RolloutPolicy:
		return &o.Spec
	case *refractv1alpha1.ClusterRolloutPolicy:
		return &o.Spec
	default:
		return nil
	}
}

// approvedIn returns the token by which a policy approves a change of the placement of its objects; empty if it
// approves none.
func approvedIn(obj client.Object) string { return placement.Approval(obj, statusIn(obj)) }

// answerIn returns the token in the approval annotation of a policy, whether it answers a question or not.
func answerIn(obj client.Object) string {
	return obj.GetAnnotations()[refractv1alpha1.ApprovePlacementAnnotation]
}

// askedIn returns the token that would approve the change that a policy waits for; empty if it waits for none.
func askedIn(obj client.Object) string {
	if held := statusIn(obj).PlacementHeld; held != nil {
		return held.Token
	}
	return ""
}

// wrote takes over the hub's answer to a write of a status by this replica. It stores the policy again if the write
// ends an approval, because that changes the effect of the policy.
func (p *policies) wrote(obj client.Object) {
	obj.SetManagedFields(nil)
	if before := p.object(referenceTo(obj)); before != nil && approvedIn(before) != approvedIn(obj) {
		p.store(obj)
		return
	}
	p.restate(obj)
}

// restate stores a policy whose status alone has changed.
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

// compiled is the result of compiling one policy. If the compiler panicked, it is empty except for the error, and the
// former result stays in use.
type compiled struct {
	override    *override.Policy
	propagation *placement.Policy
	rollout     *rollout.Policy
	part        string // The name of the part that stores an override policy.
	err         error  // The error of an invalid policy.
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
		c.rollout, errs = rollout.Compile(o)
	case *refractv1alpha1.ClusterRolloutPolicy:
		c.rollout, errs = rollout.CompileCluster(o)
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

// kindOf returns the kind of a policy, because objects from a watch do not have it.
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
