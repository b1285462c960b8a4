package simulate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/test/apiserver"
)

// Names of the promises that this file checks.
const (
	// beyondBudget checks that pods are restarted only under the conditions of docs/design/injection.md#recreation-by-owner.
	beyondBudget = "restart-beyond-budget"
	// policyStatus checks that each policy has a correct status at the end. The promise is "The status still counts them" in docs/guide/operate-injection.md.
	policyStatus = "policy-status"
	// twoInjectors checks the promise "One replica handles existing pods: it holds the Lease refract-injection" in docs/guide/operate-injection.md.
	twoInjectors = "two-injectors"
	// stuckRestart checks that all possible restarts have happened at the end. The promise is "the rollout continues by
	// itself" in docs/guide/operate-injection.md.
	stuckRestart = "stuck"
)

const (
	// lagging is the time for which a process may act on an outdated state, because watches are late, requests are
	// retried, and planning takes time.
	lagging = 60 * time.Second
	// foundOut is the maximum age of the checks before a restart: ten seconds, and the time for planning.
	foundOut = 40 * time.Second
)

// restartRules check each write of an injection process against the recent states of eu-1.
type restartRules struct {
	in       *injection
	policies map[types.UID]*policyFacts
	flocks   map[types.UID]*flockFacts
	// pods has for each pod the fact that the pod lacks items of a policy that asks for restarts.
	pods map[types.UID]*fact
	// webhook is the fact that new pods are injected.
	webhook fact
	// trials are the times of dry runs of pod creations, by process and name of the workload.
	trials map[string]time.Time
	// contents counts the changes of the injected content of all policies. content is the current content.
	contents int
	content  string
	// version is the last resourceVersion. reset is the time at which resourceVersions last went back, because eu-1 was
	// rebuilt or restored.
	version uint64
	reset   time.Time
	// skewed is true if the clock of eu-1 was changed at any time.
	skewed bool
	// failed are the workloads that failed to become ready at any time, by KIND/NAME. reverted are the times at which
	// another writer removed their annotation.
	failed   map[string]bool
	reverted map[string]time.Time
}

func newRestartRules(in *injection) *restartRules {
	r := &restartRules{in: in, failed: map[string]bool{}, reverted: map[string]time.Time{}}
	r.forget()
	return r
}

// forget drops all facts, because eu-1 was rebuilt or restored. It also clears the caches, because the restored cluster
// uses generations and resource versions again.
func (r *restartRules) forget() {
	clear(r.in.examined)
	clear(r.in.prospects)
	r.policies, r.flocks, r.pods = map[types.UID]*policyFacts{}, map[types.UID]*flockFacts{}, map[types.UID]*fact{}
	r.trials, r.webhook, r.reset = map[string]time.Time{}, fact{}, time.Now()
}

// unsettled reports whether processes may still act on the state before a restore of eu-1. An old Lease remains valid
// until its next renewal.
func (r *restartRules) unsettled() bool { return time.Since(r.reset) <= leaseDuration }

func (r *restartRules) failf(invariant, format string, args ...any) {
	r.in.world.Failf(invariant, format, args...)
}

// written is called for each write that eu-1 stores.
func (r *restartRules) written(w apiserver.Write) {
	o := w.After
	if o == nil {
		o = w.Before
	}
	if v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64); err == nil {
		if w.After != nil && v <= r.version {
			r.forget()
		}
		r.version = v
	}
	r.skewed = r.skewed || r.in.at.Skew != 0
	if len(r.in.at.Lab.Ailments) > 0 {
		r.reset = time.Now() // While a type is not served, processes may not learn of changes of its objects.
	}
	r.close()
	if p := r.process(w.User); p != nil {
		r.judge(p, w)
	} else if w.GVR != podKind.GroupVersionResource && w.Namespace == bakery {
		r.changed(w)
	}
	if w.Namespace == bakery && w.GVR != eventKind.GroupVersionResource {
		r.observe()
	}
}

// process returns the process of the injection with this user name, or nil.
func (r *restartRules) process(user string) *Process {
	i := slices.IndexFunc(r.in.world.Processes, func(p *Process) bool { return p.Name == user && r.in.owns(p.Replica) })
	if i < 0 {
		return nil
	}
	return r.in.world.Processes[i]
}

// changed records changes of a template by writers other than Refract.
func (r *restartRules) changed(w apiserver.Write) {
	if w.Before == nil || w.After == nil {
		return
	}
	f := r.flocks[w.After.GetUID()]
	if f == nil || bytes.Equal(encoded(part(w.Before, "spec", "template")), encoded(part(w.After, "spec", "template"))) {
		return
	}
	clear(f.annotated)
	if templateHash(w.Before) != "" && templateHash(w.After) != templateHash(w.Before) {
		r.reverted[f.ref] = time.Now()
	}
}

// judge checks a write of an injection process.
func (r *restartRules) judge(p *Process, w apiserver.Write) {
	r.tell(p, w)
	switch w.GVR {
	case eventKind.GroupVersionResource, kindLease.GroupVersionResource:
		return
	case injectionKind.GroupVersionResource:
		r.leads(p)
		if w.Subresource != "status" {
			r.judgePolicy(p, w)
		}
		return
	case podKind.GroupVersionResource:
		r.leads(p)
		if w.Verb != "delete" && w.Verb != "removed" {
			r.failf(beyondBudget, "%s writes Pod %s itself (%s): it may only evict pods, and create them in dry runs", p.Name, w.Name, w.Verb)
			return
		}
		r.evicts(p, w.Before)
		return
	case budgetKind.GroupVersionResource:
		return // The API server counts evictions there, with the identity of the process that evicts.
	default:
	}
	r.leads(p)
	isWorkload := slices.ContainsFunc(workloadKinds, func(k kind) bool { return k.GroupVersionResource == w.GVR })
	if w.Before == nil || w.After == nil || w.Namespace != bakery || !isWorkload {
		r.failf(beyondBudget, "%s writes %s %s/%s (%s): the injection has no business with it", p.Name, w.GVR.Resource, w.Namespace, w.Name, w.Verb)
		return
	}
	r.annotates(p, w)
}

// tell adds a line to the story for a write with a change.
func (r *restartRules) tell(p *Process, w apiserver.Write) {
	text := ""
	switch w.GVR {
	case eventKind.GroupVersionResource, kindLease.GroupVersionResource, budgetKind.GroupVersionResource:
	case injectionKind.GroupVersionResource:
		if w.Before != nil && w.After != nil && w.Subresource == "status" {
			if was, is := standing(w.Before), standing(w.After); was != is {
				text = "reports on " + named(injectionKind, bakery, w.Name) + ": " + is
			}
			break
		}
		text = "writes " + named(injectionKind, bakery, w.Name) + ": " + difference(w.Before, w.After)
	case podKind.GroupVersionResource:
		if w.Verb == "delete" && w.Before.GetDeletionTimestamp() == nil {
			text = "evicts " + named(podKind, w.Namespace, w.Name)
			if f := r.flocks[r.flockOf(w.Before)]; f != nil {
				text += " of " + f.ref
			}
		}
	default:
		if what := difference(w.Before, w.After); what != "" {
			o := w.After
			if o == nil {
				o = w.Before
			}
			object := o.GetKind() + " " + w.Namespace + "/" + w.Name + " on eu-1"
			text = "changes " + object + ": " + what
			if w.Before != nil && w.After != nil && templateHash(w.Before) != templateHash(w.After) {
				text = "has the pods of " + object + " restarted: " + what
			}
		}
	}
	if text != "" {
		r.in.world.oracle.tell(p, text)
	}
}

// standing describes the state of a policy's rollout in a few words.
func standing(o *unstructured.Unstructured) string {
	text := fmt.Sprintf("phase %s, %d pods lack what it injects", cmp.Or(textOf(o, "status", "rollout", "phase"), "none"), number(o, "status", "stale"))
	if current := currentOf(o); len(current) > 0 {
		text += ", is restarting " + list(current)
	}
	return text
}

// leads checks that a process holds the Lease when it writes.
func (r *restartRules) leads(p *Process) {
	lease := r.in.user("admin").get(kindLease, systemNamespace, "refract-injection")
	if r.unsettled() || (lease != nil && textOf(lease, "spec", "holderIdentity") == p.Name) {
		return
	}
	holder := "nobody"
	if lease != nil {
		holder = textOf(lease, "spec", "holderIdentity")
	}
	r.failf(twoInjectors, "%s writes to eu-1, and the Lease %s/refract-injection is held by %s", p.Name, systemNamespace, holder)
}

// judgePolicy checks that a process writes only the status of a policy, or removes the annotation that resumes a halted
// rollout.
func (r *restartRules) judgePolicy(p *Process, w apiserver.Write) {
	if w.Before == nil || w.After == nil {
		r.failf(beyondBudget, "%s writes ServiceInjectionPolicy %s (%s): it may only report, and take refract.dev/resume-rollout off", p.Name, w.Name, w.Verb)
		return
	}
	want := w.Before.GetAnnotations()
	delete(want, refractv1beta1.ResumeAnnotation)
	if !maps.Equal(want, w.After.GetAnnotations()) || !bytes.Equal(encoded(part(w.Before, "spec")), encoded(part(w.After, "spec"))) {
		r.failf(beyondBudget, "%s changes more of ServiceInjectionPolicy %s than that it takes refract.dev/resume-rollout off", p.Name, w.Name)
	}
}

// tried records a dry run.
func (r *restartRules) tried(p *Process, request *http.Request, pod []byte) {
	var tried metav1.PartialObjectMetadata
	if err := json.Unmarshal(pod, &tried); err == nil && dryRun(request) {
		name, _, _ := strings.Cut(tried.GenerateName, "-") // For a pod of an unknown kind of owner, this is the name of the owner.
		r.trials[p.Name+" "+name] = time.Now()
	}
}

// annotates checks a restart: a process changes the annotation on the template of a workload.
func (r *restartRules) annotates(p *Process, w apiserver.Write) {
	was, is := anything(part(w.Before, "spec")), anything(part(w.After, "spec"))
	hash := templateHash(w.After)
	if hash == templateHash(w.Before) && bytes.Equal(encoded(was), encoded(is)) {
		return // No change.
	}
	for _, spec := range []map[string]any{was, is} {
		unstructured.RemoveNestedField(spec, "template", "metadata", "annotations", refractv1beta1.HashAnnotation)
		if a, _, _ := unstructured.NestedMap(spec, "template", "metadata", "annotations"); len(a) == 0 {
			unstructured.RemoveNestedField(spec, "template", "metadata", "annotations")
		}
	}
	if !bytes.Equal(encoded(was), encoded(is)) {
		r.failf(beyondBudget, "%s changes more of %s %s than the annotation refract.dev/injection-hash of its template", p.Name, w.After.GetKind(), w.Name)
		return
	}
	f := r.flocks[w.After.GetUID()]
	if f == nil || r.unsettled() {
		return
	}
	what := fmt.Sprintf("%s has the pods of %s restarted", p.Name, f.ref)
	r.begins(p, f, w.After.GetUID(), what, true)
	if at, again := f.annotated[hash]; again && at == r.contents {
		r.failf(beyondBudget, "%s for the second time for the same content of the policies (hash %s): its template and the policies have not changed since",
			what, hash)
	}
	f.annotated[hash] = r.contents
	if !f.complete.could(true, lagging) && !f.ailing.could(true, lagging) && !r.isOpen(w.After.GetUID()) {
		r.failf(beyondBudget, "%s, which is not complete and available for a reason of its own since %s", what, r.ago(f.complete.since))
	}
}

func (r *restartRules) ago(since time.Time) string {
	return time.Since(since).Round(time.Second).String()
}

// isOpen reports whether any policy is restarting the workload.
func (r *restartRules) isOpen(uid types.UID) bool {
	for _, p := range r.policies {
		if p.open[uid] != nil {
			return true
		}
	}
	return false
}

// evicts checks an eviction. The API server has already checked the budgets.
func (r *restartRules) evicts(p *Process, pod *unstructured.Unstructured) {
	if r.unsettled() || pod.GetDeletionTimestamp() != nil {
		return
	}
	stale := r.pods[pod.GetUID()]
	if stale != nil && !stale.could(true, lagging) {
		r.failf(beyondBudget, "%s evicts Pod %s, which has what policies inject since %s", p.Name, pod.GetName(), r.ago(stale.since))
	}
	uid := r.flockOf(pod)
	f := r.flocks[uid]
	if f == nil {
		if metav1.GetControllerOfNoCopy(pod) == nil || metav1.GetControllerOfNoCopy(pod).Kind == kindJob.name {
			r.failf(beyondBudget, "%s evicts Pod %s, of which nobody makes another", p.Name, pod.GetName())
		}
		return
	}
	what := fmt.Sprintf("%s evicts Pod %s of %s", p.Name, pod.GetName(), f.ref)
	r.begins(p, f, uid, what, false)
	if !strings.HasPrefix(f.ref, cloneSetKind.name) && !strings.HasPrefix(f.ref, replicaSetKind.name) && !f.touched.could(true, lagging) {
		r.failf(beyondBudget, "%s, though its template does not say that its pods are to be recreated", what)
	}
	if isReady(pod) && !f.recovered {
		r.failf(beyondBudget, "%s, which is ready, and the pod that was evicted before was not replaced since", what)
	}
	f.recovered = false
}

// flockOf returns the UID of the workload to which a pod belongs.
func (r *restartRules) flockOf(pod *unstructured.Unstructured) types.UID {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return ""
	}
	for _, rs := range r.in.all(replicaSetKind) {
		if rs.GetUID() == owner.UID {
			if above := metav1.GetControllerOfNoCopy(rs); above != nil {
				return above.UID
			}
		}
	}
	return owner.UID
}

// begins checks the conditions for a restart, or for a further step of it.
func (r *restartRules) begins(p *Process, f *flockFacts, uid types.UID, what string, announced bool) {
	if !f.owners.could(false, lagging) {
		r.failf(beyondBudget, "%s, though %s since %s", what, f.why, r.ago(f.owners.since))
	}
	if !r.webhook.could(true, foundOut) {
		r.failf(beyondBudget, "%s, though new pods do not get what policies inject since %s", what, r.ago(r.webhook.since))
	}
	if at, found := r.trials[p.Name+" "+nameOf(f.ref)]; !found || time.Since(at) > foundOut {
		r.failf(beyondBudget, "%s without having tried, within the last ten seconds, whether a pod like those to come can be created", what)
	}
	wanted, isAnnounced := false, false
	var objections []string
	for _, id := range slices.Sorted(maps.Keys(r.policies)) {
		q := r.policies[id]
		lacks := f.stale[id]
		isNamed := q.current[f.ref] != nil && q.current[f.ref].could(true, lagging)
		isAnnounced = isAnnounced || isNamed
		if f.holds[q.name] && !q.missing.could(false, foundOut) {
			r.failf(beyondBudget, "%s, though its pods will get what ServiceInjectionPolicy %s injects, and %s since %s",
				what, q.name, q.lacks, r.ago(q.missing.since))
		}
		if lacks == nil {
			continue
		}
		objections = append(objections, "ServiceInjectionPolicy "+q.name+": "+q.objection(lacks))
		sure := lacks.is && time.Since(lacks.since) > lagging
		wanted = wanted || (lacks.could(true, lagging) && q.asks.could(true, lagging) && q.closed.could(false, lagging))
		if sure && q.asks.is && !q.closed.could(false, lagging) {
			r.failf(beyondBudget, "%s, and with that for ServiceInjectionPolicy %s, though %s since %s", what, q.name, q.why, r.ago(q.closed.since))
		}
		// A restart for earlier content does not count against the current limit of this policy if new pods get no
		// items of the policy.
		gets := f.holds[q.name] || strings.HasPrefix(f.ref, cloneSetKind.name)
		if (isNamed && q.current[f.ref].is && gets) || (sure && q.asks.is && time.Since(q.asks.since) > lagging) {
			r.counts(q, uid, what)
		}
	}
	if !wanted {
		r.failf(beyondBudget, "%s, though no policy asks for that: none of its pods lacks what a policy injects whose rollout goes on (%s)",
			what, strings.Join(objections, "; "))
	}
	if announced && !isAnnounced {
		r.failf(beyondBudget, "%s before the status of a policy says so", what)
	}
}

// objection returns the reason why a policy does not ask for the restart of a workload.
func (q *policyFacts) objection(lacks *fact) string {
	switch {
	case !lacks.is:
		return "no pod lacks what it injects, or gets it by a restart"
	case !q.asks.is:
		return "its mode or its strategy asks for no restarts"
	default:
		return q.why
	}
}

// counts checks that a policy allows one more restart, and records it.
func (r *restartRules) counts(q *policyFacts, uid types.UID, what string) {
	same, all := []string{}, []string{}
	for other, o := range q.open {
		if other == uid {
			continue
		}
		all = append(all, r.flocks[other].ref)
		if o.hash == q.hash {
			same = append(same, r.flocks[other].ref)
		}
	}
	slices.Sort(same)
	slices.Sort(all)
	most := slices.Max(q.limits.all())
	switch {
	case q.open[uid] != nil && q.open[uid].hash == q.hash:
	case !q.passed[q.hash] && len(same) > 0:
		r.failf(beyondBudget, "%s for ServiceInjectionPolicy %s, and with its present content no workload is complete and "+
			"available again yet: %s is being restarted",
			what, q.name, list(same))
	case q.open[uid] == nil && int64(len(all)) >= most:
		r.failf(beyondBudget, "%s for ServiceInjectionPolicy %s, but %s are being restarted and were not available for minReadySeconds yet: maxConcurrent is %d",
			what, q.name, list(all), most)
	}
	q.open[uid] = &opened{hash: q.hash}
}

// close removes completed restarts. A restart is complete if the workload was complete and available, and its pods were
// ready for as long as the policy requires.
func (r *restartRules) close() {
	for _, q := range r.policies {
		least := time.Duration(0)
		if waits := q.waits.all(); len(waits) > 0 {
			least = time.Duration(slices.Min(waits)) * time.Second
		}
		for uid, o := range q.open {
			f := r.flocks[uid]
			if f == nil {
				delete(q.open, uid)
				continue
			}
			// After a change of the clock, the time at which a pod became ready may be wrong.
			if !o.complete || !o.serving || !f.serving.is || (!r.skewed && time.Since(f.lastReady) < least-time.Second) {
				continue
			}
			if lacks := f.stale[r.uidOf(q)]; lacks == nil || !lacks.is { // This also applies if the restart began with earlier content.
				q.passed[q.hash] = true
			}
			delete(q.open, uid)
		}
	}
}

func (r *restartRules) uidOf(q *policyFacts) types.UID {
	for uid, other := range r.policies {
		if other == q {
			return uid
		}
	}
	return ""
}
