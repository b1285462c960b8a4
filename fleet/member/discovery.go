package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

var errUndiscovered = errors.New("the cluster did not list the types of this API group")

// discover returns the types that the member serves, and the API groups without an answer.
func (c *connection) discover(ctx context.Context) (types []*ServedType, doubtful map[string]bool, err error) {
	var groups []*metav1.APIGroup
	var lists []*metav1.APIResourceList
	few := &paced{DiscoveryClient: c.discovery, excess: c.limits.excess, slots: make(chan struct{}, discoveredAtOnce)}
	err = c.request(ctx, func(ctx context.Context) (err error) {
		groups, lists, err = discovery.ServerGroupsAndResourcesWithContext(ctx, few)
		return err
	})
	if few.listed.Load() > mostListed {
		return nil, nil, fmt.Errorf("discovering types: %w", c.limits.excess.over("types and subresources", mostListed))
	}
	doubtful = map[string]bool{}
	if partial, ok := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err); ok {
		for gv := range partial.Groups {
			if len(gv.Group) <= mostName {
				doubtful[gv.Group] = true
			}
		}
	} else if err != nil {
		return nil, nil, fmt.Errorf("discovering types: %w", err)
	}
	for _, list := range lists {
		if _, err := schema.ParseGroupVersion(list.GroupVersion); err != nil {
			return nil, nil, fmt.Errorf("discovering types: %w", err)
		}
	}
	types = slices.DeleteFunc(ServedTypes(groups, lists), func(t *ServedType) bool {
		return !isName(t.Resource) || len(t.Group) > mostName // No API server has such a type.
	})
	if len(types) > mostTypes {
		return nil, nil, fmt.Errorf("discovering types: %w", c.limits.excess.over("types", mostTypes))
	}
	return types, doubtful, nil
}

// paced makes client-go read a few API groups at a time, and stop after too many types. Otherwise client-go requests
// all groups of the API server at once, and reads all answers at the same time.
type paced struct {
	*discovery.DiscoveryClient

	excess *excess
	slots  chan struct{}
	listed atomic.Int64
}

// GroupsAndMaybeResourcesWithContext calls the client, and returns an error if there are too many versions.
func (p *paced) GroupsAndMaybeResourcesWithContext(ctx context.Context) (
	groups *metav1.APIGroupList, resources map[schema.GroupVersion]*metav1.APIResourceList, failed map[schema.GroupVersion]error, err error,
) {
	groups, resources, failed, err = p.DiscoveryClient.GroupsAndMaybeResourcesWithContext(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	versions := 0
	for i := range groups.Groups {
		versions += len(groups.Groups[i].Versions)
	}
	if versions > mostVersions {
		return nil, nil, nil, p.excess.over("versions of API groups", mostVersions)
	}
	return groups, resources, failed, nil
}

// ServerResourcesForGroupVersionWithContext calls the client when a slot is free.
func (p *paced) ServerResourcesForGroupVersionWithContext(ctx context.Context, version string) (*metav1.APIResourceList, error) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.listed.Load() > mostListed {
		return nil, errUndiscovered // The answers so far have too many types.
	}
	list, err := p.DiscoveryClient.ServerResourcesForGroupVersionWithContext(ctx, version)
	if list != nil {
		p.listed.Add(int64(len(list.APIResources)))
	}
	return list, err
}
