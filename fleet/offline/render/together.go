package render

import (
	"refract.dev/fleet/decide"
	"refract.dev/fleet/policy/placement"
)

// together records the changes that await approval because the objects of a namespace would leave clusters together.
func (e *Evaluation) together() {
	asked := map[string][]placement.Asked{}
	for i := range e.Outcomes {
		if o := &e.Outcomes[i]; o.policy != nil {
			asked[o.ID.Namespace] = append(asked[o.ID.Namespace], placement.Asked{Policy: o.policy, Request: o.request})
		}
	}
	losses := map[string]*placement.Loss{}
	for namespace, all := range asked {
		losses[namespace] = placement.Together(all)
	}
	for i := range e.Outcomes {
		o := &e.Outcomes[i]
		if o.policy == nil || o.Waits != nil || losses[o.ID.Namespace] == nil {
			continue
		}
		request := *o.request
		request.Together = losses[o.ID.Namespace]
		if d, err := o.policy.Place(&request); err == nil && d.Held != nil {
			o.Waits, o.Approval = d.Held, decide.ApproveArgument(o.policy.Ref.Kind, o.policy.Ref.Namespace, o.policy.Ref.Name)
		}
	}
}
