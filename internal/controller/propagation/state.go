package propagation

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/member"
	"refract.dev/internal/revision"
	"refract.dev/placement"
	"refract.dev/tree"
)

// state holds, for each object, the desired state and what came of it on each cluster.
// It is the only state of the controllers, and made anew after a restart.
type state struct {
	epoch    atomic.Int64 // Of policies and clusters: it grows with each change.
	complete atomic.Bool  // Whether everything was decided about once that was there at the start.
	asked    atomic.Bool  // Whether a rollout policy has ever asked something of copies.

	owns func(cluster string) bool // Whether this replica writes to it.
	// digest returns what is reported in the place of a hash: see [sealingKey].
	digest func(key Key, hash string) string

	mu      sync.Mutex
	objects map[Key]*objectState
	users   map[tree.Policy]map[Key]bool // The objects that name a policy.
	asking  map[tree.Policy]asking       // What objects of a policy begin to wait for, until its status says so.
	leaders map[Key]map[Key]bool         // The objects that another travels with.
	gone    departures                   // The objects that are gone and that others may have travelled with.
	scalers map[Key]map[Key]bool         // The autoscalers of the hub that scale another.
	nothing map[Key]bool                 // Of what there is nothing to decide; nil once nobody asks.
	bare    map[Key]bool                 // Objects that went together with their records. Some may be there again.
	heard   map[owedCopy]bool            // Of what FederatedClusters tell, what is done.
	copies  copyCounts
	seq     int64
	naming  int64 // How often clusters got other names.
	bodies  int   // Bytes of those that are kept.
}

type objectState struct {
	desired   *desiredState
	statuses  map[string]clusterStatus // By cluster.
	previous  previous
	names     []tree.Policy    // Policies that the object names.
	followers map[Key][]string // What travels with the object, and to which clusters.
	scales    Key              // The workload that it scales; zero if none.
	// withheld is what would, were it known that it may.
	withheld map[Key][]string
	warned   []string // Warnings that were reported.
	// corrected says what was corrected on clusters since that was last announced.
	corrected []string
	// behind are the clusters that are to have a copy and have not reported on the
	// desired state; wrong are those whose copy is not as it should be, these included.
	behind, wrong int
	// awaited are those that were behind when that was counted last, and that other replicas write to.
	awaited int
	own     int // How many clusters are to have a copy that this replica writes to.
	bodies  int // Bytes of those that are kept.
	// emptied is when nothing was left of an object that is gone, while its record is kept; the zero time otherwise.
	emptied time.Time
	// due is whether a report is to be written anyway.
	due bool
}

// clusterStatus is what came of a desired state on one cluster. There are as many as copies, so it
// holds what cannot be known from elsewhere.
type clusterStatus struct {
	seq     int64 // Of the desired state.
	state   refractv1alpha1.ClusterState
	reason  string
	message string
	// generation and hash are those of the content that the cluster holds.
	generation int64
	hash       string
	// owned are the fields that Refract owned after the last write; fields is their
	// hash as it was reported before a restart, and empty when owned is known.
	owned  member.Ownership
	fields string
	drift  *refractv1alpha1.DriftStatus
	uid    types.UID // Of the copy that was last written; empty after a restart.
	// run is the run of a Job; nil for all else. It is not to be modified.
	run *refractv1alpha1.RunStatus
	// adopted is whether the object was there before it became a copy.
	adopted bool
	// absent is whether the cluster holds no copy and is to hold none.
	absent bool
	// readySince is since when the copy has been ready with this hash, while a rollout waits for
	// that; the zero time if it is not.
	readySince time.Time
	// foreign is what another replica reported, which writes to the cluster.
	foreign *refractv1alpha1.ClusterStatus
}

// baseline is the hash of the fields that the copy was last seen with as it
// should be; empty if it is not known.
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
		nothing: map[Key]bool{}, bare: map[Key]bool{}, heard: map[owedCopy]bool{}, copies: copyCounts{}, owns: func(string) bool { return true },
		digest: func(_ Key, hash string) string { return hash },
		gone:   newDepartures(time.Now),
	}
}

// none records that there is nothing to decide for the key now.
func (s *state) none(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nothing != nil {
		s.nothing[key] = true
	}
}

// setComplete is told that everything was decided about that was there at the start. Nobody
// asks any more what is unknown.
func (s *state) setComplete() {
	s.complete.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nothing = nil
}

// previous returns what is remembered of the key.
func (s *state) previous(key Key) (previous, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return previous{}, false
	}
	return e.previous, true
}

// setDesired records a desired state, unless clusters got other names since it was begun. It returns the clusters to dispatch it to, which are to
// have a copy or may have one; the policies whose users have changed; and the followers for
// which something has changed, to decide about them again.
func (s *state) setDesired(key Key, p *desiredState, was previous, names []tree.Policy) (clusters []string, policies []tree.Policy, followers []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.naming != s.naming {
		return nil, nil, nil // It was decided with names that clusters have no more: it is to be decided again.
	}
	e := s.objects[key]
	if e == nil {
		e = &objectState{statuses: map[string]clusterStatus{}, previous: was}
		e.recover(was.statuses, s.owns)
		e.warned = was.warned
		e.previous.statuses, e.previous.warned = nil, nil
		delete(s.nothing, key)
		s.objects[key] = e
	}
	s.seq++
	p.seq = s.seq
	policies = s.ask(e, p)
	clusters = e.carry(p)
	s.dropBodies(e)
	if e.desired == nil {
		s.copies.add(key.Namespace, e.statuses, copyCount{reported: 1})
	}
	s.copies.retarget(key.Namespace, e, p.targets)
	s.depart(key, e, p)
	var scaled []Key
	if p.blocked == "" {
		scaled = s.setScaled(key, e, p)
	}
	e.desired = p
	if !p.gone {
		e.emptied = time.Time{}
	}
	e.previous = p.remember(e.previous)
	for name, r := range e.statuses {
		switch {
		case r.foreign != nil && p.blocked == "" && !s.owns(name): // What has become ours is looked at.
			s.credit(key, e, &r)
		case revision.IsDigest(r.hash):
			s.recognize(key, p.targets[name], &r)
		default:
			continue
		}
		e.statuses[name] = r
	}
	e.count(s.owns)
	s.keepBodies(e)
	if !slices.Equal(e.names, names) {
		policies = slices.Concat(policies, e.names, names)
		s.index(key, e, names)
	}
	if p.blocked == "" && !p.dryRun {
		followers = slices.Concat(s.setFollowers(key, e, p.followers), e.withhold(p.withheld))
	}
	return clusters, policies, append(followers, scaled...)
}

// depart records whether the key is gone, and what it was before, if something may have travelled with it.
func (s *state) depart(key Key, e *objectState, now *desiredState) {
	switch d, departed := s.gone.byKey[key]; {
	case !now.gone:
		s.gone.remove(key)
	case departed:
		d.asked = now.cause.asked()
		s.gone.byKey[key] = d
	case e.desired == nil:
		s.gone.add(key, departure{asked: now.cause.asked()})
	case !e.desired.gone && len(e.followers)+len(e.withheld) > 0:
		s.gone.add(key, departure{asked: now.cause.asked(), known: true, orphan: orphaning(e.desired.keeping.Orphan)})
	}
}

// carry returns the clusters that have, or may have, a copy, or are to have one, sorted, but for those that are synced already to
// what the new desired state wants there, and carries these over: they have nothing to do.
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

// comes forgets what a cluster held before it came to a governed object: a copy that is there still may have any content.
func (e *objectState) comes(name string, p *desiredState) {
	_, placed := find(e.previous.placed, name)
	r, reported := e.statuses[name]
	if placed || !reported || p.governed == nil {
		return
	}
	r.hash = ""
	e.statuses[name] = r
}

// carried carries a cluster over that is synced to the target, and reports whether it is.
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

// recover takes up what was reported before a restart, by this replica or by those that have the other clusters.
func (e *objectState) recover(statuses []refractv1alpha1.ClusterStatus, own func(string) bool) {
	for i := range statuses {
		s := &statuses[i]
		r := reported(s)
		if !own(s.Name) {
			r.foreign = s
		}
		e.statuses[s.Name] = r
	}
}

// credit counts what another replica has reported to the desired state if the copy is as that is.
func (s *state) credit(key Key, e *objectState, r *clusterStatus) {
	if t := e.desired.targets[r.foreign.Name]; t != nil && t.variant != nil && s.digest(key, t.variant.hash) == s.digest(key, r.foreign.Hash) {
		r.seq = e.desired.seq
	}
}

// recognize puts the hash of a content in the place of the digest that was reported of it before a restart. A digest that was made with
// another key, or of another content, stays: what the cluster holds is then found out from the copy.
func (s *state) recognize(key Key, t *target, r *clusterStatus) {
	if t != nil && t.variant != nil && s.digest(key, t.variant.hash) == r.hash {
		r.hash = t.variant.hash
	}
}

// reported is the status that was reported in this way.
func reported(s *refractv1alpha1.ClusterStatus) clusterStatus {
	r := clusterStatus{
		state: s.State, reason: s.Reason, message: s.Message,
		generation: s.Generation, hash: s.Hash, fields: s.Fields, drift: s.Drift, adopted: s.Adopted, run: s.Run,
	}
	if s.ReadySince != nil {
		r.readySince = s.ReadySince.Time
	}
	return r
}

// readied is told whether the copy on a cluster is ready with what it holds. It returns since when, and whether
// a rollout waits for that.
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
		r.readySince = time.Time{} // Nobody would see a break while nobody waits.
	case r.readySince.IsZero():
		r.readySince = now
	}
	e.statuses[cluster] = r
	return r.readySince, awaited
}

// setFollowers records what travels with the key. It returns those for which that is
// something else than before.
func (s *state) setFollowers(key Key, e *objectState, follows map[Key][]string) (touched []Key) {
	for follower, clusters := range e.followers {
		if now, still := follows[follower]; still && slices.Equal(now, clusters) {
			continue
		} else if !still {
			delete(s.leaders[follower], key)
			if len(s.leaders[follower]) == 0 {
				delete(s.leaders, follower)
			}
		}
		touched = append(touched, follower)
	}
	for follower := range follows {
		if _, before := e.followers[follower]; before {
			continue
		}
		if s.leaders[follower] == nil {
			s.leaders[follower] = map[Key]bool{}
		}
		s.leaders[follower][key] = true
		touched = append(touched, follower)
	}
	e.followers = follows
	return touched
}

// withhold records what is withheld from travelling with the key. It returns those for
// which that is something else than before.
func (e *objectState) withhold(withheld map[Key][]string) (touched []Key) {
	for follower, clusters := range e.withheld {
		if !slices.Equal(withheld[follower], clusters) {
			touched = append(touched, follower)
		}
	}
	e.withheld = withheld
	return touched
}

// followed says what the key travels with. Before are those that it travelled with last, perhaps before a
// restart: while one of them is not decided, or is gone for less than [leaderGrace], the key loses no cluster.
// The copies of volumes do not need that time: they wait for approval.
func (s *state) followed(key Key, before []Key) followed {
	s.mu.Lock()
	defer s.mu.Unlock()
	clusters := map[string]bool{}
	var leaders followed
	for leader := range s.leaders[key] {
		e := s.objects[leader]
		for _, name := range e.followers[key] {
			clusters[name] = true
		}
		leaders.by = append(leaders.by, leader)
		leaders.orphan = max(leaders.orphan, orphaning(e.desired.keeping.Orphan))
		leaders.fail(e.desired)
		leaders.keep(e.withheld[key])
	}
	present := len(leaders.by)
	for _, leader := range before {
		e := s.objects[leader]
		d, departed := s.gone.byKey[leader]
		switch {
		case departed && (e == nil || e.desired.gone):
			if left := s.gone.left(d); left > 0 && !placement.IsVolume(key.GroupResource) {
				leaders.by = append(leaders.by, leader)
				leaders.blocked, leaders.unsure = true, leaders.unsure || !d.known
				leaders.orphan = max(leaders.orphan, d.orphan)
				leaders.until = max(leaders.until, left)
			}
		case e == nil:
			leaders.unknown = append(leaders.unknown, leader)
		case (e.desired.blocked != "" || e.desired.dryRun) && !s.leaders[key][leader]:
			leaders.blocked = true
			leaders.by = append(leaders.by, leader)
		case s.leaders[key][leader]:
		default:
			failing, withheld := leaders.fail(e.desired), leaders.keep(e.withheld[key])
			if failing || withheld {
				leaders.by = append(leaders.by, leader)
			}
		}
	}
	leaders.unsure = leaders.unsure && present == 0
	leaders.clusters = slices.Sorted(maps.Keys(clusters))
	slices.SortFunc(leaders.by, compareKeys)
	return leaders
}

// fail adds the clusters for which the desired state of a leader failed, and reports whether
// there are any.
func (l *followed) fail(p *desiredState) (some bool) {
	var clusters []string
	for name, t := range p.targets {
		if t.err != nil || p.governed.keeps(name) {
			clusters = append(clusters, name)
		}
	}
	return l.keep(clusters)
}

// keep adds clusters that the key does not lose, and reports whether there are any.
func (l *followed) keep(clusters []string) (some bool) {
	for _, name := range clusters {
		if l.failing == nil {
			l.failing = map[string]bool{}
		}
		l.failing[name] = true
	}
	return len(clusters) > 0
}

// dismiss records that the leader is not there. It returns what travelled with it.
func (s *state) dismiss(leader Key) (followers []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range s.objects {
		if slices.Contains(e.previous.follows, leader) {
			followers = append(followers, key)
		}
	}
	if _, departed := s.gone.byKey[leader]; !departed && len(followers) > 0 {
		s.gone.add(leader, departure{})
	}
	return followers
}

// follows reports whether the key travels with another.
func (s *state) follows(key Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.leaders[key]) > 0
}

func compareKeys(a, b Key) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func (s *state) index(key Key, e *objectState, names []tree.Policy) {
	for _, ref := range e.names {
		delete(s.users[ref], key)
		if len(s.users[ref]) == 0 {
			delete(s.users, ref)
		}
	}
	e.names = names
	for _, ref := range names {
		if s.users[ref] == nil {
			s.users[ref] = map[Key]bool{}
		}
		s.users[ref][key] = true
	}
}

// usersOf returns the objects that name a policy.
func (s *state) usersOf(ref tree.Policy) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.users[ref]))
}

// count returns how many objects name a policy.
func (s *state) count(ref tree.Policy) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.users[ref])
}

// decisions is how many decisions were made, or forgotten.
func (s *state) decisions() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq
}

// desired returns the desired state of the key, or nil.
func (s *state) desired(key Key) *desiredState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.objects[key]; e != nil {
		return e.desired
	}
	return nil
}

// clusterStatus returns what came of the desired states on the cluster so far.
func (s *state) clusterStatus(key Key, cluster string) (clusterStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return clusterStatus{}, false
	}
	r, ok := e.statuses[cluster]
	return r, ok
}

// concerns reports whether the cluster has, or may have, a copy.
func (s *state) concerns(key Key, cluster string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return false
	}
	_, has := e.statuses[cluster]
	_, placed := find(e.previous.placed, cluster)
	return has || placed
}

// find returns where the cluster is among targets, which are sorted.
func find(targets []placement.Target, cluster string) (int, bool) {
	return slices.BinarySearchFunc(targets, cluster, func(t placement.Target, name string) int { return strings.Compare(t.Cluster, name) })
}

// without returns the targets but for the cluster. What it is given stays as it is.
func without(targets []placement.Target, cluster string) []placement.Target {
	at, ok := find(targets, cluster)
	if !ok {
		return targets
	}
	return slices.Delete(slices.Clone(targets), at, at+1)
}

// report records what came of the desired state on the cluster. It returns whether all
// clusters have reported on the newest desired state, and whether a report is due already
// that will say so, soon enough.
func (s *state) report(key Key, cluster string, r clusterStatus) (settled, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return false, true
	}
	target := e.desired.targets[cluster] != nil
	waited := !e.nearlySettled()
	if before := e.statuses[cluster]; target {
		e.add(&before, -1)
	}
	_, reported := e.statuses[cluster]
	if r.absent {
		delete(e.statuses, cluster)
		r = clusterStatus{}
		if !target {
			e.previous.placed = without(e.previous.placed, cluster)
		}
	} else {
		if now := e.statuses[cluster]; now.hash == r.hash {
			r.readySince = now.readySince // It may have been seen while the applier was at work.
		}
		e.statuses[cluster] = r
	}
	if _, reports := e.statuses[cluster]; reports != reported {
		s.copies.change(key.Namespace, cluster, target, reports)
	}
	if target {
		e.add(&r, 1)
	}
	if e.behind == 0 {
		s.dropBodies(e)
	}
	due = e.due && (!waited || e.settled() || !e.nearlySettled())
	e.due = true
	return e.settled(), due
}

// snapshot returns the desired state and the statuses of the key, and the clusters that have,
// or may have, a copy.
func (s *state) snapshot(key Key) (p *desiredState, statuses map[string]clusterStatus, was previous, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return nil, nil, previous{}, false
	}
	e.due = false
	was = e.previous
	was.warned = e.warned
	return e.desired, maps.Clone(e.statuses), was, true
}

// emptied returns since when nothing is left of an object that is gone.
func (s *state) emptied(key Key, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return now
	}
	if e.emptied.IsZero() {
		e.emptied = now
	}
	return e.emptied
}

// learn takes up what another replica wrote about the clusters that it writes to.
func (s *state) learn(key Key, statuses []refractv1alpha1.ClusterStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return
	}
	there := map[string]bool{}
	for i := range statuses {
		status := statuses[i]
		there[status.Name] = true
		if s.owns(status.Name) {
			continue
		}
		r := reported(&status)
		r.foreign = &status
		s.credit(key, e, &r)
		if _, reported := e.statuses[status.Name]; !reported {
			s.copies.change(key.Namespace, status.Name, e.desired.targets[status.Name] != nil, true)
		}
		e.statuses[status.Name] = r
	}
	for name := range e.statuses {
		if !there[name] && !s.owns(name) {
			delete(e.statuses, name)
			s.copies.change(key.Namespace, name, e.desired.targets[name] != nil, false)
			if e.desired.targets[name] == nil {
				e.previous.placed = without(e.previous.placed, name)
			}
		}
	}
	if e.desired.gone {
		e.previous.placed = slices.DeleteFunc(slices.Clone(e.previous.placed), func(t placement.Target) bool {
			return !s.owns(t.Cluster) && !there[t.Cluster]
		})
	}
	e.count(s.owns)
	if e.behind == 0 {
		s.dropBodies(e)
	}
}

// warned records which warnings were reported.
func (s *state) warned(key Key, warnings []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.objects[key]; e != nil {
		e.warned = warnings
	}
}

// correct records for an announcement what was corrected.
func (s *state) correct(key Key, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const most = 3 // More say nothing new before the next report.
	if e := s.objects[key]; e != nil && len(e.corrected) < most {
		e.corrected = append(e.corrected, text)
	}
}

// corrections returns what was corrected since it was last called.
func (s *state) corrections(key Key) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return nil
	}
	texts := e.corrected
	e.corrected = nil
	return texts
}

// policiesOf returns the policies that the object names.
func (s *state) policiesOf(key Key) []tree.Policy {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.objects[key]; e != nil {
		return e.names
	}
	return nil
}

// leave forgets the cluster, which is no member any more.
func (s *state) leave(cluster string) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []Key
	for key, e := range s.objects {
		_, reported := e.statuses[cluster]
		_, placed := find(e.previous.placed, cluster)
		if !reported && !placed {
			continue
		}
		if reported {
			s.copies.change(key.Namespace, cluster, e.desired.targets[cluster] != nil, false)
		}
		delete(e.statuses, cluster)
		e.previous.placed = without(e.previous.placed, cluster)
		e.count(s.owns)
		keys = append(keys, key)
	}
	return keys
}

// forget drops the key when the desired state is still p. It returns what travelled with it.
func (s *state) forget(key Key, p *desiredState) (followers []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil || e.desired != p {
		return nil
	}
	s.seq++
	s.dropBodies(e)
	s.copies.retarget(key.Namespace, e, nil)
	s.copies.add(key.Namespace, e.statuses, copyCount{reported: -1})
	followers = append(s.setFollowers(key, e, nil), s.setScaled(key, e, &desiredState{})...)
	s.index(key, e, nil)
	delete(s.objects, key)
	delete(s.bare, key)
	if s.nothing != nil {
		s.nothing[key] = true // Its record may stay for a while, or for as long as somebody else's finalizer.
	}
	return followers
}

// keys returns all keys.
func (s *state) keys() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.objects))
}

// unknown is about how many of the keys nothing was decided so far, not even that there is
// nothing to decide.
func (s *state) unknown(keys []Key) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if s.objects[key] == nil && !s.nothing[key] {
			n++
		}
	}
	return n
}

// on returns the keys that have, or may have, or should have a copy on the cluster.
func (s *state) on(cluster string) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []Key
	for key, e := range s.objects {
		_, reported := e.statuses[cluster]
		if reported || e.desired.targets[cluster] != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// holds is how many keys have a copy on the cluster, as far as is known, by namespace.
func (s *state) holds(cluster string) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for namespace, c := range s.copies[cluster] {
		if c.reported > 0 {
			n[namespace] = c.reported
		}
	}
	return n
}

// deleted reports whether somebody deleted the objects of all of these keys by calls,
// of which there is one at least.
func (s *state) deleted(keys []Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		e, departed := s.objects[key], s.gone.byKey[key]
		asked := departed.asked
		if e != nil {
			asked = e.desired.gone && e.desired.cause.asked()
		}
		if !asked {
			return false
		}
	}
	return len(keys) > 0
}

// needs reports whether a copy in the namespace is, or is to be, on the cluster.
func (s *state) needs(cluster, namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copies[cluster][namespace] != (copyCount{})
}

// copyCounts counts the copies that clusters have, or are to have, by cluster and namespace,
// so that nobody has to look at all objects for that.
type copyCounts map[string]map[string]copyCount

// copyCount is how many copies of a namespace a cluster reports, and how many more it is to have.
type copyCount struct{ reported, missing int }

// add counts a copy on each of the clusters.
func (c copyCounts) add(namespace string, on map[string]clusterStatus, n copyCount) {
	for name := range on {
		c.count(namespace, name, n)
	}
}

// retarget counts that an object of the namespace is to have copies on other clusters.
func (c copyCounts) retarget(namespace string, e *objectState, targets map[string]*target) {
	var before map[string]*target
	if e.desired != nil {
		before = e.desired.targets
	}
	for name := range before {
		if _, reported := e.statuses[name]; !reported && targets[name] == nil {
			c.count(namespace, name, copyCount{missing: -1})
		}
	}
	for name := range targets {
		if _, reported := e.statuses[name]; !reported && before[name] == nil {
			c.count(namespace, name, copyCount{missing: 1})
		}
	}
}

// change counts a copy that a cluster reports now, or does not any more; target is whether
// it is to have one.
func (c copyCounts) change(namespace, cluster string, target, reports bool) {
	by, missing := 1, 0
	if target {
		missing = -1
	}
	if !reports {
		by, missing = -by, -missing
	}
	c.count(namespace, cluster, copyCount{reported: by, missing: missing})
}

func (c copyCounts) count(namespace, cluster string, by copyCount) {
	n := c[cluster][namespace]
	n.reported += by.reported
	n.missing += by.missing
	if n != (copyCount{}) {
		if c[cluster] == nil {
			c[cluster] = map[string]copyCount{}
		}
		c[cluster][namespace] = n
		return
	}
	delete(c[cluster], namespace)
	if len(c[cluster]) == 0 {
		delete(c, cluster)
	}
}

// usage is how it stands with the users of a policy.
type usage struct {
	users    []Key
	clusters map[string]bool // On which they are.
	// behind is how many are not, or not everywhere, as this generation says; first
	// is one of them.
	behind int
	first  Key
	// held is how many wait for the approval of their placement; waiting is the first of them, and waits what it
	// waits for.
	held    int
	waiting Key
	waits   *heldPlacement
	// asked is how many wait, by the token that approves the change for all of them; open is the question that
	// others may come to.
	asked map[string]int64
	open  asking
}

// usage looks at the users of the policy at this generation.
func (s *state) usage(ref tree.Policy, generation int64) usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := usage{clusters: map[string]bool{}, asked: map[string]int64{}, open: s.asking[ref]}
	for key := range s.users[ref] {
		e := s.objects[key]
		u.users = append(u.users, key)
		if h := e.desired.held; h != nil && e.desired.uses(ref, generation) {
			if u.held == 0 || compareKeys(key, u.waiting) < 0 {
				u.waiting, u.waits = key, h
			}
			u.held++
			if token := h.asked.Shared; token != "" && policyOf(e.desired) == ref {
				u.asked[token]++
			}
		}
		inEffect := e.desired.blocked == "" && e.desired.held == nil && e.wrong == 0 && e.desired.uses(ref, generation) && e.desired.governed.settled()
		for i := range e.desired.placed {
			u.clusters[e.desired.placed[i].Cluster] = true
		}
		if !inEffect {
			if u.behind == 0 || compareKeys(key, u.first) < 0 {
				u.first = key
			}
			u.behind++
		}
	}
	return u
}
