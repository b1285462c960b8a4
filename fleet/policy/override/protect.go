package override

import (
	"errors"
	"fmt"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// ErrProtected is wrapped by the error for an override of the identity of an object, or of metadata that an API server
// or Refract maintains.
var ErrProtected = errors.New("may not be overridden")

// Reasons why a place is protected.
var (
	errIdentity = fmt.Errorf("%w: it identifies the object", ErrProtected)
	errAround   = fmt.Errorf("%w: it contains the identity of the object", ErrProtected)
	errServer   = fmt.Errorf("%w: the API server sets it", ErrProtected)
	errGrants   = fmt.Errorf("%w by a namespaced policy: it grants permissions", ErrProtected)
	errHolds    = fmt.Errorf("%w by a namespaced policy: finalizers can block the deletion of a copy and of its cluster", ErrProtected)
	errOwn      = fmt.Errorf("%w: Refract sets it on every copy", ErrProtected)
)

// protected returns an error if a write to p would change a protected place: p itself, a place that contains p, or a
// place inside p. The apiVersion is not protected here, see [patchAction].
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

// held returns an error if a namespaced policy would write to finalizers. A finalizer that no controller on the cluster
// removes keeps the copy forever, and with it the cluster in the fleet. The owners of a namespace must not cause that.
// They must not remove a finalizer either: it comes from a ClusterOverridePolicy, because copies do not get the
// finalizers of the hub's object.
func held(by *tree.Author, path string) error {
	if by.Policy.Kind == corev1alpha1.KindOverridePolicy && tree.Covers("/metadata/finalizers", path) {
		return failAt(path, errHolds)
	}
	return nil
}

// own reports whether Refract maintains this label or annotation on copies.
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

// wrongType returns an error about the type of a value at a place of the object.
func wrongType(path, want string, got any) error {
	return failAt(path, fmt.Errorf("%w: want %s, got %s", tree.ErrType, want, tree.TypeName(got)))
}

// placeOf returns the place in the object that an error names, if any.
func placeOf(err error) string {
	if at, ok := errors.AsType[*tree.PathError](err); ok {
		return at.Path
	}
	return ""
}
