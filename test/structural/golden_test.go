package structural

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// TestGoldenFilesAgreeWithTheServer: a server gives the results in the golden files of
// refract.dev/conversion/structural, for definitions and for created objects.
func TestGoldenFilesAgreeWithTheServer(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../conversion/structural/testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	all, group := make([]*golden, len(files)), groupOf(t)
	for i, file := range files {
		all[i] = readGolden(t, file, fmt.Sprintf("golden%d.%s", i, group))
	}
	for _, g := range all {
		if g.subject != nil {
			shared.must(t, http.MethodPost, definitions, g.crd)
		}
	}
	checked, created := 0, 0
	for _, g := range all {
		if g.crd != nil && g.subject == nil {
			checked++
		}
		created += len(g.objects)
	}
	if checked < 10 || created < 20 {
		t.Errorf("got %d definitions and %d objects for the comparison, want 10 and 20 or more", checked, created)
	}
	each(t, uint64(len(files)), func(t *testing.T, i uint64) { //nolint:thelper // This function is the test.
		t.Run(strings.TrimSuffix(filepath.Base(files[i]), ".txtar"), all[i].compare)
	})
}

// golden is an archive.
type golden struct {
	in  map[string]string
	crd map[string]any // Nil if the archive changes a definition: TestRatchetingAgreesWithTheServer covers this.
	// subject and objects are for archives with created objects: the definition, and the names of the files with
	// objects.
	subject *subject
	objects []string
}

func readGolden(t *testing.T, file, group string) *golden {
	t.Helper()
	g := &golden{in: inputs(t, file, group)}
	if g.in["old.yaml"] != "" || g.in["old-crd.yaml"] != "" {
		return g
	}
	g.crd = goldenCRD(t, g.in)
	for _, name := range slices.Sorted(maps.Keys(g.in)) {
		if strings.HasPrefix(name, "object") {
			g.objects = append(g.objects, name)
		}
	}
	if len(g.objects) > 0 {
		g.subject = newSubject(t, g.crd)
	}
	return g
}

// compare compares all results of an archive.
func (g *golden) compare(t *testing.T) {
	switch {
	case g.crd == nil:
	case g.subject == nil:
		checkGolden(t, g.crd)
	default:
		shared.served(t, g.crd)
		for _, name := range g.objects {
			createGolden(t, g.subject, name, parse(t, g.in[name]))
		}
	}
}

// inputs returns the files of an archive, with a group that no other archive uses.
func inputs(t *testing.T, file, group string) map[string]string {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range archive.Files {
		if !strings.HasPrefix(f.Name, "want/") {
			out[f.Name] = strings.ReplaceAll(string(f.Data), "example.com", group)
		}
	}
	out["group"] = group
	return out
}

// goldenCRD returns the definition of an archive.
func goldenCRD(t *testing.T, in map[string]string) map[string]any {
	t.Helper()
	if whole := in["crd.yaml"]; whole != "" {
		return parse(t, whole)
	}
	crd := definition(t, "things", in["schema.yaml"])
	spec, _ := crd["spec"].(map[string]any)
	spec["group"] = in["group"]
	metadata, _ := crd["metadata"].(map[string]any)
	metadata["name"] = "things." + in["group"]
	version, _ := list(crd, "spec", "versions")[0].(map[string]any)
	version["name"] = "v1"
	return crd
}

// checkGolden compares the verdicts on a definition. It does not compare the server's message if the object is not a
// definition or has a removed version.
func checkGolden(t *testing.T, crd map[string]any) {
	t.Helper()
	offline, live := predictCheck(crd), askCheck(t, crd)
	if live.Code == http.StatusBadRequest || live.Code == http.StatusNotFound {
		if offline.Code == http.StatusOK {
			t.Errorf("the server answers %d, Check accepts", live.Code)
		}
		return
	}
	if diff := cmp.Diff(offline, live); diff != "" {
		t.Errorf("Check and the server differ: -Check, +server:\n%s", diff)
	}
}

// createGolden compares the verdicts on an object. It ignores a generated name, which differs each time.
func createGolden(t *testing.T, s *subject, name string, obj map[string]any) {
	t.Helper()
	if namespace := text(obj, "metadata", "namespace"); s.namespace != "" && namespace != "" && namespace != s.namespace {
		t.Logf("%s: skipped, because its namespace differs from the request's", name)
		return
	}
	_, _, difference := compared(func() (offline, live verdict) {
		offline = s.predictCreate(t, obj)
		live = s.ask(t.Context(), t, http.MethodPost, s.path("")+dryRun, obj)
		if text(obj, "metadata", "generateName") != "" {
			for _, v := range []verdict{offline, live} {
				metadata, _ := v.Object["metadata"].(map[string]any)
				delete(metadata, "name")
			}
		}
		return offline, live
	})
	if difference != "" {
		t.Errorf("%s: structural and the server differ: -structural, +server:\n%s", name, difference)
	}
}
