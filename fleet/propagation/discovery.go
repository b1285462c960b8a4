package propagation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"refract.dev/fleet/member"
)

// run watches the hub's types until ctx ends.
func (s *sources) run(ctx context.Context) error {
	crds := &view{changed: func(name types.NamespacedName, _ bool) {
		s.mu.Lock()
		s.defined[name.Name] = true
		s.mu.Unlock()
		s.lookAgain()
	}}
	defer s.watches.Wait()
	s.watches.Go(func() { s.reflector(crdResource, "", crds, func() {}).RunWithContext(ctx) })
	tick := time.NewTicker(rediscoverInterval)
	defer tick.Stop()
	for {
		if err := s.discover(ctx); err != nil {
			s.log.Error(err, "Cannot discover all types of the hub")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.wake:
		}
	}
}

// lookAgain requests a new discovery of the types.
func (s *sources) lookAgain() {
	select {
	case s.wake <- struct{}{}:
	default: // A discovery is requested already.
	}
}

// discover starts watches of new types, and drops removed types.
func (s *sources) discover(ctx context.Context) error {
	groups, lists, err := discovery.ServerGroupsAndResources(s.discovery)
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partial) {
		return fmt.Errorf("discovering types: %w", err)
	}
	doubtful := doubtfulGroups(partial)
	var touched []Key
	found := map[schema.GroupResource]bool{}
	s.mu.Lock()
	for _, r := range member.ServedTypes(groups, lists) {
		if !member.Propagates(r.GroupVersion().WithKind(r.Kind).GroupKind(), r.Verbs) {
			continue
		}
		found[r.GroupResource()] = true
		t := s.types[r.GroupResource()]
		switch {
		case t == nil || t.gvr != r.GroupVersionResource:
			touched = append(touched, s.watchType(ctx, r)...)
		case t.resting:
			s.begin(ctx, t)
		}
		if t != nil && !slices.Equal(t.versions, r.Versions) {
			touched = append(touched, t.keys()...) // Some clusters may get another version now.
		}
		s.types[r.GroupResource()].versions = r.Versions
	}
	for resource, t := range s.types {
		if !found[resource] && !doubtful[resource.Group] {
			t.stop()
			delete(s.types, resource)
			touched = append(touched, t.keys()...)
		}
	}
	if !s.discovered {
		close(s.told)
	}
	s.discovered, s.doubtful = true, doubtful
	s.mu.Unlock()
	for _, key := range touched {
		s.notify(key, false)
	}
	return err
}

func doubtfulGroups(partial *discovery.ErrGroupDiscoveryFailed) map[string]bool {
	doubtful := map[string]bool{}
	if partial != nil {
		for gv := range partial.Groups {
			doubtful[gv.Group] = true
		}
	}
	return doubtful
}
