package diff

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
	"refract.dev/release"
	"refract.dev/tree"
)

// Rollout is how what becomes different on clusters that have a copy goes out, where a rollout
// policy says so. Copies that come or go do so at once.
type Rollout struct {
	// Objects that go out so, each by itself, in the order of their names.
	Objects []render.Object `json:"objects"`
	// Policies that say so, that of the namespace first.
	Policies []render.Policy `json:"policies"`
	// Hold says why nothing is released; empty if something is. Then there are no waves.
	Hold string `json:"hold,omitempty"`
	// Waves in their order, without those that take no cluster that becomes different.
	Waves []release.PlannedWave `json:"waves,omitempty"`
}

// rollouts bring together objects that go out in the same way.
type rollouts struct {
	before, after *manifest.Rollouts
	at            map[string]int
	all           []Rollout
}

func newRollouts(from, to *manifest.Set) *rollouts {
	return &rollouts{before: from.Rollouts(), after: to.Rollouts(), at: map[string]int{}}
}

// goesOut tells how an object goes out that becomes different on these clusters.
func (c *comparison) goesOut(j *judge, about render.Object, on *set) {
	if on.len() == 0 || j.from == nil || j.to == nil {
		return
	}
	names, warnings, err := c.rollouts.after.Named(j.to)
	if err != nil {
		return // A label is wrong, and nothing is written: lint says so.
	}
	refs := names.All()
	if len(refs) == 0 {
		return
	}
	for _, w := range warnings {
		c.notes.add(about, nil, w)
	}
	if was, _, err := c.rollouts.before.Named(j.from); err == nil && len(was.All()) == 0 {
		c.notes.add(about, on, fmt.Sprintf("%s is obeyed from the next change on: this one reaches every cluster at once", listOf(refs)))
		return
	}
	r := Rollout{}
	var policy *release.Policy
	policy, r.Hold, warnings = release.Obeyed(names, c.rollouts.after.Find)
	for _, w := range warnings {
		c.notes.add(about, nil, w)
	}
	if policy != nil {
		refs = policy.Refs
		r.Waves = policy.Plan(j.after.Clusters, func(i int) bool {
			at := c.index[j.after.Clusters[i].Name]
			return on.words[at/64]&(1<<(at%64)) != 0
		})
	}
	for _, ref := range refs {
		r.Policies = append(r.Policies, render.Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
	}
	c.rollouts.add(about, &r)
}

func (r *rollouts) add(about render.Object, is *Rollout) {
	data, err := json.Marshal(is)
	if err != nil {
		data = []byte(about.String()) // Like no other's then.
	}
	key := about.Kind + string(data)
	at, known := r.at[key]
	if !known {
		at = len(r.all)
		r.at[key] = at
		r.all = append(r.all, *is)
	}
	r.all[at].Objects = append(r.all[at].Objects, about)
}

func listOf(refs []tree.Policy) string {
	texts := make([]string, len(refs))
	for i, ref := range refs {
		ref.Generation = 0
		texts[i] = ref.String()
	}
	return strings.Join(texts, " and ")
}

// heading says which objects go out, and by which policies.
func (r *Rollout) heading() string {
	names := make([]string, len(r.Objects))
	for i := range r.Objects {
		names[i] = nameOf(&r.Objects[i])
	}
	refs := make([]tree.Policy, len(r.Policies))
	for i, p := range r.Policies {
		refs[i] = tree.Policy{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}
	}
	verb := "goes"
	if len(names) > 1 {
		verb = "go"
	}
	return fmt.Sprintf("%s %s %s out by %s", r.Objects[0].Kind, render.Few(names), verb, listOf(refs))
}

// lines say what each wave does.
func (r *Rollout) lines() []string {
	if r.Hold != "" {
		return []string{"! " + oneLine(r.Hold)}
	}
	lines := make([]string, len(r.Waves))
	for i := range r.Waves {
		w := &r.Waves[i]
		name := w.Name
		if name == "" {
			name = "all others"
		}
		text := fmt.Sprintf("%d. %s: %s: %s", i+1, name, clusterCount(len(w.Clusters)), render.Few(w.Clusters))
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

// String returns how the objects go out on one line.
func (r *Rollout) String() string { return r.heading() + ": " + strings.Join(r.lines(), ", ") }
