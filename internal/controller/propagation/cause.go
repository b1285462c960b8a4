package propagation

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// cause is why a copy is to be deleted. Those of objects that are deleted are reasons of the
// condition SourceGone, so that a restart does not turn what somebody has asked for
// into something that nobody has.
type cause string

const (
	causeDeleted   cause = "Deleted"            // Somebody deleted the object on the hub, by a call.
	causeLeader    cause = "LeaderDeleted"      // The object is there; all that it travelled with was deleted by calls.
	causeOwner     cause = "OwnerDeleted"       // It was deleted and had an owner: the hub's garbage collector may have done it.
	causeWithdrawn cause = "Withdrawn"          // The object is there and does not ask to be propagated any more.
	causeNamespace cause = "NamespaceDeleted"   // It went with its namespace.
	causeType      cause = "TypeDeleted"        // It went with its CustomResourceDefinition.
	causeMissing   cause = "Missing"            // It went while nobody watched.
	causeForgotten cause = "Forgotten"          // It is not there, nor is the Propagation that outlives it.
	causePlacement cause = reasonNoLongerPlaced // The policy, the clusters or the object's replicas have changed.
	causeLeaves    cause = reasonClusterLeaves  // The cluster leaves the fleet.
)

// wide reports whether the hub's users of one namespace cannot bring the cause about by
// what they do with their objects. What has such a cause is judged over the whole member,
// too. It still counts for the namespace where it is: whoever may write there on the
// member, or has a StatefulSet make claims there, can make objects with the marks of
// copies that the hub never had.
func (c cause) wide() bool { return c == causeForgotten || c == causeType || c == causeLeaves }

// asked reports whether somebody asked for the deletion by calls: of the object, or of what it belongs to. Copies that
// hold data need more than that, see [holding].
func (c cause) asked() bool { return c == causeDeleted || c == causeLeader || c == causeOwner }

// of says it of the object of a copy.
func (c cause) of() string {
	switch c {
	case causeDeleted:
		return "the object was deleted on the hub"
	case causeLeader:
		return "what the object travelled with was deleted on the hub"
	case causeOwner:
		return "the object was deleted on the hub, perhaps together with its owner"
	case causeWithdrawn:
		return "the object does not ask to be propagated any more: its label, or what referred to it, is gone"
	case causeNamespace:
		return "the object's namespace was deleted on the hub"
	case causeType:
		return "the object's type was deleted on the hub"
	case causeForgotten:
		return "the hub has neither the object nor a Propagation of it, as after a restore"
	case causePlacement:
		return "the object is not placed here any more"
	case causeLeaves:
		return "the cluster is leaving the fleet"
	default:
		return "the object went from the hub while nobody watched"
	}
}

// ofMany says it of copies, after their number and namespace.
func (c cause) ofMany() string {
	switch c {
	case causeDeleted:
		return "whose objects were deleted on the hub"
	case causeLeader:
		return "whose objects travelled with others that were deleted on the hub"
	case causeOwner:
		return "whose objects were deleted on the hub, perhaps with their owners"
	case causeWithdrawn:
		return "whose objects do not ask to be propagated any more"
	case causeNamespace:
		return "whose namespace was deleted on the hub"
	case causeType:
		return "whose type was deleted on the hub"
	case causeForgotten:
		return "of which the hub has neither an object nor a Propagation"
	case causePlacement:
		return "which are not placed here any more"
	case causeLeaves:
		return "as the cluster leaves the fleet"
	default:
		return "whose objects went from the hub while nobody watched"
	}
}

// evidence is what is known of an object that is not there, or asks for nothing.
type evidence struct {
	// found is what the hub says of it: Deleted while it has a deletionTimestamp,
	// Withdrawn, TypeDeleted, or Missing.
	found cause
	// watched is whether a watch told of its deletion.
	watched bool
	// around is what was deleted around it, NamespaceDeleted or TypeDeleted; Missing if
	// the hub does not say; empty if nothing was.
	around cause
	// known is whether the hub, or this process, knows that it was propagated.
	known bool
	// owned is whether the object had an owner, with which a garbage collector may have deleted it.
	owned bool
	// followed is whether it travelled with others, and all of them were deleted by calls.
	followed bool
}

// cause decides. Only a deletion that was seen has been asked for, and only if it was
// not that of something larger: who deletes a namespace or a type has not named the
// objects, and a hub that was set back, or wiped, tells of no deletion.
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

// sourceGone says in one condition why the object is deleted; nil if it is not.
func sourceGone(p *desiredState) *metav1.Condition {
	if !p.gone {
		return nil
	}
	return &metav1.Condition{
		Type: refractv1alpha1.ConditionSourceGone, Status: metav1.ConditionTrue,
		Reason: string(p.cause), Message: p.cause.of(), ObservedGeneration: p.generation,
	}
}

// causeIn is what sourceGone said; empty if nothing, or if it never says that.
func causeIn(conditions []metav1.Condition) cause {
	c := meta.FindStatusCondition(conditions, refractv1alpha1.ConditionSourceGone)
	if c == nil || c.Status != metav1.ConditionTrue {
		return ""
	}
	return causeOf(c.Reason)
}

// causeOf is the cause that a reason of sourceGone stands for; empty if it stands for none.
func causeOf(reason string) cause {
	switch said := cause(reason); said {
	case causeDeleted, causeLeader, causeOwner, causeWithdrawn, causeNamespace, causeType, causeMissing, causeForgotten:
		return said
	default: // Causes of placement among them: the object is there then.
		return ""
	}
}
