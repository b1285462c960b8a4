package member

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
	"refract.dev/internal/output"
	"refract.dev/internal/rescue"
)

// decoder reads the answers of a member about objects. The content of an answer is not trusted: unreadable content
// becomes a fault of its object, and a panic is recovered and logged.
type decoder struct {
	account *account // Counts the sets of owned fields.
	log     logr.Logger
	health  func(Key) *Health // Further criteria of a copy; nil if it has none.
}

// copyEvent is a copy as a list or watch shows it. If only metadata was seen, a copy of a type with a status has no
// Readiness.
type copyEvent struct {
	Copy

	name     types.NamespacedName
	managers []metav1.ManagedFieldsEntry
}

// copyEventOf reads an object from a reflector; nil if it is no object or has an invalid name.
func (d decoder) copyEventOf(obj any, resource schema.GroupResource) *copyEvent {
	var s *copyEvent
	switch o := obj.(type) {
	case *metav1.PartialObjectMetadata:
		s = &copyEvent{Copy: d.copyOf(o, resource), name: nameOf(o), managers: o.ManagedFields}
	case *received:
		s = &copyEvent{Copy: d.copyOf(o, resource), name: nameOf(o), managers: o.ManagedFields}
		if o.fault != nil {
			s.Copy = faulty(o, resource, o.fault)
		}
		if s.Fault == "" {
			defer d.account.decoding(o)()
			s.Readiness, s.ReadinessMessage = d.readinessOf(o)
			s.ReadinessMessage = maskedReadiness(resource, s.ReadinessMessage)
			s.Ended = d.endOf(o, resource)
			d.judge(s, Key{resource, s.name}, o)
		}
	default:
		return nil
	}
	if !isName(s.name.Name) || len(s.name.Namespace) > mostNamespace || !isSegment(s.name.Namespace) {
		return nil // No API server has such an object.
	}
	size := 0
	for i := range s.managers {
		size += len(s.managers[i].Manager)
		if fields := s.managers[i].FieldsV1; fields != nil {
			size += len(fields.GetRawBytes())
		}
	}
	if size > mostManagers {
		s.managers = nil
	}
	return s
}

// mostName and mostNamespace are the maximum lengths of the names of objects and namespaces, in bytes:
// https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
const (
	mostName      = 253
	mostNamespace = 63
)

// isName reports whether an object can have the name. API servers reject names that have a special meaning in a path.
func isName(name string) bool { return name != "" && len(name) <= mostName && isSegment(name) }

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// copyOf calls the function [copyOf]. If an object is unreadable, it returns a copy with a fault.
func (d decoder) copyOf(o metav1.Object, resource schema.GroupResource) Copy {
	c, err := d.read(o, resource)
	if err != nil {
		return faulty(o, resource, err)
	}
	return c
}

// faulty returns a copy with a fault; only its identity is known.
func faulty(o metav1.Object, of schema.GroupResource, why error) Copy {
	c := Copy{Fault: maskedFault(of, why), version: number(o.GetResourceVersion())}
	if uid := o.GetUID(); len(uid) <= mostMark {
		c.UID = uid
	}
	return c
}

func (d decoder) read(o metav1.Object, resource schema.GroupResource) (c Copy, err error) {
	defer rescue.To(&err, d.log, "reading a copy", "resource", resource.String(), "namespace", o.GetNamespace(), "name", o.GetName())
	c = copyOf(o, resource, d.account)
	for at, mark := range map[string]string{
		"metadata.uid": string(c.UID), refractv1alpha1.SourceAnnotation: c.Source, refractv1alpha1.NamespaceAnnotation: c.MadeFor,
		refractv1alpha1.AppliedAnnotation: c.Hash, refractv1alpha1.OrphanAnnotation: c.Orphan,
	} {
		if len(mark) > mostMark {
			return Copy{}, fmt.Errorf("%s: want at most %d bytes, got %d", at, mostMark, len(mark))
		}
	}
	return c, nil
}

// copyOf reads the metadata of an object. The account is nil if the result is not kept.
func copyOf(o metav1.Object, resource schema.GroupResource, account *account) Copy {
	annotations := o.GetAnnotations()
	c := Copy{
		UID:        o.GetUID(),
		Source:     annotations[refractv1alpha1.SourceAnnotation],
		MadeFor:    annotations[refractv1alpha1.NamespaceAnnotation],
		Hash:       annotations[refractv1alpha1.AppliedAnnotation],
		Orphan:     annotations[refractv1alpha1.OrphanAnnotation],
		Keep:       annotations[refractv1alpha1.KeepAnnotation] == "true",
		Adopted:    annotations[refractv1alpha1.AdoptedAnnotation] == "true",
		Deleting:   o.GetDeletionTimestamp() != nil,
		Owned:      ours(o.GetManagedFields(), account),
		ScaledBy:   output.Cut(scalerOf(o.GetManagedFields()), mostMessage),
		generation: o.GetGeneration(),
		version:    number(o.GetResourceVersion()),
	}
	// A controller of the member may have adopted a copy, as a ReplicaSet does with Pods. An annotation that ends with
	// the object's own name shows that the object is still a copy.
	isCopy := strings.HasSuffix(c.Source, ending(Key{resource, nameOf(o)}))
	c.Native = placement.Native(resource, o) != "" && (!isCopy || placement.Parent(resource, o) == "")
	switch {
	case c.Deleting:
		c.Readiness, c.ReadinessMessage = refractv1alpha1.ReadinessInProgress, isGoing
	case !hasStatus(resource):
		c.Readiness = refractv1alpha1.ReadinessReady
	}
	return c
}

// number parses a resourceVersion. It returns zero only if the API server violates its contract.
func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

// regained reports whether Refract owns a field that it did not own before, or has another time of its last apply.
// Regular writes of other clients only take fields from Refract. So the cause is either a write of Refract, whose
// answer then clears the doubt, or another client that has edited managedFields. Every writer of the object may do the
// latter.
func (d decoder) regained(before Ownership, s *copyEvent, resource schema.GroupResource) (is bool) {
	var err error
	defer rescue.To(&err, d.log, "reading the owned fields of a copy", "resource", resource.Resource, "copy", s.name.String())
	return before != s.Owned && s.Owned.gained(before)
}

// blame returns the manager that took fields from Refract. The boolean result is false if no fields were taken.
func (d decoder) blame(before Ownership, s *copyEvent, resource schema.GroupResource) (who string, is bool) {
	var err error
	defer rescue.To(&err, d.log, "reading the field managers of a copy", "resource", resource.Resource, "copy", s.name.String())
	if before.fields != s.Owned.fields && before.fields != nil && (!before.named() || !s.Owned.named()) {
		return output.Cut(conflictingManager(&fieldpath.Set{}, s.managers), mostMessage), true
	}
	lost := before.without(s.Owned)
	if lost.Empty() {
		return "", false
	}
	return output.Cut(conflictingManager(lost, s.managers), mostMessage), true
}
