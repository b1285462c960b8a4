package schema

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// misspelt is an example with an unknown field on purpose.
const misspelt = "evolution/schemas/misspelt.yaml"

// TestExamples checks the example manifests of the documentation.
func TestExamples(t *testing.T) {
	s := newSchemas(t)
	known := 0
	folder := os.DirFS("../../../examples")
	err := fs.WalkDir(folder, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		f, err := folder.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		for r := utilyaml.NewYAMLReader(bufio.NewReader(f)); ; {
			document, err := r.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			object := parse(t, string(document))
			if s.root(schema.FromAPIVersionAndKind(object["apiVersion"].(string), object["kind"].(string))) != nil {
				known++
			}
			if found := s.Check(object); (found != nil) != (path == misspelt) {
				t.Errorf("%s: %v", path, found)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if known == 0 {
		t.Error("there is no example of a kind of Kubernetes")
	}
}

// TestConcurrent uses one Schemas from many goroutines, for the race detector.
func TestConcurrent(t *testing.T) {
	s := newSchemas(t, widgets)
	var group sync.WaitGroup
	for range 8 {
		for _, text := range right {
			object := parse(t, text)
			group.Go(func() {
				if found := s.Check(object); found != nil {
					t.Error(found)
				}
			})
		}
	}
	group.Wait()
}

// FuzzCheck verifies for arbitrary objects that Check does not panic, does not modify the object, and returns the same
// result again.
func FuzzCheck(f *testing.F) {
	for _, text := range right {
		f.Add([]byte(text))
	}
	f.Add([]byte(widgets))
	f.Add([]byte(widget(`, ratio: 1e300, tags: [null, [], {}], parts: [1, null, {}], source: [], some: 1, template: []`)))
	s := newSchemas(f, widgets)
	f.Fuzz(func(t *testing.T, data []byte) {
		data, err := utilyaml.ToJSON(data)
		if err != nil {
			return
		}
		var object map[string]any
		if utiljson.Unmarshal(data, &object) != nil {
			return
		}
		before := runtime.DeepCopyJSON(object)
		found := s.Check(object)
		if diff := cmp.Diff(before, object); diff != "" {
			t.Errorf("Check() changed its input: -before, +after:\n%s", diff)
		}
		if diff := cmp.Diff(found, s.Check(object)); diff != "" {
			t.Errorf("Check() says something else again: -first, +again:\n%s", diff)
		}
	})
}

func BenchmarkCheckDeployment(b *testing.B) {
	s := newSchemas(b)
	object := parse(b, right["Deployment"])
	s.Check(object)
	b.ReportAllocs()
	for b.Loop() {
		if found := s.Check(object); found != nil {
			b.Fatal(found)
		}
	}
}

// BenchmarkFirstUse measures the first check of a Deployment, which decodes all of its types.
func BenchmarkFirstUse(b *testing.B) {
	object := parse(b, right["Deployment"])
	b.ReportAllocs()
	for b.Loop() {
		s, _ := New(nil)
		s.Check(object)
	}
}
