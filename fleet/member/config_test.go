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
	at := func(endpoint string) map[string]string { return destination(endpoint, false) }
	token := map[string]string{"service-account-token-data": "t"}
	cases := map[string]struct {
		reason  string
		spec    corev1alpha1.FederatedClusterSpec
		record  map[string]string // Annotations of the Secret.
		data    map[string]string
		want    want
		err     error
		message string // Must be in the error.
	}{
		"Certificate": {
			reason: "A client certificate and its key suffice.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443"},
			record: at("https://10.0.0.1:6443"),
			data:   map[string]string{"client-certificate-data": "c", "client-key-data": "k"},
			want:   want{Host: "https://10.0.0.1:6443", Cert: "c"},
		},
		"Token": {
			reason: "With useServiceAccount the token is used even if the Secret has a certificate.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "10.0.0.1:6443", UseServiceAccountToken: true},
			record: at("https://10.0.0.1:6443"),
			data:   map[string]string{"client-certificate-data": "c", "client-key-data": "k", "service-account-token-data": "t"},
			want:   want{Host: "https://10.0.0.1:6443", Token: "t"},
		},
		"Kubeconfig": {
			reason: "A whole kubeconfig names its own server.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://elsewhere:1"},
			data:   map[string]string{"kubeconfig": tokenKubeconfig},
			want:   want{Host: "https://elsewhere:1", Token: "t"},
		},
		"KubeconfigOfAnother": {
			reason: "The credentials of a kubeconfig are not sent to another server.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443"},
			data:   map[string]string{"kubeconfig": tokenKubeconfig},
			err:    ErrEndpoint, message: "secret sys/s records https://elsewhere:1 as their API server, and spec.apiEndpoint is https://10.0.0.1:6443",
		},
		"KubeconfigAnnotated": {
			reason: "The author of the Secret may record another address of the server.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443"},
			record: at("https://10.0.0.1:6443"),
			data:   map[string]string{"kubeconfig": tokenKubeconfig},
			want:   want{Host: "https://10.0.0.1:6443", Token: "t"},
		},
		"NoRecord": {
			reason: "A Secret of KubeAdmiral records no destination: the message has the complete command that records it.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443", Insecure: true}, data: token, err: ErrEndpoint,
			message: "if you know that it is https://10.0.0.1:6443: " +
				"kubectl annotate secret s -n sys --overwrite 'refract.dev/endpoint=https://10.0.0.1:6443' refract.dev/insecure=true",
		},
		"AnotherHost": {
			reason: "The author of the FederatedCluster does not obtain the token.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://attacker.example:6443"}, record: at("https://10.0.0.1:6443"), data: token,
			err: ErrEndpoint, message: "records https://10.0.0.1:6443 as their API server, and spec.apiEndpoint is https://attacker.example:6443",
		},
		"AnotherPort": {
			reason: "Another port is another server.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:1"}, record: at("https://10.0.0.1:6443"), data: token, err: ErrEndpoint,
			message: "spec.apiEndpoint is https://10.0.0.1:1",
		},
		"AnotherPath": {
			reason: "Behind a proxy another path is another cluster.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://p.example/b"}, record: at("https://p.example/a"), data: token, err: ErrEndpoint,
			message: "spec.apiEndpoint is https://p.example/b",
		},
		"WithoutTLS": {
			reason: "Unencrypted requests can be read on the way.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "http://10.0.0.1:6443"}, record: at("https://10.0.0.1:6443"), data: token, err: ErrEndpoint,
			message: "spec.apiEndpoint is http://10.0.0.1:6443",
		},
		"NewlyInsecure": {
			reason: "Without verification of the certificate, the token could be intercepted.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443", Insecure: true}, record: at("https://10.0.0.1:6443"), data: token,
			err: ErrEndpoint, message: "with spec.insecure, any host on the path to https://10.0.0.1:6443 could read them",
		},
		"SpelledOtherwise": {
			reason: "The spelling of an address does not matter.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "API.example:443/"}, record: at("https://api.example"), data: token,
			want: want{Host: "https://api.example", Token: "t"},
		},
		"IPv6": {
			reason: "An IPv6 address has brackets.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://[fd00::1]:6443"}, record: at("https://[FD00::1]:6443"), data: token,
			want: want{Host: "https://[fd00::1]:6443", Token: "t"},
		},
		"BadRecord": {
			reason: "An invalid URL permits no destination.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443"}, record: at("everything?"), data: token, err: ErrEndpoint,
			message: `secret sys/s: endpoint: "everything?" is not a URL of an API server`,
		},
		"Command": {
			reason: "The message contains a command for users to run, so an address with special characters is rejected.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://h/'; reboot; '"}, data: token,
			message: "is not a URL of an API server",
		},
		"User": {
			reason: "The text before an @ is not the host.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443@attacker.example"}, record: at("https://10.0.0.1:6443"), data: token,
			message: "is not a URL of an API server",
		},
		"KubeconfigThatRunsPrograms": {
			reason: "The author of the Secret must not run programs in the controller.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443"},
			data:   map[string]string{"kubeconfig": execKubeconfig},
			err:    ErrCredentials, message: `user "u" uses exec`,
		},
		"KubeconfigWithTwoUsers": {
			reason: "The error of the library is hidden: it quotes the text, and other users read the condition.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443"},
			data:   map[string]string{"kubeconfig": strings.Replace(tokenKubeconfig, "users: [", "users: [{name: u, user: {token: hunter2}}, ", 1)},
			err:    ErrCredentials, message: "the kubeconfig cannot be read; kubectl config view",
		},
		"KubeconfigWithProxy": {
			reason: "The error about the address of a proxy is hidden, too.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443"},
			data:   map[string]string{"kubeconfig": strings.Replace(tokenKubeconfig, "{server:", `{proxy-url: "http://me:hunter2@a b", server:`, 1)},
			err:    ErrCredentials, message: "current-context must name a context with a valid cluster",
		},
		"KubeconfigWithMuch": {
			reason: "Only one cluster of a kubeconfig is used; thousands would take memory without a use.",
			spec:   corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://10.0.0.1:6443"},
			data:   map[string]string{"kubeconfig": tokenKubeconfig + strings.Repeat("- {}\n", mostStructure)},
			err:    ErrCredentials, message: "this one has more than 1000 values",
		},
		"LongEndpoint": {
			reason:  "The length of the address is bounded, because a condition repeats it.",
			spec:    corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://" + strings.Repeat("h", longestEndpoint)},
			message: "spec.apiEndpoint: is no URL of an API server: want at most 2000 bytes, got 2008",
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
			reason:  "The error names the field with the invalid URL.",
			spec:    corev1alpha1.FederatedClusterSpec{APIEndpoint: "ftp://x"},
			message: `spec.apiEndpoint: "ftp://x" is not a URL of an API server`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "s", Annotations: tc.record}, Data: map[string][]byte{}}
			for k, v := range tc.data {
				secret.Data[k] = []byte(v)
			}
			cfg, err := Config(&corev1alpha1.FederatedCluster{Spec: tc.spec}, secret)
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s\nConfig(): the error contains a credential: %v", tc.reason, err)
			}
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
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: destination("https://h:1", true)}, Data: map[string][]byte{
		"client-certificate-data": []byte("c"), "client-key-data": []byte("k"), "certificate-authority-data": []byte("a"),
	}}
	cfg, err := Config(&corev1alpha1.FederatedCluster{Spec: corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://h:1", Insecure: true}}, secret)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rest.TLSClientConfig{Insecure: true, CertData: []byte("c"), KeyData: []byte("k")}, cfg.TLSClientConfig); diff != "" {
		t.Errorf("Config(): insecure and a certificate authority exclude each other: -want, +got:\n%s", diff)
	}
}

// TestSameConfig: another route or another identity needs another connection. A proxy that is removed from the Secret
// must not get any further request.
func TestSameConfig(t *testing.T) {
	read := func(cluster, user string) *rest.Config {
		text := strings.NewReplacer("{server:", "{"+cluster+"server:", "{token: t}", "{token: t"+user+"}").Replace(tokenKubeconfig)
		cfg, err := Config(&corev1alpha1.FederatedCluster{Spec: corev1alpha1.FederatedClusterSpec{APIEndpoint: "https://elsewhere:1"}},
			&corev1.Secret{Data: map[string][]byte{"kubeconfig": []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	const proxy = `proxy-url: "http://proxy:1", `
	cases := map[string]struct {
		reason string
		a, b   *rest.Config
		want   bool
	}{
		"Same":      {"Nothing has changed.", read(proxy, ", as: me"), read(proxy, ", as: me"), true},
		"NoProxy":   {"The new configuration has no proxy.", read(proxy, ""), read("", ""), false},
		"NewProxy":  {"The new configuration has another proxy.", read(proxy, ""), read(`proxy-url: "http://proxy:2", `, ""), false},
		"OtherUser": {"The new configuration impersonates another user.", read("", ", as: me"), read("", ", as: you"), false},
		"NewToken":  {"A renewed token replaces the last one in the same connection.", &rest.Config{BearerToken: "a"}, &rest.Config{BearerToken: "b"}, true},
		"NoToken":   {"A configuration without a token differs.", &rest.Config{BearerToken: "a"}, &rest.Config{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := sameConfig(tc.a, tc.b); got != tc.want {
				t.Errorf("%s\nsameConfig(): want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}
