package member

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Metrics by cluster.
var (
	writes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_member_writes_total",
		Help: "Writes to a cluster, by verb and status code: 2xx for success, none without an answer, other for unknown codes.",
	}, []string{"cluster", "verb", "code"})
	writeSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "refract_member_write_seconds",
		Help:    "Time from a write to the cluster's answer.",
		Buckets: []float64{.005, .02, .1, .5, 2, 10},
	}, []string{"cluster"})
	clusterReady = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "refract_cluster_ready",
		Help: "1 if this process serves the cluster and the cluster is ready.",
	}, []string{"cluster"})
	breakerOpen = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "refract_breaker_open",
		Help: "1 while writes to the cluster wait after failed writes.",
	}, []string{"cluster"})
)

func init() { //nolint:gochecknoinits // The registry belongs to the process.
	metrics.Registry.MustRegister(writes, writeSeconds, clusterReady, breakerOpen)
}

// forgetMetrics deletes the metrics of a cluster that left.
func forgetMetrics(cluster string) {
	of := prometheus.Labels{"cluster": cluster}
	for _, vec := range []interface {
		DeletePartialMatch(labels prometheus.Labels) int
	}{writes, writeSeconds, clusterReady, breakerOpen} {
		vec.DeletePartialMatch(of)
	}
}

// meter measures the writes to one cluster.
type meter string

func (m meter) wrote(verb string, err error, took time.Duration) {
	writes.WithLabelValues(string(m), verb, code(err)).Inc()
	writeSeconds.WithLabelValues(string(m)).Observe(took.Seconds())
}

func (m meter) ready(yes bool)  { clusterReady.WithLabelValues(string(m)).Set(number01(yes)) }
func (m meter) opened(yes bool) { breakerOpen.WithLabelValues(string(m)).Set(number01(yes)) }

func number01(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func code(err error) string {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return "2xx"
	case errors.As(err, &status):
		number := int(status.Status().Code)
		if http.StatusText(number) == "" {
			return "other" // A member may answer with any number, and each number would create a series.
		}
		return strconv.Itoa(number)
	default:
		return "none"
	}
}
