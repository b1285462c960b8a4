// Package conversion answers the ConversionReviews of API servers over HTTP, by what
// an engine of package [refract.dev/convert] makes of the objects:
//
//	engine, err := convert.New(pizzas)
//	...
//	server.Handle("/convert", conversion.Handler(engine, conversion.Options{Metrics: registry, Log: log}))
//
// The API server is told of it in the CustomResourceDefinition:
//
//	spec:
//	  conversion:
//	    strategy: Webhook
//	    webhook:
//	      conversionReviewVersions: [v1, v1beta1]
//	      clientConfig:
//	        service: {namespace: pizza, name: webhook, path: /convert}
//
// [refract.dev/webhook.Trust] keeps the caBundle beside it.
package conversion

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/flowcontrol"

	"refract.dev/convert"
)

// DefaultMaxBytes is the largest review that is read unless the options say
// otherwise. An API server sends objects one by one, older ones a page of a list in
// one review: 500 of 256 KiB.
const DefaultMaxBytes = 128 << 20

const (
	// pooled is the largest buffer that is kept for the next review, and what a client
	// is believed about the length of its review before it sends any of it.
	pooled = 1 << 20
	// unknown is the room for a review that does not say how long it is.
	unknown = 64 << 10
)

// Options say how reviews are answered. The zero value is usable.
type Options struct {
	// Limits are what one review may have; those of package convert if zero.
	Limits convert.Limits
	// MaxBytes is the largest review that is read; 0 for [DefaultMaxBytes].
	MaxBytes int64
	// Metrics is where the metrics are registered; nil for nowhere. Handlers that share
	// one count together.
	Metrics prometheus.Registerer
	// Log is told of reviews that could not be converted: of ten at once, then of one a
	// second.
	Log logr.Logger
	// Answered, if it is not nil, is called with each answer before it is written. It must be quick,
	// and keep nothing of it.
	Answered func(*convert.Answer)
}

// Handler returns what answers ConversionReviews that are posted to it, of v1 and of
// v1beta1. Objects that cannot be converted are answered as API servers want it, with
// HTTP 200 and a Failure that says why. What is no review is answered with 400 and a
// text, one that is too large with 413.
//
// It reads a review into one buffer, and the answer is written from that: for a
// large one it takes about the memory of the review and what the engine adds. A
// [refract.dev/webhook.Server] takes the limit from it.
//
// It panics if other metrics have the names of ours.
func Handler(e *convert.Engine, o Options) http.Handler {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	counted, err := newMetrics(o.Metrics)
	if err != nil {
		panic(err)
	}
	return &handler{
		engine: e, limits: o.Limits, most: o.MaxBytes, metrics: counted, answered: o.Answered,
		log: o.Log, logs: flowcontrol.NewTokenBucketRateLimiter(1, 10),
	}
}

type handler struct {
	engine  *convert.Engine
	limits  convert.Limits
	most    int64
	metrics *metrics
	log     logr.Logger
	logs    flowcontrol.RateLimiter
	// answered is Options.Answered.
	answered func(*convert.Answer)
	buffers  sync.Pool // Of *bytes.Buffer.
}

// MaxBytes returns the largest review that is read.
func (h *handler) MaxBytes() int64 { return h.most }

// ServeHTTP answers one review.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "only POST is answered", http.StatusMethodNotAllowed)
		return
	}
	if is := r.Header.Get("Content-Type"); !isJSON(is) {
		h.refuse(w, http.StatusUnsupportedMediaType, reasonReview, fmt.Errorf("the request is of type %q, and reviews are application/json", is))
		return
	}
	body, err := h.read(w, r)
	if err != nil {
		code, reason := http.StatusBadRequest, reasonRead
		if limit, ok := errors.AsType[*http.MaxBytesError](err); ok {
			code, reason = http.StatusRequestEntityTooLarge, reasonTooLarge
			err = fmt.Errorf("the review has more than %d bytes", limit.Limit)
		}
		h.refuse(w, code, reason, err)
		return
	}
	defer h.putBack(body) // The answer refers to it.
	begun := time.Now()
	answer, err := h.engine.ReviewWith(body.Bytes(), h.limits)
	if err != nil {
		h.refuse(w, http.StatusBadRequest, reasonReview, err)
		return
	}
	h.metrics.count(answer, body.Len(), time.Since(begun))
	if err := answer.Err(); err != nil {
		h.complain("A review could not be converted", err, "kind", answer.Kind(), "from", answer.From(), "to", answer.To(), "objects", answer.Objects())
	}
	if kept, _ := answer.Unconverted(); len(kept) > 0 {
		h.complain("Something of an object cannot be converted, and was kept", kept[0])
	}
	if h.answered != nil {
		h.answered(answer)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.FormatInt(answer.Len(), 10))
	_, _ = answer.WriteTo(w) // A client that has disconnected gets no answer.
}

// isJSON reports whether a body may be JSON: who does not say is believed.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	is, _, err := mime.ParseMediaType(contentType)
	return err == nil && is == "application/json"
}

// read returns the body. A client that announces a large one, and sends little, does
// not get the memory for it.
func (h *handler) read(w http.ResponseWriter, r *http.Request) (*bytes.Buffer, error) {
	length := r.ContentLength
	if length > h.most {
		return nil, &http.MaxBytesError{Limit: h.most}
	}
	body, some := http.MaxBytesReader(w, r.Body, h.most), min(length, pooled)
	if length < 0 {
		some = unknown
	}
	buffer := h.take(some)
	err := fill(buffer, io.LimitReader(body, some))
	if err == nil && length > some {
		begin := buffer
		buffer = h.take(length) // Of exactly this size: it would double otherwise.
		buffer.Write(begin.Bytes())
		h.putBack(begin)
	}
	if err == nil {
		err = fill(buffer, body)
	}
	if err != nil {
		h.putBack(buffer)
		return nil, err
	}
	return buffer, nil
}

func fill(buffer *bytes.Buffer, from io.Reader) error {
	if _, err := buffer.ReadFrom(from); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	return nil
}

// take returns an empty buffer with room for this many bytes.
func (h *handler) take(size int64) *bytes.Buffer {
	buffer := &bytes.Buffer{}
	if size <= pooled {
		if used, ok := h.buffers.Get().(*bytes.Buffer); ok {
			buffer = used
		}
	}
	buffer.Grow(int(size) + bytes.MinRead)
	return buffer
}

func (h *handler) putBack(buffer *bytes.Buffer) {
	if buffer.Cap() > pooled+bytes.MinRead {
		return
	}
	buffer.Reset()
	h.buffers.Put(buffer)
}

// refuse answers what is no review that can be answered.
func (h *handler) refuse(w http.ResponseWriter, code int, reason string, err error) {
	h.metrics.failures.WithLabelValues(other, other, other, reason).Inc()
	h.complain("A request to convert was refused", err, "code", code)
	http.Error(w, err.Error(), code)
}

// complain logs now and then.
func (h *handler) complain(what string, err error, about ...any) {
	if h.logs.TryAccept() {
		h.log.Error(err, what, about...)
	}
}
