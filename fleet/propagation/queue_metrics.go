package propagation

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The metrics of the queues, by kind of queue. controller-runtime's controllers use the names workqueue_* with other
// labels, so these have names of their own.
var (
	queueErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_queue_errors_total",
		Help: "Errors and panics of the work on keys, which are then tried again.",
	}, []string{"queue"})
	queueWaited = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "refract_queue_seconds",
		Help:    "How long keys that are due wait for a worker.",
		Buckets: []float64{.001, .01, .1, 1, 10, 60, 300},
	}, []string{"queue"})
	queueWorked = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "refract_queue_work_seconds",
		Help:    "How long the work on a key takes.",
		Buckets: []float64{.001, .01, .1, 1, 10, 60},
	}, []string{"queue"})
	depths = &depthCollector{desc: prometheus.NewDesc("refract_queue_depth",
		"Keys that are due and wait for a worker; those of the appliers by cluster.", []string{"queue", "cluster"}, nil)}
)

func init() { //nolint:gochecknoinits // The registry is that of the process.
	metrics.Registry.MustRegister(queueErrors, queueWaited, queueWorked, depths)
}

// measures are the metrics of one kind of queue, and the cluster of the queue, or "".
type measures struct {
	kind, cluster  string
	errors         prometheus.Counter
	waited, worked prometheus.Observer
}

func measuresOf(kind, cluster string) measures {
	return measures{
		kind: kind, cluster: cluster,
		errors: queueErrors.WithLabelValues(kind),
		waited: queueWaited.WithLabelValues(kind), worked: queueWorked.WithLabelValues(kind),
	}
}

// depthCollector reads the length of each running queue when metrics are collected. So a stopped queue leaves no
// series, and two queues of one name, as during a change of a member, are summed.
type depthCollector struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	queues map[*queueDepth]bool
}

type queueDepth struct {
	kind, cluster string
	of            func() int
}

// join adds a queue to the collector until the returned function is called.
func (c *depthCollector) join(kind, cluster string, depth func() int) (leave func()) {
	if kind != "apply" {
		cluster = "" // A series for each cluster would not be useful.
	}
	q := &queueDepth{kind: kind, cluster: cluster, of: depth}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues == nil {
		c.queues = map[*queueDepth]bool{}
	}
	c.queues[q] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.queues, q)
	}
}

// Describe is part of [prometheus.Collector].
func (c *depthCollector) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc }

// Collect is part of [prometheus.Collector].
func (c *depthCollector) Collect(to chan<- prometheus.Metric) {
	type name struct{ kind, cluster string }
	sums := map[name]int{}
	c.mu.Lock()
	for q := range c.queues {
		sums[name{q.kind, q.cluster}] += q.of()
	}
	c.mu.Unlock()
	for n, sum := range sums {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(sum), n.kind, n.cluster)
	}
}
