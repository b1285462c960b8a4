package propagation

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// The metrics of propagation, most of them by cluster. queue_metrics.go has those of the queues.
var (
	syncLatency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "refract_sync_latency_seconds",
		Help:    "Time from the decision about an object to its copy on a cluster.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	}, []string{"cluster"})
	driftCorrected = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_drift_corrected_total",
		Help: "Copies that were changed or deleted on their cluster, and were corrected.",
	}, []string{"cluster", "resource"})
	failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_errors_total",
		Help: "Failed attempts to synchronize a copy, by the reason in its row.",
	}, []string{"cluster", "reason"})
	copiesHeld = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "refract_copies",
		Help: "Copies that a cluster holds.",
	}, []string{"cluster"})
	deletionsPending = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "refract_deletions_held",
		Help: "Copies whose deletion waits for approval.",
	}, []string{"cluster"})
	rollouts = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "refract_rollouts",
		Help: "Objects with a rollout policy, by the phase of their rollout.",
	}, []string{"phase"})
	waveSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "refract_rollout_wave_seconds",
		Help:    "Time from the beginning of a wave until all of its clusters are done or have failed.",
		Buckets: prometheus.ExponentialBuckets(1, 4, 10),
	})
	reverts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "refract_rollout_reverts_total",
		Help: "Rollouts that failed and were reverted.",
	})
)

func init() { //nolint:gochecknoinits // The registry is that of the process.
	metrics.Registry.MustRegister(syncLatency, driftCorrected, failures, copiesHeld, deletionsPending, rollouts, waveSeconds, reverts)
}

// countRollouts sets the number of rollouts in each phase.
func countRollouts(by map[refractv1alpha1.RolloutPhase]int) {
	for _, phase := range []refractv1alpha1.RolloutPhase{
		refractv1alpha1.RolloutProgressing, refractv1alpha1.RolloutWaiting, refractv1alpha1.RolloutHalted,
		refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutStalled, refractv1alpha1.RolloutReverted, refractv1alpha1.RolloutComplete,
	} {
		rollouts.WithLabelValues(string(phase)).Set(float64(by[phase]))
	}
}

// forgetMetrics drops the metrics of a cluster that left the fleet.
func forgetMetrics(cluster string) {
	of := prometheus.Labels{"cluster": cluster}
	for _, vec := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{syncLatency, driftCorrected, failures, copiesHeld, deletionsPending} {
		vec.DeletePartialMatch(of)
	}
}
