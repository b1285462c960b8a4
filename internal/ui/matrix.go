package ui

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/fleet/status"
	"refract.dev/tree"
)

// state is the state of a copy on a cluster.
type state uint8

// The states that a cell can show.
const (
	absent   state = iota // The copy does not exist and is not desired.
	right                 // The copy is as desired. This is also assumed without reports.
	waits                 // The copy is being written or is not ready yet.
	failed                // The copy could not be rendered or written, or cannot become ready.
	drifted               // Another writer has changed the copy.
	offline               // The cluster is unreachable.
	later                 // The copy has its earlier content, because the wave of its cluster has not begun.
	deleting              // The copy is being deleted.
	held                  // The change of the object waits, for example for an approval.
	halted                // The change of the object failed and was stopped.
	reverted              // The change of the object failed and was reverted.
	states
)

// stateNames has, for each state, its name in addresses, its symbol and its description.
var stateNames = [states]struct{ name, glyph, words string }{
	absent:   {"absent", "", "not placed"},
	right:    {"right", "✔", "as it should be"},
	waits:    {"waits", "…", "waits"},
	failed:   {"failed", "✗", "failed"},
	drifted:  {"drifted", "≠", "changed on the cluster"},
	offline:  {"offline", "⌀", "unreachable"},
	later:    {"later", "◷", "waits for its wave"},
	deleting: {"deleting", "−", "to be deleted"},
	held:     {"held", "!", "the change waits"},
	halted:   {"halted", "■", "the change was halted"},
	reverted: {"reverted", "↺", "the change was reverted"},
}

func (s state) Name() string  { return stateNames[s].name }
func (s state) Glyph() string { return stateNames[s].glyph }
func (s state) Words() string { return stateNames[s].words }

// cell is the state of one object on one cluster.
type cell struct {
	variant uint8 // The rank of the content in its row, 0 for the most frequent content; none without content.
	state   state
}

// none is the variant of a cell without content. All contents whose rank is greater than the constant most have the
// variant most.
const (
	none = 255
	most = 254
)

// row is an object, with one cell for each cluster.
type row struct {
	outcome  *render.Outcome // Nil if the object exists only in a report.
	reported *status.Object  // Nil without a report.
	about    render.Object
	kind     schema.GroupKind
	policies []tree.Policy
	named    []string // The policies as text.
	text     string   // The text to search in, in lower case.
	contents []string // For each cluster, a key that identifies the content; empty without content.
	cells    []cell   // By cluster.
	variants int
}

// matrix is the state of every object on every cluster.
type matrix struct {
	clusters []string
	labels   []labels.Set
	index    map[string]int // Of clusters, by name.
	rows     []*row
	// The values by which a user can filter, sorted.
	namespaces, kinds, policies []string
}

// newMatrix returns the matrix of the desired state.
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

// with returns the matrix with reported states. It shares rows without a report with m. But if live is true, the copies
// without a report get the state waits.
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
		default: // The object is deleted, and no report says that it has copies.
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

// unsaid sets the state of desired copies to waits, because no report has confirmed them yet.
func (r *row) unsaid() {
	for i := range r.cells {
		if r.cells[i].state == right {
			r.cells[i].state = waits
		}
	}
}

// report adds the reported statuses of an object.
func (r *row) report(o *status.Object, index map[string]int) {
	r.reported = o
	r.found(index)
	r.rank()
}

// intended sets the desired contents.
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

// found sets the reported contents and states.
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

// stateOf returns the state of a copy. If the change of the object has stopped, the state is never right.
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

// stoppedBy returns the state that a stopped change gives to copies of the object; the state right if the change has
// not stopped.
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

// isLater reports whether a cluster has its earlier content because its wave has not begun.
func isLater(s *refractv1alpha1.RolloutStatus, cluster string) bool {
	under := s != nil && s.Phase != refractv1alpha1.RolloutComplete && !rollout.Stopped(s)
	return under && rollout.Assigned(s, cluster).Name != s.Target.Name
}

// rank assigns a rank to each content, from the most frequent one to the least frequent one. Equally frequent contents
// are in the order of their first clusters.
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
