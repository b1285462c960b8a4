// Package implicit completes policies with implicit: true from the annotations of
// the Service that they name, and keeps them so as the Service changes.
//
// What comes of it stands in the status of the policy: status.fromService, which
// the webhook injects along with what stands in the spec; status.effective, both
// together; and the condition ServiceFound. Who writes the status is its field
// owner "refract-implicit", and nobody else writes these parts.
package implicit

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// FieldOwner owns the parts of a policy's status that are written here.
const FieldOwner = "refract-implicit"

// concurrent is how many policies are completed at a time.
const concurrent = 4

// Setup registers the controller with the manager. It reads policies and Services
// from the manager's cache.
func Setup(mgr ctrl.Manager, log logr.Logger) error {
	r := &reconciler{client: mgr.GetClient(), recorder: mgr.GetEventRecorder("refract"), now: metav1.Now}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("implicit").
		For(&refractv1beta1.ServiceInjectionPolicy{}).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.policiesOf), builder.WithPredicates(predicate.Funcs{UpdateFunc: speaksAnew})).
		WithLogConstructor(func(*reconcile.Request) logr.Logger { return log }).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the completion of policies: %w", err)
	}
	return nil
}

type reconciler struct {
	client   client.Client
	recorder events.EventRecorder
	now      func() metav1.Time
}

// policiesOf returns the policies that a Service completes.
func (r *reconciler) policiesOf(ctx context.Context, service client.Object) []reconcile.Request {
	list := &refractv1beta1.ServiceInjectionPolicyList{}
	if err := r.client.List(ctx, list, client.InNamespace(service.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list the policies of a Service", "namespace", service.GetNamespace(), "service", service.GetName())
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.Implicit && p.Spec.Service == service.GetName() {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}
	return out
}

// speaksAnew tells changes of what a Service says to its consumers from others.
func speaksAnew(e event.UpdateEvent) bool {
	was, ok1 := e.ObjectOld.(*corev1.Service)
	is, ok2 := e.ObjectNew.(*corev1.Service)
	if !ok1 || !ok2 || was.UID != is.UID {
		return true
	}
	for _, key := range annotations {
		if was.Annotations[key] != is.Annotations[key] {
			return true
		}
	}
	return is.Annotations[refractv1beta1.DeriveAnnotation] != "" && !samePorts(was.Spec.Ports, is.Spec.Ports)
}

// annotations are those of a Service that complete a policy.
var annotations = []string{
	refractv1beta1.EnvAnnotation, refractv1beta1.EnvFromAnnotation, refractv1beta1.MountAnnotation,
	refractv1beta1.PrefixAnnotation, refractv1beta1.DeriveAnnotation,
}

func samePorts(a, b []corev1.ServicePort) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || a[i].Port != b[i].Port {
			return false
		}
	}
	return true
}

// Reconcile brings the status of one policy in line with its Service.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	policy := &refractv1beta1.ServiceInjectionPolicy{}
	if err := r.client.Get(ctx, req.NamespacedName, policy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if policy.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	var service *corev1.Service
	if policy.Spec.Implicit {
		found, err := r.service(ctx, client.ObjectKey{Namespace: policy.Namespace, Name: policy.Spec.Service})
		if err != nil {
			return reconcile.Result{}, err
		}
		service = found
	}
	was, is := standingOf(policy), complete(policy, service, r.now())
	if was.same(is) {
		return reconcile.Result{}, nil
	}
	if err := r.write(ctx, policy, is); err != nil {
		return reconcile.Result{}, err
	}
	r.announce(policy, was.condition, is.condition)
	return reconcile.Result{}, nil
}

// service returns a Service; nil if there is none.
func (r *reconciler) service(ctx context.Context, key client.ObjectKey) (*corev1.Service, error) {
	out := &corev1.Service{}
	err := r.client.Get(ctx, key, out)
	switch {
	case apierrors.IsNotFound(err):
		out = nil
	case err != nil:
		return nil, fmt.Errorf("reading Service %s: %w", key, err)
	}
	return out, nil
}

// write puts what is known of the Service into the status. That the policy has gone
// meanwhile, or is another by now, is no error: it is looked at again.
func (r *reconciler) write(ctx context.Context, policy *refractv1beta1.ServiceInjectionPolicy, s standing) error {
	content, err := s.content()
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": content}}
	u.SetGroupVersionKind(refractv1beta1.GroupVersion.WithKind(refractv1beta1.KindServiceInjectionPolicy))
	u.SetNamespace(policy.Namespace)
	u.SetName(policy.Name)
	u.SetUID(policy.UID) // Another one of the name has another Service's word.
	err = r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldOwner), client.ForceOwnership)
	if err == nil {
		err = r.purge(ctx, u, s)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the status of policy %s/%s: %w", policy.Namespace, policy.Name, err)
	}
	return nil
}

// purge takes out what others have written into these parts of the status. Applying
// leaves that alone where it says nothing itself, and pods would get it.
func (r *reconciler) purge(ctx context.Context, stored *unstructured.Unstructured, s standing) error {
	is := &refractv1beta1.ServiceInjectionPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, is); err != nil {
		return fmt.Errorf("reading what was stored: %w", err)
	}
	if standingOf(is).same(s) {
		return nil
	}
	was := is.DeepCopy()
	is.Status.FromService, is.Status.Effective = s.fromService, s.effective
	if s.condition == nil {
		meta.RemoveStatusCondition(&is.Status.Conditions, refractv1beta1.ConditionServiceFound)
	}
	return r.client.Status().Patch(ctx, is, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldOwner))
}

// announce records an event on the policy where the Service came, went, or said
// something else that is wrong. That it is there from the beginning is no event.
func (r *reconciler) announce(policy *refractv1beta1.ServiceInjectionPolicy, was, is *metav1.Condition) {
	switch {
	case is == nil || was == nil && is.Status == metav1.ConditionTrue:
	case was != nil && was.Status == is.Status && was.Reason == is.Reason && (is.Status == metav1.ConditionTrue || was.Message == is.Message):
	case is.Status == metav1.ConditionTrue:
		r.recorder.Eventf(policy, nil, corev1.EventTypeNormal, "Service"+is.Reason, "Complete", "%s", is.Message)
	default:
		r.recorder.Eventf(policy, nil, corev1.EventTypeWarning, "Service"+is.Reason, "Complete", "%s", cut(is.Message, longestNote))
	}
}

// longestNote is how many bytes of a message an event tells; it has room for 1024.
const longestNote = 1000

// cut shortens a text to so many bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
