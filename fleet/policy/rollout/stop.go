package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// stop ends a rollout with too many failures.
func (r *rollout) stop() {
	if !r.in.Policy.revert {
		// Clusters that do not have the target yet, for example because they are offline, no longer get it.
		r.Current = slices.DeleteFunc(r.Current, func(c refractv1alpha1.ReleasedCluster) bool { return r.holdsNot(c.Name) })
		if !r.unseen() {
			r.OnSuperseded = slices.DeleteFunc(r.OnSuperseded, r.holdsNot)
		}
		r.countWaves()
		r.Phase = refractv1alpha1.RolloutHalted
		r.sayStopped()
		return
	}
	r.countWaves()
	back := slices.Concat(r.holders(), r.Reverting)
	if !r.unseen() {
		back = append(back, r.OnSuperseded...)
	}
	slices.Sort(back)
	r.forgetSuperseded()
	r.Phase, r.Reverting = refractv1alpha1.RolloutReverting, slices.Compact(back)
	r.Current, r.Done = nil, nil
	// The input compares the clusters with the target, which is no longer their assigned revision. Only the next call
	// can determine which clusters cannot get their former content.
	r.Message = r.failures()
}

// revert waits until the clusters have their former content. If that content is not stored on the hub, or a cluster
// rejects it, a user must act. Offline clusters stay listed: when one returns, its revert continues.
func (r *rollout) revert() {
	r.Reverting = slices.DeleteFunc(r.Reverting, func(name string) bool {
		c := r.clusters[name]
		if r.LastGood.Name == Found {
			return c.Keeps && r.Attempt == 1 // Other content is the former one, but only in the first attempt. Later, it may come from an earlier attempt.
		}
		return c.Holds && !c.Offline
	})
	var lost, offline, refused, back []string
	for _, name := range r.Reverting {
		switch c := r.clusters[name]; {
		case r.LastGood.Name == Found || c.Lost:
			lost = append(lost, name)
		case c.Offline:
			offline = append(offline, name)
		case c.Refused != "":
			refused = append(refused, name)
		default:
			back = append(back, name)
		}
	}
	switch {
	case len(back) > 0 && r.Phase == refractv1alpha1.RolloutStalled:
		// These clusters try again. The message stays until the result is known: a changed message would be written to
		// the status, which causes another try.
		r.Message, r.Awaits = r.said, r.token(retry)
		return
	case len(back) > 0:
		r.Phase = refractv1alpha1.RolloutReverting
		back = append(back, refused...) // While other clusters are reverted, these are tried again, too.
		slices.Sort(back)
		r.Message = r.failures() + "; " + fewOf(back, "gets back its previous content", "get back their previous content")
		refused = nil
	case len(lost)+len(refused) > 0:
		r.Phase = refractv1alpha1.RolloutStalled
		r.sayStopped()
	default:
		r.Phase = refractv1alpha1.RolloutReverted
		r.sayStopped()
	}
	if len(lost) > 0 {
		r.Message += fmt.Sprintf("; %s the change, as the content before it is not stored on the hub: apply the object or its override policies "+
			"with good content", fewOf(lost, "keeps", "keep"))
	}
	if len(refused) > 0 {
		r.Message += fmt.Sprintf("; %s the content before the change, which is tried again: fix the cause: %s",
			fewOf(refused, "rejects", "reject"), r.refusals(refused))
	}
	if len(offline) > 0 {
		r.Message += "; " + fewOf(offline, "gets back its previous content when it can be reached", "get back their previous content when they can be reached")
	}
}

// refusals lists the reasons why clusters reject their assigned content.
func (r *rollout) refusals(names []string) string {
	var parts []string
	for _, name := range names[:min(len(names), maxMessages)] {
		parts = append(parts, name+": "+r.clusters[name].Refused)
	}
	return strings.Join(parts, "; ")
}

// fewOf names the first of the clusters, counts the others, and appends the verb phrase for one or many.
func fewOf(names []string, one, many string) string {
	const most = 10
	if len(names) == 1 {
		return names[0] + " " + one
	}
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(", and %d more clusters", more)
	}
	return text + " " + many
}

func (r *rollout) sayStopped() {
	r.Message, r.Awaits = cmp.Or(r.failures(), unexplained), r.token(retry)
}

// failures returns a message about the failed clusters.
func (r *rollout) failures() string {
	var parts []string
	const most = 3
	for i := range r.Failed[:min(len(r.Failed), most)] {
		parts = append(parts, r.Failed[i].Name+": "+r.Failed[i].Message)
	}
	text := strings.Join(parts, "; ")
	if more := len(r.Failed) - most; more > 0 {
		text += fmt.Sprintf("; and %d more clusters", more)
	}
	return text
}

// watch evaluates the clusters that have the target.
func (r *rollout) watch() {
	var current []refractv1alpha1.ReleasedCluster
	for i := range r.Current {
		entry := r.Current[i]
		c := r.clusters[entry.Name]
		why, done := r.look(c, &entry)
		switch {
		case why != "":
			r.fail(entry.Name, why)
		case done:
			r.finish(entry.Name)
		default:
			current = append(current, entry)
		}
	}
	r.Current = current
	// The clusters of a wave in progress must stay ready.
	for _, name := range slices.Clone(r.Done) {
		c := r.clusters[name]
		if int(r.Opened)-1 == r.waveOf(c) && !c.Offline && !c.Unknown && c.Holds && !c.Ready && !r.over(int(r.Opened)-1) {
			r.Done = slices.DeleteFunc(r.Done, func(done string) bool { return done == name })
			r.fail(name, because("it was ready, then unready", c.Why))
		}
	}
}

// look evaluates a cluster with the target. Why is the reason why it has failed; done is whether it is done.
func (r *rollout) look(c *Cluster, entry *refractv1alpha1.ReleasedCluster) (why string, done bool) {
	now, p := r.in.Now, r.in.Policy
	switch {
	case c.Offline, c.Unknown:
		return "", false
	case entry.Since == nil:
		entry.Since = at(now)
	}
	switch {
	case c.Refused != "":
		return "its API server rejects it: " + c.Refused, false
	case c.Holds && c.Ready:
		since := c.ReadySince // The clock of the observing replica may be ahead; then the wait is longer by the difference.
		if since.IsZero() {
			since = now
		}
		if entry.Ready != nil && at(since).After(entry.Ready.Time) && !c.ReadySince.IsZero() {
			return "it was ready, then unready for a while", false
		}
		if entry.Copy != "" && c.Copy != "" && entry.Copy != c.Copy {
			restart(entry, at(now)) // The copy was lost, deleted or changed, and has been written again since the last call.
		}
		if entry.Ready == nil {
			entry.Ready = at(since)
			if entry.Ready.Before(entry.Since) {
				entry.Ready = entry.Since // The readiness before a restart of the time does not count.
			}
		}
		entry.Copy = cmp.Or(c.Copy, entry.Copy)
		ready := entry.Ready.Add(p.minReady(r.waveOf(c)))
		if !now.Before(ready) {
			return "", true
		}
		r.at(ready)
		return "", false
	case c.Holds && entry.Ready != nil:
		return because("it was ready, then unready", c.Why), false
	case entry.Ready != nil:
		// The copy was changed or deleted on the member, and is being corrected.
		restart(entry, at(now))
	}
	late := entry.Since.Add(p.timeout)
	if !now.Before(late) {
		return because(fmt.Sprintf("it is not ready after %s", p.timeout), c.Why), false
	}
	r.at(late)
	return "", false
}

// restart restarts the times of a cluster that has the target, at the time since. If since is nil, they start at the
// next contact.
func restart(entry *refractv1alpha1.ReleasedCluster, since *metav1.MicroTime) {
	*entry = refractv1alpha1.ReleasedCluster{Name: entry.Name, Since: since}
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// at makes the next call due at the given time at the latest.
func (r *rollout) at(then time.Time) {
	if r.until.IsZero() || then.Before(r.until) {
		r.until = then
	}
}

func (r *rollout) fail(name, why string) {
	f := refractv1alpha1.FailedCluster{Name: name}
	if len(r.Failed) < maxMessages {
		f.Message = why
	}
	i, _ := slices.BinarySearchFunc(r.Failed, name, func(f refractv1alpha1.FailedCluster, name string) int { return strings.Compare(f.Name, name) })
	r.Failed = slices.Insert(r.Failed, i, f)
}
