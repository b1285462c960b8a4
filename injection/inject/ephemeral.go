package inject

import (
	"fmt"
	"slices"
)

// InjectEphemeral injects into the ephemeral containers that an update of pods/ephemeralcontainers adds. old is the pod
// before the update, and pod the pod after it; both remain unmodified. Only policies that choose ephemeral containers
// apply. A running pod gets no volumes and annotations.
//
// Like [Set.Inject], InjectEphemeral returns an error if pod or old cannot be read.
func (s *Set) InjectEphemeral(pod, old []byte) (*Result, error) {
	h, err := readHead(pod)
	if err != nil {
		return nil, err
	}
	result := &Result{TemplateHash: h.templateHash()}
	policies := slices.DeleteFunc(s.matching(h.labels), func(p *Policy) bool { return !p.scope.ephemeral })
	if len(policies) == 0 {
		return result, nil
	}
	body, err := newcomers(pod, old)
	if err != nil {
		return nil, err
	}
	if len(body.containers) == 0 {
		return result, nil
	}
	if why := h.excluded(); why != nil {
		result.Skipped = why.forAll(policies)
		return result, nil
	}
	var unable []Skipped
	able := make([]*Policy, 0, len(policies))
	for _, p := range policies {
		if why := unsupported(p, body); why != nil {
			unable = append(unable, *why)
			continue
		}
		able = append(able, p)
	}
	d := injection{body: body, size: len(pod), patch: newPatch(false)}
	outcomes, rejected := d.run(able, (&past{}).trust)
	result.report(outcomes, rejected)
	result.Skipped = append(result.Skipped, unable...)
	slices.SortStableFunc(result.Skipped, func(a, b Skipped) int { return Compare(a.Policy, b.Policy) })
	if result.Rejected == nil {
		result.Patch = d.patch.done()
	}
	return result, nil
}

// newcomers reads a pod, and keeps only its new ephemeral containers.
func newcomers(pod, old []byte) (*body, error) {
	is, err := readBody(pod, ephemeralContainersPart)
	if err != nil {
		return nil, err
	}
	was, err := readBody(old, ephemeralContainersPart)
	if err != nil {
		return nil, fmt.Errorf("the pod as it was: %w", err)
	}
	known := make(map[string]bool, len(was.containers))
	for i := range was.containers {
		known[was.containers[i].name] = true
	}
	is.containers = slices.DeleteFunc(is.containers, func(c container) bool { return known[c.name] })
	return is, nil
}

// unsupported returns the reason why a running pod cannot have the items of a policy; nil if it can have them. A mount
// in an ephemeral container may not have a subPath, and no other part of the spec may change.
//
// Source: ValidatePodEphemeralContainersUpdate in
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/apis/core/validation/validation.go
func unsupported(p *Policy, b *body) *Skipped {
	for i := range p.mounts {
		value, _ := p.mounts[i].normal.(map[string]any)
		for _, key := range []string{"subPath", "subPathExpr"} {
			if value[key] == nil {
				continue
			}
			return &Skipped{
				Policy: p, Reason: ReasonUnsupported,
				Message: fmt.Sprintf("the mount at %s has a %s, which ephemeral containers cannot have", p.mounts[i].id, key),
			}
		}
	}
	for i := range p.volumes {
		if b.volumes.find(p.volumes[i].id) == nil {
			return &Skipped{
				Policy: p, Reason: ReasonVolumeMissing,
				Message: fmt.Sprintf("the pod does not have the volume %q, and none can be added to a pod that runs", p.volumes[i].id),
			}
		}
	}
	return nil
}
