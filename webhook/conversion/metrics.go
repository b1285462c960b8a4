package conversion

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"refract.dev/convert"
	"refract.dev/webhook/internal/collect"
)

// Why a review was not converted, as it is counted.
const (
	reasonReview   = "review"    // It is none.
	reasonTooLarge = "too_large" // It has too many bytes.
	reasonRead     = "read"      // It did not come in whole.
	reasonObject   = "object"    // One of its objects cannot be converted.
	reasonRequest  = "request"   // It is not one that can be answered with objects, as when there are too many.
)

// other is what reviews are counted as that are of no kind or version which the engine
// knows, or that have nothing to be converted. So the number of labels is bounded.
const other = "other"

// metrics count what is converted.
type metrics struct {
	objects, unconverted, bytes, failures *prometheus.CounterVec
	seconds                               *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	about := []string{"kind", "from", "to"}
	objects, objectsErr := collect.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_objects_total",
		Help: "Objects of reviews that were converted, by their kind and versions; other is for those that had nothing to be converted.",
	}, about))
	unconverted, unconvertedErr := collect.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_unconverted_objects_total",
		Help: "Objects of reviews of which something was kept since it cannot be converted, by their kind and versions. " +
			"An object counts each time that it is read.",
	}, about))
	bytes, bytesErr := collect.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_bytes_total",
		Help: "Bytes of reviews that were converted, as they came in.",
	}, about))
	failures, failuresErr := collect.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_failures_total",
		Help: "Reviews that were not converted, by why.",
	}, append(about, "reason")))
	seconds, secondsErr := collect.Register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "refract_conversion_seconds",
		Help:    "Time from a whole review to its answer, by kind.",
		Buckets: []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"kind"}))
	m := &metrics{objects: objects, unconverted: unconverted, bytes: bytes, failures: failures, seconds: seconds}
	return m, errors.Join(objectsErr, unconvertedErr, bytesErr, failuresErr, secondsErr)
}

// count counts what came of a review of this many bytes.
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
	m.unconverted.WithLabelValues(about...).Add(float64(kept)) // Also when it is none, so that an alert finds it.
	m.bytes.WithLabelValues(about...).Add(float64(size))
}
