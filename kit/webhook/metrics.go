package webhook

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"refract.dev/kit/webhook/internal/collect"
)

// metrics count and time the requests of a server. The values of the labels are registered paths and status codes of
// answers.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	panics   *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
	bytes    prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	requests, requestsErr := collect.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_webhook_requests_total",
		Help: "Answered requests, by path and HTTP status; 0 for aborted ones.",
	}, []string{"path", "code"}))
	seconds, secondsErr := collect.Register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "refract_webhook_request_duration_seconds",
		Help:    "Time from the header of a request to its answer, by path.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"path"}))
	panics, panicsErr := collect.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_webhook_panics_total",
		Help: "Panics of handlers, by path.",
	}, []string{"path"}))
	inFlight, inFlightErr := collect.Register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "refract_webhook_requests_in_flight",
		Help: "Requests that are received, wait for memory, or are answered, by path.",
	}, []string{"path"}))
	bytes, bytesErr := collect.Register(r, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "refract_webhook_body_bytes_in_flight",
		Help: "Memory reserved for the bodies of requests in flight.",
	}))
	return &metrics{requests, seconds, panics, inFlight, bytes}, errors.Join(requestsErr, secondsErr, panicsErr, inFlightErr, bytesErr)
}
