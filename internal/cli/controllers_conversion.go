package cli

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"refract.dev/internal/controller/conversion"
)

// conversionLease is the Lease of the replica that has policies take effect; every
// replica converts.
const conversionLease = "refract-conversion"

// conversionSecret has the certificates of a program that does nothing but convert: it
// may run beside one that injects, behind another Service.
const conversionSecret = "refract-conversion-webhook" //nolint:gosec // It is a name.

// secret returns the name of the Secret with the webhook's certificates; empty for the
// usual one.
func (c *controllers) secret() string {
	if c.conversion && !c.injection && !c.propagation {
		return conversionSecret
	}
	return ""
}

// convert registers what converts custom resources of the cluster.
func (c *controllers) convert(ctx context.Context, mgr ctrl.Manager, s *served) (*conversion.Service, error) {
	converts, err := conversion.Setup(ctx, mgr, conversion.Options{Server: s.server, Client: s.live, Log: c.log.WithName("conversion"), Now: c.clock.Now})
	if err != nil {
		return nil, fmt.Errorf("setting up the conversion: %w", err)
	}
	if c.propagation || c.injection {
		return converts, nil // Which says when it has begun.
	}
	return converts, mgr.Add(everywhere(func(context.Context) error {
		if c.started != nil {
			c.started()
		}
		return nil
	}))
}
