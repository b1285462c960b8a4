package converter

import (
	"context"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/structural"
)

const (
	// lookout is the interval of searches for another replica that can compile the policies that this replica cannot
	// compile.
	lookout = 5 * time.Second
	// lookoutTime is the time limit of one search, for all definitions together. Until the search ends, the whole
	// process is not ready, including its other tasks.
	lookoutTime = 10 * time.Second
)

// question has the contents of a probe of other replicas.
type question struct {
	definition *structural.Definition
	versions   []string // The hub and one spoke.
}

// questionOf returns a probe for a spec that this replica cannot compile. The answer shows whether another replica can
// convert with it. questionOf returns nil if the definition is unreadable, because then no replica can.
func questionOf(spec *refractv1alpha1.ConversionPolicySpec, crd map[string]any) *question {
	definition, err := structural.New(crd)
	if err != nil || len(spec.Spokes) == 0 {
		return nil
	}
	return &question{definition: definition, versions: []string{spec.Hub, spec.Spokes[0].Version}}
}

// watchOthers probes, until ctx ends, whether another replica can convert with the policies that this replica cannot
// compile. It sends the probes to the address that the API server uses.
func (t *registry) watchOthers(ctx context.Context, at func(path string) *admissionregistrationv1.WebhookClientConfig) {
	tick := time.NewTicker(lookout)
	defer tick.Stop()
	for {
		t.lookForOthers(ctx, at)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lookForOthers searches once. If no replica answers for a policy, it records status.served of the policy in alone. The
// search for this status.served is not repeated, because a later probe might reach this replica itself.
func (t *registry) lookForOthers(ctx context.Context, at func(path string) *admissionregistrationv1.WebhookClientConfig) {
	limited, cancel := context.WithTimeout(ctx, lookoutTime)
	defer cancel()
	for crd, e := range t.unclear() {
		if e.asks != nil && answered(limited, at(Path+crd), e.asks) {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		t.log.Info("No replica can convert the objects of a definition. This replica answers for all others", "crd", crd, "policy", e.policy)
		t.mu.Lock()
		if now := t.entries[crd]; now != nil && now.key == e.key {
			t.alone[crd] = e.key
		}
		t.mu.Unlock()
	}
}

// unclear returns the entries that this replica cannot compile, and that another replica may be able to compile.
func (t *registry) unclear() map[string]*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]*entry{}
	for crd, e := range t.entries {
		if e.err != nil && t.alone[crd] != e.key {
			out[crd] = e
		}
	}
	return out
}

// answered reports whether another replica answers the probe with converted objects, at the address that the API server
// uses. This replica cannot give such an answer: it is not ready, and would fail the review.
func answered(ctx context.Context, at *admissionregistrationv1.WebhookClientConfig, asks *question) bool {
	p, err := newProber(at, "")
	if err != nil {
		return false
	}
	defer p.client.CloseIdleConnections()
	return p.one(ctx, asks.definition, asks.versions[0], asks.versions[1]) == nil
}
