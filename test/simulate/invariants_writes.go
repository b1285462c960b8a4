package simulate

import (
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/test/apiserver"
)

// assigned is the assignment of members to replicas in the hub's record. Each member has at most one replica
// (docs/design/replicas.md#assignment-of-members).
type assigned struct {
	Owned   map[string][]string `json:"owned"`
	Leaving map[string][]string `json:"leaving"`
	Fence   []string            `json:"fence"`

	text string // Empty if the record is unknown.
}

// assign records the assignment in a Lease, if it has one.
func (o *oracle) assign(lease *unstructured.Unstructured) {
	if lease == nil || lease.GetNamespace() != systemNamespace {
		return
	}
	text := lease.GetAnnotations()["refract.dev/assignment"]
	if text == "" || text == o.assignment.text {
		return
	}
	next := assigned{text: text}
	if json.Unmarshal([]byte(text), &next) == nil {
		o.assignment = next
		o.handovers++
	}
}

// assignAnew reads the assignment of a restored hub, because the controllers do not write an assignment that is correct.
func (o *oracle) assignAnew() {
	o.assignment = assigned{}
	o.handovers++
	for _, lease := range o.w.Hub.Server.All(kindLease.GroupVersionResource) {
		o.assign(lease)
	}
}

// writer is the last process that wrote to a cluster.
type writer struct {
	process  *Process
	handover int
	at       time.Time
}

// holds checks that a cluster has one writer: another replica gets a member only after the first has stopped
// (docs/design/replicas.md#assignment-of-members).
func (o *oracle) holds(p *Process, c *Cluster, key copyKey) {
	if o.wasReset(o.w.Hub) || p.shards == nil {
		return
	}
	last := o.writers[c]
	o.writers[c] = &writer{p, o.handovers, time.Now()}
	if last != nil && last.process != p && last.handover == o.handovers && last.process.Running() {
		o.w.Failf(twoWriters, "%s writes %s on cluster %s, and %s wrote to it %s before: nothing was handed over between", p.Name, key, c.Name, last.process.Name, time.Since(last.at))
		return
	}
	if o.assignment.text == "" {
		return
	}
	id := p.shards.ID()
	names, _ := o.namesNow(c)
	other, mine := "", slices.Contains(o.assignment.Fence, id)
	for _, of := range []map[string][]string{o.assignment.Owned, o.assignment.Leaving} {
		for owner, members := range of {
			for _, name := range names {
				if !slices.Contains(members, name) {
					continue
				}
				if owner == id {
					mine = true
				} else {
					other = max(other, owner)
				}
			}
		}
	}
	if !mine && other != "" {
		o.w.Failf(twoWriters, "%s writes %s on cluster %s, and the hub's record says that %s works on this cluster", p.Name, key, c.Name, other)
	}
}

// contentFacts are the present and earlier contents of a copy.
type contentFacts struct {
	now   string
	since time.Time
	past  map[string]bool
}

// older checks that a copy does not return to an earlier content without a change on the hub, because each write is
// compared with the newest decision (docs/design/decide-apply-report.md). Objects that obey a rollout policy may be
// reverted; another check judges these.
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
