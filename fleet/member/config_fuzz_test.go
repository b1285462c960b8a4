package member

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/fuzzed"
	"refract.dev/internal/rescue"
)

// place is the destination of credentials. Its parser is independent of the code under test.
type place struct{ scheme, host, port, path string }

// placeOf returns the destination in an address; false if it has none.
func placeOf(address string) (place, bool) {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return place{}, false
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return place{u.Scheme, strings.ToLower(u.Hostname()), port, strings.TrimRight(u.EscapedPath(), "/")}, true
}

// FuzzConfig: any FederatedCluster and Secret give a configuration or an error. Credentials go only to the destination
// in the Secret. They are encrypted on the way unless the Secret permits otherwise, and do not appear in an error.
func FuzzConfig(f *testing.F) {
	const (
		careless = 1 << iota // spec.insecure.
		asAccount
		annotated
		insecure // The annotation.
		whole    // A kubeconfig.
		certified
	)
	const hidden = "hunter2-8f1c"
	kubeconfig := func(cluster, user string) []byte {
		return []byte(strings.NewReplacer("{server:", "{"+cluster+"server:", "{token: t}", "{"+user+"}").Replace(tokenKubeconfig))
	}
	f.Add("https://10.0.0.1:6443", "https://10.0.0.1:6443", byte(annotated|asAccount), []byte(nil), []byte("t"))
	f.Add("https://10.0.0.1", "10.0.0.1:443/", byte(annotated|certified|careless|insecure), []byte(nil), []byte("t"))
	f.Add("https://attacker.example", "https://10.0.0.1", byte(annotated), []byte(nil), []byte("t"))
	f.Add("https://10.0.0.1@attacker.example", "https://10.0.0.1", byte(annotated), []byte(nil), []byte("t"))
	f.Add("https://[fd00::1%25eth0]:6443", "https://[FD00::1%25eth0]:6443", byte(annotated|careless), []byte(nil), []byte("t"))
	f.Add("http://h\\x/../..;", "//h", byte(annotated), []byte(nil), []byte("t"))
	for _, text := range [][]byte{
		kubeconfig("", "token: "+hidden), kubeconfig("insecure-skip-tls-verify: true, ", "username: u, password: "+hidden),
		kubeconfig(`proxy-url: "http://p:1", tls-server-name: x, `, "as: a, as-groups: [b], as-user-extra: {c: [d]}, token: "+hidden),
		kubeconfig("certificate-authority-data: YQ==, ", "client-certificate-data: YQ==, client-key-data: YQ=="),
		kubeconfig("certificate-authority: /etc/passwd, ", "tokenFile: /etc/passwd"), []byte(execKubeconfig),
		[]byte(strings.Replace(tokenKubeconfig, "users: [", "users: [{name: u, user: {token: "+hidden+"}}, ", 1)),
		[]byte("a: &a [" + strings.Repeat("x,", 300) + "]\nusers: [" + strings.Repeat("*a,", 100) + "]\n"),
		[]byte("users: &u [" + strings.Repeat("{},", 300) + "]\nclusters: *u\ncontexts: *u\n"),
		[]byte(`{"users":[{"name":"u","user":{"auth-provider":{"name":"x"}}}]}`), []byte(":"), {},
	} {
		f.Add("https://elsewhere:1", "https://elsewhere:1", byte(whole), text, []byte(nil))
		f.Add("https://10.0.0.1:6443", "https://10.0.0.1:6443", byte(whole|annotated), text, []byte(nil))
	}
	f.Fuzz(func(t *testing.T, asked, recorded string, flags byte, kubeconfig, key []byte) {
		if len(asked)+len(recorded)+len(kubeconfig)+len(key) > fuzzed.MiB {
			t.Skip("more than a MiB")
		}
		fc := &corev1alpha1.FederatedCluster{}
		fc.Spec.APIEndpoint, fc.Spec.Insecure, fc.Spec.UseServiceAccountToken = asked, flags&careless != 0, flags&asAccount != 0
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "s", Annotations: map[string]string{}}, Data: map[string][]byte{
			corev1alpha1.SecretServiceAccountToken: []byte(hidden), corev1alpha1.SecretCertificateAuth: key,
		}}
		if flags&annotated != 0 {
			secret.Annotations[refractv1alpha1.EndpointAnnotation] = recorded
		}
		if flags&insecure != 0 {
			secret.Annotations[refractv1alpha1.InsecureAnnotation] = "true"
		}
		if flags&whole != 0 {
			secret.Data[corev1alpha1.SecretKubeconfig] = kubeconfig
		}
		if flags&certified != 0 {
			secret.Data[corev1alpha1.SecretClientCertificate], secret.Data[corev1alpha1.SecretClientKey] = key, key
		}
		var cfg *rest.Config
		var err error
		fuzzed.Run(t, func() int {
			if cfg, err = Config(fc, secret); err == nil {
				var m *Member
				if m, err = newMember("eu-1", cfg, observer{}, nil, logr.Logger{}); err == nil {
					m.close()
				}
			}
			return len(asked) + len(recorded) + len(kubeconfig) + 2*len(key)
		}, rescue.Count)
		var said *clientcmdapi.Cluster
		if raw, bad := clientcmd.Load(kubeconfig); bad == nil && raw.Contexts[raw.CurrentContext] != nil {
			said = raw.Clusters[raw.Contexts[raw.CurrentContext].Cluster]
		}
		if err != nil {
			// Errors show names and addresses, and a fuzzer may use the secret as one of these.
			told := strings.Contains(asked+recorded, hidden) || flags&whole != 0 && said != nil && strings.Count(string(kubeconfig), hidden) > 1
			if strings.Contains(err.Error(), hidden) && !told {
				t.Errorf("the error contains a credential: %v", err)
			}
			return
		}
		if flags&annotated == 0 {
			if flags&whole == 0 || said == nil {
				t.Fatalf("want no destination, since the Secret records none; got %s", cfg.Host)
			}
			recorded = said.Server
		}
		goes, ok1 := placeOf(cfg.Host)
		may, ok2 := placeOf(recorded)
		if !ok1 || !ok2 || goes != may {
			t.Errorf("the credentials go to %s, want %s", cfg.Host, recorded)
		}
		if lax := flags&insecure != 0 || flags&whole != 0 && said != nil && said.InsecureSkipTLSVerify; cfg.Insecure && !lax {
			t.Error("other machines on the way can read the credentials")
		}
		if cfg.ExecProvider != nil || cfg.AuthProvider != nil || cfg.BearerTokenFile+cfg.CertFile+cfg.KeyFile+cfg.CAFile != "" {
			t.Errorf("the Secret makes the client run programs or read files: %v", cfg)
		}
	})
}

// TestHostileKubeconfigs reads the most expensive kubeconfigs of up to one MiB.
func TestHostileKubeconfigs(t *testing.T) {
	fc := &corev1alpha1.FederatedCluster{}
	fc.Spec.APIEndpoint = "https://elsewhere:1"
	const few = mostStructure / 4
	for name, text := range map[string]string{
		"Users":   tokenKubeconfig + "- {name: a}\n" + strings.Repeat("- {}\n", 1<<17),
		"Aliases": "x: &x [" + strings.Repeat("a,", few) + "]\ny: &y [" + strings.Repeat("*x,", few/2) + "]\nusers: *y\n",
		"Objects": "x: &x [" + strings.Repeat("{},", few/2) + "]\nusers: *x\nclusters: *x\ncontexts: *x\nextensions: *x\n",
		"Merged":  "x: &x {name: a, user: {token: b}}\nusers: [" + strings.Repeat("{<<: *x},", few/2) + "]\n",
		"Token":   "users: [{name: u, user: {token: " + strings.Repeat("t", fuzzed.MiB-100) + "}}]\n",
		"Data":    `{"users":[{"name":"u","user":{"client-key-data":"` + strings.Repeat("YWFh", fuzzed.MiB/4-100) + `"}}]}`,
		"Lines":   "users: [{name: u, user: {token: \"" + strings.Repeat("\n", fuzzed.MiB-100) + "\"}}]\n",
		"Deep":    strings.Repeat("[", mostStructure-1),
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{Data: map[string][]byte{corev1alpha1.SecretKubeconfig: []byte(text)}}
			fuzzed.Run(t, func() int {
				_, _ = Config(fc, secret)
				return fuzzed.MiB // The maximum size of a Secret, which is read as a whole.
			}, rescue.Count)
		})
	}
	pem := strings.Repeat("-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n", fuzzed.MiB/60)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Annotations: destination("https://elsewhere:1", false)},
		Data: map[string][]byte{
			corev1alpha1.SecretClientCertificate: []byte(pem), corev1alpha1.SecretClientKey: []byte(pem), corev1alpha1.SecretCertificateAuth: []byte(pem),
		},
	}
	fuzzed.Run(t, func() int {
		cfg, err := Config(fc, secret)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := newMember("eu-1", cfg, observer{}, nil, logr.Logger{}); err == nil {
			m.close()
		}
		return 3 * len(pem)
	}, rescue.Count)
}

// FuzzCluster: any FederatedCluster can be reconciled, and the same health is written into its status only once.
func FuzzCluster(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"spec":{"apiEndpoint":"https://h","secretRef":{"name":"s"},"taints":[{"key":"a","effect":"NoExecute"}]},"status":{"joinPerformed":true}}`,
		`{"metadata":{"labels":{"a":"b"},"annotations":{"refract.dev/approve-deletions":"x"},"finalizers":["refract.dev/cleanup"]},` +
			`"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Ready","status":"False","reason":"x"},{"type":"","status":""}]}}`,
		`{"status":{"deletionsHeld":{"token":"","copies":-1,"groups":[{}]},"conditions":[{"type":"DeletionsHeld","status":"True"}]}}`,
		`{"status":{"conditions":[{"type":"Joined","status":"True","lastTransitionTime":null},{"type":"Offline","status":"Unknown"}]}}`,
	} {
		f.Add([]byte(text))
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, corev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fc := &corev1alpha1.FederatedCluster{}
		if len(text) > fuzzed.MiB || json.Unmarshal(text, fc) != nil {
			t.Skip("no FederatedCluster")
		}
		// The API server ensures these properties.
		fc.TypeMeta, fc.DeletionTimestamp, fc.ManagedFields = metav1.TypeMeta{}, nil, nil
		fc.Name, fc.GenerateName, fc.Namespace, fc.ResourceVersion = "m", "", "", ""
		hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(fc).WithStatusSubresource(fc).Build()
		r := &Reconciler{Client: hub, Secrets: direct{hub}, Set: &Set{OnCopy: func(*Member, Key) {}, OnChange: func(string) {}}, SystemNamespace: "sys"}
		t.Cleanup(r.Set.Close)
		fuzzed.Run(t, func() int {
			request := reconcile.Request{NamespacedName: types.NamespacedName{Name: "m"}}
			if _, err := r.Reconcile(t.Context(), request); err != nil {
				t.Errorf("Reconcile(): %v", err)
			}
			if clusters := r.Set.Clusters(); len(clusters) > 1 || len(clusters) == 1 && clusters[0].Ready {
				t.Errorf("want no ready cluster, whatever the status says, got %v", clusters)
			}
			return 16 * len(text) // The fake hub encodes and decodes the text repeatedly.
		}, rescue.Count)
		before, after := fc, fc.DeepCopy()
		for _, h := range []health{
			{ready: true, joined: true}, {offline: true, reason: "Unreachable", message: "x"}, {reason: "InvalidCredentials"},
			{ready: true, joined: true, lacking: "a", excess: "b", leaving: "c", pending: "d", held: &corev1alpha1.DeletionsHeld{Token: "t"}},
		} {
			now := metav1.NewTime(time.Unix(1, 0))
			setConditions(&after.Status, h, now)
			if setConditions(&after.Status, h, metav1.NewTime(time.Unix(2, 0))) {
				t.Errorf("%+v is written twice: %+v", h, after.Status.Conditions)
			}
			if isTrue(&after.Status, corev1alpha1.ClusterReady) != h.ready {
				t.Errorf("want Ready to be %t: %+v", h.ready, after.Status.Conditions)
			}
			r.concerns(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
			if _, free := r.release(after, h, outcome{}); free && (h.ready || after.Status.JoinPerformed) {
				t.Errorf("the finalizer is removed although the cluster was joined once: %+v", after.Status)
			}
		}
	})
}
