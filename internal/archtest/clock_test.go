package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// clocks are functions of package time that ask a clock, or wait for one.
var clocks = regexp.MustCompile(`\btime\.(Now|Since|Until|Sleep|After|AfterFunc|Tick|NewTicker|NewTimer)\(`)

// TestNoClock: release knows times, and no clock.
func TestNoClock(t *testing.T) {
	files, err := filepath.Glob("../../release/*.go")
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
