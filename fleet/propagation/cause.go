package propagation

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// cause is the reason to delete a copy. For an object that is gone, the condition SourceGone stores the cause: after a
// restart, a requested deletion still counts as requested.
type cause string

const (
	causeDeleted   cause = "Deleted"            // A user deleted the object on the hub, by a call.
	causeLeader    cause = "LeaderDeleted"      // The object exists. All its leaders, the objects that it travels with, were deleted by calls.
	causeOwner     cause = "OwnerDeleted"       // The object was deleted and had an owner: the hub's garbage collector may have deleted it.
	causeWithdrawn cause = "Withdrawn"          // The object exists and no longer asks for propagation.
	causeNamespace cause = "NamespaceDeleted"   // The object was deleted with its namespace.
	causeType      cause = "TypeDeleted"        // The object was deleted with its CustomResourceDefinition.
	causeMissing   cause = "Missing"            // The object disappeared while Refract did not watch.
	causeForgotten cause = "Forgotten"          // The hub has neither the object nor its Propagation, which normally outlives the object.
	causePlacement cause = reasonNoLongerPlaced // The policy, the clusters or the object's replicas have changed.
	causeLeaves    cause = reasonClusterLeaves  // The cluster leaves the fleet.
)

// wide reports whether the users of one hub namespace cannot cause such a deletion. The guard also judges these
// deletions over the whole member. They still count for their namespace: users of the member can create objects with
// the marks of copies that the hub never had. For this, they need the right to write in the namespace, or a StatefulSet
// that creates claims there.
func (c cause) wide() bool { return c == causeForgotten || c == causeType || c == causeLeaves }

// asked reports whether a user requested the deletion by calls that delete the object, its leaders or its owner. Copies
// that hold data need more than such calls, see [holding].
func (c cause) asked() bool { return c == causeDeleted || c == causeLeader || c == causeOwner }

// of describes the cause in a message about one copy.
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

// ofMany describes the cause in a message about several copies, after their number and namespace.
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
	// found is the state of the object on the hub: Deleted if the object has a deletionTimestamp, Withdrawn,
	// TypeDeleted, or Missing.
	found cause
	// watched is whether a watch reported the deletion of the object.
	watched bool
	// around is the larger deletion that included the object: NamespaceDeleted or TypeDeleted. It is Missing if the hub
	// does not answer, and empty if the object was deleted alone.
	around cause
	// known is whether the hub or this process knows that the object was propagated.
	known bool
	// owned is whether the object had an owner: a garbage collector may have deleted the object with the owner.
	owned bool
	// followed is whether the object had leaders, and all of them were deleted by calls.
	followed bool
}

// cause returns the cause that follows from the evidence. A deletion counts as requested only if Refract saw it and it
// was not part of a larger deletion: a user who deletes a namespace or a type has not named the objects. A restored or
// wiped hub reports no deletions.
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

// causeOf returns the cause for the reason of a SourceGone condition; empty for any other reason.
func causeOf(reason string) cause {
	switch said := cause(reason); said {
	case causeDeleted, causeLeader, causeOwner, causeWithdrawn, causeNamespace, causeType, causeMissing, causeForgotten:
		return said
	// A cause of the placement is not among these, because the object exists then.
	default:
		return ""
	}
}
