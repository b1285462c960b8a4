package conversion

import (
	"context"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/structural"
)

const (
	// lookout is how often it is looked whether another replica answers by what cannot be
	// compiled here.
	lookout = 5 * time.Second
	// lookoutTime is how long one look may take, at all definitions together: a program
	// that serves other things as well is not ready for as long.
	lookoutTime = 10 * time.Second
)

// question is what is asked of other replicas.
type question struct {
	definition *structural.Definition
	versions   []string // The hub and a spoke.
}

// questionOf returns what tells whether somebody converts by a spec that this replica
// cannot compile; nil if nobody can, since the definition cannot be read.
func questionOf(spec *refractv1alpha1.ConversionPolicySpec, crd map[string]any) *question {
	definition, err := structural.New(crd)
	if err != nil || len(spec.Spokes) == 0 {
		return nil
	}
	return &question{definition: definition, versions: []string{spec.Hub, spec.Spokes[0].Version}}
}

// watchOthers finds out, until ctx ends, for which of the policies that cannot be compiled here
// no other replica answers, where the API server asks.
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

// lookForOthers looks once. Who is alone stays so until something else is served: it may
// be itself that is asked from then on.
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
		t.log.Info("No replica can convert the objects of a definition. This one answers for all others", "crd", crd, "policy", e.policy)
		t.mu.Lock()
		if now := t.entries[crd]; now != nil && now.key == e.key {
			t.alone[crd] = e.key
		}
		t.mu.Unlock()
	}
}

// unclear returns the entries that cannot be compiled here, and may be elsewhere.
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

// answered reports whether somebody converts where the API server asks. That is not this
// replica: it is not ready, and would say no.
func answered(ctx context.Context, at *admissionregistrationv1.WebhookClientConfig, asks *question) bool {
	p, err := newProber(at, "")
	if err != nil {
		return false
	}
	defer p.client.CloseIdleConnections()
	return p.one(ctx, asks.definition, asks.versions[0], asks.versions[1]) == nil
}
