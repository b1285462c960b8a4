package member

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/placement"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// nativesListed is how many objects of a type are listed to find one that
// Kubernetes did not put into the namespace itself: it puts few of each type.
const nativesListed = 20

// NamespaceEmpty reports whether nothing is in the namespace on the member but
// what Kubernetes puts into each. It is an error if nothing else was found and a type
// could not be listed, as nobody knows then: [apierrors.IsForbidden] if the
// credentials may not, which [Set] reports in the condition Authorized.
func (m *Member) NamespaceEmpty(ctx context.Context, ns string) (bool, error) {
	types, doubtful, err := m.discover(ctx)
	if err != nil {
		return false, err
	}
	for group := range doubtful {
		return false, fmt.Errorf("looking into namespace %s: API group %s: %w", ns, group, errUndiscovered)
	}
	refused := map[action]error{}
	for _, t := range types {
		// What cannot be deleted is not stored there: measurements of pods, for example.
		if !t.namespaced || !slices.Contains(t.verbs, "list") || !slices.Contains(t.verbs, "delete") || isEvent(t.GroupResource()) {
			continue
		}
		var found *metav1.PartialObjectMetadataList
		err := m.request(ctx, func(ctx context.Context) (err error) {
			found, err = m.client.Resource(t.GroupVersionResource).Namespace(ns).List(ctx, metav1.ListOptions{Limit: nativesListed})
			return err
		})
		foreign := func(o metav1.PartialObjectMetadata) bool { return !isNative(t.GroupResource(), &o) }
		switch {
		case apierrors.IsNotFound(err): // The type went away since it was discovered.
		case apierrors.IsForbidden(err):
			refused[action{"list", t.GroupResource(), ns}] = err
		case err != nil:
			return false, fmt.Errorf("looking into namespace %s: listing %s: %w", ns, t.GroupResource(), err)
		case found.Continue != "" || slices.ContainsFunc(found.Items, foreign):
			return false, nil
		}
	}
	for a, denied := range refused {
		m.rights.note(a, denied) // Now that it would have made a difference.
		err = fmt.Errorf("looking into namespace %s: listing %s: %w", ns, a.resource, denied)
	}
	return err == nil, err
}

func isEvent(r schema.GroupResource) bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

// isNative reports whether Kubernetes puts such an object into each namespace.
func isNative(r schema.GroupResource, o metav1.Object) bool {
	if r.Group != "" {
		return false
	}
	if r.Resource == "secrets" { // Of Kubernetes before 1.24.
		return o.GetAnnotations()[corev1.ServiceAccountNameKey] == "default"
	}
	return placement.Native(r, o) != ""
}
