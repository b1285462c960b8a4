package policies

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"refract.dev/fleet/offline/diff"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/internal/output"
)

// mostWaves limits the groups of objects whose waves are described.
const mostWaves = 3

// blastRadius describes the effects on copies in one sentence. It also returns the waves of the changes, and whether a
// part waits for approval. The sentence is empty if there are no effects, or if there were no clusters. An error of the
// callback each is returned.
func blastRadius(
	w *write, before, after *manifest.Set, each func(*render.Outcome) error,
) (says string, waves []diff.Rollout, waits bool, err error) {
	d, err := diff.Compare(before, after, diff.Options{Each: each})
	if errors.Is(err, render.ErrNoClusters) {
		return "", nil, false, nil
	}
	if err != nil {
		return "", nil, false, err
	}
	of := map[diff.Status]*tally{}
	for i := range d.Groups {
		g := &d.Groups[i]
		if of[g.Status] == nil {
			of[g.Status] = newTally()
		}
		of[g.Status].add(g)
	}
	more := ""
	if w.was != nil && !w.cluster() {
		more = "more "
	}
	var parts []string
	for _, say := range []struct {
		status diff.Status
		how    func(*tally) string
	}{
		{diff.Deleted, func(t *tally) string { return "removes " + t.what() + " from " + t.where("") + t.waits() }},
		{diff.Failing, func(t *tally) string { return "makes " + t.what() + " fail" + t.on() }},
		{diff.Changed, func(t *tally) string { return "changes " + t.what() + t.on() + t.which() }},
		{diff.Recovered, func(t *tally) string { return "writes " + t.what() + t.on() + " that could not be written before" }},
		{diff.Created, func(t *tally) string { return "places " + t.what() + " on " + t.where(more) + t.waits() }},
	} {
		if t := of[say.status]; t != nil {
			parts = append(parts, say.how(t))
		}
	}
	if len(parts) == 0 {
		return "", nil, false, nil
	}
	text := strings.Join(parts, "; ")
	if w.cluster() && w.was == nil {
		text = "once it is ready, this " + text
	}
	return text, d.Rollouts, d.Totals.AwaitingApproval > 0, nil
}

// sayWaves describes the waves of the first groups of objects, as far as the author may see them.
func sayWaves(rollouts []diff.Rollout, seen *visibility) []string {
	var said []string
	more := 0
	for i := range rollouts {
		if len(said) == mostWaves || !seen.seesRollout(&rollouts[i]) {
			more++
			continue
		}
		said = append(said, rollouts[i].String())
	}
	switch {
	case more > 0 && len(said) > 0:
		said = append(said, "other objects roll out wave by wave, too")
	case more > 0:
		said = append(said, "the change rolls out wave by wave")
	}
	return said
}

// tally counts the objects with the same effects.
type tally struct {
	objects  map[render.Object]bool
	kinds    map[string]int
	clusters map[string]bool
	with     map[diff.Effect]map[render.Object]bool
}

func newTally() *tally {
	return &tally{
		objects: map[render.Object]bool{}, kinds: map[string]int{},
		clusters: map[string]bool{}, with: map[diff.Effect]map[render.Object]bool{},
	}
}

func (t *tally) add(g *diff.Group) {
	for i := range g.Objects {
		o := g.Objects[i].Object
		if !t.objects[o] {
			t.objects[o] = true
			t.kinds[o.Kind]++
		}
		for _, impact := range g.Impacts {
			if t.with[impact.Effect] == nil {
				t.with[impact.Effect] = map[render.Object]bool{}
			}
			t.with[impact.Effect][o] = true
		}
	}
	for _, c := range g.Clusters {
		t.clusters[c] = true
	}
}

// fewKinds is the largest number of kinds that are named.
const fewKinds = 2

// what returns the number of objects of each kind.
func (t *tally) what() string {
	if len(t.kinds) > fewKinds {
		return output.Count(len(t.objects), "object", "objects")
	}
	var texts []string
	for _, kind := range slices.Sorted(maps.Keys(t.kinds)) {
		texts = append(texts, output.Count(t.kinds[kind], kind, plural(kind)))
	}
	return strings.Join(texts, " and ")
}

// where returns the number of clusters, or the name of a single cluster.
func (t *tally) where(more string) string {
	if len(t.clusters) == 1 {
		return "cluster " + slices.Collect(maps.Keys(t.clusters))[0]
	}
	return output.Count(len(t.clusters), more+"cluster", more+"clusters")
}

// on returns the clusters, if they are known.
func (t *tally) on() string {
	if len(t.clusters) == 0 {
		return ""
	}
	return " on " + t.where("")
}

// effects are the effects of changes that the sentence mentions.
var effects = []struct {
	of   diff.Effect
	says string
}{
	{diff.Refused, "cannot be changed in place"},
	{diff.Rolling, "will roll"},
	{diff.Restarting, "will restart"},
	{diff.ScalingDown, "will scale down"},
	{diff.ScalingUp, "will scale up"},
}

// which returns the number of objects for each further effect.
func (t *tally) which() string {
	var texts []string
	for _, e := range effects {
		switch n := len(t.with[e.of]); {
		case n == 0:
		case n == len(t.objects) && n == 1:
			texts = append(texts, "which "+e.says)
		case n == len(t.objects):
			texts = append(texts, "all of which "+e.says)
		default:
			of := "of which " + e.says
			texts = append(texts, output.Count(n, of, of))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return ", " + strings.Join(texts, ", ")
}

// waits returns the number of objects that first wait for approval.
func (t *tally) waits() string {
	switch n := len(t.with[diff.Approving]); {
	case n == 0:
		return ""
	case n == len(t.objects):
		return ", which waits for approval"
	default:
		return fmt.Sprintf(", of which %s for approval", output.Count(n, "object waits", "objects wait"))
	}
}

// plural returns the plural of a kind.
func plural(kind string) string {
	lower := strings.ToLower(kind)
	switch {
	case strings.HasSuffix(lower, "s"), strings.HasSuffix(lower, "x"), strings.HasSuffix(lower, "ch"), strings.HasSuffix(lower, "sh"):
		return kind + "es"
	case strings.HasSuffix(lower, "y") && !strings.HasSuffix(lower, "ay") && !strings.HasSuffix(lower, "ey"):
		return kind[:len(kind)-1] + "ies"
	default:
		return kind + "s"
	}
}
