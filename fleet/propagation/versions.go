package propagation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/member"
	"refract.dev/internal/output"
)

// versioned is a revision for some clusters: the object in one version of its type.
type versioned struct {
	party

	object *unstructured.Unstructured
	// from is the source for another rendering of the copies; nil for the newest revision in the hub's preferred
	// version.
	from *material
	note string // The warning about the version for the rows of the clusters.
	err  error
}

// byVersion groups clusters by the API version that they get: the first version, in the order of the hub, that the
// cluster serves. A stored revision exists only in its stored version.
func (m *material) byVersion(to *party, s *inputs) (all []*versioned) {
	if len(s.older) == 0 {
		e := m.inVersion("", s)
		e.party = *to
		return []*versioned{e}
	}
	at := map[string]*versioned{}
	for i := range to.clusters {
		version := ""
		if older, is := s.older[to.clusters[i].Name]; is && !m.kept {
			version = common(s.versions, older)
		}
		e := at[version]
		if e == nil {
			e = m.inVersion(version, s)
			at[version] = e
			all = append(all, e)
		}
		e.clusters = append(e.clusters, to.clusters[i])
		e.targets = append(e.targets, to.targets[i])
	}
	return all
}

// inVersion returns the revision in an API version, without clusters. An empty version means the version of the
// revision itself.
func (m *material) inVersion(version string, s *inputs) *versioned {
	e := &versioned{object: m.object}
	if m.kept {
		e.from = m
	}
	if version == "" {
		return e
	}
	if e.object, e.err = s.convert(version); e.err != nil {
		return e
	}
	e.from = &material{object: e.object, policies: m.policies, generation: m.generation}
	e.note = fmt.Sprintf("the copy is sent in version %s: the cluster does not serve version %s, which the hub prefers", version, s.versions[0])
	return e
}

// common returns the first version of the hub that a cluster serves. It is empty if this is the hub's preferred
// version, or if they have no common version.
func common(hub, cluster []string) string {
	at := slices.IndexFunc(hub, func(version string) bool { return slices.Contains(cluster, version) })
	if at <= 0 {
		return ""
	}
	return hub[at]
}

// notServedError is the error for a copy in a version that its cluster does not serve.
type notServedError struct {
	gvr          schema.GroupVersionResource
	hub, cluster []string
}

func (e *notServedError) Error() string {
	return fmt.Sprintf("the cluster serves %s in version %s, the hub has it in version %s, and the copy would have version %s. "+
		"Install a version of the hub on the cluster, or place the object elsewhere",
		e.gvr.GroupResource(), joinedVersions(e.cluster), joinedVersions(e.hub), e.gvr.Version)
}

// joinedVersions joins versions, shortened, because a member may report many.
func joinedVersions(versions []string) string {
	return output.Cut(strings.Join(versions, ", "), maxReadiness)
}

// servedOn returns an error if a cluster does not serve the final version of its copy, after the overrides.
func (s *inputs) servedOn(cluster string, gvr schema.GroupVersionResource) error {
	if older, is := s.older[cluster]; is && !slices.Contains(older, gvr.Version) {
		return &notServedError{gvr, s.versions, older}
	}
	return nil
}

// on returns the target for one of the clusters that share it. The result has an error if the cluster does not serve
// the version of the copy.
func (t *target) on(cluster string, s *inputs) *target {
	if t.variant == nil {
		return t
	}
	if err := s.servedOn(cluster, t.variant.gvr); err != nil {
		return &target{err: err, generation: t.generation, replicas: t.replicas}
	}
	return t
}

// reasonOf returns the reason in the row of a cluster whose copy cannot be made.
func reasonOf(err error) string {
	switch {
	case errors.As(err, new(*notServedError)):
		return reasonTypeNotServed
	case errors.As(err, new(*unconvertedError)):
		return reasonUnconverted
	case member.IsTooLarge(err):
		return reasonRejected
	default:
		return reasonOverrideFailed
	}
}

// unconvertedError is the error for an object that cannot be read in another version.
type unconvertedError struct {
	version string
	err     error
}

func (e *unconvertedError) Error() string {
	return fmt.Sprintf("the cluster needs the object in version %s, which cannot be read from the hub: %v", e.version, e.err)
}

func (e *unconvertedError) Unwrap() error { return e.err }

const (
	// convertTimeout bounds a request for an object in another version, and convertRetry is the delay before a retry.
	convertTimeout = 5 * time.Second
	convertRetry   = 10 * time.Second
	// slowConversion is the minimum duration of a failed request that delays further ones, because a webhook of the
	// hub may hang.
	slowConversion = time.Second
)

// conversions has an object in other versions than the hub's preferred one.
type conversions struct {
	of     *unstructured.Unstructured // The object that was converted.
	done   map[string]*unstructured.Unstructured
	failed bool
}

// converter returns a function that reads an object in other versions, for one decision. It reuses the conversions of
// the last decision as long as the object is unchanged. Otherwise each version that a cluster needs costs one request
// to the hub.
func (d *decider) converter(
	ctx context.Context, key Key, obj *unstructured.Unstructured,
) (*conversions, func(version string) (*unstructured.Unstructured, error)) {
	c := &conversions{of: obj, done: map[string]*unstructured.Unstructured{}}
	if p := d.state.desired(key); p != nil && p.conversions.holds(obj) {
		maps.Copy(c.done, p.conversions.done)
	}
	return c, func(version string) (*unstructured.Unstructured, error) {
		if c.done[version] != nil {
			return c.done[version], nil
		}
		converted, err := d.sources.convert(ctx, key, key.WithVersion(version))
		if err == nil && converted.GetUID() != obj.GetUID() {
			err = errors.New("another object has its name by now")
		}
		if err != nil {
			c.failed = true
			return nil, &unconvertedError{version, err}
		}
		c.done[version] = converted
		return converted, nil
	}
}

// holds reports whether these are conversions of the present object.
func (c *conversions) holds(obj *unstructured.Unstructured) bool {
	return c != nil && c.of.GetUID() == obj.GetUID() && c.of.GetResourceVersion() == obj.GetResourceVersion()
}

// convert reads an object in another version of its type. The hub converts it.
func (s *sources) convert(ctx context.Context, key Key, gvr schema.GroupVersionResource) (*unstructured.Unstructured, error) {
	began := time.Now()
	s.mu.RLock()
	held := s.hung[gvr]
	s.mu.RUnlock()
	if began.Before(held) {
		return nil, errors.New("the hub was slow and failed for another object of the type; the next attempt follows soon")
	}
	ctx, cancel := context.WithTimeout(ctx, convertTimeout)
	defer cancel()
	live, err := readByName(ctx, s.dynamic.Resource(gvr).Namespace(key.Namespace), key.GroupResource, key.Name)
	if err != nil {
		if took := time.Since(began); took > slowConversion {
			s.mu.Lock()
			s.hung[gvr] = began.Add(10 * took)
			s.mu.Unlock()
		}
		return nil, err
	}
	live, _, _ = named(live)
	return live, nil
}
