package render

import (
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/policy/rollout"
)

// Obeys returns the rollout policies of the object, and the object that names them: the object itself or, if neither it
// nor its namespace names a policy, one of its leaders (the objects that it travels with).
func (o *Outcome) Obeys(policies *manifest.Rollouts) (by *Outcome, names rollout.Names, warnings []string, err error) {
	names, warnings, err = policies.Named(o.Object)
	if err != nil || len(names.All()) > 0 {
		return o, names, warnings, err
	}
	for _, leader := range o.Leaders {
		if led, _, err := policies.Named(leader.Object); err == nil && len(led.All()) > 0 {
			return leader, led, nil, nil
		}
	}
	return o, names, warnings, nil
}
