package propagation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/placement"
)

// heldPlacement is a change of a placement that waits for approval.
type heldPlacement struct {
	*placement.Hold

	approve string             // What refract approve is called with.
	asked   placement.Question // What users were asked about it; zero until the state has the decision.
}

// heldFor returns the change that waits, with what users were asked about it before.
func heldFor(h *placement.Hold, approve string, before placement.Question) *heldPlacement {
	held := &heldPlacement{Hold: h, approve: approve}
	if before.Number == h.Number {
		held.asked = before
	}
	return held
}

// question is what users were asked; zero if nothing waits.
func (h *heldPlacement) question() placement.Question {
	if h == nil {
		return placement.Question{}
	}
	return h.asked
}

// message says what waits, and how it is approved.
func (h *heldPlacement) message() string {
	return fmt.Sprintf("waits for approval: %s; approve with: refract approve %s", h.Hold, h.approve)
}

// status is what is reported of it; nil if nothing waits.
func (h *heldPlacement) status() *refractv1alpha1.HeldPlacement {
	if h == nil {
		return nil
	}
	return &refractv1alpha1.HeldPlacement{
		Number: h.Number, Token: h.asked.Token, PolicyToken: h.asked.Shared, Leaves: h.Leaves, Joins: h.Joins,
	}
}

// approvalOf returns how refract approve names what is approved.
func approvalOf(kind, namespace, name string) string {
	if namespace == "" {
		return strings.ToLower(kind) + "/" + name
	}
	return strings.ToLower(kind) + "/" + namespace + "/" + name
}

// staysWithdrawn reports whether the copies stay, until that is approved, of an object that is there and does not ask
// to be propagated any more. Followers that are not referred to any more go: a new reference to another object is
// no mistake, and each member counts what goes with it.
//
// The label may be missing by mistake: a tool wrote the object without it, or took it from many objects at once.
func (p *desiredState) staysWithdrawn(obj *unstructured.Unstructured, src source, was previous, s *inputs) bool {
	keeping, _ := placement.KeepingOf(obj.GetAnnotations())
	switch {
	case s.recorded != nil && s.recorded.cause != "": // The replica that leads says that they go.
		return false
	case s.unguarded, was.uid != obj.GetUID(), was.cause != "", len(was.follows) > 0, keeping.Orphan == placement.OrphanAll:
		return false
	case placement.Native(src.gvr.GroupResource(), obj) != "":
		return false
	}
	hold := placement.Withdrawal(obj.GetUID(), present(was.placed, s.clusters))
	if hold == nil || hold.Number == was.asked.Approved(s.approved) {
		return false
	}
	p.held = heldFor(hold, approvalOf(src.kind, obj.GetNamespace(), obj.GetName()), was.asked)
	p.uid, p.generation, p.keeping, p.previous, p.governed = obj.GetUID(), obj.GetGeneration(), keeping, was, s.governed
	p.block(reasonAwaitingApproval, p.held.message())
	return true
}
