package propagation

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/revision"
	"refract.dev/internal/poll"
)

// depot is a shop, a fake API server, that also has ConfigMaps, which can be applied, patched and deleted.
type depot struct {
	*shop

	configMaps map[string]*metav1.PartialObjectMetadata
	refuse     map[string]metav1.Status // The errors that requests get, by verb.
	unserved   atomic.Bool              // Whether a list reports that the server does not serve ConfigMaps.
	late       bool                     // Whether an apply is stored, but its answer comes too late.
	fields     string                   // The fields of an applied object that Refract owns.
	events     chan metav1.WatchEvent   // The events of the watch of ConfigMaps.
}

func newDepot() *depot {
	return &depot{
		shop:       &shop{object: &metav1.ObjectMeta{Name: "shop", UID: "1"}, owners: map[string]string{}, version: 10},
		configMaps: map[string]*metav1.PartialObjectMetadata{}, refuse: map[string]metav1.Status{}, fields: `{"f:data":{"f:x":{}}}`,
		events: make(chan metav1.WatchEvent),
	}
}

// copyOf returns a copy of a ConfigMap of the hub, with the hash of its applied content.
func (d *depot) copyOf(name, hash string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID("u-" + name), Labels: map[string]string{corev1alpha1.ManagedLabel: "true"},
		Annotations: map[string]string{
			refractv1alpha1.SourceAnnotation:  sourceOf(theHub, "1", configMaps.GroupResource(), "shop", name),
			refractv1alpha1.AppliedAnnotation: hash,
		},
	}}
}

// put stores a ConfigMap on the member without a watch event.
func (d *depot) put(o *metav1.PartialObjectMetadata) {
	d.change(func() { d.store(o) })
}

// store is [depot.put] for callers that hold the lock.
func (d *depot) store(o *metav1.PartialObjectMetadata) {
	d.version++
	o.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	o.ResourceVersion = fmt.Sprint(d.version)
	d.configMaps[o.Name] = o
}

// tell sends a watch event of a ConfigMap, and returns when the member has received it.
func (d *depot) tell(t *testing.T, m *member.Member, key Key) {
	t.Helper()
	var text []byte
	var err error
	d.change(func() { text, err = json.Marshal(d.configMaps[key.Name]) })
	if err != nil {
		t.Fatal(err)
	}
	d.send(t, metav1.WatchEvent{Type: string(watch.Modified), Object: runtime.RawExtension{Raw: text}})
	hash := d.configMaps[key.Name].Annotations[refractv1alpha1.AppliedAnnotation]
	poll.Until(t, "the member has received the event", func() bool {
		have, _ := m.Copies.Get(key)
		return have.Hash == hash
	})
}

// send returns when an open watch has taken the event.
func (d *depot) send(t *testing.T, e metav1.WatchEvent) {
	t.Helper()
	select {
	case d.events <- e:
	case <-time.After(20 * time.Second):
		t.Fatal("the ConfigMaps are not watched")
	}
}

// sent returns the write requests since the last call.
func (d *depot) sent() (requests []string) {
	d.change(func() { requests, d.requests = d.requests, nil })
	return requests
}

func (d *depot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const types = "/api/v1"
	switch {
	case r.URL.Path == types:
		d.reply(w, http.StatusOK, metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "namespaces", Kind: "Namespace", Verbs: []string{"list"}},
			{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: []string{"list", "watch", "patch", "delete"}},
		}})
	case r.URL.Path == types+"/configmaps" && d.unserved.Load():
		d.fail(w, metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
	case r.URL.Path == types+"/configmaps" && r.URL.Query().Get("sendInitialEvents") != "":
		d.fail(w, metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
	case r.URL.Path == types+"/configmaps" && r.URL.Query().Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		for r.Context().Err() == nil {
			select {
			case <-r.Context().Done():
			case e := <-d.events:
				_ = json.NewEncoder(w).Encode(e) //nolint:errchkjson // The client may have closed the connection.
				w.(http.Flusher).Flush()
			}
		}
	case r.URL.Path == types+"/configmaps":
		list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
		d.change(func() {
			list.ResourceVersion = fmt.Sprint(d.version)
			for _, o := range d.configMaps {
				if o.Labels[corev1alpha1.ManagedLabel] == "true" {
					list.Items = append(list.Items, *o)
				}
			}
		})
		d.reply(w, http.StatusOK, list)
	case path.Dir(r.URL.Path) == types+"/namespaces/shop/configmaps":
		d.serve(w, r, path.Base(r.URL.Path))
	default:
		d.shop.ServeHTTP(w, r)
	}
}

// serve answers a request for one ConfigMap.
func (d *depot) serve(w http.ResponseWriter, r *http.Request, name string) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return // The client went away.
	}
	var sent metav1.PartialObjectMetadata
	_ = json.Unmarshal(text, &sent) // A merge patch has no other fields.
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Method != http.MethodGet {
		d.requests = append(d.requests, r.Method+" "+name)
	}
	is := d.configMaps[name]
	status, refused := d.refuse[r.Method]
	applied := r.Header.Get("Content-Type") == string(types.ApplyPatchType) || r.Header.Get("Content-Type") == string(types.ApplyYAMLPatchType)
	switch {
	case refused:
		d.fail(w, status)
	case is == nil && !applied:
		d.fail(w, metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{Kind: "configmaps", Name: name}})
	case r.Method == http.MethodGet:
		d.reply(w, http.StatusOK, is)
	case r.Method == http.MethodDelete:
		delete(d.configMaps, name)
		d.reply(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"})
	case applied && (is == nil) != (sent.UID == ""), applied && is != nil && sent.UID != is.UID:
		d.fail(w, metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict})
	case applied:
		now := metav1.Now()
		sent.ResourceVersion, sent.UID, sent.Namespace = "", types.UID("u-"+name), "shop"
		sent.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: member.FieldManager, Operation: metav1.ManagedFieldsOperationApply, Time: &now,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(d.fields),
		}}
		d.store(&sent)
		if d.late {
			d.fail(w, metav1.Status{Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Message: "no answer"})
			return
		}
		d.reply(w, http.StatusOK, sent)
	default: // All patches remove the label.
		delete(is.Labels, corev1alpha1.ManagedLabel)
		d.reply(w, http.StatusOK, is)
	}
}

func (d *depot) fail(w http.ResponseWriter, s metav1.Status) {
	s.TypeMeta, s.Status = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, metav1.StatusFailure
	d.reply(w, int(s.Code), s)
}

func (d *depot) reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) //nolint:errchkjson // The client may have closed the connection.
}

// neighbours stand in for the other stations and for the fleet. They note each call of the applier, and record the
// statuses of keys in the state.
type neighbours struct {
	state    *state
	left     bool // Whether the member has a newer applier.
	leaves   bool // Whether the cluster is leaving.
	approved string
	releases bool
	said     []string
}

func (e *neighbours) decide(key Key, _ priority) { e.said = append(e.said, "decide "+key.Name) }

func (e *neighbours) record(a *applier, key Key, s clusterStatus) (settled, due, ok bool) {
	if e.left {
		return false, false, false
	}
	settled, due = e.state.report(key, a.member.Name, s)
	return settled, due, true
}

func (e *neighbours) reportAfter(key Key, d time.Duration) {
	e.said = append(e.said, fmt.Sprintf("report %s after %s", key.Name, d))
}

func (e *neighbours) reportLater(key Key)    { e.said = append(e.said, "report "+key.Name+" later") }
func (e *neighbours) pend(name string)       { e.said = append(e.said, "pend "+name) }
func (e *neighbours) Leaving(string) bool    { return e.leaves }
func (e *neighbours) Approved(string) string { return e.approved }

func (e *neighbours) ReleasesKept(string) bool { return e.releases }

// applierOf returns an applier of the member m that knows all copies, and the recorder of its calls.
func applierOf(t *testing.T, d *depot, emptyAfter time.Duration) (*applier, *neighbours) {
	t.Helper()
	a := shopkeeper(t, d, emptyAfter, onHub(nil))
	<-a.member.Copies.Watch(configMaps)
	e := &neighbours{state: a.state}
	a.stations, a.cluster = e, e
	return a, e
}

// owning sets the managed fields of the object: the fields that Refract has applied.
func owning(o *metav1.PartialObjectMetadata, fields string) *metav1.PartialObjectMetadata {
	now := metav1.Now()
	o.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: member.FieldManager, Operation: metav1.ManagedFieldsOperationApply, Time: &now, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}}
	return o
}

// wanted returns the desired state of a ConfigMap on clusters.
func wanted(tb testing.TB, name string, clusters ...string) *desiredState {
	tb.Helper()
	return wantedWith(tb, name, "y", clusters...)
}

// wantedWith is wanted for a ConfigMap with another value.
func wantedWith(tb testing.TB, name, value string, clusters ...string) *desiredState {
	tb.Helper()
	s := around(tb, "", false, nil)
	s.hub, s.clusters = theHub, nil
	for _, cluster := range clusters {
		s.clusters = append(s.clusters, placement.Cluster{Cluster: match.Cluster{Name: cluster}, Ready: true})
	}
	obj := sourceObject("v1", "ConfigMap", name, "pp")
	obj.Object["data"] = map[string]any{"x": value}
	return decide(source{gvr: configMaps, kind: "ConfigMap", object: obj}, previous{uid: "1"}, s)
}

// TestApplyOne: the applier takes a key, compares the desired state with the copy, and writes the copy or reports why
// it does not. It records the status, schedules one report, and retries a failing copy after longer and longer delays.
func TestApplyOne(t *testing.T) {
	key := keyOf("configmaps", "web")
	failing := func(n int) func(*applier, *depot) {
		return func(a *applier, _ *depot) {
			for range n {
				a.retries.When(key)
			}
		}
	}
	there := func(d *depot, _ string) *metav1.PartialObjectMetadata { return d.copyOf("web", "old") }
	approved := func(a *applier, _ *depot) { // The deletion of the copy waited, and a user has approved it.
		a.guard.undecided[key] = removal{Key: key}
		a.guard.approved[key] = "u-web"
	}
	refuse := func(code int32, reason metav1.StatusReason, details *metav1.StatusDetails) map[string]metav1.Status {
		return map[string]metav1.Status{http.MethodPatch: {Code: code, Reason: reason, Details: details, Message: "no"}}
	}
	const soon, settled, apply = "report web later", "report web after 100ms", "PATCH web"
	type want struct {
		Sent   []string // To the member.
		Status string
		Said   []string // To other stations.
		Again  time.Duration
		Tries  int // Failed attempts in a row.
		Held   int // Deletions that the guard knows of.
	}
	cases := map[string]struct {
		reason  string
		there   func(d *depot, hash string) *metav1.PartialObjectMetadata
		on      []string            // Clusters besides the member.
		desired func(*desiredState) // Changes the desired state; nil to keep it.
		nothing bool                // Whether the object has no desired state.
		was     *refractv1alpha1.ClusterStatus
		refuse  map[string]metav1.Status
		before  func(*applier, *depot)
		want    want
	}{
		"New":       {reason: "The copy is written. No other cluster is missing, so a report follows soon.", want: want{Sent: []string{apply}, Status: "Synced", Said: []string{settled}}},
		"OneOfMany": {reason: "Other clusters are missing.", on: []string{"us-1"}, want: want{Sent: []string{apply}, Status: "Synced", Said: []string{soon}}},
		"AnotherOfMany": {
			reason: "A report is due already, and covers this cluster, too.", on: []string{"eu-1", "us-1"},
			before: func(a *applier, _ *depot) { a.state.report(key, "us-1", clusterStatus{}) }, want: want{Sent: []string{apply}, Status: "Synced"},
		},
		"Changed": {
			reason: "The copy differs from the desired state.", there: func(d *depot, _ string) *metav1.PartialObjectMetadata { return d.copyOf("web", "old") },
			want: want{Sent: []string{apply}, Status: "Synced", Said: []string{settled}},
		},
		"AsItShouldBe": {
			reason: "The copy was written before a restart, so nothing is sent.", there: func(d *depot, hash string) *metav1.PartialObjectMetadata { return d.copyOf("web", hash) }, was: &refractv1alpha1.ClusterStatus{State: refractv1alpha1.StateSynced},
			want: want{Status: "Synced", Said: []string{settled}},
		},
		"Unreported": {
			reason: "The process crashed between the write and the report. The hash in the copy proves that it has the complete content.",
			there: func(d *depot, hash string) *metav1.PartialObjectMetadata {
				return owning(d.copyOf("web", hash), `{"f:metadata":{"f:labels":{"f:kubeadmiral.io/managed":{}},"f:annotations":{"f:refract.dev/applied":{},"f:refract.dev/source":{}}},"f:data":{"f:x":{}}}`)
			},
			want: want{Status: "Synced", Said: []string{settled}},
		},
		"UnreportedAndChanged": {
			reason: "Another client changed a field meanwhile, so the copy is written again.",
			there: func(d *depot, hash string) *metav1.PartialObjectMetadata {
				return owning(d.copyOf("web", hash), `{"f:metadata":{"f:labels":{"f:kubeadmiral.io/managed":{}},"f:annotations":{"f:refract.dev/applied":{},"f:refract.dev/source":{}}}}`)
			},
			want: want{Sent: []string{apply}, Status: "Synced", Said: []string{settled}},
		},
		"AfterFailures": {
			reason: "After the next failure, the retry comes as soon as after the first one.", before: failing(3),
			want: want{Sent: []string{apply}, Status: "Synced", Said: []string{settled}},
		},
		"NotOurs": {
			reason: "It is not certain that this replica leads, so the key is retried.",
			before: func(a *applier, _ *depot) {
				a.begin = func(ctx context.Context, _ string) (context.Context, func(), bool) { return ctx, nil, false }
			},
			want: want{Status: "none", Again: leadsAgain},
		},
		"Undecided": {reason: "The desired state is unknown, so a decision is requested.", nothing: true, want: want{Status: "none", Said: []string{"decide web"}}},
		"Blocked": {
			reason: "Nothing may be written, and the guard is not asked.", desired: func(p *desiredState) { p.blocked = reasonPolicyNotFound },
			before: func(a *applier, _ *depot) { a.guard.undecided[key] = removal{Key: key} }, want: want{Status: "none", Said: []string{settled}},
		},
		"Stays": {
			reason: "The deletion of the copy needs no approval now, and the copy is not to be deleted.", before: func(a *applier, _ *depot) {
				a.guard.lost[key] = loss{}
				a.guard.pending.add(removal{Key: key})
			},
			want: want{Sent: []string{apply}, Status: "Synced", Said: []string{settled}},
		},
		"StaysInADryRun": {
			reason: "A dry run removes nothing, so the guard is not asked, and the approval ends.", desired: func(p *desiredState) { p.dryRun, p.targets = true, nil },
			there: there, before: approved, want: want{Status: "Pending DryRun", Said: []string{settled}},
		},
		"StaysUnrendered": {
			reason: "The copy is wanted again, but its content is not known yet.", desired: func(p *desiredState) { p.targets["m"] = &target{err: errOutdated} },
			there: there, before: approved, want: want{Status: "Failed OverrideFailed", Said: []string{settled}},
		},
		"StaysUntilItsTurn": {
			reason: "The copy is wanted again, and keeps its content until its turn in the rollout.", desired: func(p *desiredState) {
				p.governed = &governance{led: &led{by: keyOf("deployments", "web")}, target: revision.Of("s-2", 0, nil)}
			},
			there: there, before: approved, want: want{Status: "Pending KeepsContent", Said: []string{settled}},
		},
		"AnotherHubs": {
			reason: "The object is a copy from another hub, so it stays unchanged.", there: func(d *depot, _ string) *metav1.PartialObjectMetadata {
				o := d.copyOf("web", "old")
				o.Annotations[refractv1alpha1.SourceAnnotation] = "other-hub/1/configmaps/shop/web"
				return o
			},
			want: want{Status: "Failed AlreadyExists", Said: []string{settled}, Again: firstRetry, Tries: 1},
		},
		"SomebodyElses": {
			reason: "The object was created by the cluster, so it stays unchanged. Only the attempt to create a copy reveals it.", there: func(d *depot, _ string) *metav1.PartialObjectMetadata {
				o := d.copyOf("web", "")
				o.Labels, o.Annotations = nil, nil
				return o
			},
			want: want{Sent: []string{apply}, Status: "Failed AlreadyExists", Said: []string{settled}, Again: firstRetry, Tries: 1},
		},
		"Adopted": {
			reason: "The object on the hub asks for the adoption of the existing object.", there: func(d *depot, _ string) *metav1.PartialObjectMetadata {
				o := d.copyOf("web", "")
				o.Labels, o.Annotations = nil, nil
				return o
			},
			desired: func(p *desiredState) {
				p.keeping, _ = placement.KeepingOf(map[string]string{corev1alpha1.ConflictResolutionAnnotation: "adopt", corev1alpha1.ClustersToAdoptAnnotation: `{"regexp":".*"}`})
			},
			want: want{Sent: []string{apply, apply}, Status: "Synced", Said: []string{settled}},
		},
		"Gone": {
			reason: "The watch has not reported the object yet. It is written again at once.", there: func(d *depot, _ string) *metav1.PartialObjectMetadata { return d.copyOf("web", "old") },
			before: func(_ *applier, d *depot) { d.change(func() { clear(d.configMaps) }) },
			want:   want{Sent: []string{apply}, Status: "none", Again: time.Millisecond, Tries: 1},
		},
		"Going": {
			reason: "The watch will report that the object is gone.", there: func(d *depot, hash string) *metav1.PartialObjectMetadata {
				o, now := d.copyOf("web", hash), metav1.Now()
				o.DeletionTimestamp = &now
				return o
			},
			want: want{Status: "Pending BeingDeleted", Said: []string{settled}},
		},
		"Refused": {
			reason: "Each retry comes later than the one before.", refuse: refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, nil),
			want: want{Sent: []string{apply}, Status: "Failed Rejected", Said: []string{settled}, Again: firstRetry, Tries: 1},
		},
		"RefusedOften": {
			reason: "The delay is a minute at most.", refuse: refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, nil), before: failing(20),
			want: want{Sent: []string{apply}, Status: "Failed Rejected", Said: []string{settled}, Again: lastRetry, Tries: 21},
		},
		"FailedOften": {
			reason: "The failure may end at any time, without an event.", refuse: refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, nil), before: failing(20),
			want: want{Sent: []string{apply}, Status: "Failed WriteFailed", Said: []string{settled}, Again: soonRetry, Tries: 21},
		},
		"TypeNotServed": {
			reason: "The copy waits at the gate of its type, which enqueues it later.", refuse: refuse(http.StatusNotFound, metav1.StatusReasonNotFound, nil),
			want: want{Sent: []string{apply}, Status: "Failed TypeNotServed", Said: []string{settled}, Again: gateRest},
		},
		"NoNamespace": {
			reason: "The namespace is created as it is on the hub, and the copy is written into it at once.",
			refuse: refuse(http.StatusNotFound, metav1.StatusReasonNotFound, &metav1.StatusDetails{Kind: "namespaces", Name: "shop"}),
			want:   want{Sent: []string{apply, "POST"}, Status: "none", Again: time.Millisecond},
		},
		"NamespaceGoing": {
			reason: "The copy waits at the gate of its namespace, which enqueues it later.",
			refuse: refuse(http.StatusForbidden, metav1.StatusReasonForbidden, &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}),
			want:   want{Sent: []string{apply}, Status: "Pending BeingDeleted", Said: []string{settled}, Again: gateRest},
		},
		"CannotBeRendered": {
			reason: "The copy stays unchanged until a policy changes.", desired: func(p *desiredState) { p.targets["m"] = &target{err: errOutdated} },
			want: want{Status: "Failed OverrideFailed", Said: []string{settled}},
		},
		"Outdated": {
			reason: "The desired state is outdated, and a new decision is under way.", desired: func(p *desiredState) { p.variants[0].body.Store(nil) },
			want: want{Sent: nil, Status: "none", Again: outdatedDelay},
		},
		"DryRun": {reason: "The status shows the change that would be made.", desired: func(p *desiredState) { p.dryRun = true }, want: want{Status: "Pending DryRun", Said: []string{settled}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := newDepot()
			p := wanted(t, "web", append([]string{"m"}, tc.on...)...)
			hash := p.targets["m"].variant.hash
			if tc.there != nil {
				d.put(tc.there(d, hash))
			}
			a, e := applierOf(t, d, 0)
			was := previous{uid: "1"}
			if tc.was != nil {
				tc.was.Name, tc.was.Hash = "m", hash
				was.statuses = []refractv1alpha1.ClusterStatus{*tc.was}
			}
			if tc.desired != nil {
				tc.desired(p)
			}
			if !tc.nothing {
				a.state.setDesired(key, p, was, nil)
			}
			if tc.before != nil {
				tc.before(a, d)
			}
			d.change(func() { d.refuse = tc.refuse })
			result, err := a.applyOne(t.Context(), key)
			if err != nil {
				t.Fatalf("%s\napplyOne(): %v", tc.reason, err)
			}
			got := want{
				Sent: d.sent(), Status: statusOf(a.state, key), Said: e.said, Again: min(result.RequeueAfter, gateRest), Tries: a.retries.NumRequeues(key),
				Held: len(a.guard.undecided) + len(a.guard.pending.byKey) + len(a.guard.allowed) + len(a.guard.approved) + len(a.guard.lost),
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\napplyOne(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestUnanswered: after a write without an answer, the applier reads the copy before it writes again. A write that took
// effect is neither repeated nor mistaken for a change by another client.
func TestUnanswered(t *testing.T) {
	key := keyOf("configmaps", "web")
	const all = `{"f:metadata":{"f:labels":{"f:kubeadmiral.io/managed":{}},"f:annotations":{"f:refract.dev/applied":{},"f:refract.dev/source":{}}},"f:data":{"f:x":{}}}`
	refuse := func(verb string, code int32, reason metav1.StatusReason) map[string]metav1.Status {
		return map[string]metav1.Status{verb: {Code: code, Reason: reason, Message: "no answer"}}
	}
	timeout := refuse(http.MethodPatch, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
	const apply, failed, synced = "PATCH web", "Failed WriteFailed", "Synced"
	cases := map[string]struct {
		reason string
		before string // The content of the copy before the first try; empty if the copy does not exist.
		late   bool
		refuse map[string]metav1.Status
		told   bool                     // Whether the watch reports the write.
		then   map[string]metav1.Status // The requests that fail in the second try.
		want   []string                 // The write request of each try, and the status after it.
	}{
		"Done":     {"The copy has the content of the write.", "", true, nil, false, nil, []string{apply, failed, "", failed, "", synced}},
		"Told":     {"The watch has reported the write, so no read is necessary.", "", true, nil, true, nil, []string{apply, failed, "", synced}},
		"NotDone":  {"The copy does not exist, so it is written.", "", false, timeout, false, nil, []string{apply, failed, apply, synced}},
		"Changed":  {"The applier's own write changed the fields.", "other", true, nil, false, nil, []string{apply, failed, "", failed, "", synced}},
		"Regained": {"The same, and no other client gave back a field.", "other", true, nil, true, nil, []string{apply, failed, "", failed, "", synced}},
		"AsBefore": {"The copy still has its former content, so it is written.", "other", false, timeout, false, nil, []string{apply, failed, apply, synced}},
		"Unanswered": {
			"The result of the write is still unknown, so there is no second write.", "", true, nil, false,
			refuse(http.MethodGet, http.StatusInternalServerError, metav1.StatusReasonInternalError), []string{apply, failed, "", failed, "", failed, "", synced},
		},
		"Forbidden": {
			"The result of the write will never be known, so the copy is written again.", "other", true, nil, false,
			refuse(http.MethodGet, http.StatusForbidden, metav1.StatusReasonForbidden), []string{apply, failed, apply, synced},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := newDepot()
			a, _ := applierOf(t, d, 0)
			if tc.before != "" {
				d.change(func() { d.fields = `{"f:data":{"f:gone":{}}}` })
				a.state.setDesired(key, wantedWith(t, "web", tc.before, "m"), previous{uid: "1"}, nil)
				if _, err := a.applyOne(t.Context(), key); err != nil || statusOf(a.state, key) != synced {
					t.Fatalf("want a copy that was written, got %s, %v", statusOf(a.state, key), err)
				}
				d.sent()
			}
			d.change(func() { d.fields, d.late, d.refuse = all, tc.late, tc.refuse })
			var got []string
			for try := range len(tc.want) / 2 {
				a.state.setDesired(key, wanted(t, "web", "m"), previous{uid: "1"}, nil)
				if _, err := a.applyOne(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				got = append(got, strings.Join(d.sent(), ", "), statusOf(a.state, key))
				d.change(func() { d.late, d.refuse = false, nil })
				if try > 0 {
					continue
				}
				if tc.told {
					d.tell(t, a.member, key)
				}
				d.change(func() { d.refuse = tc.then })
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nrequests and statuses by try: -want, +got:\n%s", tc.reason, diff)
			}
			if r, _ := a.state.clusterStatus(key, "m"); r.drift != nil {
				t.Errorf("%s\nwant no drift, got %+v", tc.reason, r.drift)
			}
			if left := a.member.Pause(); left != 0 {
				t.Errorf("%s\nwant no delay of other copies, got %s", tc.reason, left)
			}
		})
	}
}

// statusOf describes the status of a key on the member.
func statusOf(s *state, key Key) string {
	r, known := s.clusterStatus(key, "m")
	if !known {
		return "none"
	}
	return strings.TrimSpace(string(r.state) + " " + r.reason)
}

// TestApplierBacksOff: while a cluster answers no request of any kind, its copies wait, and their statuses say so.
func TestApplierBacksOff(t *testing.T) {
	d := newDepot()
	d.refuse = map[string]metav1.Status{http.MethodPatch: {Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests}}
	a, _ := applierOf(t, d, 0)
	var result reconcile.Result
	var key Key
	for i := range 10 {
		key = keyOf("configmaps", fmt.Sprint(i))
		a.state.setDesired(key, wanted(t, key.Name, "m"), previous{}, nil)
		var err error
		if result, err = a.applyOne(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if got := statusOf(a.state, key); got != "Pending BackingOff" || result.RequeueAfter <= 0 || result.RequeueAfter > 2*time.Second+10*heldSpread {
		t.Errorf("want a delay of about a second, and a status with it, got %s, %s", got, result.RequeueAfter)
	}
	if sent := d.sent(); len(sent) >= 10 {
		t.Errorf("want no request for the other copies, got %v", sent)
	}
}

// TestApplierGoesOn: when the cluster answers again, even with a rejection, some of the waiting copies are tried at
// once, before their own delays have passed.
func TestApplierGoesOn(t *testing.T) {
	for name, status := range map[string]map[string]metav1.Status{
		"Written": nil,
		"Refused": {http.MethodPatch: {Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDepot()
			d.refuse = status
			a, _ := applierOf(t, d, 0)
			for i := range 2 * heldAtOnce {
				key := keyOf("configmaps", fmt.Sprint(i))
				a.queue.addAfter(key, a.held.pause(key, func() time.Duration { return time.Hour }))
			}
			for i, want := range []int{heldAtOnce, 2 * heldAtOnce} {
				key := keyOf("configmaps", fmt.Sprint("web-", i))
				a.state.setDesired(key, wanted(t, key.Name, "m"), previous{}, nil)
				if _, err := a.applyOne(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				if got := a.queue.depth(); got != want {
					t.Errorf("after %d answers: %d other copies are due, want %d", i+1, got, want)
				}
			}
		})
	}
}

// TestHeld: the delays of copies that wait for their cluster are spread over a time that grows with the number of the
// copies. A copy does not join them if the cluster answers another copy while pause determines the delay.
func TestHeld(t *testing.T) {
	var h held
	ask := func(left time.Duration) func() time.Duration { return func() time.Duration { return left } }
	if got := h.pause(keyOf("configmaps", "first"), ask(0)); got != 0 {
		t.Errorf("pause() = %s of a responding cluster, want 0", got)
	}
	if next := h.answered(); len(next) != 0 {
		t.Errorf("no copy waits, but next is %v", next)
	}
	most := time.Duration(0)
	for i := range 2 * mostHeld {
		for range 2 { // Each copy is tried several times.
			got := h.pause(keyOf("configmaps", fmt.Sprint(i)), ask(time.Second))
			if spread := time.Duration(min(i+1, mostHeld)) * heldSpread; got < time.Second || got >= time.Second+spread {
				t.Fatalf("pause() = %s, want at least a second, plus less than %s", got, spread)
			}
			most = max(most, got)
		}
	}
	if most < mostHeld*heldSpread/2 {
		t.Errorf("the longest of many delays is %s: want them spread", most)
	}
	h.forget(keyOf("configmaps", "1"))
	late := h.pause(keyOf("configmaps", "late"), func() time.Duration {
		var names []string
		for _, key := range h.answered() {
			names = append(names, key.Name)
		}
		if diff := cmp.Diff([]string{"0", "2", "3", "4"}, names); diff != "" {
			t.Errorf("want the copies that have waited longest: -want, +got:\n%s", diff)
		}
		return time.Second
	})
	if late != time.Second {
		t.Errorf("after an answer of the cluster: pause() = %s, want the delay that was asked for", late)
	}
	for i := range 1000 { // Some copies stop waiting and start again while the cluster does not answer.
		key := keyOf("configmaps", fmt.Sprint(5+i%10))
		h.forget(key)
		h.pause(key, ask(time.Second))
	}
	if len(h.line) > 3*mostHeld*2 {
		t.Errorf("the line has %d entries, but %d copies wait", len(h.line), len(h.waiting))
	}
	seen := map[Key]bool{}
	for next := h.answered(); len(next) > 0; next = h.answered() {
		for _, key := range next {
			if seen[key] {
				t.Errorf("%s is taken twice", key.Name)
			}
			seen[key] = true
		}
	}
	if want := 2*mostHeld - 5; len(seen) != want || len(h.line)+len(h.waiting) != 0 {
		t.Errorf("%d copies were taken, want all %d, and none left", len(seen), want)
	}
}

// TestTypeIsServedNoMore: after the cluster has stopped serving the type, a copy in the cache does not prove that the
// copy exists. The answer to a write shows it.
func TestTypeIsServedNoMore(t *testing.T) {
	for name, unserved := range map[string]bool{"Served": false, "ServedNoMore": true} {
		t.Run(name, func(t *testing.T) {
			key := keyOf("configmaps", "web")
			d := newDepot()
			a, _ := applierOf(t, d, 0)
			a.state.setDesired(key, wanted(t, key.Name, "m"), previous{}, nil)
			if _, err := a.applyOne(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if unserved {
				d.tell(t, a.member, key) // This opens the watch. It could not open later, when the cluster no longer serves the type.
				d.change(func() {
					d.refuse[http.MethodPatch] = metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "404 page not found"}
				})
				d.unserved.Store(true)
				d.send(t, metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Object: &metav1.Status{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
				}}})
				poll.Until(t, "the type is known to be unserved", func() bool { return a.member.Copies.Unserved(configMaps) })
			}
			if _, err := a.applyOne(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			want := map[bool]string{false: "Synced", true: "Failed TypeNotServed"}[unserved]
			if got := statusOf(a.state, key); got != want {
				t.Errorf("want %q, got %q", want, got)
			}
		})
	}
}

// TestDrift: a change of a copy by another client is corrected at once, announced and counted. A copy that is changed
// again and again stays changed for a while, and is corrected later.
func TestDrift(t *testing.T) {
	key := keyOf("configmaps", "web")
	d := newDepot()
	a, e := applierOf(t, d, 0)
	drifts := func() {
		t.Helper()
		a.state.setDesired(key, wanted(t, "web", "m", "us-1"), previous{}, nil)
		d.change(func() {
			o := d.configMaps["web"].DeepCopy()
			o.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:data":{"f:z":{}}}`)
			d.store(o)
		})
		have, err := a.member.Objects.Read(t.Context(), configMaps, key.NamespacedName)
		if err != nil {
			t.Fatal(err)
		}
		a.member.Copies.Remember(key, have)
	}
	try := func() reconcile.Result {
		t.Helper()
		result, err := a.applyOne(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	a.state.setDesired(key, wanted(t, "web", "m", "us-1"), previous{}, nil)
	try()
	d.sent()
	e.said = nil
	for i := range promptCorrections {
		drifts()
		if result := try(); result.RequeueAfter != 0 || statusOf(a.state, key) != "Synced" || len(d.sent()) != 1 {
			t.Errorf("correction %d: want an immediate correction, got %s, %v", i, statusOf(a.state, key), result)
		}
		r, _ := a.state.clusterStatus(key, "m")
		if r.drift == nil || int(r.drift.Count) != i+1 || !cmp.Equal(r.drift.Fields, []string{".data.x"}) {
			t.Errorf("correction %d: want it counted, with the changed fields, got %+v", i, r.drift)
		}
		if diff := cmp.Diff([]string{"report web after 1s"}, e.said); diff != "" {
			t.Errorf("correction %d: want a report: -want, +got:\n%s", i, diff)
		}
		if got := a.state.corrections(key); len(got) != 1 {
			t.Errorf("correction %d: want an event, got %q", i, got)
		}
		e.said = nil
	}
	c := a.corrections.byKey[key]
	c.next = time.Now().Add(time.Hour)
	a.corrections.byKey[key] = c
	drifts()
	if result := try(); result.RequeueAfter <= 0 || result.RequeueAfter > time.Hour || statusOf(a.state, key) != "Drifted ChangedAgainAndAgain" || d.sent() != nil {
		t.Errorf("after many changes: want a delay of an hour, got %s, %v", statusOf(a.state, key), result)
	}
	c.last = time.Now().Add(-correctionReset - time.Second)
	a.corrections.byKey[key] = c
	if result := try(); result.RequeueAfter != 0 || statusOf(a.state, key) != "Synced" {
		t.Errorf("after a long time without changes: want an immediate correction, got %s, %v", statusOf(a.state, key), result)
	}
}
