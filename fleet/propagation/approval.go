package propagation

import (
	"fmt"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
)

// heldPlacement is a change of a placement that waits for approval.
type heldPlacement struct {
	*placement.Hold

	approve string             // The argument of refract approve.
	asked   placement.Question // The question that asks users to approve the change; zero until setDesired has recorded the decision.
}

// heldFor returns the waiting change. If users were asked about the same change before, the question stays the same.
func heldFor(h *placement.Hold, approve string, before placement.Question) *heldPlacement {
	held := &heldPlacement{Hold: h, approve: approve}
	if before.Number == h.Number {
		held.asked = before
	}
	return held
}

// question returns the question that asks users to approve the change; zero if nothing waits.
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
