package override

import (
	"errors"
	"fmt"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// ErrProtected is wrapped by the error for an override of what an object is, or
// of what an API server or Refract itself keeps in its metadata.
var ErrProtected = errors.New("may not be overridden")

// Why a place is protected.
var (
	errIdentity = fmt.Errorf("%w: it says which object this is", ErrProtected)
	errAround   = fmt.Errorf("%w: it holds what says which object this is", ErrProtected)
	errServer   = fmt.Errorf("%w: the API server keeps it", ErrProtected)
	errGrants   = fmt.Errorf("%w by a namespaced policy: it says who may do what", ErrProtected)
	errHolds    = fmt.Errorf("%w by a namespaced policy: finalizers say when a copy may go and its cluster may leave", ErrProtected)
	errOwn      = fmt.Errorf("%w: Refract keeps it on every copy", ErrProtected)
)

// protected returns an error if a write to p would change what no override may
// change: at that very place, or at one that contains it or lies inside it. The
// apiVersion is not among them: see [patchAction].
func protected(p tree.Pointer) error {
	keys := p.Keys()
	switch {
	case len(keys) == 0, keys[0] == "metadata" && len(keys) == 1:
		return failAt(p.String(), errAround)
	case keys[0] == "kind":
		return failAt(p.String(), errIdentity)
	case keys[0] == "metadata":
		return protectedMetadata(p, keys[1:])
	}
	return nil
}

func protectedMetadata(p tree.Pointer, keys []string) error {
	switch key := keys[0]; {
	case key == "name", key == "namespace", key == "generateName":
		return failAt(p.String(), errIdentity)
	case serverOwned(key):
		return failAt(p.String(), errServer)
	case len(keys) > 1 && own(key, keys[1]):
		return failAt(p.String(), errOwn)
	}
	return nil
}

// held returns an error if a namespaced policy may not write to a place, since that
// is about finalizers. One that nobody on the cluster takes away keeps the copy for
// ever, and with it the cluster, which is not the namespace's to keep. Those of the
// object on the hub are no part of a copy, so one that is there was added by a
// ClusterOverridePolicy, and is not the namespace's to take away either.
func held(by *tree.Author, path string) error {
	if by.Policy.Kind == corev1alpha1.KindOverridePolicy && tree.Covers("/metadata/finalizers", path) {
		return failAt(path, errHolds)
	}
	return nil
}

// own reports whether Refract keeps the label or annotation on copies.
func own(member, key string) bool {
	switch key {
	case corev1alpha1.ManagedLabel:
		return member == "labels"
	case refractv1alpha1.SourceAnnotation, refractv1alpha1.AppliedAnnotation, refractv1alpha1.NamespaceAnnotation,
		refractv1alpha1.OrphanAnnotation, refractv1alpha1.AdoptedAnnotation, refractv1alpha1.RemoveAfterAnnotation,
		refractv1alpha1.KeepAnnotation:
		return member == "annotations"
	}
	return false
}

// failAt returns an error about a place of the object.
func failAt(path string, err error) error { return &tree.PathError{Path: path, Err: err} }

// wrongType returns an error about a value at a place of the object.
func wrongType(path, want string, got any) error {
	return failAt(path, fmt.Errorf("%w: want %s, got %s", tree.ErrType, want, tree.TypeName(got)))
}

// placeOf returns the place of the object that an error is about, if any.
func placeOf(err error) string {
	if at, ok := errors.AsType[*tree.PathError](err); ok {
		return at.Path
	}
	return ""
}
