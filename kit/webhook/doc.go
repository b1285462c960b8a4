// Package webhook is a kit for servers that API servers call for admission and for conversion between versions. The
// server reloads its certificates, limits the size of bodies and their memory, recovers from panics, exports metrics,
// reports readiness, and stops without dropping requests. Handlers decide the answers:
//
//   - [refract.dev/kit/webhook/conversion] answers for a CustomResourceDefinition with several versions.
//   - [refract.dev/kit/webhook/admission] sets defaults, and rejects invalid objects.
//   - [refract.dev/kit/webhook/lookup] gives a handler other objects from a cache.
//
// # A whole server
//
// The server and [Trust] each have a Start(ctx) that returns when ctx ends. A program adds them to a controller-runtime
// manager, or calls Start itself.
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
// With [Issued] the server is its own certificate authority. The certificate and the authority are in a Secret that all
// replicas share, and are renewed long before they expire. The server does not change a Secret with data of another
// owner; it then stays unready. [Trust] writes caBundle into the objects that make the API server call this server: the
// spec.conversion of a CustomResourceDefinition, and webhook configurations. API servers trust a new authority for an
// hour before it signs.
//
// With [Files] another program manages the certificates, such as cert-manager, which updates a mounted volume. Either
// [Trust] writes the content of ca.crt to the API server, or cert-manager's cainjector does, but not both.
//
// In both cases nothing restarts, and no connection is cut.
//
// # Configuration of the API server
//
// A Service forwards port 443 to the server, and the objects name the Service. The server's certificate is for
// NAME.NAMESPACE.svc:
//
//	conversion:
//	  strategy: Webhook
//	  webhook:
//	    conversionReviewVersions: [v1, v1beta1]
//	    clientConfig: {service: {namespace: pizza, name: webhook, path: /convert}}
//
// An API server on the same machine can use a URL: https://127.0.0.1:8443/convert.
//
// # Rights
//
// [Issued] needs get, watch and update on its Secret, and create on Secrets. [Trust] needs get, watch and patch on the
// named objects.
//
// # Limits
//
// The server rejects a body of more than 32 MiB (128 MiB for a conversion) with 413. All bodies together may use 256
// MiB of memory, and a part of it is reserved for bodies of single objects. A request that finds no free memory waits
// for half of the API server's timeout, and then gets 503 with Retry-After. A body must arrive within 15 seconds, and a
// request ends after 30 seconds. Handlers need memory in addition to the bodies. A conversion needs little, because its
// answer refers to the body.
//
// Any client that reaches the port can connect. An API server presents a client certificate only if it is configured
// to, and only to admission webhooks. With such an API server, [Options].ClientCAFile excludes all other clients.
// Clients that connect and send nothing, or send slowly, take no memory from other clients, except the memory of the
// connection and up to 64 KiB of received data: see [Options].InFlightBytes. The operating system and a NetworkPolicy
// limit the number of connections.
//
// # Metrics
//
//   - refract_webhook_requests_total{path, code}
//   - refract_webhook_request_duration_seconds{path}
//   - refract_webhook_requests_in_flight{path}
//   - refract_webhook_body_bytes_in_flight
//   - refract_webhook_panics_total{path}
//
// # Shutdown of a replica
//
// When its context ends, a server becomes unready, accepts connections for [Options].Drain, answers the running
// requests for up to [Options].Grace, and returns. At the same time, Kubernetes removes the pod from its Services, but
// clients learn this later. With several replicas, a Drain of 5 seconds prevents failed writes during this time.
// terminationGracePeriodSeconds must be longer than the sum of Drain and Grace.
package webhook
