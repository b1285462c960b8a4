package converter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/output"
)

const (
	// resync is the interval at which a definition is reconciled without an event.
	resync = 5 * time.Minute
	// soon is the delay before the next attempt after an error that may disappear on its own. For example, a replica
	// with an outdated registry may have answered a probe.
	soon = 2 * time.Second
	// calm is the minimum time between two writes of spec.conversion of a definition. While another writer changes the
	// field after each write, the time doubles, up to patient. The API server rebuilds the storage of the kind after
	// each write, and two competing writers must not overload it.
	calm    = time.Second
	patient = time.Minute
	// reaction is the time within which another writer changes the field after a write by Refract.
	reaction = 10 * time.Second
)

// server is the part of a webhook server that the reconciler needs.
type server interface {
	Ready() error
	Address() string
	ClientConfig(path string) *admissionregistrationv1.WebhookClientConfig
}

// reconciler puts policies into effect, one definition at a time. It compiles and verifies the spec, writes
// status.served, and points spec.conversion of the definition at Refract. Only the leading replica runs it.
type reconciler struct {
	client   client.Client // Reads from the API server, not from a cache.
	policies client.Reader // Reads policies from the cache.
	server   server
	registry *registry
	recorder events.EventRecorder
	compiler *compiler
	verifier *verifier
	log      logr.Logger

	mu     sync.Mutex
	probed map[string]string  // By definition: the program and the address of the last successful probe.
	wrote  map[string]writing // By definition: the last write of spec.conversion.
}

// writing records a write of spec.conversion of one definition: its time, and the pause after it.
type writing struct {
	at   time.Time
	wait time.Duration
}

// Reconcile brings one definition and the statuses of its policies up to date. The request has the name of the
// definition.
func (k *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	policies, err := policiesOf(ctx, k.policies, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(policies) == 0 {
		k.forget(req.Name)
		return reconcile.Result{}, nil
	}
	crd, err := definition(ctx, k.client, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	r := rolesOf(policies)
	result := reconcile.Result{RequeueAfter: resync}
	if r.chosen != nil {
		again, err := k.serve(ctx, r, policies, crd)
		if err != nil {
			return quiet(err)
		}
		if again > 0 {
			result.RequeueAfter = again
		}
		r = rolesOf(policies) // The chosen policy may have status.served now.
	}
	var errs []error
	if p := r.serving; p != nil && p != r.chosen && p.Spec.Mode == refractv1alpha1.ConversionShadow {
		errs = append(errs, k.serveUntil(ctx, p, r.chosen, crd))
	}
	for _, p := range r.late {
		errs = append(errs, k.refuse(ctx, p, r.chosen))
	}
	for _, p := range r.comparisons {
		waits, err := k.compare(ctx, p, r.serving, crd)
		errs = append(errs, err)
		if waits {
			result.RequeueAfter = min(result.RequeueAfter, verifyWait)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return quiet(err)
	}
	return result, nil
}

// quiet returns the result for an error. After a conflict it retries without an error in the log.
func quiet(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: calm / 4}, nil
	}
	return reconcile.Result{}, err
}

// forget deletes the remembered state of a definition without policies.
func (k *reconciler) forget(crd string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.probed, crd)
	delete(k.wrote, crd)
}

// policiesOf returns the policies of a definition; the caller may modify them. It reads the cache without copies and
// copies only the returned policies, because the cache may have many policies and each contains a definition.
func policiesOf(ctx context.Context, c client.Reader, crd string) ([]refractv1alpha1.ConversionPolicy, error) {
	all := &refractv1alpha1.ConversionPolicyList{}
	if err := c.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ConversionPolicies: %w", err)
	}
	var out []refractv1alpha1.ConversionPolicy
	for i := range all.Items {
		if all.Items[i].Spec.CRD == crd {
			out = append(out, *all.Items[i].DeepCopy())
		}
	}
	return out, nil
}

// definition reads a definition from the API server; nil if it does not exist.
func definition(ctx context.Context, c client.Reader, name string) (*unstructured.Unstructured, error) {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(definitionKind)
	err := c.Get(ctx, types.NamespacedName{Name: name}, crd)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // A missing definition is no error.
	}
	if err != nil {
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", name, err)
	}
	return crd, nil
}

// serve puts the chosen policy into effect. It returns the delay until the next attempt, zero for the default.
func (k *reconciler) serve(ctx context.Context, r roles, policies []refractv1alpha1.ConversionPolicy, crd *unstructured.Unstructured) (time.Duration, error) {
	p := r.chosen
	want := k.server.ClientConfig(Path + p.Spec.CRD)
	if gone, err := k.hold(ctx, p, crd, want); gone || err != nil {
		return 0, err
	}
	if err := k.correct(ctx, p, policies, crd, want); err != nil {
		return 0, err
	}
	old := p.DeepCopy()
	next, found := k.judge(ctx, p, crd)
	if next != nil {
		p.Status.Served = next
		k.recorder.Eventf(p, nil, corev1.EventTypeNormal, "Served", "Serve", "Objects of %s are converted by generation %d.%s",
			p.Spec.CRD, next.Generation, keptAway(next.Kept))
		if err := k.report(ctx, old, p); err != nil {
			return 0, err
		}
		old = p.DeepCopy()
	}
	broken := k.registry.update(p.Spec.CRD, policies)
	again, state := k.ask(ctx, p, crd, want)
	if broken != nil {
		state = no(reasonDamaged, broken.Error())
	}
	if found == waiting {
		again = verifyWait
	}
	state = readiness(p, found == good, state, crd, want)
	state.into(p, refractv1alpha1.ConversionReady)
	if was := meta.FindStatusCondition(old.Status.Conditions, refractv1alpha1.ConversionReady); was == nil || was.Reason != state.reason {
		k.recorder.Eventf(p, nil, state.event(), state.reason, "Serve", "%s", output.Cut(state.message, mostMessage-len("…")))
	}
	return again, k.report(ctx, old, p)
}

// serveUntil handles a shadow that still converts objects because the chosen policy has no status.served yet. It
// reports this in the status of the shadow.
func (k *reconciler) serveUntil(ctx context.Context, p, chosen *refractv1alpha1.ConversionPolicy, crd *unstructured.Unstructured) error {
	if gone, err := k.hold(ctx, p, crd, k.server.ClientConfig(Path+p.Spec.CRD)); gone || err != nil {
		return err
	}
	old := p.DeepCopy()
	yes(reasonNeeded, fmt.Sprintf("It converts the objects of %s although it is a shadow: ConversionPolicy %s cannot convert them yet",
		p.Spec.CRD, chosen.Name)).into(p, refractv1alpha1.ConversionReady)
	return k.report(ctx, old, p)
}

// hold adds the finalizer to a policy that converts objects or is to convert them. If the policy is being deleted and
// no longer needed, hold removes the finalizer, and gone is true.
func (k *reconciler) hold(ctx context.Context, p *refractv1alpha1.ConversionPolicy, crd *unstructured.Unstructured,
	want *admissionregistrationv1.WebhookClientConfig,
) (gone bool, err error) {
	if !p.DeletionTimestamp.IsZero() {
		return k.release(ctx, p, crd, want)
	}
	if controllerutil.AddFinalizer(p, refractv1alpha1.ConversionFinalizer) {
		return false, k.patchFinalizers(ctx, p)
	}
	return false, nil
}

// correct points spec.conversion at Refract again if another writer has changed it and the spec in status.served
// compiles. It runs before judge, because verification takes seconds, and objects would not be converted during that
// time.
func (k *reconciler) correct(ctx context.Context, p *refractv1alpha1.ConversionPolicy, policies []refractv1alpha1.ConversionPolicy,
	crd *unstructured.Unstructured, want *admissionregistrationv1.WebhookClientConfig,
) error {
	if p.Status.Served == nil || crd == nil || crdConversionOf(crd, want).current {
		return nil
	}
	if k.registry.update(p.Spec.CRD, policies) != nil {
		return nil //nolint:nilerr // judge reports a spec that does not compile.
	}
	k.ask(ctx, p, crd, want) // serve calls ask again, and reports the result.
	now, err := definition(ctx, k.client, p.Spec.CRD)
	if now != nil {
		crd.Object = now.Object
	}
	return err
}

// release removes the finalizer of a policy that is being deleted, and returns true, unless the definition still needs
// the policy.
func (k *reconciler) release(ctx context.Context, p *refractv1alpha1.ConversionPolicy, crd *unstructured.Unstructured,
	want *admissionregistrationv1.WebhookClientConfig,
) (bool, error) {
	if neededBy(p, crd, want) != "" {
		return false, nil
	}
	if crd != nil && crdConversionOf(crd, want).ours {
		if err := unwire(ctx, k.client, crd); err != nil {
			return false, err
		}
		k.recorder.Eventf(p, nil, corev1.EventTypeNormal, "Unwired", "Release", "spec.conversion of %s no longer points to a webhook", crd.GetName())
		k.log.Info("The API server converts a definition without a webhook now", "crd", crd.GetName(), "policy", p.Name)
	}
	return true, k.dropFinalizer(ctx, p)
}

func (k *reconciler) dropFinalizer(ctx context.Context, p *refractv1alpha1.ConversionPolicy) error {
	if !controllerutil.RemoveFinalizer(p, refractv1alpha1.ConversionFinalizer) {
		return nil
	}
	return k.patchFinalizers(ctx, p)
}

// patchFinalizers writes the finalizers of p after Refract's finalizer was added or removed.
func (k *reconciler) patchFinalizers(ctx context.Context, p *refractv1alpha1.ConversionPolicy) error {
	before := p.DeepCopy()
	before.Finalizers = nil
	if len(p.Finalizers) == 0 {
		before.Finalizers = []string{refractv1alpha1.ConversionFinalizer}
	}
	status := p.Status.DeepCopy()
	err := k.client.Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldManager))
	p.Status = *status
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing the finalizers of ConversionPolicy %s: %w", p.Name, err))
	}
	return nil
}

// refuse reports in the status of a policy that an older policy has precedence. If the older policy has status.served,
// refuse also removes the finalizer and status.served of the younger one.
func (k *reconciler) refuse(ctx context.Context, p, older *refractv1alpha1.ConversionPolicy) error {
	if older.Status.Served != nil && slices.Contains(p.Finalizers, refractv1alpha1.ConversionFinalizer) {
		if err := k.dropFinalizer(ctx, p); err != nil {
			return err
		}
	}
	old, does := p.DeepCopy(), "is to convert"
	if older.Status.Served != nil {
		p.Status.Served, does = nil, "converts"
	}
	no(reasonOlder, fmt.Sprintf("ConversionPolicy %s is older, and %s the objects of %s. Delete one of them, or set mode: Shadow in this one",
		older.Name, does, p.Spec.CRD)).into(p, refractv1alpha1.ConversionReady)
	return k.report(ctx, old, p)
}

// compare reports in the status of a shadow whether it is compared with the serving policy. waits is true if the shadow
// waits for the verification of other policies.
func (k *reconciler) compare(ctx context.Context, p, serving *refractv1alpha1.ConversionPolicy, crd *unstructured.Unstructured) (waits bool, err error) {
	if serving != nil && slices.Contains(p.Finalizers, refractv1alpha1.ConversionFinalizer) {
		if err := k.dropFinalizer(ctx, p); err != nil {
			return false, err
		}
	}
	if !p.DeletionTimestamp.IsZero() {
		return false, nil
	}
	old := p.DeepCopy()
	if serving != nil {
		p.Status.Served = nil
	}
	is, waits := k.compareWith(ctx, p, serving, crd)
	is.into(p, refractv1alpha1.ConversionReady)
	return waits, k.report(ctx, old, p)
}

// compareWith compiles and verifies a shadow. It returns the state of the condition Ready, and whether the shadow waits
// for the verification of other policies.
func (k *reconciler) compareWith(ctx context.Context, p, serving *refractv1alpha1.ConversionPolicy, crd *unstructured.Unstructured) (state, bool) {
	if crd == nil {
		missing := no(reasonNoDefinition, "There is no CustomResourceDefinition "+p.Spec.CRD)
		missing.into(p, refractv1alpha1.ConversionCompiled)
		return missing, false
	}
	c := k.compiler.compile(p, reduced(crd))
	compiledState(c.findings, c.err).into(p, refractv1alpha1.ConversionCompiled)
	if c.err != nil {
		return no(reasonInvalid, because(p)), false
	}
	v := k.verifier.verify(ctx, p, c)
	v.into(p)
	if serving == nil {
		return no(reasonNothing, fmt.Sprintf("There is no serving policy for %s to compare with", p.Spec.CRD)), v.waits
	}
	return yes(reasonComparing, fmt.Sprintf("It is compared with ConversionPolicy %s", serving.Name)), v.waits
}

// report writes the status of a policy if it has changed. It does not change the counts of comparisons, which the
// replicas write themselves.
func (k *reconciler) report(ctx context.Context, old, p *refractv1alpha1.ConversionPolicy) error {
	p.Status.ObservedGeneration = p.Generation
	if equality.Semantic.DeepEqual(old.Status, p.Status) {
		return nil
	}
	p.ResourceVersion = old.ResourceVersion
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := k.client.Status().Patch(ctx, p, patch, client.FieldOwner(FieldManager)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing the status of ConversionPolicy %s: %w", p.Name, err))
	}
	return nil
}

var _ reconcile.Reconciler = (*reconciler)(nil)

// requestFor returns the request to reconcile a definition.
func requestFor(crd string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Name: crd}}
}

// setCondition sets a condition of a policy, with the generation of the policy as observedGeneration.
func setCondition(p *refractv1alpha1.ConversionPolicy, c metav1.Condition) {
	c.ObservedGeneration = p.Generation
	meta.SetStatusCondition(&p.Status.Conditions, c)
}
