package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// clocks matches calls of functions in package time that read a clock or wait.
var clocks = regexp.MustCompile(`\btime\.(Now|Since|Until|Sleep|After|AfterFunc|Tick|NewTicker|NewTimer)\(`)

// TestNoClock checks that the package rollout compares times but reads no clock.
func TestNoClock(t *testing.T) {
	files, err := filepath.Glob("../../fleet/policy/rollout/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("want the files of release, got %v, %v", files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if at := clocks.FindString(string(text)); at != "" {
			t.Errorf("%s: %s asks a clock: pass a time in", file, at)
		}
	}
}
