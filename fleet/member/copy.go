package member

import (
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Copy is the known state of an object with the managed label on a member.
type Copy struct {
	UID types.UID
	// Source is the annotation that names the hub and the object there.
	Source string
	// MadeFor is the hub for whose copies this namespace was created; "" if Refract did not create it.
	MadeFor string
	// Hash is the hash of the content that was last applied.
	Hash string
	// Orphan is the annotation that keeps the copy when its source is deleted: "all", "adopted" or "".
	Orphan string
	// Keep is whether the copy has the annotation that protects it from deletion.
	Keep bool
	// Adopted is whether the object existed before it became a copy.
	Adopted bool
	// Native is whether the member itself creates the object; see [placement.Native].
	Native bool
	// Deleting is whether its deletion has begun.
	Deleting bool
	// Owned are the fields that Refract applied and that no other manager has changed since.
	Owned Ownership
	// Doubted is whether another client has given fields back to Refract since the last write of Refract. Then Owned
	// does not show whether the values of these fields have changed.
	Doubted bool
	// Readiness says whether the object has reached its desired state. Objects of a type whose status does not show
	// this are ready as soon as they exist.
	Readiness refractv1alpha1.Readiness
	// ReadinessMessage says why the object is not ready.
	ReadinessMessage string
	// ScaledBy is the field manager of the controller that last set spec.replicas through the subresource scale; "" if
	// there is none.
	ScaledBy string
	// Ended is the outcome and the time of the end of a Job; zero if the Job has not ended.
	Ended Ended
	// Judged is the version of the [Health] that Readiness takes into account; zero without a Health.
	Judged uint32
	// Fault is the reason why the member's answer about the object cannot be read; "" if it can. Then only the UID and
	// the version of the object are known.
	Fault string

	generation int64
	version    uint64 // Its resourceVersion.
}

// ResourceVersion returns the last seen resourceVersion of the object.
func (c *Copy) ResourceVersion() string { return strconv.FormatUint(c.version, 10) }

// mostUID is the maximum length of a UID in [Copy.Write], in bytes. UIDs of Kubernetes have 36.
const mostUID = 64

// Write returns an identifier of the last write of Refract: the UID of the object, and the time of the write on the
// clock of the member. After Refract has corrected a changed copy or replaced a lost one, the identifier is another
// one. The result is empty for a UID that is longer than the UIDs of Kubernetes, because an untrusted member must not
// enlarge the reports of objects.
func (c *Copy) Write() string {
	if len(c.UID) > mostUID {
		return ""
	}
	return string(c.UID) + "@" + strconv.FormatInt(c.Owned.at, 10)
}

// Key identifies an object on a member, independent of the version of its type.
type Key struct {
	schema.GroupResource
	types.NamespacedName
}

// Lookup says whether a copy exists, or that this is not known.
type Lookup int

const (
	// Unwatched means that the copies of the type are not watched, and no search has found any since the member became
	// ready.
	Unwatched Lookup = iota
	// Unlisted means that the answer is not known: the first list of the type is not complete, failed, or found too
	// many copies to keep; see [Copies.ListError]. [Set.OnCopy] will be called for each copy that the list finds.
	Unlisted
	// Absent means that the copy does not exist.
	Absent
	// Present means that the copy exists.
	Present
)
