// Package webhook is a kit for servers that an API server asks: about what is
// written (admission), and for objects in another version (conversion). It listens
// with certificates that reload, limits what is read and held, survives panics,
// counts, says whether it is ready, and ends without dropping a request. What is
// answered is for handlers to say:
//
//   - [refract.dev/webhook/conversion] answers for a CustomResourceDefinition with
//     several versions.
//   - [refract.dev/webhook/admission] sets defaults, and refuses what is not valid.
//   - [refract.dev/webhook/lookup] tells a handler what else there is, from a cache.
//
// # A whole server
//
// A program has a controller-runtime manager run the parts, or runs them itself: each
// has a Start(ctx) that returns when ctx ends.
//
//	certificates := webhook.Issued(live, secret, []string{"webhook.pizza.svc"}, webhook.IssuedOptions{Log: log})
//	server, err := webhook.New(webhook.Options{BindAddress: ":8443", Certificates: certificates, Log: log, Metrics: metrics.Registry})
//	...
//	server.Handle("/convert", conversion.Handler(engine, conversion.Options{Log: log, Metrics: metrics.Registry}))
//	server.Handle("/validate", admission.Validating(rules...))
//	server.AddReadiness("toppings", synced)
//	trust := webhook.Trust(live, certificates, webhook.Targets{CRDs: []string{"pizzas.restaurant.example"}, Validating: []string{"restaurant"}}, log)
//	err = errors.Join(mgr.Add(server), mgr.Add(trust), mgr.AddReadyzCheck("webhook", func(*http.Request) error { return server.Ready() }))
//
// The example of this package is such a program.
//
// # Certificates
//
// With [Issued] the server is its own authority: certificate and authority lie in a
// Secret that all replicas share, and are renewed long before they expire. The Secret
// is the server's own: one with something else in it is left as it is, and the server
// is not ready. [Trust]
// tells the API server, in the objects that have it ask: caBundle of a
// CustomResourceDefinition's spec.conversion and of webhook configurations. A new
// authority is trusted for an hour before it signs.
//
// With [Files] somebody else keeps them, such as cert-manager by way of a volume.
// [Trust] can tell the API server what is in ca.crt, or cert-manager's cainjector
// does: not both.
//
// In either case nothing restarts, and no connection is cut.
//
// # What the API server must be told
//
// A Service forwards port 443 to the server, and the objects name it. The server's
// certificate is for NAME.NAMESPACE.svc:
//
//	conversion:
//	  strategy: Webhook
//	  webhook:
//	    conversionReviewVersions: [v1, v1beta1]
//	    clientConfig: {service: {namespace: pizza, name: webhook, path: /convert}}
//
// An API server on the same machine can be given a URL: https://127.0.0.1:8443/convert.
//
// # Rights
//
// For [Issued]: get, watch and update on the one Secret, and create on Secrets. For
// [Trust]: get, watch and patch on the named objects.
//
// # Limits
//
// A body of more than 32 MiB (128 MiB for a conversion) is refused with 413. Bodies
// of more than 256 MiB together wait for half of the time that the API server gives
// them, and are refused with 503 and Retry-After; those of single objects have room
// of their own. A body must come in within 15 seconds, a request ends after 30.
// Handlers take memory beside the bodies, a conversion little: it answers from the
// body.
//
// Whoever reaches the port may connect: an API server does not say who it is unless
// it is configured to, and can be for admission alone. Then [Options].ClientCAFile
// keeps everybody else out. Those who connect and send nothing, or slowly, take no room
// from others, but for what a connection itself takes, and up to 64 KiB of what has
// come: see [Options].InFlightBytes. How many connections there may be is for the
// operating system and a NetworkPolicy to say.
//
// # Metrics
//
//   - refract_webhook_requests_total{path, code}
//   - refract_webhook_request_duration_seconds{path}
//   - refract_webhook_requests_in_flight{path}
//   - refract_webhook_body_bytes_in_flight
//   - refract_webhook_panics_total{path}
//
// # The end of a replica
//
// When its context ends, a server is no longer ready, takes connections for
// [Options].Drain, answers what it was asked, for up to [Options].Grace, and returns.
// Kubernetes tells a pod to end at the same time as those who ask it: with several
// replicas a Drain of 5 seconds keeps writes from failing meanwhile.
// terminationGracePeriodSeconds must be longer than both together.
package webhook
