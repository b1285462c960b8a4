package diff

import (
	"slices"

	"refract.dev/fleet/offline/render"
)

// waiting returns the outcome whose change of placement awaits approval, or nil if there is none. It is the outcome of
// the object itself, or that of an object with which it travels, before or after the change.
func waiting(was, is *render.Outcome, after *render.Evaluation) *render.Outcome {
	var all []*render.Outcome
	if is != nil {
		all = slices.Concat([]*render.Outcome{is}, is.Leaders)
	}
	if was != nil {
		for _, leader := range was.Leaders {
			if now := after.Find(leader.ID); now != nil {
				all = append(all, now)
			}
		}
	}
	if at := slices.IndexFunc(all, func(o *render.Outcome) bool { return o.Waits != nil }); at >= 0 {
		return all[at]
	}
	return nil
}

// impactsOfWaiting returns the impact that copies are created or deleted only after an approval.
func (j *judge) impactsOfWaiting() []Impact {
	if j.waits == nil || j.to == nil { // The deletion of an object by a user needs no approval.
		return nil
	}
	return []Impact{{
		Effect:  Approving,
		Message: "waits for approval: " + j.waits.Waits.String() + "; approve with: refract approve " + j.waits.Approval,
	}}
}
