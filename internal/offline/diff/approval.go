package diff

import (
	"slices"

	"refract.dev/internal/offline/render"
)

// waiting returns the outcome whose change of the placement waits for approval: that of an object, or of one that
// it travels with or has travelled with; nil if none does.
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

// impactsOfWaiting says that copies come or go only after an approval.
func (j *judge) impactsOfWaiting() []Impact {
	if j.waits == nil || j.to == nil { // Whoever deletes an object has asked for that.
		return nil
	}
	return []Impact{{
		Effect:  Approving,
		Message: "waits for approval: " + j.waits.Waits.String() + "; approve with: refract approve " + j.waits.Approval,
	}}
}
