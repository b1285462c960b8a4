package installation

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestNamespaces(t *testing.T) {
	binding := func(subjects ...rbacv1.Subject) client.Object {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "refract-hub"}, Subjects: subjects}
	}
	account := func(namespace, name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	configuration := func(namespace, service string) client.Object {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "refract-policies"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: service},
			}}},
		}
	}
	deployment := func(namespace string) client.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "refract", UID: "u", Labels: map[string]string{"app.kubernetes.io/part-of": "refract"},
		}}
	}
	cases := map[string]struct {
		reason  string
		objects []client.Object
		want    []string
	}{
		"None":          {reason: "The cluster has no installation."},
		"Binding":       {reason: "The binding names the account.", objects: []client.Object{binding(account("fleet", "refract"))}, want: []string{"fleet"}},
		"Configuration": {reason: "The configuration names the Service.", objects: []client.Object{configuration("fleet", "refract")}, want: []string{"fleet"}},
		"Both": {
			reason:  "The binding and the configuration name the same namespace.",
			objects: []client.Object{binding(account("fleet", "refract")), configuration("fleet", "refract"), deployment("fleet")},
			want:    []string{"fleet"},
		},
		"Moved": {
			reason:  "A second installation has taken the binding.",
			objects: []client.Object{binding(account("other", "refract")), deployment("kube-admiral-system"), deployment("other")},
			want:    []string{"kube-admiral-system", "other"},
		},
		"Differ": {
			reason:  "The binding and the configuration name different namespaces.",
			objects: []client.Object{binding(account("a", "refract")), configuration("b", "refract")},
			want:    []string{"a", "b"},
		},
		"Tenant": {reason: "A user of a namespace can create a Deployment of this name and with these labels.", objects: []client.Object{deployment("tenant")}},
		"OtherSubject": {
			reason:  "The role has been bound to accounts that are not Refract's.",
			objects: []client.Object{binding(account("tenant", "ci"), rbacv1.Subject{Kind: rbacv1.UserKind, Name: "refract"}), configuration("tenant", "web")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Namespaces(t.Context(), fake.NewClientBuilder().WithObjects(tc.objects...).Build(), Propagation)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestNamespacesUnread checks that an error of the API server is returned, and does not result in the default
// namespace.
func TestNamespacesUnread(t *testing.T) {
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterrolebindings"}, key.Name, nil)
		},
	})
	if _, err := Namespaces(t.Context(), c, Propagation); err == nil || !strings.HasPrefix(err.Error(), "reading clusterrolebinding refract-hub: ") {
		t.Errorf("want an error that names what cannot be read, got %v", err)
	}
}
