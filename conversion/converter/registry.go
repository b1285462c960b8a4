package converter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/kit/webhook/conversion"
)

// Path is the path prefix of the conversion webhook. The name of the definition follows it.
const Path = "/convert/"

const (
	// patience is the time for which a review waits for a policy that this replica does not have yet. The leading
	// replica may have written spec.conversion before this replica received the policy.
	patience = time.Second
	// beginning multiplies patience while this replica has not loaded all policies.
	beginning = 10
)

// registry has the conversion programs of this replica. It uses only status.served of the policies, and not the current
// definitions. The contents of status.served were verified once, and are the same for all replicas.
type registry struct {
	log      logr.Logger
	comparer *comparer
	reporter *reporter
	patience time.Duration

	writing sync.Mutex // Locked during the compilation of an entry. Readers lock only mu, so they do not wait for compilations.

	mu      sync.Mutex
	entries map[string]*entry
	alone   map[string]identity // By definition: status.served that no other replica can compile either.
	changed chan struct{}       // Closed and replaced after each change of an entry.
	synced  bool
}

// entry is the program for the objects of one definition. It is immutable.
type entry struct {
	key         identity
	policy      string
	program     *program // If err is set: the last program that compiled, or nil.
	handler     http.Handler
	err         error     // The reason why this replica cannot compile status.served.
	asks        *question // If err is set: the probe that shows whether another replica can compile status.served.
	comparisons []*comparison
}

// identity identifies a content of status.served.
type identity struct {
	uid        types.UID
	generation int64
	definition string
}

func newRegistry(log logr.Logger) *registry {
	return &registry{
		log: log, comparer: newComparer(log), reporter: newReporter(log), patience: patience,
		entries: map[string]*entry{}, alone: map[string]identity{}, changed: make(chan struct{}),
	}
}

func identityOf(p *refractv1alpha1.ConversionPolicy) identity {
	return identity{uid: p.UID, generation: p.Status.Served.Generation, definition: string(p.Status.Served.Definition)}
}

// update replaces the entry of a definition after a change of its policies. It returns the error of the compilation.
func (t *registry) update(crd string, policies []refractv1alpha1.ConversionPolicy) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	before, _ := t.look(crd)
	r := rolesOf(policies)
	if r.serving == nil {
		if !before.forgotten(policies) {
			t.set(crd, nil)
		}
		return nil
	}
	t.reporter.know(r.serving)
	now := t.compile(r.serving, before)
	if now.program != nil {
		now.comparisons = t.comparisonsOf(r.comparisons, now, before)
	}
	t.set(crd, now)
	return now.err
}

// forgotten reports whether the policy of an entry still exists but has lost status.served, because a user has emptied
// the status. Until the reconciler has verified the policy again, the last program stays in use.
func (e *entry) forgotten(policies []refractv1alpha1.ConversionPolicy) bool {
	return e != nil && e.program != nil && slices.ContainsFunc(policies, func(p refractv1alpha1.ConversionPolicy) bool { return p.UID == e.key.uid })
}

// set stores an entry and wakes all waiting reviews. If e is nil, it deletes the entry.
func (t *registry) set(crd string, e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.count()
	if e == nil {
		delete(t.entries, crd)
		delete(t.alone, crd)
	} else {
		t.entries[crd] = e
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// compile returns the entry of a policy. If status.served is unchanged, it returns a copy of the previous entry. If
// status.served does not compile, for example because a user has damaged it, the last program of the policy stays in
// use.
func (t *registry) compile(p *refractv1alpha1.ConversionPolicy, before *entry) *entry {
	key := identityOf(p)
	if before != nil && before.key == key {
		out := *before
		return &out
	}
	e := &entry{key: key, policy: p.Name}
	definition, _, err := unpack(p.Status.Served.Definition)
	if err == nil {
		e.program, _, err = compile(&p.Status.Served.Spec, definition)
	}
	if err != nil {
		if before != nil && before.key.uid == key.uid {
			e.program, e.handler = before.program, before.handler
		}
		e.asks = questionOf(&p.Status.Served.Spec, definition)
		e.err = fmt.Errorf("ConversionPolicy %s, generation %d, which all replicas serve: this replica cannot compile it: %w. Do all replicas run the same "+
			"version of Refract?", p.Name, key.generation, err)
		t.log.Error(e.err, "Objects cannot be converted here", "crd", p.Spec.CRD, "policy", p.Name)
		return e
	}
	e.handler = conversion.Handler(e.program.engine, conversion.Options{
		Metrics: metrics.Registry, Log: t.log, Answered: t.reporter.of(p),
	})
	t.log.Info("Objects of a definition are converted by a policy now", "crd", p.Spec.CRD, "policy", p.Name, "generation", key.generation)
	return e
}

// count updates the metrics. The caller has locked mu.
func (t *registry) count() {
	var serving, broken, comparisons int
	for _, e := range t.entries {
		if e.err != nil {
			broken++
		} else {
			serving++
		}
		comparisons += len(e.comparisons)
	}
	policiesHeld.WithLabelValues(stateServing).Set(float64(serving))
	policiesHeld.WithLabelValues(stateBroken).Set(float64(broken))
	policiesHeld.WithLabelValues(stateComparison).Set(float64(comparisons))
}

// sync records that all policies that existed at the start are loaded.
func (t *registry) sync() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.synced = true
	close(t.changed)
	t.changed = make(chan struct{})
}

// ready returns an error until all policies are loaded. It also returns an error while another replica can compile a
// policy that this replica cannot compile. So a rollout of a new version of Refract stops before it has replaced the
// last replica that can compile the policy. A policy that no replica can compile does not count, because conversion
// would stop for all other definitions.
func (t *registry) ready() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.synced {
		return errors.New("not all conversion policies are known yet")
	}
	var errs []error
	for crd, e := range t.entries {
		if e.err != nil && t.alone[crd] != e.key {
			errs = append(errs, e.err)
		}
	}
	return errors.Join(errs...)
}

// get returns the entry of a definition. If there is none, it waits up to patience, and before that until all policies
// are loaded.
func (t *registry) get(ctx context.Context, crd string) *entry {
	if e, _ := t.look(crd); e != nil {
		return e
	}
	if !t.known() {
		t.await(ctx, crd)
	}
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	for {
		e, changed := t.look(crd)
		if e != nil {
			return e
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// await waits until the definition has an entry or all policies are loaded, but at most beginning times patience.
func (t *registry) await(ctx context.Context, crd string) {
	ctx, cancel := context.WithTimeout(ctx, beginning*t.patience)
	defer cancel()
	for {
		e, changed := t.look(crd)
		if e != nil || t.known() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// known reports whether all policies that existed at the start are loaded.
func (t *registry) known() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.synced
}

// look returns the current entry of a definition, and a channel that is closed after the next change.
func (t *registry) look(crd string) (*entry, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[crd], t.changed
}

// MaxBytes returns the maximum size of a review in bytes.
func (*registry) MaxBytes() int64 { return conversion.DefaultMaxBytes }

// ServeHTTP answers one review.
func (t *registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	crd := strings.TrimPrefix(r.URL.Path, Path)
	e := t.get(r.Context(), crd)
	switch {
	case e == nil && !t.known():
		refused.WithLabelValues("unknown").Inc()
		fail(w, r, "Refract has just started, and cannot read its ConversionPolicies yet: try again")
	case e == nil:
		refused.WithLabelValues("unknown").Inc()
		fail(w, r, fmt.Sprintf("Refract has no usable ConversionPolicy for %s: kubectl get conversionpolicies shows whether there is one, and why it does "+
			"not serve", crd))
	case e.program == nil:
		refused.WithLabelValues("broken").Inc()
		fail(w, r, e.err.Error())
	case len(e.comparisons) > 0:
		t.comparer.serve(e, crd, w, r)
	default:
		e.handler.ServeHTTP(w, r)
	}
}

// fail answers a review with the result Failure. The API server passes the message on to its client.
func fail(w http.ResponseWriter, r *http.Request, message string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, conversion.DefaultMaxBytes))
	var answer *convert.Answer
	if err == nil {
		answer, err = convert.Refuse(body, errors.New(message))
	}
	if err != nil {
		http.Error(w, "the request is not a ConversionReview", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = answer.WriteTo(w) // If the client has disconnected, nobody reads the answer.
}
