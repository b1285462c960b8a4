package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldManager is the field manager of all installed objects.
const FieldManager = "refract-install"

// Errors for errors.Is.
var (
	// ErrKeptByHelm is returned for an installation that Helm manages.
	ErrKeptByHelm = errors.New("is managed by Helm")
	// ErrNotReady is returned if an installation does not become ready in time.
	ErrNotReady = errors.New("is not ready")
)

// Installed returns the parts with a Deployment in the system namespace.
func Installed(ctx context.Context, c client.Reader, namespace string) ([]Part, error) {
	var found []Part
	for _, part := range Parts() {
		d := &appsv1.Deployment{}
		switch err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: part.Deployment}, d); {
		case err == nil:
			found = append(found, part)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading deployment %s/%s: %w", namespace, part.Deployment, err)
		}
	}
	return found, nil
}

// KeptByHelm returns the Helm release that manages an object, as NAMESPACE/NAME; empty if Helm does not manage it.
func KeptByHelm(o client.Object) string {
	release := o.GetAnnotations()["meta.helm.sh/release-name"]
	if release == "" || o.GetLabels()["app.kubernetes.io/managed-by"] != "Helm" {
		return ""
	}
	return o.GetAnnotations()["meta.helm.sh/release-namespace"] + "/" + release
}

// Apply writes the objects by server-side apply, and overrides conflicts. It calls tell for each object, with
// "created", "configured" or "unchanged". If Helm manages an object, Apply does not write it, and returns an error that
// wraps [ErrKeptByHelm].
func Apply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured, tell func(o client.Object, did string)) error {
	for _, o := range objects {
		before := &unstructured.Unstructured{}
		before.SetGroupVersionKind(o.GroupVersionKind())
		err := c.Get(ctx, client.ObjectKeyFromObject(o), before)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading %s: %w", Describe(o), err)
		}
		if release := KeptByHelm(before); err == nil && release != "" {
			return fmt.Errorf("%s %w, release %s", Describe(o), ErrKeptByHelm, release)
		}
		after := o.DeepCopy()
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(after), client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s: %w", Describe(o), err)
		}
		switch {
		case before.GetUID() == "":
			tell(o, "created")
		case before.GetResourceVersion() != after.GetResourceVersion():
			tell(o, "configured")
		default:
			tell(o, "unchanged")
		}
	}
	return nil
}

// Describe returns the kind of an object in lower case and its name, with the namespace if it has one.
func Describe(o client.Object) string {
	name := o.GetName()
	if ns := o.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind) + " " + name
}

// every is the interval between two checks of a Deployment.
const every = 500 * time.Millisecond

// Wait waits until the Deployments of the parts are ready. It calls tell with the state of each Deployment after every
// change. If ctx ends first, the error wraps [ErrNotReady]. The error has the reason for the first Deployment that is
// not ready, if the API server responds quickly.
func Wait(ctx context.Context, c client.Reader, namespace string, parts []Part, tell func(line string)) error {
	for _, part := range parts {
		last := ""
		err := wait.PollUntilContextCancel(ctx, every, true, func(ctx context.Context) (bool, error) {
			d := &appsv1.Deployment{}
			if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: part.Deployment}, d); err != nil {
				return false, err
			}
			ready, line := Standing(d)
			if line != last {
				tell(line)
				last = line
			}
			return ready, nil
		})
		if err == nil {
			continue
		}
		if errors.Is(err, context.Canceled) {
			return fmt.Errorf("waiting for deployment %s/%s: %w", namespace, part.Deployment, err)
		}
		reason := err.Error()
		if ctx.Err() != nil && last != "" {
			reason = last
			if stuck := stuckAtOnce(ctx, c, namespace, part); stuck != "" {
				reason += ": " + stuck
			}
		}
		return fmt.Errorf("deployment %s/%s %w: %s", namespace, part.Deployment, ErrNotReady, reason)
	}
	return nil
}

// stuckAtOnce calls Stuck although ctx has ended, with a short time limit.
func stuckAtOnce(ctx context.Context, c client.Reader, namespace string, part Part) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), every)
	defer cancel()
	return Stuck(ctx, c, namespace, part)
}

// Standing reports whether all replicas of a Deployment have its current template and are ready. It also describes this
// state in one line.
func Standing(d *appsv1.Deployment) (ready bool, line string) {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	s := &d.Status
	current := s.ObservedGeneration >= d.Generation
	updated, available := s.UpdatedReplicas, s.AvailableReplicas
	if !current {
		updated = 0
	}
	available = min(available, updated)
	ready = current && updated >= want && available >= want && s.Replicas == updated
	return ready, fmt.Sprintf("deployment %s/%s: %d of %d replicas are ready", d.Namespace, d.Name, available, want)
}

// Stuck returns the reason why the pods of a part are not ready, as far as the pods and the Deployment show it;
// otherwise it returns "".
func Stuck(ctx context.Context, c client.Reader, namespace string, part Part) string {
	pods := &corev1.PodList{}
	selector := client.MatchingLabels{"app.kubernetes.io/name": part.Deployment}
	if err := c.List(ctx, pods, client.InNamespace(namespace), selector, client.Limit(100)); err != nil {
		return fmt.Sprintf("its pods cannot be listed: %v", err)
	}
	if len(pods.Items) == 0 {
		return notCreated(ctx, c, namespace, part)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	for i := range pods.Items {
		if reason := waits(&pods.Items[i]); reason != "" {
			return fmt.Sprintf("pod %s: %s", pods.Items[i].Name, reason)
		}
	}
	return ""
}

// notCreated returns the reason why a Deployment has no pods.
func notCreated(ctx context.Context, c client.Reader, namespace string, part Part) string {
	d := &appsv1.Deployment{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: part.Deployment}, d); err != nil {
		return err.Error()
	}
	for _, condition := range d.Status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			return condition.Message
		}
	}
	return "it has no pods: the cluster needs a controller manager"
}

// waits returns the reason why a pod is not ready; empty if the pod is ready or does not show the reason.
func waits(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.Ready:
		case s.State.Waiting != nil && s.State.Waiting.Reason != "ContainerCreating":
			text := s.State.Waiting.Reason
			if s.State.Waiting.Message != "" {
				text += ": " + s.State.Waiting.Message
			}
			if last := s.LastTerminationState.Terminated; last != nil && last.Message != "" {
				text += ": " + last.Message
			}
			return text
		case s.State.Terminated != nil:
			return fmt.Sprintf("%s, exit code %d: %s", s.State.Terminated.Reason, s.State.Terminated.ExitCode, s.State.Terminated.Message)
		case s.State.Running != nil:
			return "it runs and is not ready yet: `kubectl logs` of the pod shows the reason"
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}
	if pod.Spec.NodeName == "" {
		return "it has no node yet: the cluster needs a scheduler and a node"
	}
	return ""
}
