package inject

import (
	"fmt"
	"strings"

	"refract.dev/tree/raw"
)

// maxClaimName is the longest name of a PersistentVolumeClaim.
const maxClaimName = 253

// clash returns the reason why a volume of a policy would make the pod invalid in combination with the rest of the pod;
// nil if the pod remains valid. The claim of an ephemeral volume is named POD-VOLUME: this must be a valid name, and no
// other volume may use this claim. Neither rule is violated if the name of the pod is generated: such names are short
// and not known in advance.
//
// Source: ValidateVolumes in
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/apis/core/validation/validation.go
func (d *injection) clash(p *Policy, it *item) *Skipped {
	if d.name == "" {
		return nil
	}
	claim, ephemeral := claimOf(it.raw)
	message := ""
	switch {
	case ephemeral && len(d.name)+len("-")+len(it.id) > maxClaimName:
		const format = "the claim of the ephemeral volume %q would have a name of more than %d characters: the pod name is too long"
		message = fmt.Sprintf(format, it.id, maxClaimName)
	case ephemeral:
		if other := d.volumeOfClaim(p, d.name+"-"+it.id); other != "" {
			message = fmt.Sprintf("the volume %q uses the claim that the ephemeral volume %q makes", other, it.id)
		}
	case strings.HasPrefix(claim, d.name+"-"):
		name := strings.TrimPrefix(claim, d.name+"-")
		if _, makes := claimOf(d.volumeNamed(p, name)); makes {
			message = fmt.Sprintf("the volume %q uses the claim that the ephemeral volume %q makes", it.id, name)
		}
	}
	if message == "" {
		return nil
	}
	return &Skipped{Policy: p, Reason: ReasonVolumeConflict, Message: message}
}

// volumeOfClaim returns the name of a volume of the pod, or of the policy, that uses the claim; empty if no volume
// does.
func (d *injection) volumeOfClaim(p *Policy, name string) string {
	d.work += len(d.volumes.entries) + len(p.volumes)
	for i := range d.volumes.entries {
		if claim, _ := claimOf(d.volumes.entries[i].raw); claim == name {
			return d.volumes.entries[i].id
		}
	}
	for i := range p.volumes {
		if claim, _ := claimOf(p.volumes[i].raw); claim == name {
			return p.volumes[i].id
		}
	}
	return ""
}

// volumeNamed returns a volume of the pod, or of the policy; nil if it does not exist.
func (d *injection) volumeNamed(p *Policy, name string) []byte {
	if e := d.volumes.find(name); e != nil {
		return e.raw
	}
	for i := range p.volumes {
		if p.volumes[i].id == name {
			return p.volumes[i].raw
		}
	}
	return nil
}

// claimOf returns the name of the PersistentVolumeClaim that a volume uses, or an empty string, and whether the volume
// is an ephemeral one, which creates its own claim.
func claimOf(volume []byte) (claim string, ephemeral bool) {
	s := raw.New(volume)
	s.Object(func(key []byte) {
		switch {
		case s.Null():
		case string(key) == "ephemeral":
			ephemeral = true
		case string(key) == "persistentVolumeClaim":
			s.Object(func(key []byte) {
				if string(key) == "claimName" {
					claim = string(optionalText(s))
				}
			})
		}
	})
	return claim, ephemeral
}
