package simulate

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/leadership"
	"refract.dev/test/apiserver"
)

// lead reads the leading replica from the Lease. Only that replica writes to clusters (docs/design/replicas.md#leader).
func (o *oracle) lead(lease *unstructured.Unstructured) {
	if lease == nil || lease.GetNamespace() != systemNamespace || lease.GetName() != leadership.LeaseName {
		return
	}
	if holder := textOf(lease, "spec", "holderIdentity"); holder != o.leader {
		o.leader = holder
		o.handovers++
	}
}

// leadAnew reads the leading replica from the Lease of a restored hub.
func (o *oracle) leadAnew() {
	o.leader = ""
	o.handovers++
	o.lead(o.w.Hub.Server.Peek(kindLease.GroupVersionResource, systemNamespace, leadership.LeaseName))
}

// writer is the last process that wrote to a cluster.
type writer struct {
	process  *Process
	handover int
	at       time.Time
}

// holds checks that a cluster has one writer: another replica leads only after the first has stopped
// (docs/design/replicas.md#leader).
func (o *oracle) holds(p *Process, c *Cluster, key copyKey) {
	if o.wasReset(o.w.Hub) || p.leading == nil {
		return
	}
	last := o.writers[c]
	o.writers[c] = &writer{p, o.handovers, time.Now()}
	if last != nil && last.process != p && last.handover == o.handovers && last.process.Running() {
		o.w.Failf(twoWriters, "%s writes %s on cluster %s, and %s wrote to it %s before: nothing was handed over between", p.Name, key, c.Name, last.process.Name, time.Since(last.at))
		return
	}
	if o.leader != "" && o.leader != p.leading.ID() {
		o.w.Failf(twoWriters, "%s writes %s on cluster %s, and the Lease says that %s leads", p.Name, key, c.Name, o.leader)
	}
}

// contentFacts are the present and earlier contents of a copy.
type contentFacts struct {
	now   string
	since time.Time
	past  map[string]bool
}

// older checks that a copy does not return to an earlier content without a change on the hub: Refract compares each
// write with its newest decision (docs/design/decide-apply-report.md). Objects with a rollout policy may be reverted;
// another check covers them.
func (o *oracle) older(p *Process, c *Cluster, key copyKey, w apiserver.Write) {
	hash := w.After.GetAnnotations()[refractv1alpha1.AppliedAnnotation]
	place := placeKey{c, key}
	f := o.contents[place]
	if f == nil || w.Before == nil || o.wasReset(&c.Target) || o.wasReset(o.w.Hub) {
		f = &contentFacts{past: map[string]bool{}}
		o.contents[place] = f
	}
	if hash == "" || hash == f.now {
		return
	}
	before, since := f.now, f.since
	known := f.past[hash]
	f.now, f.since = hash, time.Now()
	f.past[hash] = true
	if !known || before == "" || o.releases.obeys(o, key) {
		return
	}
	if len(o.editsSince(time.Since(since)+outdated)) > 0 || time.Since(o.conditions) < time.Since(since)+outdated {
		return
	}
	o.w.Failf(oldDecision, "%s writes a content of %s to cluster %s that the cluster had before the present one, and nobody has changed anything on the hub since", p.Name, key, c.Name)
}
