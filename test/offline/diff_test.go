// Package offline_test checks properties of the commands that need no cluster, with generated fleets.
package offline_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/offline/diff"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/placement"
	"refract.dev/test/generate"
)

// diffFleets is the number of fleets that TestDiff compares.
const diffFleets = 120

// TestDiff compares pairs of fleets. The listed changes of a copy must turn its old content into its new content. Every
// changed copy must be in exactly one group, and no other copy in any group.
func TestDiff(t *testing.T) {
	seen, unknown := map[diff.Status]int{}, 0
	for seed := range uint64(diffFleets) {
		before := generate.Random(seed)
		after := generate.Mutate(before, seed)
		from, to := readFleet(t, before), readFleet(t, after)
		inputs := [2]string{contentsOf(t, from), contentsOf(t, to)}
		d, err := diff.Compare(from, to, diff.Options{})
		if err != nil {
			t.Fatalf("seed %d: Compare(): %v", seed, err)
		}
		if got := [2]string{contentsOf(t, from), contentsOf(t, to)}; got != inputs {
			t.Errorf("seed %d: Compare() changed its input", seed)
		}
		checkCopies(t, fmt.Sprintf("seed %d", seed), d, from, to, seen)
		if d.Same() != (len(d.Groups) == 0 && d.Totals.Unknown == 0) || d.Totals.Unknown != len(d.Unknown) {
			t.Errorf("seed %d: %s, with %d unknown", seed, &d.Totals, len(d.Unknown))
		}
		unknown += d.Totals.Unknown

		other, err := diff.Compare(readFleet(t, inOneFile(before)), readFleet(t, inOneFile(after)), diff.Options{})
		if err != nil {
			t.Fatalf("seed %d: Compare(): %v", seed, err)
		}
		if delta := cmp.Diff(allForms(t, d), allForms(t, other)); delta != "" {
			t.Errorf("seed %d: the order of the documents matters:\n%s", seed, delta)
		}
	}
	if unknown == 0 {
		t.Errorf("none of %d fleets has an object that cannot be compared: the test shows nothing", diffFleets)
	}
	for _, status := range []diff.Status{diff.Changed, diff.Created, diff.Deleted, diff.Failing, diff.Recovered} {
		if seen[status] == 0 {
			t.Errorf("none of %d fleets has a copy that is %s: the test shows nothing", diffFleets, status)
		}
	}
}

func readFleet(t *testing.T, fleet generate.Fleet) *manifest.Set {
	t.Helper()
	set, problems := manifest.ReadFS(fleet.FS())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return set
}

// inOneFile returns the documents of a fleet in reverse order, in a single file.
func inOneFile(f generate.Fleet) generate.Fleet {
	var all []generate.Document
	for _, name := range f.Paths() {
		all = append(all, f[name]...)
	}
	out := generate.Fleet{}
	for _, document := range slices.Backward(all) {
		out["all.json"] = append(out["all.json"], document)
	}
	return out
}

func contentsOf(t *testing.T, set *manifest.Set) string {
	t.Helper()
	return string(asJSON(t, set.Manifests))
}

func allForms(t *testing.T, d *diff.Diff) string {
	t.Helper()
	var b bytes.Buffer
	for _, write := range []func() error{
		func() error { return diff.WriteText(&b, d) },
		func() error { return diff.WriteUnified(&b, d) },
		func() error { return diff.WriteJSON(&b, d) },
		func() error { return diff.WriteMarkdown(&b, d) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// place identifies a copy: an object on a cluster.
type place struct {
	id      manifest.Identity
	cluster string
}

// copyAt is the content of a copy, before or after the change.
type copyAt struct {
	object map[string]any // Nil if the rendering fails.
}

// checkCopies compares the groups with the evaluations of both sides, copy by copy.
func checkCopies(t *testing.T, name string, d *diff.Diff, from, to *manifest.Set, seen map[diff.Status]int) {
	t.Helper()
	grouped := map[place]*diff.Group{}
	for i := range d.Groups {
		g := &d.Groups[i]
		for j := range g.Objects {
			gvk := schema.FromAPIVersionAndKind(g.Objects[j].APIVersion, g.Objects[j].Kind)
			id := manifest.Identity{GroupKind: gvk.GroupKind(), Namespace: g.Objects[j].Namespace, Name: g.Objects[j].Name}
			for _, cluster := range g.Clusters {
				at := place{id, cluster}
				if grouped[at] != nil {
					t.Errorf("%s: %v is in two groups", name, at)
				}
				grouped[at] = g
			}
		}
	}
	before, after, unapproved, held := copiesOf(t, from, to)
	places := map[place]bool{}
	for _, side := range []map[place]copyAt{before, after} {
		for at := range side {
			places[at] = true
		}
	}
	for at := range grouped {
		if !places[at] {
			t.Errorf("%s: %v is %s, and neither side has it", name, at, grouped[at].Status)
		}
	}
	for at := range places {
		was, had := before[at]
		is, has := after[at]
		want := statusOf(t, was, is, had, has)
		if held[at.id] {
			want = ""
		}
		got := diff.Status("")
		if grouped[at] != nil {
			got = grouped[at].Status
		}
		if got != want {
			t.Errorf("%s: %v is %q, want %q", name, at, got, want)
		}
		seen[got]++
		if _, without := unapproved[at]; (got == diff.Created || got == diff.Deleted) && without != has && !announced(grouped[at]) {
			t.Errorf("%s: %v is %s only after an approval, and the group does not say so", name, at, got)
		}
		if got == diff.Changed {
			checkChanges(t, name, at, grouped[at], was.object, is.object)
		}
	}
}

// announced reports whether the group says that its change waits for an approval.
func announced(g *diff.Group) bool {
	return slices.ContainsFunc(g.Impacts, func(i diff.Impact) bool { return i.Effect == diff.Approving })
}

func statusOf(t *testing.T, was, is copyAt, had, has bool) diff.Status {
	t.Helper()
	switch {
	case !has:
		return diff.Deleted
	case is.object == nil && had && was.object == nil:
		return ""
	case is.object == nil:
		return diff.Failing
	case !had:
		return diff.Created
	case was.object == nil:
		return diff.Recovered
	case jsonpatch.Equal(asJSON(t, was.object), asJSON(t, is.object)):
		return ""
	default:
		return diff.Changed
	}
}

// checkChanges applies the changes of a group with another implementation of RFC 6902.
func checkChanges(t *testing.T, name string, at place, g *diff.Group, was, is map[string]any) {
	t.Helper()
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	var operations []operation
	for i := range g.Changes {
		c := &g.Changes[i]
		operations = append(operations, operation{Op: string(c.Op), Path: c.Path, Value: c.After})
		if (c.Cause == diff.Own) != (c.By == nil) {
			t.Errorf("%s: %v: %s by %v", name, at, c.Cause, c.By)
		}
	}
	patch, err := jsonpatch.DecodePatch(asJSON(t, operations))
	if err != nil {
		t.Fatal(err)
	}
	got, err := patch.Apply(asJSON(t, was))
	if err != nil {
		t.Errorf("%s: %v: %v", name, at, err)
		return
	}
	if want := asJSON(t, is); !jsonpatch.Equal(got, want) {
		t.Errorf("%s: %v: the changes lead to %s, want %s", name, at, got, want)
	}
}

// copiesOf returns the copies on the clusters of the new side, in three states: before the change, after it with all
// approvals, and after it without approvals. It also returns the objects that are not written.
func copiesOf(t *testing.T, from, to *manifest.Set) (before, after, unapproved map[place]copyAt, held map[manifest.Identity]bool) {
	t.Helper()
	// An object with a policy label on only one side is placed on no cluster on the other side.
	from, to = without(from, to), without(to, from)
	was, err := render.Evaluate(from, render.Options{})
	if err != nil {
		t.Fatal(err)
	}
	is, err := render.Evaluate(to, render.Options{Before: was, Approved: true, Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	waits, err := render.Evaluate(to, render.Options{Before: was})
	if err != nil {
		t.Fatal(err)
	}
	stays := map[string]bool{}
	for i := range is.Clusters {
		stays[is.Clusters[i].Name] = true
	}
	before, after, unapproved, held = map[place]copyAt{}, map[place]copyAt{}, map[place]copyAt{}, map[manifest.Identity]bool{}
	addCopies(before, was, stays)
	addCopies(after, is, stays)
	addCopies(unapproved, waits, stays)
	for i := range is.Outcomes {
		held[is.Outcomes[i].ID] = is.Outcomes[i].Held != ""
	}
	// If an object cannot be rendered at all, its copies stay, or their content is unknown.
	spreadFailures(is, before, after)
	spreadFailures(was, after, before)
	return before, after, unapproved, held
}

func without(set, other *manifest.Set) *manifest.Set {
	labelled := map[manifest.Identity]bool{}
	for i := range other.Objects {
		labelled[other.Objects[i].Identity()] = isLabelled(&other.Objects[i])
	}
	out := *set
	out.Objects = nil
	for i := range set.Objects {
		if o := &set.Objects[i]; isLabelled(o) || !labelled[o.Identity()] {
			out.Objects = append(out.Objects, *o)
		}
	}
	return &out
}

func isLabelled(o *manifest.Object) bool {
	_, ok, _, _ := placement.Named(o.Content.GetLabels(), o.Content.GetNamespace()) //nolint:dogsled // Only this value is needed.
	return ok
}

func addCopies(copies map[place]copyAt, e *render.Evaluation, stays map[string]bool) {
	for i := range e.Outcomes {
		o := &e.Outcomes[i]
		for v := range o.Variants {
			for _, c := range o.Variants[v].Clusters {
				if !stays[o.Clusters[c].Name] {
					continue
				}
				var object map[string]any
				if o.Variants[v].Err == nil {
					object = o.Variants[v].Object.Object
				}
				copies[place{o.ID, o.Clusters[c].Name}] = copyAt{object}
			}
		}
	}
}

// spreadFailures marks all copies of an object as failed if the object cannot be rendered at all. The other side tells
// which copies these are.
func spreadFailures(e *render.Evaluation, other, failed map[place]copyAt) {
	for at := range other {
		o := e.Find(at.id)
		if o != nil && len(o.Variants) == 0 && len(o.Errors()) > 0 {
			failed[at] = copyAt{}
		}
	}
}

// BenchmarkDiff compares a fleet of 1,000 objects on 1,000 clusters with the same fleet after a change of one of 50
// policies. It measures the comparison, and separately the evaluation of both sides, which is a part of it. It does not
// measure the parsing of the manifests.
func BenchmarkDiff(b *testing.B) {
	fleet := generate.Large(generate.Size{Objects: 1000, Clusters: 1000, Policies: 50})
	from, problems := manifest.ReadFS(fleet.FS())
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	change := generate.Fleet{"policy.json": fleet.Clone()[generate.LargePolicy(0)]}
	rules, _ := change["policy.json"][0]["spec"].(generate.Document)["overrideRules"].([]any)
	overriders, _ := rules[0].(generate.Document)["overriders"].(generate.Document)
	overriders["jsonpatch"].([]any)[0].(generate.Document)["value"] = int64(99)
	over, problems := manifest.ReadFS(change.FS())
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	to := from.Overlay(over)
	b.Run("Compare", func(b *testing.B) {
		for b.Loop() {
			d, err := diff.Compare(from, to, diff.Options{})
			if err != nil {
				b.Fatal(err)
			}
			if d.Totals.Changed != 20*334 {
				b.Fatal(d.Totals.String())
			}
		}
	})
	b.Run("EvaluateBothSides", func(b *testing.B) {
		for b.Loop() {
			before, err := render.Evaluate(from, render.Options{})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := render.Evaluate(to, render.Options{Before: before}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
