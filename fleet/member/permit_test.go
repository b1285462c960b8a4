package member

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// permitHub is a hub with these objects.
func permitHub(t *testing.T, objects ...client.Object) *fake.ClientBuilder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, corev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
}

// permittedIn returns the rules of the Role, as text.
func permittedIn(t *testing.T, hub client.Reader) string {
	t.Helper()
	role := &rbacv1.Role{}
	err := hub.Get(t.Context(), types.NamespacedName{Namespace: "sys", Name: PermitRole}, role)
	if apierrors.IsNotFound(err) {
		return "none"
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range role.Rules {
		all = append(all, fmt.Sprintf("%s %s: %s", strings.Join(r.Verbs, ","), strings.Join(r.Resources, ","), strings.Join(r.ResourceNames, ",")))
	}
	return strings.Join(all, "; ")
}

func memberNamed(name, secret string) *corev1alpha1.FederatedCluster {
	fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("of-" + name)}}
	fc.Spec.APIEndpoint, fc.Spec.SecretRef.Name, fc.Spec.UseServiceAccountToken = "https://"+name, secret, true
	return fc
}

func tokenFor(name, server string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: name, Annotations: destination(server, false)},
		Data:       map[string][]byte{corev1alpha1.SecretServiceAccountToken: []byte("t")},
	}
}

// TestPermit: the Role names the Secrets of the members and no others. A rule without a name would cover all Secrets.
func TestPermit(t *testing.T) {
	hub := permitHub(t, memberNamed("a", "a"), memberNamed("b", "b"), memberNamed("c", "b"), memberNamed("d", "refract-webhook"), memberNamed("e", "e"), memberNamed("f", ""),
		tokenFor("a", "https://a"), tokenFor("b", "https://b"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "refract-webhook"}}).Build()
	const rights = "list,watch,patch secrets: "
	for _, step := range []struct {
		reason string
		do     func() error
		want   string
	}{
		{"A member that leaves before any has joined revokes nothing.", func() error { return withdraw(t.Context(), hub, "sys", memberNamed("x", "x")) }, "none"},
		{"Without a name, no right is granted.", func() error { return Permit(t.Context(), hub, "sys") }, "none"},
		{"The first member.", func() error { return Permit(t.Context(), hub, "sys", "z") }, rights + "z"},
		{"The first member is permitted again.", func() error { return Permit(t.Context(), hub, "sys", "z") }, rights + "z"},
		{
			"The Secrets with credentials of all members are named, but not a missing Secret and one without credentials.",
			func() error { return PermitAll(t.Context(), hub, "sys") }, rights + "a,b,z",
		},
		{"Another cluster uses the same Secret.", func() error { return withdraw(t.Context(), hub, "sys", memberNamed("b", "b")) }, rights + "a,b,z"},
		{"A member leaves.", func() error { return withdraw(t.Context(), hub, "sys", memberNamed("a", "a")) }, rights + "b,z"},
		{"Another member has left.", func() error { return withdraw(t.Context(), hub, "sys", memberNamed("z", "z")) }, rights + "b"},
		{"After the last member, no rule is left.", func() error {
			for _, name := range []string{"b", "c"} {
				if err := hub.Delete(t.Context(), memberNamed(name, "b")); err != nil {
					return err
				}
			}
			return withdraw(t.Context(), hub, "sys", memberNamed("c", "b"))
		}, ""},
		{"A member joins after all have left.", func() error { return Permit(t.Context(), hub, "sys", "y") }, rights + "y"},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s\n%v", step.reason, err)
		}
		if diff := cmp.Diff(step.want, permittedIn(t, hub)); diff != "" {
			t.Errorf("%s\n-want, +got:\n%s", step.reason, diff)
		}
	}
	binding := &rbacv1.RoleBinding{}
	if err := hub.Get(t.Context(), types.NamespacedName{Namespace: "sys", Name: PermitRole}, binding); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "sys", Name: "refract"}}, binding.Subjects); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	binding.Subjects = nil
	if err := hub.Update(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	if err := Permit(t.Context(), hub, "sys", "y"); err == nil || !strings.Contains(err.Error(), "rolebinding sys/refract-hub-clusters does not bind") {
		t.Errorf("want an error for a binding without subjects, got %v", err)
	}
}

// TestPermitTogether: clusters that join at the same time do not overwrite each other's rights.
func TestPermitTogether(t *testing.T) {
	hub := permitHub(t).Build()
	var joins sync.WaitGroup
	for i := range 8 {
		joins.Go(func() {
			if err := Permit(t.Context(), hub, "sys", fmt.Sprint("m", i)); err != nil {
				t.Error(err)
			}
		})
	}
	joins.Wait()
	if diff := cmp.Diff("list,watch,patch secrets: m0,m1,m2,m3,m4,m5,m6,m7", permittedIn(t, hub)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestJoinPermits: a cluster that joins gets the right to its Secret before its FederatedCluster exists. If the right
// cannot be granted, nothing is left behind.
func TestJoinPermits(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "of-m"},
		})
	}))
	t.Cleanup(server.Close)
	cfg := &rest.Config{Host: server.URL, BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	refused := apierrors.NewForbidden(schema.GroupResource{Group: rbacv1.GroupName, Resource: "roles"}, PermitRole, nil)
	for name, tc := range map[string]struct {
		refuse string // The kind whose creation is refused.
		want   string // The rules of the Role.
	}{
		"Joins":     {"", "list,watch,patch secrets: m"},
		"NoRole":    {"*v1.Role", "none"},
		"NoCluster": {"*v1alpha1.FederatedCluster", ""},
	} {
		t.Run(name, func(t *testing.T) {
			hub := permitHub(t).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if fmt.Sprintf("%T", o) == tc.refuse {
						return refused
					}
					if _, ok := o.(*corev1alpha1.FederatedCluster); ok {
						if got, want := permittedIn(t, c), "list,watch,patch secrets: m"; got != want {
							t.Errorf("want the right before the cluster, got %q", got)
						}
					}
					return c.Create(ctx, o, opts...)
				},
			}).Build()
			err := Join(t.Context(), hub, "sys", "m", cfg, nil, nil)
			if (err == nil) != (tc.refuse == "") {
				t.Fatalf("Join(): %v", err)
			}
			if diff := cmp.Diff(tc.want, permittedIn(t, hub)); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			left := hub.Get(t.Context(), types.NamespacedName{Namespace: "sys", Name: "m"}, &corev1.Secret{})
			if apierrors.IsNotFound(left) == (err == nil) {
				t.Errorf("Secret: got %v after %v", left, err)
			}
		})
	}
}
