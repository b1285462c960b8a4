package propagation

import (
	"errors"
	"hash/maphash"
	"maps"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/rollout"
)

// healthSeed is random in each process. The hash of an expression is its version, and no user can construct two
// expressions with the same hash.
var healthSeed = maphash.MakeSeed()

// healthOf returns the health check of a rollout policy for copies; nil if the policy has none.
func healthOf(p *rollout.Policy, resource schema.GroupResource) *member.Health {
	if p == nil || p.Health() == "" {
		return nil
	}
	h := &member.Health{Version: uint32(maphash.String(healthSeed, p.Health())) | 1, Check: p.Healthy}
	switch {
	case resource == schema.GroupResource{Resource: "secrets"}:
		h.Check = func(object map[string]any) error { return p.Healthy(withoutValues(object)) }
	case member.Sealed(resource):
		h.Check = func(object map[string]any) error { return withoutQuotes(p.Healthy(object), p.Health()) }
	}
	return h
}

// noSuchKey matches the error of an expression that reads a field that the object does not have.
var noSuchKey = regexp.MustCompile(`^health\.cel: column [0-9]+: no such key: (\S+)$`)

// withoutQuotes makes the error of an expression safe for users who may not read the copy. An error that may quote text
// of the copy is replaced by a general one. An error that names only a field of the expression itself stays.
func withoutQuotes(err error, text string) error {
	if err == nil || errors.Is(err, rollout.ErrUnhealthy) {
		return err
	}
	if key := noSuchKey.FindStringSubmatch(err.Error()); key != nil && strings.Contains(text, key[1]) {
		return err
	}
	return errors.New("health.cel cannot be evaluated on the copy; the error is not shown, as it may contain confidential values")
}

// withoutValues returns a Secret without its values. It also removes the annotations, because they may contain the
// values. Otherwise the author of a rollout policy could find out the values with many expressions.
func withoutValues(secret map[string]any) map[string]any {
	without := maps.Clone(secret)
	delete(without, "data")
	delete(without, "stringData")
	if metadata, ok := secret["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "annotations")
		without["metadata"] = metadata
	}
	return without
}

// healthOn returns the health check for the copy on a cluster; nil for none. A check exists only during a rollout, on
// the clusters that get the newest revision.
func (g *governance) healthOn(cluster string) *member.Health {
	if g == nil || g.health == nil || g.recorded == nil || g.settled() || rollout.Assigned(g.recorded, cluster) != &g.recorded.Target {
		return nil
	}
	return g.health
}

// health returns the health check for a copy on a member; nil for none.
func (s *state) health(m *member.Member, key Key) *member.Health {
	if !s.asked.Load() {
		return nil
	}
	if p := s.desired(key); p != nil {
		return p.governed.healthOn(m.Name)
	}
	return nil
}

// unjudged reports whether the readiness of an existing copy is unknown, because the required health check is still to
// be made. h is that health check; nil if none is required any more.
func unjudged(h *member.Health, have *member.Copy) bool {
	if h == nil {
		return have.Judged != 0 && !isReady(*have) // Perhaps only the earlier health check makes the copy unready.
	}
	return have.Judged != h.Version && isReady(*have) || have.Judged != 0 && have.Judged != h.Version
}
