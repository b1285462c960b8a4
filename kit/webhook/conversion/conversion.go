// Package conversion answers the ConversionReviews of API servers over HTTP with an engine of package
// [refract.dev/conversion/convert]:
//
//	engine, err := convert.New(pizzas)
//	...
//	server.Handle("/convert", conversion.Handler(engine, conversion.Options{Metrics: registry, Log: log}))
//
// The CustomResourceDefinition names the webhook:
//
//	spec:
//	  conversion:
//	    strategy: Webhook
//	    webhook:
//	      conversionReviewVersions: [v1, v1beta1]
//	      clientConfig:
//	        service: {namespace: pizza, name: webhook, path: /convert}
//
// [refract.dev/kit/webhook.Trust] keeps the caBundle next to it up to date.
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

	"refract.dev/conversion/convert"
)

// DefaultMaxBytes is the default limit of a review. Current API servers send objects one by one. Older ones send a page
// of a list in one review: 500 objects of 256 KiB.
const DefaultMaxBytes = 128 << 20

const (
	// pooled is the largest buffer that is kept for later reviews. It is also the largest buffer that is allocated
	// before any part of the body has arrived.
	pooled = 1 << 20
	// unknown is the size of the first buffer for a review without an announced length.
	unknown = 64 << 10
)

// Options configure a [Handler]. The zero value is usable.
type Options struct {
	// Limits bound each review. The zero value means the default limits of package convert.
	Limits convert.Limits
	// MaxBytes is the largest review that the handler reads, in bytes; 0 means [DefaultMaxBytes].
	MaxBytes int64
	// Metrics registers the handler's metrics; nil registers none. Handlers with the same registerer share their
	// metrics.
	Metrics prometheus.Registerer
	// Log gets messages about reviews with objects that were not converted, or not completely: at most ten at once, and
	// then one a second.
	Log logr.Logger
	// Answered, if not nil, is called with each answer before the answer is sent. It must be fast, and must not keep
	// any part of the answer.
	Answered func(*convert.Answer)
}

// Handler returns a handler for ConversionReviews of v1 and v1beta1 that are sent by POST. If an object cannot be
// converted, the answer is HTTP 200 and a Failure with the reason, as API servers require. A request that is not a
// review gets 400 with a text, or 415 if it is not JSON. A review that is too large gets 413.
//
// The handler reads a review into one buffer, and the answer refers to that buffer. So a large review takes about its
// own size in memory, and the additions of the engine. A [refract.dev/kit/webhook.Server] takes the limit for bodies
// from the handler.
//
// Handler panics if the registerer has other metrics with the names of the handler's metrics.
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
	buffers  sync.Pool // Elements are *bytes.Buffer.
}

// MaxBytes returns the largest review that the handler reads, in bytes.
func (h *handler) MaxBytes() int64 { return h.most }

// ServeHTTP answers one review.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "only POST is allowed", http.StatusMethodNotAllowed)
		return
	}
	if is := r.Header.Get("Content-Type"); !isJSON(is) {
		h.refuse(w, http.StatusUnsupportedMediaType, reasonReview, fmt.Errorf("content type: want application/json, got %q", is))
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
	defer h.putBack(body) // Until here the answer refers to the body.
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
		h.complain("A part of an object cannot be converted, and was kept", kept[0])
	}
	if h.answered != nil {
		h.answered(answer)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.FormatInt(answer.Len(), 10))
	_, _ = answer.WriteTo(w) // If the client has disconnected, nobody reads the answer.
}

// isJSON reports whether the body may be JSON. A missing content type is accepted.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	is, _, err := mime.ParseMediaType(contentType)
	return err == nil && is == "application/json"
}

// read returns the body. It allocates the announced length only after a first part of the body has arrived, so that
// clients that send little do not use up the memory.
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
		buffer = h.take(length) // A buffer of exactly this size, because a growing buffer would double.
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

// take returns an empty buffer with space for this many bytes.
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

// refuse answers a request that is not a readable review.
func (h *handler) refuse(w http.ResponseWriter, code int, reason string, err error) {
	h.metrics.failures.WithLabelValues(other, other, other, reason).Inc()
	h.complain("A conversion request was rejected", err, "code", code)
	http.Error(w, err.Error(), code)
}

// complain logs an error, unless too many have been logged recently.
func (h *handler) complain(what string, err error, about ...any) {
	if h.logs.TryAccept() {
		h.log.Error(err, what, about...)
	}
}
