package override

import (
	"errors"
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// ErrProtected is wrapped by the error for an override of what an object is, or
// of what the hub, the API server or Refract itself keeps in its metadata.
var ErrProtected = errors.New("may not be overridden")

// protectedMetadata are the members of metadata that no override may change:
// what the object is, and what an API server keeps. Finalizers of the copy may
// be set.
var protectedMetadata = append([]string{"name", "namespace", "generateName"},
	slices.DeleteFunc(slices.Clone(hubOnly), func(key string) bool { return key == "finalizers" })...)

// protected returns an error if a write to p would change what no override may
// change: at that very place, or at one that contains it or lies inside it.
func protected(p tree.Pointer) error {
	keys := p.Keys()
	switch {
	case len(keys) == 0:
		return failAt("/", ErrProtected)
	case keys[0] == "kind":
		return failAt(p.String(), ErrProtected)
	case keys[0] != "metadata":
		return nil
	case len(keys) == 1 || slices.Contains(protectedMetadata, keys[1]):
		return failAt(p.String(), ErrProtected)
	case len(keys) > 2 && keys[1] == "labels":
		return protectedKey(p.String(), keys[2])
	case len(keys) > 2 && keys[1] == "annotations":
		return protectedKey(p.String(), keys[2])
	}
	return nil
}

// protectedKey returns an error if the label or annotation is one that Refract
// keeps on copies.
func protectedKey(path, key string) error {
	switch key {
	case corev1alpha1.ManagedLabel, refractv1alpha1.SourceAnnotation, refractv1alpha1.AppliedAnnotation:
		return failAt(path, ErrProtected)
	}
	return nil
}
