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

// healthSeed differs in every process, so that a user cannot construct two expressions with the same version.
var healthSeed = maphash.MakeSeed()

// healthOf returns the health check that a policy requires of copies; nil for none.
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

// noSuchKey matches the error of an expression about a field that the object does not have.
var noSuchKey = regexp.MustCompile(`^health\.cel: column [0-9]+: no such key: (\S+)$`)

// withoutQuotes returns the error of an expression without text that it may quote from the copy, for readers without
// the right to read the copy. Text of the expression itself is no quote.
func withoutQuotes(err error, text string) error {
	if err == nil || errors.Is(err, rollout.ErrUnhealthy) {
		return err
	}
	if key := noSuchKey.FindStringSubmatch(err.Error()); key != nil && strings.Contains(text, key[1]) {
		return err
	}
	return errors.New("health.cel cannot be evaluated on the copy; the error is not shown, as it may contain confidential values")
}

// withoutValues returns a Secret without its values, and without annotations, which may contain them as well: the
// author of a rollout policy could find them out by many expressions.
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

// healthOn returns the health check for the copy on a cluster; nil for none. It applies only to clusters with the
// newest revision during a rollout.
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

// unjudged reports whether the readiness of an existing copy is unknown because the present health check has not been
// made.
func unjudged(h *member.Health, have *member.Copy) bool {
	if h == nil {
		return have.Judged != 0 && !isReady(*have) // The copy may be unready only by a check that is not required any more.
	}
	return have.Judged != h.Version && isReady(*have) || have.Judged != 0 && have.Judged != h.Version
}
