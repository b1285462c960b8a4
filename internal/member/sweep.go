package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// concurrentSweeps bounds how many types of a member are listed at once.
const concurrentSweeps = 8

// What could not be known is looked at again after these times: API groups that
// do not say which types they have, and types that the credentials may not list.
const (
	doubtfulAfter = 30 * time.Second
	refusedAfter  = 10 * time.Minute
)

// served is a type that a member serves.
type served struct {
	schema.GroupVersionResource

	kind       string
	namespaced bool
	verbs      []string
}

// discover asks which types the member serves, and which API groups do not say.
func (m *Member) discover(ctx context.Context) (types []served, doubtful map[string]bool, err error) {
	var lists []*metav1.APIResourceList
	err = m.request(ctx, func(context.Context) (err error) { // Its client has a timeout.
		lists, err = discovery.ServerPreferredResources(m.discovery)
		return err
	})
	doubtful = map[string]bool{}
	if partial, ok := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err); ok {
		for gv := range partial.Groups {
			doubtful[gv.Group] = true
		}
	} else if err != nil {
		return nil, nil, fmt.Errorf("discovering types: %w", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, nil, fmt.Errorf("discovering types: %w", err)
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			types = append(types, served{gv.WithResource(r.Name), r.Kind, r.Namespaced, r.Verbs})
		}
	}
	return types, doubtful, nil
}

// sweep watches every type of which the member holds a copy, so that copies are
// found whose source went away unseen. A type that may not be listed is not
// watched until a copy is wanted; a type that cannot be listed for other reasons
// is: what it holds is not known until it can. After a first time, only what could
// not be known then is looked at, unless all is asked for.
func (m *Member) sweep(ctx context.Context, all bool) error {
	types, doubtful, err := m.discover(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.doubtful, m.swept = doubtful, time.Now()
	if all {
		clear(m.without)
	}
	m.mu.Unlock()
	var sweeps errgroup.Group
	sweeps.SetLimit(concurrentSweeps)
	for _, t := range types {
		kind := schema.GroupKind{Group: t.Group, Kind: t.kind}
		if Propagates(kind, t.verbs) && m.unknown(t.GroupResource()) {
			sweeps.Go(func() error { return m.sweepType(ctx, t.GroupVersionResource) })
		}
	}
	return sweeps.Wait()
}

// unknown reports whether a type is not watched, and was not found to have no
// copies.
func (m *Member) unknown(resource schema.GroupResource) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.types[resource] == nil && !m.without[resource]
}

func (m *Member) sweepType(ctx context.Context, gvr schema.GroupVersionResource) error {
	var found *metav1.PartialObjectMetadataList
	err := m.request(ctx, func(ctx context.Context) (err error) {
		found, err = m.client.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: managed, Limit: 1})
		return err
	})
	var status apierrors.APIStatus
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		return nil // The type went away since it was discovered.
	case apierrors.IsForbidden(err):
		m.refuse(gvr.GroupResource(), err)
		return nil
	case errors.As(err, &status), err == nil && len(found.Items) > 0:
		m.Watch(gvr) //nolint:contextcheck // The watch lives as long as the member.
		return nil
	case err != nil:
		return fmt.Errorf("listing %s: %w", gvr.GroupResource(), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.without[gvr.GroupResource()] = true
	delete(m.refused, gvr.GroupResource())
	return nil
}

// refuse records that a type may not be listed.
func (m *Member) refuse(resource schema.GroupResource, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused[resource] = err
}

// doubts reports whether there may be copies of types that are not known, and it
// is time to look again.
func (m *Member) doubts() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	ago := time.Since(m.swept)
	return (len(m.doubtful) > 0 && ago > doubtfulAfter) || (len(m.refused) > 0 && ago > jitter(refusedAfter))
}
