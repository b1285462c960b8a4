package member

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// nativesListed is how many objects of a type are listed to find one that
// Kubernetes did not put into the namespace itself: it puts few of each type.
const nativesListed = 20

// NamespaceEmpty reports whether nothing is in the namespace on the member but
// what Kubernetes puts into each. It is an error if a type cannot be listed, as
// nobody knows then.
func (m *Member) NamespaceEmpty(ctx context.Context, ns string) (bool, error) {
	types, doubtful, err := m.discover(ctx)
	if err != nil {
		return false, err
	}
	for group := range doubtful {
		return false, fmt.Errorf("looking into namespace %s: API group %s: %w", ns, group, errUndiscovered)
	}
	for _, t := range types {
		// What cannot be deleted is not stored there: measurements of pods, for example.
		if !t.namespaced || !slices.Contains(t.verbs, "list") || !slices.Contains(t.verbs, "delete") || isEvent(t.GroupResource()) {
			continue
		}
		var found *metav1.PartialObjectMetadataList
		err := m.read(ctx, action{"list", t.GroupResource(), ns}, func(ctx context.Context) (err error) {
			found, err = m.client.Resource(t.GroupVersionResource).Namespace(ns).List(ctx, metav1.ListOptions{Limit: nativesListed})
			return err
		})
		if apierrors.IsNotFound(err) {
			continue // The type went away since it was discovered.
		}
		if err != nil {
			return false, fmt.Errorf("looking into namespace %s: listing %s: %w", ns, t.GroupResource(), err)
		}
		foreign := func(o metav1.PartialObjectMetadata) bool { return !isNative(t.GroupResource(), &o) }
		if found.Continue != "" || slices.ContainsFunc(found.Items, foreign) {
			return false, nil
		}
	}
	return true, nil
}

func isEvent(r schema.GroupResource) bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

// isNative reports whether Kubernetes puts such an object into each namespace.
func isNative(r schema.GroupResource, o metav1.Object) bool {
	if r.Group != "" {
		return false
	}
	switch r.Resource {
	case "serviceaccounts":
		return o.GetName() == "default"
	case "configmaps":
		return o.GetName() == "kube-root-ca.crt"
	case "secrets": // Of Kubernetes before 1.24.
		return o.GetAnnotations()[corev1.ServiceAccountNameKey] == "default"
	default:
		return false
	}
}
