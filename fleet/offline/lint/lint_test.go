package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
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

const wantFile = "want.txt"

// TestMistakes lints the fleet of testdata/fleet.txt, in which the files of each archive replace those of the same
// name. An archive with a name that begins with "clean" has no mistake, and "several" stands for more than one. Every
// other archive has exactly one mistake, which must be found once.
func TestMistakes(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) []txtar.File {
		result := Lint(manifest.ReadFS(fleetWith(t, archive)))
		wanted := 1
		switch {
		case strings.Contains(t.Name(), "/clean"):
			wanted = 0
		case strings.Contains(t.Name(), "/several"):
			wanted = max(len(result.Findings), 2)
		}
		if len(result.Findings) != wanted {
			t.Errorf("%s%d findings, want %d", archive.Comment, len(result.Findings), wanted)
		}
		var text bytes.Buffer
		if err := WriteText(&text, result); err != nil {
			t.Fatal(err)
		}
		checkJSON(t, result)
		checkSARIF(t, result)
		return []txtar.File{{Name: wantFile, Data: text.Bytes()}}
	})
}

// archives returns the archives in testdata, by name.
func archives(t *testing.T) map[string]*txtar.Archive {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no archives in testdata: %v", err)
	}
	all := make(map[string]*txtar.Archive, len(files))
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".txtar")] = archive
	}
	return all
}

// fleetWith returns the fleet with the files of the archive.
func fleetWith(t *testing.T, archive *txtar.Archive) fstest.MapFS {
	t.Helper()
	fleet, err := txtar.ParseFile("testdata/fleet.txt")
	if err != nil {
		t.Fatal(err)
	}
	return golden.FS(append(fleet.Files, golden.Inputs(archive)...))
}

func checkJSON(t *testing.T, r *Result) {
	t.Helper()
	var text bytes.Buffer
	if err := WriteJSON(&text, r); err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal(text.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, &back); diff != "" {
		t.Errorf("written as JSON and read again: -want, +got:\n%s", diff)
	}
}

// TestCodes verifies that each code is explained once, and that an archive has a finding with the code.
func TestCodes(t *testing.T) {
	found := map[Code]bool{RuleFails: true} // The code is for future errors.
	for _, archive := range archives(t) {
		for _, f := range Lint(manifest.ReadFS(fleetWith(t, archive))).Findings {
			found[f.Code] = true
		}
	}
	explained := map[Code]bool{}
	for _, c := range Codes {
		if explained[c.Code] || c.Title == "" || !strings.HasSuffix(c.Text, ".") {
			t.Errorf("%s has two explanations, or an incomplete one", c.Code)
		}
		explained[c.Code] = true
		if !found[c.Code] {
			t.Errorf("%s: no archive has a mistake with this code", c.Code)
		}
	}
	for code := range found {
		if !explained[code] {
			t.Errorf("%s has no explanation", code)
		}
	}
}

// TestFingerprints moves all lines of a fleet, and verifies that the fingerprints of the findings do not change.
func TestFingerprints(t *testing.T) {
	for name, archive := range archives(t) {
		if name == "syntax" {
			continue // Only the line of this mistake is known.
		}
		files := fleetWith(t, archive)
		before := Lint(manifest.ReadFS(files))
		for _, f := range files {
			f.Data = append([]byte("# Another line.\n"), f.Data...)
		}
		after := Lint(manifest.ReadFS(files))
		for i := range before.Findings {
			a, b := &before.Findings[i], &after.Findings[i]
			if a.Place == b.Place || fingerprintOf(a) != fingerprintOf(b) {
				t.Errorf("%s: line %d and then %d, fingerprint %s and then %s", name, a.Place.Line, b.Place.Line, fingerprintOf(a), fingerprintOf(b))
			}
		}
	}
}

// TestEachIsAskedAgain verifies that a canceled lint ends soon and has no result. In this input the last item hides the
// changes of all others, and the proof that none of them is needed takes long.
func TestEachIsAskedAgain(t *testing.T) {
	const items = 200
	text := "apiVersion: core.kubeadmiral.io/v1alpha1\nkind: ClusterOverridePolicy\nmetadata: {name: many}\nspec:\n  overrideRules:\n  - overriders:\n      jsonpatch:\n" +
		strings.Repeat("      - {path: /data/x, value: a}\n      - {path: /data/x, value: b}\n", items/2) +
		"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop, labels: {" +
		"kubeadmiral.io/cluster-propagation-policy-name: everywhere, kubeadmiral.io/cluster-override-policy-name: many}}, data: {x: b}}\n" +
		"---\n{apiVersion: core.kubeadmiral.io/v1alpha1, kind: ClusterPropagationPolicy, metadata: {name: everywhere}, spec: {schedulingMode: Duplicate}}\n" +
		"---\n{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: one}}\n"
	set, problems := manifest.ReadFS(fstest.MapFS{"many.yaml": {Data: []byte(text)}})
	asked := 0
	result, err := Each(set, problems, func(*render.Outcome) error { asked++; return nil })
	if err != nil || asked < items || len(result.Findings) < items-1 {
		t.Fatalf("want a call of each for every one of %d items, and a finding for all but the last; got %d calls, %d findings, %v", items, asked, len(result.Findings), err)
	}
	over, after := errors.New("nobody waits"), 0
	result, err = Each(set, problems, func(*render.Outcome) error {
		if asked--; asked > items/2 {
			return nil
		}
		after++
		return over
	})
	if !errors.Is(err, over) || result != nil || after > items {
		t.Errorf("want no result and %v, after few more calls of each; got %v, %v, %d", over, result, err, after)
	}
}

// TestNulls replaces each value of the fleet by null in turn. A missing value that is formatted by mistake shows up as
// %!s(<nil>) in a message.
func TestNulls(t *testing.T) {
	fleet, err := txtar.ParseFile("testdata/fleet.txt")
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range fleet.Files {
		lines := strings.Split(string(file.Data), "\n")
		for j, line := range lines {
			key, value, ok := strings.Cut(line, ": ")
			if !ok || strings.Contains(key, "{") {
				continue
			}
			changed := slices.Clone(lines)
			changed[j] = key + ": null"
			files := slices.Clone(fleet.Files)
			files[i].Data = []byte(strings.Join(changed, "\n"))
			var text bytes.Buffer
			if err := WriteText(&text, Lint(manifest.ReadFS(golden.FS(files)))); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text.String(), "%!") || strings.Contains(text.String(), "<nil>") {
				t.Errorf("%s:%d: with null instead of %s, a message formats a missing value:\n%s", file.Name, j+1, value, text.String())
			}
		}
	}
}
