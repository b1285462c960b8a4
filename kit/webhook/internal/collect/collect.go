// Package collect registers Prometheus collectors that several parts of a program share.
package collect

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers and returns the collector. If the registry already has an equal collector, for example of another
// server in the same process, Register returns that one, and both servers share its counts. A nil Registerer registers
// nothing.
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
