// Package collect registers collectors of metrics that several parts of one program
// share.
package collect

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Register returns the collector, or the one just like it that is registered
// already, as for another server of the same process: they count together. A nil
// Registerer registers nothing.
func Register[C prometheus.Collector](r prometheus.Registerer, c C) (C, error) {
	if r == nil {
		return c, nil
	}
	err := r.Register(c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if there, ok := already.ExistingCollector.(C); ok {
			return there, nil
		}
	}
	if err != nil {
		return c, fmt.Errorf("registering metrics: %w", err)
	}
	return c, nil
}
