package member

import (
	"slices"
	"strings"
	"testing"

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
)

// other makes another name of the cluster m.
func (f *fleet) other(name string, annotations map[string]string) {
	f.t.Helper()
	fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: f.read().Spec}
	if err := f.Client.Create(f.t.Context(), fc); err != nil {
		f.t.Fatal(err)
	}
}

// lookAt has a cluster looked at and returns it; nil if it is gone.
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
		t.Errorf("want it recorded which cluster it is, got %+v", fc.Status)
	}
	f.other("twin", nil)
	if got := messageOf(f.lookAt("twin"), corev1alpha1.ClusterReady); !strings.Contains(got, "`refract join twin --replaces m`") {
		t.Errorf("want it said what to do, got %q", got)
	}
	if got := f.placedOn(); !slices.Equal(got, []string{"m"}) {
		t.Errorf("want nothing placed on the second name, got %v", got)
	}
	// The first name is deleted while there is a second one: the copies are those of both.
	f.deleteOf("m")
	fc := f.look()
	if got := messageOf(fc, corev1alpha1.ClusterJoined); !strings.HasPrefix(got, "False Leaving: twin is another name of this cluster") {
		t.Errorf("want it to wait, got %q", got)
	}
	if f.Set.Leaving("m") || !slices.Equal(f.placedOn(), []string{"m"}) {
		t.Error("want the cluster served as before: nothing is removed from one that does not leave")
	}
	f.deleteOf("twin")
	if f.lookAt("twin") != nil {
		t.Error("want the second name to go at once: it has no copies")
	}
	f.lookAt("twin") // It hears that it is gone.
	f.look()
	if !f.Set.Leaving("m") {
		t.Error("want the last name of the cluster to leave, with its copies")
	}
	s.set(func() {
		for _, request := range s.requests {
			if strings.HasPrefix(request, "DELETE") || strings.HasPrefix(request, "PATCH") {
				t.Errorf("want nothing written, got %s", request)
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
			t.Error("want all work under the old name ended, and none begun under the new one")
		}
		said = append(said, from+" to "+to)
	}
	f.look()
	f.other("new", map[string]string{refractv1alpha1.ReplacesAnnotation: "m", refractv1alpha1.ShardAnnotation: "m"})
	f.deleteOf("m") // Too early, by somebody who is in a hurry.
	f.look()
	if f.Set.Leaving("m") {
		t.Error("want nothing removed while another name is to take the place of this one")
	}
	if fc := f.lookAt("new"); !isTrue(&fc.Status, corev1alpha1.ClusterReady) {
		t.Errorf("want the new name ready, got %+v", fc.Status)
	}
	if diff := cmp.Diff([]string{"m to new"}, said); diff != "" {
		t.Errorf("OnRename: -want, +got:\n%s", diff)
	}
	fc := f.look()
	if got := messageOf(fc, corev1alpha1.ClusterReady); !strings.HasPrefix(got, "False Renamed: the cluster is served as new") {
		t.Errorf("want it said what became of the old name, got %q", got)
	}
	if got := f.placedOn(); !slices.Equal(got, []string{"new"}) {
		t.Errorf("want the new name in the place of the old one, got %v", got)
	}
	moved = true
	if f.look() != nil {
		t.Error("want the old name to go when no row has it any more")
	}
	f.look()
	if got := f.Set.Successor("m"); got != "new" {
		t.Errorf("want rows that a replica is late with read as those of the new name, got %q", got)
	}

	// Another process finds how things are.
	again := &Reconciler{Client: f.Client, Secrets: f.Secrets, Set: &Set{OnCopy: func(*Member, Key) {}, OnChange: func(string) {}}, SystemNamespace: "sys"}
	t.Cleanup(again.Set.Close)
	if err := again.followAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := again.Set.Successor("m"); got != "new" {
		t.Errorf("want it known after a restart, too, got %q", got)
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
		"Joined": {reason: "It was created for this cluster.", secret: secret(joined)},
		"Inventory": {reason: "So was this.", secret: secret(func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: corev1alpha1.GroupVersion.String(), Kind: "FederatedCluster", Name: "m", UID: uid, Controller: new(true)}}
		})},
		"ByHand": {
			reason: "Somebody has made it, or refract join of a version that did not mark it.", secret: secret(func(*corev1.Secret) {}),
			stays: "secret kube-admiral-system/m stays: it is not marked as created by refract join for this cluster",
		},
		"OfAnother": {
			reason: "It was created for a cluster of this name before.",
			secret: secret(func(s *corev1.Secret) { joined(s); s.Annotations[refractv1alpha1.JoinedAnnotation] = "6" }),
			stays:  "secret kube-admiral-system/m stays: it is not marked as created by refract join for this cluster",
		},
		"Shared": {
			reason: "Another cluster needs it.", secret: secret(joined),
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
				t.Errorf("%s\nwant it gone: %v, got %v", tc.reason, tc.stays == "", err)
			}
		})
	}
}
