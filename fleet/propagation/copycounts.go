package propagation

// copyCounts counts the present and the missing copies of clusters, by cluster and namespace, so that no query
// searches all objects.
type copyCounts map[string]map[string]copyCount

// copyCount has two numbers for a cluster and a namespace: the copies that the cluster reports, and the copies that are
// still missing.
type copyCount struct{ reported, missing int }

// add adds n for each of the clusters.
func (c copyCounts) add(namespace string, on map[string]clusterStatus, n copyCount) {
	for name := range on {
		c.count(namespace, name, n)
	}
}

// retarget updates the counts for new targets of an object in the namespace.
func (c copyCounts) retarget(namespace string, e *objectState, targets map[string]*target) {
	var before map[string]*target
	if e.desired != nil {
		before = e.desired.targets
	}
	for name := range before {
		if _, reported := e.statuses[name]; !reported && targets[name] == nil {
			c.count(namespace, name, copyCount{missing: -1})
		}
	}
	for name := range targets {
		if _, reported := e.statuses[name]; !reported && before[name] == nil {
			c.count(namespace, name, copyCount{missing: 1})
		}
	}
}

// change updates the counts for a copy that a cluster now reports, or no longer reports. target is whether the desired
// state has a copy on the cluster.
func (c copyCounts) change(namespace, cluster string, target, reports bool) {
	by, missing := 1, 0
	if target {
		missing = -1
	}
	if !reports {
		by, missing = -by, -missing
	}
	c.count(namespace, cluster, copyCount{reported: by, missing: missing})
}

func (c copyCounts) count(namespace, cluster string, by copyCount) {
	n := c[cluster][namespace]
	n.reported += by.reported
	n.missing += by.missing
	if n != (copyCount{}) {
		if c[cluster] == nil {
			c[cluster] = map[string]copyCount{}
		}
		c[cluster][namespace] = n
		return
	}
	delete(c[cluster], namespace)
	if len(c[cluster]) == 0 {
		delete(c, cluster)
	}
}
