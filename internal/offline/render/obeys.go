package render

import (
	"refract.dev/internal/offline/manifest"
	"refract.dev/release"
)

// Obeys returns the rollout policies by which changes of the object go out, and the object that names them: itself, or what
// it travels with if it names none, nor its namespace.
func (o *Outcome) Obeys(policies *manifest.Rollouts) (by *Outcome, names release.Names, warnings []string, err error) {
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
