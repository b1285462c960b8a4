package conversion

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"refract.dev/conversion/convert"
	"refract.dev/kit/webhook/internal/collect"
)

// Reasons for failed reviews in the metrics.
const (
	reasonReview   = "review"    // The request is not a review.
	reasonTooLarge = "too_large" // The body is too large.
	reasonRead     = "read"      // The body did not arrive completely.
	reasonObject   = "object"    // An object of the review cannot be converted.
	reasonRequest  = "request"   // The engine rejects the review as a whole, for example because it has too many objects.
)

// other is the label value of reviews whose kind or version the engine does not know, and of reviews without an object
// to convert. It bounds the number of label values.
const other = "other"

// metrics count and time conversions.
type metrics struct {
	objects, unconverted, bytes, failures *prometheus.CounterVec
	seconds                               *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	about := []string{"kind", "from", "to"}
	objects, objectsErr := collect.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_objects_total",
		Help: "Objects of converted reviews, by their kind and versions; other for reviews with nothing to convert.",
	}, about))
	unconverted, unconvertedErr := collect.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_unconverted_objects_total",
		Help: "Objects of reviews with a kept part that cannot be converted, by their kind and versions. " +
			"An object counts each time that it is read.",
	}, about))
	bytes, bytesErr := collect.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_bytes_total",
		Help: "Bytes of converted reviews, as received.",
	}, about))
	failures, failuresErr := collect.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_failures_total",
		Help: "Reviews that were not converted, by reason.",
	}, append(about, "reason")))
	seconds, secondsErr := collect.Register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "refract_conversion_seconds",
		Help:    "Time from a complete review to its answer, by kind.",
		Buckets: []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"kind"}))
	m := &metrics{objects: objects, unconverted: unconverted, bytes: bytes, failures: failures, seconds: seconds}
	return m, errors.Join(objectsErr, unconvertedErr, bytesErr, failuresErr, secondsErr)
}

// count counts the answer to a review of this size in bytes.
func (m *metrics) count(a *convert.Answer, size int, took time.Duration) {
	about := []string{a.Kind(), a.From(), a.To()}
	if about[0] == "" {
		about = []string{other, other, other}
	}
	m.seconds.WithLabelValues(about[0]).Observe(took.Seconds())
	if err := a.Err(); err != nil {
		reason := reasonRequest
		if _, ok := errors.AsType[*convert.ObjectError](err); ok {
			reason = reasonObject
		}
		m.failures.WithLabelValues(append(about, reason)...).Inc()
		return
	}
	m.objects.WithLabelValues(about...).Add(float64(a.Objects()))
	_, kept := a.Unconverted()
	m.unconverted.WithLabelValues(about...).Add(float64(kept)) // Also adds 0, so that the time series exists for alerts.
	m.bytes.WithLabelValues(about...).Add(float64(size))
}
