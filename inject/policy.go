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

// Policy is a compiled ServiceInjectionPolicy: checked, its selector compiled and
// its items in the form in which they are injected and compared. It is immutable
// and may be used by many goroutines.
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
	// needs are the mounts of volumes that the policy does not bring, one for each
	// volume.
	needs []*item

	references []Reference
	warnings   []Warning
}

// item is one thing that a policy injects.
type item struct {
	// id is what two items have in common that cannot both be in one place: of a
	// variable and a volume the name, of a mount the clean path from the root, of a source of
	// variables PREFIX:Secret/NAME or PREFIX:ConfigMap/NAME.
	id string
	// hash is that of id.
	hash uint64
	// volume is the name of a mount's volume.
	volume string
	// raw is what is injected: compact JSON.
	raw []byte
	// normal is the same with the defaults of the API server, for comparison.
	normal any
}

// Reference is an object, in the namespace of a policy, that the pods need which
// get what the policy injects.
type Reference struct {
	// Kind is Secret, ConfigMap or PersistentVolumeClaim.
	Kind string
	Name string
	// Keys are those that the object must have, sorted; empty if any will do.
	Keys []string
	// Optional says that pods start without it.
	Optional bool
	// Path is the field of the policy that names it, or that would if the policy said
	// itself what comes from the Service.
	Path string
}

// Warning is what is allowed in a policy, and presumably not meant.
type Warning struct {
	// Path is the field of the policy.
	Path string
	// Message says what, and what to do.
	Message string
}

// String returns path and message.
func (w Warning) String() string { return w.Path + ": " + w.Message }

// Author names the policy in reports of what was changed by whom.
func (p *Policy) Author() tree.Policy { return p.object }

// Name of the policy.
func (p *Policy) Name() string { return p.object.Name }

// Namespace of the policy, whose pods it is for. Empty for a manifest that does
// not say.
func (p *Policy) Namespace() string { return p.object.Namespace }

// Generation of the policy that was compiled; 0 for a manifest.
func (p *Policy) Generation() int64 { return p.object.Generation }

// Service is the name of the service; may be empty.
func (p *Policy) Service() string { return p.service }

// Hash is of what the policy injects and where: 16 hexadecimal digits, the same
// for the manifest and the stored object, and whatever its selector, mode,
// onConflict, rollout and labels are.
func (p *Policy) Hash() string { return p.hash }

// Mode says whether the policy takes effect.
func (p *Policy) Mode() refractv1beta1.Mode { return p.mode }

// OnConflict says what becomes of a pod that conflicts with the policy.
func (p *Policy) OnConflict() refractv1beta1.OnConflict { return p.onConflict }

// Rollout says how existing pods are recreated, all of its fields filled in.
func (p *Policy) Rollout() refractv1beta1.Rollout { return p.rollout }

// Matches reports whether the selector chooses a pod with these labels.
func (p *Policy) Matches(podLabels map[string]string) bool {
	return p.selector.Matches(labels.Set(podLabels))
}

// References returns the Secrets, ConfigMaps and PersistentVolumeClaims that the
// policy names, each once, ordered by kind and name.
//
// Those that a driver or a token needs besides are not known here: what stands in
// the free parameters of a CSI volume, or the pod's own ServiceAccount.
func (p *Policy) References() []Reference {
	out := slices.Clone(p.references)
	for i := range out {
		out[i].Keys = slices.Clone(out[i].Keys)
	}
	return out
}

// Warnings returns what the author of the policy should know, ordered by field.
func (p *Policy) Warnings() []Warning { return slices.Clone(p.warnings) }

// Compare orders policies as they are applied: the oldest first, then by name. A
// policy without a time of creation, as in a manifest, counts as older than any.
func Compare(a, b *Policy) int {
	return cmp.Or(
		a.created.Compare(b.created.Time),
		strings.Compare(a.object.Name, b.object.Name),
		strings.Compare(a.object.Namespace, b.object.Namespace),
	)
}

// containerPart is the list of a pod in which a container stands.
type containerPart string

// The lists of containers of a pod.
const (
	containersPart          containerPart = "containers"
	initContainersPart      containerPart = "initContainers"
	ephemeralContainersPart containerPart = "ephemeralContainers"
)

// scope chooses containers of a pod.
type scope struct {
	include, exclude []string // Names in which * stands for any characters; no include is all.
	init, ephemeral  bool
}

// chooses reports whether the container of this name, in this list, is chosen.
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

// glob reports whether name fits the pattern, in which * stands for any
// characters, or none.
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
		// The first place is the best: it leaves the most to what follows.
		at := strings.Index(name, middle)
		if at < 0 {
			return false
		}
		name, rest = name[at+len(middle):], after
	}
}
