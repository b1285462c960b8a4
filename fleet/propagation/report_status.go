package propagation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/internal/output"
	"refract.dev/tree"
)

// assemble makes the status. It is deterministic, so that an unchanged status is not written.
func (rep *reporter) assemble(
	key Key, p *desiredState, statuses map[string]clusterStatus, was previous, conditions []metav1.Condition,
	progress *refractv1alpha1.RolloutStatus,
) refractv1alpha1.PropagationStatus {
	s := refractv1alpha1.PropagationStatus{
		ObservedGeneration: p.generation,
		Placed:             int32(len(p.targets)),
		PropagationPolicy:  p.propagation,
		OverridePolicies:   p.overrides,
		DeletedPolicies:    p.deleted,
		Warnings:           p.warnings,
		PlacementHash:      was.hash,
		ChosenBy:           was.chosenBy,
		Held:               p.held.status(),
		Conditions:         slices.Clone(conditions),
		Rollout:            progress,
		Follows:            p.followed(),
	}
	names := map[string]bool{}
	for name := range statuses {
		names[name] = true
	}
	for name := range p.targets {
		names[name] = true
	}
	for i := range was.placed {
		names[was.placed[i].Cluster] = true
	}
	holders := map[string]int32{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		status := rep.clusterStatusOf(key, p, name, statuses)
		if at, ok := placement.Find(was.placed, name); ok && p.blocked != "" {
			status.Replicas = was.placed[at].Replicas // The recorded value stays until the object can be decided.
		}
		if t := p.targets[name]; t != nil && t.variant != nil {
			holders[t.variant.hash]++
		}
		if status.State == refractv1alpha1.StateSynced {
			s.Synced++
			if status.Readiness == refractv1alpha1.ReadinessReady {
				s.Ready++
			}
		}
		s.Clusters = append(s.Clusters, status)
	}
	s.VariantCount = int32(len(p.variants))
	for _, v := range p.variants[:min(len(p.variants), maxVariants)] {
		s.Variants = append(s.Variants, refractv1alpha1.VariantStatus{Hash: rep.state.digest(key, v.hash), Clusters: holders[v.hash], Changes: v.changes})
	}
	meta.SetStatusCondition(&s.Conditions, verdict(p, &s))
	meta.SetStatusCondition(&s.Conditions, readiness(p, &s))
	rolloutConditions(p, &s)
	if gone := sourceGone(p); gone != nil {
		meta.SetStatusCondition(&s.Conditions, *gone)
	} else {
		meta.RemoveStatusCondition(&s.Conditions, refractv1alpha1.ConditionSourceGone)
	}
	fit(&s)
	return s
}

// stays are the reasons for keeping a copy that should be deleted, if a user must know about it.
var stays = []string{reasonAwaitingApproval, reasonUnreadable, reasonClusterNotReady, reasonInternalError}

// verdict returns the condition Synced.
func verdict(p *desiredState, s *refractv1alpha1.PropagationStatus) metav1.Condition {
	c := metav1.Condition{Type: refractv1alpha1.ConditionSynced, Status: metav1.ConditionFalse, ObservedGeneration: p.generation}
	var failed []string
	for i := range s.Clusters {
		r := &s.Clusters[i]
		switch {
		case r.State == refractv1alpha1.StateFailed, r.State == refractv1alpha1.StateOffline, r.State == refractv1alpha1.StateDrifted,
			r.State == refractv1alpha1.StateDeleting && slices.Contains(stays, r.Reason):
			failed = append(failed, fmt.Sprintf("%s: %s", r.Name, r.Message))
			if c.Reason == "" {
				c.Reason = r.Reason
			}
		}
	}
	rolling, why := underWay(p, s)
	switch {
	case p.blocked != "":
		c.Reason, c.Message = p.blocked, p.blockedMessage
	case rolling != "" && s.Rollout != nil && rollout.Stopped(s.Rollout):
		c.Reason, c.Message = rolling, why
	case p.gone && len(failed) == 0:
		c.Reason, c.Message = reasonSourceGone, "copies are being removed"
	case p.dryRun:
		c.Reason, c.Message = reasonDryRun, fmt.Sprintf("annotation %s: nothing is written and nothing removed", corev1alpha1.DryRunAnnotation)
	case len(failed) > 0:
		c.Message = p.besides(few(failed), why)
	case p.held != nil:
		c.Reason, c.Message = reasonAwaitingApproval, p.besides(p.held.message(), why)
	case len(p.targets) == 0 && len(s.Clusters) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonNoClusterMatches, "the propagation policy chooses no cluster"
	case rolling != "":
		c.Reason, c.Message = rolling, why
	case int(s.Synced) < len(s.Clusters):
		c.Reason, c.Message = reasonProgressing, fmt.Sprintf("%d of %d clusters are synced", s.Synced, len(s.Clusters))
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonSynced, fmt.Sprintf("all %d clusters are synced", s.Placed)
	}
	return c
}

// besides adds the leader of a follower (the object that it travels with) to a message: the follower has no rollout of
// its own that would name the leader, and its clusters are Synced with older content.
func (p *desiredState) besides(message, why string) string {
	if why == "" || p.governed.led == nil {
		return message
	}
	return message + "; " + why
}

// readiness returns the condition Ready.
func readiness(p *desiredState, s *refractv1alpha1.PropagationStatus) metav1.Condition {
	c := metav1.Condition{Type: refractv1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: p.generation}
	var failed []string
	for i := range s.Clusters {
		if r := &s.Clusters[i]; r.Readiness == refractv1alpha1.ReadinessFailed {
			failed = append(failed, fmt.Sprintf("%s: %s", r.Name, r.ReadinessMessage))
		}
	}
	switch {
	case len(failed) > 0:
		c.Reason, c.Message = "Failed", few(failed)
	case !meta.IsStatusConditionTrue(s.Conditions, refractv1alpha1.ConditionSynced):
		c.Reason, c.Message = "NotSynced", "not all clusters are synced"
	case s.Ready < s.Placed:
		c.Reason, c.Message = reasonProgressing, fmt.Sprintf("ready on %d of %d clusters", s.Ready, s.Placed)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Ready", fmt.Sprintf("ready on all %d clusters", s.Placed)
	}
	return c
}

// few joins the first three failures, and counts the others.
func few(failed []string) string {
	const most = 3
	text := strings.Join(failed[:min(len(failed), most)], "; ")
	if more := len(failed) - most; more > 0 {
		text += fmt.Sprintf("; and %d more clusters", more)
	}
	return text
}

// announce records events on the source object: its arrival, failures, corrections, and new warnings.
func (rep *reporter) announce(key Key, p *desiredState, k known, warned []string, now *refractv1alpha1.PropagationStatus) {
	is := meta.FindStatusCondition(now.Conditions, refractv1alpha1.ConditionSynced)
	uid := p.uid
	switch {
	case !p.gone:
	case p.cause == causeWithdrawn || p.cause == causeLeader:
		if is.Reason != reasonAwaitingApproval {
			return // A user requested that the copies go.
		}
		uid = k.source // The object exists.
	default:
		return
	}
	source := &unstructured.Unstructured{}
	source.SetAPIVersion(p.gvr.GroupVersion().String())
	source.SetKind(p.kind)
	source.SetNamespace(key.Namespace)
	source.SetName(key.Name)
	source.SetUID(uid)
	rep.announceRollout(source, k.rollout, now.Rollout)
	was := meta.FindStatusCondition(k.conditions, refractv1alpha1.ConditionSynced)
	switch {
	case is.Status == metav1.ConditionTrue && (was == nil || was.Status != metav1.ConditionTrue):
		rep.recorder.Eventf(source, nil, corev1.EventTypeNormal, is.Reason, "Propagate", "%s", is.Message)
	case strings.HasPrefix(is.Reason, "Rollout"): // Rollouts have events of their own.
	case is.Status == metav1.ConditionFalse && is.Reason != reasonProgressing && (was == nil || was.Reason != is.Reason || was.Message != is.Message):
		rep.recorder.Eventf(source, nil, corev1.EventTypeWarning, is.Reason, "Propagate", "%s", output.Cut(is.Message, maxMessage))
	}
	for _, w := range now.Warnings {
		if !slices.Contains(warned, w) {
			rep.recorder.Eventf(source, nil, corev1.EventTypeWarning, "PropagationWarning", "Propagate", "%s", output.Cut(w, maxMessage))
		}
	}
	for _, text := range rep.state.corrections(key) {
		rep.recorder.Eventf(source, nil, corev1.EventTypeWarning, "DriftCorrected", "Propagate", "%s", output.Cut(text, maxMessage))
	}
}

// policyDeleted records an event on an override policy that was deleted while objects named it. Each of these objects
// also gets an event, with its changes that are undone.
func (rep *reporter) policyDeleted(ref tree.Policy, was client.Object) {
	if ref.Kind != corev1alpha1.KindOverridePolicy && ref.Kind != corev1alpha1.KindClusterOverridePolicy {
		return
	}
	u := rep.state.usage(ref, was.GetGeneration())
	if len(u.users) == 0 {
		return
	}
	rep.recorder.Eventf(was, nil, corev1.EventTypeWarning, reasonPolicyDeleted, "Propagate", "its changes are reverted: %s on %s named it",
		output.Count(len(u.users), "object", "objects"), output.Count(len(u.clusters), "cluster", "clusters"))
}
