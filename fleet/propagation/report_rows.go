package propagation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/internal/output"
)

// withOwn returns the rows of a record with current rows for this replica's own members. The rows that are not
// Deleting are the placement by the leading replica. The local decision may be older than the record. If a row were
// left out because of it, every replica would conclude that the copy is to go, and this one would delete it.
func (rep *reporter) withOwn(
	key Key, p *desiredState, statuses map[string]clusterStatus, rows []refractv1alpha1.ClusterStatus,
) (with []refractv1alpha1.ClusterStatus) {
	own := map[string]bool{}
	for name := range statuses {
		own[name] = rep.shards.Owns(name)
	}
	for name := range p.targets {
		own[name] = rep.shards.Owns(name)
	}
	for i := range rows {
		row := &rows[i]
		switch {
		case own[row.Name]:
			now := rep.clusterStatusOf(key, p, row.Name, statuses)
			if p.blocked != "" || p.targets[row.Name].lost() { // The leading replica may know these fields.
				now.Replicas, now.Policies, now.Warnings = row.Replicas, row.Policies, row.Warnings
			}
			row = latest(row, &now)
		case rep.shards.Owns(row.Name) && !isPlaced(row):
			continue // The copy is gone.
		}
		with = append(with, *row)
		delete(own, row.Name)
	}
	for name, is := range own {
		if !is {
			continue
		}
		if now := rep.clusterStatusOf(key, p, name, statuses); !isPlaced(&now) {
			with = append(with, now)
		}
	}
	return with
}

// latest returns the row of an own member: now, unless it differs from row in whether the cluster is to have a copy.
// In that case row stays; for a copy that is to go, it gets the reason why the copy is still there.
func latest(row, now *refractv1alpha1.ClusterStatus) *refractv1alpha1.ClusterStatus {
	switch {
	case isPlaced(row) == isPlaced(now):
		return now
	case isPlaced(now) && now.Reason != "":
		why := *row
		why.Reason, why.Message = now.Reason, now.Message
		return &why
	default:
		return row
	}
}

// clusterStatusOf returns the row of one cluster.
func (rep *reporter) clusterStatusOf(key Key, p *desiredState, name string, statuses map[string]clusterStatus) refractv1alpha1.ClusterStatus {
	r, reported := statuses[name]
	if r.foreign != nil && !rep.shards.Owns(name) {
		return rep.elsewhere(key, p, *r.foreign)
	}
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
	if p.blocked == "" && s.State == refractv1alpha1.StateSynced && (t == nil || t.variant == nil || t.variant.hash != r.hash) {
		s.State = refractv1alpha1.StatePending
	}
	rep.state.sayScaler(key, &s)
	if m := rep.members.Get(name); m != nil && s.State != refractv1alpha1.StateOffline {
		rep.sayReadiness(key, p, m, &s)
	}
	if is := p.governed.assigned(name); is == r.revision && is != "" && p.governed.refused(&s) {
		s.Revision = is // It was refused, and the decision is still the same.
	}
	if !rep.shards.Owns(name) {
		return rep.elsewhere(key, p, s) // The cluster belonged to this replica before, or has not been reported yet.
	}
	s.Hash = rep.state.digest(key, s.Hash)
	return s
}

// elsewhere returns the row of a cluster that another replica writes to: the last reported row, updated by the
// present decision. To that replica, the row is an order of the leading replica: it removes the copy only if the row
// is Deleting.
func (rep *reporter) elsewhere(key Key, p *desiredState, s refractv1alpha1.ClusterStatus) refractv1alpha1.ClusterStatus {
	s.Hash = rep.state.digest(key, s.Hash)
	t := p.targets[s.Name]
	if t == nil {
		if s.State != refractv1alpha1.StateDeleting && p.blocked == "" && !p.dryRun {
			s.State, s.Reason, s.Message = refractv1alpha1.StateDeleting, reasonNoLongerPlaced, ""
		}
		return s
	}
	lost := t.lost() // The other replica may still know a revision that is gone from the hub.
	if !lost {
		s.Replicas, s.Policies, s.Warnings = t.replicas, t.policies, t.warnings
	}
	if s.State == refractv1alpha1.StateDeleting || s.Reason == reasonDryRun && !p.dryRun {
		s.State, s.Reason, s.Message = refractv1alpha1.StatePending, "", ""
		if p.governed != nil {
			s.Hash = "" // The other replica reads the copy first.
		}
	}
	if !lost && (t.variant == nil || rep.state.digest(key, t.variant.hash) != s.Hash) {
		s.State = pendingUnlessBroken(s.State)
	}
	return s
}

// sayReadiness fills in the readiness of a copy on a member of this replica.
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

func pendingUnlessBroken(s refractv1alpha1.ClusterState) refractv1alpha1.ClusterState {
	if s == refractv1alpha1.StateSynced {
		return refractv1alpha1.StatePending
	}
	return s
}
