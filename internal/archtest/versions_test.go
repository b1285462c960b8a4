package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// required matches the path and version of a requirement in go.mod.
var required = regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`)

// TestOneVersionOfEach checks that the control planes and Refract use the same version of each common module, so that
// each module is compiled only once.
func TestOneVersionOfEach(t *testing.T) {
	ours, theirs := requirements(t, "go.mod"), requirements(t, "controlplane/go.mod")
	both := 0
	for path, version := range ours {
		switch their := theirs[path]; their {
		case "", "v0.0.0": // The module is replaced. A comment in controlplane/go.mod has the reason.
		case version:
			both++
		default:
			t.Errorf("go.mod has %s %s and controlplane/go.mod %s: run `go get %[1]s@VERSION` where it is older", path, version, their)
		}
	}
	if both < 50 {
		t.Errorf("The two have %d modules in common: they are not read well.", both)
	}
}

func requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, m := range required.FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = m[2]
	}
	return all
}
