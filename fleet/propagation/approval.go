package propagation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
)

// heldPlacement is a change of a placement that waits for approval.
type heldPlacement struct {
	*placement.Hold

	approve string             // The argument of refract approve.
	asked   placement.Question // The question that users were asked about the change; zero until setDesired has recorded the decision.
}

// heldFor returns the change that waits, with the question that users were asked about it before.
func heldFor(h *placement.Hold, approve string, before placement.Question) *heldPlacement {
	held := &heldPlacement{Hold: h, approve: approve}
	if before.Number == h.Number {
		held.asked = before
	}
	return held
}

// question returns the question that users were asked; zero if nothing waits.
func (h *heldPlacement) question() placement.Question {
	if h == nil {
		return placement.Question{}
	}
	return h.asked
}

// message describes the change that waits and how to approve it.
func (h *heldPlacement) message() string {
	return fmt.Sprintf("waits for approval: %s; approve with: refract approve %s", h.Hold, h.approve)
}

// status returns the change as the Propagation reports it; nil if nothing waits.
func (h *heldPlacement) status() *refractv1alpha1.HeldPlacement {
	if h == nil {
		return nil
	}
	return &refractv1alpha1.HeldPlacement{
		Number: h.Number, Token: h.asked.Token, PolicyToken: h.asked.Shared, Leaves: h.Leaves, Joins: h.Joins,
	}
}

// approvalOf returns the argument of refract approve for an object or a policy.
func approvalOf(kind, namespace, name string) string {
	if namespace == "" {
		return strings.ToLower(kind) + "/" + name
	}
	return strings.ToLower(kind) + "/" + namespace + "/" + name
}

// staysWithdrawn reports whether the copies of an existing object that no longer asks for propagation stay, until an
// approval or the end of a dry run. The label may be missing by mistake: a tool wrote the object without it, or removed
// it from many objects at once.
//
// The copies of a follower that is no longer referenced go: a new reference to another object is no mistake, and the
// guard of each member counts their deletions.
func (p *desiredState) staysWithdrawn(obj *unstructured.Unstructured, src source, was previous, s *inputs) bool {
	keeping, _ := placement.KeepingOf(obj.GetAnnotations())
	there := present(was.placed, s.clusters)
	switch {
	case was.uid != obj.GetUID(), was.cause != "":
		return false
	case keeping.DryRun && len(there) > 0:
		p.stays(obj, keeping, was, s)
		p.block(reasonDryRun, "annotation "+corev1alpha1.DryRunAnnotation+": the copies stay, though the object no longer requests propagation")
		return true
	case s.unguarded, len(was.follows) > 0, keeping.Orphan == placement.OrphanAll:
		return false
	case placement.Native(src.gvr.GroupResource(), obj) != "":
		return false
	}
	hold := placement.Withdrawal(obj.GetUID(), there)
	if hold == nil || hold.Number == was.asked.Approved(s.approved) {
		return false
	}
	p.held = heldFor(hold, approvalOf(src.kind, obj.GetNamespace(), obj.GetName()), was.asked)
	p.stays(obj, keeping, was, s)
	p.block(reasonAwaitingApproval, p.held.message())
	return true
}

// stays keeps the previous placement of the object.
func (p *desiredState) stays(obj *unstructured.Unstructured, keeping placement.Keeping, was previous, s *inputs) {
	p.uid, p.generation, p.previous, p.governed = obj.GetUID(), obj.GetGeneration(), was, s.governed
	p.keeping, p.orphan = keeping, orphaning(keeping.Orphan)
}
