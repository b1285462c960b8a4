package conversion

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// What came of an object in a comparison, as it is counted. What is
// skipped is not read, so that reviews are counted then.
const (
	comparisonSame      = "same"
	comparisonDifferent = "different"
	comparisonSkipped   = "skipped" // The comparison was busy, or the review too large.
	comparisonFailed    = "failed"  // The fault is ours.
)

// What a definition has here, as it is counted.
const (
	stateServing    = "serving"
	stateBroken     = "broken" // What the status says cannot be compiled here.
	stateComparison = "shadow"
)

var (
	compared = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_shadow_total",
		Help: "Objects that a shadow was to convert too, by definition and by what came of it. " +
			"Those that are skipped or failed are reviews where nobody has counted objects: an API server sends one object in each.",
	}, []string{"crd", "result"})
	policiesHeld = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "refract_conversion_policies",
		Help: "Conversion policies that this replica converts by, by whether it can.",
	}, []string{"state"})
	verifications = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_verifications_total",
		Help: "Verifications of conversion policies, by what came of them.",
	}, []string{"result"})
	specConversions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_wirings_total",
		Help: "Times that spec.conversion of a definition was written, by to what.",
	}, []string{"to"})
	refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_unserved_total",
		Help: "Reviews of definitions that this replica has no policy for, or none that it can compile.",
	}, []string{"reason"})
)

func init() { //nolint:gochecknoinits // The registry is that of the process.
	metrics.Registry.MustRegister(compared, policiesHeld, verifications, specConversions, refused)
}
