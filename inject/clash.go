package inject

import (
	"fmt"
	"strings"

	"refract.dev/tree/raw"
)

// maxClaimName is how long the name of a PersistentVolumeClaim may be.
const maxClaimName = 253

// clash says why a volume of a policy would make the pod invalid for what else there
// is; nil if it would not. The claim of an ephemeral volume is called POD-VOLUME: that
// must be a name, and no other volume may be of this claim. Of pods whose names are
// generated neither can happen: those are short, and nobody knows them before.
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
		message = fmt.Sprintf("the claim of the ephemeral volume %q would have a name of more than %d characters, for the pod's is long", it.id, maxClaimName)
	case ephemeral:
		if other := d.volumeOfClaim(p, d.name+"-"+it.id); other != "" {
			message = fmt.Sprintf("the volume %q is of the claim that the ephemeral volume %q makes", other, it.id)
		}
	case strings.HasPrefix(claim, d.name+"-"):
		name := strings.TrimPrefix(claim, d.name+"-")
		if _, makes := claimOf(d.volumeNamed(p, name)); makes {
			message = fmt.Sprintf("the volume %q is of the claim that the ephemeral volume %q makes", it.id, name)
		}
	}
	if message == "" {
		return nil
	}
	return &Skipped{Policy: p, Reason: ReasonVolumeConflict, Message: message}
}

// volumeOfClaim returns the name of a volume of the pod, or of the policy, that is of
// a claim; empty if none is.
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

// volumeNamed returns a volume of the pod, or of the policy; nil if there is none.
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

// claimOf returns the name of the PersistentVolumeClaim that a volume is of, empty if
// it is of none, and whether it is an ephemeral one, which makes its own.
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
