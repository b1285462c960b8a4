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

// Keeping has the settings for the copies of an object. The object's annotations contain them.
type Keeping struct {
	// DryRun: copies are neither written nor removed.
	DryRun bool
	// Frozen: the object is added to no cluster and leaves none.
	Frozen bool
	// RetainReplicas leaves spec.replicas of an existing copy to its cluster.
	RetainReplicas bool
	// Left are fields that are sent to a cluster only when a copy is created.
	Left []tree.Pattern
	// Keep protects the copies: a copy is deleted without approval only if a user deletes the object.
	Keep bool
	// DisableFollowing: the object does not travel with other objects, and no other objects travel with it.
	DisableFollowing bool
	// Orphan determines which copies stay when the object is deleted: OrphanAll, OrphanAdopted or, if it is empty,
	// none.
	Orphan string
	// Adopt determines on which clusters an existing object becomes a copy.
	Adopt Adoption
	// Followers are the objects that travel with the object, in the order of the annotation.
	Followers []Follower
}

// Copies that stay when their object is deleted.
const (
	OrphanAll     = "all"
	OrphanAdopted = "adopted"
)

// Adoption names clusters on which an existing object becomes a copy. The zero Adoption names none.
type Adoption struct {
	clusters []string // Sorted.
	pattern  *regexp.Regexp
}

// Includes reports whether an existing object on this cluster becomes a copy.
func (a *Adoption) Includes(cluster string) bool {
	if _, found := slices.BinarySearch(a.clusters, cluster); found {
		return true
	}
	return a.pattern != nil && a.pattern.MatchString(cluster)
}

// Follower is an object of the same namespace that travels with another object.
type Follower struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

// KeepingOf reads the annotations of an object on the hub. An invalid value is ignored, with a warning that begins with
// "annotation KEY ".
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

// annotationReader collects warnings about invalid values.
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
		r.warnf(key, "is %q and ignored: want \"true\" or \"false\"", value)
		return false
	}
}

func (r *annotationReader) oneOf(key string, values ...string) string {
	value := r.annotations[key]
	if value == "" || slices.Contains(values, value) {
		return value
	}
	r.warnf(key, "is %q and ignored: want one of %q", value, values)
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
		r.warnf(key, "is ignored without annotation %s: %s", corev1alpha1.ConflictResolutionAnnotation, adopt)
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
		r.warnf(key, `is ignored: want {"clusters":["…"],"regexp":"…"}: %v`, err)
		return Adoption{}
	}
	if len(value.Clusters) == 0 && value.Regexp == "" {
		r.warnf(key, `names no cluster, so nothing is adopted: want {"clusters":["…"],"regexp":"…"}`)
	}
	a := Adoption{clusters: slices.Sorted(slices.Values(value.Clusters))}
	if value.Regexp != "" {
		var err error
		if a.pattern, err = regexp.Compile(value.Regexp); err != nil {
			r.warnf(key, "has a regexp that is ignored: %v", err)
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
		r.warnf(key, `is ignored: want [{"group":"…","kind":"…","name":"…"}]: %v`, err)
		return nil
	}
	var good []Follower
	for i, f := range all {
		switch {
		case f.Kind == "" || f.Name == "":
			r.warnf(key, "has an item [%d] that is ignored: it must have a kind and a name", i)
		case !Follows(schema.GroupKind{Group: f.Group, Kind: f.Kind}):
			r.warnf(key, "has an item [%d] that is ignored: objects of kind %s do not travel with others", i, f.Kind)
		case !slices.Contains(good, f):
			good = append(good, f)
		}
	}
	return good
}

// Limits of [refractv1alpha1.LeftToMembersAnnotation].
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
		r.warnf(key, `is ignored: want a JSON array of JSON pointers, for example ["/spec/replicas"]: %v`, err)
		return nil
	}
	if len(pointers) > mostLeft {
		r.warnf(key, "is ignored: want at most %d pointers, got %d", mostLeft, len(pointers))
		return nil
	}
	var good []tree.Pattern
	for i, pointer := range pointers {
		pattern, err := leftField(pointer)
		if err != nil {
			r.warnf(key, "has an item [%d] that is ignored: %v", i, err)
			continue
		}
		if !slices.ContainsFunc(good, pattern.Equal) {
			good = append(good, pattern)
		}
	}
	return good
}

// leftField parses one pointer. Fields of the object's identity, and fields that Refract maintains on copies, cannot be
// left to a cluster.
func leftField(pointer string) (tree.Pattern, error) {
	if len(pointer) > mostLeftLength {
		return tree.Pattern{}, fmt.Errorf("want at most %d bytes, got %d", mostLeftLength, len(pointer))
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
		return tree.Pattern{}, fmt.Errorf("%q is not a label or an annotation: want /metadata/labels/KEY or /metadata/annotations/KEY", pointer)
	}
}

// Lacking returns the reason why an object must not be placed: the API server could not convert a part of it to the
// version that Refract reads, so its copies would lack that part. The result is empty if the object is complete.
func Lacking(annotations map[string]string) string {
	what, lacks := annotations[refractv1alpha1.UnconvertedAnnotation]
	if !lacks {
		return ""
	}
	if len(what) > mostLacking {
		what = strings.ToValidUTF8(what[:mostLacking], "") + "…"
	}
	return fmt.Sprintf("a part of it cannot be converted to the version that Refract reads, and its copies would lack it: %s. "+
		"Change it in its original version, or fix the conversion", what)
}

// mostLacking is the maximum number of bytes of the description of the missing parts.
const mostLacking = 512

// Held returns the annotation that forbids writes and removals on clusters; empty if the object has none.
func Held(annotations map[string]string) string {
	if annotations[corev1alpha1.DryRunAnnotation] == "true" {
		return corev1alpha1.DryRunAnnotation
	}
	return ""
}
