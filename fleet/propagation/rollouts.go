package propagation

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/internal/output"
)

// awaitedDelay is the delay before a report of a changed readiness that a rollout waits for.
const awaitedDelay = 200 * time.Millisecond

// advance returns the next state of an object's rollout, and the latest time of the next call. The report writes the
// result, and the decider acts on it only after that. So a new leading replica continues from the same state. A
// revision is stored before the Propagation names it.
func (rep *reporter) advance(
	ctx context.Context, key Key, p *desiredState, statuses map[string]clusterStatus, k known,
) (is *refractv1alpha1.RolloutStatus, until time.Time, err error) {
	g := p.governed
	switch {
	case !p.gone && (g == nil || g.led != nil):
		return nil, time.Time{}, nil
	case p.gone, g.blocked != "" || p.blocked != "" || p.dryRun:
		// A gone object may be created again soon and continue the rollout. For a blocked object, the state of the
		// rollout is unknown.
		is, err = rep.revisions.renew(ctx, key, k.rollout)
		return is, time.Time{}, err
	}
	was := k.rollout
	if was == nil {
		was = g.recorded // There is no recorded rollout yet.
	}
	if was != g.recorded {
		rep.decider.add(key, priorityChanged) // The object must be decided again from the recorded rollout.
		return k.rollout, time.Time{}, nil
	}
	if is, err = rep.revisions.renew(ctx, key, was); err != nil {
		return k.rollout, time.Time{}, err
	}
	if is != was {
		return is, time.Time{}, nil // The new names must be recorded before they are used.
	}
	with, hold, known := rep.companions(key, p)
	switch {
	case !rep.revisions.current(key, &g.target):
		rep.decider.add(key, priorityChanged) // The key has changed since the revision was named.
		return k.rollout, time.Time{}, nil
	case !known:
		return k.rollout, time.Time{}, nil
	}
	in := rep.standing(key, p, statuses, k.steering, with)
	if hold != "" {
		in.Policy, in.Hold = nil, hold
	}
	switch {
	case was != nil && !rep.revisions.current(key, &was.Target):
		is = rollout.Anew(was, g.target, in.Nonce) // The key of the recorded target is lost, so the target cannot be compared with the present content.
	case was == nil && len(g.target.Followers) > 0:
		is = rollout.First(g.target) // The followers wait for a recorded rollout. Only then is the content of the clusters known.
	default:
		is, until = rollout.Next(was, in)
	}
	is.UID = p.uid
	if was == nil || rollout.Unbegun(was) || is.Target.Name != was.Target.Name || !equality.Semantic.DeepEqual(is.Target.Followers, was.Target.Followers) {
		err = rep.revisions.keep(ctx, key, rep.decider, &is.Target)
		if errors.Is(err, errRevision) {
			return k.rollout, time.Time{}, err
		}
		if err != nil {
			is, until = rollout.Hold(was, is.Target, in.Clusters, output.Cut("the revision cannot be stored: "+err.Error(), maxMessage)), time.Time{}
			is.UID = p.uid
		}
	}
	rep.revisions.named(key)
	if k.rollout != nil && equality.Semantic.DeepEqual(is, k.rollout) {
		is = k.rollout
	}
	return is, until, err
}

// standing returns the state of an object's clusters as the input of [rollout.Next].
func (rep *reporter) standing(key Key, p *desiredState, statuses map[string]clusterStatus, s steering, with []companion) *rollout.Input {
	g := p.governed
	in := &rollout.Input{
		Policy: g.policy, Hold: g.hold, Target: g.target,
		Paused: s.paused, Approved: s.approved, Resumed: s.resumed, Nonce: rand.Text(),
	}
	all := rep.members.Clusters()
	for i := range all {
		name := all[i].Name
		t := p.targets[name]
		if t == nil {
			continue
		}
		written := rep.written(name, key) // Read before the readiness, which must not be from an earlier write.
		row := rep.clusterStatusOf(key, p, name, statuses)
		c := rollout.Cluster{
			Cluster: match.Cluster{Name: name, Labels: all[i].Labels},
			Copy:    written,
			Offline: row.State == refractv1alpha1.StateOffline,
			Unknown: row.State == refractv1alpha1.StateSynced && row.Readiness == "",
			Joining: row.Hash == "" && row.Reason != reasonKeepsContent,
			Holds:   rep.holds(key, &row, t),
			Ready:   row.Readiness == refractv1alpha1.ReadinessReady,
			Why:     output.Cut(row.ReadinessMessage, maxReadiness),
		}
		if row.State != refractv1alpha1.StateSynced {
			c.Why = output.Cut(row.Message, maxReadiness)
		}
		if row.ReadySince != nil {
			c.ReadySince = row.ReadySince.Time
		}
		if p.rollout != nil {
			c.Changes, c.Differs = p.rollout.changes[name], p.rollout.differs[name]
		}
		c.Refused = output.Cut(rep.refusal(p, &row, statuses), maxReadiness)
		c.Lost = t.lost()
		rep.find(&c, p, &row, statuses)
		rep.join(&c, with)
		in.Clusters = append(in.Clusters, c)
	}
	in.Now = rep.now() // Read last, so that no time in the statuses is later.
	return in
}

// written identifies the last write of a copy; "" if there is no copy or if it is unknown.
func (rep *reporter) written(cluster string, key Key) string {
	m := rep.members.Get(cluster)
	if m == nil {
		return ""
	}
	have, found := m.Copies.Get(key)
	if found != member.Present {
		return ""
	}
	return have.Write()
}

// holds reports whether a cluster holds the content that it is to have. For an unreachable cluster, the last known
// content counts.
func (rep *reporter) holds(key Key, row *refractv1alpha1.ClusterStatus, t *target) bool {
	settled := row.State == refractv1alpha1.StateSynced || row.State == refractv1alpha1.StateOffline
	return settled && t.variant != nil && row.Hash == rep.state.digest(key, t.variant.hash)
}

// find records for a cluster whether its found content is known, and whether the cluster keeps it.
func (*reporter) find(c *rollout.Cluster, p *desiredState, row *refractv1alpha1.ClusterStatus, statuses map[string]clusterStatus) {
	r := statuses[row.Name]
	said := r.seq == p.seq && row.Reason == reasonKeepsContent
	switch {
	case !said && !p.governed.keeps(row.Name) && !p.governed.enters(row.Name), c.Offline:
	case row.Reason == reasonUnreadable:
		c.Offline = true // The copy cannot be read.
	case r.seq != p.seq:
		c.Unseen = true // The row is about an earlier decision.
	case row.Reason == reasonKeepsContent:
		c.Keeps = true
	case row.Reason == reasonAwaitsRollout, row.State == refractv1alpha1.StateSynced, row.State == refractv1alpha1.StateFailed:
	case row.Reason == reasonAlreadyExists, row.Reason == reasonMadeByEachCluster: // The cluster has no copy.
	default:
		c.Unseen = true
	}
}

// refusal returns why a cluster refuses the content that it is to have. It is empty if the cluster accepts the
// content, or has not been tried since the decision: a user may have asked for another attempt, or have fixed the
// cause.
func (rep *reporter) refusal(p *desiredState, row *refractv1alpha1.ClusterStatus, statuses map[string]clusterStatus) string {
	if statuses[row.Name].seq != p.seq || p.governed.recorded == nil || row.Revision == "" ||
		row.Revision != rollout.Assigned(p.governed.recorded, row.Name).Name {
		return ""
	}
	return row.Message
}

// refused reports whether a cluster refuses the content that it is to have, however often it is tried. A stopped
// rollout also counts failures with a shared cause, such as an unavailable webhook, when the cluster should get its
// former content back.
func (g *governance) refused(s *refractv1alpha1.ClusterStatus) bool {
	switch {
	case s.State != refractv1alpha1.StateFailed:
		return false
	case s.Reason == reasonRejected, s.Reason == reasonOverrideFailed:
		return true
	default:
		return rollout.Stopped(g.recorded) && s.Reason != reasonUnreachable && s.Reason != reasonWriteFailed
	}
}

// readinessChanged is called when the readiness of a copy has changed.
func (rep *reporter) readinessChanged(m *member.Member, key Key) {
	_, awaited := rep.readied(m, key)
	rep.reportReadiness(key, awaited)
}

// reportReadiness enqueues a report of a changed readiness. awaited is whether a rollout waits for this readiness.
func (rep *reporter) reportReadiness(key Key, awaited bool) {
	switch is := rep.state.underway(key); {
	case awaited:
		rep.after(key, awaitedDelay)
	case is.behind > 0:
		rep.later(key) // Copies become ready one by one after they are written.
	default:
		rep.after(key, readinessDelay)
	}
}

// readied records whether the copy with the content on its cluster is ready. since is the time when it became ready.
// awaited is whether a rollout waits for the readiness.
func (rep *reporter) readied(m *member.Member, key Key) (since time.Time, awaited bool) {
	r, _ := rep.state.clusterStatus(key, m.Name)
	have, found := m.Copies.Get(key)
	p := rep.state.desired(key)
	unknown := found != member.Present && found != member.Absent ||
		found == member.Present && p != nil && unjudged(p.governed.healthOn(m.Name), &have)
	if unknown {
		return r.readySince, p != nil && p.governed.awaits(m.Name) // The readiness is unknown yet, so the recorded time stays.
	}
	ready := found == member.Present && r.hash != "" && have.Hash == r.hash && isReady(have) || found == member.Absent && r.completed()
	return rep.state.readied(key, m.Name, ready, rep.now())
}

func isReady(have member.Copy) bool {
	return have.Readiness == "" || have.Readiness == refractv1alpha1.ReadinessReady
}

// rolloutConditions sets the conditions Progressing and Stalled, which tools read.
func rolloutConditions(p *desiredState, s *refractv1alpha1.PropagationStatus) {
	r := s.Rollout
	if r == nil || p.gone {
		meta.RemoveStatusCondition(&s.Conditions, refractv1alpha1.ConditionProgressing)
		meta.RemoveStatusCondition(&s.Conditions, refractv1alpha1.ConditionStalled)
		return
	}
	condition := func(kind string, is bool, otherwise string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: otherwise, ObservedGeneration: p.generation}
		if is {
			c.Status, c.Reason, c.Message = metav1.ConditionTrue, string(r.Phase), output.Cut(r.Message, maxMessage)
		}
		meta.SetStatusCondition(&s.Conditions, c)
	}
	under := r.Phase == refractv1alpha1.RolloutProgressing || r.Phase == refractv1alpha1.RolloutWaiting || r.Phase == refractv1alpha1.RolloutReverting
	condition(refractv1alpha1.ConditionProgressing, under, string(r.Phase))
	condition(refractv1alpha1.ConditionStalled, rollout.Stopped(r), "NotStalled")
}

// underWay returns the reason and message of a rollout until all clusters have the newest revision; empty after that.
func underWay(p *desiredState, s *refractv1alpha1.PropagationStatus) (reason, message string) {
	r, g := s.Rollout, p.governed
	if g != nil && g.led != nil && !g.settled() {
		return "RolloutProgressing", "it changes with " + called(g.led.by) + ", wave by wave"
	}
	if r == nil || g == nil {
		return "", ""
	}
	switch {
	case r.Phase == refractv1alpha1.RolloutComplete && r.Target.Name == p.governed.target.Name:
		return "", ""
	case r.Phase == refractv1alpha1.RolloutComplete:
		return "RolloutProgressing", "a rollout begins"
	}
	text := r.Message
	if text == "" {
		text = "a rollout is in progress"
	}
	return "Rollout" + string(r.Phase), text
}

// announceRollout records events on the source object, and updates the metrics.
func (rep *reporter) announceRollout(source *unstructured.Unstructured, was, is *refractv1alpha1.RolloutStatus) {
	if is == nil || was == nil || was == is {
		return
	}
	event := func(kind, reason, format string, args ...any) {
		rep.recorder.Eventf(source, nil, kind, reason, "Rollout", "%s", output.Cut(fmt.Sprintf(format, args...), maxMessage))
	}
	if was.Target.Name != is.Target.Name || was.Attempt != is.Attempt {
		n := 0
		for i := range is.Waves {
			n += int(is.Waves[i].Clusters)
		}
		event(corev1.EventTypeNormal, "RolloutBegan", "revision %s is rolled out to %d clusters in %d waves", is.Target.Name, n, len(is.Waves))
	}
	for i := range is.Waves {
		w := &is.Waves[i]
		at := slices.IndexFunc(was.Waves, func(before refractv1alpha1.WaveStatus) bool { return before.Name == w.Name })
		if w.Since != nil && (at < 0 || was.Waves[at].Since == nil || !was.Waves[at].Since.Equal(w.Since)) {
			event(corev1.EventTypeNormal, "WaveBegan", "wave %q: %d clusters", w.Name, w.Clusters)
		}
		if at >= 0 && w.Since != nil && w.Done+w.Failed == w.Clusters && was.Waves[at].Done+was.Waves[at].Failed < w.Clusters {
			waveSeconds.Observe(rep.now().Sub(w.Since.Time).Seconds())
		}
	}
	if was.Phase == is.Phase {
		return
	}
	if is.Phase == refractv1alpha1.RolloutReverting && !rollout.Stopped(was) {
		reverts.Inc()
	}
	switch is.Phase {
	case refractv1alpha1.RolloutProgressing:
	case refractv1alpha1.RolloutHalted, refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutStalled, refractv1alpha1.RolloutReverted:
		event(corev1.EventTypeWarning, "Rollout"+string(is.Phase), "revision %s: %s", is.Target.Name, is.Message)
	case refractv1alpha1.RolloutComplete:
		event(corev1.EventTypeNormal, "RolloutComplete", "every cluster has revision %s", is.Target.Name)
	case refractv1alpha1.RolloutWaiting:
		if is.Awaits != "" {
			event(corev1.EventTypeNormal, "RolloutWaiting", "%s", is.Message)
		}
	}
}

// errRevision is wrapped by the error for a revision that cannot be stored because the object has changed.
var errRevision = errors.New("the revision is no longer the newest")

// keptPart is a part of a revision that a rollout names.
type keptPart struct {
	of     Key // The object of the part; for the part of a policy, the object with the policy.
	sealed bool
}

// partsOf returns the parts of the revisions that the rollout of an object names, by their places.
func partsOf(key Key, s *refractv1alpha1.RolloutStatus, system string) map[types.NamespacedName]keptPart {
	parts := map[types.NamespacedName]keptPart{}
	add := func(key Key, object string, policies []refractv1alpha1.PolicyRevision) {
		parts[objectPlace(key, object, system)] = keptPart{of: key, sealed: isSealed(key)}
		for i := range policies {
			parts[policyPlace(key, &policies[i], system)] = keptPart{of: key}
		}
	}
	for _, r := range revisionsIn(s) {
		if r.Name == rollout.Found {
			continue
		}
		add(key, r.Object, r.Policies)
		for i := range r.Followers {
			add(followerKey(key, &r.Followers[i]), r.Followers[i].Object, r.Followers[i].Policies)
		}
	}
	return parts
}
