package member

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

const execKubeconfig = `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: anything, interactiveMode: Never}}}]
`

const tokenKubeconfig = `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://elsewhere:1"}}]
users: [{name: u, user: {token: t}}]
`

func TestConfig(t *testing.T) {
	type want struct{ Host, Token, Cert string }
	cases := map[string]struct {
		reason  string
		spec    corev1alpha1.FederatedClusterSpec
		data    map[string]string
		want    want
		err     error
		message string // Must be in the error.
	}{
		"Certificate": {
			reason: "A client certificate and its key suffice.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443"},
			data:   map[string]string{"client-certificate-data": "c", "client-key-data": "k"},
			want:   want{Host: "https://10.0.0.1:6443", Cert: "c"},
		},
		"Token": {
			reason: "With useServiceAccount the token is used, although there is a certificate.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "10.0.0.1:6443", UseServiceAccountToken: true},
			data:   map[string]string{"client-certificate-data": "c", "client-key-data": "k", "service-account-token-data": "t"},
			want:   want{Host: "https://10.0.0.1:6443", Token: "t"},
		},
		"Kubeconfig": {
			reason: "A whole kubeconfig is accepted; the endpoint is the cluster's.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443"},
			data:   map[string]string{"kubeconfig": tokenKubeconfig},
			want:   want{Host: "https://10.0.0.1:6443", Token: "t"},
		},
		"KubeconfigThatRunsPrograms": {
			reason: "Whoever may write the Secret must not be able to run programs in the controller.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443"},
			data:   map[string]string{"kubeconfig": execKubeconfig},
			err:    ErrCredentials, message: `user "u" uses exec`,
		},
		"NoKeys": {
			reason: "The missing key is named.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443"},
			err:    ErrCredentials, message: "secret sys/s: incomplete credentials: key client-certificate-data is missing",
		},
		"HalfACertificate": {
			reason: "A certificate without its key is no credential.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443"},
			data:   map[string]string{"client-certificate-data": "c"},
			err:    ErrCredentials, message: "key client-key-data is missing",
		},
		"BadEndpoint": {
			reason:  "What is no URL is named by its field.",
			spec:    corev1alpha1.FederatedClusterSpec{APIEndpoint: "ftp://x"},
			message: `spec.apiEndpoint: "ftp://x" is not a URL of an API server`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "s"}, Data: map[string][]byte{}}
			for k, v := range tc.data {
				secret.Data[k] = []byte(v)
			}
			cfg, err := Config(&corev1alpha1.FederatedCluster{Spec: tc.spec}, secret)
			if tc.message != "" {
				if err == nil || !strings.Contains(err.Error(), tc.message) || (tc.err != nil && !errors.Is(err, tc.err)) {
					t.Fatalf("%s\nConfig() error: want %q, got %v", tc.reason, tc.message, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s\nConfig(): %v", tc.reason, err)
			}
			got := want{Host: cfg.Host, Token: cfg.BearerToken, Cert: string(cfg.CertData)}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nConfig(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestInsecureDropsTheAuthority(t *testing.T) {
	secret := &corev1.Secret{Data: map[string][]byte{
		"client-certificate-data": []byte("c"), "client-key-data": []byte("k"), "certificate-authority-data": []byte("a"),
	}}
	cfg, err := Config(&corev1alpha1.FederatedCluster{Spec: corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://h:1", Insecure: true}}, secret)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rest.TLSClientConfig{Insecure: true, CertData: []byte("c"), KeyData: []byte("k")}, cfg.TLSClientConfig); diff != "" {
		t.Errorf("Config(): an API server that is not verified and an authority exclude each other: -want, +got:\n%s", diff)
	}
}
