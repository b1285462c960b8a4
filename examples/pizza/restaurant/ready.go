package restaurant

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// patience is the time for which a server that does not know the toppings yet is not ready. The toppings are usually
// known within this time, so that no pizza is rejected because they are missing.
const patience = 10 * time.Second

// patient returns a function that calls ready, but returns nil once the limit has passed since the call of patient.
// Then the log once names the missing part.
//
// Conversion needs no toppings. If the server waited for them, a missing definition or role would remove the server
// from its Service, and every read of a pizza in a version that is not stored would fail. Admission checks by itself:
// until the toppings are known it has no answer, and the failurePolicy decides.
func patient(ready func() error, limit time.Duration, log logr.Logger) func() error {
	begun := time.Now()
	var told sync.Once
	return func() error {
		err := ready()
		if err == nil || time.Since(begun) < limit {
			return err
		}
		told.Do(func() { log.Error(err, "Ready for conversion only: whether a topping is known cannot be said") })
		return nil
	}
}
