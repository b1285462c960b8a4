package propagation

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"

	"refract.dev/fleet/policy/placement"
)

// source is the known state of a key on the hub.
type source struct {
	object *unstructured.Unstructured // Nil if the hub has no such object. Shared and read-only.
	// withdrawn is the object if it exists, does not ask to be propagated, and is no follower.
	withdrawn *unstructured.Unstructured
	gvr       schema.GroupVersionResource
	kind      string
	// versions are the versions of the type that the hub serves, the preferred one first.
	versions []string
}

// get returns the last known object of a key. known is false while the type is being listed. A missing object is no
// proof that it is gone: see [sources.look].
func (s *sources) get(key Key) (src source, known bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.getLocked(key)
}

// getLocked does the same as [sources.get]. The lock must be held.
func (s *sources) getLocked(key Key) (src source, known bool) {
	t := s.types[key.GroupResource]
	if t == nil {
		return source{}, s.discovered // Before the first discovery, no type is known.
	}
	src = source{gvr: t.gvr, kind: t.kind, versions: t.versions}
	views := t.views
	if t.others != nil && s.wanted[key.GroupResource][key.NamespacedName] {
		views = append(slices.Clone(views), t.others)
	}
	for _, v := range views {
		obj, synced := v.get(key.NamespacedName)
		if !synced {
			return source{}, false
		}
		if obj != nil && (src.object == nil || version(obj) > version(src.object)) {
			src.object = obj
		}
	}
	return src, true
}

// look reads an object that no cache has from the hub. It returns the object if it is a follower or withdrawn. If it is
// no follower, look also returns the cause of the deletion of its copies: Missing, TypeDeleted if the hub does not
// serve the type any more, Deleted if the object is being deleted, or Withdrawn if it does not ask to be propagated. If
// the copies stay, look returns neither.
//
// Copies are removed only with a proof. A cache may be behind, because two watches report an object that moves from one
// label to the other. A type may be missing because an API server has just started. So the proof is that a server that
// serves the type does not find the object, or that the type was a custom resource whose CRD is not found. Types of
// Kubernetes, and types of API servers that cannot be reached now, do not count as removed.
func (s *sources) look(ctx context.Context, key Key, src source) (obj *unstructured.Unstructured, gone cause, err error) {
	if src.gvr.Resource != "" {
		live, err := readByName(ctx, s.dynamic.Resource(src.gvr).Namespace(key.Namespace), key.GroupResource, key.Name)
		switch {
		case err == nil && s.keep(key, live):
			return live, "", nil
		case err == nil && asksNothing(live) == causeWithdrawn:
			return live, causeWithdrawn, nil
		case err == nil:
			return nil, asksNothing(live), nil
		case notFound(err):
			return nil, causeMissing, nil
		case !apierrors.IsNotFound(err):
			return nil, "", fmt.Errorf("looking for the source of copies: %w", err)
		}
	}
	s.mu.RLock()
	doubtful := s.doubtful[key.Group]
	s.mu.RUnlock()
	if doubtful || scheme.Scheme.IsGroupRegistered(key.Group) {
		return nil, "", nil
	}
	_, err = readByName(ctx, s.dynamic.Resource(crdResource), crdResource.GroupResource(), key.GroupResource.String())
	switch {
	case notFound(err):
		return nil, causeType, nil
	case err != nil && !apierrors.IsNotFound(err):
		return nil, "", fmt.Errorf("looking for the type of copies: %w", err)
	}
	return nil, "", nil
}

// asksNothing returns the cause of the deletion of an existing object's copies; empty if the object asks to be
// propagated.
func asksNothing(obj *unstructured.Unstructured) cause {
	_, asks, _, _ := placement.Named(obj.GetLabels(), obj.GetNamespace()) //nolint:dogsled // A label that is not valid asks, too.
	switch {
	case obj.GetDeletionTimestamp() != nil:
		return causeDeleted
	case !asks:
		return causeWithdrawn
	default:
		return ""
	}
}

// around returns the cause if the type or the namespace of a deleted object was deleted as well: the type or namespace
// is in deletion, is missing, or was created after the object. It returns Missing if the hub forbids the read. Types
// and namespaces outlive their content, and the hub is asked after the deletion of the object. So a type or namespace
// whose deletion included the object never looks unchanged.
func (s *sources) around(ctx context.Context, key Key, told *deletion) (cause, error) {
	s.mu.RLock()
	custom := s.defined[key.GroupResource.String()]
	s.mu.RUnlock()
	for _, holder := range []struct {
		cause    cause
		resource schema.GroupVersionResource
		name     string
		is       bool
	}{
		{causeType, crdResource, key.GroupResource.String(), custom},
		{causeNamespace, namespaceResource, key.Namespace, key.Namespace != ""},
	} {
		if !holder.is {
			continue
		}
		live, err := s.dynamic.Resource(holder.resource).Get(ctx, holder.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return holder.cause, nil
		case apierrors.IsForbidden(err):
			return causeMissing, nil
		case err != nil:
			return "", fmt.Errorf("reading the namespace and the type of the source of copies: %w", err)
		}
		made := live.GetCreationTimestamp()
		if live.GetDeletionTimestamp() != nil || (told != nil && told.created.Before(&made)) {
			return holder.cause, nil
		}
	}
	return "", nil
}

// readByName reads the present state of one object of any type, by a list of its name. A right to get all types would
// include nodes/proxy and pods/exec, which a list does not reach. The errors are those of a get:
// [apierrors.IsNotFound] if the object does not exist, and the server's answer if it does not serve the type.
//
// A server may ignore the selector. So readByName searches the list for the object. If the server returns only a part
// of the list, and the object is not in it, this is an error and no proof of absence.
func readByName(ctx context.Context, in dynamic.ResourceInterface, of schema.GroupResource, name string) (*unstructured.Unstructured, error) {
	list, err := in.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].GetName() == name {
			return &list.Items[i], nil
		}
	}
	if list.GetContinue() != "" {
		return nil, fmt.Errorf("listing %s by the name %s: want a whole list, got a part without it", of, name)
	}
	return nil, apierrors.NewNotFound(of, name)
}

// keep adds an object to the view of the followers if it is a follower.
func (s *sources) keep(key Key, obj *unstructured.Unstructured) bool {
	s.mu.RLock()
	var others *view
	if t := s.types[key.GroupResource]; t != nil {
		others = t.others
	}
	wanted := s.wanted[key.GroupResource][key.NamespacedName]
	s.mu.RUnlock()
	if !wanted || others == nil {
		return false
	}
	others.fetched(obj)
	return true
}

// notFound distinguishes a missing object from a path that the server does not serve.
func notFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
