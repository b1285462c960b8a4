package restaurant

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// patience is how long a server that does not know the toppings yet is not ready.
// Usually they are there within it, and no pizza is refused for want of them.
const patience = 10 * time.Second

// patient returns ready, but nil once this much time has passed since the call. The log
// then says once what is missing.
//
// Conversion needs no toppings. If it waited for them, a missing definition or role
// would take the server out of its Service, and with it every read of a pizza in a
// version that is not stored. Admission looks for itself: until the toppings are known
// it has no answer, and the failurePolicy decides.
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
