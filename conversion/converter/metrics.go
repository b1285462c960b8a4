package converter

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Results of the comparison of an object, for the label result. A skipped review counts as one object, because it is
// not read.
const (
	comparisonSame      = "same"
	comparisonDifferent = "different"
	comparisonSkipped   = "skipped" // The queue was full, or the review was too large.
	comparisonFailed    = "failed"  // The review could not be read, or could not be converted because of an error in Refract.
)

// States of a policy in this replica, for the label state.
const (
	stateServing    = "serving"
	stateBroken     = "broken" // This replica cannot compile the spec in status.served.
	stateComparison = "shadow"
)

var (
	compared = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_shadow_total",
		Help: "Objects compared with a shadow, by definition and result. For skipped and failed reviews without a count of objects, each review counts as " +
			"one object, as API servers send them.",
	}, []string{"crd", "result"})
	policiesHeld = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "refract_conversion_policies",
		Help: "Conversion policies that this replica serves, by state.",
	}, []string{"state"})
	verifications = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_verifications_total",
		Help: "Verifications of conversion policies, by result.",
	}, []string{"result"})
	specConversions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_wirings_total",
		Help: "Writes of spec.conversion of a definition, by new value.",
	}, []string{"to"})
	refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_conversion_unserved_total",
		Help: "Reviews of definitions without a policy that this replica knows and can compile.",
	}, []string{"reason"})
)

func init() { //nolint:gochecknoinits // The metrics are in the registry of the process.
	metrics.Registry.MustRegister(compared, policiesHeld, verifications, specConversions, refused)
}
