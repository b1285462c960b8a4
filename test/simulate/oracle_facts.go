package simulate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/test/apiserver"
)

// onHub records a write to the hub.
func (o *oracle) onHub(w apiserver.Write) {
	key := keyOfWrite(w)
	p := o.process(w.User)
	if p != nil {
		o.active[p] = true
	}
	if w.GVR == kindLease.GroupVersionResource {
		o.lead(w.After)
		return
	}
	if p != nil {
		o.tellHub(p, w)
		if p.killed {
			o.w.Failf(twoWriters, "%s writes to the hub, though it was killed: %s %s", p.Name, w.Verb, key)
		}
	}
	switch w.GVR.Resource {
	case kindReport.Resource, kindReportGlobe.Resource:
		o.releases.recorded(o, p, w)
	case kindRevision.Resource:
		o.releases.onRevision(o, p, w)
	case kindCluster.Resource:
		o.onFederatedCluster(p, w)
	}
	if p != nil {
		return
	}
	if w.Subresource != "status" || w.GVR.Resource == kindCluster.Resource {
		o.keepState(w)
		o.edits = append(o.edits, hubEdit{time.Now(), w.GVR.GroupResource(), key})
		if n := len(o.edits); n > 500 {
			o.edits = slices.Clone(o.edits[n-300:])
		}
	}
	if w.Before == nil || w.Before.GetDeletionTimestamp() != nil || (w.Verb != "delete" && w.Verb != "removed") {
		return
	}
	around := w.User == "kube-apiserver" // Its type was deleted.
	if ns := o.w.Hub.Server.Peek(kindNamespace.GroupVersionResource, "", w.Namespace); w.Namespace != "" && (ns == nil || ns.GetDeletionTimestamp() != nil) {
		around = true
	}
	o.deletions[w.Before.GetUID()] = deletion{
		at: time.Now(), by: w.User, alone: !around && w.User != "garbage-collector" && len(w.Before.GetOwnerReferences()) == 0, around: around,
		object: w.Before, key: key, reported: o.reported(key, w.Before),
	}
}

// readies records the time at which the copy of a Deployment became ready: all replicas of its newest generation are
// available.
func (o *oracle) readies(place placeKey, is *unstructured.Unstructured) {
	if place.GroupResource != kindDeployment.GroupVersionResource.GroupResource() {
		return
	}
	ready := false
	if is != nil {
		number := func(fields ...string) int64 {
			n, _, _ := unstructured.NestedInt64(is.Object, fields...) // Absent counts as 0.
			return n
		}
		want := number("spec", "replicas")
		ready = number("status", "observedGeneration") == is.GetGeneration() &&
			number("status", "updatedReplicas") >= want && number("status", "availableReplicas") >= want
	}
	if _, was := o.ready[place]; !ready {
		delete(o.ready, place)
	} else if !was {
		o.ready[place] = time.Now()
	}
}

// editsSince returns the changes by people within a duration.
func (o *oracle) editsSince(within time.Duration) (edits []hubEdit) {
	for _, e := range slices.Backward(o.edits) {
		if time.Since(e.at) > within {
			break
		}
		edits = append(edits, e)
	}
	return edits
}

// ofHub are the kinds of the hub that determine the content of clusters.
//
//nolint:gochecknoglobals // It is a constant.
var ofHub = slices.Concat([]kind{
	kindDeployment, kindConfigMap, kindSecret, kindService, kindClaim, kindJob, kindScaler, kindWidget, kindStateful, kindAccount, kindCron, kindVolume,
	kindReport, kindReportGlobe, kindCluster, kindPlacement, kindPlacements, kindOverride, kindOverrides, kindRollout, kindRollouts, kindNamespace, kindCRD,
})

// hubObjects returns the objects of these kinds on the hub.
func (o *oracle) hubObjects() (objects []*unstructured.Unstructured) {
	for _, k := range ofHub {
		for _, object := range o.w.Hub.Server.All(k.GroupVersionResource) {
			if object.GetNamespace() != systemNamespace {
				objects = append(objects, object)
			}
		}
	}
	return objects
}

// keepState stores the state of the hub before a write.
func (o *oracle) keepState(w apiserver.Write) {
	objects := o.hubObjects()
	if w.After != nil {
		objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool { return object.GetUID() == w.After.GetUID() })
	}
	if w.Before != nil {
		objects = append(objects, w.Before)
	}
	o.states = append(o.states, hubState{until: time.Now(), objects: objects})
	o.states = slices.DeleteFunc(o.states, func(s hubState) bool { return time.Since(s.until) > outdated })
}

// evaluation is the output of refract render for a state of the hub.
type evaluation struct {
	*render.Evaluation

	outcomes map[copyKey]*render.Outcome
}

// evaluate returns the output of refract render for objects of the hub.
func (o *oracle) evaluate(objects []*unstructured.Unstructured) *evaluation {
	set, _ := manifest.FromObjects("hub", objects, nil) // Policies with errors are also evaluated.
	set.Live = true
	got, err := render.Evaluate(set, render.Options{})
	switch {
	case errors.Is(err, render.ErrNoClusters): // All clusters have left, so no copy is intended.
		got = &render.Evaluation{}
	case err != nil:
		panic(fmt.Sprintf("rendering what the hub has: %v", err)) // No other error is possible.
	}
	e := &evaluation{got, map[copyKey]*render.Outcome{}}
	for i := range got.Outcomes {
		out := &got.Outcomes[i]
		if r, known := resourceOf[out.ID.GroupKind]; known {
			e.outcomes[copyKey{r, out.ID.Namespace, out.ID.Name}] = out
		}
	}
	return e
}

// resourceOf maps the kinds of [ofHub] to resources.
//
//nolint:gochecknoglobals // It is a constant.
var resourceOf = func() map[schema.GroupKind]schema.GroupResource {
	all := map[schema.GroupKind]schema.GroupResource{}
	for _, k := range ofHub {
		all[k.GroupVersion().WithKind(k.name).GroupKind()] = k.GroupVersionResource.GroupResource()
	}
	return all
}()

// now returns the output of refract render for the present state of the hub.
func (o *oracle) now() *evaluation {
	if o.seen == nil {
		o.seen = o.evaluate(o.hubObjects())
	}
	return o.seen
}

// at returns the outcome of an object, and the index in the outcome of the cluster with one of these names. The index
// is negative if the object is not placed on the cluster.
func (e *evaluation) at(key copyKey, names []string) (*render.Outcome, int) {
	out := e.outcomes[key]
	if out == nil {
		return nil, -1
	}
	for i := range out.Clusters {
		if slices.Contains(names, out.Clusters[i].Name) {
			return out, i
		}
	}
	return out, -1
}

// wanted reports whether an object is placed on a cluster.
func (e *evaluation) wanted(key copyKey, names []string) bool {
	out, i := e.at(key, names)
	switch {
	case out == nil, out.Gone != "":
		return false
	case out.Held != "":
		return true // The existing copy stays.
	default:
		return i >= 0
	}
}

// unwanted reports whether an object was not placed on a cluster, under one of the cluster's names, in a state that
// processes may still act on. During a rename a cluster has two names.
func (o *oracle) unwanted(key copyKey, names []string) bool {
	if len(names) != 1 {
		return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return o.unwanted(key, []string{name}) })
	}
	if !o.now().wanted(key, names) {
		return true
	}
	for i := len(o.states) - 1; i >= 0 && time.Since(o.states[i].until) <= outdated; i-- {
		s := &o.states[i]
		if s.seen == nil {
			s.seen = o.evaluate(s.objects)
		}
		if !s.seen.wanted(key, names) {
			return true
		}
	}
	return false
}

// namesNow returns the current names of a cluster, and whether it is leaving the hub under one of them.
func (o *oracle) namesNow(c *Cluster) (names []string, leaving bool) {
	for _, fc := range o.w.namesOf(c) {
		names = append(names, fc.Name)
		leaving = leaving || fc.DeletionTimestamp != nil
	}
	return names, leaving
}

// onMember checks a write to a cluster.
func (o *oracle) onMember(c *Cluster, w apiserver.Write) {
	p := o.process(w.User)
	if w.Namespace == bakery {
		return
	}
	key := keyOfWrite(w)
	o.readies(placeKey{c, key}, w.After)
	if p == nil {
		return
	}
	o.tellMember(p, c, w)
	if p.killed {
		o.w.Failf(twoWriters, "%s writes %s on cluster %s, though it was killed before", p.Name, key, c.Name)
	}
	o.holds(p, c, key)
	switch {
	case w.Before != nil && w.Before.GetDeletionTimestamp() == nil && (w.Verb == "delete" || w.Verb == "removed"):
		o.deletes(p, c, key, w.Before)
	case w.After != nil && w.After.GetDeletionTimestamp() == nil:
		o.takesOver(p, c, key, w)
		o.releases.judge(o, p, c, key, w)
		o.older(p, c, key, w)
		o.note(c, w)
	}
}
