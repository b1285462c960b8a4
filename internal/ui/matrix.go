package ui

import (
	"cmp"
	"slices"
	"strconv"

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
	cells    []cell   // By cluster.
	variants int
}

// matrix is what the fleet looks like: every object on every cluster.
type matrix struct {
	clusters []string
	labels   []labels.Set
	rows     []*row
	// What can be chosen, sorted.
	namespaces, kinds, policies []string
}

// newMatrix brings together what is to be and, if a hub says it, what is.
func newMatrix(s *Snapshot) *matrix {
	m := &matrix{}
	index := map[string]int{}
	for i := range s.evaluation.Clusters {
		c := &s.evaluation.Clusters[i]
		index[c.Name] = i
		m.clusters = append(m.clusters, c.Name)
		m.labels = append(m.labels, c.Labels)
	}
	reported := make(map[manifest.Identity]*status.Object, len(s.statuses))
	for _, o := range s.statuses {
		reported[manifest.Identity{GroupKind: o.GroupKind(), Namespace: o.Namespace, Name: o.Name}] = o
	}
	for i := range s.evaluation.Outcomes {
		o := &s.evaluation.Outcomes[i]
		r := &row{outcome: o, reported: reported[o.ID], about: objectOf(o), kind: o.ID.GroupKind}
		delete(reported, o.ID)
		if o.Propagation != nil {
			r.policies = append(r.policies, *o.Propagation)
		}
		for _, p := range o.Policies {
			r.policies = append(r.policies, p.Ref)
		}
		m.add(r, index)
	}
	for id, o := range reported {
		m.add(&row{reported: o, about: o.Object, kind: id.GroupKind}, index)
	}
	slices.SortFunc(m.rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.about.Namespace, b.about.Namespace), cmp.Compare(a.about.Kind, b.about.Kind), cmp.Compare(a.about.Name, b.about.Name))
	})
	m.choices()
	return m
}

func objectOf(o *render.Outcome) render.Object {
	c := o.Object.Content
	return render.Object{APIVersion: c.GetAPIVersion(), Kind: c.GetKind(), Namespace: c.GetNamespace(), Name: c.GetName()}
}

// add adds a row, unless it is nowhere and asks for nothing.
func (m *matrix) add(r *row, index map[string]int) {
	contents := make([]string, len(m.clusters)) // What tells contents apart; empty for none.
	r.cells = make([]cell, len(m.clusters))
	if r.outcome != nil {
		r.intended(contents, index)
	}
	if r.reported != nil {
		r.found(contents, index)
	}
	if r.outcome != nil && r.outcome.Gone != "" && r.reported == nil {
		return
	}
	r.rank(contents)
	m.rows = append(m.rows, r)
}

// intended fills in what clusters should have.
func (r *row) intended(contents []string, index map[string]int) {
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
			contents[at] = "variant " + strconv.Itoa(g)
			r.cells[at].state = right
		}
	}
}

// found fills in what clusters have.
func (r *row) found(contents []string, index map[string]int) {
	s := r.reported.Status
	for i := range s.Clusters {
		c := &s.Clusters[i]
		at, known := index[c.Name]
		if !known {
			continue
		}
		if c.Hash != "" {
			contents[at] = c.Hash
		} else if c.State != refractv1alpha1.StateSynced {
			contents[at] = ""
		}
		r.cells[at].state = stateOf(c, s.Rollout)
	}
}

// stateOf says how it stands with a copy.
func stateOf(c *refractv1alpha1.ClusterStatus, rollout *refractv1alpha1.RolloutStatus) state {
	switch {
	case c.State == refractv1alpha1.StateFailed, c.Readiness == refractv1alpha1.ReadinessFailed:
		return failed
	case c.State == refractv1alpha1.StateOffline:
		return offline
	case c.State == refractv1alpha1.StateDeleting:
		return deleting
	case c.State == refractv1alpha1.StateDrifted:
		return drifted
	case rollout != nil && rollout.Phase != refractv1alpha1.RolloutComplete && release.Assigned(rollout, c.Name).Name != rollout.Target.Name:
		return later
	case c.State != refractv1alpha1.StateSynced, c.Readiness == refractv1alpha1.ReadinessInProgress:
		return waits
	default:
		return right
	}
}

// rank numbers contents, the most frequent first; of those that are as frequent, that of the first cluster.
func (r *row) rank(contents []string) {
	type content struct{ first, count int }
	known := map[string]*content{}
	for i, c := range contents {
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
	for i, c := range contents {
		r.cells[i].variant = none
		if c != "" {
			r.cells[i].variant = ranks[c]
		}
	}
}
