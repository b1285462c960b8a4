package placement

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// Keeping is how the copies of an object are to be kept, as its annotations say.
type Keeping struct {
	// DryRun: nothing is written and nothing removed.
	DryRun bool
	// Frozen: the object comes to no cluster and leaves none.
	Frozen bool
	// RetainReplicas leaves spec.replicas of a copy that is there to its cluster.
	RetainReplicas bool
	// Left are fields that are sent to a cluster when a copy is created, and not afterwards.
	Left []tree.Pattern
	// Keep protects the copies: each is deleted without approval only if a user deletes the object.
	Keep bool
	// DisableFollowing: nothing travels with the object, and it with nothing.
	DisableFollowing bool
	// Orphan says which copies stay when the object goes: OrphanAll, OrphanAdopted,
	// or, if it is empty, none.
	Orphan string
	// Adopt says where an object that is there already becomes a copy.
	Adopt Adoption
	// Followers travel with the object, in the order of the annotation.
	Followers []Follower
}

// Which copies stay when their object goes.
const (
	OrphanAll     = "all"
	OrphanAdopted = "adopted"
)

// Adoption names clusters on which an object that is there already becomes a copy.
// The zero Adoption names none.
type Adoption struct {
	clusters []string // Sorted.
	pattern  *regexp.Regexp
}

// Includes reports whether an object that is there becomes a copy on a cluster.
func (a *Adoption) Includes(cluster string) bool {
	if _, found := slices.BinarySearch(a.clusters, cluster); found {
		return true
	}
	return a.pattern != nil && a.pattern.MatchString(cluster)
}

// Follower is an object of the same namespace that travels with another.
type Follower struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

// KeepingOf reads the annotations of an object on the hub. A value that means nothing
// is left out, with a warning that begins with "annotation KEY ".
func KeepingOf(annotations map[string]string) (Keeping, []string) {
	if len(annotations) == 0 {
		return Keeping{}, nil
	}
	r := annotationReader{annotations: annotations}
	k := Keeping{
		DryRun:           r.flag(corev1alpha1.DryRunAnnotation),
		Frozen:           r.flag(corev1alpha1.NoSchedulingAnnotation),
		RetainReplicas:   r.flag(corev1alpha1.RetainReplicasAnnotation),
		Keep:             r.flag(refractv1alpha1.KeepAnnotation),
		DisableFollowing: r.flag(corev1alpha1.DisableFollowingAnnotation),
		Orphan:           r.oneOf(corev1alpha1.OrphanAnnotation, OrphanAll, OrphanAdopted),
		Left:             r.left(),
		Adopt:            r.adoption(),
		Followers:        r.followers(),
	}
	return k, r.warnings
}

// annotationReader collects what it cannot make sense of.
type annotationReader struct {
	annotations map[string]string
	warnings    []string
}

func (r *annotationReader) warnf(key, format string, args ...any) {
	r.warnings = append(r.warnings, "annotation "+key+" "+fmt.Sprintf(format, args...))
}

func (r *annotationReader) flag(key string) bool {
	switch value := r.annotations[key]; value {
	case "true":
		return true
	case "false", "":
		return false
	default:
		r.warnf(key, "is %q and not acted on: want \"true\" or \"false\"", value)
		return false
	}
}

func (r *annotationReader) oneOf(key string, values ...string) string {
	value := r.annotations[key]
	if value == "" || slices.Contains(values, value) {
		return value
	}
	r.warnf(key, "is %q and not acted on: want one of %q", value, values)
	return ""
}

func (r *annotationReader) adoption() Adoption {
	const adopt = "adopt"
	const key = corev1alpha1.ClustersToAdoptAnnotation
	asked := r.oneOf(corev1alpha1.ConflictResolutionAnnotation, adopt) == adopt
	text, named := r.annotations[key]
	switch {
	case !asked && !named:
		return Adoption{}
	case !asked:
		r.warnf(key, "is not acted on without annotation %s: %s", corev1alpha1.ConflictResolutionAnnotation, adopt)
		return Adoption{}
	case !named:
		r.warnf(corev1alpha1.ConflictResolutionAnnotation, "adopts nothing: annotation %s must name the clusters", key)
		return Adoption{}
	}
	var value struct {
		Clusters []string `json:"clusters"`
		Regexp   string   `json:"regexp"`
	}
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		r.warnf(key, `is not acted on: want {"clusters":["…"],"regexp":"…"}: %v`, err)
		return Adoption{}
	}
	if len(value.Clusters) == 0 && value.Regexp == "" {
		r.warnf(key, `names no cluster, so nothing is adopted: want {"clusters":["…"],"regexp":"…"}`)
	}
	a := Adoption{clusters: slices.Sorted(slices.Values(value.Clusters))}
	if value.Regexp != "" {
		var err error
		if a.pattern, err = regexp.Compile(value.Regexp); err != nil {
			r.warnf(key, "has a regexp that is not acted on: %v", err)
		}
	}
	return a
}

func (r *annotationReader) followers() []Follower {
	const key = corev1alpha1.FollowersAnnotation
	text, ok := r.annotations[key]
	if !ok {
		return nil
	}
	var all []Follower
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		r.warnf(key, `is not acted on: want [{"group":"…","kind":"…","name":"…"}]: %v`, err)
		return nil
	}
	var good []Follower
	for i, f := range all {
		switch {
		case f.Kind == "" || f.Name == "":
			r.warnf(key, "has an item [%d] that is not acted on: it must have a kind and a name", i)
		case !Follows(schema.GroupKind{Group: f.Group, Kind: f.Kind}):
			r.warnf(key, "has an item [%d] that is not acted on: objects of kind %s do not travel with others", i, f.Kind)
		case !slices.Contains(good, f):
			good = append(good, f)
		}
	}
	return good
}

// The most that [refractv1alpha1.LeftToMembersAnnotation] may hold.
const (
	mostLeft       = 100  // Pointers.
	mostLeftLength = 1000 // Bytes of a pointer.
)

func (r *annotationReader) left() []tree.Pattern {
	const key = refractv1alpha1.LeftToMembersAnnotation
	text, ok := r.annotations[key]
	if !ok {
		return nil
	}
	var pointers []string
	if err := json.Unmarshal([]byte(text), &pointers); err != nil {
		r.warnf(key, `is not acted on: want a JSON array of JSON pointers, for example ["/spec/replicas"]: %v`, err)
		return nil
	}
	if len(pointers) > mostLeft {
		r.warnf(key, "is not acted on: want at most %d pointers, got %d", mostLeft, len(pointers))
		return nil
	}
	var good []tree.Pattern
	for i, pointer := range pointers {
		pattern, err := leftField(pointer)
		if err != nil {
			r.warnf(key, "has an item [%d] that is not acted on: %v", i, err)
			continue
		}
		if !slices.ContainsFunc(good, pattern.Equal) {
			good = append(good, pattern)
		}
	}
	return good
}

// leftField parses one pointer. What says which object this is, and what Refract keeps on
// copies, cannot be left to a cluster.
func leftField(pointer string) (tree.Pattern, error) {
	if len(pointer) > mostLeftLength {
		return tree.Pattern{}, fmt.Errorf("a pointer may have %d bytes, and this one has %d", mostLeftLength, len(pointer))
	}
	pattern, err := tree.ParsePattern(pointer)
	if err != nil {
		return tree.Pattern{}, err
	}
	keys := pattern.Keys()
	switch {
	case keys[0] == "apiVersion", keys[0] == "kind", keys[0] == "status", strings.HasSuffix(keys[0], "*"):
		return tree.Pattern{}, fmt.Errorf("%q names no field that can be left to a cluster: want a field of the spec, a label or an annotation", pointer)
	case keys[0] != "metadata":
		return pattern, nil
	case len(keys) == 3 && (keys[1] == "labels" || keys[1] == "annotations") && keys[2] != "*":
		return pattern, nil
	default:
		return tree.Pattern{}, fmt.Errorf("%q is not a label or an annotation: of metadata, want /metadata/labels/KEY or /metadata/annotations/KEY", pointer)
	}
}

// Lacking returns why an object must not be placed as it was read: something of it could not be converted to the
// version that it was read in, and its copies would lack that; empty if it has all.
func Lacking(annotations map[string]string) string {
	what, lacks := annotations[refractv1alpha1.UnconvertedAnnotation]
	if !lacks {
		return ""
	}
	if len(what) > mostLacking {
		what = strings.ToValidUTF8(what[:mostLacking], "") + "…"
	}
	return fmt.Sprintf("something of it cannot be converted to the version in which it is read, and its copies would lack that: %s. "+
		"Change it in the version that it is from, or mend the conversion", what)
}

// mostLacking is how many bytes of what an object lacks are said.
const mostLacking = 512

// Held returns the annotation by which an object asks that nothing is written to
// clusters and nothing removed from them; empty if it does not.
func Held(annotations map[string]string) string {
	if annotations[corev1alpha1.DryRunAnnotation] == "true" {
		return corev1alpha1.DryRunAnnotation
	}
	return ""
}
