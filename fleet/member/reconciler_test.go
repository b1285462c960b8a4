package member

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/poll"
)

// fleet is a hub with one cluster, and its reconciler.
type fleet struct {
	*Reconciler

	t *testing.T
}

func newFleet(t *testing.T, endpoint string) *fleet {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, corev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	fc.Spec = corev1alpha1.FederatedClusterSpec{APIEndpoint: endpoint, Insecure: true, SecretRef: corev1alpha1.LocalSecretReference{Name: "m"}}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "m", Annotations: destination(endpoint, true)},
		Data:       map[string][]byte{corev1alpha1.SecretServiceAccountToken: []byte("t")},
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(fc, secret).WithStatusSubresource(fc).Build()
	f := &fleet{t: t, Reconciler: &Reconciler{
		Client:          hub,
		Secrets:         direct{hub},
		Set:             &Set{OnCopy: func(*Member, Key) {}, OnChange: func(string) {}},
		SystemNamespace: "sys",
	}}
	t.Cleanup(f.Set.Close)
	return f
}

// direct reads the current Secrets, without a cache.
type direct struct{ client.Reader }

func (d direct) Read(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	return secret, d.Get(ctx, types.NamespacedName{Namespace: "sys", Name: name}, secret)
}

func (direct) Changes() <-chan event.GenericEvent { return nil }

// look reconciles the cluster and returns it; nil if it is gone.
func (f *fleet) look() *corev1alpha1.FederatedCluster {
	f.t.Helper()
	if _, err := f.Reconcile(f.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "m"}}); err != nil {
		f.t.Fatalf("Reconcile(): %v", err)
	}
	return f.read()
}

func (f *fleet) read() *corev1alpha1.FederatedCluster {
	f.t.Helper()
	fc := &corev1alpha1.FederatedCluster{}
	err := f.Client.Get(f.t.Context(), types.NamespacedName{Name: "m"}, fc)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return fc
}

func (f *fleet) delete() {
	f.t.Helper()
	if err := f.Client.Delete(f.t.Context(), f.read()); err != nil {
		f.t.Fatal(err)
	}
}

func messageOf(fc *corev1alpha1.FederatedCluster, kind corev1alpha1.ClusterConditionType) string {
	for _, c := range fc.Status.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
	}
	return ""
}

func TestClusterLeavesWhenItsCopiesAreGone(t *testing.T) {
	s := newStub(t)
	s.objects["configmaps"] = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web", UID: firstUID, ResourceVersion: "7"}}}
	f := newFleet(t, s.URL)
	recorded := false
	f.Set.Emptied = func(string) bool { return recorded }
	fc := f.look()
	if !slices.Contains(fc.Finalizers, refractv1alpha1.Finalizer) || !isTrue(&fc.Status, corev1alpha1.ClusterReady) {
		t.Fatalf("want a ready cluster with a finalizer: got %v, %+v", fc.Finalizers, fc.Status)
	}
	m := f.Set.Get("m")
	poll.Until(t, "only the copy is found", func() bool { return m.Copies.Count() == 1 && m.Copies.complete() })

	f.delete()
	f.look()
	fc = f.look()
	if got, want := messageOf(fc, corev1alpha1.ClusterJoined), "False Leaving: copies on it that are still to be removed: 1"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	if !f.Set.Leaving("m") || len(f.Set.Clusters()) != 0 || f.Set.Get("m") != m || !m.Ready() {
		t.Error("want a leaving cluster to get writes, but no placements")
	}
	m.Copies.Forget(Key{configMaps.GroupResource(), webName})
	if fc = f.look(); fc == nil || !strings.Contains(messageOf(fc, corev1alpha1.ClusterJoined), "is being recorded") {
		t.Errorf("want the cluster to wait for the Propagations with its copies: got %+v", fc)
	}
	recorded = true
	if fc = f.look(); fc != nil {
		t.Errorf("want the cluster gone: got %+v", fc.Status)
	}
	f.look()
	if f.Set.Known("m") {
		t.Error("want the cluster forgotten")
	}
}

// TestClusterSaysWhichCopiesKeepIt: the status names copies whose finalizers a user must remove, because the hub may no
// longer have Propagations that would report them.
func TestClusterSaysWhichCopiesKeepIt(t *testing.T) {
	now := metav1.Now()
	s := newStub(t)
	for _, name := range []string{"web", "api", "old", "db", "page"} {
		going := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID("u-" + name), ResourceVersion: "7"}}
		if name != "page" {
			going.DeletionTimestamp, going.Finalizers = &now, []string{"example.com/hold"}
		}
		s.objects["configmaps"] = append(s.objects["configmaps"], going)
	}
	f := newFleet(t, s.URL)
	f.look()
	m := f.Set.Get("m")
	poll.Until(t, "the copies are found", func() bool { return m.Copies.Count() == 5 && m.Copies.complete() })
	f.delete()
	f.look()
	for _, tc := range []struct{ gone, want string }{
		{"", "False Leaving: copies on it that are still to be removed: 5; being deleted, and kept by finalizers on the cluster: " +
			"configmaps d/api, configmaps d/db, configmaps d/old and 1 more"},
		{"db", "False Leaving: copies on it that are still to be removed: 4; being deleted, and kept by finalizers on the cluster: " +
			"configmaps d/api, configmaps d/old, configmaps d/web"},
	} {
		m.Copies.Forget(Key{configMaps.GroupResource(), types.NamespacedName{Namespace: "d", Name: tc.gone}})
		if got := messageOf(f.look(), corev1alpha1.ClusterJoined); got != tc.want {
			t.Errorf("want %q, got %q", tc.want, got)
		}
	}
}

// TestClusterLeavesWhenAllKnow: a decision from before the cluster was known to leave may still be carried out, so the
// cluster does not leave in the first reconciliation.
func TestClusterLeavesWhenAllKnow(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	f.look()
	m := f.Set.Get("m")
	poll.Until(t, "the search finds no copies", m.Copies.complete)
	f.delete()
	if fc := f.look(); fc == nil || !f.Set.Leaving("m") {
		t.Error("first reconciliation: want the cluster still there, and known to leave")
	}
	if fc := f.look(); fc != nil {
		t.Errorf("second reconciliation: want the cluster gone, got %+v", fc.Status)
	}
}

// TestClusterIsLost: a cluster becomes not ready only after several probes without an answer. After a single lost
// answer, the objects of the hub must not all be decided again.
func TestClusterIsLost(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	f.look()
	s.set(func() { s.down = true })
	for i := range missesUntilLost {
		ready := isTrue(&f.look().Status, corev1alpha1.ClusterReady)
		if want := i+1 < missesUntilLost; ready != want {
			t.Errorf("%d probes without an answer: want ready %t, got %t", i+1, want, ready)
		}
	}
	s.set(func() { s.down = false })
	if !isTrue(&f.look().Status, corev1alpha1.ClusterReady) {
		t.Error("after an answer: want the cluster ready")
	}
	s.set(func() { s.down = true })
	if !isTrue(&f.look().Status, corev1alpha1.ClusterReady) {
		t.Error("one probe without an answer: want earlier failed probes forgotten")
	}
}

func TestClusterThatIsLostStays(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	f.look()
	s.set(func() { s.down = true })
	for range missesUntilLost {
		f.look()
	}
	f.delete()
	f.look()
	if fc := f.look(); fc == nil || !strings.Contains(messageOf(fc, corev1alpha1.ClusterJoined), "`refract unjoin m --force`") {
		t.Errorf("want a message with the way to let the cluster leave: got %+v", fc)
	}
}

// TestReplacedCluster: a cluster comes back empty or in an older state after an outage of any length. Then all data
// about it is invalid, although watches do not notice this.
func TestReplacedCluster(t *testing.T) {
	cases := map[string]struct {
		reason string
		misses int
		change func(*stub)
		want   string // The message of the condition Ready; "" if it is the same cluster.
	}{
		"Empty":         {"One probe failed.", 1, func(s *stub) { s.life, s.revision = 1, 5 }, "another cluster, or this one without its data, "},
		"EmptyLong":     {"The outage was long.", missesUntilLost, func(s *stub) { s.life, s.revision = 1, 5 }, "another cluster, or this one without its data, "},
		"EmptyAndAhead": {"The new cluster has more writes than the old one.", missesUntilLost, func(s *stub) { s.life, s.revision = 1, 5000 }, "another cluster, "},
		"Older":         {"The cluster was restored from a backup.", 1, func(s *stub) { s.revision = 39 }, "its data is older than before, "},
		"OlderLong":     {"The restore from a backup took long.", missesUntilLost, func(s *stub) { s.revision = 39 }, "its data is older than before, "},
		"OlderUnseen":   {"No probe failed, but the regular identification is due.", 0, func(s *stub) { s.revision = 39 }, "its data is older than before, "},
		"EmptyUnseen":   {"No probe failed, but the regular identification is due.", 0, func(s *stub) { s.life = 1 }, "another cluster, "},
		"Same":          {"The same cluster was unreachable.", missesUntilLost, func(*stub) {}, ""},
		"Newer":         {"Other clients have written to the same cluster.", 1, func(s *stub) { s.revision = 41 }, ""},
		"Silent":        {"The cluster does not return a revision.", 1, func(s *stub) { s.revision = 0 }, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			f := newFleet(t, s.URL)
			f.look()
			m := f.Set.Get("m")
			s.set(func() { s.down = true })
			for range tc.misses {
				f.look()
			}
			s.set(func() { s.down = false; tc.change(s) })
			if tc.misses == 0 {
				m.probes = probesUntilAsked
			}
			got := messageOf(f.look(), corev1alpha1.ClusterReady)
			if tc.want == "" {
				if now := f.Set.Get("m"); !strings.HasPrefix(got, "True Ready: ") || now != m {
					t.Errorf("%s\nwant no change, got %q", tc.reason, got)
				}
				return
			}
			if want := "False Replaced: " + tc.want; !strings.HasPrefix(got, want) {
				t.Errorf("%s\nwant %q, got %q", tc.reason, want, got)
			}
			fc := f.look()
			if now := f.Set.Get("m"); !isTrue(&fc.Status, corev1alpha1.ClusterReady) || now == nil || now == m || m.api.lifetime.ctx.Err() == nil {
				t.Errorf("%s\nwant the cluster ready, with new watches: got %+v", tc.reason, fc.Status)
			}
		})
	}
}

// TestClusterThatWatchesAreAheadOf: a cluster is restored to the state of its last identification. Only watches have
// shown newer versions.
func TestClusterThatWatchesAreAheadOf(t *testing.T) {
	s, f, _ := watchedAhead(t)
	s.set(func() { s.down = true })
	f.look()
	s.set(func() { s.down, s.revision = false, 50 })
	if got, want := messageOf(f.look(), corev1alpha1.ClusterReady), "False Replaced: its data is older"; !strings.HasPrefix(got, want) {
		t.Errorf("want %q, got %q", want, got)
	}
}

// watchedAhead returns a member that was identified at revision 40, and whose watches have shown revision 60.
func watchedAhead(t *testing.T) (*stub, *fleet, *Member) {
	t.Helper()
	s := newStub(t)
	f := newFleet(t, s.URL)
	f.look()
	m := f.Set.Get("m")
	s.set(func() { s.revision = 60 })
	<-m.Copies.Watch(configMaps)
	return s, f, m
}

// TestRestoredBetweenChecks: a cluster is restored from a backup while no check is due. Its watches break, and continue
// from versions that the cluster has not reached.
func TestRestoredBetweenChecks(t *testing.T) {
	s, f, m := watchedAhead(t)
	f.look()
	s.set(func() {
		s.revision, s.refuse["GET namespaces"] = 50, apierrors.NewInternalError(errors.New("starting"))
	})
	var goesOn atomic.Bool
	resumes(resumable(t.Context(), &goesOn, &m.api.broke))
	if got := messageOf(f.look(), corev1alpha1.ClusterReady); !strings.HasPrefix(got, "True") {
		t.Errorf("want the cluster ready while its identity cannot be read, got %q", got)
	}
	s.set(func() { delete(s.refuse, "GET namespaces") })
	if got, want := messageOf(f.look(), corev1alpha1.ClusterReady), "False Replaced: its data is older"; !strings.HasPrefix(got, want) {
		t.Errorf("want %q, got %q", want, got)
	}
}

func TestClusterThatWasNeverReadyLeavesAtOnce(t *testing.T) {
	f := newFleet(t, "ftp://nowhere")
	f.look()
	f.delete()
	f.look()
	if fc := f.look(); fc != nil {
		t.Errorf("want the cluster gone, because it cannot have copies; got %+v", fc.Status)
	}
}

func TestClustersOfOtherReplicas(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	mine := true
	f.Leads = func() bool { return mine }
	f.look()
	m := f.Set.Get("m")
	if m == nil || !m.Ready() {
		t.Fatal("want a ready member")
	}
	mine = false
	f.Set.Disown("m")
	if m.api.lifetime.ctx.Err() == nil || f.Set.Get("m") != nil || !f.Set.Known("m") {
		t.Error("Disown(): want the member closed and the cluster known")
	}
	if _, err := f.Set.connect("m", s.config(), f.leads); err == nil || f.Set.Get("m") != nil {
		t.Error("connect(): want no new member from a reconciliation that began earlier")
	}
	f.look()
	if c := f.Set.Clusters(); len(c) != 1 || !c[0].Ready || f.Set.Get("m") != nil {
		t.Errorf("want the cluster ready as the leader reports, and no connection: got %+v", c)
	}
	fc := f.read()
	before := fc.DeepCopy()
	setConditions(&fc.Status, health{offline: true, reason: "Unreachable"}, metav1.Now())
	if !f.concerns(event.UpdateEvent{ObjectOld: before, ObjectNew: fc}) {
		t.Error("concerns(): want true for a report of the leader")
	}
	if err := f.Client.Status().Update(t.Context(), fc); err != nil {
		t.Fatal(err)
	}
	f.look()
	if c := f.Set.Clusters(); len(c) != 1 || c[0].Ready {
		t.Errorf("want the cluster not ready as the leader reports: got %+v", c)
	}
	mine = true
	if f.concerns(event.UpdateEvent{ObjectOld: before, ObjectNew: fc}) {
		t.Error("concerns(): want false for a report of this replica")
	}
	f.look()
	if m := f.Set.Get("m"); m == nil || !m.Ready() {
		t.Error("want the member connected again")
	}
}

func TestHeldDeletionsAreReported(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	known := true
	held := &corev1alpha1.DeletionsHeld{
		Token: "0af3-X", Copies: 20, Of: 21, Groups: []corev1alpha1.HeldDeletions{{Namespace: "a", Cause: "which went", Copies: 20, Of: 20}},
	}
	f.Pending = func(string) (*corev1alpha1.DeletionsHeld, bool) { return held, known }
	const want = "True AwaitingApproval: 20 of 21 copies wait for approval of their deletion (20 of 20 copies in namespace a, " +
		"which went): `refract approve m` shows and approves them; objects that return to the hub stay"
	for _, step := range []struct {
		reason string
		held   *corev1alpha1.DeletionsHeld
		known  bool
		want   *corev1alpha1.DeletionsHeld
	}{
		{"The message comes from the fields.", held, true, held},
		{"After a start the deletions are unknown: the status stays.", nil, false, held},
		{"No deletions wait.", nil, true, nil},
	} {
		held, known = step.held, step.known
		fc := f.look()
		if diff := cmp.Diff(step.want, fc.Status.DeletionsHeld); diff != "" {
			t.Errorf("%s\ndeletionsHeld: -want, +got:\n%s", step.reason, diff)
		}
		got := messageOf(fc, corev1alpha1.ClusterDeletionsHeld)
		if held := step.want != nil; held != (got == want) || held == strings.HasPrefix(got, "False ") {
			t.Errorf("%s\nwant the condition present: %t, got %q", step.reason, held, got)
		}
	}
}

// TestPendingDeletionsAreWritten: the status of a cluster lists its pending deletions, and a new replica reads them.
func TestPendingDeletionsAreWritten(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	owed := []corev1alpha1.PendingDeletion{{Resource: "deployments.apps", Namespace: "shop", Name: "web", UID: "1", Cause: "Deleted"}}
	key := Key{GroupResource: schema.GroupResource{Group: "apps", Resource: "deployments"}, NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
	f.Owed = func(string) []corev1alpha1.PendingDeletion { return owed }
	standby := &Set{OnChange: func(string) {}} // It knows the cluster from the beginning.
	for _, step := range []struct {
		reason string
		owed   []corev1alpha1.PendingDeletion
	}{{"The copy must be deleted.", owed}, {"The copy is gone.", nil}} {
		owed = step.owed
		fc := f.look()
		if diff := cmp.Diff(step.owed, fc.Status.PendingDeletions); diff != "" {
			t.Errorf("%s\nstatus: -want, +got:\n%s", step.reason, diff)
		}
		standby.introduce(fc)
		if diff := cmp.Diff(step.owed, standby.OwedBy(fc.Name)); diff != "" {
			t.Errorf("%s\na replica that begins to lead: -want, +got:\n%s", step.reason, diff)
		}
		after := &Set{OnChange: func(string) {}}
		after.introduce(fc)
		read := after.Owed(key)
		all := after.AllOwed()
		if len(read) != len(step.owed) || len(all) != len(step.owed) || len(after.OwedBy(fc.Name)) != len(step.owed) {
			t.Errorf("%s\nanother replica: want %v, got %v for the copy, %v for all copies", step.reason, step.owed, read, all)
		}
		after.remove(fc.Name)
		if len(after.owed) > 0 {
			t.Errorf("%s\nthe cluster has left: want no pending deletions, got %v", step.reason, after.owed)
		}
	}
}

// TestUsedApprovalsAreTakenBack: an approval is valid once, for the deletions that waited when it was given.
func TestUsedApprovalsAreTakenBack(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	used := ""
	f.Used = func(string) string { return used }
	fc := f.look()
	metav1.SetMetaDataAnnotation(&fc.ObjectMeta, refractv1alpha1.ApproveAnnotation, "0af3")
	if err := f.Client.Update(t.Context(), fc); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ reason, used, want string }{
		{"The approval was not used yet.", "", "0af3"},
		{"An earlier approval was used.", "0af2", "0af3"},
		{"The approval was used.", "0af3", ""},
	} {
		used = step.used
		if got := f.look().Annotations[refractv1alpha1.ApproveAnnotation]; got != step.want {
			t.Errorf("%s\nannotation: want %q, got %q", step.reason, step.want, got)
		}
	}
}

func TestStatusIsWrittenWhenSomethingChanged(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	first := f.look()
	if again := f.look(); again.ResourceVersion != first.ResourceVersion {
		t.Errorf("want no write for an unchanged cluster: got version %s after %s", again.ResourceVersion, first.ResourceVersion)
	}
}

func TestTwoNamesForOneCluster(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	f.look()
	other := f.read()
	other.ObjectMeta = metav1.ObjectMeta{Name: "twin"}
	if err := f.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "twin"}}); err != nil {
		t.Fatal(err)
	}
	if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
		t.Fatal(err)
	}
	if got := messageOf(other, corev1alpha1.ClusterReady); !strings.HasPrefix(got, "False DuplicateCluster: this cluster is served as m") {
		t.Errorf("want the second name rejected, got %q", got)
	}
}

// TestTokenStaysWhereItWasJoined: the author of a FederatedCluster who may not read Secrets does not obtain the
// credentials.
func TestTokenStaysWhereItWasJoined(t *testing.T) {
	s, attacker := newStub(t), newStub(t)
	f := newFleet(t, s.URL)
	f.look()
	fc := f.read()
	fc.Spec.APIEndpoint = attacker.URL
	if err := f.Client.Update(t.Context(), fc); err != nil {
		t.Fatal(err)
	}
	if got, want := messageOf(f.look(), corev1alpha1.ClusterReady), "False EndpointNotRecorded: the credentials are not sent: secret sys/m records "+s.URL; !strings.HasPrefix(got, want) {
		t.Errorf("want %q, got %q", want, got)
	}
	attacker.set(func() {
		if len(attacker.peers) > 0 {
			t.Errorf("want no request, got %v", attacker.paths)
		}
	})
}

// TestRedirectIsNotFollowed: each request has the credentials, so a server that answers for a member could redirect
// them to another server.
func TestRedirectIsNotFollowed(t *testing.T) {
	attacker := newStub(t)
	front := httptest.NewTLSServer(http.RedirectHandler(attacker.URL+"/readyz?n=1", http.StatusTemporaryRedirect))
	t.Cleanup(front.Close)
	f := newFleet(t, front.URL)
	want := "False Redirected: " + front.URL + " answers with a redirect to \"" + attacker.URL + "\", where the credentials are not sent; "
	if got := messageOf(f.look(), corev1alpha1.ClusterReady); !strings.HasPrefix(got, want) {
		t.Errorf("want %q, got %q", want, got)
	}
	cfg := &rest.Config{Host: front.URL, BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	if _, err := answers(t.Context(), "eu-1", cfg); err == nil || !strings.Contains(err.Error(), "where the credentials are not sent") {
		t.Errorf("answers(): want no redirect followed when a cluster joins, got %v", err)
	}
	attacker.set(func() {
		if len(attacker.peers) > 0 {
			t.Errorf("want no request, got %v", attacker.paths)
		}
	})
}
