package injector

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Outcomes of a review for the metric.
const (
	outcomeInjected  = "injected"  // The pod was injected.
	outcomeUnchanged = "unchanged" // The policies added nothing, because the pod has all items or no policy applies.
	outcomeSkipped   = "skipped"   // Policies were skipped, and none applied.
	outcomeRejected  = "rejected"  // A policy rejected the pod.
	outcomeExcluded  = "excluded"  // The pod has opted out or is a mirror pod.
	outcomeExceeded  = "exceeded"  // The pod exceeded the work limit, and was admitted unchanged.
	outcomeBusy      = "busy"      // The pod was admitted unchanged: its namespace had too many waiting pods, or did not get its turn in time.
	outcomeFailed    = "failed"    // Refract failed. The pod was admitted unchanged.
)

// Outcomes for a pod whose template has another hash than the cached policies give.
const (
	fallbackFound      = "found"      // A new list gave the hash of the template: the cache was behind.
	fallbackShared     = "shared"     // An earlier list gave the hash of the template.
	fallbackDifferent  = "different"  // A new list did not give the hash of the template either.
	fallbackRemembered = "remembered" // An earlier list did not give the hash, so no new list was made.
	fallbackLimited    = "limited"    // The limit for lists was exceeded.
	fallbackFailed     = "failed"     // The list failed or was too slow.
)

var (
	reviews = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_injection_reviews_total",
		Help: "Reviews of pods, by outcome.",
	}, []string{"outcome"})
	reviewDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "refract_injection_review_duration_seconds",
		Help:    "Time from a request about a pod to the answer.",
		Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2},
	})
	fallbacks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_injection_handshakes_total",
		Help: "Pods with another hash in the template than that of the policies known here, by outcome.",
	}, []string{"outcome"})
	policiesHeld = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "refract_injection_policies",
		Help: "Injection policies, by whether they are valid.",
	}, []string{"state"})
)

func init() { //nolint:gochecknoinits // The metrics registry is global to the process.
	metrics.Registry.MustRegister(reviews, reviewDuration, fallbacks, policiesHeld)
}
