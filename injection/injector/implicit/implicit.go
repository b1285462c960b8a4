// Package implicit completes policies with implicit: true. It reads the items from the annotations of the Service that
// a policy names, and updates the policy when the Service changes.
//
// The results are in the status of the policy: status.fromService, the items that the webhook injects in addition to
// those of the spec; status.effective, both together; and the condition ServiceFound. The field owner
// "refract-implicit" is the only writer of these parts.
package implicit

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"refract.dev/internal/output"
)

// FieldOwner is the field owner of the parts of a policy's status that this package writes.
const FieldOwner = "refract-implicit"

// concurrent is the number of policies that are reconciled in parallel.
const concurrent = 4

// Setup registers the controller with the manager. It reads policies and Services from the manager's cache. Policies
// are decoded one by one, not as a typed list, so that one that cannot be decoded does not affect others.
func Setup(mgr ctrl.Manager, log logr.Logger) error {
	r := &reconciler{reader: mgr.GetCache(), client: mgr.GetClient(), recorder: mgr.GetEventRecorder("refract"), now: metav1.Now}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("implicit").
		For(kind()).
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
	reader   client.Reader // Reads from the cache.
	client   client.Client // Writes.
	recorder events.EventRecorder
	now      func() metav1.Time
}

// kind returns an empty object of the policies' kind.
func kind() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(refractv1beta1.GroupVersion.WithKind(refractv1beta1.KindServiceInjectionPolicy))
	return u
}

// policiesOf returns requests for the policies that take over items of a Service.
func (r *reconciler) policiesOf(ctx context.Context, service client.Object) []reconcile.Request {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind().GroupVersionKind())
	if err := r.reader.List(ctx, list, client.InNamespace(service.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list the policies of a Service", "namespace", service.GetNamespace(), "service", service.GetName())
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		p := &list.Items[i]
		implicit, _, _ := unstructured.NestedBool(p.Object, "spec", "implicit")
		if name, _, _ := unstructured.NestedString(p.Object, "spec", "service"); implicit && name == service.GetName() {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}
	return out
}

// speaksAnew reports whether an update of a Service may change its items.
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

// annotations are the annotations of a Service that define items for policies.
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

// Reconcile updates the status of one policy from its Service.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	u := kind()
	if err := r.reader.Get(ctx, req.NamespacedName, u); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	policy, sound, err := read(u)
	if err != nil || policy.DeletionTimestamp != nil {
		return reconcile.Result{}, nil //nolint:nilerr // The status of the policy reports the error, and a retry would not help.
	}
	var service *corev1.Service
	if policy.Spec.Implicit {
		found, err := r.service(ctx, client.ObjectKey{Namespace: policy.Namespace, Name: policy.Spec.Service})
		if err != nil {
			return reconcile.Result{}, err
		}
		service = found
	}
	was, is := serviceStatusOf(policy), complete(policy, service, r.now())
	if sound && was.same(is) {
		return reconcile.Result{}, nil
	}
	if err := r.write(ctx, policy, is); err != nil {
		return reconcile.Result{}, err
	}
	r.announce(policy, was.condition, is.condition)
	return reconcile.Result{}, nil
}

// read decodes a policy with only those parts of its status that this package writes. Parts that cannot be decoded are
// omitted, and sound is false. An error means that the rest of the policy cannot be decoded.
func read(u *unstructured.Unstructured) (policy *refractv1beta1.ServiceInjectionPolicy, sound bool, err error) {
	content := maps.Clone(u.Object)
	delete(content, "status")
	policy = &refractv1beta1.ServiceInjectionPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, policy); err != nil {
		return nil, false, fmt.Errorf("reading policy %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	status, _, err := unstructured.NestedFieldNoCopy(u.Object, "status")
	parts, ok := status.(map[string]any)
	if sound = err == nil && (ok || status == nil); !ok {
		return policy, sound, nil
	}
	for key := range kept {
		if parts[key] == nil {
			continue
		}
		var one refractv1beta1.ServiceInjectionPolicyStatus
		if runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{key: parts[key]}, &one) != nil {
			sound = false
			continue
		}
		kept[key](&policy.Status, &one)
	}
	return policy, sound, nil
}

// For each part of a status that this package writes, kept has a function that copies the part.
var kept = map[string]func(to, from *refractv1beta1.ServiceInjectionPolicyStatus){
	"fromService": func(to, from *refractv1beta1.ServiceInjectionPolicyStatus) { to.FromService = from.FromService },
	"effective":   func(to, from *refractv1beta1.ServiceInjectionPolicyStatus) { to.Effective = from.Effective },
	"conditions":  func(to, from *refractv1beta1.ServiceInjectionPolicyStatus) { to.Conditions = from.Conditions },
}

// service returns a Service; nil if it does not exist.
func (r *reconciler) service(ctx context.Context, key client.ObjectKey) (*corev1.Service, error) {
	out := &corev1.Service{}
	err := r.reader.Get(ctx, key, out)
	switch {
	case apierrors.IsNotFound(err):
		out = nil
	case err != nil:
		return nil, fmt.Errorf("reading Service %s: %w", key, err)
	}
	return out, nil
}

// write writes the results to the status. If the policy was deleted or replaced in the meantime, write returns no
// error, because another event follows.
func (r *reconciler) write(ctx context.Context, policy *refractv1beta1.ServiceInjectionPolicy, s serviceStatus) error {
	content, err := s.content()
	if err != nil {
		return err
	}
	u := kind()
	u.Object["status"] = content
	u.SetNamespace(policy.Namespace)
	u.SetName(policy.Name)
	u.SetUID(policy.UID) // The UID prevents a write to a new policy with the same name.
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

// purge removes values that other writers have put into these parts of the status. Server-side apply keeps such a value
// if the applied object does not have the field, and pods would get it.
func (r *reconciler) purge(ctx context.Context, stored *unstructured.Unstructured, s serviceStatus) error {
	is, sound, err := read(stored)
	if err != nil {
		return err
	}
	if sound && serviceStatusOf(is).same(s) {
		return nil
	}
	content, err := s.content()
	if err != nil {
		return err
	}
	was := stored.DeepCopy()
	status, _, _ := unstructured.NestedMap(stored.Object, "status")
	if status == nil {
		status = map[string]any{}
	}
	for _, key := range []string{"fromService", "effective"} {
		delete(status, key)
		if content[key] != nil {
			status[key] = content[key]
		}
	}
	if s.condition == nil {
		status["conditions"] = slices.DeleteFunc(conditionsOf(status), func(c any) bool {
			m, _ := c.(map[string]any)
			return m["type"] == refractv1beta1.ConditionServiceFound
		})
	}
	stored.Object["status"] = status
	return r.client.Status().Patch(ctx, stored, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldOwner))
}

func conditionsOf(status map[string]any) []any {
	list, _ := status["conditions"].([]any)
	return list
}

// announce records an event on the policy when its Service appears, disappears or gets another error. A new policy
// whose Service already exists causes no event.
func (r *reconciler) announce(policy *refractv1beta1.ServiceInjectionPolicy, was, is *metav1.Condition) {
	switch {
	case is == nil || was == nil && is.Status == metav1.ConditionTrue:
	case was != nil && was.Status == is.Status && was.Reason == is.Reason && (is.Status == metav1.ConditionTrue || was.Message == is.Message):
	case is.Status == metav1.ConditionTrue:
		r.recorder.Eventf(policy, nil, corev1.EventTypeNormal, "Service"+is.Reason, "Complete", "%s", is.Message)
	default:
		r.recorder.Eventf(policy, nil, corev1.EventTypeWarning, "Service"+is.Reason, "Complete", "%s", output.Cut(is.Message, longestNote))
	}
}

// longestNote is the maximum size of a message in an event, in bytes; the API allows 1024.
const longestNote = 1000
