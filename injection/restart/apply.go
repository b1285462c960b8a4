package restart

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/output"
	"refract.dev/internal/rescue"
)

// Field owners for server-side apply.
const (
	templateOwner = "refract-injection"
	statusOwner   = "refract-rollout"
)

// The delays until the next eviction of a pod of the same workload. They apply after a refused eviction (Refusal), and
// after an eviction whose replacement lacks the expected items (Bounce).
const (
	firstRefusal = 2 * time.Second
	lastRefusal  = time.Minute
	firstBounce  = 10 * time.Second
	lastBounce   = time.Hour
)

// applier carries out the plan for a namespace: it writes statuses, recreates pods and records events.
type applier struct {
	client   client.Client
	recorder events.EventRecorder
	log      logr.Logger
	now      func() time.Time
}

// apply carries out the plan. It writes the statuses before it changes workloads, so that a restart of the controller
// loses no progress.
func (w *applier) apply(ctx context.Context, ns *namespaceState, s *snapshot, p *plan) error {
	ns.workloads = p.next
	failed, errs := w.writeStatuses(ctx, ns, s, p)
	for _, t := range p.touches {
		if slices.ContainsFunc(t.policies, func(name string) bool { return failed[name] }) {
			continue
		}
		if err := w.touch(ctx, ns, t); err != nil {
			errs = append(errs, err)
		}
	}
	for _, policy := range s.policies {
		if slices.Contains(p.resumed, policy.name) {
			errs = append(errs, w.forgetResumed(ctx, ns.name, policy))
		}
	}
	for _, e := range p.events {
		if !failed[e.policy] {
			w.record(ns.name, s, e)
		}
	}
	return errors.Join(errs...)
}

// writeStatuses writes the changed statuses, and returns the policies whose status could not be written.
func (w *applier) writeStatuses(ctx context.Context, ns *namespaceState, s *snapshot, p *plan) (failed map[string]bool, errs []error) {
	failed = map[string]bool{}
	var mu sync.Mutex
	var running sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, policy := range s.policies {
		now := p.statuses[policy.name]
		if equality.Semantic.DeepEqual(ours(policy.status), now) {
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			version, err := w.writeStatus(ctx, ns.name, policy, now)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil && policy.unreadable:
				// A retry would fail for the same reason. The log has the error.
				failed[policy.name] = true
				w.log.V(1).Info("Cannot write to a malformed policy", "namespace", ns.name, "policy", policy.name, "error", err.Error())
			case err != nil:
				failed[policy.name] = true
				errs = append(errs, err)
			case version != "":
				ns.written[policy.uid] = written{version, now}
			}
		})
	}
	running.Wait()
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return failed, errs
}

// reportPanic reports the error of a panic in the status of every policy of a namespace, because their rollouts stop.
func (w *applier) reportPanic(ctx context.Context, ns *namespaceState, policies []*authored, why error) (err error) {
	defer rescue.To(&err, w.log, "rollout", "namespace", ns.name)
	var errs []error
	for _, a := range policies {
		if a.deleting {
			continue
		}
		was := ns.status(a)
		now := ours(was).DeepCopy()
		meta.SetStatusCondition(&now.Conditions, metav1.Condition{
			Type: refractv1beta1.ConditionRolledOut, Status: metav1.ConditionFalse, Reason: reasonInternal, Message: why.Error(),
			ObservedGeneration: a.policy.Generation, LastTransitionTime: metav1.NewTime(w.now().Truncate(time.Second)),
		})
		if equality.Semantic.DeepEqual(ours(was), now) {
			continue
		}
		version, err := w.writeStatus(ctx, ns.name, &policy{name: a.name, uid: a.uid}, now)
		if err == nil && version != "" {
			ns.written[a.uid] = written{version, now}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// writeStatus writes the status of a policy and returns its new resource version; empty if the policy was deleted.
func (w *applier) writeStatus(
	ctx context.Context, namespace string, p *policy, now *refractv1beta1.ServiceInjectionPolicyStatus,
) (version string, err error) {
	defer rescue.To(&err, w.log, "writing the status of an injection policy", "namespace", namespace, "policy", p.name)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(now)
	if err != nil {
		return "", err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": content}}
	u.SetGroupVersionKind(refractv1beta1.GroupVersion.WithKind(refractv1beta1.KindServiceInjectionPolicy))
	u.SetNamespace(namespace)
	u.SetName(p.name)
	u.SetUID(p.uid)
	err = w.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(statusOwner), client.ForceOwnership)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", nil // The policy was deleted, and perhaps created again; an event will report that.
	case err != nil:
		return "", fmt.Errorf("writing the status of ServiceInjectionPolicy %s/%s: %w", namespace, p.name, err)
	}
	return u.GetResourceVersion(), nil
}

// ours returns the part of a status that this controller writes.
func ours(s *refractv1beta1.ServiceInjectionPolicyStatus) *refractv1beta1.ServiceInjectionPolicyStatus {
	out := *s
	out.Effective, out.FromService = nil, nil
	out.Conditions = nil
	for _, kind := range []string{refractv1beta1.ConditionAccepted, refractv1beta1.ConditionReferencesResolved, refractv1beta1.ConditionRolledOut} {
		if condition := meta.FindStatusCondition(s.Conditions, kind); condition != nil {
			out.Conditions = append(out.Conditions, *condition)
		}
	}
	return &out
}

// touch takes one step of a recreation and records it in the workload's state.
func (w *applier) touch(ctx context.Context, ns *namespaceState, t touch) error {
	m := ns.workloads[t.group.ref.uid]
	var err error
	if t.victim == nil {
		err = w.annotate(ctx, ns.name, t, &m)
	} else {
		err = w.evict(ctx, ns.name, t, &m)
	}
	ns.workloads[t.group.ref.uid] = m
	if err == nil {
		return nil
	}
	before := ns.probes[t.group.ref.uid]
	ns.probes[t.group.ref.uid] = probe{
		hash: before.hash, reason: reasonWriteFailed, message: err.Error(), at: w.now(),
		tries: before.tries + 1, retry: w.now().Add(backoff(firstLook, lastLook, before.tries)),
	}
	return err
}

// annotate annotates the template, so that the workload's controller recreates its pods.
func (w *applier) annotate(ctx context.Context, namespace string, t touch, m *workloadState) error {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{refractv1beta1.HashAnnotation: t.group.prospect.hash},
	}}}}}
	r := t.group.ref
	u.SetAPIVersion(r.apiVersion)
	u.SetKind(r.kind)
	u.SetNamespace(namespace)
	u.SetName(r.name)
	u.SetUID(r.uid) // The UID prevents that a deleted workload is created again.
	err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(templateOwner), client.ForceOwnership)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("annotating the template of %s/%s: %w", namespace, r, err)
	}
	now := w.now()
	*m = workloadState{
		ref: r, hash: t.group.prospect.hash, generation: u.GetGeneration(), begun: now, changed: now, reverts: m.reverts,
		pods: m.pods, lenient: m.lenient, contents: m.with(t.contents),
	}
	w.log.Info("Recreating pods", "namespace", namespace, "workload", r.String(), "policies", t.policies)
	w.recordRecreation(namespace, r, t.policies)
	return nil
}

// with returns the workload's contents together with further contents, in a new map.
func (m *workloadState) with(contents map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, m.contents) // Decisions share the map.
	maps.Copy(all, contents)
	return all
}

// evict evicts a pod, if PodDisruptionBudgets permit.
func (w *applier) evict(ctx context.Context, namespace string, t touch, m *workloadState) error {
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: t.victim.name}}
	err := w.client.SubResource("eviction").Create(ctx, target, &policyv1.Eviction{
		ObjectMeta:    target.ObjectMeta,
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &t.victim.uid}},
	})
	now := w.now()
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case apierrors.IsTooManyRequests(err),
		apierrors.ReasonForError(err) == metav1.StatusReasonInternalError && statusCode(err) == http.StatusInternalServerError:
		// An API server returns an internal error if several PodDisruptionBudgets match the pod.
		m.reason, m.message = reasonBudget, fmt.Sprintf("pod %s cannot be evicted now: %s", t.victim.name, err)
		m.notBefore = now.Add(backoff(firstRefusal, lastRefusal, m.refused))
		m.refused++
		return nil
	case err != nil:
		return fmt.Errorf("evicting pod %s/%s: %w", namespace, t.victim.name, err)
	}
	first := m.firstEviction.IsZero()
	if first {
		m.firstEviction, m.begun = now, now
	}
	m.evicted, m.changed, m.refused, m.progress = t.victim.uid, now, 0, ""
	m.reason, m.message, m.notBefore = "", "", time.Time{}
	m.contents = m.with(t.contents)
	counted := 0
	for _, p := range t.group.pods {
		if p.counts() {
			counted++
		}
	}
	m.pods = max(m.pods, counted) // The replacement of the pod that was evicted before may still be missing.
	if t.bounced {
		m.reason, m.message = reasonBounced, "recreated pods lack injected items; the webhook may not have answered"
		m.notBefore = now.Add(backoff(firstBounce, lastBounce, m.bounced))
		m.bounced++
	}
	w.log.Info("Evicted a pod", "namespace", namespace, "pod", t.victim.name, "workload", t.group.ref.String(), "policies", t.policies)
	if first {
		w.recordRecreation(namespace, t.group.ref, t.policies)
	}
	return nil
}

func statusCode(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return status.Status().Code
}

// forgetResumed removes the annotation with which a user has resumed a halted rollout, because it is valid only once.
func (w *applier) forgetResumed(ctx context.Context, namespace string, p *policy) error {
	key := "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(refractv1beta1.ResumeAnnotation)
	patch := fmt.Sprintf(`[{"op":"test","path":%q,"value":%q},{"op":"remove","path":%q}]`, key, p.hash, key)
	u := &metav1.PartialObjectMetadata{}
	u.SetGroupVersionKind(refractv1beta1.GroupVersion.WithKind(refractv1beta1.KindServiceInjectionPolicy))
	u.SetNamespace(namespace)
	u.SetName(p.name)
	err := w.client.Patch(ctx, u, client.RawPatch(types.JSONPatchType, []byte(patch)), client.FieldOwner(statusOwner))
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil // The policy was deleted, or another writer has changed the annotation.
	}
	return err
}

// record records an event and counts it.
func (w *applier) record(namespace string, s *snapshot, e event) {
	kind := corev1.EventTypeNormal
	if e.warning {
		kind = corev1.EventTypeWarning
	}
	if e.group != nil {
		w.recorder.Eventf(named(namespace, e.group.ref), nil, kind, e.reason, "Recreate", "%s", output.Cut(e.message, mostMessage))
		rollouts.WithLabelValues(results[e.reason]).Inc()
		return
	}
	i := slices.IndexFunc(s.policies, func(p *policy) bool { return p.name == e.policy })
	if i < 0 {
		return
	}
	if result := results[e.reason]; result != "" && e.reason != eventReverted {
		rollouts.WithLabelValues(result).Inc()
	}
	of := ref{apiVersion: refractv1beta1.GroupVersion.String(), kind: refractv1beta1.KindServiceInjectionPolicy, name: e.policy, uid: s.policies[i].uid}
	w.recorder.Eventf(named(namespace, of), nil, kind, e.reason, "Recreate", "%s", output.Cut(e.message, mostMessage))
}

// recordRecreation records an event on a workload whose pods are recreated.
func (w *applier) recordRecreation(namespace string, r ref, policies []string) {
	w.recorder.Eventf(named(namespace, r), nil, corev1.EventTypeNormal, eventRecreates, "Recreate",
		"%s", output.Cut("its pods are recreated for the injection by "+strings.Join(policies, ", "), mostMessage))
}

// named returns an object with this name, for an event.
func named(namespace string, r ref) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(r.apiVersion)
	u.SetKind(r.kind)
	u.SetNamespace(namespace)
	u.SetName(r.name)
	u.SetUID(r.uid)
	return u
}
