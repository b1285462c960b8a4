package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
)

// unexplained is the message of a stopped rollout whose failed clusters are no longer known.
const unexplained = "it was stopped, and the failed clusters are no longer known"

// maxMessages is the maximum number of failed clusters whose reason is reported.
const maxMessages = 10

// placedNowhere is the message of a rollout that waits because the object is placed on no cluster. The rollout is not
// complete, because no cluster has tried the target, and a cluster that joins may still hold other content.
const placedNowhere = "it is placed on no cluster"

// Found is the name of a revision that stands for the content which a cluster had before the first RolloutStatus, or
// when it joined. The hub does not store this content: a cluster at Found keeps its content, and cannot get it back
// after a change.
const Found = "found"

// Cluster is the state of a cluster that should have a copy.
type Cluster struct {
	match.Cluster

	// Offline is whether the cluster is unreachable. Then the other fields describe only its last known content.
	Offline bool
	// Unknown is whether the readiness of the copy has not been observed yet, as after a restart. It counts neither for
	// nor against the cluster.
	Unknown bool
	// Unseen is whether the content of the cluster has not been read yet. Keeps is whether the cluster has other
	// content than the target, and must keep it. Both matter for clusters at [Found], and for clusters without a copy
	// in the Propagation.
	Unseen, Keeps bool
	// Lost is whether the assigned content is no longer stored.
	Lost bool
	// Joining is whether the cluster has no copy yet. It gets its first copy at once.
	Joining bool
	// Changes is whether the target gives the cluster other content than the last good revision.
	Changes bool
	// Differs is whether the target gives the cluster other content than its assigned revision.
	Differs bool
	// Holds is whether the cluster holds the content of its assigned revision. For an offline cluster, it describes the
	// last contact.
	Holds bool
	// Ready is whether the copy is ready, and ReadySince is the start of its uninterrupted readiness; the zero time if
	// unknown.
	Ready      bool
	ReadySince time.Time
	// Copy identifies the copy and its last write; empty if there is no copy, or if it is unknown.
	Copy string
	// Refused is the reason why the API server of the cluster rejects the content; empty if it accepts the content.
	Refused string
	// Why is the reason why the copy is not ready.
	Why string
}

// Input is the state of an object and of its clusters.
type Input struct {
	// Policy is the policy of the object. It is nil while the policy is unknown; then no change is released, and Hold
	// is the reason.
	Policy *Policy
	Hold   string
	// Target is the newest revision.
	Target refractv1alpha1.Revision
	// Clusters are all clusters that should have a copy, sorted by name.
	Clusters []Cluster
	// Paused, Approved and Resumed are the values of the annotations with these names.
	Paused            bool
	Approved, Resumed string
	// Nonce is random, and different for each call. It becomes a part of the tokens for approvals.
	Nonce string
	// Now is the current time.
	Now time.Time
}

// First returns the first RolloutStatus of an object. No change is released until the contents of the clusters are
// known; these contents are the last good ones.
func First(target refractv1alpha1.Revision) *refractv1alpha1.RolloutStatus {
	return &refractv1alpha1.RolloutStatus{
		Phase: refractv1alpha1.RolloutWaiting, Message: "the content of the clusters is being read",
		Target: target, LastGood: refractv1alpha1.Revision{Name: Found},
	}
}

// Anew returns the RolloutStatus of an object whose previous RolloutStatus can no longer be compared with the newest
// revision. The current contents of the clusters are the last good ones, as in [First]. But a stopped rollout stays
// stopped, and every cluster keeps its content until a user resumes the rollout.
func Anew(was *refractv1alpha1.RolloutStatus, target refractv1alpha1.Revision, nonce string) *refractv1alpha1.RolloutStatus {
	s := First(target)
	s.Policies = was.Policies
	if Stopped(was) {
		s.Phase, s.Attempt, s.Nonce = refractv1alpha1.RolloutHalted, max(was.Attempt, 1), nonce
		s.Message = unexplained
	}
	return s
}

// Retold compares an annotation with the awaited token. If they are the same except for an earlier name of the target,
// Retold returns the awaited token, and the caller rewrites the annotation. Otherwise, Retold returns "".
func Retold(s *refractv1alpha1.RolloutStatus, said string) string {
	_, rest, named := strings.Cut(said, "/")
	if s == nil || !named || s.Awaits != s.Target.Name+"/"+rest {
		return ""
	}
	return s.Awaits
}

// Hold returns the RolloutStatus of an object whose newest revision may not be released. Was is the previous
// RolloutStatus, nil if there is none. Clusters are the present clusters of the object. All other clusters leave the
// rollout, so a cluster that returns does not get the change again without its turn.
func Hold(was *refractv1alpha1.RolloutStatus, target refractv1alpha1.Revision, clusters []Cluster, why string) *refractv1alpha1.RolloutStatus {
	s := First(target)
	if was != nil {
		s = was.DeepCopy()
	}
	leave(s, func(name string) bool {
		return !slices.ContainsFunc(clusters, func(c Cluster) bool { return c.Name == name })
	})
	if s.Phase == refractv1alpha1.RolloutComplete {
		s.Failed = nil // The failures of a completed rollout no longer stop it.
	}
	if !Stopped(s) { // The phase of a stopped rollout determines the assigned revisions.
		s.Phase = refractv1alpha1.RolloutWaiting
		for i := range s.Current { // The clusters are not observed meanwhile, and may be offline, so their time begins again.
			restart(&s.Current[i], nil)
		}
	}
	s.Message, s.Awaits = why, ""
	return s
}

// Next returns the next RolloutStatus of an object. Was is the previous RolloutStatus, nil if there is none. Next does
// not modify its arguments. It must be called again when the input changes, and at the returned time, unless that is
// zero.
func Next(was *refractv1alpha1.RolloutStatus, in *Input) (is *refractv1alpha1.RolloutStatus, until time.Time) {
	if was == nil {
		was = First(in.Target)
		was.Policies = references(in.Policy)
	}
	s := was.DeepCopy()
	r := &rollout{RolloutStatus: s, in: in, asked: was.Awaits, said: was.Message, clusters: make(map[string]*Cluster, len(in.Clusters))}
	for i := range in.Clusters {
		r.clusters[in.Clusters[i].Name] = &in.Clusters[i]
	}
	if r.enter() {
		return s, time.Time{} // Only the input of the next call states what the target changes on these clusters.
	}
	s.Message, s.Awaits = "", ""
	if in.Policy != nil {
		s.Policies = references(in.Policy)
		r.byWave, r.waves = make([][]*Cluster, in.Policy.waves()), make(map[string]int, len(in.Clusters))
		for i := range in.Clusters {
			c := &in.Clusters[i]
			wave := in.Policy.waveOf(&c.Cluster)
			r.waves[c.Name] = wave
			r.byWave[wave] = append(r.byWave[wave], c)
		}
	}
	switch {
	case Unbegun(s):
		r.found()
		return s, time.Time{}
	case r.unseen() && s.LastGood.Name == s.Target.Name && s.Target.Name == in.Target.Name &&
		slices.ContainsFunc(in.Clusters, func(c Cluster) bool { return c.Keeps }):
		// A cluster has returned with other content than the others. No cluster with this content has tried the target,
		// so a new rollout begins.
		r.keepFound()
		return s, time.Time{}
	case s.Target.Name != in.Target.Name:
		r.begin()
	case s.Phase != refractv1alpha1.RolloutComplete && !slices.Equal(was.Policies, s.Policies):
		// The policies have changed, and with them the waves. Opened waves and approvals no longer apply. The
		// RolloutStatus keeps the reference to a missing policy: when the policy returns with the same UID and
		// generation, its content is the same. A RolloutStatus of an earlier version has no UIDs.
		s.Target, s.Opened = in.Target, 0
		r.again()
		for i := range s.Current { // The conditions for readiness may have changed, too.
			restart(&s.Current[i], at(in.Now))
		}
		r.begun = true
	default:
		s.Target = in.Target // The generations may differ.
	}
	if s.Nonce == "" && s.Phase != refractv1alpha1.RolloutComplete { // The rollout began in a version without nonces.
		s.Nonce = in.Nonce
	}
	r.prune()
	r.goOn()
	return s, r.until
}

func references(p *Policy) []refractv1alpha1.ObeyedPolicy {
	if p == nil {
		return nil
	}
	var refs []refractv1alpha1.ObeyedPolicy
	for i, ref := range p.Refs {
		refs = append(refs, refractv1alpha1.ObeyedPolicy{
			PolicyReference: refractv1alpha1.PolicyReference{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, Generation: ref.Generation},
			UID:             p.uids[i],
		})
	}
	return refs
}

// Assigned returns the revision that a cluster should have.
func Assigned(s *refractv1alpha1.RolloutStatus, cluster string) *refractv1alpha1.Revision {
	_, done := slices.BinarySearch(s.Done, cluster)
	_, superseded := slices.BinarySearch(s.OnSuperseded, cluster)
	switch {
	case superseded && s.Superseded != nil && s.Superseded.Name == Found:
		return s.Superseded
	case s.Phase == refractv1alpha1.RolloutComplete, done:
		return &s.Target
	case superseded && s.Superseded != nil:
		return s.Superseded
	case reverts(s), s.Phase == refractv1alpha1.RolloutReverted:
		return &s.LastGood // Failed lists these clusters only for users.
	case Awaited(s, cluster), failed(s, cluster):
		return &s.Target
	default:
		return &s.LastGood
	}
}

// Awaited reports whether a cluster has the target and is not done: the rollout waits until its copy is ready.
func Awaited(s *refractv1alpha1.RolloutStatus, cluster string) bool {
	_, found := slices.BinarySearchFunc(s.Current, cluster, func(c refractv1alpha1.ReleasedCluster, name string) int { return strings.Compare(c.Name, name) })
	return found
}

func failed(s *refractv1alpha1.RolloutStatus, cluster string) bool {
	_, found := slices.BinarySearchFunc(s.Failed, cluster, func(c refractv1alpha1.FailedCluster, name string) int { return strings.Compare(c.Name, name) })
	return found
}

// Stopped reports whether a rollout has failed, and releases no change until a user acts.
func Stopped(s *refractv1alpha1.RolloutStatus) bool {
	return s.Phase == refractv1alpha1.RolloutHalted || s.Phase == refractv1alpha1.RolloutReverted || reverts(s)
}

// Unbegun reports whether the contents of the clusters are not known yet, so that nothing has been released.
func Unbegun(s *refractv1alpha1.RolloutStatus) bool {
	return s.LastGood.Name == Found && s.Attempt == 0
}

// reverts reports whether some clusters have not returned to their former content yet.
func reverts(s *refractv1alpha1.RolloutStatus) bool {
	return s.Phase == refractv1alpha1.RolloutReverting || s.Phase == refractv1alpha1.RolloutStalled
}

// rollout is the state of one call of [Next].
type rollout struct {
	*refractv1alpha1.RolloutStatus

	in       *Input
	asked    string              // The awaited token before the call.
	said     string              // The message before the call.
	clusters map[string]*Cluster // By name.
	// byWave has the clusters of each wave, and waves has the index of the wave of each cluster. Both are empty without
	// a policy.
	byWave [][]*Cluster
	waves  map[string]int
	began  []bool // By wave: whether the wave was opened while it had clusters to change.
	until  time.Time
	// begun is whether the rollout begins or is tried again in this call. The input then describes the clusters before
	// this event.
	begun bool
}

// waveOf returns the index of a cluster's wave.
func (r *rollout) waveOf(c *Cluster) int { return r.waves[c.Name] }

// holders returns the clusters that have the target, sorted.
func (r *rollout) holders() []string {
	names := slices.Clone(r.Done)
	for i := range r.Current {
		names = append(names, r.Current[i].Name)
	}
	for i := range r.Failed {
		names = append(names, r.Failed[i].Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// holdsNot reports whether a cluster does not hold the content of its assigned revision.
func (r *rollout) holdsNot(cluster string) bool {
	return r.clusters[cluster] == nil || !r.clusters[cluster].Holds
}

// has reports whether the target is assigned to a cluster.
func (r *rollout) has(cluster string) bool { return Assigned(r.RolloutStatus, cluster) == &r.Target }

// unseen reports whether there are clusters whose content is unknown.
func (r *rollout) unseen() bool { return r.Superseded != nil && r.Superseded.Name == Found }

// again counts a new attempt. Earlier tokens do not approve it.
func (r *rollout) again() {
	r.Attempt++
	r.Nonce = r.in.Nonce
}

// token returns the annotation value that approves the start of a wave, or another try. It cannot be guessed before the
// status shows it, and is never reused, so an old value has no effect.
func (r *rollout) token(what string) string {
	return fmt.Sprintf("%s/%d/%s/%s", r.Target.Name, r.Attempt, what, r.Nonce)
}

// says reports whether an annotation has the token for an action, and the status awaited that token. The second
// condition is necessary because a client that reads the nonce can compute later tokens.
func (r *rollout) says(annotation, what string) bool {
	return r.Nonce != "" && annotation == r.asked && annotation == r.token(what)
}

// retry is the part of a token that stands for another try of the target.
const retry = "retry"

func (r *rollout) goOn() {
	if Stopped(r.RolloutStatus) && r.Phase != refractv1alpha1.RolloutReverting && r.says(r.in.Resumed, retry) {
		r.resume()
	}
	switch r.Phase {
	case refractv1alpha1.RolloutComplete:
		return
	case refractv1alpha1.RolloutHalted:
		r.sayStopped()
		return
	case refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutStalled, refractv1alpha1.RolloutReverted:
		r.revert()
		return
	case refractv1alpha1.RolloutProgressing, refractv1alpha1.RolloutWaiting:
	}
	if r.in.Policy == nil {
		r.wait(r.in.Hold)
		return
	}
	if len(r.in.Clusters) == 0 {
		r.wait(placedNowhere)
		return
	}
	r.recall()
	if !r.begun {
		r.watch()
	}
	if len(r.Failed) > r.in.Policy.maxFailures {
		r.stop()
		return
	}
	why := r.open()
	if blocked := r.releaseAll(); why == "" {
		why = blocked
	}
	r.countWaves()
	switch {
	case r.complete():
	case r.reachable():
		r.Phase = refractv1alpha1.RolloutProgressing
		r.Message = r.progress()
		if why != "" {
			r.Message += "; " + why
		}
	default:
		r.wait(why)
	}
}

func (r *rollout) wait(why string) {
	r.Phase, r.Message = refractv1alpha1.RolloutWaiting, why
}

// resume tries the target again.
func (r *rollout) resume() {
	if r.Phase == refractv1alpha1.RolloutReverted || r.Phase == refractv1alpha1.RolloutStalled {
		r.start()
		return
	}
	r.begun = true
	r.again()
	r.Phase = refractv1alpha1.RolloutProgressing
	again := r.Failed
	r.Failed = nil
	for i := range again {
		r.release(again[i].Name)
	}
	for i := range r.Current {
		restart(&r.Current[i], at(r.in.Now))
	}
}

// progress returns a message about the progress of the waves.
func (r *rollout) progress() string {
	for i := len(r.Waves) - 1; i >= 0; i-- {
		if w := &r.Waves[i]; w.Since != nil {
			return fmt.Sprintf("%s: %d of %d clusters are done", title(w.Name), w.Done, w.Clusters)
		}
	}
	return "clusters that were offline get the change"
}

// title returns the name of a wave for messages.
func title(name string) string {
	if name == "" {
		return "the last wave"
	}
	return "wave " + name
}

func (r *rollout) finish(name string) {
	i, found := slices.BinarySearch(r.Done, name)
	if !found {
		r.Done = slices.Insert(r.Done, i, name)
	}
}
