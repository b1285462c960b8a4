package member

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/poll"
)

// other creates another name of the cluster m.
func (f *fleet) other(name string, annotations map[string]string) {
	f.t.Helper()
	fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: f.read().Spec}
	if err := f.Client.Create(f.t.Context(), fc); err != nil {
		f.t.Fatal(err)
	}
}

// lookAt reconciles a cluster and returns it; nil if it is gone.
func (f *fleet) lookAt(name string) *corev1alpha1.FederatedCluster {
	f.t.Helper()
	key := types.NamespacedName{Name: name}
	if _, err := f.Reconcile(f.t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		f.t.Fatalf("Reconcile(): %v", err)
	}
	fc := &corev1alpha1.FederatedCluster{}
	err := f.Client.Get(f.t.Context(), key, fc)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return fc
}

func (f *fleet) deleteOf(name string) {
	f.t.Helper()
	if err := f.Client.Delete(f.t.Context(), &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) placedOn() (names []string) {
	for _, c := range f.Set.Clusters() {
		names = append(names, c.Name)
	}
	return names
}

func TestSecondNameGoesWithoutADeletion(t *testing.T) {
	s := newStub(t)
	s.objects["configmaps"] = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web", UID: firstUID, ResourceVersion: "7"}}}
	f := newFleet(t, s.URL)
	if fc := f.look(); fc.Status.ClusterUID == "" || fc.Status.ClusterClaim != 1 {
		t.Errorf("want the cluster recorded, got %+v", fc.Status)
	}
	f.other("twin", nil)
	if got := messageOf(f.lookAt("twin"), corev1alpha1.ClusterReady); !strings.Contains(got, "`refract join twin --replaces m`") {
		t.Errorf("want a message with the remedy, got %q", got)
	}
	if got := f.placedOn(); !slices.Equal(got, []string{"m"}) {
		t.Errorf("want no placement on the second name, got %v", got)
	}
	// The first name is deleted while a second one exists. Both have the same copies.
	f.deleteOf("m")
	fc := f.look()
	if got := messageOf(fc, corev1alpha1.ClusterJoined); !strings.HasPrefix(got, "False Leaving: twin is another name of this cluster") {
		t.Errorf("want the first name to wait, got %q", got)
	}
	if f.Set.Leaving("m") || !slices.Equal(f.placedOn(), []string{"m"}) {
		t.Error("want the cluster served as before: it does not leave, so no copies are removed")
	}
	f.deleteOf("twin")
	if f.lookAt("twin") != nil {
		t.Error("want the second name deleted at once: it has no copies")
	}
	f.lookAt("twin") // The deletion event arrives.
	f.look()
	if !f.Set.Leaving("m") {
		t.Error("want the last name of the cluster to leave, with its copies")
	}
	s.set(func() {
		for _, request := range s.requests {
			if strings.HasPrefix(request, "DELETE") || strings.HasPrefix(request, "PATCH") {
				t.Errorf("want no write, got %s", request)
			}
		}
	})
}

func TestClusterGetsAnotherName(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	moved := false
	f.Set.Moved = func(string) bool { return moved }
	var said []string
	f.Set.OnRename = func(from, to string) {
		if f.Set.Get(from) != nil || f.Set.Get(to).Ready() {
			t.Error("want all work under the old name ended, and no work begun under the new one")
		}
		said = append(said, from+" to "+to)
	}
	f.look()
	f.other("new", map[string]string{refractv1alpha1.ReplacesAnnotation: "m"})
	f.deleteOf("m") // The user deletes the name too early.
	f.look()
	if f.Set.Leaving("m") {
		t.Error("want no copies removed while another name is to replace this one")
	}
	if fc := f.lookAt("new"); !isTrue(&fc.Status, corev1alpha1.ClusterReady) {
		t.Errorf("want the new name ready, got %+v", fc.Status)
	}
	if diff := cmp.Diff([]string{"m to new"}, said); diff != "" {
		t.Errorf("OnRename: -want, +got:\n%s", diff)
	}
	fc := f.look()
	if got := messageOf(fc, corev1alpha1.ClusterReady); !strings.HasPrefix(got, "False Renamed: the cluster is served as new") {
		t.Errorf("want a message about the replaced name, got %q", got)
	}
	if got := f.placedOn(); !slices.Equal(got, []string{"new"}) {
		t.Errorf("want the new name in place of the old one, got %v", got)
	}
	moved = true
	if f.look() != nil {
		t.Error("want the old name deleted when no row names it any more")
	}
	f.look()
	if got := f.Set.Successor("m"); got != "new" {
		t.Errorf("want late rows with the old name read as rows of the new name, got %q", got)
	}

	// Another process learns the current state.
	again := &Reconciler{Client: f.Client, Secrets: f.Secrets, Set: &Set{OnCopy: func(*Member, Key) {}, OnChange: func(string) {}}, SystemNamespace: "sys"}
	t.Cleanup(again.Set.Close)
	if err := again.followAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := again.Set.Successor("m"); got != "new" {
		t.Errorf("want the rename known after a restart, too, got %q", got)
	}
}

// TestPendingDeletionsMove: a replaced name has pending deletions. They count for the name that is served instead, and
// the replaced name stays until the status of the other one lists them.
func TestPendingDeletionsMove(t *testing.T) {
	of := func(name string) corev1alpha1.PendingDeletion {
		return corev1alpha1.PendingDeletion{Resource: "configmaps", Namespace: "d", Name: name, UID: "1", Cause: "Deleted"}
	}
	api, web := of("api"), of("web")
	for name, tc := range map[string]struct {
		reason string
		next   []corev1alpha1.PendingDeletion // What the new name is to list.
		stays  bool
	}{
		"Open": {"The copy is still to be deleted.", []corev1alpha1.PendingDeletion{web}, true},
		"Done": {"The copy is gone: nothing would ever list it again.", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, newStub(t).URL)
			f.Set.Moved = func(string) bool { return true }
			owed := map[string][]corev1alpha1.PendingDeletion{"m": {api, web}}
			f.Owed = func(name string) []corev1alpha1.PendingDeletion { return owed[name] }
			f.look()
			f.other("new", map[string]string{refractv1alpha1.ReplacesAnnotation: "m"})
			f.lookAt("new")
			want := map[string]corev1alpha1.PendingDeletion{"new": web}
			if diff := cmp.Diff(want, f.Set.Owed(OwedKey(&web))); diff != "" {
				t.Errorf("%s\nOwed(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]corev1alpha1.PendingDeletion{api, web}, f.Set.OwedBy("new")); diff != "" {
				t.Errorf("%s\nOwedBy(): -want, +got:\n%s", tc.reason, diff)
			}
			f.deleteOf("m")
			owed = map[string][]corev1alpha1.PendingDeletion{"m": tc.next, "new": tc.next}
			if fc := f.look(); (fc != nil) != tc.stays || fc != nil && !cmp.Equal(tc.next, fc.Status.PendingDeletions) {
				t.Errorf("%s\nwant the replaced name to stay %t, with the copies that the new name does not list, got %+v", tc.reason, tc.stays, fc)
			}
			if diff := cmp.Diff(tc.next, f.lookAt("new").Status.PendingDeletions); diff != "" {
				t.Errorf("%s\nstatus of the new name: -want, +got:\n%s", tc.reason, diff)
			}
			// This process has not read the status of the replaced name since it was written without api.
			if diff := cmp.Diff([]corev1alpha1.PendingDeletion{web, api}, f.Set.OwedBy("new")); tc.stays && diff != "" {
				t.Errorf("%s\nboth names list the copy: want it once: -want, +got:\n%s", tc.reason, diff)
			}
			if tc.stays && f.look() != nil {
				t.Errorf("%s\nwant the replaced name deleted when the new one lists the copy", tc.reason)
			}
		})
	}
}

// TestNameIsServedAgain: the name that replaced another one is gone, or now belongs to another cluster, for example
// because the cluster was rebuilt. The process knew the replacement, and no longer uses it.
func TestNameIsServedAgain(t *testing.T) {
	cases := map[string]struct {
		reason string
		undo   func(f *fleet)
		want   []string
	}{
		"Gone": {
			reason: "The new name was removed, and its copies were left in place.", want: []string{"m"},
			undo: func(f *fleet) {
				fc := &corev1alpha1.FederatedCluster{}
				if err := f.Client.Get(f.t.Context(), types.NamespacedName{Name: "new"}, fc); err != nil {
					f.t.Fatal(err)
				}
				if err := Release(f.t.Context(), f.Client, fc); err != nil {
					f.t.Fatal(err)
				}
				f.lookAt("new")
			},
		},
		"Another": {
			reason: "The new name belongs to another cluster.", want: []string{"m", "new"},
			undo: func(f *fleet) {
				fc := &corev1alpha1.FederatedCluster{}
				if err := f.Client.Get(f.t.Context(), types.NamespacedName{Name: "new"}, fc); err != nil {
					f.t.Fatal(err)
				}
				fc.Status.ClusterUID, fc.Status.ClusterClaim = "another", 1
				if err := f.Client.Status().Update(f.t.Context(), fc); err != nil {
					f.t.Fatal(err)
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, newStub(t).URL)
			f.look()
			f.other("new", map[string]string{refractv1alpha1.ReplacesAnnotation: "m"})
			f.lookAt("new")
			if f.look(); f.Set.Successor("m") != "new" {
				t.Fatal("want the name replaced")
			}
			tc.undo(f)
			if fc := f.look(); !isTrue(&fc.Status, corev1alpha1.ClusterReady) {
				t.Errorf("%s\nwant the name served again, got %s", tc.reason, messageOf(fc, corev1alpha1.ClusterReady))
			}
			if got := f.Set.Successor("m"); got != "" {
				t.Errorf("%s\nwant rows of the name kept, got them read as rows of %s", tc.reason, got)
			}
			if got := f.placedOn(); !slices.Equal(got, tc.want) {
				t.Errorf("%s\nwant placements on %v, got %v", tc.reason, tc.want, got)
			}
		})
	}
}

// TestClusterIsBuiltAnewUnderTwoNames: a rebuilt cluster has the same address, another UID and no copies. The replica
// that serves the second name notices this first.
func TestClusterIsBuiltAnewUnderTwoNames(t *testing.T) {
	cases := map[string]struct {
		reason string
		known  bool                // Whether the second name was reconciled before.
		then   func(*fleet, *stub) // After the second name has noticed.
		want   map[string]string   // The reason of the condition Ready of each name in the end.
	}{
		"Joined": {
			reason: "The cluster is identified through the served name at once, and stays served under it.",
			then:   func(f *fleet, _ *stub) { f.look() }, want: map[string]string{"m": "Ready", "twin": "DuplicateCluster"},
		},
		"WasDuplicate": {
			reason: "The time as a second name does not count as waiting.", known: true,
			then: func(f *fleet, _ *stub) { f.look() }, want: map[string]string{"m": "Ready", "twin": "DuplicateCluster"},
		},
		"NoAnswer": {
			reason: "The first name is identified again until its cluster has answered.",
			then: func(f *fleet, s *stub) {
				s.set(func() { s.refuse["GET namespaces"] = apierrors.NewTooManyRequests("later", 1) })
				f.look()
				s.set(func() { delete(s.refuse, "GET namespaces") })
				f.look()
			},
			want: map[string]string{"m": "Ready", "twin": "DuplicateCluster"},
		},
		"NobodyAsks": {
			reason: "The replica of the first name is gone, but the cluster is served nevertheless.",
			then: func(f *fleet, _ *stub) {
				later := time.Now().Add(patienceWithOthers)
				f.Now = func() time.Time { return later }
				f.lookAt("twin")
				f.look()
			},
			want: map[string]string{"m": "DuplicateCluster", "twin": "Ready"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			f := newFleet(t, s.URL)
			f.look()
			f.look()
			f.other("twin", nil)
			if tc.known {
				start := time.Now()
				f.Now = func() time.Time { return start.Add(-time.Hour) }
				f.lookAt("twin")
				f.Now = nil
			}
			s.set(func() { s.life = 1 })
			for range 3 { // The member is connected again first.
				if fc := f.lookAt("twin"); isTrue(&fc.Status, corev1alpha1.ClusterReady) {
					t.Fatalf("%s\nwant no writes through the second name while the first one is served", tc.reason)
				}
			}
			var asked []string
			for len(f.Set.rechecks()) > 0 {
				asked = append(asked, (<-f.Set.rechecks()).Object.GetName())
			}
			if n := len(slices.DeleteFunc(asked, func(name string) bool { return name != "m" })); n != 1 {
				t.Errorf("%s\nwant one immediate reconciliation of the first name, got %d", tc.reason, n)
			}
			tc.then(f, s)
			got := map[string]string{}
			for range 3 {
				for _, name := range []string{"m", "twin"} {
					for _, c := range f.lookAt(name).Status.Conditions {
						if c.Type == corev1alpha1.ClusterReady {
							got[name] = c.Reason
						}
					}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nReady: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestHubIsRestored: the process serves a cluster under the name m while the hub is restored from a backup. In most
// cases the backup differs in the record of the cluster in the status of m. In one case another name was served at the
// time of the backup. Later a second name for the cluster joins.
func TestHubIsRestored(t *testing.T) {
	cases := map[string]struct {
		reason   string
		restored func(current types.UID) (uid types.UID, rank int64)
		served   bool // Whether the second name is the served one in the backup.
		keeps    bool // Whether the process keeps its connection.
		want     map[string]string
	}{
		"Rebuilt": {
			reason:   "The backup is older than a rebuild of the cluster.",
			restored: func(types.UID) (types.UID, int64) { return "before", 1 },
			want:     map[string]string{"m": "Ready", "twin": "DuplicateCluster"},
		},
		"NotClaimed": {
			reason:   "The backup is older than the first contact, or a client has removed the status.",
			restored: func(types.UID) (types.UID, int64) { return "", 0 },
			want:     map[string]string{"m": "Ready", "twin": "DuplicateCluster"},
		},
		"NoRank": {
			reason:   "The backup is from the moment between the two writes of a claim.",
			restored: func(current types.UID) (types.UID, int64) { return current, 0 },
			want:     map[string]string{"m": "Ready", "twin": "DuplicateCluster"},
		},
		"Unchanged": {
			reason:   "The backup has the same record, so the copies need no new list.",
			restored: func(current types.UID) (types.UID, int64) { return current, 1 },
			keeps:    true,
			want:     map[string]string{"m": "Ready", "twin": "DuplicateCluster"},
		},
		"WasDuplicate": {
			reason:   "The backup is older than the removal of the other name, which was served.",
			restored: func(current types.UID) (types.UID, int64) { return current, 2 },
			served:   true, keeps: true,
			want: map[string]string{"m": "DuplicateCluster", "twin": "Ready"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, newStub(t).URL)
			fc := f.look()
			m, current := f.Set.Get("m"), fc.Status.ClusterUID
			f.record("m")(tc.restored(current))
			if tc.served {
				f.other("twin", nil)
				f.record("twin")(current, 1)
			}
			fc = f.look()
			if ready := isTrue(&fc.Status, corev1alpha1.ClusterReady); ready != tc.keeps || (f.Set.Get("m") == m && m.Ready()) != tc.keeps {
				t.Errorf("%s\nwant writes before the next claim: %v, got %s", tc.reason, tc.keeps, messageOf(fc, corev1alpha1.ClusterReady))
			}
			if !tc.served {
				f.look()
				f.other("twin", nil)
			}
			fc = f.lookAt("twin")
			if isTrue(&fc.Status, corev1alpha1.ClusterReady) && f.Set.Get("m") != nil {
				t.Errorf("%s\nwant all work under the first name ended before the first write under the second one", tc.reason)
			}
			got := map[string]string{}
			for _, name := range []string{"m", "twin"} {
				for _, c := range f.lookAt(name).Status.Conditions {
					if c.Type == corev1alpha1.ClusterReady {
						got[name] = c.Reason
					}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nReady: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// record returns a function that writes the record of a name, like a restore of the hub.
func (f *fleet) record(name string) func(uid types.UID, rank int64) {
	return func(uid types.UID, rank int64) {
		f.t.Helper()
		fc := &corev1alpha1.FederatedCluster{}
		if err := f.Client.Get(f.t.Context(), types.NamespacedName{Name: name}, fc); err != nil {
			f.t.Fatal(err)
		}
		fc.Status.ClusterUID, fc.Status.ClusterClaim = uid, rank
		if err := f.Client.Status().Update(f.t.Context(), fc); err != nil {
			f.t.Fatal(err)
		}
	}
}

func TestForget(t *testing.T) {
	const uid = types.UID("7")
	secret := func(change func(*corev1.Secret)) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: corev1alpha1.SystemNamespace, Name: "m", UID: "s"}}
		change(s)
		return s
	}
	joined := func(s *corev1.Secret) {
		s.Labels = map[string]string{refractv1alpha1.JoinedLabel: "true"}
		s.Annotations = map[string]string{refractv1alpha1.JoinedAnnotation: string(uid)}
	}
	cases := map[string]struct {
		reason string
		secret *corev1.Secret
		more   []client.Object
		stays  string
	}{
		"Joined": {reason: "The Secret was created for this cluster.", secret: secret(joined)},
		"Inventory": {reason: "The Secret of an inventory was created for this cluster.", secret: secret(func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: corev1alpha1.GroupVersion.String(), Kind: "FederatedCluster", Name: "m", UID: uid, Controller: new(true)}}
		})},
		"ByHand": {
			reason: "A user created the Secret, or a version of refract join that did not mark it.", secret: secret(func(*corev1.Secret) {}),
			stays: "secret kube-admiral-system/m stays: it is not marked as created by refract join for this cluster",
		},
		"OfAnother": {
			reason: "The Secret was created for an earlier cluster of this name.",
			secret: secret(func(s *corev1.Secret) { joined(s); s.Annotations[refractv1alpha1.JoinedAnnotation] = "6" }),
			stays:  "secret kube-admiral-system/m stays: it is not marked as created by refract join for this cluster",
		},
		"Shared": {
			reason: "Another cluster refers to the Secret.", secret: secret(joined),
			more: []client.Object{&corev1alpha1.FederatedCluster{
				ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1alpha1.FederatedClusterSpec{SecretRef: corev1alpha1.LocalSecretReference{Name: "m"}},
			}},
			stays: "secret kube-admiral-system/m stays: cluster other refers to it, too",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, corev1alpha1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(tc.more, tc.secret)...).Build()
			fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: uid}}
			fc.Spec.SecretRef.Name = "m"
			stays, err := Forget(t.Context(), hub, corev1alpha1.SystemNamespace, fc)
			if err != nil || stays != tc.stays {
				t.Errorf("%s\nForget(): want %q, got %q, %v", tc.reason, tc.stays, stays, err)
			}
			err = hub.Get(t.Context(), client.ObjectKeyFromObject(tc.secret), &corev1.Secret{})
			if apierrors.IsNotFound(err) != (tc.stays == "") {
				t.Errorf("%s\nwant the Secret deleted: %v, got %v", tc.reason, tc.stays == "", err)
			}
		})
	}
}

func TestSlowRenameHoldsUpNoOtherCluster(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	var renamed atomic.Bool
	f.Set.OnRename = func(string, string) { renamed.Store(true) }
	f.look()
	begun, answer := make(chan struct{}), make(chan struct{})
	m := f.Set.Get("m")
	go func() {
		_ = m.api.request(t.Context(), func(context.Context) error { // It returns no error.
			close(begun)
			<-answer
			return nil
		})
	}()
	<-begun
	f.other("new", map[string]string{refractv1alpha1.ReplacesAnnotation: "m"})
	var looking sync.WaitGroup
	looking.Go(func() { f.lookAt("new") })
	poll.Until(t, "the rename has begun", func() bool { return f.Set.Successor("m") == "new" })

	looking.Go(func() { f.look() })
	others := make(chan error, 1)
	go func() {
		_, _, err := f.follow(t.Context(), "another")
		others <- errors.Join(err, f.left(t.Context(), "one that is gone"))
	}()
	select {
	case err := <-others:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("want no delay of other names by a cluster that answers slowly")
	}
	if n := f.Set.Get("new"); renamed.Load() || n != nil && n.Ready() {
		t.Error("want no work under the new name before all work under the old one has ended")
	}
	close(answer)
	looking.Wait()
	if !renamed.Load() || !f.Set.Get("new").Ready() {
		t.Error("want the new name served when all work under the old one has ended")
	}
}
