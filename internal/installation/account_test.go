package installation

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// TestDismissBesideAdmit checks that an account remains if another hub begins to use it while the first hub dismisses
// it.
func TestDismissBesideAdmit(t *testing.T) {
	ours, theirs := Membership{Hub: "a", Name: "m"}, Membership{Hub: "b", Name: "m"}
	joins := func(t *testing.T, c client.Client) {
		t.Helper()
		account := accountOf(t, c)
		account.Annotations[hubsAnnotation] += "," + theirs.String()
		if err := c.Update(t.Context(), account); err != nil {
			t.Fatal(err)
		}
	}
	admit := func(t *testing.T, c client.Client) {
		t.Helper()
		if _, err := Admit(t.Context(), c, theirs, nil, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		reason string
		// read is called after the first read of the account, and givenUp after the removal of the membership.
		read, givenUp func(t *testing.T, c client.Client)
		gone, other   bool // Whether the account is deleted, and whether a new role exists at the end.
		hubs          string
	}{
		"Alone":     {reason: "Without another membership, the account is deleted.", gone: true},
		"TwoHubs":   {reason: "Another hub needs the account, so it stays.", read: joins, hubs: "b/m"},
		"Afterward": {reason: "The other hub has created a new role, which stays.", givenUp: admit, other: true, hubs: "b/m"},
	} {
		t.Run(name, func(t *testing.T) {
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: MemberAccount, UID: "1"}}
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
				Namespace: corev1alpha1.SystemNamespace, Name: MemberAccount, Annotations: map[string]string{hubsAnnotation: ours.String()},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: MemberAccount, UID: "1"}},
			}}
			member := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(role, account).Build()
			read, givenUp := tc.read, tc.givenUp
			slow := interceptor.NewClient(member, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					err := c.Get(ctx, key, o, opts...)
					if do := read; do != nil {
						read = nil
						do(t, member)
					}
					return err
				},
				Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
					if givenUp != nil {
						givenUp(t, member)
					}
					return deleteExact(ctx, c, o, opts...)
				},
			})
			gone, err := Dismiss(t.Context(), slow, ours)
			if err != nil || gone != tc.gone {
				t.Errorf("%s: want gone=%v, got %v, %v", tc.reason, tc.gone, gone, err)
			}
			there, err := roleThere(t.Context(), member)
			if err != nil {
				t.Fatal(err)
			}
			if (there == nil) != tc.gone || there != nil && (there.UID != "1") != tc.other {
				t.Errorf("%s: want the role gone=%v, another=%v, got %v", tc.reason, tc.gone, tc.other, there)
			}
			if tc.hubs != "" && accountOf(t, member).Annotations[hubsAnnotation] != tc.hubs {
				t.Errorf("%s: want the account to be that of %s, got %s", tc.reason, tc.hubs, accountOf(t, member).Annotations[hubsAnnotation])
			}
		})
	}
}

// TestDismissOnceMore checks that Dismiss completes its work if an earlier call was interrupted between the two writes.
func TestDismissOnceMore(t *testing.T) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: MemberAccount, UID: "1"}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: corev1alpha1.SystemNamespace, Name: MemberAccount, Annotations: map[string]string{hubsAnnotation: ""},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: MemberAccount, UID: "1"}},
	}}
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(role, account).Build()
	if gone, err := Dismiss(t.Context(), c, Membership{Hub: "a", Name: "m"}); !gone || err != nil {
		t.Errorf("Want the account to be gone, got %v, %v", gone, err)
	}
}

// deleteExact deletes an object only if it has the UID in the preconditions, as an API server does.
func deleteExact(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
	only := (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions
	is, _ := o.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), is); err != nil {
		return err
	}
	if only != nil && only.UID != nil && *only.UID != is.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, o.GetName(), nil)
	}
	return c.Delete(ctx, o)
}

func accountOf(t *testing.T, c client.Client) *corev1.ServiceAccount {
	t.Helper()
	account := &corev1.ServiceAccount{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: corev1alpha1.SystemNamespace, Name: MemberAccount}, account); err != nil {
		t.Fatal(err)
	}
	return account
}
