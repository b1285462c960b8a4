package simulate

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

const (
	// failsBefore is the time for which writes fail before the trial edits another object.
	failsBefore = time.Minute
	// promptly is the maximum time from an edit to the write of its copy while nothing else changes.
	promptly = 15 * time.Second
	// trialAnnotation is an annotation without a meaning.
	trialAnnotation = "example.com/trial"
)

// ailing is a way in which a cluster rejects the copies of one type, or of one object.
type ailing struct {
	tells    string
	ofType   bool
	response func(w *World, c *call) *http.Response
}

//nolint:gochecknoglobals // It is a constant.
var trials = []ailing{
	{"answers writes of this type with status 500", true, func(w *World, c *call) *http.Response {
		return w.failure(c, &apierrors.NewInternalError(errors.New("encryption of this type does not work")).ErrStatus)
	}},
	{"refuses the object because of its size", false, func(w *World, c *call) *http.Response {
		return w.failure(c, &apierrors.NewRequestEntityTooLargeError("limit is 3145728").ErrStatus)
	}},
	{"cannot call the webhook for this type", true, func(w *World, c *call) *http.Response {
		return w.failure(c, &apierrors.NewInternalError(errors.New(`failed calling webhook "check.sim": no endpoints available for service "check"`)).ErrStatus)
	}},
}

// copied is an object of the hub with a correct copy on a cluster. It has no rollout policy and is in no dry run.
type copied struct {
	kind kind
	key  copyKey
}

// copiedTo returns the objects of these kinds with a correct copy on a cluster.
func (o *oracle) copiedTo(c *Cluster, kinds ...kind) (all []copied) {
	names, _ := o.namesNow(c)
	for _, k := range kinds {
		for _, on := range o.w.Hub.Server.All(k.GroupVersionResource) {
			if on.GetAnnotations()[corev1alpha1.DryRunAnnotation] == "true" {
				// Edits of a dry run reach no cluster, even without a fault: "Refract decides and reports, but writes
				// and deletes nothing", docs/guide/operate.md#annotations-on-objects. releases.judge finds a write in
				// spite of the annotation.
				continue
			}
			at := copied{k, copyKey{k.GroupVersionResource.GroupResource(), on.GetNamespace(), on.GetName()}}
			if report := o.report(at.key); report != nil && o.changesWith(report) {
				continue // Its edits wait with its leader, perhaps for a rollout that cannot begin, which has no record that releases.leads would find.
			}
			if on.GetDeletionTimestamp() == nil && !o.releases.obeys(o, at.key) && !o.releases.leads(at.key) && o.isCorrect(c, at.key, names) {
				all = append(all, at)
			}
		}
	}
	return all
}

// leads reports whether another object changes together with this one, wave by wave.
func (r *releases) leads(follower copyKey) bool {
	for key, records := range r.records {
		for _, f := range records[len(records)-1].is.Target.Followers {
			if key.namespace == follower.namespace && f.Name == follower.name && f.Resource == follower.GroupResource.String() {
				return true
			}
		}
	}
	return false
}

// isCorrect reports whether a cluster has a copy of an object with the newest content.
func (o *oracle) isCorrect(c *Cluster, key copyKey, names []string) bool {
	out, at := o.now().at(key, names)
	have := o.copyOf(c, key)
	if out == nil || at < 0 || have == nil {
		return false
	}
	want := variantFor(out, at)
	return want != nil && isCopy(have) && differs(want, have, o.onHubNow(key)) == ""
}

// try checks at the end of a history that a failure of one type or one object does not affect other objects
// (docs/design/load-and-memory.md#recovery-from-overload). A cluster rejects some copies, and then another object is
// edited.
func (w *World) try() {
	c, ails := pick(w, w.Clusters), &trials[w.Rand.IntN(len(trials))]
	failing, others := w.oracle.copiedTo(c, kindConfigMap), w.oracle.copiedTo(c, kindDeployment, kindService, kindSecret)
	names, leaving := w.oracle.namesNow(c)
	if len(failing) == 0 || len(others) == 0 || leaving || len(names) != 1 || w.Hub.Down {
		return
	}
	if !ails.ofType {
		failing, others = failing[:1], append(failing[1:], others...)
	}
	other := pick(w, others)
	c.Lab.front = &front{answer: func(w *World, sent *call) *answer {
		for _, f := range failing {
			at := "/namespaces/" + f.key.namespace + "/" + f.key.Resource
			if !ails.ofType {
				at += "/" + f.key.name
			}
			if writes(sent.request.Method) && strings.HasPrefix(sent.request.URL.Path, "/api/v1"+at) {
				return &answer{response: ails.response(w, sent)}
			}
		}
		return nil
	}}
	w.Journal.add(w, fault, fmt.Sprintf("cluster %s %s: %s", c.Name, ails.tells, failing[0].key))
	for _, f := range failing {
		w.editFor(f)
	}
	w.drain(failsBefore)
	w.editFor(other)
	w.drain(promptly)
	if on := w.oracle.onHubNow(other.key); on != nil && w.failed == nil && !w.oracle.isCorrect(c, other.key, names) {
		w.Failf(stuck, "%s after an edit of %s cluster %s does not have it, because %s fails", promptly, other.key, c.Name, failing[0].key)
	}
	c.Lab.front = nil
}

// editFor sets an annotation of an object.
func (w *World) editFor(at copied) {
	h := w.hand(w.Hub, "alice")
	h.must(h.edit(at.kind, at.key.namespace, at.key.name, func(on *unstructured.Unstructured) { annotate(on, trialAnnotation, "true") }))
}
