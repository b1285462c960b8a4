package explain

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/internal/golden"
	"refract.dev/tree"
)

// question is the file ask of an archive.
type question struct {
	Object   string   `json:"object"` // In the format of render.Object.
	Clusters []string `json:"clusters"`
	Path     string   `json:"path"`
	JSON     bool     `json:"json"` // Whether the archive has want.json, too.
}

// TestGolden answers the question of every archive in testdata. The archives are also examples for readers: the first
// lines of each describe its subject.
func TestGolden(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", answer)
}

// answer returns the files of expected output.
func answer(t *testing.T, archive *txtar.Archive) []txtar.File {
	t.Helper()
	in := golden.FS(golden.Inputs(archive))
	var ask question
	if err := yaml.UnmarshalStrict(in["ask"].Data, &ask); err != nil {
		t.Fatal(err)
	}
	delete(in, "ask")
	set, problems := manifest.ReadFS(in)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	x, err := explained(t, set, &ask)
	if err != nil {
		text := fmt.Sprintln(err)
		if unknown, ok := errors.AsType[*UnknownPathError](err); ok {
			text += fmt.Sprintln("hint:", unknown.Hint)
		}
		return []txtar.File{{Name: "want.txt", Data: []byte(text)}}
	}
	var text, document bytes.Buffer
	if err := errors.Join(WriteText(&text, x), WriteJSON(&document, x)); err != nil {
		t.Fatal(err)
	}
	out := []txtar.File{{Name: "want.txt", Data: text.Bytes()}}
	if ask.JSON {
		out = append(out, txtar.File{Name: "want.json", Data: document.Bytes()})
	}
	return out
}

func explained(t *testing.T, set *manifest.Set, ask *question) (*Explanation, error) {
	t.Helper()
	e, err := render.Evaluate(set, render.Options{Clusters: ask.Clusters})
	if err != nil {
		return nil, err
	}
	for i := range e.Outcomes {
		c := e.Outcomes[i].Object.Content
		object := render.Object{Kind: c.GetKind(), Namespace: c.GetNamespace(), Name: c.GetName()}
		if object.String() != ask.Object {
			continue
		}
		before := c.DeepCopy()
		x, err := Explain(e, &e.Outcomes[i], tree.MustParse(ask.Path))
		if diff := cmp.Diff(before, c); diff != "" {
			t.Errorf("Explain() changed the object: -before, +after:\n%s", diff)
		}
		return x, err
	}
	return nil, fmt.Errorf("there is no object %s", ask.Object)
}

// TestExplainWhatWasThere verifies from two states of a hub that an object whose propagation policy was deleted stays
// on its clusters and goes to no other.
func TestExplainWhatWasThere(t *testing.T) {
	files := fstest.MapFS{
		"clusters.yaml": {Data: []byte(`{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: a}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: b}}
`)},
		"object.yaml": {Data: []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, labels: {kubeadmiral.io/propagation-policy-name: on-a}}}")},
		"policy.yaml": {Data: []byte(`
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: PropagationPolicy, metadata: {name: on-a}, spec: {schedulingMode: Duplicate, placement: [{cluster: a}]}}`)},
	}
	evaluated := func(before *render.Evaluation) *render.Evaluation {
		set, problems := manifest.ReadFS(files)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		e, err := render.Evaluate(set, render.Options{Before: before})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	before := evaluated(nil)
	delete(files, "policy.yaml")
	e := evaluated(before)
	x, err := Explain(e, &e.Outcomes[0], tree.Pointer{})
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Groups) != 1 || !cmp.Equal(x.Groups[0].Clusters, []string{"a"}) {
		t.Errorf("groups: want one of cluster a, got %v", x.Groups)
	}
	want := []Reason{{Clusters: []string{"b"}, Reason: "it does not have the object, and the policy that placed it was deleted"}}
	if diff := cmp.Diff(want, x.Elsewhere); diff != "" {
		t.Errorf("elsewhere: -want, +got:\n%s", diff)
	}
}
