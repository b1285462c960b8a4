package injector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/client-go/util/flowcontrol"

	"refract.dev/injection/inject"
	"refract.dev/internal/rescue"
	"refract.dev/internal/webhook/bounded"
)

// PodsPath is the path of the webhook for pods.
const PodsPath = "/inject/pods"

const (
	// syncPatience is how long a review waits for the policies after the start of the program. The API server waits for
	// the review for two seconds.
	syncPatience = 1500 * time.Millisecond
	// usualRequest is the maximum size of the buffer that is allocated before a request is read. A larger
	// Content-Length may be wrong.
	usualRequest = 64 << 10
)

// pods is the handler for reviews of new pods and of added ephemeral containers.
//
// After any failure it admits the pod unchanged. A request that is not an AdmissionReview gets an HTTP error.
type pods struct {
	policies *Cache
	fallback *liveFallback
	patience time.Duration // The longest wait for the policies to become known.
	log      logr.Logger
	logs     flowcontrol.RateLimiter
}

func newPods(policies *Cache, h *liveFallback, log logr.Logger) *pods {
	return &pods{
		policies: policies, fallback: h, patience: syncPatience,
		log: log, logs: flowcontrol.NewTokenBucketRateLimiter(1, 10),
	}
}

// MaxBytes returns the maximum size of a request's body; the server enforces it.
func (*pods) MaxBytes() int64 { return bounded.MaxBytes }

// ServeHTTP serves one review.
func (p *pods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	asked := &review{}
	result, err := p.result(r, asked)
	a := answer{Result: result}
	outcome := a.outcome()
	if err != nil {
		a, outcome = answer{}, outcomeFailed
		p.complain(asked, err)
	}
	if errors.Is(err, errBusy) {
		a.busy, outcome = true, outcomeBusy
	}
	text := a.encode(string(asked.UID))
	reviews.WithLabelValues(outcome).Inc()
	reviewDuration.Observe(time.Since(begun).Seconds())
	if len(asked.UID) == 0 {
		http.Error(w, "the request is not a valid AdmissionReview", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // A client that has disconnected gets no response.
}

// result returns the result for the pod of a request; nil if the request needs no change. It reads the request into
// asked. After an error, asked has the parts that could be read.
func (p *pods) result(r *http.Request, asked *review) (result *inject.Result, err error) {
	defer rescue.To(&err, p.log, "injecting into a pod")
	ctx, cancel := context.WithTimeout(r.Context(), turnPatience)
	defer cancel()
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), usualRequest)) + bytes.MinRead)
	if _, err := body.ReadFrom(r.Body); err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	if err := asked.read(body.Bytes()); err != nil {
		return nil, err
	}
	if err := p.policies.wait(ctx, p.patience); err != nil {
		return nil, err
	}
	namespace := string(asked.Namespace)
	set := p.policies.Set(namespace)
	switch {
	case asked.is(admissionv1.Create, ""):
		result, err = p.fallback.turns.inject(ctx, namespace, set, asked.Object, func(set *inject.Set) (*inject.Result, error) {
			return set.Inject(asked.Object)
		})
		if err != nil {
			return nil, err
		}
		return p.fallback.settle(ctx, namespace, asked.Object, result), nil
	case asked.is(admissionv1.Update, "ephemeralcontainers"):
		return p.fallback.turns.inject(ctx, namespace, set, asked.Object, func(set *inject.Set) (*inject.Result, error) {
			return set.InjectEphemeral(asked.Object, asked.OldObject)
		})
	default:
		return nil, nil //nolint:nilnil // The pod stays unchanged, which is no failure.
	}
}

// complain logs a failure, within a rate limit.
func (p *pods) complain(asked *review, err error) {
	if p.logs.TryAccept() {
		p.log.Error(err, "A pod was admitted without injection", "namespace", string(asked.Namespace), "uid", string(asked.UID))
	}
}
