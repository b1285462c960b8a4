package member

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestRenew: only the cluster that the hub records gets new credentials, at the address in the Secret.
func TestRenew(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	answers := func(uid string) string {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asObject(w)
			fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":%q}}`, uid)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	it, other := answers("u"), answers("v")
	account := types.NamespacedName{Namespace: "sys", Name: "refract"}
	expired := []byte(token(ofAccount, start, life))
	cases := map[string]struct {
		reason string
		change func(fc *corev1alpha1.FederatedCluster, secret *corev1.Secret)
		server string
		want   string // Part of the error; empty if the Secret has the new token afterwards.
	}{
		"Renewed": {reason: "The token has expired, and the context leads to the cluster.", server: it},
		"Unrecorded": {
			reason: "The hub does not record a UID, and the address is the one of the Secret.", server: it,
			change: func(fc *corev1alpha1.FederatedCluster, _ *corev1.Secret) { fc.Status.ClusterUID = "" },
		},
		"AnotherAtTheAddress": {
			reason: "Another cluster has the address now.", server: it, want: "is another cluster than",
			change: func(fc *corev1alpha1.FederatedCluster, _ *corev1.Secret) { fc.Status.ClusterUID = "w" },
		},
		"AnotherAddress": {reason: "The context leads elsewhere.", server: other, want: "is another cluster than"},
		"Redirected": {
			reason: "A user who may write FederatedClusters names another cluster.", server: other, want: "the credentials are not sent",
			change: func(fc *corev1alpha1.FederatedCluster, _ *corev1.Secret) {
				fc.Spec.APIEndpoint, fc.Status.ClusterUID = other, "v"
			},
		},
		"Foreign": {
			reason: "The credentials of the member are not a token of the account.", server: it, want: "the credentials are not a token of Refract's account",
			change: func(_ *corev1alpha1.FederatedCluster, secret *corev1.Secret) {
				secret.Data[corev1alpha1.SecretServiceAccountToken] = []byte(token("system:serviceaccount:sys:mine", start, life))
			},
		},
		"Listed": {
			reason: "An inventory has the credentials.", server: it, want: "lists the cluster",
			change: func(fc *corev1alpha1.FederatedCluster, _ *corev1.Secret) {
				metav1.SetMetaDataAnnotation(&fc.ObjectMeta, refractv1alpha1.InventoryAnnotation, "ClusterProfile fleet/m")
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
			fc.Spec = corev1alpha1.FederatedClusterSpec{
				APIEndpoint: it, Insecure: true, UseServiceAccountToken: true, SecretRef: corev1alpha1.LocalSecretReference{Name: "m"},
			}
			fc.Status.ClusterUID = "u"
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "m", Annotations: destination(it, true)},
				Data:       map[string][]byte{corev1alpha1.SecretServiceAccountToken: expired},
			}
			if tc.change != nil {
				tc.change(fc, secret)
			}
			before := string(secret.Data[corev1alpha1.SecretServiceAccountToken])
			hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret).Build()
			cfg := &rest.Config{Host: tc.server, BearerToken: token(ofAccount, start.Add(life), life), TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
			read, err := TokenSecret(t.Context(), hub, "sys", fc, account)
			if err == nil {
				err = Renew(t.Context(), hub, fc, read, cfg)
			}
			if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nwant error %q, got %v", tc.reason, tc.want, err)
			}
			after := &corev1.Secret{}
			if err := hub.Get(t.Context(), client.ObjectKeyFromObject(secret), after); err != nil {
				t.Fatal(err)
			}
			want := before
			if tc.want == "" {
				want = cfg.BearerToken
			}
			if got := string(after.Data[corev1alpha1.SecretServiceAccountToken]); got != want {
				t.Errorf("%s\nwant token %s, got %s", tc.reason, want, got)
			}
			if after.Annotations[refractv1alpha1.EndpointAnnotation] != it {
				t.Errorf("%s\nwant the address unchanged, got %v", tc.reason, after.Annotations)
			}
		})
	}
}
