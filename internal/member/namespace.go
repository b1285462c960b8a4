package member

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/output"
	"refract.dev/internal/rescue"
	"refract.dev/placement"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// namespacesListed is how many namespaces are listed at a time.
const namespacesListed = 500

// Namespace is what is known of a namespace on a member.
type Namespace struct {
	Copy

	Name   string
	Labels map[string]string
	// Own are the labels that nobody but Refract has set.
	Own map[string]bool
	// RemoveAfter is when Refract may delete it; zero if it has no valid mark of that.
	RemoveAfter time.Time
	// Marked is whether it has a mark, valid or not.
	Marked bool
	// Shared is whether somebody else has a hand in it: by a label, an annotation, an
	// owner or a finalizer.
	Shared bool
}

// Namespace reads a namespace.
func (m *Member) Namespace(ctx context.Context, name string) (Namespace, error) {
	var got *metav1.PartialObjectMetadata
	err := m.read(ctx, action{"get", namespaces.GroupResource(), ""}, func(ctx context.Context) (err error) {
		got, err = m.client.Resource(namespaces).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return Namespace{}, err
	}
	return m.hooks.namespaceOf(got)
}

// EachNamespace calls f for every namespace that there is. What cannot be the name of one is
// passed over. It is a [LimitError] if there are too many.
func (m *Member) EachNamespace(ctx context.Context, f func(Namespace)) error {
	n := 0
	next := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		var page *metav1.PartialObjectMetadataList
		err := m.read(ctx, action{"list", namespaces.GroupResource(), ""}, func(ctx context.Context) (err error) {
			page, err = m.client.Resource(namespaces).List(ctx, o)
			return err
		})
		return page, err
	}
	_, err := m.hooks.pages(ctx, namespaces.GroupResource(), metav1.ListOptions{Limit: namespacesListed}, next, func(page runtime.Object) error {
		return meta.EachListItem(page, func(obj runtime.Object) error {
			o, ok := obj.(*metav1.PartialObjectMetadata)
			if !ok || o.Name == "" || len(o.Name) > mostNamespace {
				return nil
			}
			if n++; n > mostNamespaces {
				return m.hooks.excess("namespaces", mostNamespaces)
			}
			ns, err := m.hooks.namespaceOf(o)
			if err != nil {
				return nil //nolint:nilerr // Nobody knows whose it is, and so it is nobody's of ours.
			}
			f(ns)
			return nil
		})
	})
	return err
}

// PatchNamespace changes a namespace by a JSON merge patch, which has to name the version
// that it is for.
func (m *Member) PatchNamespace(ctx context.Context, name string, mergePatch []byte) error {
	return m.Patch(ctx, namespaces, types.NamespacedName{Name: name}, mergePatch)
}

// namespaceOf reads what a member answers about a namespace.
func (h hooks) namespaceOf(o *metav1.PartialObjectMetadata) (n Namespace, err error) {
	defer rescue.To(&err, h.log, "reading a namespace", "name", o.Name)
	n = Namespace{
		Copy: copyOf(o, namespaces.GroupResource(), nil), Name: o.Name, Labels: o.Labels, Own: map[string]bool{},
		Shared: len(o.OwnerReferences)+len(o.Finalizers) > 0,
	}
	if n.Fault != "" {
		return Namespace{}, fmt.Errorf("namespace %s: %s", output.Cut(o.Name, mostMessage), n.Fault)
	}
	sole := soleOwner(o.ManagedFields)
	for label := range o.Labels {
		n.Own[label] = sole("labels", label)
		n.Shared = n.Shared || (!n.Own[label] && label != corev1.LabelMetadataName)
	}
	for annotation := range o.Annotations {
		n.Shared = n.Shared || !sole("annotations", annotation)
	}
	mark, marked := o.Annotations[refractv1alpha1.RemoveAfterAnnotation]
	n.Marked = marked
	n.RemoveAfter, _ = time.Parse(time.RFC3339, mark) // Zero if it is none.
	return n, nil
}

// soleOwner returns what reports whether nobody but Refract manages a label or an
// annotation. It is a table, as who answers may name many managers, labels and fields.
func soleOwner(managers []metav1.ManagedFieldsEntry) func(member, key string) bool {
	type place struct{ member, key string }
	own, others := map[place]bool{}, map[place]bool{}
	unread, size := false, 0
	for i := range managers {
		e := &managers[i]
		if e.FieldsV1 == nil {
			continue
		}
		of := others
		if e.Manager == FieldManager {
			of = own
		}
		raw := e.FieldsV1.GetRawBytes()
		s := &fieldpath.Set{}
		if size += len(raw); size > mostFields || s.FromJSON(bytes.NewReader(raw)) != nil {
			unread = true // Of what cannot be read nobody knows whose it is.
			break
		}
		for _, member := range []string{"labels", "annotations"} {
			fields := s.WithPrefix(element("metadata")).WithPrefix(element(member))
			fields.Members.Iterate(func(pe fieldpath.PathElement) {
				if pe.FieldName != nil {
					of[place{member, *pe.FieldName}] = true
				}
			})
		}
	}
	return func(member, key string) bool {
		at := place{member, key}
		return !unread && own[at] && !others[at]
	}
}

// element is the part of a path that is a field.
func element(field string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &field} }

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
