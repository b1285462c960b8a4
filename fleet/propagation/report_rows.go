package propagation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/internal/output"
)

// clusterStatusOf returns the row of one cluster.
func (rep *reporter) clusterStatusOf(key Key, p *desiredState, name string, statuses map[string]clusterStatus) refractv1alpha1.ClusterStatus {
	r, reported := statuses[name]
	s := refractv1alpha1.ClusterStatus{Name: name, State: refractv1alpha1.StatePending}
	if reported {
		s.State, s.Reason, s.Message = r.state, r.reason, r.message
		s.Generation, s.Hash, s.Fields, s.Drift, s.Adopted = r.generation, r.hash, r.baseline(), r.drift, r.adopted
		s.Run = r.run
		if p.governed.awaits(name) {
			s.ReadySince = microTime(r.readySince)
		}
	}
	t := p.targets[name]
	if t != nil {
		s.Replicas, s.Policies, s.Warnings = t.replicas, t.policies, t.warnings
	}
	if t == nil && p.blocked == "" && !p.dryRun && s.State != refractv1alpha1.StateDeleting {
		// The row records that the copy is to go, also if the cluster has not been asked yet or cannot be reached:
		// after a restart, an approved removal must not wait for an approval again.
		s.State = refractv1alpha1.StateDeleting
		if s.Reason == "" {
			s.Reason, s.Message = reasonNoLongerPlaced, ""
		}
	}
	if p.blocked == "" && s.State == refractv1alpha1.StateSynced && (t == nil || t.variant == nil || t.variant.hash != r.hash) {
		s.State = refractv1alpha1.StatePending
	}
	rep.state.sayScaler(key, &s)
	if m := rep.members.Get(name); m != nil && s.State != refractv1alpha1.StateOffline {
		rep.sayReadiness(key, p, m, &s)
	}
	if is := p.governed.assigned(name); is == r.revision && is != "" && p.governed.refused(&s) {
		s.Revision = is // The revision was refused, and the decision is still the same.
	}
	s.Hash = rep.state.digest(key, s.Hash)
	return s
}

// sayReadiness fills in the readiness of a copy on a member.
func (rep *reporter) sayReadiness(key Key, p *desiredState, m *member.Member, s *refractv1alpha1.ClusterStatus) {
	sayRun(s, p.uid, m.Copies, key)
	if have, found := m.Copies.Get(key); found == member.Present {
		s.Readiness, s.ReadinessMessage = have.Readiness, output.Cut(have.ReadinessMessage, maxReadiness)
		if s.Readiness == "" {
			s.Readiness = refractv1alpha1.ReadinessReady
		}
		if unjudged(p.governed.healthOn(m.Name), &have) && s.State == refractv1alpha1.StateSynced {
			s.Readiness, s.ReadinessMessage = "", ""
			rep.judge(m, key)
		}
		if p.governed != nil && have.Hash != s.Hash && s.Readiness == refractv1alpha1.ReadinessReady {
			s.Readiness = refractv1alpha1.ReadinessInProgress // The known readiness is from before the last write.
		}
	}
	if !p.governed.awaits(m.Name) {
		return
	}
	since, _ := rep.readied(m, key)
	s.ReadySince = microTime(since)
}

// microTime returns a time with the stored precision of a microsecond; nil for the zero time.
func microTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t.Truncate(time.Microsecond)}
}
