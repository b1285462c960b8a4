package cli

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"refract.dev/conversion/converter"
)

// conversionLease is the Lease of the replica that activates ConversionPolicies. All replicas convert.
const conversionLease = "refract-conversion"

// conversionSecret has the webhook's certificates if the process only converts. Another process may inject in the same
// cluster. It has another Service, so it needs another certificate.
const conversionSecret = "refract-conversion-webhook" //nolint:gosec // It is a name.

// secret returns the name of the Secret with the webhook's certificates; empty for the default name.
func (c *controllers) secret() string {
	if c.conversion && !c.injection && !c.propagation {
		return conversionSecret
	}
	return ""
}

// convert registers the conversion of the cluster's custom resources.
func (c *controllers) convert(ctx context.Context, mgr ctrl.Manager, s *served) (*converter.Service, error) {
	converts, err := converter.Setup(ctx, mgr, converter.Options{Server: s.server, Client: s.live, Log: c.log.WithName("conversion"), Now: c.clock.Now})
	if err != nil {
		return nil, fmt.Errorf("setting up the conversion: %w", err)
	}
	if c.propagation || c.injection {
		return converts, nil // Propagation or injection calls started.
	}
	return converts, mgr.Add(everywhere(func(context.Context) error {
		if c.started != nil {
			c.started()
		}
		return nil
	}))
}
