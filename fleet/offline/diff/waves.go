package diff

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/internal/output"
	"refract.dev/tree"
)

// Rollout describes how changes of existing copies go out under rollout policies. Copies are created and deleted at
// once.
type Rollout struct {
	// Objects are the changed objects that obey the policies themselves. Sorted by name.
	Objects []render.Object `json:"objects,omitempty"`
	// Followers are the changed objects that travel with objects that obey the policies. They change in the same waves,
	// even if those objects do not change. Sorted by name.
	Followers []render.Object `json:"followers,omitempty"`
	// Policies are the rollout policies, the policy of the namespace first.
	Policies []render.Policy `json:"policies"`
	// Hold is the reason why nothing is released; empty if the change is released. With a Hold there are no waves.
	Hold string `json:"hold,omitempty"`
	// Waves are in their order. Waves without a changed cluster are left out.
	Waves []rollout.PlannedWave `json:"waves,omitempty"`
}

// rollouts groups objects that go out in the same way.
type rollouts struct {
	before, after *manifest.Rollouts
	going         map[manifest.Identity]*going
	order         []*going
}

// going is an object that obeys a rollout policy. Its followers are included if they name no rollout policy themselves.
type going struct {
	object    *render.Outcome
	names     rollout.Names
	own       *render.Object // Nil if the object does not change.
	followers []render.Object
	revised   *set
}

func newRollouts(from, to *manifest.Set) *rollouts {
	return &rollouts{before: from.Rollouts(), after: to.Rollouts(), going: map[manifest.Identity]*going{}}
}

// goesOut stores how an object that changes on the given clusters goes out. The clusters are among those to show.
func (c *comparison) goesOut(j *judge, about render.Object, on *set) {
	if on.len() == 0 || j.from == nil || j.to == nil || j.isErr != nil {
		return
	}
	by, names, warnings, err := j.after.Obeys(c.rollouts.after)
	refs := names.All()
	if err != nil || len(refs) == 0 {
		return // lint reports invalid labels.
	}
	if _, was, _, err := j.before.Obeys(c.rollouts.before); err == nil && len(was.All()) == 0 {
		c.notes.add(about, on, fmt.Sprintf("%s takes effect from the next change on: this one reaches every cluster at once", listOf(refs)))
		return
	}
	_, _, more := rollout.Obeyed(names, c.rollouts.after.Find)
	for _, w := range slices.Concat(warnings, more) {
		c.notes.add(about, nil, w)
	}
	revised := c.revised(j)
	atOnce := newSet(len(c.clusters))
	for i, w := range revised.words {
		atOnce.words[i] = on.words[i] &^ w
	}
	if atOnce.len() > 0 {
		c.notes.add(about, atOnce, fmt.Sprintf("%s does not delay this change, which comes neither from the object nor from an override policy",
			listOf(refs)))
	}
	if revised.len() > 0 {
		c.rollouts.add(by, names, about, by == j.after, revised)
	}
}

// add adds a changed object to the rollout of the object by, which obeys a rollout policy. If own is true, both are the
// same object; otherwise the changed object follows the other one.
func (r *rollouts) add(by *render.Outcome, names rollout.Names, about render.Object, own bool, revised *set) {
	g := r.going[by.ID]
	if g == nil {
		g = &going{object: by, names: names, revised: &set{make([]uint64, len(revised.words))}}
		r.going[by.ID] = g
		r.order = append(r.order, g)
	}
	g.revised.addAll(revised)
	if own {
		g.own = &about
		return
	}
	g.followers = append(g.followers, about)
}

// goingOut returns the rollouts of all objects. Objects with the same clusters and policies share one plan.
func (c *comparison) goingOut() (all []Rollout) {
	known := map[string]int{}
	slices.SortStableFunc(c.rollouts.order, func(a, b *going) int { return compareIDs(&a.object.ID, &b.object.ID) })
	for _, g := range c.rollouts.order {
		refs := g.names.All()
		policy, hold, _ := rollout.Obeyed(g.names, c.rollouts.after.Find)
		key := fmt.Sprintf("%s %t %p %s %s", g.object.ID.Kind, g.own != nil, &g.object.Clusters[0], listOf(refs), g.revised.key())
		at, is := known[key]
		if !is {
			at = len(all)
			known[key] = at
			all = append(all, c.planned(g.object.Clusters, refs, policy, hold, g.revised))
		}
		if g.own != nil {
			all[at].Objects = append(all[at].Objects, *g.own)
		}
		all[at].Followers = append(all[at].Followers, g.followers...)
	}
	return all
}

// revised returns the clusters with a copy whose content a rollout changes.
func (c *comparison) revised(j *judge) *set {
	all := newSet(len(c.clusters))
	var changes []bool
	if j.wasErr == nil {
		changes = j.after.Revised(j.before)
	}
	for i := range j.after.Clusters {
		at := c.index[j.after.Clusters[i].Name]
		has := j.wasErr != nil || (!c.clusters[at].joins && placedOn(j.before, j.after.Clusters[i].Name))
		if has && (changes == nil || changes[i]) {
			all.add(at)
		}
	}
	return all
}

func placedOn(o *render.Outcome, cluster string) bool {
	_, found := slices.BinarySearchFunc(o.Clusters, cluster, func(c match.Cluster, name string) int { return strings.Compare(c.Name, name) })
	return found
}

// planned returns the plan of a change. Its waves contain only clusters that are shown.
func (c *comparison) planned(clusters []match.Cluster, refs []tree.Policy, policy *rollout.Policy, hold string, revised *set) Rollout {
	is := Rollout{Hold: hold}
	if policy != nil {
		refs = policy.Refs
		for _, w := range policy.Plan(clusters, func(i int) bool { return revised.has(c.index[clusters[i].Name]) }) {
			w.Clusters = slices.DeleteFunc(w.Clusters, func(name string) bool { return !c.clusters[c.index[name]].shown })
			if len(w.Clusters) > 0 {
				is.Waves = append(is.Waves, w)
			}
		}
	}
	for _, ref := range refs {
		is.Policies = append(is.Policies, render.Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
	}
	return is
}

func listOf(refs []tree.Policy) string {
	texts := make([]string, len(refs))
	for i, ref := range refs {
		ref.Generation = 0
		texts[i] = ref.String()
	}
	return strings.Join(texts, " and ")
}

// Said returns the text of the rollout: a heading that names the objects and policies, and a line for each wave.
func (r *Rollout) Said() (heading string, lines []string) { return r.heading(), r.lines() }

// heading names the objects and their policies.
func (r *Rollout) heading() string {
	refs := make([]tree.Policy, len(r.Policies))
	for i, p := range r.Policies {
		refs[i] = tree.Policy{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}
	}
	objects, with := r.Objects, r.Followers
	if len(objects) == 0 {
		objects, with = with, nil
	}
	verb := "rolls"
	if len(objects) > 1 {
		verb = "roll"
	}
	text := fmt.Sprintf("%s %s out", listOfObjects(objects), verb)
	if len(with) > 0 {
		text += ", with " + listOfObjects(with) + ","
	}
	return text + " by " + listOf(refs)
}

// listOfObjects lists the names of objects, grouped by kind.
func listOfObjects(objects []render.Object) string {
	var texts []string
	for rest := objects; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(o render.Object) bool { return o.Kind != rest[0].Kind })
		if n < 0 {
			n = len(rest)
		}
		names := make([]string, n)
		for i := range names {
			names[i] = nameOf(&rest[i])
		}
		texts = append(texts, rest[0].Kind+" "+render.Few(names))
		rest = rest[n:]
	}
	return strings.Join(texts, " and ")
}

// lines describe each wave.
func (r *Rollout) lines() []string {
	if r.Hold != "" {
		return []string{"! " + oneLine(r.Hold)}
	}
	lines := make([]string, len(r.Waves))
	for i := range r.Waves {
		w := &r.Waves[i]
		text := fmt.Sprintf("%d. %s: %s: %s", i+1, waveName(w), clusterCount(len(w.Clusters)), render.Few(w.Clusters))
		if w.AtOnce < len(w.Clusters) {
			text += fmt.Sprintf("; %d at a time", w.AtOnce)
		}
		if w.MinReadySeconds > 0 {
			text += fmt.Sprintf("; ready for %s", time.Duration(w.MinReadySeconds)*time.Second)
		}
		if w.Approval != "" {
			text += "; " + strings.TrimPrefix(w.Approval, "wave "+w.Name+" ")
		}
		lines[i] = text
	}
	return lines
}

// mostTold is the maximum number of waves in String.
const mostTold = 4

// String returns the rollout on one short line, without the names of clusters.
func (r *Rollout) String() string {
	if r.Hold != "" {
		return r.heading() + ": " + oneLine(r.Hold)
	}
	var told []string
	for i := range r.Waves[:min(len(r.Waves), mostTold)] {
		w := &r.Waves[i]
		text := fmt.Sprintf("%s %s", waveName(w), clusterCount(len(w.Clusters)))
		if w.Approval != "" {
			text += " (waits for an approval)"
		}
		told = append(told, text)
	}
	if more := len(r.Waves) - mostTold; more > 0 {
		told = append(told, output.Count(more, "more wave", "more waves"))
	}
	return r.heading() + ": " + strings.Join(told, ", then ")
}

func waveName(w *rollout.PlannedWave) string {
	if w.Name == "" {
		return "all others"
	}
	return w.Name
}
