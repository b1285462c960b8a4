package webhook

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"refract.dev/internal/poll"
)

const system = "kube-admiral-system"

// record keeps log lines.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, args)
	}, funcr.Options{})
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

func hub() client.WithWatch {
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
}

func secret(t *testing.T, c client.Client) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: system, Name: SecretName}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// local returns a server on a free port of this machine.
func local(t *testing.T, c client.WithWatch, log logr.Logger) *Server {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Client: c, Namespace: system, Listener: l, URL: "https://" + l.Addr().String(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start starts a server, which ends with the test.
func start(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("The server has ended: %v", err)
		}
	})
	poll.Eventually(t, "the server is ready", func(context.Context) error { return s.Ready() })
}

func TestOptions(t *testing.T) {
	service := types.NamespacedName{Namespace: "refract", Name: "webhook"}
	cases := map[string]struct {
		reason  string
		options Options
		names   []string
		err     string
	}{
		"URL":             {"A server outside of a cluster has a URL.", Options{URL: "https://Hub.example:9443/refract", Namespace: system}, []string{"hub.example"}, ""},
		"Address":         {"The URL may have an address instead of a name.", Options{URL: "https://[::1]:9443", Namespace: system}, []string{"::1"}, ""},
		"Service":         {"The API server expects this name in the certificate.", Options{Service: service, Namespace: system}, []string{"webhook.refract.svc", "webhook.refract"}, ""},
		"Both":            {"URL and Service together are ambiguous.", Options{URL: "https://hub.example", Service: service, Namespace: system}, nil, "a URL or a Service, and not both"},
		"Neither":         {"Without an address, the API server cannot find the server.", Options{Namespace: system}, nil, "a URL or a Service, and not both"},
		"HTTP":            {"API servers use only TLS.", Options{URL: "http://hub.example", Namespace: system}, nil, "want https://"},
		"NoHost":          {"A URL needs a host.", Options{URL: "https://:9443", Namespace: system}, nil, "want https://"},
		"Password":        {"A password in a URL would be logged.", Options{URL: "https://a:hunter2@hub.example", Namespace: system}, nil, "neither a user"},
		"Query":           {"API servers reject a URL with a query.", Options{URL: "https://hub.example?a=b", Namespace: system}, nil, "neither a user"},
		"NoNamespace":     {"The Secret needs a namespace.", Options{URL: "https://hub.example"}, nil, "namespace"},
		"ServiceOfNobody": {"A Service needs a namespace.", Options{Service: types.NamespacedName{Name: "webhook"}, Namespace: system}, nil, "namespace"},
		"NoFolder":        {"The folder of certificates must exist.", Options{URL: "https://hub.example", CertDir: "not-there"}, nil, "certificate"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := New(tc.options)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("%s\nNew(): got error %v, want %q in it", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s\nNew(): %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.names, s.endpoint.names()); diff != "" {
				t.Errorf("%s\nnames: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestClientConfig: ClientConfig also works for objects other than admission webhooks. The server's certificates are in
// a Secret of their own.
func TestClientConfig(t *testing.T) {
	c := hub()
	s, err := New(Options{
		Client: c, Namespace: system, Secret: "its-own", BindAddress: "127.0.0.1:0", Service: types.NamespacedName{Namespace: "shop", Name: "webhook"},
	})
	if err != nil {
		t.Fatal(err)
	}
	changes := s.Changes()
	if is := s.ClientConfig("/convert/a"); len(is.CABundle) > 0 {
		t.Errorf("Nothing was issued yet, and this is to be trusted: %s", is.CABundle)
	}
	start(t, s)
	<-changes
	is := s.ClientConfig("/convert/a")
	if is.URL != nil || is.Service.Namespace != "shop" || is.Service.Name != "webhook" || *is.Service.Path != "/convert/a" || *is.Service.Port != 443 {
		t.Errorf("ClientConfig(): got %+v", is)
	}
	if len(is.CABundle) == 0 {
		t.Error("Nothing is to be trusted.")
	}
	for name, there := range map[string]bool{"its-own": true, SecretName: false} {
		err := c.Get(t.Context(), client.ObjectKey{Namespace: system, Name: name}, &corev1.Secret{})
		if (err == nil) != there {
			t.Errorf("Secret %s: got %v, want it there: %t", name, err, there)
		}
	}
}
