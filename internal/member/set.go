package member

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/event"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/fair"
	"refract.dev/match"
	"refract.dev/placement"
)

// Set are the members that are joined now. It is safe for many goroutines. The
// functions must be set before first use and, but for Served, must not block; all but OnCopy
// and OnChange may be nil.
type Set struct {
	// OnCopy is called when a copy on a member appeared, changed or went away.
	OnCopy func(m *Member, key Key)
	// OnReadiness is called when the readiness of a copy, or its message, changed.
	OnReadiness func(m *Member, key Key)
	// OnListed is called when copies of a type, or of [AllTypes], that were [Unlisted] may not be so any more. If known is false there may
	// be an error that says why they are.
	OnListed func(m *Member, of schema.GroupResource, known bool)
	// Health returns what is asked of a copy beside what its status says; nil for nothing. Nil
	// means that nothing is asked of any. What was asked of a copy before it is asked anew is asked
	// by [Copies.Judge].
	Health func(m *Member, key Key) *Health
	// OnChange is called when a cluster came or went, was reached or lost, when its
	// labels or taints changed, when it is to leave, and when deletions on it were approved.
	OnChange func(name string)
	// Ours reports whether a copy is one that has to be gone before its cluster may
	// leave. Nil means that all have to.
	Ours func(key Key, c Copy) bool
	// Emptied reports whether nothing is left to do on a cluster that leaves. It is
	// asked when the member has no copies.
	Emptied func(name string) bool
	// OnRename is called when a cluster is served under another name than before; what is known of it under the first name is
	// true of the other one now. All work on it under the first name has ended. It may block.
	OnRename func(from, to string)
	// Moved reports whether no Propagation has a row of the name any more, which another has taken the place of.
	Moved func(name string) bool
	// Served waits until it is known which types the hub has, and returns what says so, and which version of
	// each the hub prefers. Nil means that it has all that any member has.
	Served func(ctx context.Context) (hub func(schema.GroupResource) (version string, has bool), err error)
	// Log is told of answers that Refract stumbles over.
	Log logr.Logger

	mu       sync.Mutex
	members  map[string]*joined
	clusters atomic.Pointer[[]placement.Cluster]
	older    atomic.Pointer[map[schema.GroupResource]map[string][]string]
	owed     map[Key]map[string]corev1alpha1.PendingDeletion // By cluster.
	again    chan event.GenericEvent                         // Clusters to look at without delay.
	sweeps   sweeper
	turns    *fair.Places // Of lists; nil before the first member.
	names    names
}

type joined struct {
	examined bool    // Whether it was looked at.
	member   *Member // Nil while the credentials do not suffice to make one, and for a cluster that is not owned.
	config   *rest.Config
	view     placement.Cluster
	leaving  bool
	hidden   bool // Whether nothing is placed on it, as it is another name of a cluster.
	approved string
	held     *corev1alpha1.DeletionsHeld       // As it is reported.
	older    map[schema.GroupResource][]string // See [Set.Older].
	owed     []corev1alpha1.PendingDeletion    // See [Set.Owed].
	releases bool
	waiting  time.Time // Since when it waits for older names; the zero time if it does not.
}

// Get returns the member of this name, or nil.
func (s *Set) Get(name string) *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.members[name]; j != nil {
		return j.member
	}
	return nil
}

// Known reports whether the hub has a cluster of this name, connected or not.
func (s *Set) Known(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[name] != nil
}

// introduce makes a cluster known, as not ready, before it was looked at.
func (s *Set) introduce(fc *corev1alpha1.FederatedCluster) {
	s.look(fc, outlook{hidden: unserved(fc)}, true)
}

// examined reports whether the cluster was looked at, or is not known any more.
func (s *Set) examined(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[name] == nil || s.members[name].examined
}

func (s *Set) markExamined(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.members[name]; j != nil {
		j.examined = true
	}
}

// All returns the members, by name.
func (s *Set) All() []*Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Member
	for _, name := range slices.Sorted(maps.Keys(s.members)) {
		if m := s.members[name].member; m != nil {
			all = append(all, m)
		}
	}
	return all
}

// Names returns the names of all clusters of the hub, sorted, those that leave
// included.
func (s *Set) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.members))
}

// renew has the member connected to anew: nothing that was known of it holds any
// more.
func (s *Set) renew(m *Member) {
	s.mu.Lock()
	if j := s.members[m.Name]; j != nil && j.member == m {
		j.config = nil
	}
	s.mu.Unlock()
	s.Recheck(m.Name)
}

// Clusters returns how the clusters look to placement, by name, without those that
// leave. The slice is shared and must not be modified.
func (s *Set) Clusters() []placement.Cluster {
	if p := s.clusters.Load(); p != nil {
		return *p
	}
	return nil
}

// Older returns the versions in which clusters serve a type that they do not serve in the version that the hub prefers, by cluster. The status
// of a cluster says it, so that all replicas know it, also after a restart. The result is shared and must not be modified.
func (s *Set) Older(resource schema.GroupResource) map[string][]string {
	if p := s.older.Load(); p != nil {
		return (*p)[resource]
	}
	return nil
}

// Leaving reports whether the cluster is to leave: nothing may be placed on it,
// and it is kept until its copies are gone.
func (s *Set) Leaving(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.members[name]
	return j != nil && j.leaving
}

// Approved returns the token by which somebody approved deletions on the cluster
// last; "" if nobody did.
func (s *Set) Approved(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.members[name]; j != nil {
		return j.approved
	}
	return ""
}

// Held returns the deletions on the cluster that wait for approval, as its status says; it is not to be modified.
func (s *Set) Held(name string) *corev1alpha1.DeletionsHeld {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.members[name]; j != nil {
		return j.held
	}
	return nil
}

// ReleasesKept reports whether the cluster, if it leaves, gets the copies that hold data: see
// [refractv1alpha1.ReleaseKeptAnnotation].
func (s *Set) ReleasesKept(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.members[name]
	return j != nil && j.releases
}

// Recheck has a cluster looked at without delay.
func (s *Set) Recheck(name string) {
	fc := &corev1alpha1.FederatedCluster{}
	fc.Name = name
	select {
	case s.rechecks() <- event.GenericEvent{Object: fc}:
	default: // So many wait that it is looked at sooner by its turn.
	}
}

func (s *Set) rechecks() chan event.GenericEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.again == nil {
		s.again = make(chan event.GenericEvent, 4096)
	}
	return s.again
}

// Disown ends all work on a cluster, which goes on to be known, and returns when
// its last request has ended. [Reconciler.Owns] must say no before, and for as
// long as it does the member does not come back. It must not be called with a lock that
// OnCopy, OnListed or OnReadiness wait for.
func (s *Set) Disown(name string) {
	s.mu.Lock()
	j := s.members[name]
	if j == nil || j.member == nil {
		s.mu.Unlock()
		return
	}
	m := j.member
	j.member, j.config = nil, nil
	s.mu.Unlock()
	m.close()
	forgetMetrics(name)
	s.OnChange(name)
}

// connect returns the member that the configuration leads to: the one that is
// there if it has the same, else a new one in its place. It is an error if the
// cluster is not owned any more.
func (s *Set) connect(name string, cfg *rest.Config, owns func(string) bool) (*Member, error) {
	s.mu.Lock()
	if j := s.members[name]; j != nil && j.member != nil && j.config != nil && sameConfig(j.config, cfg) {
		if j.config.BearerToken != cfg.BearerToken {
			j.member.api.token.set(cfg.BearerToken)
			j.config = cfg
		}
		s.mu.Unlock()
		return j.member, nil
	}
	if s.turns == nil {
		s.turns = newTurns()
	}
	turns := s.turns
	s.mu.Unlock()
	var m *Member
	m, err := newMember(name, cfg, observer{
		changed: func(key Key) { s.OnCopy(m, key) },
		readied: func(key Key) {
			if s.OnReadiness != nil {
				s.OnReadiness(m, key)
			}
		},
		health: func(key Key) *Health {
			if s.Health == nil {
				return nil
			}
			return s.Health(m, key)
		},
		awaited:  func() { s.sweeps.add(m.sweep, true) },
		versions: func() { s.Recheck(name) },
		listed: func(of schema.GroupResource, known bool) {
			if s.OnListed != nil {
				s.OnListed(m, of, known)
			}
		},
		turns: turns,
	}, s.Served, s.Log.WithValues("cluster", name))
	if err != nil {
		return nil, err
	}
	if !s.replace(name, &joined{member: m, config: cfg}, owns) {
		m.close()
		return nil, errLeft
	}
	return m, nil
}

// outlook is what is known of a cluster beside what its FederatedCluster says.
type outlook struct {
	ready  bool
	hidden bool // See [joined].
	stays  bool // Whether it does not leave yet, though its FederatedCluster is deleted.
}

// observe records how the cluster looks now.
func (s *Set) observe(fc *corev1alpha1.FederatedCluster, is outlook) { s.look(fc, is, false) }

// look records how the cluster looks, unless it is known and only a first look is
// asked for.
func (s *Set) look(fc *corev1alpha1.FederatedCluster, is outlook, first bool) {
	ready := is.ready
	after := joined{
		view: placement.Cluster{
			Cluster: match.Cluster{Name: fc.Name, Labels: maps.Clone(fc.Labels)},
			Taints:  slices.Clone(fc.Spec.Taints),
			Ready:   ready,
		},
		leaving:  !fc.DeletionTimestamp.IsZero() && !is.stays,
		hidden:   is.hidden,
		approved: fc.Annotations[refractv1alpha1.ApproveAnnotation],
		held:     fc.Status.DeletionsHeld.DeepCopy(),
		older:    olderIn(&fc.Status),
		releases: fc.Annotations[refractv1alpha1.ReleaseKeptAnnotation] == "true",
	}
	s.mu.Lock()
	if s.members == nil {
		s.members = map[string]*joined{}
	}
	j := s.members[fc.Name]
	if j == nil {
		s.names.appear(fc.Name)
	}
	assigned := s.names.assign(fc.Name, shardOf(fc))
	if j != nil && first && !assigned {
		s.mu.Unlock()
		return
	}
	if j == nil {
		j = &joined{}
		s.members[fc.Name] = j
	}
	if first && assigned {
		after.view.Ready, after.leaving, after.hidden = j.view.Ready, j.leaving, j.hidden
	}
	changed := assigned || !j.looksLike(&after)
	j.view, j.leaving, j.hidden, j.approved = after.view, after.leaving, after.hidden, after.approved
	j.held, j.releases, j.older = after.held, after.releases, after.older
	s.setOwed(fc.Name, j, fc.Status.PendingDeletions)
	if j.member != nil {
		j.member.ready.Store(ready)
	}
	if changed {
		s.publish()
	}
	s.mu.Unlock()
	if changed {
		s.OnChange(fc.Name)
	}
}

func (j *joined) looksLike(o *joined) bool {
	return j.view.Name == o.view.Name && j.view.Ready == o.view.Ready && j.leaving == o.leaving && j.hidden == o.hidden && j.approved == o.approved &&
		j.releases == o.releases && equality.Semantic.DeepEqual(j.older, o.older) &&
		maps.Equal(j.view.Labels, o.view.Labels) && equality.Semantic.DeepEqual(j.view.Taints, o.view.Taints)
}

// remove forgets a cluster that left.
func (s *Set) remove(name string) { s.replace(name, nil, nil) }

// replace puts j, or nothing, in the place of what is there under the name. It
// reports whether it did: a member has no place unless its cluster is owned.
func (s *Set) replace(name string, j *joined, owns func(string) bool) bool {
	s.mu.Lock()
	if j != nil && !owns(name) {
		s.mu.Unlock()
		return false
	}
	if s.members == nil {
		s.members = map[string]*joined{}
	}
	before := s.members[name]
	if j == nil {
		if before != nil {
			s.setOwed(name, before, nil)
		}
		delete(s.members, name)
	} else {
		if before != nil {
			j.view, j.examined, j.leaving, j.hidden, j.approved = before.view, before.examined, before.leaving, before.hidden, before.approved
			j.waiting = before.waiting
			j.held, j.releases, j.older, j.owed = before.held, before.releases, before.older, before.owed
			j.view.Ready = false
		}
		s.members[name] = j
	}
	s.publish()
	s.mu.Unlock()
	if before != nil && before.member != nil {
		before.member.close()
	}
	if j == nil {
		forgetMetrics(name)
	}
	if before != nil || j == nil {
		s.OnChange(name)
	}
	return true
}

// remaining returns how many copies a member holds that have to be gone before it
// may leave, and whether that is known.
func (s *Set) remaining(m *Member) (left int, known bool) {
	before := m.Copies.complete() // A type that is watched in between has copies that were not counted.
	m.Copies.Each(func(key Key, c Copy) bool {
		if s.Ours == nil || s.Ours(key, c) {
			left++
		}
		return true
	})
	return left, before && m.Copies.complete()
}

func (s *Set) publish() {
	clusters := make([]placement.Cluster, 0, len(s.members))
	older := map[schema.GroupResource]map[string][]string{}
	for name, j := range s.members {
		if j.view.Name != "" && !j.leaving && !j.hidden && s.names.successor(name) == "" {
			clusters = append(clusters, j.view)
		}
		for resource, versions := range j.older {
			if older[resource] == nil {
				older[resource] = map[string][]string{}
			}
			older[resource][name] = versions
		}
	}
	s.older.Store(&older)
	slices.SortFunc(clusters, func(a, b placement.Cluster) int { return strings.Compare(a.Name, b.Name) })
	s.clusters.Store(&clusters)
}

// Close ends the watches of all members and waits for them.
func (s *Set) Close() {
	var closing sync.WaitGroup
	for _, m := range s.All() {
		closing.Go(m.close) // Together: each waits for its requests.
	}
	closing.Wait()
	s.sweeps.close()
}

// sameConfig compares what [Config] fills in. A token may become another, as the next one of an account is.
func sameConfig(a, b *rest.Config) bool {
	return a.Host == b.Host && (a.BearerToken == "") == (b.BearerToken == "") && a.Username == b.Username && a.Password == b.Password &&
		a.Insecure == b.Insecure && a.ServerName == b.ServerName && a.DisableCompression == b.DisableCompression &&
		string(a.CAData) == string(b.CAData) && string(a.CertData) == string(b.CertData) && string(a.KeyData) == string(b.KeyData) &&
		proxyOf(a) == proxyOf(b) && equality.Semantic.DeepEqual(a.Impersonate, b.Impersonate)
}

// proxyOf returns the address of the proxy that a kubeconfig names; "" if it names none.
func proxyOf(cfg *rest.Config) string {
	if cfg.Proxy == nil {
		return ""
	}
	u, err := cfg.Proxy(nil) // It is the same for all requests.
	if err != nil || u == nil {
		return ""
	}
	return u.String()
}
