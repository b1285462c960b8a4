package conversion

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
	"refract.dev/convert"
	"refract.dev/webhook/conversion"
)

// Path is where the API server finds the conversion of a definition: its name follows.
const Path = "/convert/"

const (
	// patience is how long a review waits for a policy that is not known here yet: it may
	// be on its way, as when another replica has told the API server to ask.
	patience = time.Second
	// beginning is how many times as long it waits while policies are not known at all.
	beginning = 10
)

// registry is what this replica converts by. It depends on the policies alone, and not on
// the definitions of the moment: what status.served says was compiled and verified once,
// and is the same in all replicas.
type registry struct {
	log      logr.Logger
	comparer *comparer
	keeper   *keeper
	patience time.Duration

	writing sync.Mutex // Held while an entry is made, so that nobody who reads waits for that.

	mu      sync.Mutex
	entries map[string]*entry
	alone   map[string]identity // By definition: what no other replica can convert by either.
	changed chan struct{}       // Closed when an entry has changed, and made anew.
	synced  bool
}

// entry is what becomes of the objects of one definition. It is immutable.
type entry struct {
	key         identity
	policy      string
	program     *program // With err it is the last one that was good; nil if there was none.
	handler     http.Handler
	err         error     // Why what the policy serves cannot be compiled here.
	asks        *question // With err: what tells whether another replica can.
	comparisons []*comparison
}

// identity tells what is served from what was before.
type identity struct {
	uid        types.UID
	generation int64
	definition string
}

func newRegistry(log logr.Logger) *registry {
	return &registry{
		log: log, comparer: newComparer(log), keeper: newKeeper(log), patience: patience,
		entries: map[string]*entry{}, alone: map[string]identity{}, changed: make(chan struct{}),
	}
}

func identityOf(p *refractv1alpha1.ConversionPolicy) identity {
	return identity{uid: p.UID, generation: p.Status.Served.Generation, definition: string(p.Status.Served.Definition)}
}

// update takes up the policies of a definition as they are now, and reports why what they
// say cannot be compiled.
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
	t.keeper.know(r.serving)
	now := t.compile(r.serving, before)
	if now.program != nil {
		now.comparisons = t.comparisonsOf(r.comparisons, now, before)
	}
	t.set(crd, now)
	return now.err
}

// forgotten reports whether the policy that an entry is from is there still, and does not
// say any more what it serves: somebody has emptied its status. Until it is judged anew,
// objects are converted by what was good, as they are if the status was damaged.
func (e *entry) forgotten(policies []refractv1alpha1.ConversionPolicy) bool {
	return e != nil && e.program != nil && slices.ContainsFunc(policies, func(p refractv1alpha1.ConversionPolicy) bool { return p.UID == e.key.uid })
}

// set puts an entry in its place, nil for none, and tells those who wait for it.
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

// compile returns the entry of a policy, which is the one from before if it serves the
// same. What was good before stays in use when what is served now cannot be compiled, as
// when somebody has damaged the status.
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
		e.err = fmt.Errorf("ConversionPolicy %s, generation %d, which all replicas serve: this one cannot compile it: %w. "+
			"Are they all of one version of Refract?", p.Name, key.generation, err)
		t.log.Error(e.err, "Objects cannot be converted here", "crd", p.Spec.CRD, "policy", p.Name)
		return e
	}
	e.handler = conversion.Handler(e.program.engine, conversion.Options{
		Metrics: metrics.Registry, Log: t.log, Answered: t.keeper.of(p),
	})
	t.log.Info("Objects of a definition are converted as a policy says now", "crd", p.Spec.CRD, "policy", p.Name, "generation", key.generation)
	return e
}

// count is called with the lock held.
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

// sync says that every policy was taken up that there was at the start.
func (t *registry) sync() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.synced = true
	close(t.changed)
	t.changed = make(chan struct{})
}

// ready returns an error until every policy was taken up, and while one of them cannot be
// compiled here that another replica answers by: so a new version of the program does not
// take over from an old one that knows better. A policy that nobody can compile is no
// reason to have nobody answer for all others.
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

// get returns the entry of a definition. If there is none it waits for a moment; for
// longer while it is not known what there is.
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

// await waits for a definition, or until it is known what there is, for as long as who
// begins is waited for.
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

// known reports whether every policy was taken up that there was at the start.
func (t *registry) known() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.synced
}

// look returns the entry of a definition as it is now, and what is closed when it changes.
func (t *registry) look(crd string) (*entry, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[crd], t.changed
}

// MaxBytes returns the largest review that is read.
func (*registry) MaxBytes() int64 { return conversion.DefaultMaxBytes }

// ServeHTTP answers one review.
func (t *registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	crd := strings.TrimPrefix(r.URL.Path, Path)
	e := t.get(r.Context(), crd)
	switch {
	case e == nil && !t.known():
		refused.WithLabelValues("unknown").Inc()
		fail(w, r, "Refract has just begun, and cannot read its ConversionPolicies yet: try again")
	case e == nil:
		refused.WithLabelValues("unknown").Inc()
		fail(w, r, fmt.Sprintf("Refract has no ConversionPolicy for %s that it could convert by: "+
			"kubectl get conversionpolicies says whether there is one, and why it does not serve", crd))
	case e.program == nil:
		refused.WithLabelValues("broken").Inc()
		fail(w, r, e.err.Error())
	case len(e.comparisons) > 0:
		t.comparer.serve(e, crd, w, r)
	default:
		e.handler.ServeHTTP(w, r)
	}
}

// fail answers a review with Failure, as API servers want it: they repeat the message.
func fail(w http.ResponseWriter, r *http.Request, message string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, conversion.DefaultMaxBytes))
	var answer *convert.Answer
	if err == nil {
		answer, err = convert.Refuse(body, errors.New(message))
	}
	if err != nil {
		http.Error(w, "the request is no ConversionReview", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = answer.WriteTo(w) // A client that has disconnected gets no answer.
}
