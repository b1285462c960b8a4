package member

import (
	"context"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource returns in which version the copies of a type are watched; ok is false
// if they are not.
func (m *Member) Resource(resource schema.GroupResource) (gvr schema.GroupVersionResource, ok bool) {
	t := m.typed(resource)
	if t == nil {
		return gvr, false
	}
	return t.gvr, true
}

// Names returns the names of all clusters of the hub, sorted, those that leave
// included.
func (s *Set) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.members))
}

// renew has the member connected to anew: nothing that was known of it holds any
// more.
func (s *Set) renew(m *Member) {
	s.mu.Lock()
	if j := s.members[m.Name]; j != nil && j.member == m {
		j.config = nil
	}
	s.mu.Unlock()
	s.Recheck(m.Name)
}

// watchRetry is the longest that a watch that failed rests. The default of half a
// minute would have what happened on a member that was away for seconds go unseen
// for as long.
const watchRetry = 5 * time.Second

// Any reports whether the member has an object of the type, a copy or not, in
// whatever version it serves.
func (m *Member) Any(ctx context.Context, resource schema.GroupResource) (bool, error) {
	group := &metav1.APIGroup{}
	err := m.read(ctx, action{"get", resource, ""}, func(ctx context.Context) error {
		return m.rest.Get().AbsPath("/apis", resource.Group).Do(ctx).Into(group)
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if len(group.Versions) > mostOfGroup {
		return false, m.hooks.excess("versions of an API group", mostOfGroup)
	}
	for _, version := range group.Versions {
		list, err := m.list(ctx, resource.WithVersion(version.Version))
		if apierrors.IsNotFound(err) {
			continue
		}
		return err == nil && len(list.Items) > 0, err
	}
	return false, nil
}

func (m *Member) list(ctx context.Context, gvr schema.GroupVersionResource) (list *metav1.PartialObjectMetadataList, err error) {
	err = m.read(ctx, action{"list", gvr.GroupResource(), ""}, func(ctx context.Context) error {
		list, err = m.client.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
	return list, err
}
