package propagation

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/revision"
	"refract.dev/tree"
)

// state holds, for each object, the desired state and its result on each cluster. It is the only state of the
// controllers, and is built again after a restart.
type state struct {
	epoch    atomic.Int64 // The number of changes of policies and clusters.
	complete atomic.Bool  // True after one decision about each object that existed at the start.
	asked    atomic.Bool  // True if any rollout policy has had a health expression since the start.

	// digest returns the value that reports contain instead of a hash: see [sealingKey].
	digest func(key Key, hash string) string

	mu      sync.Mutex
	objects map[Key]*objectState
	users   map[tree.Policy]map[Key]bool // The objects that name a policy.
	asking  map[tree.Policy]asking       // Questions that the status of the policy does not show yet. More objects may join them.
	leaders map[Key]map[Key]bool         // The leaders of each follower, which are the objects that it travels with.
	gone    departures                   // Objects that are gone and may have had followers.
	scalers map[Key]map[Key]bool         // The autoscalers of the hub that scale each object.
	nothing map[Key]bool                 // Keys that need no decision; nil as soon as complete is true.
	bare    map[Key]bool                 // Objects that are gone together with their Propagations. Some may exist again.
	heard   map[owedCopy]bool            // The entries of FederatedClusters that are done.
	copies  copyCounts
	seq     int64
	naming  int64 // How many times clusters were renamed or have left.
	bodies  int   // The bytes of the kept bodies.
}

type objectState struct {
	desired   *desiredState
	statuses  map[string]clusterStatus // By cluster.
	previous  previous
	names     []tree.Policy    // Policies that the object names.
	followers map[Key][]string // The followers of the object, with their clusters.
	scales    Key              // The workload that it scales; zero if none.
	// withheld are the objects that would follow this object if the references to them were permitted.
	withheld map[Key][]string
	warned   []string // Warnings that were reported.
	// corrected describes the corrections on clusters since the last announcement.
	corrected []string
	// behind is the number of target clusters without a result for the present desired state. wrong is the number of
	// target clusters without a correct copy, and includes behind.
	behind, wrong int
	bodies        int // The bytes of the kept bodies.
	// emptied is the time when a deleted object lost its last copy. It is zero before, and for objects that exist. The
	// Propagation may still exist.
	emptied time.Time
	// due is true while a report is queued.
	due bool
}

// clusterStatus is the result of a desired state on one cluster. Every copy has a clusterStatus in memory, so it has no
// facts that are also stored elsewhere.
type clusterStatus struct {
	seq     int64 // The number of the desired state.
	state   refractv1alpha1.ClusterState
	reason  string
	message string
	// generation and hash identify the content that the cluster holds.
	generation int64
	hash       string
	// owned are the fields that Refract owned after the last write. After a restart they are not known. Then fields is
	// their hash, from the Propagation.
	owned  member.Ownership
	fields string
	drift  *refractv1alpha1.DriftStatus
	uid    types.UID // The UID of the last written copy; empty after a restart.
	// run is the run of a Job; nil for other kinds. It is read-only.
	run *refractv1alpha1.RunStatus
	// adopted is true if the object on the member is older than its propagation, and Refract took it over.
	adopted bool
	// absent is true if the cluster has no copy and should have none.
	absent bool
	// readySince is the time when the copy with this hash became ready. It is recorded only while a rollout waits for
	// the readiness, and is zero if the copy is not ready.
	readySince time.Time
	// revision is the name of the revision that the status describes while a rollout is in progress. Another decision
	// about the same revision keeps the status.
	revision string
}

// baseline returns the hash of the fields that Refract owned when the copy was last correct; empty if it is unknown.
func (r *clusterStatus) baseline() string {
	if h := r.owned.Hash(); h != "" {
		return h
	}
	return r.fields
}

func newState() *state {
	return &state{
		objects: map[Key]*objectState{}, users: map[tree.Policy]map[Key]bool{}, asking: map[tree.Policy]asking{},
		leaders: map[Key]map[Key]bool{}, scalers: map[Key]map[Key]bool{},
		nothing: map[Key]bool{}, bare: map[Key]bool{}, heard: map[owedCopy]bool{}, copies: copyCounts{},
		digest: func(_ Key, hash string) string { return hash },
		gone:   newDepartures(time.Now),
	}
}

// none records that the key needs no decision now.
func (s *state) none(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nothing != nil {
		s.nothing[key] = true
	}
}

// setComplete records that each object that existed at the start has had a decision. From now on, [state.unknown] is
// not used.
func (s *state) setComplete() {
	s.complete.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nothing = nil
}

// previous returns the facts about the key that the next decision needs.
func (s *state) previous(key Key) (previous, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return previous{}, false
	}
	return e.previous, true
}

// setDesired records a desired state, unless a cluster was renamed or has left since the decision began. It returns:
//   - the clusters that need work, for the dispatcher: they should have a copy, or may have one;
//   - the policies whose statuses need an update;
//   - the followers and scaled workloads that need a new decision because of a change.
func (s *state) setDesired(key Key, p *desiredState, was previous, names []tree.Policy) (clusters []string, policies []tree.Policy, followers []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.naming != s.naming {
		return nil, nil, nil // The decision may contain names that no cluster has any more. Another decision follows.
	}
	e := s.objects[key]
	if e == nil {
		e = &objectState{statuses: map[string]clusterStatus{}, previous: was}
		for i := range was.statuses {
			e.statuses[was.statuses[i].Name] = reported(&was.statuses[i])
		}
		e.warned = was.warned
		e.previous.statuses, e.previous.warned = nil, nil
		delete(s.nothing, key)
		s.objects[key] = e
	}
	s.seq++
	p.seq = s.seq
	policies = s.ask(e, p)
	clusters = e.carry(p)
	if e.desired != nil && e.desired.governed.attempt() != p.governed.attempt() {
		e.forgetRefusals()
	}
	s.dropBodies(e)
	if e.desired == nil {
		s.copies.add(key.Namespace, e.statuses, copyCount{reported: 1})
	}
	s.copies.retarget(key.Namespace, e, p.targets)
	s.depart(key, e, p)
	var unsaid []string
	if len(e.followers) > 0 {
		unsaid = e.unsaid(nil)
	}
	var scaled []Key
	if p.blocked == "" {
		scaled = s.setScaled(key, e, p)
	}
	followers = e.marked(p)
	e.desired = p
	if !p.gone {
		e.emptied = time.Time{}
	}
	e.previous = p.remember(e.previous)
	for name, r := range e.statuses {
		if revision.IsDigest(r.hash) {
			s.recognize(key, p.targets[name], &r)
			e.statuses[name] = r
		}
	}
	e.count()
	s.keepBodies(e)
	if !slices.Equal(e.names, names) {
		policies = slices.Concat(policies, e.names, names)
		s.index(key, e, names)
	}
	if p.blocked == "" && !p.dryRun {
		followers = slices.Concat(followers, s.setFollowers(key, e, p.travelling(e.followers)), e.withhold(p.withheld))
		if len(e.followers) > 0 && !slices.Equal(unsaid, e.unsaid(nil)) {
			followers = slices.AppendSeq(followers, maps.Keys(e.followers)) // Their copies may have stayed only because of clusters with unknown followers.
		}
	}
	return clusters, policies, append(followers, scaled...)
}

// marked returns the followers of the object if the value of its annotation orphan has changed. They need a new
// decision, because each copy of a follower has a mark with that value.
func (e *objectState) marked(p *desiredState) []Key {
	if e.desired == nil || e.desired.orphan == p.orphan {
		return nil
	}
	return slices.Collect(maps.Keys(e.followers))
}

// depart records that an object is gone, with its last known state, if the object may have had followers. If the object
// exists again, depart removes the record.
func (s *state) depart(key Key, e *objectState, now *desiredState) {
	switch d, departed := s.gone.byKey[key]; {
	case !now.gone:
		s.gone.remove(key)
	case departed:
		d.asked = now.cause.asked()
		s.gone.byKey[key] = d
	case e.desired == nil:
		s.gone.add(key, departure{asked: now.cause.asked()})
	case !e.desired.gone && e.mayLead():
		s.gone.add(key, departure{asked: now.cause.asked(), known: true, orphan: e.desired.orphan})
	}
}

// mayLead reports whether the object may have followers: some are known, or the desired state cannot show all of them.
// For example, an object that has been blocked since the restart has no rendered content, so its references are not
// known. Then only the Propagations of the followers name it as their leader.
func (e *objectState) mayLead() bool {
	return len(e.followers)+len(e.withheld) > 0 || e.desired.blocked != "" || e.desired.dryRun || len(e.unsaid(nil)) > 0
}

// carry returns the clusters that need work for the new desired state, sorted: they have, may have, or should have a
// copy. A cluster that is already synced to the new content needs no work. For such a cluster, carry moves the status
// to the new desired state.
func (e *objectState) carry(p *desiredState) (concerned []string) {
	anew := e.desired == nil || e.desired.blocked != "" || p.blocked != "" || e.desired.dryRun || p.dryRun || e.desired.uid != p.uid
	for name, t := range p.targets {
		e.comes(name, p)
		if anew || !e.carried(name, p, t) {
			concerned = append(concerned, name)
		}
	}
	for name := range e.statuses {
		if p.targets[name] == nil {
			concerned = append(concerned, name)
		}
	}
	for i := range e.previous.placed {
		name := e.previous.placed[i].Cluster
		if _, reported := e.statuses[name]; !reported && p.targets[name] == nil {
			concerned = append(concerned, name)
		}
	}
	slices.Sort(concerned)
	return concerned
}

// forgetRefusals clears the refused revisions of all clusters, because a new attempt of a rollout tries them again.
func (e *objectState) forgetRefusals() {
	for name, r := range e.statuses {
		r.revision = ""
		e.statuses[name] = r
	}
}

// comes clears the hash of a cluster that is new in the placement of an object with a rollout policy. A copy that still
// exists there may have any content.
func (e *objectState) comes(name string, p *desiredState) {
	_, placed := placement.Find(e.previous.placed, name)
	r, reported := e.statuses[name]
	if placed || !reported || p.governed == nil {
		return
	}
	r.hash = ""
	e.statuses[name] = r
}

// carried reports whether the cluster is already synced to the target. If so, it moves the status to the new desired
// state.
func (e *objectState) carried(name string, p *desiredState, t *target) bool {
	before := e.desired.targets[name]
	if before == nil || before.variant == nil || t.variant == nil || before.variant.hash != t.variant.hash {
		return false
	}
	r := e.statuses[name]
	if r.state != refractv1alpha1.StateSynced || r.seq != e.desired.seq || r.hash != t.variant.hash {
		return false
	}
	r.seq, r.generation = p.seq, t.generation
	e.statuses[name] = r
	return true
}

// recognize handles a digest in a status from before a restart. If the present key gives this digest for the content of
// the target, the hash of that content replaces the digest. Otherwise the digest stays, and the applier reads the
// content from the copy.
func (s *state) recognize(key Key, t *target, r *clusterStatus) {
	if t != nil && t.variant != nil && s.digest(key, t.variant.hash) == r.hash {
		r.hash = t.variant.hash
	}
}

// reported returns the status that a row of a Propagation contains.
func reported(s *refractv1alpha1.ClusterStatus) clusterStatus {
	r := clusterStatus{
		state: s.State, reason: s.Reason, message: s.Message,
		generation: s.Generation, hash: s.Hash, fields: s.Fields, drift: s.Drift, adopted: s.Adopted, run: s.Run,
		revision: s.Revision,
	}
	if s.ReadySince != nil {
		r.readySince = s.ReadySince.Time
	}
	return r
}

// readied records the readiness of a copy. ready is true if the copy has the content that was last applied, and is
// ready. since is the time when it became ready; zero if it is not ready. awaited is true if a rollout waits for it.
func (s *state) readied(key Key, cluster string, ready bool, now time.Time) (since time.Time, awaited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil || e.desired.governed == nil {
		return time.Time{}, false
	}
	awaited = e.desired.governed.awaits(cluster)
	r, reported := e.statuses[cluster]
	if !reported {
		return time.Time{}, awaited
	}
	switch {
	case !ready || !awaited:
		r.readySince = time.Time{} // Nothing observes interruptions of readiness while no rollout waits.
	case r.readySince.IsZero():
		r.readySince = now
	}
	e.statuses[cluster] = r
	return r.readySince, awaited
}
