// Package apiserver is a Kubernetes API server in memory, for simulations: many of them run in one process, and the
// same requests give the same answers, byte for byte. It has no goroutine, no clock and no randomness of its own: the
// caller provides times and UIDs, calls it from one goroutine at a time, and takes the events of watches one by one.
//
// It uses Kubernetes' own code where that is a library: the field manager of kube-apiserver with the schemas of the
// types for server-side apply, strategic merge patches, validation of metadata, and pruning, defaults, validation and
// CEL rules of custom resources. The remaining code follows the registry and the handlers of k8s.io/apiserver.
// [TestSameAnswers] sends the same random requests to it and to kube-apiserver, and compares answers and events.
//
// # Alternatives
//
// Other doubles, and a real API server, are not sufficient:
//   - The object tracker of client-go's fake clients has no resourceVersions, so it accepts updates of outdated objects.
//     Its watches begin with the next write, and have neither 410 Gone nor bookmarks. It has no HTTP, so transports, lost
//     answers and retries cannot be simulated.
//   - The fake client of controller-runtime checks resourceVersions, but counts them for each object. So a watch cannot
//     begin at a resourceVersion. It has no HTTP either, while Refract reads metadata of members as protobuf, in pages.
//   - The registry of k8s.io/apiserver runs handlers in goroutines, with caches that fill asynchronously, and needs an
//     etcd. It lacks the built-in types, because their defaults and validation are in k8s.io/kubernetes, and it needs
//     modules that Refract does not need. A hub and a member with kube-apiserver and etcd take six seconds to start, this
//     server takes 0.2 ms.
//   - test/simulation is a double of members for load tests: thousands of members share the stored content. It lacks the
//     features of a hub: updates, conflicts of managers, custom resources.
//
// # Built-in types
//
// Built-in types have those defaults of pods, workloads, Jobs, Services, volumes, Secrets and autoscalers that occur in
// tests. Their validation is limited to the cases that controllers meet: names, labels, finalizers and owners;
// selectors, templates, ports, and immutable fields. Services get addresses and node ports, Jobs get selectors and
// labels, the stringData of Secrets becomes data, and claims get their finalizer. Quotas, pod security, RBAC, webhooks
// and policies are left to [Server.Admit] and [Server.Mutate], and all controllers to the caller.
//
// # Differences from kube-apiserver
//
// Some differences remain:
//   - Messages quote values as JSON, where kube-apiserver prints the Go value or a diff, and they use other words for the
//     fields of selectors.
//   - A list with a resourceVersion of the future fails at once, not after three seconds.
//   - Addresses, node ports and generated names come from counters.
//   - The validation allows slightly more changes to the scheduling of a suspended Job.
//   - A write to the status of a missing Service is rejected. kube-apiserver creates the Service, without an address.
//   - The dry run of a deletion that removes the last finalizer returns the object; kube-apiserver returns an empty one.
//   - Unknown fields are dropped without a warning, whatever fieldValidation says. There is no OpenAPI, no Table, and no
//     conversion of custom resources except that of apiVersion.
//   - Events of events.k8s.io and of v1 are different objects.
//   - A function of the caller answers TokenRequests, and discovery does not list them.
package apiserver
