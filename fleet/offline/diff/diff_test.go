package diff

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/internal/golden"
)

// writers write the expected files of an archive.
var writers = map[string]func(io.Writer, *Diff) error{
	"want.txt": WriteText, "want.diff": WriteUnified, "want.json": WriteJSON, "want.md": WriteMarkdown,
}

// TestGolden compares the two folders "before" and "after" of an archive. The files of the folder "shared" are in both.
// The file "clusters" names the clusters to show. The files whose names begin with "want" are the expected output; an
// archive may have only some of them.
func TestGolden(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", rerun)
}

// rerun returns the files of expected output.
func rerun(t *testing.T, archive *txtar.Archive) []txtar.File {
	t.Helper()
	before, after := fstest.MapFS{}, fstest.MapFS{}
	var options Options
	for _, f := range golden.Inputs(archive) {
		in := &fstest.MapFile{Data: f.Data}
		folder, _, _ := strings.Cut(f.Name, "/")
		if folder != "after" && f.Name != "clusters" {
			before[f.Name] = in
		}
		if folder != "before" && f.Name != "clusters" {
			after[f.Name] = in
		}
		if f.Name == "clusters" {
			options.Clusters = strings.Fields(string(f.Data))
		}
	}
	d, err := Compare(read(t, before), read(t, after), options)
	if err != nil {
		t.Fatal(err)
	}
	var out []txtar.File
	for _, f := range archive.Files {
		if write := writers[f.Name]; write != nil {
			out = append(out, txtar.File{Name: f.Name, Data: []byte(written(t, write, d))})
		}
	}
	return out
}

func read(t *testing.T, in fstest.MapFS) *manifest.Set {
	t.Helper()
	set, problems := manifest.ReadFS(in)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return set
}

func written(t *testing.T, write func(io.Writer, *Diff) error, d *Diff) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, d); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// readText reads one file of manifests.
func readText(t *testing.T, text string) *manifest.Set {
	t.Helper()
	return read(t, fstest.MapFS{"a.yaml": {Data: []byte(text)}})
}

const twoClusters = `
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: eu-1}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: us-1}}
`

func TestCompareErrors(t *testing.T) {
	cases := map[string]struct {
		reason       string
		before       string
		clusters     []string
		want         error
		wantNear     string
		wantClusters int
	}{
		"NoClusters":        {reason: "A side without clusters is more likely a mistake than an empty fleet.", before: "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", want: render.ErrNoClusters},
		"Unknown":           {reason: "A mistyped name must not hide all differences.", before: twoClusters, clusters: []string{"eu-l"}, wantNear: "eu-1"},
		"KnownOnOneSide":    {reason: "The clusters to show may include one that joins or leaves.", before: twoClusters + "---\n{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: old-1}}", clusters: []string{"old-1"}},
		"NamedWithoutFacts": {reason: "Without FederatedClusters, the name of a cluster is enough.", before: "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", clusters: []string{"eu-1"}, wantClusters: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			after := readText(t, twoClusters)
			if tc.wantClusters > 0 {
				after = &manifest.Set{}
			}
			d, err := Compare(readText(t, tc.before), after, Options{Clusters: tc.clusters})
			var unknown *render.UnknownClusterError
			switch {
			case tc.want != nil:
				if !errors.Is(err, tc.want) {
					t.Errorf("%s\nCompare(): error %v, want %v", tc.reason, err, tc.want)
				}
			case tc.wantNear != "":
				if !errors.As(err, &unknown) || unknown.Near != tc.wantNear {
					t.Errorf("%s\nCompare(): error %v, want an UnknownClusterError near %s", tc.reason, err, tc.wantNear)
				}
			case err != nil:
				t.Errorf("%s\nCompare(): %v", tc.reason, err)
			case d.Totals.Clusters != tc.wantClusters:
				t.Errorf("%s\nCompare(): %d clusters, want %d", tc.reason, d.Totals.Clusters, tc.wantClusters)
			}
		})
	}
}

// TestSelectOnEitherSide verifies that an object which is selected only before or only after the change is compared,
// and not reported as created or deleted.
func TestSelectOnEitherSide(t *testing.T) {
	object := func(tier string) string {
		return twoClusters + "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {tier: " + tier + "}}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: other-" + tier + "}}"
	}
	d, err := Compare(readText(t, object("web")), readText(t, object("db")), Options{
		Select: func(o *manifest.Object) bool { return o.Content.GetLabels()["tier"] == "web" },
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = "1 object on 2 clusters changes: 2 changed, 0 created, 0 deleted, 0 failing; nothing rolls"
	if diff := cmp.Diff(want, d.Totals.String()); diff != "" {
		t.Errorf("Compare(): -want, +got:\n%s", diff)
	}
}

// TestUnknown verifies that an object which fails as a whole on both sides cannot be compared. On a hub it waits, and
// nothing changes.
func TestUnknown(t *testing.T) {
	object := func(value string) string {
		return twoClusters + "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop, labels: {kubeadmiral.io/propagation-policy-name: p}}, data: {a: " + value + "}}\n"
	}
	const failed = "PropagationPolicy shop/p: is not in the input"
	cases := map[string]struct {
		reason string
		after  string
		live   bool
		want   []Unknown
		note   string
	}{
		"Stays": {
			reason: "Objects that could not be compared do not count as unchanged.", after: object("c"),
			want: []Unknown{{
				Object: render.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a"},
				Reason: failed, Hint: "pass policies and other input of both sides with -f",
			}},
			note: "ConfigMap shop/a: could not be compared: fails as before: " + failed,
		},
		"Goes": {
			reason: "The clusters that lose the object are not known.", after: twoClusters,
			want: []Unknown{{
				Object: render.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a"},
				Reason: failed, Hint: "pass policies and other input of both sides with -f",
			}},
			note: "ConfigMap shop/a: could not be compared: is not placed any more, and failed before: " + failed,
		},
		"Live": {
			reason: "The controllers wait for the policy, so nothing changes.", after: object("c"), live: true,
			note: "ConfigMap shop/a: fails as before: " + failed,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			from, to := readText(t, object("b")), readText(t, tc.after)
			from.Live, to.Live = tc.live, tc.live
			d, err := Compare(from, to, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, d.Unknown); diff != "" || d.Totals.Unknown != len(tc.want) {
				t.Errorf("%s\nCompare(): %d unknown, -want, +got:\n%s", tc.reason, d.Totals.Unknown, diff)
			}
			var notes []string
			for i := range d.Notes {
				notes = append(notes, d.Notes[i].String())
			}
			if diff := cmp.Diff([]string{tc.note}, notes); diff != "" {
				t.Errorf("%s\nCompare(): notes: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestAutoscalerIsNotSelected verifies that an autoscaler which is not selected has its effect, and is not compared.
func TestAutoscalerIsNotSelected(t *testing.T) {
	text := func(image string) string {
		return twoClusters + "---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {containers: [{name: a, image: " + image + "}]}}}}\n" +
			"---\n{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a, labels: {v: " + image + "}}, spec: {minReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}}\n"
	}
	d, err := Compare(readText(t, text("v1")), readText(t, text("v2")), Options{
		Select: func(o *manifest.Object) bool { return o.Content.GetKind() == "Deployment" },
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = "1 object on 2 clusters changes: 2 changed, 0 created, 0 deleted, 0 failing; 2 workloads roll, at least 8 pods"
	if diff := cmp.Diff(want, d.Totals.String()); diff != "" {
		t.Errorf("Compare(): -want, +got:\n%s", diff)
	}
}

// TestMarkdownIsBounded verifies that details which do not fit into a comment are left out and counted.
func TestMarkdownIsBounded(t *testing.T) {
	text := func(value string) string {
		var b strings.Builder
		b.WriteString(twoClusters)
		for i := range 400 {
			name := strings.Repeat("a", i%200+1) + strings.Repeat("b", i/200)
			b.WriteString("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + "}, data: {k: \"" + value + name + "\"}}\n")
		}
		return b.String()
	}
	d, err := Compare(readText(t, text("```|<b>")), readText(t, text("@all $x$")), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := written(t, WriteMarkdown, d)
	if len(got) > 65_536 || len(got) < 40_000 {
		t.Errorf("WriteMarkdown(): %d bytes, want at most 65,536 and not much less", len(got))
	}
	shown := strings.Count(got, "\n| &#126; |")
	if !strings.Contains(got, " groups are left out, and the details of ") || shown == 0 {
		t.Errorf("WriteMarkdown() does not say what it left out:\n%s", got[len(got)-500:])
	}
	for _, bad := range []string{"<b>", "@all"} {
		table, _, _ := strings.Cut(got, "<details>")
		if strings.Contains(table, bad) {
			t.Errorf("WriteMarkdown() lets %s through", bad)
		}
	}
}

// TestSecretsAreMasked verifies that no output of a Diff contains values of a Secret.
func TestSecretsAreMasked(t *testing.T) {
	text := func(value, extra string) string {
		return twoClusters + "---\n{apiVersion: v1, kind: Secret, metadata: {name: changed}, data: {k: b2xk" + value + ", same: c2FtZQ==" + extra + "}, stringData: {n: " + value + "}}\n" +
			"---\n{apiVersion: v1, kind: Secret, metadata: {name: only-" + value + "}, stringData: {k: sesame}}\n"
	}
	d, err := Compare(readText(t, text("aaaa", "")), readText(t, text("bbbb", ", more: bW9yZQ==")), Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(writers)
	all["MarshalJSON"] = func(w io.Writer, d *Diff) error { return json.NewEncoder(w).Encode(d) }
	for _, name := range slices.Sorted(maps.Keys(all)) {
		got := written(t, all[name], d)
		got = strings.ReplaceAll(strings.ReplaceAll(got, "only-aaaa", ""), "only-bbbb", "")
		for _, value := range []string{"b2xk", "aaaa", "bbbb", "c2FtZQ", "bW9yZQ", "sesame"} {
			if strings.Contains(got, value) {
				t.Errorf("%s shows %s:\n%s", name, value, got)
			}
		}
		if !strings.Contains(got, "(before)") || !strings.Contains(got, "(after)") {
			t.Errorf("%s does not show that a value changes:\n%s", name, got)
		}
	}
}
