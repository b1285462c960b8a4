package member

import (
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Copy is what is known of an object on a member that carries the managed
// label.
type Copy struct {
	UID types.UID
	// Source is the annotation that names the hub and the object there.
	Source string
	// MadeFor is the hub for whose copies this namespace was made, if it was.
	MadeFor string
	// Hash is that of the content it was last applied with.
	Hash string
	// Orphan is the annotation that has it stay when its source goes: "all", "adopted" or "".
	Orphan string
	// Keep is whether the copy has the annotation by which its object protects it from deletion.
	Keep bool
	// Adopted is whether it was there before it became a copy.
	Adopted bool
	// Native is whether the member makes it for itself, as [placement.Native] has it.
	Native bool
	// Deleting is whether its deletion has begun.
	Deleting bool
	// Owned are the fields that Refract applied and nobody changed since.
	Owned Ownership
	// Doubted is whether somebody gave Refract fields back since it wrote the copy last:
	// then Owned says nothing of what is in them.
	Doubted bool
	// Readiness says whether the object has become what it asks for. Objects of a
	// type without a status that says so are ready when they are there.
	Readiness refractv1alpha1.Readiness
	// ReadinessMessage says why it is not ready.
	ReadinessMessage string
	// ScaledBy is the field manager of the controller that has set spec.replicas last through the subresource
	// scale; empty if none has.
	ScaledBy string
	// Ended is how and when a Job ended; zero if it has not.
	Ended Ended
	// Judged is the version of the [Health] that Readiness takes into account; zero if none was asked.
	Judged uint32
	// Fault says why what the member answers about the object cannot be read; "" if it can.
	// Nothing else is known of it then.
	Fault string

	generation int64
	version    uint64 // Its resourceVersion.
}

// ResourceVersion is that of the object when it was last seen.
func (c *Copy) ResourceVersion() string { return strconv.FormatUint(c.version, 10) }

// Key names an object on a member, whatever the version of its type.
type Key struct {
	schema.GroupResource
	types.NamespacedName
}

// Lookup says what is known of a copy.
type Lookup int

const (
	// Unwatched says that nobody has asked for copies of the type, and none was found
	// since the member became ready.
	Unwatched Lookup = iota
	// Unlisted says that it is not known yet: the first list of the type is still to
	// come, cannot be made, or found more than is kept, see [Copies.ListError]. [Set.OnCopy]
	// will be called for each copy that it finds.
	Unlisted
	// Absent says that there is no such copy.
	Absent
	// Present says that there is one.
	Present
)
