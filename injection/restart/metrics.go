package restart

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"refract.dev/injection/inject"
)

var (
	rollouts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_injection_rollouts_total",
		Help: "Recreations of pods for a policy that were started, completed or halted, and templates whose owner removed the annotation again (reverted).",
	}, []string{"result"})
	podsByState = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "refract_injection_pods",
		Help: "Pods that policies select, each counted once by its most important state: Stale, Skipped, Excluded, Injected.",
	}, []string{"state"})
)

func init() { //nolint:gochecknoinits // The metrics registry is global to the process.
	metrics.Registry.MustRegister(rollouts, podsByState)
}

// results maps the reasons of events to the label values of the counter.
var results = map[string]string{eventStarted: "started", eventCompleted: "completed", eventHalted: "halted", eventReverted: "reverted"}

// census adds up the pods of all namespaces.
type census struct {
	mu         sync.Mutex
	namespaces map[string]map[inject.State]int
	total      map[inject.State]int
}

// set replaces the counts of a namespace.
func (c *census) set(namespace string, pods map[inject.State]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.namespaces == nil {
		c.namespaces, c.total = map[string]map[inject.State]int{}, map[inject.State]int{}
	}
	for _, s := range stateNames {
		c.total[s] += pods[s] - c.namespaces[namespace][s]
		podsByState.WithLabelValues(string(s)).Set(float64(c.total[s]))
	}
	c.namespaces[namespace] = pods
	if len(pods) == 0 {
		delete(c.namespaces, namespace)
	}
}
