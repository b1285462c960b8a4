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
	"refract.dev/internal/output"
	"refract.dev/internal/rescue"
	"refract.dev/placement"
)

// decoder reads what a member answers about objects, which may be anything: what cannot be
// read is logged and becomes a fault of that object, and no panic goes further.
type decoder struct {
	account *account // Has room for the records of fields.
	log     logr.Logger
	health  func(Key) *Health // What is asked of copies; nil if nothing.
}

// copyEvent is what a list or watch says of a copy. A copy of a type with a status
// has no Readiness if its metadata alone was seen.
type copyEvent struct {
	Copy

	name     types.NamespacedName
	managers []metav1.ManagedFieldsEntry
}

// copyEventOf reads what a reflector got; nil for what is no object.
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

// mostName is how many bytes the name of an object may have, and mostNamespace that of a
// namespace: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
const (
	mostName      = 253
	mostNamespace = 63
)

// isName reports whether an object can have the name. What means something else in a path no API server takes for one.
func isName(name string) bool { return name != "" && len(name) <= mostName && isSegment(name) }

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// copyOf is [copyOf] for what cannot be read, too.
func (d decoder) copyOf(o metav1.Object, resource schema.GroupResource) Copy {
	c, err := d.read(o, resource)
	if err != nil {
		return faulty(o, resource, err)
	}
	return c
}

// faulty is a copy of which nothing can be read but which object it is.
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

// copyOf reads an object's metadata. The account is that of the member, or nil if nothing of
// it will be kept.
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
	// A controller of the member may have taken a copy for its own, as a ReplicaSet does with Pods: it
	// is a copy nevertheless, by the annotation that ends with its own name.
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

// number reads a resourceVersion: zero only if the server breaks its own contract.
func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

// regained reports whether Refract owns more fields than before, or since another time. What
// others write only takes fields away. So this is a write of our own, whose answer is still to
// come and ends the doubt; or somebody has edited managedFields by hand, as anybody may who
// writes the object.
func (d decoder) regained(before Ownership, s *copyEvent, resource schema.GroupResource) (is bool) {
	var err error
	defer rescue.To(&err, d.log, "reading what is owned of a copy", "resource", resource.Resource, "copy", s.name.String())
	return before != s.Owned && s.Owned.gained(before)
}

// blame names who took fields from Refract; is says that somebody did.
func (d decoder) blame(before Ownership, s *copyEvent, resource schema.GroupResource) (who string, is bool) {
	var err error
	defer rescue.To(&err, d.log, "reading who changed a copy", "resource", resource.Resource, "copy", s.name.String())
	if before.fields != s.Owned.fields && before.fields != nil && (!before.named() || !s.Owned.named()) {
		return output.Cut(conflictingManager(&fieldpath.Set{}, s.managers), mostMessage), true
	}
	lost := before.without(s.Owned)
	if lost.Empty() {
		return "", false
	}
	return output.Cut(conflictingManager(lost, s.managers), mostMessage), true
}
