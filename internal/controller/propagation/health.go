package propagation

import (
	"errors"
	"hash/maphash"
	"maps"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/member"
	"refract.dev/release"
)

// healthSeed is another in every process, so that nobody can make two texts of one version.
var healthSeed = maphash.MakeSeed()

// healthOf is what a policy asks of copies; nil if nothing.
func healthOf(p *release.Policy, resource schema.GroupResource) *member.Health {
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

// noSuchKey is the error of an expression that asks for a field that the object does not have.
var noSuchKey = regexp.MustCompile(`^health\.cel: column [0-9]+: no such key: (\S+)$`)

// withoutQuotes returns the error of an expression without what it may quote of a copy, for those who may not read that. What the text of the
// expression has is no quote.
func withoutQuotes(err error, text string) error {
	if err == nil || errors.Is(err, release.ErrUnhealthy) {
		return err
	}
	if key := noSuchKey.FindStringSubmatch(err.Error()); key != nil && strings.Contains(text, key[1]) {
		return err
	}
	return errors.New("health.cel cannot be evaluated on the copy; the error is not shown, as it may hold values that not all may read")
}

// withoutValues is a Secret without its values, and without annotations, in which they may be as well: whoever writes
// a rollout policy could find them out, question by question.
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

// healthOn is what is asked of the copy on a cluster, which is one that has the newest revision while a rollout is
// under way; nil if nothing.
func (g *governance) healthOn(cluster string) *member.Health {
	if g == nil || g.health == nil || g.recorded == nil || g.settled() || release.Assigned(g.recorded, cluster) != &g.recorded.Target {
		return nil
	}
	return g.health
}

// health is what is asked of a copy on a member.
func (s *state) health(m *member.Member, key Key) *member.Health {
	if !s.asked.Load() {
		return nil
	}
	if p := s.desired(key); p != nil {
		return p.governed.healthOn(m.Name)
	}
	return nil
}

// unjudged reports whether it is not known of a copy, which is there, whether it is ready, as nobody has asked what is to be
// asked of it now.
func unjudged(h *member.Health, have *member.Copy) bool {
	if h == nil {
		return have.Judged != 0 && !isReady(*have) // It may be for what is not asked any more.
	}
	return have.Judged != h.Version && isReady(*have) || have.Judged != 0 && have.Judged != h.Version
}
