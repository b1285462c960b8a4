package propagation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// desk is the client of a reporter. It records the writes, and can refuse them by verb.
type desk struct {
	wrote  []string
	refuse map[string]error
}

func (d *desk) note(verb string) error {
	d.wrote = append(d.wrote, verb)
	return d.refuse[verb]
}

func (d *desk) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if err := d.note("create"); err != nil {
				return err
			}
			return c.Create(ctx, obj, o...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
			if err := d.note("update"); err != nil {
				return err
			}
			return c.Update(ctx, obj, o...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
			if err := d.note("patch"); err != nil {
				return err
			}
			return c.Patch(ctx, obj, p, o...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
			if err := d.note("delete"); err != nil {
				return err
			}
			return c.Delete(ctx, obj, o...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, _ string, obj client.Object, o ...client.SubResourceUpdateOption) error {
			if err := d.note("status"); err != nil {
				return err
			}
			return c.Status().Update(ctx, obj, o...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
			if err := d.note("status"); err != nil {
				return err
			}
			return c.Status().Patch(ctx, obj, p, o...)
		},
	}
}

// recordOn returns the Propagation of the ConfigMap web with this UID, with rows for these clusters.
func recordOn(uid types.UID, clusters ...refractv1alpha1.ClusterStatus) *refractv1alpha1.Propagation {
	r := &refractv1alpha1.Propagation{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.configmaps", UID: "r"}}
	r.Spec.Source = refractv1alpha1.SourceReference{APIVersion: "v1", Kind: "ConfigMap", Resource: "configmaps", Name: "web", UID: uid}
	r.Status.Clusters = clusters
	return r
}

// bound returns a Propagation as earlier versions wrote it, with the object as owner and these finalizers.
func bound(deleting bool, finalizers ...string) *refractv1alpha1.Propagation {
	r := recordOn("1")
	r.Finalizers = finalizers
	if !slices.Contains(finalizers, "example.com/hold") {
		r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "web", UID: "1"}}
	}
	if deleting {
		r.DeletionTimestamp = new(metav1.Now())
	}
	return r
}

// TestReportOne: the reporter writes the state of an object into its Propagation, unless it is unchanged. It notifies
// the policies that the object names, and records events. When nothing is left to report, it deletes the Propagation
// and forgets the object.
func TestReportOne(t *testing.T) {
	var (
		key    = keyOf("configmaps", "web")
		pp     = tree.Policy{Kind: "PropagationPolicy", Namespace: "shop", Name: "pp"}
		there  = &desiredState{uid: "1", gvr: configMaps, kind: "ConfigMap", placed: on("eu-1"), targets: map[string]*target{"eu-1": {}}}
		gone   = &desiredState{gvr: configMaps, kind: "ConfigMap", gone: true, cause: causeDeleted}
		synced = refractv1alpha1.ClusterStatus{Name: "eu-1", State: refractv1alpha1.StateSynced}
	)
	const pending = "eu-1 Pending"
	type want struct {
		Wrote    []string
		Asked    []string
		Again    time.Duration
		Err      string
		Clusters []string // The clusters in the Propagation afterwards.
		Known    bool     // Whether the object is known afterwards.
		Events   []string
	}
	cases := map[string]struct {
		reason string
		p      *desiredState
		was    previous
		record *refractv1alpha1.Propagation
		refuse map[string]error
		busy   bool // Whether many copies wait.
		want   want
	}{
		"Nothing": {reason: "There is neither an object nor a Propagation."},
		"RecordOfNothing": {
			reason: "The Propagation became known after its object was forgotten, so the object is decided.", record: recordOn("1", synced),
			want: want{Asked: []string{"decide configmaps web: resync"}, Clusters: []string{"eu-1 Synced"}},
		},
		"New": {
			reason: "The object gets a Propagation, and the status of its policy may change.", p: there,
			want: want{Wrote: []string{"create", "status"}, Asked: []string{"review pp: after 2.005s"}, Clusters: []string{pending}, Known: true},
		},
		"Changed": {
			reason: "The Propagation is outdated.", p: there, record: recordOn("1", synced),
			want: want{Wrote: []string{"status"}, Asked: []string{"review pp: after 2.005s"}, Clusters: []string{pending}, Known: true},
		},
		"Yields": {
			reason: "No other work depends on the report, and copies wait.", p: there, record: recordOn("1", synced), busy: true,
			want: want{Again: yieldDelay, Clusters: []string{"eu-1 Synced"}, Known: true},
		},
		"MadeAgain": {
			reason: "The Propagation describes a former object of the name.", p: there, record: recordOn("0"),
			want: want{Wrote: []string{"update", "status"}, Asked: []string{"review pp: after 2.005s"}, Clusters: []string{pending}, Known: true},
		},
		"Deleted": {
			reason: "A user deleted the Propagation, and a finalizer of another program holds it: it is created again when it is gone.", p: there,
			record: bound(true, "example.com/hold"), want: want{Known: true},
		},
		"BoundAndDeleted": {
			reason: "An earlier version wrote the Propagation, and its namespace is being deleted: the finalizer is removed, which frees the namespace.",
			p:      there, record: bound(true, refractv1alpha1.Finalizer), want: want{Wrote: []string{"patch"}, Again: settledDelay, Known: true},
		},
		"BoundAndGone": {
			reason: "The same if copies are left: FederatedClusters list them.", p: gone, was: previous{placed: on("eu-1")},
			record: bound(true, refractv1alpha1.Finalizer), want: want{Wrote: []string{"patch"}, Again: settledDelay, Known: true},
		},
		"Bound": {
			reason: "A finalizer of an earlier version would block the namespace while Refract does not run.",
			p:      there, record: bound(false, refractv1alpha1.Finalizer), want: want{Wrote: []string{"patch"}, Again: settledDelay, Known: true},
		},
		"Owned": {
			reason: "With an owner, from an earlier version or a restored hub, the Propagation would be deleted before the copies.",
			p:      there, record: bound(false), want: want{Wrote: []string{"patch"}, Again: settledDelay, Known: true},
		},
		"GoneEverywhere": {
			reason: "No copy is left: the Propagation is deleted, and the object forgotten. Its policy counts one object less.", p: gone, record: recordOn("1"),
			want: want{Wrote: []string{"delete"}, Asked: []string{"review pp: after 2s"}},
		},
		"GoneAndPlaced": {
			reason: "A cluster may have a copy without a status since a restart.", p: gone, was: previous{placed: on("eu-1")}, record: recordOn("1", synced),
			want: want{Wrote: []string{"status"}, Asked: []string{"review pp: after 2.005s"}, Clusters: []string{"eu-1 Deleting"}, Known: true},
		},
		"GoneAndThere": {
			reason: "A cluster has a copy.", p: gone, was: previous{statuses: []refractv1alpha1.ClusterStatus{{Name: "eu-1", State: refractv1alpha1.StateDeleting}}},
			record: recordOn("1", synced),
			want:   want{Wrote: []string{"status"}, Asked: []string{"review pp: after 2.005s"}, Clusters: []string{"eu-1 Deleting"}, Known: true},
		},
		"GoneWithItsRecord": {
			reason: "There is neither an object nor a Propagation: the FederatedCluster lists the copy until it is deleted.", p: gone,
			was: previous{statuses: []refractv1alpha1.ClusterStatus{{Name: "eu-1"}}}, want: want{Asked: []string{"pend eu-1: after 1.5s"}, Known: true},
		},
		"Overtaken": {
			reason: "Another client wrote the Propagation, and a watch will report it.", p: there, record: recordOn("1", synced),
			refuse: map[string]error{"status": apierrors.NewConflict(configMaps.GroupResource(), "web", nil)},
			want:   want{Wrote: []string{"status"}, Again: settledDelay, Clusters: []string{"eu-1 Synced"}, Known: true},
		},
		"NotSeenYet": {
			reason: "The Propagation exists, and a watch will report it.", p: there,
			refuse: map[string]error{"create": apierrors.NewAlreadyExists(configMaps.GroupResource(), "web")},
			want:   want{Wrote: []string{"create"}, Again: unsettledDelay, Known: true},
		},
		"Refused": {
			reason: "The write is tried again, later each time. No event reports an unwritten status.", p: there, record: recordOn("1", synced),
			refuse: map[string]error{"status": errors.New("no answer")},
			want:   want{Wrote: []string{"status"}, Err: "no answer", Clusters: []string{"eu-1 Synced"}, Known: true},
		},
		"CannotBeClosed": {
			reason: "The object is known until its Propagation is deleted.", p: gone, record: recordOn("1"), refuse: map[string]error{"delete": errors.New("no answer")},
			want: want{Wrote: []string{"delete"}, Err: "no answer", Known: true},
		},
		"Warned": {
			reason: "Each warning causes one event, and so does each problem.", p: &desiredState{
				uid: "1", gvr: configMaps, kind: "ConfigMap", blocked: reasonPolicyNotFound, blockedMessage: "it waits", warnings: []string{"old", "new"},
			},
			was: previous{warned: []string{"old"}}, record: recordOn("1"),
			want: want{
				Wrote: []string{"status"}, Asked: []string{"review pp: after 2.005s"}, Known: true,
				Events: []string{"Warning PolicyNotFound it waits", "Warning PropagationWarning new"},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &desk{refuse: tc.refuse}
				var objects []client.Object
				if tc.record != nil {
					objects = append(objects, tc.record)
				}
				s, _ := hubOf(t)
				c := station(t, s, &replica{leads: true}, d.funcs(), objects...)
				told := events.NewFakeRecorder(10)
				c.reporter.recorder = told
				if tc.record != nil {
					see(t, c, key)
				}
				if tc.p != nil {
					p := *tc.p
					c.state.setDesired(key, &p, tc.was, []tree.Policy{pp})
				}
				if tc.busy {
					c.reporter.yielding.waiting = func() int { return many }
					c.reporter.yielding.shown.AllowN(c.reporter.now(), progress)
				}
				d.wrote = nil
				result, err := c.reporter.reportOne(t.Context(), key)
				got := want{Wrote: d.wrote, Asked: asked(c), Again: result.RequeueAfter, Known: c.state.desired(key) != nil}
				if err != nil {
					got.Err = err.Error()
				}
				r := &refractv1alpha1.Propagation{}
				if err := c.reporter.live.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web.configmaps"}, r); err == nil {
					for _, s := range r.Status.Clusters {
						got.Clusters = append(got.Clusters, s.Name+" "+string(s.State))
					}
				}
				for range len(told.Events) {
					got.Events = append(got.Events, <-told.Events)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s\nreportOne(): -want, +got:\n%s", tc.reason, diff)
				}
				if tc.want.Err != "" || tc.want.Again != 0 {
					return
				}
				d.wrote = nil
				if _, err := c.reporter.reportOne(t.Context(), key); err != nil || d.wrote != nil {
					t.Errorf("%s\nreportOne(): want an unchanged report not written again, got %v, %v", tc.reason, d.wrote, err)
				}
			})
		})
	}
}

// see passes the hub's Propagation of a key to the records.
func see(t *testing.T, c *Controller, key Key) {
	t.Helper()
	r := newRecord(true)
	if err := c.reporter.live.Get(t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: recordName(key)}, r.Object); err != nil {
		t.Fatal(err)
	}
	c.reporter.records.update(r, told)
}

// TestLapsed: while the Lease is not renewed in time, the reports wait, and no Propagation is written.
func TestLapsed(t *testing.T) {
	key, d := keyOf("configmaps", "web"), &desk{}
	s, _ := hubOf(t)
	leading := &replica{}
	c := station(t, s, leading, d.funcs())
	c.state.setDesired(key, &desiredState{targets: map[string]*target{"us-1": {}}}, previous{}, nil)
	d.wrote = nil
	result, err := c.reporter.reportOne(t.Context(), key)
	if err != nil || d.wrote != nil || result.RequeueAfter != leadsAgain {
		t.Errorf("reportOne(): want nothing written, and another attempt after %s, got %v, %v, %+v", leadsAgain, d.wrote, err, result)
	}
	leading.leads = true
	if _, err := c.reporter.reportOne(t.Context(), key); err != nil || len(d.wrote) == 0 {
		t.Errorf("reportOne(): want the report written when this replica leads again, got %v, %v", d.wrote, err)
	}
}

// TestReporterIsTold: a Propagation that another client has changed causes a report.
func TestReporterIsTold(t *testing.T) {
	key := keyOf("configmaps", "web")
	cases := map[string]struct {
		reason string
		tell   func(*reporter)
		want   []string
	}{
		"Changed":       {"The report corrects the Propagation soon.", func(rep *reporter) { rep.recordChanged(key, true) }, []string{"report configmaps web: after 100ms"}},
		"Later":         {"More clusters will probably answer.", func(rep *reporter) { rep.later(key) }, []string{"report configmaps web: after 2s"}},
		"AfterAndLater": {"A report that is due soon is not postponed.", func(rep *reporter) { rep.after(key, time.Second); rep.later(key) }, []string{"report configmaps web: after 1s"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := station(t, nil, &replica{leads: true}, interceptor.Funcs{})
				c.state.setDesired(key, &desiredState{}, previous{}, nil)
				tc.tell(c.reporter)
				if diff := cmp.Diff(tc.want, asked(c)); diff != "" {
					t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestReportsWait: the delay of a report grows with the number of clusters while most of them are being written to. A
// report does not wait for the few clusters that may never report.
func TestReportsWait(t *testing.T) {
	key := keyOf("configmaps", "web")
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint("m-", i)
	}
	const most = 1000 * perCluster
	cases := map[string]struct {
		reason          string
		of, done        int // Numbers of clusters: all, and those that have reported.
		later, readied  time.Duration
		recordedByOther time.Duration
	}{
		"Few":     {"The object has few clusters.", 3, 1, unsettledDelay, unsettledDelay, unsettledDelay},
		"Many":    {"Most clusters are being written to.", 1000, 899, most, most, most},
		"Nearly":  {"The last tenth may never report.", 1000, 900, unsettledDelay, unsettledDelay, unsettledDelay},
		"Settled": {"All clusters have reported.", 1000, 1000, unsettledDelay, readinessDelay, settledDelay},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for what, tell := range map[string]struct {
				do   func(*reporter)
				want time.Duration
			}{
				"later":           {func(rep *reporter) { rep.later(key) }, tc.later},
				"reportReadiness": {func(rep *reporter) { rep.reportReadiness(key, false) }, tc.readied},
				"awaited":         {func(rep *reporter) { rep.reportReadiness(key, true) }, awaitedDelay},
				"recordChanged":   {func(rep *reporter) { rep.recordChanged(key, false) }, tc.recordedByOther},
				"guided":          {func(rep *reporter) { rep.recordChanged(key, true) }, settledDelay},
				"rolledOut": {func(rep *reporter) {
					rep.state.desired(key).governed = &governance{}
					rep.recordChanged(key, false)
				}, settledDelay},
			} {
				synctest.Test(t, func(t *testing.T) {
					c := station(t, nil, &replica{leads: true}, interceptor.Funcs{})
					p := hashed("1", "h", names[:tc.of]...)
					c.state.setDesired(key, p, previous{}, nil)
					var due int
					for i, name := range names[:tc.done] {
						if _, is := c.state.report(key, name, clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced, hash: "h"}); !is && i > 0 {
							due++
						}
					}
					if crossed := tc.of-tc.done <= tc.of/oneIn; (due > 0) != crossed || due > 1 {
						t.Errorf("%s\nthe pending report counted as too late %d times, want once when most have reported: %t", tc.reason, due, crossed)
					}
					tell.do(c.reporter)
					if diff := cmp.Diff([]string{"report configmaps web: after " + tell.want.String()}, asked(c)); diff != "" {
						t.Errorf("%s\n%s: -want, +got:\n%s", tc.reason, what, diff)
					}
				})
			}
		})
	}
}

// TestAnnounce: events on the object report its arrival, failures and corrections.
func TestAnnounce(t *testing.T) {
	key := keyOf("configmaps", "web")
	condition := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: refractv1alpha1.ConditionSynced, Status: status, Reason: reason, Message: message}}
	}
	all, rejected := condition(metav1.ConditionTrue, reasonSynced, "all"), condition(metav1.ConditionFalse, reasonRejected, "eu-1: no")
	under := condition(metav1.ConditionFalse, reasonProgressing, "1 of 2")
	cases := map[string]struct {
		reason      string
		gone        bool
		before, now []metav1.Condition
		corrected   []string
		want        []string
	}{
		"Arrived":     {reason: "The object is synced for the first time.", now: all, want: []string{"Normal Synced all"}},
		"ArrivedThen": {reason: "The object is synced after a failure.", before: rejected, now: all, want: []string{"Normal Synced all"}},
		"Still":       {reason: "Nothing has changed.", before: all, now: all},
		"Underway":    {reason: "Progress is frequent.", before: all, now: under},
		"Fails":       {reason: "A user has to act.", before: under, now: rejected, want: []string{"Warning Rejected eu-1: no"}},
		"StillFails":  {reason: "The user was told already.", before: rejected, now: rejected},
		"Corrected":   {reason: "Each correction is announced.", before: all, now: all, corrected: []string{"eu-1: it was changed"}, want: []string{"Warning DriftCorrected eu-1: it was changed"}},
		"Gone":        {reason: "An object that is gone gets no events.", gone: true, now: rejected, corrected: []string{"eu-1: it was changed"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := station(t, nil, &replica{leads: true}, interceptor.Funcs{})
			told := make(chan string, 10)
			c.reporter.recorder = &events.FakeRecorder{Events: told}
			c.state.setDesired(key, &desiredState{}, previous{}, nil)
			for _, text := range tc.corrected {
				c.state.correct(key, text)
			}
			c.reporter.announce(key, &desiredState{gone: tc.gone, kind: "ConfigMap", gvr: configMaps}, known{conditions: tc.before}, nil, &refractv1alpha1.PropagationStatus{Conditions: tc.now})
			close(told)
			var got []string
			for event := range told {
				got = append(got, event)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nannounce(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
