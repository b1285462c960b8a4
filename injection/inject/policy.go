package inject

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/tree"
)

// Policy is a compiled ServiceInjectionPolicy: it is valid, its selector is compiled, and its items are ready for
// injection and comparison. It is immutable and safe for concurrent use.
type Policy struct {
	object     tree.Policy
	created    metav1.Time
	service    string
	selector   labels.Selector
	scope      scope
	position   refractv1beta1.EnvPosition
	onConflict refractv1beta1.OnConflict
	mode       refractv1beta1.Mode
	rollout    refractv1beta1.Rollout
	hash       string

	env, envFrom, volumes, mounts []item
	// needs has one mount for each volume that the policy mounts but does not add.
	needs []*item

	references []Reference
	warnings   []Warning
}

// item is one item that a policy injects.
type item struct {
	// id is the identity of the item. A list of a container or pod cannot have two items with the same id. It is the
	// name of a variable or volume, the clean absolute path of a mount, or, for an envFrom source, PREFIX:Secret/NAME
	// or PREFIX:ConfigMap/NAME.
	id string
	// hash is the hash of id.
	hash uint64
	// volume is the name of a mount's volume.
	volume string
	// raw is the item as compact JSON, as it is injected.
	raw []byte
	// normal is the item in its normal form, for comparisons. See normalize.
	normal any
}

// Reference is an object that the policy's pods need, in the namespace of the policy.
type Reference struct {
	// Kind is Secret, ConfigMap or PersistentVolumeClaim.
	Kind string
	Name string
	// Keys are the required keys of the object, sorted; empty if no key is required.
	Keys []string
	// Optional is true if pods start without the object.
	Optional bool
	// Path is the field of the policy that names the object. For an item of the Service it is the field in the status.
	Path string
}

// Warning describes content of a policy that is allowed but probably a mistake.
type Warning struct {
	// Path is the field of the policy.
	Path string
	// Message describes the problem and the remedy.
	Message string
}

// String returns the path and the message.
func (w Warning) String() string { return w.Path + ": " + w.Message }

// Author identifies the policy as the author of changes in reports.
func (p *Policy) Author() tree.Policy { return p.object }

// Name returns the name of the policy.
func (p *Policy) Name() string { return p.object.Name }

// Namespace returns the namespace of the policy and of its pods. It is empty for a manifest without a namespace.
func (p *Policy) Namespace() string { return p.object.Namespace }

// Generation returns the generation of the compiled policy; 0 for a manifest.
func (p *Policy) Generation() int64 { return p.object.Generation }

// Service returns the name of the service; may be empty.
func (p *Policy) Service() string { return p.service }

// Hash returns the hash of the injected content and its place: 16 hexadecimal digits. The manifest and the stored
// object have the same hash. The hash does not depend on the selector, mode, onConflict, rollout or labels.
func (p *Policy) Hash() string { return p.hash }

// Mode returns whether the policy takes effect.
func (p *Policy) Mode() refractv1beta1.Mode { return p.mode }

// OnConflict returns the treatment of a pod that conflicts with the policy.
func (p *Policy) OnConflict() refractv1beta1.OnConflict { return p.onConflict }

// Rollout returns the settings for the recreation of existing pods, with all fields filled in.
func (p *Policy) Rollout() refractv1beta1.Rollout { return p.rollout }

// Matches reports whether the selector matches a pod with these labels.
func (p *Policy) Matches(podLabels map[string]string) bool {
	return p.selector.Matches(labels.Set(podLabels))
}

// References returns the Secrets, ConfigMaps and PersistentVolumeClaims that the policy names, each once, ordered by
// kind and name.
//
// The result lacks two kinds of objects: those in the free-form parameters of a CSI volume, and the ServiceAccount of a
// token.
func (p *Policy) References() []Reference {
	out := slices.Clone(p.references)
	for i := range out {
		out[i].Keys = slices.Clone(out[i].Keys)
	}
	return out
}

// Warnings returns the warnings for the author of the policy, ordered by field.
func (p *Policy) Warnings() []Warning { return slices.Clone(p.warnings) }

// Compare orders policies in the order of application: the oldest first, then by name. A policy without a creation
// time, as in a manifest, is older than all others.
func Compare(a, b *Policy) int {
	return cmp.Or(
		a.created.Compare(b.created.Time),
		strings.Compare(a.object.Name, b.object.Name),
		strings.Compare(a.object.Namespace, b.object.Namespace),
	)
}

// containerPart is the field of the pod's spec that lists a container.
type containerPart string

// The lists of containers in the spec of a pod.
const (
	containersPart          containerPart = "containers"
	initContainersPart      containerPart = "initContainers"
	ephemeralContainersPart containerPart = "ephemeralContainers"
)

// scope chooses containers of a pod.
type scope struct {
	include, exclude []string // Names of containers; * stands for any characters. An empty include chooses all names.
	init, ephemeral  bool
}

// chooses reports whether the scope chooses the container with this name in this list.
func (s *scope) chooses(name string, part containerPart) bool {
	switch {
	case part == initContainersPart && !s.init:
		return false
	case part == ephemeralContainersPart && !s.ephemeral:
		return false
	case len(s.include) > 0 && !matchesAny(s.include, name):
		return false
	default:
		return !matchesAny(s.exclude, name)
	}
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return glob(pattern, name) })
}

// glob reports whether name matches the pattern; * stands for any number of characters.
func glob(pattern, name string) bool {
	prefix, rest, found := strings.Cut(pattern, "*")
	if !found {
		return name == pattern
	}
	name, fits := strings.CutPrefix(name, prefix)
	if !fits {
		return false
	}
	for {
		middle, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(name, rest)
		}
		// Taking the first match is correct, because it leaves the longest rest for the other parts of the pattern.
		at := strings.Index(name, middle)
		if at < 0 {
			return false
		}
		name, rest = name[at+len(middle):], after
	}
}
