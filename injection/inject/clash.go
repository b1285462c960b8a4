package inject

import (
	"fmt"
	"strings"

	"refract.dev/tree/raw"
)

// maxClaimName is the longest name of a PersistentVolumeClaim.
const maxClaimName = 253

// clash returns the reason to skip a policy whose volume is valid by itself, but makes the pod invalid. It returns nil
// if the pod remains valid. An ephemeral volume creates a PersistentVolumeClaim with the name POD-VOLUME. This name
// must not be too long, and no other volume may use the claim. clash does not check pods with generated names: such
// names are short and not yet known.
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

// volumeOfClaim returns the name of the volume in the pod or the policy that uses the claim, or "" without such a
// volume.
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

// volumeNamed returns the JSON of the volume with this name in the pod or the policy, or nil if neither has one.
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

// claimOf returns the name of the PersistentVolumeClaim that a volume uses, or an empty string. ephemeral is true for
// an ephemeral volume, which creates its own claim.
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
