package release

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/match"
)

// unexplained is said of a rollout that was stopped when nobody can tell any more why.
const unexplained = "it was stopped, and it is not known any more which clusters failed"

// maxMessages is of how many failed clusters it is said why.
const maxMessages = 10

// placedNowhere says why nothing goes on while an object is placed nowhere: nobody tries the target then, and a cluster that comes may
// still hold another content.
const placedNowhere = "it is placed on no cluster"

// Found is the name of the revision that stands for what each cluster was found to hold when there was no record of it. It is stored
// nowhere: a cluster that is to have it keeps the content that it has, and cannot get it back.
const Found = "found"

// Cluster is one that is to have a copy.
type Cluster struct {
	match.Cluster

	// Offline is whether it cannot be reached, so that nothing else is known of it but what it held.
	Offline bool
	// Unknown is whether nobody knows yet whether its copy is ready, as after a restart: that says nothing
	// for it and nothing against it.
	Unknown bool
	// Unseen is whether nobody has looked yet what it holds, and Keeps whether it was found to hold another content than the
	// target, which it is to keep. They matter for clusters that are to have what they were found with, and for those of which the
	// record does not say that they have a copy.
	Unseen, Keeps bool
	// Lost is whether what it is to have is stored nowhere any more.
	Lost bool
	// Joining is whether it has no copy yet. It gets its first at once.
	Joining bool
	// Changes is whether the target gives it another content than the last good revision does.
	Changes bool
	// Differs is whether the target gives it another content than the revision that it is
	// to have.
	Differs bool
	// Holds is whether it holds the content of the revision that it is to have; of one that is offline, whether it did when it was seen last.
	Holds bool
	// Ready is whether its copy is ready, and ReadySince since when it has been without a break;
	// the zero time if that is not known.
	Ready      bool
	ReadySince time.Time
	// Refused is why its API server does not take the content; empty if it does.
	Refused string
	// Why says why it is not ready.
	Why string
}

// Input is how things stand.
type Input struct {
	// Policy is what the object obeys; nil while nobody knows, as Hold says. Then nothing
	// is released.
	Policy *Policy
	Hold   string
	// Target is the newest revision.
	Target refractv1alpha1.Revision
	// Clusters are all that are to have a copy, sorted by name.
	Clusters []Cluster
	// Paused, Approved and Resumed are what people say, by the annotations of these names.
	Paused            bool
	Approved, Resumed string
	// Nonce is random, and another one for each call. It becomes a part of what has to be said to approve.
	Nonce string
	// Now is the time.
	Now time.Time
}

// First returns the rollout of an object of which there is no record. Nothing goes anywhere until it is known what the clusters
// hold: that is what is good.
func First(target refractv1alpha1.Revision) *refractv1alpha1.RolloutStatus {
	return &refractv1alpha1.RolloutStatus{
		Phase: refractv1alpha1.RolloutWaiting, Message: "it is looked at what the clusters hold",
		Target: target, LastGood: refractv1alpha1.Revision{Name: Found},
	}
}

// Anew returns the rollout of an object whose record cannot be compared with the newest revision any more. What the clusters hold is good, as if there were no
// record; but one that was stopped stays so, and every cluster keeps what it holds until somebody says otherwise.
func Anew(was *refractv1alpha1.RolloutStatus, target refractv1alpha1.Revision, nonce string) *refractv1alpha1.RolloutStatus {
	s := First(target)
	s.Policies = was.Policies
	if Stopped(was) {
		s.Phase, s.Attempt, s.Nonce = refractv1alpha1.RolloutHalted, max(was.Attempt, 1), nonce
		s.Message = unexplained
	}
	return s
}

// Retold returns what an annotation that has another name of the target is to say; empty if the rollout does not wait for what it says.
func Retold(s *refractv1alpha1.RolloutStatus, said string) string {
	_, rest, named := strings.Cut(said, "/")
	if s == nil || !named || s.Awaits != s.Target.Name+"/"+rest {
		return ""
	}
	return s.Awaits
}

// Hold returns the rollout of an object that stands so while its newest revision may go nowhere; was is nil if there is no record of one.
func Hold(was *refractv1alpha1.RolloutStatus, target refractv1alpha1.Revision, why string) *refractv1alpha1.RolloutStatus {
	s := First(target)
	if was != nil {
		s = was.DeepCopy()
	}
	if s.Phase == refractv1alpha1.RolloutComplete {
		s.Failed = nil // That was a rollout that is over, and stops nothing.
	}
	if !Stopped(s) { // Who has which revision goes by the phase of one that is stopped.
		s.Phase = refractv1alpha1.RolloutWaiting
		for i := range s.Current { // Nobody looks at them, and some may be away: then their time begins anew.
			s.Current[i].Since, s.Current[i].Ready = nil, nil
		}
	}
	s.Message, s.Awaits = why, ""
	return s
}

// Next returns how the rollout of an object is to go on that stands so; was is nil if the
// object has none yet. It modifies nothing that it is given. It is to be called again when
// anything of the input has changed, and at until, unless that is the zero time.
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
		return s, time.Time{} // What the target changes on them is known by the next look.
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
		// A cluster is back that holds another content than all others were found with: nobody has tried the target there.
		r.keepFound()
		return s, time.Time{}
	case s.Target.Name != in.Target.Name:
		r.begin()
	case s.Phase != refractv1alpha1.RolloutComplete && !slices.Equal(was.Policies, s.Policies):
		// Its waves are others: those that are open, and what was approved, say nothing of them. While a policy is away the record names
		// it: one that comes back has the same UID and generation only if it says the same. A record of an earlier version names no UIDs.
		s.Target, s.Opened = in.Target, 0
		r.again()
		for i := range s.Current { // What is asked of them may be another, too.
			s.Current[i].Since, s.Current[i].Ready = at(in.Now), nil
		}
		r.begun = true
	default:
		s.Target = in.Target // With the generations of now.
	}
	if s.Nonce == "" && s.Phase != refractv1alpha1.RolloutComplete { // It began before there were any.
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

// Assigned returns the revision that a cluster is to have.
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
		return &s.LastGood // The failed are named for who reads it.
	case Awaited(s, cluster), failed(s, cluster):
		return &s.Target
	default:
		return &s.LastGood
	}
}

// Awaited reports whether a cluster has the target and is not done: it is waited for that its copy is ready.
func Awaited(s *refractv1alpha1.RolloutStatus, cluster string) bool {
	_, found := slices.BinarySearchFunc(s.Current, cluster, func(c refractv1alpha1.ReleasedCluster, name string) int { return strings.Compare(c.Name, name) })
	return found
}

func failed(s *refractv1alpha1.RolloutStatus, cluster string) bool {
	_, found := slices.BinarySearchFunc(s.Failed, cluster, func(c refractv1alpha1.FailedCluster, name string) int { return strings.Compare(c.Name, name) })
	return found
}

// Stopped reports whether a rollout has failed, and waits for somebody.
func Stopped(s *refractv1alpha1.RolloutStatus) bool {
	return s.Phase == refractv1alpha1.RolloutHalted || s.Phase == refractv1alpha1.RolloutReverted || reverts(s)
}

// Unbegun reports whether it is not known yet what the clusters hold, so that nothing has gone anywhere.
func Unbegun(s *refractv1alpha1.RolloutStatus) bool {
	return s.LastGood.Name == Found && s.Attempt == 0
}

// reverts reports whether clusters are to get back what they had, and have not yet.
func reverts(s *refractv1alpha1.RolloutStatus) bool {
	return s.Phase == refractv1alpha1.RolloutReverting || s.Phase == refractv1alpha1.RolloutStalled
}

// rollout is a status that is being worked on.
type rollout struct {
	*refractv1alpha1.RolloutStatus

	in       *Input
	asked    string              // What was awaited so far,
	said     string              // and the message of then.
	clusters map[string]*Cluster // By name.
	// byWave are the clusters of each wave, and waves the wave of each cluster; of no policy there are none.
	byWave [][]*Cluster
	waves  map[string]int
	until  time.Time
	// begun is whether it began, or is tried again, by this look: what is known of clusters is of before.
	begun bool
}

// waveOf returns the wave that a cluster is in.
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

// holdsNot reports whether a cluster does not hold what it is to have.
func (r *rollout) holdsNot(cluster string) bool {
	return r.clusters[cluster] == nil || !r.clusters[cluster].Holds
}

// has reports whether a cluster has the target.
func (r *rollout) has(cluster string) bool { return Assigned(r.RolloutStatus, cluster) == &r.Target }

// unseen reports whether there are clusters of which nobody knows what they hold.
func (r *rollout) unseen() bool { return r.Superseded != nil && r.Superseded.Name == Found }

// enter has clusters keep what they hold that came with another content than they are to have, and reports whether any did: the content is
// of another time, or of somebody else, and changes when their turn has come. There is one revision besides the target and the last good
// one: who has that keeps what is there, too.
func (r *rollout) enter() (came bool) {
	var names []string
	for i := range r.in.Clusters {
		if c := &r.in.Clusters[i]; c.Keeps && Assigned(r.RolloutStatus, c.Name).Name != Found {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return false
	}
	is := func(name string) bool { return slices.Contains(names, name) }
	r.Done = slices.DeleteFunc(r.Done, is)
	r.Reverting = slices.DeleteFunc(r.Reverting, is)
	r.Current = slices.DeleteFunc(r.Current, func(c refractv1alpha1.ReleasedCluster) bool { return is(c.Name) })
	r.Failed = slices.DeleteFunc(r.Failed, func(c refractv1alpha1.FailedCluster) bool { return is(c.Name) })
	r.Superseded = &refractv1alpha1.Revision{Name: Found}
	r.OnSuperseded = slices.Concat(r.OnSuperseded, names)
	slices.Sort(r.OnSuperseded)
	r.OnSuperseded = slices.Compact(r.OnSuperseded)
	return true
}

// found begins with what the clusters were found with. What those that cannot be reached hold is kept until it is known.
func (r *rollout) found() {
	r.Target = r.in.Target
	var offline []string
	seen := false
	if len(r.in.Clusters) == 0 {
		r.Message = placedNowhere
		return
	}
	for i := range r.in.Clusters {
		switch c := &r.in.Clusters[i]; {
		case c.Offline:
			offline = append(offline, c.Name)
		case c.Unseen:
			r.Message = First(r.Target).Message
			return
		case c.Keeps:
			r.keepFound()
			return
		default:
			seen = true
		}
	}
	if !seen {
		r.Message = "no cluster can be reached, and nobody knows what they hold"
		return
	}
	r.Phase, r.LastGood = refractv1alpha1.RolloutComplete, r.Target
	if len(offline) > 0 {
		r.Superseded, r.OnSuperseded = &refractv1alpha1.Revision{Name: Found}, offline
	}
}

// keepFound begins a rollout from what the clusters were found with. What it changes on them is known by the next look.
func (r *rollout) keepFound() {
	r.Target, r.LastGood = r.in.Target, refractv1alpha1.Revision{Name: Found}
	r.Superseded, r.OnSuperseded = nil, nil
	r.start()
}

// begin takes up a new target.
func (r *rollout) begin() {
	before := r.Target
	switch r.Phase {
	case refractv1alpha1.RolloutComplete:
		r.LastGood = before
		r.forgetSuperseded()
	case refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutStalled, refractv1alpha1.RolloutReverted:
		r.forgetSuperseded()
	default:
		// Who has the target before keeps that until its turn comes. Who has one that is older still goes
		// back to what was good: no more than three revisions are kept. So does who has the target before, while others keep what
		// they were found with: that is nowhere else.
		if had := slices.DeleteFunc(r.holders(), r.holdsNot); len(had) > 0 && !r.unseen() {
			r.Superseded, r.OnSuperseded = &before, had
		}
	}
	r.Target = r.in.Target
	var kept []string
	if r.Superseded != nil && r.Superseded.Name == r.Target.Name {
		r.Superseded, r.OnSuperseded, kept = nil, nil, r.OnSuperseded
	}
	r.start()
	for _, name := range kept {
		r.release(name) // They have it again, and are to become ready like any other.
	}
}

// forgetSuperseded forgets who has the target before. Who keeps what it was found with keeps it still.
func (r *rollout) forgetSuperseded() {
	if !r.unseen() {
		r.Superseded, r.OnSuperseded = nil, nil
	}
}

// start begins with the first wave. Who has not got back what was good before is not forgotten: it may fail again.
func (r *rollout) start() {
	r.begun = true
	r.again()
	r.Phase, r.Opened, r.Began = refractv1alpha1.RolloutProgressing, 0, at(r.in.Now)
	r.Waves, r.Current, r.Done, r.Failed = nil, nil, nil, nil
}

// prune forgets clusters that are to have no copy any more, and how far those were that cannot be reached.
func (r *rollout) prune() {
	gone := func(name string) bool { return r.clusters[name] == nil }
	r.Done = slices.DeleteFunc(r.Done, gone)
	unseen := r.unseen()
	r.OnSuperseded = slices.DeleteFunc(r.OnSuperseded, func(name string) bool {
		c := r.clusters[name]
		return c == nil || unseen && !c.Offline && !c.Unseen && !c.Keeps // It has nothing else: it gets what all others have.
	})
	r.Reverting = slices.DeleteFunc(r.Reverting, gone)
	r.Current = slices.DeleteFunc(r.Current, func(c refractv1alpha1.ReleasedCluster) bool { return gone(c.Name) })
	r.Failed = slices.DeleteFunc(r.Failed, func(c refractv1alpha1.FailedCluster) bool { return gone(c.Name) })
	if len(r.OnSuperseded) == 0 {
		r.OnSuperseded, r.Superseded = nil, nil
	}
	r.Offline = nil
	for i := range r.in.Clusters {
		if r.in.Clusters[i].Offline && r.Phase != refractv1alpha1.RolloutComplete {
			r.Offline = append(r.Offline, r.in.Clusters[i].Name)
		}
	}
	for i := range r.Current {
		if entry := &r.Current[i]; r.clusters[entry.Name].Offline {
			entry.Since, entry.Ready = nil, nil // When it is back the time begins anew.
		}
	}
}

// again counts an attempt: nothing that was said before it approves anything of it.
func (r *rollout) again() {
	r.Attempt++
	r.Nonce = r.in.Nonce
}

// token is what an annotation says to approve that a wave begins, or that it is tried again. Nobody can say it before
// the status does, and it is never said twice, so that what was meant for another time means nothing.
func (r *rollout) token(what string) string {
	return fmt.Sprintf("%s/%d/%s/%s", r.Target.Name, r.Attempt, what, r.Nonce)
}

// says reports whether an annotation has the value that stands for what, and that the status has asked for: who reads the nonce can
// make up what is asked for later.
func (r *rollout) says(annotation, what string) bool {
	return r.Nonce != "" && annotation == r.asked && annotation == r.token(what)
}

// retry is what is tried again.
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
		r.Current[i].Since, r.Current[i].Ready = at(r.in.Now), nil
	}
}

// stop ends what fails.
func (r *rollout) stop() {
	if !r.in.Policy.revert {
		// Who has not got the target yet, as one that could not be reached since, does not get it any more.
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
	// What they hold is that of the target, which they are to have no more: the next look tells
	// who has lost it.
	r.Message = r.failures()
}

// revert waits for clusters to have what was good. If that is stored nowhere, or they refuse it, somebody has to see to them. Those that
// cannot be reached are not forgotten: one that is back has it reverted again.
func (r *rollout) revert() {
	r.Reverting = slices.DeleteFunc(r.Reverting, func(name string) bool {
		c := r.clusters[name]
		if r.LastGood.Name == Found {
			return c.Keeps && r.Attempt == 1 // It never took the target. What it holds otherwise may be that of another attempt.
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
		// It is tried again there, as when the state was just written. What was said holds until it is known what comes of that: each
		// other word is written, and has it tried again.
		r.Message, r.Awaits = r.said, r.token(retry)
		return
	case len(back) > 0:
		r.Phase = refractv1alpha1.RolloutReverting
		back = append(back, refused...) // They are tried again as long as others are.
		slices.Sort(back)
		r.Message = r.failures() + "; " + fewOf(back, "gets back what it had", "get back what they had")
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
			"with a content that is good", fewOf(lost, "keeps", "keep"))
	}
	if len(refused) > 0 {
		r.Message += fmt.Sprintf("; %s the content before the change, which is tried again: see to what refuses it: %s",
			fewOf(refused, "refuses", "refuse"), r.refusals(refused))
	}
	if len(offline) > 0 {
		r.Message += "; " + fewOf(offline, "gets back what it had when it can be reached", "get back what they had when they can be reached")
	}
}

// refusals says in words why clusters do not take what they are to have.
func (r *rollout) refusals(names []string) string {
	var parts []string
	for _, name := range names[:min(len(names), maxMessages)] {
		parts = append(parts, name+": "+r.clusters[name].Refused)
	}
	return strings.Join(parts, "; ")
}

// fewOf says of the first of some clusters, and of how many more, what they do.
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

// failures says in words what failed.
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

// progress says in words how far it is.
func (r *rollout) progress() string {
	for i := len(r.Waves) - 1; i >= 0; i-- {
		if w := &r.Waves[i]; w.Since != nil {
			return fmt.Sprintf("%s: %d of %d clusters are done", title(w.Name), w.Done, w.Clusters)
		}
	}
	return "clusters that were offline get the change"
}

// title is how a wave is called in words.
func title(name string) string {
	if name == "" {
		return "the last wave"
	}
	return "wave " + name
}

// watch looks at the clusters that have the target.
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
	// A wave that goes on has to stay as it has become.
	for _, name := range slices.Clone(r.Done) {
		c := r.clusters[name]
		if int(r.Opened)-1 == r.waveOf(c) && !c.Offline && !c.Unknown && c.Holds && !c.Ready && !r.over(int(r.Opened)-1) {
			r.Done = slices.DeleteFunc(r.Done, func(done string) bool { return done == name })
			r.fail(name, because("it was ready, and then not", c.Why))
		}
	}
}

// look returns why a cluster has failed, or whether it is done.
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
		return "its API server refuses it: " + c.Refused, false
	case c.Holds && c.Ready:
		since := c.ReadySince // By the clock of whoever has seen it, which may be ahead: then it takes so much longer.
		if since.IsZero() {
			since = now
		}
		if entry.Ready != nil && at(since).After(entry.Ready.Time) && !c.ReadySince.IsZero() {
			return "it was ready, and then not for a while", false
		}
		if entry.Ready == nil {
			entry.Ready = at(since)
		}
		ready := entry.Ready.Add(p.minReady(r.waveOf(c)))
		if !now.Before(ready) {
			return "", true
		}
		r.at(ready)
		return "", false
	case c.Holds && entry.Ready != nil:
		return because("it was ready, and then not", c.Why), false
	case entry.Ready != nil:
		// Somebody has changed the copy on the member, or deleted it, and it is put right.
		entry.Since, entry.Ready = at(now), nil
	}
	late := entry.Since.Add(p.timeout)
	if !now.Before(late) {
		return because(fmt.Sprintf("it is not ready after %s", p.timeout), c.Why), false
	}
	r.at(late)
	return "", false
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// at has the rollout be looked at no later than then.
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

func (r *rollout) finish(name string) {
	i, found := slices.BinarySearch(r.Done, name)
	if !found {
		r.Done = slices.Insert(r.Done, i, name)
	}
}

// release gives a cluster the target.
func (r *rollout) release(name string) {
	r.OnSuperseded = slices.DeleteFunc(r.OnSuperseded, func(is string) bool { return is == name })
	i, found := slices.BinarySearchFunc(r.Current, name, func(c refractv1alpha1.ReleasedCluster, name string) int { return strings.Compare(c.Name, name) })
	if !found {
		r.Current = slices.Insert(r.Current, i, refractv1alpha1.ReleasedCluster{Name: name, Since: at(r.in.Now)})
	}
}

// settled reports whether nothing is to be done on a cluster: it is done, it has failed, or the
// target changes nothing there.
func (r *rollout) settled(c *Cluster) bool {
	if !r.has(c.Name) {
		return !c.Differs
	}
	return !Awaited(r.RolloutStatus, c.Name)
}

// over reports whether a wave is: all clusters in it that can be reached are settled. If none of
// those that change can be reached it is not, for nobody has tried the change.
func (r *rollout) over(wave int) bool {
	changed, tried := false, false
	for _, c := range r.byWave[wave] {
		settled := r.settled(c)
		if !settled && !c.Offline {
			return false
		}
		changed = changed || !settled || r.has(c.Name)
		tried = tried || (settled && r.has(c.Name))
	}
	return tried || !changed
}

// open opens the waves whose turn has come. It returns why the next has to wait.
func (r *rollout) open() (why string) {
	p := r.in.Policy
	for int(r.Opened) <= p.waves() {
		if r.Opened > 0 && !r.over(int(r.Opened)-1) {
			return r.unreachable(int(r.Opened) - 1)
		}
		if int(r.Opened) == p.waves() {
			return ""
		}
		next := int(r.Opened)
		if r.changes(next) > 0 {
			if why := r.mayOpen(next); why != "" {
				return why
			}
		}
		r.Opened++
	}
	return ""
}

// unreachable says that a wave waits for clusters that cannot be reached, if it does.
func (r *rollout) unreachable(wave int) string {
	for _, c := range r.byWave[wave] {
		if !c.Offline && !r.settled(c) {
			return ""
		}
	}
	return fmt.Sprintf("%s: no cluster can be reached, and at least one has to be done", title(r.in.Policy.nameOf(wave)))
}

// changes is how many clusters of a wave the target is to change.
func (r *rollout) changes(wave int) (n int) {
	for _, c := range r.byWave[wave] {
		if c.Changes || c.Differs || r.has(c.Name) {
			n++
		}
	}
	return n
}

// mayOpen returns why a wave may not begin.
func (r *rollout) mayOpen(wave int) string {
	p := r.in.Policy
	if r.in.Paused {
		return "it is paused"
	}
	first, manual := true, false
	for k := range wave {
		if r.changes(k) > 0 {
			first = false
			if p.outer(k) == p.outer(wave) {
				manual = true // Somebody has approved that this wave of the floor begins, if it had to be.
			}
		}
	}
	parts := p.parts(wave)
	needs := parts[0].manual && !manual
	for _, part := range parts[1:] {
		needs = needs || part.manual
	}
	text := title(p.nameOf(wave)) + " waits for an approval"
	if first && p.maxChange >= 0 {
		all := 0
		for k := range p.waves() {
			all += r.changes(k)
		}
		if all > p.maxChange {
			needs = true
			text = fmt.Sprintf("it changes %d clusters, more than %d, and waits for an approval", all, p.maxChange)
		}
	}
	switch what := fmt.Sprint(wave); {
	case !needs:
		return ""
	case r.says(r.in.Approved, what):
		r.Nonce = r.in.Nonce // It was used.
		return ""
	default:
		r.Awaits = r.token(what)
		return text
	}
}

// releaseAll gives the target to the clusters whose turn has come. It returns why others wait
// that could have it.
func (r *rollout) releaseAll() (blocked string) {
	type candidate struct {
		*Cluster

		wave int
	}
	var candidates []candidate
	for i := range r.in.Clusters {
		c := &r.in.Clusters[i]
		if wave := r.waveOf(c); wave < int(r.Opened) && !c.Offline && c.Differs && !r.has(c.Name) {
			candidates = append(candidates, candidate{c, wave})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.wave, b.wave), cmp.Compare(r.held(a.Name), r.held(b.Name)))
	})
	var room *rooms
	for _, c := range candidates {
		if c.Joining {
			r.release(c.Name) // It has nothing that could be disturbed.
			continue
		}
		if r.in.Paused {
			return "it is paused"
		}
		if room == nil {
			room = r.rooms()
		}
		ok, why := room.take(c.Cluster, c.wave)
		if ok {
			r.release(c.Name)
		}
		blocked = cmp.Or(blocked, why)
	}
	return blocked
}

// held is 0 for a cluster that a target before has changed already: it comes first.
func (r *rollout) held(name string) int {
	if _, found := slices.BinarySearch(r.OnSuperseded, name); found {
		return 0
	}
	return 1
}

// rooms is how many more clusters may have the target and not be done.
type rooms struct {
	policy      *Policy
	wave, outer map[int]int    // By the index of the wave, and of that of the first level.
	unavailable map[string]int // How many clusters are not ready, by LABEL=VALUE.
}

func (r *rollout) rooms() *rooms {
	p := r.in.Policy
	room := &rooms{policy: p, wave: map[int]int{}, outer: map[int]int{}, unavailable: map[string]int{}}
	of, ofOuter := map[int]int{}, map[int]int{}
	for i := range r.in.Clusters {
		k := r.waveOf(&r.in.Clusters[i])
		of[k]++
		ofOuter[p.outer(k)]++
	}
	for k, n := range of {
		parts := p.parts(k)
		room.outer[p.outer(k)] = scaled(parts[0].most, ofOuter[p.outer(k)])
		room.wave[k] = n
		for _, part := range parts[1:] {
			room.wave[k] = min(room.wave[k], scaled(part.most, n))
		}
	}
	for i := range r.Current {
		c := r.clusters[r.Current[i].Name]
		if c.Offline {
			continue
		}
		k := r.waveOf(c)
		room.wave[k]--
		room.outer[p.outer(k)]--
	}
	for _, name := range r.holders() {
		if c := r.clusters[name]; c.Offline || !c.Holds || !c.Ready {
			room.count(c)
		}
	}
	return room
}

// count counts a cluster as one that is not ready.
func (room *rooms) count(c *Cluster) {
	for i := range room.policy.budgets {
		label := room.policy.budgets[i].Label
		if value, ok := c.Labels[label]; ok {
			room.unavailable[label+"="+value]++
		}
	}
}

// take takes the room for a cluster, or returns why there is none. That a wave is full is nothing
// to speak of.
func (room *rooms) take(c *Cluster, wave int) (ok bool, why string) {
	p := room.policy
	for i := range p.budgets {
		b := &p.budgets[i]
		value, ok := c.Labels[b.Label]
		if n := room.unavailable[b.Label+"="+value]; ok && n >= int(b.MaxUnavailable) {
			return false, fmt.Sprintf("of the clusters with %s=%s, %d are not ready, and no more may be", b.Label, value, n)
		}
	}
	if room.wave[wave] < 1 || room.outer[p.outer(wave)] < 1 {
		return false, ""
	}
	room.wave[wave]--
	room.outer[p.outer(wave)]--
	room.count(c)
	return true, ""
}

// countWaves makes the lines of the waves.
func (r *rollout) countWaves() {
	p := r.in.Policy
	lines := make([]refractv1alpha1.WaveStatus, p.waves())
	for k := range lines {
		lines[k].Name = p.nameOf(k)
	}
	for i := range r.in.Clusters {
		c := &r.in.Clusters[i]
		has := r.has(c.Name)
		if !has && !c.Changes && !c.Differs {
			continue
		}
		line := &lines[r.waveOf(c)]
		line.Clusters++
		switch {
		case failed(r.RolloutStatus, c.Name):
			line.Failed++
		case has && r.settled(c):
			line.Done++
		}
	}
	var waves []refractv1alpha1.WaveStatus
	for k := range lines {
		line := &lines[k]
		if line.Clusters == 0 {
			continue
		}
		if k < int(r.Opened) {
			line.Since = at(r.in.Now)
			if i := slices.IndexFunc(r.Waves, func(w refractv1alpha1.WaveStatus) bool { return w.Name == line.Name }); i >= 0 && r.Waves[i].Since != nil {
				line.Since = r.Waves[i].Since
			}
		}
		waves = append(waves, *line)
	}
	r.Waves = waves
}

// reachable reports whether a cluster that has the target and is not done can be reached.
func (r *rollout) reachable() bool {
	return slices.ContainsFunc(r.Current, func(c refractv1alpha1.ReleasedCluster) bool { return !r.clusters[c.Name].Offline })
}

// complete ends the rollout if nothing is left to be done where it can be, and reports whether it did.
func (r *rollout) complete() bool {
	if int(r.Opened) < r.in.Policy.waves() || !r.over(r.in.Policy.waves()-1) {
		return false
	}
	for i := range r.in.Clusters {
		if c := &r.in.Clusters[i]; !c.Offline && !r.settled(c) {
			return false
		}
	}
	r.Phase, r.LastGood = refractv1alpha1.RolloutComplete, r.Target
	r.Opened, r.Began = 0, nil
	r.Superseded, r.OnSuperseded, r.Current, r.Done, r.Reverting, r.Offline = nil, nil, nil, nil, nil, nil
	return true
}

// at is a time as it comes back when it was written down.
func at(t time.Time) *metav1.MicroTime {
	m := metav1.NewMicroTime(t.Truncate(time.Microsecond))
	return &m
}
