package inject

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// injection is an injection in progress: the content of the pod and the additions of policies so far.
type injection struct {
	*body

	name    string   // The name of the pod; empty if it is not known yet.
	size    int      // The bytes of the pod with all additions.
	patch   *patch   // Nil if no patch is needed.
	before  *past    // The pod's record of earlier additions; nil if it does not matter.
	sources *sources // The sources in before; created at the first use.

	// The fields below concern the policy that is being considered.
	previous  previous
	chosen    []int // Indexes of containers.
	additions []addition
	growth    int // The bytes of the additions.
}

// maxPod is the maximum size of a pod with all additions, in bytes. An API server stores at most 1.5 MiB. The
// difference is reserved for annotations and for the pod's status. A dry run does not show whether a pod is too large,
// because it stores nothing.
//
// Source: --max-request-bytes of etcd.
const maxPod = 1 << 20

// addition is an item that a policy would add.
type addition struct {
	container int // The index of the container; -1 for the pod.
	of        itemKind
	index     int // The index in the policy's list.
}

// ofPod is the value of addition.container for an addition to the pod itself, which is a volume.
const ofPod = -1

// items returns the policy's list of items of a kind.
func (p *Policy) items(of itemKind) []item {
	switch of {
	case envItem:
		return p.env
	case envFromItem:
		return p.envFrom
	case volumeItem:
		return p.volumes
	default:
		return p.mounts
	}
}

// inContainers are the kinds of items in a container, in the order of injection.
var inContainers = [...]itemKind{envItem, envFromItem, mountItem}

// conflictReasons has the reason for skipping a policy that conflicts over an item of each kind.
var conflictReasons = [...]string{
	envItem: ReasonEnvConflict, envFromItem: ReasonEnvFromConflict,
	volumeItem: ReasonVolumeConflict, mountItem: ReasonMountConflict,
}

// tolerance is the consequence of a conflict between a policy and one container.
type tolerance int

const (
	// strict: the whole policy is skipped.
	strict tolerance = iota
	// proven: only the container is skipped, provided that another container has all items of the policy. This applies
	// to a policy in the pod's record: the container may have been added after the first injection.
	proven
	// lenient: only the container is skipped.
	lenient
)

// consider determines the additions of a policy. If the policy must be skipped, consider returns the reason. Otherwise
// it returns nil and stores the additions in d.additions.
func (d *injection) consider(p *Policy, t tolerance) *Skipped {
	d.additions, d.growth = d.additions[:0], 0
	d.previous = d.before.previous(p)
	d.choose(p)
	if len(d.chosen) == 0 {
		return &Skipped{Policy: p, Reason: ReasonNoContainer, Message: "the policy chooses none of the containers"}
	}
	if skipped := d.considerVolumes(p); skipped != nil {
		return skipped
	}
	if missing := d.missing(p); len(missing) > 0 {
		return missingVolume(p, missing[0])
	}
	holding := d.chosen[:0]
	for at, i := range d.chosen {
		if d.spent() {
			break // The work limit is exceeded, so the policy's outcome is not reported.
		}
		before, growth := len(d.additions), d.growth
		conflict := d.considerContainer(p, i)
		if conflict == nil {
			holding = append(holding, i)
			continue
		}
		d.additions, d.growth = d.additions[:before], growth
		if t := d.toleranceOf(conflict, t); t == strict || t == proven && len(holding) == at && !d.isProven(p) {
			return conflict
		}
	}
	d.chosen = holding
	return nil
}

// toleranceOf returns the tolerance for a conflict. If a recorded policy has no room in one more container, that
// container is skipped, because the earlier containers still have the policy's items.
func (d *injection) toleranceOf(s *Skipped, t tolerance) tolerance {
	if s.Reason == ReasonTooLarge && d.previous.of != nil {
		return max(t, proven)
	}
	return t
}

// add appends an addition to d.additions. If the pod would become too large, add returns the reason for skipping the
// policy.
func (d *injection) add(p *Policy, a addition) *Skipped {
	d.additions = append(d.additions, a)
	d.growth += len(p.items(a.of)[a.index].raw)
	d.work += workOfAddition
	if d.size+d.growth <= maxPod {
		return nil
	}
	return &Skipped{
		Policy:  p,
		Reason:  ReasonTooLarge,
		Message: fmt.Sprintf("with the items of the policy the pod would have more than %d bytes, and could not be stored", maxPod),
	}
}

func (d *injection) choose(p *Policy) {
	d.chosen = d.chosen[:0]
	patterns := len(p.scope.include) + len(p.scope.exclude)
	for i := range d.containers {
		d.work += 1 + patterns*(workOfName+len(d.containers[i].name)/workOfByte)
		if c := &d.containers[i]; p.scope.chooses(c.name, c.part) {
			d.chosen = append(d.chosen, i)
		}
	}
}

func (d *injection) considerVolumes(p *Policy) *Skipped {
	d.work += len(p.volumes) + len(p.needs)
	for i := range p.volumes {
		it := &p.volumes[i]
		there := d.volumes.findItem(it)
		if there == nil {
			if clash := d.clash(p, it); clash != nil {
				return clash
			}
			if full := d.add(p, addition{container: ofPod, of: volumeItem, index: i}); full != nil {
				return full
			}
			continue
		}
		if !d.same(there, volumeItem, it) && !d.ours(there, nil, volumeItem) {
			return conflict(p, volumeItem, it, there, nil)
		}
	}
	return nil
}

// same reports whether an entry of the pod means the same as an item of a policy.
func (d *injection) same(there *entry, of itemKind, it *item) bool {
	if there.of == it {
		return true
	}
	d.work += len(there.raw) / workOfByte
	if bytes.Equal(there.raw, it.raw) {
		return true
	}
	d.work += workOfComparison
	return there.same(of, it)
}

// missing returns the first mount of each volume that neither the policy nor the pod has.
func (d *injection) missing(p *Policy) []*item {
	var out []*item
	for _, it := range p.needs {
		if d.volumes.find(it.volume) == nil {
			out = append(out, it)
		}
	}
	return out
}

// missingVolume returns the reason for skipping a policy because of a missing volume: an API server rejects a pod that
// mounts a volume that the pod does not have.
func missingVolume(p *Policy, it *item) *Skipped {
	return &Skipped{
		Policy:  p,
		Reason:  ReasonVolumeMissing,
		Message: fmt.Sprintf("neither the policy nor the pod has the volume %q of the %s", it.volume, it.describe(mountItem)),
	}
}

// considerContainer determines the additions of a policy to a container.
func (d *injection) considerContainer(p *Policy, container int) *Skipped {
	c := &d.containers[container]
	for _, of := range inContainers {
		there := c.list(of)
		items := p.items(of)
		d.work += len(items)
		for i := range items {
			it := &items[i]
			e := there.findItem(it)
			if e != nil {
				if !d.same(e, of, it) && !d.ours(e, c, of) {
					return conflict(p, of, it, e, c)
				}
				continue
			}
			if of == mountItem {
				if blocked := c.blocked(p, it); blocked != nil {
					return blocked
				}
			}
			if full := d.add(p, addition{container: container, of: of, index: i}); full != nil {
				return full
			}
		}
	}
	return nil
}

// blocked returns the reason for skipping a policy whose mount uses the path or the volume of a block device; nil
// without such a device.
func (c *container) blocked(p *Policy, it *item) *Skipped {
	there, message := c.devices.find(it.id), "has a block device at "+it.id
	if there == nil {
		there, message = c.blocks.find(it.volume), fmt.Sprintf("has the volume %q of the %s as a block device", it.volume, it.describe(mountItem))
	}
	if there == nil {
		return nil
	}
	return &Skipped{
		Policy:  p,
		Reason:  ReasonMountConflict,
		Message: fmt.Sprintf("%s %q %s", c.part.singular(), c.name, message),
		Path:    fmt.Sprintf("%s/%d", appendPlace(nil, c, "volumeDevices"), there.at),
	}
}

// isProven reports whether the pod has all volumes of the policy, and one of the chosen containers has all its other
// items.
func (d *injection) isProven(p *Policy) bool {
	before, growth := len(d.additions), d.growth
	defer func() { d.additions, d.growth = d.additions[:before], growth }()
	if before > 0 && d.additions[0].container == ofPod {
		return false
	}
	for _, i := range d.chosen {
		missing := len(d.additions)
		if d.considerContainer(p, i) == nil && len(d.additions) == missing {
			return true
		}
	}
	return false
}

// fromPolicy comes before the name of the policy that added the conflicting item, in the message of a conflict.
const fromPolicy = ", from policy "

// conflict returns the reason for skipping a policy whose item conflicts with an entry. c is the container of the
// entry, or nil for a volume of the pod.
func conflict(p *Policy, of itemKind, it *item, there *entry, c *container) *Skipped {
	s := &Skipped{Policy: p, Reason: conflictReasons[of]}
	who := "the pod"
	if c != nil {
		who = fmt.Sprintf("%s %q", c.part.singular(), c.name)
	}
	s.Message = fmt.Sprintf("%s has another %s", who, it.describe(of))
	if there.by != nil {
		s.Message += fromPolicy + there.by.Name()
		return s
	}
	s.Path = fmt.Sprintf("%s/%d", appendPlace(nil, c, of.field()), there.at)
	return s
}

// singular returns the name for one container of this list, for messages.
func (part containerPart) singular() string {
	switch part {
	case initContainersPart:
		return "init container"
	case ephemeralContainersPart:
		return "ephemeral container"
	default:
		return "container"
	}
}

// describe names an item for messages. It omits the value, which may be secret.
func (it *item) describe(of itemKind) string {
	switch of {
	case envItem:
		return "variable " + it.id
	case envFromItem:
		prefix, name, _ := strings.Cut(it.id, ":")
		if prefix != "" {
			name += " with prefix " + prefix
		}
		return "source of variables " + name
	case volumeItem:
		return fmt.Sprintf("volume %q", it.id)
	default:
		return "mount at " + it.id
	}
}

// apply adds the items that consider has found missing, and returns them.
func (d *injection) apply(p *Policy) Applied {
	front := front{container: ofPod}
	d.patch.grow(len(d.additions), d.growth)
	for at, a := range d.additions {
		it := &p.items(a.of)[a.index]
		l, c := &d.volumes, (*container)(nil)
		if a.container != ofPod {
			c = &d.containers[a.container]
			l = c.list(a.of)
		}
		if at == 0 || d.additions[at-1].container != a.container || d.additions[at-1].of != a.of {
			l.entries = slices.Grow(l.entries, alike(d.additions[at:]))
		}
		place := l.length
		prepend := a.of == envItem && p.position == refractv1beta1.EnvPrepend
		if prepend {
			place = front.next(d, p, a, l)
		}
		d.patch.addItem(p, a, c, l, place, prepend)
		if prepend && place == l.prepended {
			l.prepended++
		}
		l.add(it, p, place)
	}
	d.size += d.growth
	return d.applied(p)
}

// alike returns the number of additions at the start that go to the same list.
func alike(additions []addition) int {
	n := slices.IndexFunc(additions, func(a addition) bool { return a.container != additions[0].container || a.of != additions[0].of })
	if n < 0 {
		return len(additions)
	}
	return n
}

// front determines the indexes of prepended variables in one container.
type front struct {
	container int
	seen      int // How many variables of the policy have been examined.
	behind    int // The first index behind the examined variables and the earlier prepended ones.
}

// next returns the index for an added variable. The variable comes after the variables that earlier policies prepended,
// and after the preceding variables of its own policy, to which it may refer. The pod may already have some of these.
func (f *front) next(d *injection, p *Policy, a addition, l *list) int {
	if f.container != a.container {
		*f = front{container: a.container, behind: l.prepended}
	}
	for ; f.seen < a.index; f.seen++ {
		if e := l.findItem(&p.env[f.seen]); e != nil {
			d.work += 1 + (len(l.inserted)-e.since)/workOfByte
			f.behind = max(f.behind, l.position(e)+1)
		}
	}
	at := f.behind
	f.seen, f.behind = a.index+1, at+1
	return at
}

// applied lists the names of the additions, each name once, in the order of the policy.
func (d *injection) applied(p *Policy) Applied {
	out := Applied{Policy: p}
	if len(d.chosen) < len(d.containers) {
		out.Containers = make([]string, len(d.chosen))
		for i, at := range d.chosen {
			out.Containers[i] = d.containers[at].name
		}
	}
	if len(d.additions) == 0 {
		return out
	}
	var space [64]bool
	first := [...]int{envItem: 0, envFromItem: len(p.env), volumeItem: len(p.env) + len(p.envFrom), mountItem: len(p.env) + len(p.envFrom) + len(p.volumes)}
	total := first[mountItem] + len(p.mounts)
	added := space[:]
	if total > len(space) {
		added = make([]bool, total)
	}
	for _, a := range d.additions {
		added[first[a.of]+a.index] = true
	}
	names := make([]string, 0, total)
	list := func(of itemKind) []string {
		start := len(names)
		for i := range p.items(of) {
			if added[first[of]+i] {
				names = append(names, p.items(of)[i].id)
			}
		}
		if len(names) == start {
			return nil
		}
		return names[start:len(names):len(names)]
	}
	out.Env, out.EnvFrom, out.Volumes, out.Mounts = list(envItem), list(envFromItem), list(volumeItem), list(mountItem)
	return out
}
