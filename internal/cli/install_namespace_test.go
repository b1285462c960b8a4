package cli

import (
	"context"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"refract.dev/internal/installation"
)

// TestSystemNamespace: credentials of members are stored only in the namespace that Refract runs in.
func TestSystemNamespace(t *testing.T) {
	// A process outside of the cluster authenticates as a user, and its webhook has a URL.
	outside := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "refract-hub"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "refract"}}}
	inside := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "refract-hub"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "fleet", Name: "refract"}},
	}
	lease := func(namespace string) client.Object {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: installation.Propagation.Lease()}}
	}
	for name, tc := range map[string]struct {
		reason  string
		given   string
		objects []client.Object
		unread  bool
		want    string
		err     string
	}{
		"Nothing":   {reason: "Without a trace of Refract, the default namespace is used.", want: "kube-admiral-system"},
		"Default":   {reason: "A program outside of the cluster uses the default namespace.", objects: []client.Object{outside, lease("kube-admiral-system")}, want: "kube-admiral-system"},
		"Other":     {reason: "A program outside of the cluster uses another namespace, so the user must confirm it.", objects: []client.Object{outside, lease("x")}, err: "with its Lease: x"},
		"Both":      {reason: "A user may have created one of the Leases.", objects: []client.Object{lease("kube-admiral-system"), lease("x")}, err: "kube-admiral-system, x"},
		"Given":     {reason: "The flag has precedence.", given: "x", objects: []client.Object{outside, lease("y")}, want: "x"},
		"Installed": {reason: "The namespace of an installation has precedence over Leases, which users can create.", objects: []client.Object{inside, lease("x")}, want: "fleet"},
		"Unread":    {reason: "If the Leases cannot be read, the namespace is unknown.", unread: true, err: "listing leases refract-leader"},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(tc.objects...).WithIndex(&coordinationv1.Lease{}, metav1.ObjectNameField, func(o client.Object) []string {
				return []string{o.GetName()}
			}).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if tc.unread {
						return apierrors.NewForbidden(schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}, "", nil)
					}
					return c.List(ctx, list, opts...)
				},
			}).Build()
			got, err := systemNamespace(t.Context(), c, tc.given, installation.Propagation)
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s\nsystemNamespace() = %q, %v, want %q, %q", tc.reason, got, err, tc.want, tc.err)
			}
		})
	}
}
