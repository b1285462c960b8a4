package propagation

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// cause is the reason to delete a copy. The condition SourceGone stores the cause for an object that is gone, so that a
// restart does not turn a requested deletion into an unrequested one.
type cause string

const (
	causeDeleted   cause = "Deleted"            // A user deleted the object on the hub, by a call.
	causeLeader    cause = "LeaderDeleted"      // The object exists; all leaders, the objects that it travels with, were deleted by calls.
	causeOwner     cause = "OwnerDeleted"       // The object was deleted and had an owner: the hub's garbage collector may have deleted it.
	causeWithdrawn cause = "Withdrawn"          // The object exists and no longer asks for propagation.
	causeNamespace cause = "NamespaceDeleted"   // The object was deleted with its namespace.
	causeType      cause = "TypeDeleted"        // The object was deleted with its CustomResourceDefinition.
	causeMissing   cause = "Missing"            // The object disappeared while Refract did not watch.
	causeForgotten cause = "Forgotten"          // The hub has neither the object nor its Propagation, although a Propagation outlives its object.
	causePlacement cause = reasonNoLongerPlaced // The policy, the clusters or the object's replicas have changed.
	causeLeaves    cause = reasonClusterLeaves  // The cluster leaves the fleet.
)

// wide reports whether the users of one namespace of the hub cannot cause such a deletion by changes of their objects.
// The guard judges deletions with such a cause over the whole member, too. They still count for their namespace: on the
// member, a user can create objects with the marks of copies that the hub never had. The right to write in the
// namespace is sufficient, or a StatefulSet that creates claims there.
func (c cause) wide() bool { return c == causeForgotten || c == causeType || c == causeLeaves }

// asked reports whether a user requested the deletion by calls that delete the object, its leaders or its owner. Copies
// that hold data need more than that, see [holding].
func (c cause) asked() bool { return c == causeDeleted || c == causeLeader || c == causeOwner }

// of describes the cause for the object of a copy.
func (c cause) of() string {
	switch c {
	case causeDeleted:
		return "the object was deleted on the hub"
	case causeLeader:
		return "the object that it travelled with was deleted on the hub"
	case causeOwner:
		return "the object was deleted on the hub, perhaps together with its owner"
	case causeWithdrawn:
		return "the object no longer requests propagation: its label, or the reference to it, is gone"
	case causeNamespace:
		return "the object's namespace was deleted on the hub"
	case causeType:
		return "the object's type was deleted on the hub"
	case causeForgotten:
		return "the hub has no Propagation of the object, as after a restore, and the object is missing or being deleted"
	case causePlacement:
		return "the object is no longer placed here"
	case causeLeaves:
		return "the cluster is leaving the fleet"
	default:
		return "the object disappeared from the hub unobserved"
	}
}

// ofMany describes the cause for several copies, after their number and namespace.
func (c cause) ofMany() string {
	switch c {
	case causeDeleted:
		return "whose objects were deleted on the hub"
	case causeLeader:
		return "whose objects travelled with others that were deleted on the hub"
	case causeOwner:
		return "whose objects were deleted on the hub, perhaps with their owners"
	case causeWithdrawn:
		return "whose objects no longer request propagation"
	case causeNamespace:
		return "whose namespace was deleted on the hub"
	case causeType:
		return "whose type was deleted on the hub"
	case causeForgotten:
		return "whose objects and Propagations are missing on the hub"
	case causePlacement:
		return "which are no longer placed here"
	case causeLeaves:
		return "as the cluster leaves the fleet"
	default:
		return "whose objects disappeared from the hub unobserved"
	}
}

// evidence is the knowledge about an object that is missing or does not ask for propagation.
type evidence struct {
	// found is the answer of the hub: Deleted while the object has a deletionTimestamp, Withdrawn, TypeDeleted, or
	// Missing.
	found cause
	// watched is whether a watch reported the deletion of the object.
	watched bool
	// around is the larger deletion that the object was deleted with: NamespaceDeleted or TypeDeleted. It is Missing if
	// the hub does not answer, and empty if there was no larger deletion.
	around cause
	// known is whether the hub or this process knows that the object was propagated.
	known bool
	// owned is whether the object had an owner: a garbage collector may have deleted the object with the owner.
	owned bool
	// followed is whether the object had leaders, and all of them were deleted by calls.
	followed bool
}

// cause decides on the cause. Only a deletion that Refract saw is requested, and only if it was not part of a larger
// one: a user who deletes a namespace or a type has not named the objects. A hub that was restored or wiped reports no
// deletions.
func (e *evidence) cause() cause {
	switch {
	case !e.known:
		return causeForgotten
	case e.found == causeWithdrawn && e.followed:
		return causeLeader
	case e.found == causeWithdrawn, e.found == causeType:
		return e.found
	case e.around != "":
		return e.around
	case (e.found == causeDeleted || e.watched) && e.owned:
		return causeOwner
	case e.found == causeDeleted, e.watched:
		return causeDeleted
	default:
		return causeMissing
	}
}

// sourceGone returns a condition with the cause of the deletion; nil if the object is not gone.
func sourceGone(p *desiredState) *metav1.Condition {
	if !p.gone {
		return nil
	}
	return &metav1.Condition{
		Type: refractv1alpha1.ConditionSourceGone, Status: metav1.ConditionTrue,
		Reason: string(p.cause), Message: p.cause.of(), ObservedGeneration: p.generation,
	}
}

// causeIn returns the cause in a condition from sourceGone; empty if the condition is absent or has another reason.
func causeIn(conditions []metav1.Condition) cause {
	c := meta.FindStatusCondition(conditions, refractv1alpha1.ConditionSourceGone)
	if c == nil || c.Status != metav1.ConditionTrue {
		return ""
	}
	return causeOf(c.Reason)
}

// causeOf returns the cause for a reason of sourceGone; empty for any other reason.
func causeOf(reason string) cause {
	switch said := cause(reason); said {
	case causeDeleted, causeLeader, causeOwner, causeWithdrawn, causeNamespace, causeType, causeMissing, causeForgotten:
		return said
	// Causes of the placement are among these: the object exists then.
	default:
		return ""
	}
}
