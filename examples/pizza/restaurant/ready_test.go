package restaurant

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
)

// TestPatient verifies that missing toppings delay readiness only for a limited time, so that conversion is available
// without them.
func TestPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		missing := errors.New("informers not ready")
		err := missing
		ready := patient(func() error { return err }, patience, log)

		<-time.After(patience - time.Nanosecond)
		if got := ready(); !errors.Is(got, missing) {
			t.Errorf("before its patience ends it is ready: %v", got)
		}
		err = nil
		if got := ready(); got != nil {
			t.Errorf("with the toppings it is not ready: %v", got)
		}
		err = missing
		<-time.After(time.Nanosecond)
		for range 2 {
			if got := ready(); got != nil {
				t.Errorf("when its patience has ended it is not ready: %v", got)
			}
		}
		if len(lines) != 1 || !strings.Contains(lines[0], "informers not ready") {
			t.Errorf("the log has %q, want one line that says why", lines)
		}
	})
}
