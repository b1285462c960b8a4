package converter

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// judgement is the result for a spec: good means that it compiles against the current definition and that its
// verification found no violation.
type judgement int

const (
	bad judgement = iota
	good
	waiting // Other policies are being verified.
)

// judge compiles and verifies the spec of a policy against the current definition, and sets the conditions Compiled and
// Verified. It returns the new content of status.served, nil to keep the present one, and the judgement of the spec. A
// status with the present generation does not prove that the spec was verified, because a user may have edited the
// status. So judge also compares the specs and the definitions.
func (k *reconciler) judge(ctx context.Context, p *refractv1alpha1.ConversionPolicy,
	crd *unstructured.Unstructured,
) (*refractv1alpha1.ServedConversion, judgement) {
	if crd == nil {
		no(reasonNoDefinition, fmt.Sprintf("There is no CustomResourceDefinition %s. The policy is checked when it is created", p.Spec.CRD)).
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
	if same { // This spec was verified before it was written into status.served.
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

// ask sets spec.conversion of the definition to the address of this process, after a successful probe. It returns the
// delay until the next attempt, zero for the default, and the state of the condition Ready.
func (k *reconciler) ask(ctx context.Context, p *refractv1alpha1.ConversionPolicy, crd *unstructured.Unstructured,
	want *admissionregistrationv1.WebhookClientConfig,
) (time.Duration, state) {
	switch {
	case p.Status.Served == nil:
		return 0, no(reasonNotServed, "")
	case crd == nil:
		return 0, no(reasonNoDefinition, "There is no CustomResourceDefinition "+p.Spec.CRD+". If it is created again, "+
			"objects are converted as before, until the policy is accepted for it; otherwise, delete the policy")
	}
	w := crdConversionOf(crd, want)
	if w.theirs != "" && p.Annotations[refractv1alpha1.TakeOverAnnotation] != "true" {
		return 0, no(reasonOthers, fmt.Sprintf("spec.conversion of %s points to %s. To use this policy instead: kubectl annotate conversionpolicy %s "+
			"%s=true", crd.GetName(), w.theirs, p.Name, refractv1alpha1.TakeOverAnnotation))
	}
	if err := k.probe(ctx, p, want); err != nil {
		return soon, no(reasonProbe, err.Error()+": spec.conversion is written when the probe succeeds")
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
	k.log.Info("The API server calls Refract for the conversion of a definition now", "crd", crd.GetName(), "policy", p.Name)
	k.recorder.Eventf(p, nil, corev1.EventTypeNormal, "Wired", "Serve", "spec.conversion of %s points to Refract", crd.GetName())
	return 0, yes(reasonServing, "")
}

// pause returns the time until the next write of spec.conversion of a definition is allowed.
func (k *reconciler) pause(crd string) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.wrote[crd]
	return max(w.wait-time.Since(w.at), 0)
}

// note records a write of spec.conversion of a definition. If the pause after the previous write ended less than
// reaction ago, another writer seems to change the field after each write. The pause then doubles, up to patient.
func (k *reconciler) note(crd string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was, now := k.wrote[crd], writing{at: time.Now(), wait: calm}
	if was.wait > 0 && now.at.Sub(was.at) < was.wait+reaction {
		now.wait = min(2*was.wait, patient)
	}
	k.wrote[crd] = now
}

// contested returns a message about another writer of spec.conversion, with advice.
func contested(crd *unstructured.Unstructured, w crdConversion) string {
	if w.elsewhere != "" {
		return fmt.Sprintf("spec.conversion of %s points to %s: another installation of Refract has replaced the address of this one. Convert with only one "+
			"of them (--conversion): its replicas have one --webhook-url or --webhook-service, and one Lease", crd.GetName(), w.elsewhere)
	}
	what := "caBundle or conversionReviewVersions differ"
	if !w.ours {
		what = "the API server calls no webhook, and returns objects as they are stored"
	}
	return fmt.Sprintf("spec.conversion of %s was changed by %q after Refract had written it: %s. Refract is about to correct it. Configure that manager "+
		"to leave spec.conversion alone", crd.GetName(), changedBy(crd), what)
}

// probe sends conversion requests to this process, as the API server would. After a success, it sends no further
// requests until the program or the address changes.
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
