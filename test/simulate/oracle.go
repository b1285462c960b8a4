package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/test/apiserver"
)

// Names of the promises of propagation.
const (
	withoutCause      = "deletion-without-cause"
	volumeDeleted     = "volume-deleted"
	unreleased        = "unreleased-content"
	haltedOrReverted  = "halted-or-reverted"
	twoWriters        = "two-writers"
	oldDecision       = "old-decision"
	differsFromRender = "differs-from-render"
	wrongStatus       = "wrong-status"
	tooManyRequests   = "too-many-requests"
	stuck             = "stuck"
)

// outdated is the maximum time for which a process may act on an earlier state of the hub: until its watches deliver
// the change, or its Lease ends.
const outdated = 3 * time.Minute

// oracle checks the actions of the processes. It only uses the stored objects of all API servers, and no state of the
// processes.
type oracle struct {
	w *World

	// versions are the last resourceVersions. resets are the times at which resourceVersions went back, because the API
	// server was restored or rebuilt.
	versions map[*Target]uint64
	resets   map[*Target]time.Time

	// deletions are the objects of the hub that were deleted by requests, by UID.
	deletions map[types.UID]deletion
	// edits are the changes by people on the hub, the newest last.
	edits []hubEdit
	// states are earlier states of the hub. Each lasted until an edit.
	states []hubState
	// issued are the copies that each approval token covers. approved are the UIDs of copies whose deletion was
	// approved.
	issued   map[string]map[types.UID]bool
	approved map[types.UID]bool
	// copies are the facts about copies, by UID.
	copies map[types.UID]*copyFacts
	// lost are deletions that no user requested.
	lost []loss

	leader  string // The holder of the Lease; empty if it is free or unknown.
	writers map[*Cluster]*writer
	// handovers counts changes of Refract's right to write to clusters. conditions is the time of the last change of a
	// FederatedCluster's status.
	handovers  int
	conditions time.Time
	// away has the last known time at which no FederatedCluster of a cluster was Ready.
	away map[*Cluster]time.Time

	contents map[placeKey]*contentFacts
	releases releases

	seen     *evaluation
	requests int
	minute   time.Time
	ended    map[*Process]bool
	// active are the processes that have written to the hub, so their start was successful.
	active map[*Process]bool
	writes []written
	// repeated has the numbers of requests since the last change of the world, by process and request; nil before the
	// end of a history.
	repeated map[string]int
	// ready has the time at which the copy of a Deployment last became ready.
	ready map[placeKey]time.Time
}

// copyKey identifies an object of the hub, and its copies.
type copyKey struct {
	schema.GroupResource

	namespace, name string
}

// placeKey identifies a copy on a cluster.
type placeKey struct {
	cluster *Cluster
	copyKey
}

// deletion is the deletion of an object of the hub by a request.
type deletion struct {
	at time.Time
	// by is the user who deleted the object.
	by string
	// alone is true if a user deleted exactly this object: the object had no owner, and neither its namespace nor its
	// type was deleted.
	alone bool
	// around is true if the object was deleted together with its namespace or type.
	around bool
	object *unstructured.Unstructured
	key    copyKey
	// reported are the UIDs of the FederatedClusters on which the object was placed, according to its Propagation.
	reported map[types.UID]bool
}

// hubEdit is a change on the hub by a writer other than Refract.
type hubEdit struct {
	at   time.Time
	kind schema.GroupResource
	key  copyKey
}

// hubState is a state of the hub, with the time until which it lasted.
type hubState struct {
	until   time.Time
	objects []*unstructured.Unstructured
	seen    *evaluation
}

// copyFacts are the facts about a copy that Refract wrote to a cluster.
type copyFacts struct {
	source  string
	written time.Time
}

// loss is a deletion of a copy that no user requested.
type loss struct {
	at      time.Time
	process *Process
	place   placeKey
	leaves  bool
}

func newOracle(w *World) *oracle {
	o := &oracle{
		w: w, versions: map[*Target]uint64{}, resets: map[*Target]time.Time{}, deletions: map[types.UID]deletion{},
		issued: map[string]map[types.UID]bool{}, approved: map[types.UID]bool{}, copies: map[types.UID]*copyFacts{},
		writers: map[*Cluster]*writer{}, contents: map[placeKey]*contentFacts{}, ended: map[*Process]bool{}, active: map[*Process]bool{}, minute: time.Now(),
		releases: newReleases(), ready: map[placeKey]time.Time{}, away: map[*Cluster]time.Time{},
	}
	w.Hub.Server.OnWrite(func(write apiserver.Write) {
		o.age(w.Hub)
		o.onHub(write)
	})
	for _, c := range w.Clusters {
		c.Server.OnWrite(func(write apiserver.Write) {
			o.age(&c.Target)
			o.onMember(c, write)
		})
	}
	return o
}

// age detects that an API server was restored or rebuilt.
func (o *oracle) age(t *Target) {
	now := t.Server.Version()
	if now <= o.versions[t] {
		o.resets[t] = time.Now()
		if t == o.w.Hub {
			o.states = nil
			o.leadAnew()
		}
	}
	o.versions[t], o.seen = now, nil
}

// wasReset reports whether an API server was restored or rebuilt recently, so processes may not have noticed it yet.
func (o *oracle) wasReset(t *Target) bool {
	at, ever := o.resets[t]
	return ever && time.Since(at) < 2*outdated
}

// process returns the process of propagation with this user name, or nil.
func (o *oracle) process(user string) *Process {
	if !isRefract(user) {
		return nil
	}
	for _, p := range o.w.Processes {
		if p.Name == user {
			return p
		}
	}
	return nil
}

func keyOfWrite(w apiserver.Write) copyKey {
	return copyKey{w.GVR.GroupResource(), w.Namespace, w.Name}
}

// String returns the key in the form used in messages.
func (k copyKey) String() string {
	name := k.Resource
	for _, is := range slices.Concat(builtInKinds, []kind{kindNamespace}) {
		if is.GroupVersionResource.GroupResource() == k.GroupResource {
			name = is.name
		}
	}
	if k.namespace == "" {
		return name + " " + k.name
	}
	return name + " " + k.namespace + "/" + k.name
}

// note records a written copy.
func (o *oracle) note(_ *Cluster, w apiserver.Write) {
	source := w.After.GetAnnotations()[refractv1alpha1.SourceAnnotation]
	if source == "" {
		return
	}
	o.copies[w.After.GetUID()] = &copyFacts{source, time.Now()}
}

// isCopy reports whether an object of a cluster has the label and annotation of a copy.
func isCopy(object *unstructured.Unstructured) bool {
	return object.GetLabels()[corev1alpha1.ManagedLabel] == "true" && object.GetAnnotations()[refractv1alpha1.SourceAnnotation] != ""
}

// sourceUID returns the UID in a source annotation: HUB/UID/RESOURCE/NAMESPACE/NAME.
func sourceUID(source string) types.UID {
	parts := strings.SplitN(source, "/", 3)
	if len(parts) < 3 {
		return ""
	}
	return types.UID(parts[1])
}

// after checks the conditions that hold after each step.
func (o *oracle) after(w *World) {
	w.injectionAfter()
	for _, p := range w.Processes {
		if p.Running() || p.killed || o.ended[p] {
			continue
		}
		o.ended[p] = true
		if p.err != nil && o.active[p] && !mayEnd(p.err) { // A process that cannot reach the hub at its start ends and is started again.
			w.Failf(stuck, "%s has ended by itself: %v", p.Name, p.err)
		}
	}
	o.count(w)
}

// mayEnd reports whether a process may end with this error. It is started again after an error that says that it lost
// its Lease, or that it could not read the hub for two minutes after its start.
func mayEnd(err error) bool {
	return slices.ContainsFunc([]string{"Lease", "lease", "leadership", "leader election", "context canceled", "timed out waiting for cache to be synced"}, func(word string) bool {
		return strings.Contains(err.Error(), word)
	})
}

// mostRequests is the maximum number of requests of all processes in a minute. With three clusters, a restart of both
// processes takes about two hundred, and a change of all objects some hundreds.
const mostRequests = 12000

// count checks that requests are bounded: Refract does not repeat the requests for each copy when a member or a type
// does not answer (docs/design/load-and-memory.md#recovery-from-overload).
func (o *oracle) count(w *World) {
	took := time.Since(o.minute)
	if took < time.Minute {
		return
	}
	n := w.stats.requests - o.requests
	if perMinute := float64(n) / took.Minutes(); perMinute > mostRequests {
		w.Failf(tooManyRequests, "the processes have made %d requests within %s, more than %d per minute; written most often: %s",
			n, took.Round(time.Second), mostRequests, o.again(took))
	}
	o.writes = slices.DeleteFunc(o.writes, func(w written) bool { return time.Since(w.at) > longestRest })
	o.requests, o.minute = w.stats.requests, time.Now()
}

// tellMember adds a line to the story for a write to a cluster.
func (o *oracle) tellMember(p *Process, c *Cluster, w apiserver.Write) {
	var verb, what string
	switch {
	case w.Before == nil:
		verb, what = "creates", gist(w.After)
	case w.After == nil || w.Verb == "delete":
		verb, what = "deletes", gist(w.Before)
	default:
		verb, what = "changes", ": "+cmp.Or(contents(w.Before, w.After), "its marks of a copy alone")
	}
	o.tell(p, fmt.Sprintf("%s %s on cluster %s%s", verb, keyOfWrite(w), c.Name, what))
}

// contents describes the changes of a copy, without Refract's labels and annotations, which do not interest readers.
func contents(was, is *unstructured.Unstructured) string {
	return list(slices.DeleteFunc(differences(was, is), func(text string) bool {
		field := strings.TrimPrefix(text, "metadata.annotations.")
		return strings.HasPrefix(field, refractv1alpha1.SourceAnnotation) || strings.HasPrefix(field, refractv1alpha1.AppliedAnnotation)
	}))
}

// tellHub adds a line to the story for a write to the hub that changed something.
func (o *oracle) tellHub(p *Process, w apiserver.Write) {
	switch w.GVR.Resource {
	case kindReport.Resource, kindReportGlobe.Resource:
		was, is := saidOf(w.Before), saidOf(w.After)
		if was != is && w.After != nil {
			o.tell(p, "reports on "+subjectOf(w.After)+": "+is)
		} else if w.After == nil {
			o.tell(p, "deletes the Propagation of "+subjectOf(w.Before))
		}
	case kindCluster.Resource:
		if was, is := conditionsOf(w.Before), conditionsOf(w.After); was != is && w.After != nil {
			o.tell(p, "reports on cluster "+w.Name+": "+is)
		}
	case "events":
	default:
		o.tell(p, fmt.Sprintf("writes %s on the hub (%s)", keyOfWrite(w), w.Verb))
	}
}

func (o *oracle) tell(p *Process, text string) {
	o.w.Journal.add(o.w, p.Name, text)
}

// written is a write of a process.
type written struct {
	at   time.Time
	what string
}

// wrote records a write of a process.
func (o *oracle) wrote(c *call) {
	target, path := c.target, c.request.URL.Path
	what := path
	if m := pathOf.FindStringSubmatch(path); m != nil {
		key := copyKey{schema.GroupResource{Group: m[1], Resource: m[3]}, m[2], m[4]}
		what = key.String()
		for _, k := range []kind{kindReport, kindReportGlobe} {
			if report := target.Server.Peek(k.GroupVersionResource, key.namespace, key.name); report != nil && k.Resource == key.Resource {
				what = "the report on " + subjectOf(report)
			}
		}
	}
	o.writes = append(o.writes, written{time.Now(), fmt.Sprintf("%s on %s by %s", what, target.Name, c.process.Name)})
}

// pathOf matches the path of an object: its group, namespace, resource and name.
var pathOf = regexp.MustCompile(`^/(?:api|apis/([^/]+))/[^/]+/(?:namespaces/([^/]+)/)?([^/]+)(?:/([^/]+))?`)

// again lists the objects that were written most often within a duration. It excludes objects without a write in the
// last minutes.
func (o *oracle) again(within time.Duration) string {
	const most, lately = 5, 3 * time.Minute
	times, last := map[string]int{}, map[string]time.Time{}
	for _, w := range o.writes {
		if time.Since(w.at) <= within {
			times[w.what]++
			last[w.what] = w.at
		}
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(times)), func(name string) bool { return time.Since(last[name]) > lately })
	slices.SortStableFunc(names, func(a, b string) int { return times[b] - times[a] })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%d times)", name, times[name])
	}
	return strings.Join(names[:min(len(names), most)], "; ")
}
