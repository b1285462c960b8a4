package converter

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/internal/output"
	"refract.dev/internal/rescue"
)

// Limits of comparisons. Reviews beyond a limit are skipped and counted.
const (
	// mostCompared is the maximum size in bytes of a review, and of its answer.
	mostCompared = 1 << 20
	// mostWaiting is the maximum number of reviews in the queue. mostHeld is the maximum size in bytes of these reviews
	// and their answers, together with the reviews that are being received.
	mostWaiting = 64
	mostHeld    = 16 << 20
	// flushed is the interval at which the counts are added to the statuses of shadows.
	flushed = 5 * time.Second
)

// comparison is the comparison of a shadow with the serving policy, for one content of status.served. When that content
// changes, a new comparison starts.
type comparison struct {
	policy     types.NamespacedName
	uid        types.UID
	generation int64
	program    *program

	mu                  sync.Mutex
	compared, different int64 // Since the last write of the status.
	last                string
}

// comparisonsOf returns the comparisons of an entry. It continues an existing comparison of the same generation of a
// shadow, unless the served definition has changed.
func (t *registry) comparisonsOf(policies []*refractv1alpha1.ConversionPolicy, now, before *entry) []*comparison {
	var out []*comparison
	for _, p := range policies {
		if !p.DeletionTimestamp.IsZero() {
			continue
		}
		if before != nil && before.key.definition == now.key.definition {
			same := func(s *comparison) bool { return s.uid == p.UID && s.generation == p.Generation }
			if i := slices.IndexFunc(before.comparisons, same); i >= 0 {
				out = append(out, before.comparisons[i])
				continue
			}
		}
		definition, _, err := unpack([]byte(now.key.definition))
		if err != nil {
			continue
		}
		if program, _, err := compile(&p.Spec, definition); err == nil { // If the spec does not compile, the reconciler reports it in the status of the shadow.
			out = append(out, &comparison{policy: client.ObjectKeyFromObject(p), uid: p.UID, generation: p.Generation, program: program})
		}
	}
	return out
}

// comparer converts reviews again with shadows, after the serving policy has answered them.
type comparer struct {
	log   logr.Logger
	logs  flowcontrol.RateLimiter
	queue chan job
	held  atomic.Int64 // Size of the jobs in the queue, and reserved memory for reviews that are being received.

	mu    sync.Mutex
	dirty map[*comparison]bool // Comparisons whose counts are not in a status yet.
}

// job is a review with its answer.
type job struct {
	crd            string
	entry          *entry
	review, answer []byte
}

func newComparer(log logr.Logger) *comparer {
	return &comparer{
		log: log, logs: flowcontrol.NewTokenBucketRateLimiter(1, 10), queue: make(chan job, mostWaiting), dirty: map[*comparison]bool{},
	}
}

// serve answers a review. It puts a copy of the review and its answer into the queue for the comparisons, if there is
// memory. Comparisons neither delay nor change the answer.
func (c *comparer) serve(e *entry, crd string, w http.ResponseWriter, r *http.Request) {
	if r.ContentLength > mostCompared || !c.room() {
		compared.WithLabelValues(crd, comparisonSkipped).Inc()
		e.handler.ServeHTTP(w, r)
		return
	}
	in := &tee{}
	out := &answering{ResponseWriter: w}
	copied := r.WithContext(r.Context())
	copied.Body = &teeing{ReadCloser: r.Body, to: in}
	e.handler.ServeHTTP(out, copied)
	if out.code != 0 && out.code != http.StatusOK || in.over || out.to.over {
		c.held.Add(-2 * mostCompared)
		compared.WithLabelValues(crd, comparisonSkipped).Inc()
		return
	}
	j := job{crd: crd, entry: e, review: in.copied, answer: out.to.copied}
	c.held.Add(j.size() - 2*mostCompared)
	select {
	case c.queue <- j:
	default:
		c.held.Add(-j.size())
		compared.WithLabelValues(crd, comparisonSkipped).Inc()
	}
}

// room reserves memory for a review of the maximum size and its answer. It returns false if there is not enough.
func (c *comparer) room() bool {
	if len(c.queue) == cap(c.queue) {
		return false
	}
	if c.held.Add(2*mostCompared) > mostHeld {
		c.held.Add(-2 * mostCompared)
		return false
	}
	return true
}

func (j *job) size() int64 { return int64(cap(j.review) + cap(j.answer)) }

// tee collects a copy of a stream up to a maximum size.
type tee struct {
	copied []byte
	over   bool
}

func (t *tee) add(p []byte) {
	if t.over || len(t.copied)+len(p) > mostCompared {
		t.over, t.copied = true, nil
		return
	}
	t.copied = append(t.copied, p...)
}

// teeing is the body of a request. It copies the bytes that are read.
type teeing struct {
	io.ReadCloser

	to *tee
}

// Read reads from the body and copies the bytes.
func (t *teeing) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.to.add(p[:n])
	return n, err
}

// answering is a response writer that also copies the answer.
type answering struct {
	http.ResponseWriter

	to   tee
	code int
}

// WriteHeader records the status code and sends the header.
func (a *answering) WriteHeader(code int) {
	a.code = code
	a.ResponseWriter.WriteHeader(code)
}

// Write sends the bytes, and copies them.
func (a *answering) Write(p []byte) (int, error) {
	n, err := a.ResponseWriter.Write(p)
	a.to.add(p[:n])
	return n, err
}

// Unwrap is for http.ResponseController, which sets deadlines.
func (a *answering) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// runnable returns a function that compares the reviews in the queue, and adds the results to the statuses of shadows,
// until ctx ends. It uses one goroutine, so that comparisons take at most one processor. Every replica runs it.
func (c *comparer) runnable(to client.Client) everywhere {
	return func(ctx context.Context) error {
		tick := time.NewTicker(flushed)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				defer cancel()
				c.flush(last, to)
				return nil
			case <-tick.C:
				c.flush(ctx, to)
			case j := <-c.queue:
				c.compare(&j)
				c.held.Add(-j.size())
			}
		}
	}
}

// compare converts a review with each shadow of the entry, and counts the results.
func (c *comparer) compare(j *job) {
	ours, err := objectsIn(j.answer)
	if err != nil {
		compared.WithLabelValues(j.crd, comparisonFailed).Inc()
		return
	}
	for _, s := range j.entry.comparisons {
		objects, different, last, err := s.compare(j, ours)
		if err != nil {
			compared.WithLabelValues(j.crd, comparisonFailed).Add(float64(max(objects, 1)))
			if c.logs.TryAccept() {
				c.log.Error(err, "Cannot compare a shadow", "crd", j.crd, "policy", s.policy.Name)
			}
			continue
		}
		compared.WithLabelValues(j.crd, comparisonSame).Add(float64(objects - different))
		compared.WithLabelValues(j.crd, comparisonDifferent).Add(float64(different))
		c.note(s, objects, different, last)
	}
}

// note adds the result for one review to the counts of a comparison.
func (c *comparer) note(s *comparison, objects, different int64, last string) {
	s.mu.Lock()
	s.compared += objects
	s.different += different
	if last != "" {
		s.last = last
	}
	s.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirty[s] = true
}

// converted is the content of an answer.
type converted struct {
	objects []map[string]any
	failed  bool
}

func objectsIn(answer []byte) (*converted, error) {
	var review struct {
		Response struct {
			ConvertedObjects []map[string]any `json:"convertedObjects"`
			Result           struct {
				Status string `json:"status"`
			} `json:"result"`
		} `json:"response"`
	}
	if err := json.Unmarshal(answer, &review); err != nil {
		return nil, fmt.Errorf("reading an answer: %w", err)
	}
	return &converted{objects: review.Response.ConvertedObjects, failed: review.Response.Result.Status != metav1.StatusSuccess}, nil
}

// compare converts a review with the shadow. It returns the number of objects, the number of objects with a different
// result, and a description of the last difference.
func (s *comparison) compare(j *job, ours *converted) (objects, different int64, last string, err error) {
	defer rescue.To(&err, ctrl.Log.WithName("conversion"), "comparing a shadow")
	answer, err := s.program.engine.ReviewWith(j.review, convert.Limits{})
	if err != nil {
		return 0, 0, "", err
	}
	objects = int64(answer.Objects())
	theirs, err := objectsIn(answer.Bytes())
	if err != nil {
		return objects, 0, "", err
	}
	pair := answer.From() + " to " + answer.To()
	switch {
	case ours.failed && theirs.failed:
		return objects, 0, "", nil
	case ours.failed:
		return objects, objects, pair + ": only the shadow converts the objects", nil
	case theirs.failed:
		return objects, objects, pair + ": the shadow does not convert the objects", nil
	case len(ours.objects) != len(theirs.objects):
		return objects, objects, pair + ": the shadow returns another number of objects", nil
	}
	for i := range ours.objects {
		place, is, err := j.differs(ours.objects[i], theirs.objects[i], answer.From(), answer.To())
		if err != nil {
			return objects, different, last, err
		}
		if is {
			different++
			last = fmt.Sprintf("%s of %s: %s is different", pair, nameOf(ours.objects[i]), place)
		}
	}
	return objects, different, last, nil
}

// differs returns the first place where the meanings of two objects differ. It does not return the values: the result
// goes into the status of a policy, and its readers need not have the right to read the objects.
func (j *job) differs(ours, theirs map[string]any, from, to string) (string, bool, error) {
	p := j.entry.program.policy
	for _, o := range []*map[string]any{&ours, &theirs} {
		plain := uncomplemented(*o)
		if from != "" {
			var err error
			if plain, err = p.Normalize(to, from, plain); err != nil {
				return "", false, err
			}
		}
		*o = plain
	}
	place, is := difference(ours, theirs, "")
	return place, is, nil
}

// uncomplemented returns an object without the annotation of kept values, because each policy has its own values there.
func uncomplemented(object map[string]any) map[string]any {
	meta, _ := object["metadata"].(map[string]any)
	annotations, ok := meta["annotations"].(map[string]any)
	if !ok {
		return object
	}
	annotations = maps.Clone(annotations)
	delete(annotations, convert.Annotation)
	meta = maps.Clone(meta)
	meta["annotations"] = annotations
	if len(annotations) == 0 {
		delete(meta, "annotations")
	}
	object = maps.Clone(object)
	object["metadata"] = meta
	return object
}

// difference returns the first place, in the order of keys, where two values differ.
func difference(a, b any, at string) (string, bool) {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			return at, true
		}
		return differenceOfObjects(a, b, at)
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return at, true
		}
		for i := range a {
			if where, differs := difference(a[i], b[i], fmt.Sprintf("%s[%d]", at, i)); differs {
				return where, true
			}
		}
		return "", false
	default:
		return at, !sameScalar(a, b)
	}
}

func differenceOfObjects(a, b map[string]any, at string) (string, bool) {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		place := key
		if at != "" {
			place = at + "." + key
		}
		was, inA := a[key]
		is, inB := b[key]
		if inA != inB {
			return place, true
		}
		if where, differs := difference(was, is, place); differs {
			return where, true
		}
	}
	return "", false
}

// sameScalar compares two scalars. An integer equals a float of the same value.
func sameScalar(a, b any) bool {
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	if i, ok := a.(int64); ok {
		if f, ok := b.(float64); ok {
			return float64(i) == f
		}
	}
	if f, ok := a.(float64); ok {
		if i, ok := b.(int64); ok {
			return f == float64(i)
		}
	}
	return a == b
}

func nameOf(object map[string]any) string {
	meta, _ := object["metadata"].(map[string]any)
	namespace, _ := meta["namespace"].(string)
	name, _ := meta["name"].(string)
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// flush adds the counts to the statuses of shadows. After an error, the counts wait for the next call.
func (c *comparer) flush(ctx context.Context, to client.Client) {
	c.mu.Lock()
	dirty := c.dirty
	c.dirty = map[*comparison]bool{}
	c.mu.Unlock()
	for s := range dirty {
		gone, err := s.flush(ctx, to)
		if err == nil || gone {
			continue
		}
		c.mu.Lock()
		c.dirty[s] = true
		c.mu.Unlock()
		if !apierrors.IsConflict(err) && ctx.Err() == nil && c.logs.TryAccept() {
			c.log.Error(err, "Cannot report the comparison of a shadow", "policy", s.policy.Name)
		}
	}
}

// flush adds the counts to the status of the shadow. gone is true if the policy was deleted or its spec has changed.
func (s *comparison) flush(ctx context.Context, to client.Client) (gone bool, err error) {
	p := &refractv1alpha1.ConversionPolicy{}
	if err := to.Get(ctx, s.policy, p); err != nil {
		return apierrors.IsNotFound(err), err
	}
	if p.UID != s.uid || p.Generation != s.generation {
		return true, nil
	}
	old := p.DeepCopy()
	if p.Status.Shadow == nil || p.Status.Shadow.Generation != s.generation {
		p.Status.Shadow = &refractv1alpha1.ConversionShadowing{Generation: s.generation}
	}
	s.mu.Lock()
	compared, different, last := s.compared, s.different, s.last
	s.mu.Unlock()
	p.Status.Shadow.Compared += compared
	p.Status.Shadow.Different += different
	if different > 0 {
		p.Status.Shadow.LastDifference = output.Cut(last, mostMessage-len("…"))
	}
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := to.Status().Patch(ctx, p, patch, client.FieldOwner(FieldManager)); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compared -= compared
	s.different -= different
	return false, nil
}
