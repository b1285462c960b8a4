package conversion

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
	// resync is how often a definition is looked at if there is no event about it.
	resync = 5 * time.Minute
	// soon is when something is looked at again that may have passed by itself, such as a
	// probe that another replica has answered which is behind.
	soon = 2 * time.Second
	// calm is the least time between two writes of one spec.conversion, and patient the
	// most that it becomes if somebody writes something else each time: an API server that
	// is told by two what to do must not do nothing else.
	calm    = time.Second
	patient = time.Minute
	// reaction is how soon somebody else writes who acts on what we write.
	reaction = 10 * time.Second
)

// server is what of a webhook server the reconciler wants to know.
type server interface {
	Ready() error
	Address() string
	ClientConfig(path string) *admissionregistrationv1.WebhookClientConfig
}

// reconciler brings what policies say into effect, one definition at a time: it compiles and
// verifies, says in the status what is to be served, and has the API server ask for it.
// One replica does so.
type reconciler struct {
	client   client.Client // Reads what is there now.
	policies client.Reader // Of what is cached.
	server   server
	registry *registry
	recorder events.EventRecorder
	compiler *compiler
	verifier *verifier
	log      logr.Logger

	mu     sync.Mutex
	probed map[string]string  // By definition: what was probed, and where.
	wrote  map[string]writing // By definition: when spec.conversion was written.
}

// writing is when spec.conversion of a definition was written, and how long it is then
// left alone.
type writing struct {
	at   time.Time
	wait time.Duration
}

// Reconcile does all that is to be done for one definition.
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
		r = rolesOf(policies) // The one that was chosen may serve since.
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

// quiet has conflicts tried again without a word.
func quiet(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: calm / 4}, nil
	}
	return reconcile.Result{}, err
}

// forget lets go of what is remembered of a definition that no policy is about.
func (k *reconciler) forget(crd string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.probed, crd)
	delete(k.wrote, crd)
}

// policiesOf returns the policies of a definition; they are the caller's. A cache gives
// out its own, of which there are many with a definition each, and these are copied alone.
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

// definition returns a definition as it is now; nil if there is none.
func definition(ctx context.Context, c client.Reader, name string) (*unstructured.Unstructured, error) {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(definitionKind)
	err := c.Get(ctx, types.NamespacedName{Name: name}, crd)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // There is none, which is no error.
	}
	if err != nil {
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", name, err)
	}
	return crd, nil
}

// serve brings the policy into effect that is to convert objects. It returns when to
// look again, if that is soon.
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

// serveUntil says of a policy in mode Shadow that it converts objects until the one does that is to.
func (k *reconciler) serveUntil(ctx context.Context, p, chosen *refractv1alpha1.ConversionPolicy, crd *unstructured.Unstructured) error {
	if gone, err := k.hold(ctx, p, crd, k.server.ClientConfig(Path+p.Spec.CRD)); gone || err != nil {
		return err
	}
	old := p.DeepCopy()
	yes(reasonNeeded, fmt.Sprintf("It converts the objects of %s although it is a shadow: ConversionPolicy %s, which is to, is not good yet",
		p.Spec.CRD, chosen.Name)).into(p, refractv1alpha1.ConversionReady)
	return k.report(ctx, old, p)
}

// hold keeps a policy that is to convert objects, or does, from being gone before it is no longer needed. It reports whether it lets it go.
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

// correct has the API server ask if it does not, and what is served is known to be good:
// to judge what is not served yet takes time, in which objects would not be converted.
func (k *reconciler) correct(ctx context.Context, p *refractv1alpha1.ConversionPolicy, policies []refractv1alpha1.ConversionPolicy,
	crd *unstructured.Unstructured, want *admissionregistrationv1.WebhookClientConfig,
) error {
	if p.Status.Served == nil || crd == nil || crdConversionOf(crd, want).current {
		return nil
	}
	if k.registry.update(p.Spec.CRD, policies) != nil {
		return nil //nolint:nilerr // What cannot be compiled is said where it is judged.
	}
	k.ask(ctx, p, crd, want) // What comes of it is said when it is asked again.
	now, err := definition(ctx, k.client, p.Spec.CRD)
	if now != nil {
		crd.Object = now.Object
	}
	return err
}

// judgement is what came of judging a spec.
type judgement int

const (
	bad judgement = iota
	good
	waiting // Others are being judged.
)

// judge compiles and verifies the spec of a policy against the definition as it is now,
// and writes the conditions that say so. It returns what is to be served from now on, nil
// for what is served already, and whether the spec is good. A status that somebody has
// changed by hand does not say what was found good.
func (k *reconciler) judge(ctx context.Context, p *refractv1alpha1.ConversionPolicy,
	crd *unstructured.Unstructured,
) (*refractv1alpha1.ServedConversion, judgement) {
	if crd == nil {
		no(reasonNoDefinition, fmt.Sprintf("There is no CustomResourceDefinition %s. The policy is looked at when there is", p.Spec.CRD)).
			into(p, refractv1alpha1.ConversionCompiled)
		return nil, bad
	}
	now := reduced(crd)
	served := p.Status.Served
	same := served != nil && served.Generation == p.Generation && samePacked(served.Definition, now) &&
		equality.Semantic.DeepEqual(served.Spec, p.Spec)
	c := k.compiler.compile(p, now)
	compiledState(c.findings, c.err).into(p, refractv1alpha1.ConversionCompiled)
	if c.err != nil {
		return k.complete(ctx, p, now)
	}
	if same { // It was verified before it was served.
		return nil, good
	}
	v := k.verifier.verify(ctx, p, c)
	v.into(p)
	switch {
	case v.waits:
		return nil, waiting
	case !v.good():
		return k.complete(ctx, p, now)
	}
	packed, err := pack(now)
	if err != nil {
		no(reasonInvalid, err.Error()).into(p, refractv1alpha1.ConversionCompiled)
		return nil, bad
	}
	return &refractv1alpha1.ServedConversion{Generation: p.Generation, Spec: *p.Spec.DeepCopy(), Definition: packed}, good
}

// ask has the API server ask this program, if it answers as it should. It returns when
// to look again, if that is soon, and what came of it.
func (k *reconciler) ask(ctx context.Context, p *refractv1alpha1.ConversionPolicy, crd *unstructured.Unstructured,
	want *admissionregistrationv1.WebhookClientConfig,
) (time.Duration, state) {
	switch {
	case p.Status.Served == nil:
		return 0, no(reasonNotServed, "")
	case crd == nil:
		return 0, no(reasonNoDefinition, "There is no CustomResourceDefinition "+p.Spec.CRD+". If it is created again, "+
			"objects are converted as before, until the policy is found good for it; if not, delete the policy")
	}
	w := crdConversionOf(crd, want)
	if w.theirs != "" && p.Annotations[refractv1alpha1.TakeOverAnnotation] != "true" {
		return 0, no(reasonOthers, fmt.Sprintf("spec.conversion of %s asks %s. To have this policy convert instead: "+
			"kubectl annotate conversionpolicy %s %s=true", crd.GetName(), w.theirs, p.Name, refractv1alpha1.TakeOverAnnotation))
	}
	if err := k.probe(ctx, p, want); err != nil {
		return soon, no(reasonProbe, err.Error()+": the API server is told to ask when the probe is answered")
	}
	if w.current {
		return 0, yes(reasonServing, "")
	}
	if wait := k.pause(crd.GetName()); wait > 0 {
		return wait, no(reasonSpecConversion, contested(crd, w))
	}
	if err := wire(ctx, k.client, crd, want, w); err != nil {
		if apierrors.IsConflict(err) {
			return calm / 4, no(reasonSpecConversion, "spec.conversion of "+crd.GetName()+" is being written")
		}
		return soon, no(reasonSpecConversion, err.Error())
	}
	k.note(crd.GetName())
	k.log.Info("The API server asks for the conversion of a definition now", "crd", crd.GetName(), "policy", p.Name)
	k.recorder.Eventf(p, nil, corev1.EventTypeNormal, "Wired", "Serve", "spec.conversion of %s asks Refract", crd.GetName())
	return 0, yes(reasonServing, "")
}

// pause returns how long spec.conversion of a definition is to be left alone.
func (k *reconciler) pause(crd string) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.wrote[crd]
	return max(w.wait-time.Since(w.at), 0)
}

// note remembers that spec.conversion of a definition has been written. If that was so a
// moment ago, somebody writes it whenever we do, and it is left alone for longer.
func (k *reconciler) note(crd string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was, now := k.wrote[crd], writing{at: time.Now(), wait: calm}
	if was.wait > 0 && now.at.Sub(was.at) < was.wait+reaction {
		now.wait = min(2*was.wait, patient)
	}
	k.wrote[crd] = now
}

// contested says what to do about somebody who writes spec.conversion as well.
func contested(crd *unstructured.Unstructured, w crdConversion) string {
	if w.elsewhere != "" {
		return fmt.Sprintf("spec.conversion of %s asks %s: another program of Refract has written that, after this one had written its own address. "+
			"Have one of them convert (--conversion): its replicas have one --webhook-url or --webhook-service, and one Lease", crd.GetName(), w.elsewhere)
	}
	what := "caBundle or conversionReviewVersions are others"
	if !w.ours {
		what = "the API server asks nobody, and gives objects out as they are stored"
	}
	return fmt.Sprintf("spec.conversion of %s was changed by %q after Refract had written it: %s. It is about to be put right. "+
		"Have that one leave spec.conversion alone", crd.GetName(), changedBy(crd), what)
}

// probe asks what the API server will ask, once for each thing that is served at an
// address.
func (k *reconciler) probe(ctx context.Context, p *refractv1alpha1.ConversionPolicy, want *admissionregistrationv1.WebhookClientConfig) error {
	if err := k.server.Ready(); err != nil {
		return err
	}
	e := k.registry.get(ctx, p.Spec.CRD)
	switch {
	case e == nil:
		return errors.New("this replica does not serve it")
	case e.program == nil:
		return e.err
	}
	config, err := clientConfig(want)
	if err != nil {
		return err
	}
	about := fmt.Sprint(e.key, config)
	k.mu.Lock()
	known := k.probed[p.Spec.CRD] == about
	k.mu.Unlock()
	if known {
		return nil
	}
	prober, err := newProber(want, k.server.Address())
	if err != nil {
		return err
	}
	if err := prober.all(ctx, e.program); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.probed[p.Spec.CRD] = about
	return nil
}

// release takes the finalizer off a policy that is being deleted, if it is no longer needed,
// and reports whether it did.
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
		k.recorder.Eventf(p, nil, corev1.EventTypeNormal, "Unwired", "Release", "spec.conversion of %s asks nobody any more", crd.GetName())
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

// patchFinalizers writes the finalizers of a policy as they are in p.
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

// refuse says of a policy that another one is older, and takes from it what is no longer
// needed.
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
	no(reasonOlder, fmt.Sprintf("ConversionPolicy %s is older, and %s the objects of %s. Delete one of them, or have mode: Shadow in this one",
		older.Name, does, p.Spec.CRD)).into(p, refractv1alpha1.ConversionReady)
	return k.report(ctx, old, p)
}

// compare says of a policy in mode Shadow whether it is being compared, and whether it waits for others
// to be verified.
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

// compareWith judges a policy in mode Shadow, and returns whether it is being compared, and whether it
// waits for others to be verified.
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
		return no(reasonNothing, fmt.Sprintf("No policy converts the objects of %s that it could be compared with", p.Spec.CRD)), v.waits
	}
	return yes(reasonComparing, fmt.Sprintf("It is compared with ConversionPolicy %s", serving.Name)), v.waits
}

// report writes the status of a policy if it has changed. What is counted of comparisons is
// for others to write.
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

// requestFor asks for a definition to be looked at.
func requestFor(crd string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Name: crd}}
}

// setCondition writes a condition into the status of a policy, of its generation of now.
func setCondition(p *refractv1alpha1.ConversionPolicy, c metav1.Condition) {
	c.ObservedGeneration = p.Generation
	meta.SetStatusCondition(&p.Status.Conditions, c)
}
