package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDemo runs the demo in a folder of its own: it compares every copy with
// what refract render says, and must leave nothing behind.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	out, err := shared.RefractIn(dir, "demo", "--once", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Objects []struct {
			Object struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"object"`
			Clusters []struct {
				Name string `json:"name"`
			} `json:"clusters"`
		} `json:"objects"`
		RollBack struct {
			Right bool `json:"right"`
		} `json:"rollBack"`
		Right bool `json:"right"`
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatal(err)
	}
	if !result.Right || !result.RollBack.Right || len(result.Objects) < 7 {
		t.Errorf("demo: want at least 7 objects, all right before and after the roll-back, got %s", out)
	}
	for _, o := range result.Objects {
		if len(o.Clusters) != 3 {
			t.Errorf("%s %s: want it on 3 clusters, got %d", o.Object.Kind, o.Object.Name, len(o.Clusters))
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("the demo left %s behind", left[0].Name())
	}
	// Its components work in its folder.
	processes, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if cwd, err := os.Readlink(p); err == nil && strings.HasPrefix(cwd, dir) {
			t.Errorf("the demo left process %s behind, in %s", filepath.Base(filepath.Dir(p)), cwd)
		}
	}
}
