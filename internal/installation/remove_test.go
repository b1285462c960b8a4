package installation

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/hub"
)

// TestUninstallHoldsNothing checks that Refract's finalizers are removed, so that the remaining objects can be deleted.
// Finalizers of others remain, and so do Refract's finalizers on policies that still convert objects.
func TestUninstallHoldsNothing(t *testing.T) {
	const others = "example.com/hold"
	cluster := func(name string, finalizers ...string) *corev1alpha1.FederatedCluster {
		return &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
	}
	leaving := cluster("leaving", refractv1alpha1.Finalizer)
	leaving.DeletionTimestamp = new(metav1.Now())
	for name, tc := range map[string]struct {
		reason    string
		converted bool
		policy    []string // The finalizers of the policy after the removal.
	}{
		"All":       {"No objects need a conversion.", false, nil},
		"Converted": {"The part that converts objects continues to run.", true, []string{refractv1alpha1.ConversionFinalizer}},
	} {
		t.Run(name, func(t *testing.T) {
			scheme, err := hub.Scheme()
			if err != nil {
				t.Fatal(err)
			}
			if err := apiextensionsv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			objects := []client.Object{
				cluster("eu-1", refractv1alpha1.Finalizer), cluster("us-1", refractv1alpha1.Finalizer, others), leaving.DeepCopy(),
				&refractv1alpha1.Propagation{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.configmaps", Finalizers: []string{refractv1alpha1.Finalizer}}},
				&refractv1alpha1.ConversionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "widgets", Finalizers: []string{refractv1alpha1.ConversionFinalizer}}},
			}
			if tc.converted {
				objects = append(objects, convertedBy("refract", Conversion.Deployment))
			}
			var lines []string
			r := &Removal{
				Client: fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), Namespace: "refract",
				Discovery: &fake.FakeDiscovery{Fake: &clienttesting.Fake{}}, Tell: func(line string) { lines = append(lines, line) },
			}
			if kept, err := r.Run(t.Context()); err != nil || len(kept) > 0 != tc.converted {
				t.Fatalf("%s\nRun() = %v, %v", tc.reason, kept, err)
			}
			for o, want := range map[client.Object][]string{
				cluster("eu-1"): nil, cluster("us-1"): {others},
				&refractv1alpha1.Propagation{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.configmaps"}}: nil,
				&refractv1alpha1.ConversionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}:                      tc.policy,
			} {
				if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(o.GetFinalizers(), want) {
					t.Errorf("%s\nthe finalizers of %T %s: want %v, got %v", tc.reason, o, o.GetName(), want, o.GetFinalizers())
				}
			}
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(leaving), cluster("")); !apierrors.IsNotFound(err) {
				t.Errorf("%s\nwant the cluster that was being deleted to be gone, got %v", tc.reason, err)
			}
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "federatedcluster leaving was being deleted") }) {
				t.Errorf("%s\nwant to be told what stays on it, got %q", tc.reason, lines)
			}
		})
	}
}

// convertedBy returns a CustomResourceDefinition with two versions in use, which the given Service converts.
func convertedBy(namespace, service string) client.Object {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Widget", Plural: "widgets"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}, {Name: "v2", Served: true}},
			Conversion: &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook: &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{
					Service: &apiextensionsv1.ServiceReference{Namespace: namespace, Name: service},
				}},
			},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: []string{"v1", "v2"}},
	}
}

// TestCredentialsOfThoseWhoLeft checks that a purge deletes the Secrets that join has created for existing and deleted
// clusters. Secrets that users have created remain, and so do Secrets that another cluster uses.
func TestCredentialsOfThoseWhoLeft(t *testing.T) {
	scheme, err := hub.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	secret := func(name, uid string, labels map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "refract", Name: name, Labels: labels, Annotations: map[string]string{refractv1alpha1.JoinedAnnotation: uid},
		}}
	}
	cluster := func(name, secret string) *corev1alpha1.FederatedCluster {
		return &corev1alpha1.FederatedCluster{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
			Spec:       corev1alpha1.FederatedClusterSpec{SecretRef: corev1alpha1.LocalSecretReference{Name: secret}},
		}
	}
	joined := map[string]string{refractv1alpha1.JoinedLabel: "true"}
	elsewhere := secret("elsewhere", "uid-gone", joined)
	elsewhere.Namespace = "shop"
	r := &Removal{Namespace: "refract", Tell: func(string) {}, Client: fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(
		cluster("eu-1", "eu-1"), cluster("eu-2", "shared"), secret("eu-1", "uid-eu-1", joined), secret("gone", "uid-gone", joined),
		secret("shared", "uid-gone", joined), secret("own", "uid-gone", nil), elsewhere,
	).Build()}
	found, err := r.credentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range found {
		names = append(names, o.GetNamespace()+"/"+o.GetName())
	}
	if want := []string{"refract/eu-1", "refract/gone"}; !slices.Equal(names, want) {
		t.Errorf("want %q to be deleted, got %q", want, names)
	}
}
