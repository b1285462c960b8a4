package injectionpolicies

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
	"refract.dev/internal/rescue"
)

// advised is the time limit for the checks that lead only to warnings, and for the dry run of a pod.
const advised = 2 * time.Second

// advise examines a valid policy whose author has the necessary permissions. It returns the causes to reject the
// policy, and warnings, the most important first. It omits the results of checks that exceed the time limit.
func (v *validator) advise(ctx context.Context, w *write, refs []inject.Reference) ([]metav1.StatusCause, []string) {
	ctx, cancel := context.WithTimeout(ctx, advised)
	defer cancel()
	p, warnings := v.completed(ctx, w)
	policy, errs := inject.Compile(p)
	if len(errs) > 0 {
		warnings = append(warnings, fmt.Sprintf("the annotations of Service %s do not fit the policy: %v", p.Spec.Service, errs.ToAggregate()))
		p = inject.Stated(w.now)
		policy, _ = inject.Compile(p)
	}
	exempt := slices.Contains(v.Exempt, p.Namespace)
	if exempt {
		warnings = append(warnings, fmt.Sprintf("metadata.namespace: nothing is injected into pods of namespace %s, despite its policies", p.Namespace))
	}
	for _, warning := range policy.Warnings() {
		warnings = append(warnings, warning.String())
	}
	var tried verdict
	var missing []string
	var running sync.WaitGroup
	if v.Probe && !exempt {
		running.Go(func() {
			var err error // After a panic, the result is omitted like any result that is late.
			defer rescue.To(&err, v.Log, "trying out an injection policy", "namespace", p.Namespace, "policy", w.name())
			tried = v.try(ctx, w, p)
		})
	}
	running.Go(func() {
		var err error
		defer rescue.To(&err, v.Log, "looking for what an injection policy names", "namespace", p.Namespace, "policy", w.name())
		missing = v.missing(ctx, p.Namespace, refs)
	})
	contradictions := v.contradictions(ctx, policy)
	running.Wait()
	return tried.causes, slices.Concat(contradictions, tried.warnings, missing, warnings)
}

// completed returns the policy with the items that its Service has now, and warnings about the Service.
func (v *validator) completed(ctx context.Context, w *write) (*refractv1beta1.ServiceInjectionPolicy, []string) {
	out := inject.Stated(w.now)
	if !out.Spec.Implicit {
		return out, nil
	}
	name := out.Spec.Service
	service := &corev1.Service{}
	err := v.Client.Get(ctx, client.ObjectKey{Namespace: out.Namespace, Name: name}, service)
	switch {
	case apierrors.IsNotFound(err):
		return out, []string{fmt.Sprintf("spec.service: there is no Service %s yet; until then, only the items of the policy itself are injected", name)}
	case apierrors.IsForbidden(err):
		return out, []string{fmt.Sprintf("spec.service: annotations of Service %s not checked: Refract may not read it here", name)}
	case err != nil:
		v.Log.V(1).Info("Cannot read the Service of a policy", "namespace", out.Namespace, "service", name, "reason", err.Error())
		return out, nil
	}
	items, errs := inject.FromService(service)
	out.Status.FromService = items
	if len(errs) > 0 {
		return out, []string{fmt.Sprintf("spec.service: Service %s: %v; only its valid items are injected", name, errs.ToAggregate())}
	}
	return out, nil
}

// mostContradictions is the number of contradicting policies that a warning names at most.
const mostContradictions = 3

// contradictions returns warnings about other policies that cannot apply together with this policy to the same pod.
func (v *validator) contradictions(ctx context.Context, policy *inject.Policy) []string {
	if v.Others == nil {
		return nil
	}
	var out []string
	more := 0
	for _, other := range v.Others(policy.Namespace()) {
		if ctx.Err() != nil {
			break
		}
		overlap := inject.FindOverlap(policy, other)
		switch {
		case overlap == nil:
		case len(out) == mostContradictions:
			more++
		default:
			out = append(out, overlap.Message)
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more policies conflict with it", more))
	}
	return out
}

// mostLookedAt is the maximum number of references that are looked up in the cluster.
const mostLookedAt = 50

// missing returns warnings about referenced objects that do not exist: pods would not start without them. The author is
// allowed to read all these objects, so the warnings reveal nothing.
func (v *validator) missing(ctx context.Context, namespace string, refs []inject.Reference) []string {
	refs = refs[:min(len(refs), mostLookedAt)]
	texts := make([]string, len(refs))
	var group errgroup.Group
	group.SetLimit(asked)
	for i := range refs {
		if !refs[i].Optional {
			group.Go(func() (err error) {
				defer rescue.To(&err, v.Log, "looking for what an injection policy names", "namespace", namespace)
				texts[i] = v.lacks(ctx, namespace, &refs[i])
				return nil
			})
		}
	}
	_ = group.Wait() // Lookups without a result are omitted.
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// lacks returns a warning if the referenced object or one of its required keys is missing. It returns "" if nothing is
// missing or if this cannot be determined.
func (v *validator) lacks(ctx context.Context, namespace string, ref *inject.Reference) string {
	key := client.ObjectKey{Namespace: namespace, Name: ref.Name}
	var keys map[string]bool
	var err error
	switch {
	case len(ref.Keys) == 0: // Only the existence matters, not the content.
		there := &metav1.PartialObjectMetadata{}
		there.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(ref.Kind))
		err = v.Client.Get(ctx, key, there)
	case ref.Kind == "Secret":
		secret := &corev1.Secret{}
		err = v.Client.Get(ctx, key, secret)
		keys = keysOf(secret.Data)
	default:
		config := &corev1.ConfigMap{}
		err = v.Client.Get(ctx, key, config)
		keys = keysOf(config.Data)
		for k := range config.BinaryData {
			keys[k] = true
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("%s: there is no %s %s yet; pods do not start without it", ref.Path, ref.Kind, ref.Name)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%s: existence of %s %s not checked: Refract may not read it here", ref.Path, ref.Kind, ref.Name)
	case err != nil:
		v.Log.V(1).Info("Cannot read a reference of a policy", "namespace", namespace, "kind", ref.Kind, "name", ref.Name, "reason", err.Error())
		return ""
	}
	without := slices.DeleteFunc(slices.Clone(ref.Keys), func(k string) bool { return keys[k] })
	if len(without) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %s %s has no %s; pods do not start without", ref.Path, ref.Kind, ref.Name, strings.Join(without, ", "))
}

func keysOf[V any](m map[string]V) map[string]bool {
	out := make(map[string]bool, len(m))
	for k := range m {
		out[k] = true
	}
	return out
}
