package member

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/rest"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/match"
	"refract.dev/placement"
)

// Set are the members that are joined now. It is safe for many goroutines. The
// two functions must be set before first use and must not block.
type Set struct {
	// OnCopy is called when a copy on a member appeared, changed or went away.
	OnCopy func(m *Member, key Key)
	// OnChange is called when a cluster came or went, was reached or lost, or its
	// labels or taints changed.
	OnChange func(name string)

	mu       sync.Mutex
	members  map[string]*joined
	clusters atomic.Pointer[[]placement.Cluster]
}

type joined struct {
	examined bool    // Whether it was looked at.
	member   *Member // Nil while the credentials do not suffice to make one.
	config   *rest.Config
	view     placement.Cluster
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
func (s *Set) introduce(fc *corev1alpha1.FederatedCluster) { s.look(fc, false, true) }

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

// twin returns the name of another member that is the same cluster, or "".
func (s *Set) twin(m *Member) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, j := range s.members {
		if j.member != nil && j.member != m && name != m.Name && j.member.identity() == m.identity() && j.member.Ready() {
			return name
		}
	}
	return ""
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

// Clusters returns how the clusters look to placement, by name. The slice is
// shared and must not be modified.
func (s *Set) Clusters() []placement.Cluster {
	if p := s.clusters.Load(); p != nil {
		return *p
	}
	return nil
}

// connect returns the member that the configuration leads to: the one that is
// there if it has the same, else a new one in its place.
func (s *Set) connect(name string, cfg *rest.Config) (*Member, error) {
	s.mu.Lock()
	if j := s.members[name]; j != nil && j.member != nil && sameConfig(j.config, cfg) {
		s.mu.Unlock()
		return j.member, nil
	}
	s.mu.Unlock()
	var m *Member
	m, err := newMember(name, cfg, func(key Key) { s.OnCopy(m, key) })
	if err != nil {
		return nil, err
	}
	s.replace(name, &joined{member: m, config: cfg})
	return m, nil
}

// observe records how the cluster looks now.
func (s *Set) observe(fc *corev1alpha1.FederatedCluster, ready bool) { s.look(fc, ready, false) }

// look records how the cluster looks, unless it is known and only a first look is
// asked for.
func (s *Set) look(fc *corev1alpha1.FederatedCluster, ready, first bool) {
	view := placement.Cluster{
		Cluster: match.Cluster{Name: fc.Name, Labels: maps.Clone(fc.Labels)},
		Taints:  slices.Clone(fc.Spec.Taints),
		Ready:   ready,
	}
	s.mu.Lock()
	if s.members == nil {
		s.members = map[string]*joined{}
	}
	j := s.members[fc.Name]
	if j != nil && first {
		s.mu.Unlock()
		return
	}
	if j == nil {
		j = &joined{}
		s.members[fc.Name] = j
	}
	changed := j.view.Name == "" || j.view.Ready != ready || !maps.Equal(j.view.Labels, view.Labels) || !equality.Semantic.DeepEqual(j.view.Taints, view.Taints)
	j.view = view
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

// replace puts j, or nothing, in the place of what is there under the name.
func (s *Set) replace(name string, j *joined) {
	s.mu.Lock()
	if s.members == nil {
		s.members = map[string]*joined{}
	}
	before := s.members[name]
	if j == nil {
		delete(s.members, name)
	} else {
		if before != nil {
			j.view, j.examined = before.view, before.examined
			j.view.Ready = false
		}
		s.members[name] = j
	}
	s.publish()
	s.mu.Unlock()
	if before != nil && before.member != nil {
		before.member.close()
	}
	if before != nil || j == nil {
		s.OnChange(name)
	}
}

func (s *Set) publish() {
	clusters := make([]placement.Cluster, 0, len(s.members))
	for _, j := range s.members {
		if j.view.Name != "" {
			clusters = append(clusters, j.view)
		}
	}
	slices.SortFunc(clusters, func(a, b placement.Cluster) int { return strings.Compare(a.Name, b.Name) })
	s.clusters.Store(&clusters)
}

// Close ends the watches of all members and waits for them.
func (s *Set) Close() {
	for _, m := range s.All() {
		m.close()
	}
}

// sameConfig compares what [Config] fills in.
func sameConfig(a, b *rest.Config) bool {
	return a.Host == b.Host && a.BearerToken == b.BearerToken && a.Username == b.Username && a.Password == b.Password &&
		a.Insecure == b.Insecure && a.ServerName == b.ServerName &&
		string(a.CAData) == string(b.CAData) && string(a.CertData) == string(b.CertData) && string(a.KeyData) == string(b.KeyData)
}
