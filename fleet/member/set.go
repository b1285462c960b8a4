package member

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/event"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/placement"
	"refract.dev/internal/fair"
)

// Set has the current members. It is safe for concurrent use. Its functions must be set before the first use. OnCopy
// and OnChange are required. Only Served and OnRename may block.
type Set struct {
	// OnCopy is called when a copy on a member has appeared, changed or disappeared.
	OnCopy func(m *Member, key Key)
	// OnReadiness is called when the readiness of a copy, or its message, changed.
	OnReadiness func(m *Member, key Key)
	// OnListed is called when a list of the copies of a type, or of [AllTypes], ends. Known is false if the copies stay
	// [Unlisted]; then [Copies.ListError] may have the reason.
	OnListed func(m *Member, of schema.GroupResource, known bool)
	// Health returns a criterion for the readiness of a copy in addition to its status; nil for no criterion. A nil
	// Health means that no copy has a criterion. When the criterion of a known copy changes, [Copies.Judge] must be
	// called.
	Health func(m *Member, key Key) *Health
	// OnChange is called when a cluster joins, begins to leave or has left, becomes ready or not ready, when its labels
	// or taints change, and when deletions on it are approved.
	OnChange func(name string)
	// Ours reports whether a copy must be deleted before its cluster may leave. Nil means all copies.
	Ours func(key Key, c Copy) bool
	// Emptied reports whether no work is left on a leaving cluster. It is called when the member has no copies.
	Emptied func(name string) bool
	// OnRename is called when the served name of a cluster has changed, after all work under the former name has ended.
	// From then on, the new name has the data of the former one. OnRename may block.
	OnRename func(from, to string)
	// Moved reports whether the rows of all Propagations have the new name instead of the replaced one.
	Moved func(name string) bool
	// Served waits until the types of the hub are known. It returns a function that reports whether the hub has a type,
	// and the version that the hub prefers. Nil means that the hub has all types of all members.
	Served func(ctx context.Context) (hub func(schema.GroupResource) (version string, has bool), err error)
	// Log is the logger for answers that Refract cannot handle.
	Log logr.Logger
	// Transport makes the requests to members; nil for separate connections to each.
	Transport http.RoundTripper

	mu       sync.Mutex
	members  map[string]*joined
	clusters atomic.Pointer[[]placement.Cluster]
	older    atomic.Pointer[map[schema.GroupResource]map[string][]string]
	owed     map[Key]map[string]corev1alpha1.PendingDeletion // By cluster.
	again    chan event.GenericEvent                         // Clusters that must be reconciled without delay.
	sweeps   sweeper
	turns    *fair.Places // The turns of lists; nil before the first member.
	names    names
}

type joined struct {
	examined bool    // Whether it was reconciled.
	edition  edition // Of its FederatedCluster.
	member   *Member // Nil while the credentials are not sufficient for a connection, and while this process does not lead.
	config   *rest.Config
	view     placement.Cluster
	leaving  bool
	hidden   bool // Whether the cluster gets no placements: another name is served, or the cluster is not identified yet.
	approved string
	held     *corev1alpha1.DeletionsHeld       // From the status.
	older    map[schema.GroupResource][]string // See [Set.Older].
	owed     []corev1alpha1.PendingDeletion    // See [Set.Owed].
	releases bool
	waiting  time.Time // When it began to wait for other names; zero if it does not wait.
	waitsAs  types.UID // The UID of its cluster at that time.
}

// edition identifies a version of the settings in a FederatedCluster, without its labels.
type edition struct {
	uid        types.UID
	generation int64
	deleted    bool
	replaces   string
}

func editionOf(fc metav1.Object) edition {
	return edition{fc.GetUID(), fc.GetGeneration(), fc.GetDeletionTimestamp() != nil, fc.GetAnnotations()[refractv1alpha1.ReplacesAnnotation]}
}

// Same reports whether the FederatedClusters of the hub are exactly those that were last reconciled, with the same
// editions and labels. Hub has all FederatedClusters of the hub.
func (s *Set) Same(hub []metav1.PartialObjectMetadata) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(hub) == len(s.members) && !slices.ContainsFunc(hub, func(fc metav1.PartialObjectMetadata) bool {
		j := s.members[fc.Name]
		return j == nil || j.edition != editionOf(&fc) || !maps.Equal(j.view.Labels, fc.Labels)
	})
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

// introduce makes a cluster known before it is examined, as not ready.
func (s *Set) introduce(fc *corev1alpha1.FederatedCluster) {
	s.look(fc, outlook{hidden: unserved(fc)}, true)
}

// examined reports whether the cluster was reconciled, or is no longer known.
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

// All returns the connected members, sorted by name.
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

// Names returns the names of all clusters of the hub, sorted, including leaving ones.
func (s *Set) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.members))
}

// renew connects to the member again, because the known data about it is no longer valid.
func (s *Set) renew(m *Member) {
	s.mu.Lock()
	if j := s.members[m.Name]; j != nil && j.member == m {
		j.config = nil
	}
	s.mu.Unlock()
	s.Recheck(m.Name)
}

// doubt triggers an immediate identification of a member, because another name at its address was identified as the
// cluster with the UID rival. It does this once for each rival.
func (s *Set) doubt(name string, rival types.UID) {
	if m := s.Get(name); m != nil && m.identity.doubt(rival) {
		s.Recheck(name)
	}
}

// Clusters returns the clusters for placement, sorted by name, without leaving, hidden and replaced ones. The slice is
// shared and must not be modified.
func (s *Set) Clusters() []placement.Cluster {
	if p := s.clusters.Load(); p != nil {
		return *p
	}
	return nil
}

// Older returns the served versions of a type, by cluster, for the clusters that do not serve it in the version that
// the hub prefers. The data comes from the status of the clusters, so that all replicas have it, even after a restart.
// The result is shared and must not be modified.
func (s *Set) Older(resource schema.GroupResource) map[string][]string {
	if p := s.older.Load(); p != nil {
		return (*p)[resource]
	}
	return nil
}

// Leaving reports whether the cluster is leaving: it gets no placements, and its FederatedCluster is kept until its
// copies are gone.
func (s *Set) Leaving(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.members[name]
	return j != nil && j.leaving
}

// Approved returns the token of the last approval of deletions on the cluster; "" if it has no approval.
func (s *Set) Approved(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.members[name]; j != nil {
		return j.approved
	}
	return ""
}

// Held returns the deletions on the cluster that wait for approval, according to its status. The result must not be
// modified.
func (s *Set) Held(name string) *corev1alpha1.DeletionsHeld {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.members[name]; j != nil {
		return j.held
	}
	return nil
}

// ReleasesKept reports whether the cluster keeps the copies that hold data when it leaves: see
// [refractv1alpha1.ReleaseKeptAnnotation].
func (s *Set) ReleasesKept(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.members[name]
	return j != nil && j.releases
}

// Recheck triggers a reconciliation of a cluster without delay.
func (s *Set) Recheck(name string) {
	fc := &corev1alpha1.FederatedCluster{}
	fc.Name = name
	select {
	case s.rechecks() <- event.GenericEvent{Object: fc}:
	default: // The channel is full: the regular reconciliation comes sooner.
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

// Disown ends all work on a cluster, and waits for the end of the last request. The cluster stays known. Before the
// call, [Reconciler.Leads] must return false, or another name must be served. Until this changes, no copies are written
// under the name again. The caller must not hold a lock that OnCopy, OnListed or OnReadiness wait for.
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

// connect returns the member for a configuration: the existing one if its configuration is the same, otherwise a new
// one that replaces it. The error is [errLeft] if this process does not lead any more.
func (s *Set) connect(name string, cfg *rest.Config, leads func() bool) (*Member, error) {
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
	cfg.Transport = s.Transport
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
	if !s.replace(name, &joined{member: m, config: cfg}, leads) {
		m.close()
		return nil, errLeft
	}
	return m, nil
}

// outlook is the state of a cluster beyond its FederatedCluster.
type outlook struct {
	ready  bool
	hidden bool // See [joined].
	stays  bool // Whether it does not leave yet, although its FederatedCluster is being deleted.
}

// observe records the current state of the cluster.
func (s *Set) observe(fc *corev1alpha1.FederatedCluster, is outlook) { s.look(fc, is, false) }

// look records the current state of the cluster. If first is set, it records only clusters that are not known yet. For
// a known cluster without a connection, it then updates only the deletions that the status lists.
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
	if j != nil && first {
		if j.member == nil { // This process may have missed changes of the status while it did not lead.
			j.held = after.held
			s.setOwed(fc.Name, j, fc.Status.PendingDeletions)
		}
		s.mu.Unlock()
		return
	}
	if j == nil {
		j = &joined{}
		s.members[fc.Name] = j
	}
	if !first || j.edition == (edition{}) {
		j.edition = editionOf(fc)
	}
	changed := !j.looksLike(&after)
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

// replace stores j as the entry of this name, or removes the entry if j is nil. It returns false if it did nothing,
// because a process that does not lead adds no member.
func (s *Set) replace(name string, j *joined, leads func() bool) bool {
	s.mu.Lock()
	if j != nil && !leads() {
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
			j.waiting, j.waitsAs, j.edition = before.waiting, before.waitsAs, before.edition
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

// remaining returns the number of copies that must be deleted before the member may leave, and whether all of them are
// known. Going are the copies that the member is deleting already.
func (s *Set) remaining(m *Member) (left int, going []Key, known bool) {
	before := m.Copies.complete() // Read first: a type whose watch begins meanwhile may have copies that are not counted below.
	m.Copies.Each(func(key Key, c Copy) bool {
		if s.Ours == nil || s.Ours(key, c) {
			left++
			if c.Deleting {
				going = append(going, key)
			}
		}
		return true
	})
	return left, going, before && m.Copies.complete()
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
		closing.Go(m.close) // In parallel, because each waits for its requests.
	}
	closing.Wait()
	s.sweeps.close()
}

// sameConfig compares the settings that [Config] sets. The tokens may differ, because an account gets new ones.
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
	u, err := cfg.Proxy(nil) // All requests have the same proxy.
	if err != nil || u == nil {
		return ""
	}
	return u.String()
}
