package ui

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
	"refract.dev/internal/status"
	"refract.dev/release"
	"refract.dev/tree"
)

// state is how it stands with a copy.
type state uint8

// What a cell of the fleet says.
const (
	absent   state = iota // It does not belong there, and is not there.
	right                 // It is as it should be, or would be, if nobody knows.
	waits                 // It is being written, or is not ready yet.
	failed                // It could not be made or written, or cannot become ready.
	drifted               // Somebody has changed it there.
	offline               // The cluster cannot be reached.
	later                 // It keeps what it has until the turn of its cluster comes.
	deleting              // It is to go.
	held                  // The change of its object waits for something, as for an approval.
	halted                // The change of its object has failed, and goes no further.
	reverted              // The change of its object has failed, and was taken back.
	states
)

// stateNames are how states are called in addresses and in words.
var stateNames = [states]struct{ name, glyph, words string }{
	absent:   {"absent", "", "not there"},
	right:    {"right", "✔", "as it should be"},
	waits:    {"waits", "…", "waits"},
	failed:   {"failed", "✗", "failed"},
	drifted:  {"drifted", "≠", "changed on the cluster"},
	offline:  {"offline", "⌀", "cannot be reached"},
	later:    {"later", "◷", "its wave is to come"},
	deleting: {"deleting", "−", "is to go"},
	held:     {"held", "!", "the change waits"},
	halted:   {"halted", "■", "the change was halted"},
	reverted: {"reverted", "↺", "the change was reverted"},
}

func (s state) Name() string  { return stateNames[s].name }
func (s state) Glyph() string { return stateNames[s].glyph }
func (s state) Words() string { return stateNames[s].words }

// cell is an object on a cluster.
type cell struct {
	variant uint8 // Index of the content among those of the row, the most frequent first; none if there is nothing.
	state   state
}

// none is the variant of a cell without content, and most the one that stands for all rarer ones.
const (
	none = 255
	most = 254
)

// row is an object.
type row struct {
	outcome  *render.Outcome // Nil for what only a report knows.
	reported *status.Object  // Nil if nothing is reported.
	about    render.Object
	kind     schema.GroupKind
	policies []tree.Policy
	named    []string // The same, as they are written.
	text     string   // What is looked for.
	contents []string // By cluster: what tells those of the row apart; empty for none.
	cells    []cell   // By cluster.
	variants int
}

// matrix is what the fleet looks like: every object on every cluster.
type matrix struct {
	clusters []string
	labels   []labels.Set
	index    map[string]int // Of clusters, by name.
	rows     []*row
	// What can be chosen, sorted.
	namespaces, kinds, policies []string
}

// newMatrix returns what is to be, as the engines have it.
func newMatrix(e *render.Evaluation) *matrix {
	m := &matrix{index: make(map[string]int, len(e.Clusters))}
	for i := range e.Clusters {
		c := &e.Clusters[i]
		m.index[c.Name] = i
		m.clusters = append(m.clusters, c.Name)
		m.labels = append(m.labels, c.Labels)
	}
	for i := range e.Outcomes {
		o := &e.Outcomes[i]
		r := m.newRow(objectOf(o), o.ID.GroupKind)
		r.outcome = o
		if o.Propagation != nil {
			r.policies = append(r.policies, *o.Propagation)
		}
		for _, p := range o.Policies {
			r.policies = append(r.policies, p.Ref)
		}
		for _, ref := range r.policies {
			ref.Generation = 0
			r.named = append(r.named, ref.String())
		}
		r.intended(m.index)
		r.rank()
		m.rows = append(m.rows, r)
	}
	return m
}

func (m *matrix) newRow(about render.Object, kind schema.GroupKind) *row {
	return &row{
		about: about, kind: kind, text: strings.ToLower(about.Kind + " " + about.Namespace + "/" + about.Name),
		contents: make([]string, len(m.clusters)), cells: make([]cell, len(m.clusters)),
	}
}

// with returns the matrix with what reports say that clusters have. It shares the rows on which nothing is reported.
// Where a hub says what is there, what it says nothing of waits.
func (m *matrix) with(statuses []*status.Object, live bool) *matrix {
	is := &matrix{clusters: m.clusters, labels: m.labels, index: m.index}
	reported := make(map[manifest.Identity]*status.Object, len(statuses))
	for _, o := range statuses {
		reported[manifest.Identity{GroupKind: o.GroupKind(), Namespace: o.Namespace, Name: o.Name}] = o
	}
	for _, r := range m.rows {
		report := reported[r.outcome.ID]
		delete(reported, r.outcome.ID)
		switch {
		case report != nil:
			now := *r
			now.contents, now.cells = slices.Clone(r.contents), slices.Clone(r.cells)
			now.unsaid()
			now.report(report, m.index)
			is.rows = append(is.rows, &now)
		case r.outcome.Gone == "" && live:
			now := *r
			now.cells = slices.Clone(r.cells)
			now.unsaid()
			is.rows = append(is.rows, &now)
		case r.outcome.Gone == "":
			is.rows = append(is.rows, r)
		default: // It is nowhere, and asks for nothing.
		}
	}
	for id, o := range reported {
		r := m.newRow(o.Object, id.GroupKind)
		r.report(o, m.index)
		is.rows = append(is.rows, r)
	}
	slices.SortFunc(is.rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.about.Namespace, b.about.Namespace), cmp.Compare(a.about.Kind, b.about.Kind), cmp.Compare(a.about.Name, b.about.Name))
	})
	is.choices()
	return is
}

func objectOf(o *render.Outcome) render.Object {
	c := o.Object.Content
	return render.Object{APIVersion: c.GetAPIVersion(), Kind: c.GetKind(), Namespace: c.GetNamespace(), Name: c.GetName()}
}

// unsaid has what should be there wait until somebody says that it is.
func (r *row) unsaid() {
	for i := range r.cells {
		if r.cells[i].state == right {
			r.cells[i].state = waits
		}
	}
}

// report fills in what is reported.
func (r *row) report(o *status.Object, index map[string]int) {
	r.reported = o
	r.found(index)
	r.rank()
}

// intended fills in what clusters should have.
func (r *row) intended(index map[string]int) {
	groups := r.outcome.Groups()
	for g := range groups {
		for _, c := range groups[g].Clusters {
			at, known := index[r.outcome.Clusters[c].Name]
			if !known {
				continue
			}
			if groups[g].Variant().Err != nil {
				r.cells[at].state = failed
				continue
			}
			r.contents[at] = "variant " + strconv.Itoa(g)
			r.cells[at].state = right
		}
	}
}

// found fills in what clusters have.
func (r *row) found(index map[string]int) {
	s := r.reported.Status
	for i := range s.Clusters {
		c := &s.Clusters[i]
		at, known := index[c.Name]
		if !known {
			continue
		}
		if c.Hash != "" {
			r.contents[at] = c.Hash
		} else if c.State != refractv1alpha1.StateSynced {
			r.contents[at] = ""
		}
		r.cells[at].state = stateOf(c, s)
	}
}

// stateOf says how it stands with a copy. None is as it should be whose object has a change that goes no further.
func stateOf(c *refractv1alpha1.ClusterStatus, s *refractv1alpha1.PropagationStatus) state {
	switch stopped := stoppedBy(s); {
	case c.State == refractv1alpha1.StateFailed, c.Readiness == refractv1alpha1.ReadinessFailed:
		return failed
	case c.State == refractv1alpha1.StateOffline:
		return offline
	case c.State == refractv1alpha1.StateDeleting:
		return deleting
	case c.State == refractv1alpha1.StateDrifted:
		return drifted
	case isLater(s.Rollout, c.Name) && stopped == right:
		return later
	case !isLater(s.Rollout, c.Name) && (c.State != refractv1alpha1.StateSynced || c.Readiness == refractv1alpha1.ReadinessInProgress):
		return waits
	default:
		return stopped
	}
}

// stoppedBy returns why the change of an object goes no further; right if none is stopped.
func stoppedBy(s *refractv1alpha1.PropagationStatus) state {
	phase := refractv1alpha1.RolloutComplete
	if s.Rollout != nil {
		phase = s.Rollout.Phase
	}
	switch phase {
	case refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutReverted:
		return reverted
	case refractv1alpha1.RolloutHalted, refractv1alpha1.RolloutStalled:
		return halted
	case refractv1alpha1.RolloutWaiting:
		return held
	case refractv1alpha1.RolloutProgressing, refractv1alpha1.RolloutComplete:
	}
	if s.Held != nil {
		return held
	}
	return right
}

// isLater reports whether a cluster keeps what it has until its turn comes.
func isLater(s *refractv1alpha1.RolloutStatus, cluster string) bool {
	under := s != nil && s.Phase != refractv1alpha1.RolloutComplete && !release.Stopped(s)
	return under && release.Assigned(s, cluster).Name != s.Target.Name
}

// rank numbers contents, the most frequent first; of those that are as frequent, that of the first cluster.
func (r *row) rank() {
	type content struct{ first, count int }
	known := map[string]*content{}
	for i, c := range r.contents {
		switch {
		case c == "":
		case known[c] == nil:
			known[c] = &content{i, 1}
		default:
			known[c].count++
		}
	}
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(known[b].count, known[a].count), cmp.Compare(known[a].first, known[b].first))
	})
	ranks := make(map[string]uint8, len(names))
	for i, name := range names {
		ranks[name] = uint8(min(i, most))
	}
	r.variants = len(names)
	for i, c := range r.contents {
		r.cells[i].variant = none
		if c != "" {
			r.cells[i].variant = ranks[c]
		}
	}
}
