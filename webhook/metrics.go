package webhook

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"refract.dev/webhook/internal/collect"
)

// metrics count what a server is asked. Its labels are paths that the server
// handles, and codes that it answered with.
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
		Help: "Requests that were answered, by path and HTTP status; 0 for those that were cut off.",
	}, []string{"path", "code"}))
	seconds, secondsErr := collect.Register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "refract_webhook_request_duration_seconds",
		Help:    "Time from the head of a request to its answer, by path.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"path"}))
	panics, panicsErr := collect.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_webhook_panics_total",
		Help: "Panics of handlers, by path.",
	}, []string{"path"}))
	inFlight, inFlightErr := collect.Register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "refract_webhook_requests_in_flight",
		Help: "Requests that are being answered, come in, or wait for room, by path.",
	}, []string{"path"}))
	bytes, bytesErr := collect.Register(r, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "refract_webhook_body_bytes_in_flight",
		Help: "Room that the bodies of the requests being answered take.",
	}))
	return &metrics{requests, seconds, panics, inFlight, bytes}, errors.Join(requestsErr, secondsErr, panicsErr, inFlightErr, bytesErr)
}
