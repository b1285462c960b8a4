package injection

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// What came of a review, as it is counted.
const (
	outcomeInjected  = "injected"  // The pod got something.
	outcomeUnchanged = "unchanged" // No policy had anything for it that it did not have.
	outcomeSkipped   = "skipped"   // Policies were left out, and none gave it anything.
	outcomeRejected  = "rejected"  // It was refused, as a policy wants.
	outcomeExcluded  = "excluded"  // It has opted out.
	outcomeExceeded  = "exceeded"  // It and its policies are too much work. It was admitted as it was.
	outcomeBusy      = "busy"      // Too many of its namespace waited, or too long. The same.
	outcomeFailed    = "failed"    // The fault is ours. It was admitted as it was.
)

// What came of a pod whose template bears another hash than its policies give.
const (
	fallbackFound      = "found"      // A live list gave the hash: the cache was behind.
	fallbackShared     = "shared"     // One of a moment ago did.
	fallbackDifferent  = "different"  // Nor did a live list give the hash.
	fallbackRemembered = "remembered" // It did not the last time.
	fallbackLimited    = "limited"    // There were too many lists lately.
	fallbackFailed     = "failed"     // There was no answer in time.
)

var (
	reviews = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_injection_reviews_total",
		Help: "Pods that the API server asked about, by what came of it.",
	}, []string{"outcome"})
	reviewDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "refract_injection_review_duration_seconds",
		Help:    "Time from a request about a pod to the answer.",
		Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2},
	})
	fallbacks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_injection_handshakes_total",
		Help: "Pods whose template bears another hash than the policies known here give, by what came of it.",
	}, []string{"outcome"})
	policiesHeld = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "refract_injection_policies",
		Help: "Injection policies, by whether they are valid.",
	}, []string{"state"})
)

func init() { //nolint:gochecknoinits // The registry is that of the process.
	metrics.Registry.MustRegister(reviews, reviewDuration, fallbacks, policiesHeld)
}
