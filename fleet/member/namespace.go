package member

import (
	"bytes"
	"context"
	"encoding/json"
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
	"refract.dev/fleet/policy/placement"
	"refract.dev/internal/output"
	"refract.dev/internal/rescue"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// namespacesListed is the number of namespaces in a page of a list.
const namespacesListed = 500

// Namespace is the known state of a namespace on a member.
type Namespace struct {
	Copy

	Name   string
	Labels map[string]string
	// Own are the labels that only Refract has set.
	Own map[string]bool
	// RemoveAfter is the time after which Refract may delete the namespace; zero if there is no valid mark with a time.
	RemoveAfter time.Time
	// Marked is whether the namespace has this mark, valid or not.
	Marked bool
	// Shared is whether another writer has set a label, an annotation, an owner or a finalizer.
	Shared bool
}

// Namespaces reads and changes the namespaces of a member. Each call makes at least one request, and no result is
// remembered.
type Namespaces struct {
	api    *connection
	decode decoder
}

// Get reads a namespace.
func (n *Namespaces) Get(ctx context.Context, name string) (Namespace, error) {
	got, err := n.api.get(ctx, namespaces, types.NamespacedName{Name: name})
	if err != nil {
		return Namespace{}, err
	}
	return n.decode.namespaceOf(got)
}

// Each calls f for every namespace on the member. It skips names that a namespace cannot have, and namespaces that
// cannot be read. The error is a [LimitError] if there are too many.
func (n *Namespaces) Each(ctx context.Context, f func(Namespace)) error {
	count := 0
	limits := n.api.limits
	next := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return n.api.list(ctx, namespaces, o)
	}
	_, err := limits.pages(ctx, namespaces.GroupResource(), metav1.ListOptions{Limit: namespacesListed}, next, func(page runtime.Object) error {
		return meta.EachListItem(page, func(obj runtime.Object) error {
			o, ok := obj.(*metav1.PartialObjectMetadata)
			if !ok || o.Name == "" || len(o.Name) > mostNamespace {
				return nil
			}
			if count++; count > mostNamespaces {
				return limits.excess.over("namespaces", mostNamespaces)
			}
			ns, err := n.decode.namespaceOf(o)
			if err != nil {
				return nil //nolint:nilerr // The owner of an unreadable namespace is unknown, so it does not count as Refract's.
			}
			f(ns)
			return nil
		})
	})
	return err
}

// Create creates a namespace for copies, with the labels and a mark that names the hub. An existing namespace is not
// changed.
func (n *Namespaces) Create(ctx context.Context, name, hub string, labels map[string]string) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "Namespace",
		"metadata": map[string]any{
			"name":        name,
			"labels":      labels,
			"annotations": map[string]string{refractv1alpha1.NamespaceAnnotation: hub},
		},
	})
	if err != nil {
		return err
	}
	err = n.api.write(ctx, action{"create", namespaces.GroupResource(), ""}, func(ctx context.Context) error {
		return n.api.rest.Post().AbsPath("/api/v1/namespaces").Param("fieldManager", FieldManager).
			SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Patch changes a namespace by a JSON merge patch. The patch must contain the resourceVersion of the namespace.
func (n *Namespaces) Patch(ctx context.Context, name string, mergePatch []byte) error {
	_, err := n.api.patch(ctx, namespaces, types.NamespacedName{Name: name}, types.MergePatchType, mergePatch, metav1.PatchOptions{FieldManager: FieldManager})
	return err
}

// Delete begins the deletion of a namespace if it still has this UID and version. Otherwise found is false, without an
// error.
func (n *Namespaces) Delete(ctx context.Context, name string, uid types.UID, resourceVersion string) (found bool, err error) {
	return n.api.delete(ctx, namespaces, types.NamespacedName{Name: name}, metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion})
}

// namespaceOf reads a member's answer about a namespace.
func (d decoder) namespaceOf(o *metav1.PartialObjectMetadata) (n Namespace, err error) {
	defer rescue.To(&err, d.log, "reading a namespace", "name", o.Name)
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
	n.RemoveAfter, _ = time.Parse(time.RFC3339, mark) // Zero without a valid mark.
	return n, nil
}

// soleOwner returns a function that reports whether Refract is the only manager of a label or an annotation. The
// function uses a table, because an answer may have many managers, labels and fields.
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
			unread = true // The owner of unreadable fields is not known.
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

// element is the path element of a field.
func element(field string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &field} }

// nativesListed is the number of objects of a type that are listed to find one that Kubernetes did not create:
// Kubernetes creates few objects of each type in a namespace.
const nativesListed = 20

// Empty reports whether the namespace on the member has only objects that Kubernetes creates in each namespace. If
// nothing else was found, but a type could not be listed, the answer is not known, and Empty returns an error. The
// error is [apierrors.IsForbidden] if the credentials lack the right, which [Set] reports in the condition Authorized.
func (n *Namespaces) Empty(ctx context.Context, ns string) (bool, error) {
	found, doubtful, err := n.api.discover(ctx)
	if err != nil {
		return false, err
	}
	for group := range doubtful {
		return false, fmt.Errorf("checking namespace %s: API group %s: %w", ns, group, errUndiscovered)
	}
	refused := map[action]error{}
	for _, t := range found {
		// Objects that cannot be deleted, such as the metrics of Pods, are not stored in the namespace.
		if !t.Namespaced || !slices.Contains(t.Verbs, "list") || !slices.Contains(t.Verbs, "delete") || isEvent(t.GroupResource()) {
			continue
		}
		var list *metav1.PartialObjectMetadataList
		err := n.api.request(ctx, func(ctx context.Context) (err error) {
			list, err = n.api.metadata.list(ctx, t.GroupVersionResource, ns, metav1.ListOptions{Limit: nativesListed})
			return err
		})
		foreign := func(o metav1.PartialObjectMetadata) bool { return !isNative(t.GroupResource(), &o) }
		switch {
		case apierrors.IsNotFound(err): // The type was removed after the discovery.
		case apierrors.IsForbidden(err):
			refused[action{"list", t.GroupResource(), ns}] = err
		case err != nil:
			return false, fmt.Errorf("checking namespace %s: listing %s: %w", ns, t.GroupResource(), err)
		case list.Continue != "" || slices.ContainsFunc(list.Items, foreign):
			return false, nil
		}
	}
	for a, denied := range refused {
		n.api.rights.note(a, denied) // The missing right matters only if no other object was found.
		err = fmt.Errorf("checking namespace %s: listing %s: %w", ns, a.resource, denied)
	}
	return err == nil, err
}

func isEvent(r schema.GroupResource) bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

// isNative reports whether Kubernetes creates such an object in each namespace.
func isNative(r schema.GroupResource, o metav1.Object) bool {
	if r.Group != "" {
		return false
	}
	if r.Resource == "secrets" { // Kubernetes before 1.24 creates one.
		return o.GetAnnotations()[corev1.ServiceAccountNameKey] == "default"
	}
	return placement.Native(r, o) != "" && placement.Parent(r, o) == "" // An object that a workload has created is not native.
}
