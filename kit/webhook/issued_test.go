package webhook

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"refract.dev/kit/webhook/pki"
)

const (
	system     = "pizza"
	secretName = "webhook"
)

var begin = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// clock is a clock that the test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

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

func hub(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).Build()
}

func secret(t *testing.T, c client.Client) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: system, Name: secretName}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// issuing returns certificates in the Secret.
func issuing(c client.WithWatch, now func() time.Time, log logr.Logger, names ...string) *issued {
	o := IssuedOptions{CreateNamespace: true, Log: log, Now: now}
	return Issued(c, types.NamespacedName{Namespace: system, Name: secretName}, names, o).(*issued)
}

func synced(t *testing.T, s *issued) *pki.Bundle {
	t.Helper()
	if err := s.sync(t.Context()); err != nil {
		t.Fatalf("sync(): %v", err)
	}
	return s.bundle.Load()
}

func TestSecretIsIssuedAndKept(t *testing.T) {
	c, now := hub(), &clock{now: begin}
	var log record
	s := issuing(c, now.read, log.logger(), "hub.example")
	changes := s.Changes()
	if _, err := s.Serving(); err == nil {
		t.Error("Before the first sync there must be no certificate.")
	}
	first := synced(t, s)
	is := secret(t, c)
	if diff := cmp.Diff([]string{"ca.crt", "ca.key", "tls.crt", "tls.key"}, slices.Sorted(maps.Keys(is.Data))); diff != "" {
		t.Errorf("keys that other programs read: -want, +got:\n%s", diff)
	}
	if is.Type != corev1.SecretTypeTLS {
		t.Errorf("The Secret is of type %q, want %q", is.Type, corev1.SecretTypeTLS)
	}
	select {
	case <-changes:
	default:
		t.Error("There was no notification about a new authority.")
	}

	synced(t, s)
	if diff := cmp.Diff(is, secret(t, c)); diff != "" {
		t.Errorf("The Secret was written although no renewal was due: -before, +after:\n%s", diff)
	}

	now.add(pki.ServingLife)
	if renewed := synced(t, s); renewed.Serving().Leaf.Equal(first.Serving().Leaf) {
		t.Error("The certificate was not renewed.")
	}
	select {
	case <-changes:
		t.Error("There was a notification without a new authority.")
	default:
	}
	if strings.Contains(log.String(), "PRIVATE") || strings.Count(log.String(), "Renewed") != 2 {
		t.Errorf("Each renewal must be logged, without keys:\n%s", &log)
	}
}

func TestDamagedSecretIsReplaced(t *testing.T) {
	cases := map[string]struct {
		reason string
		secret *corev1.Secret
		logs   string
	}{
		"Rubbish": {
			reason: "A damaged Secret is repaired without an operator.",
			secret: &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{IssuedAnnotation: "true"}},
				Type:       corev1.SecretTypeTLS,
				Data:       map[string][]byte{"ca.crt": []byte("hunter2"), "tls.crt": []byte("hunter2"), "tls.key": []byte("hunter2")},
			},
			logs: "The webhook's Secret was damaged",
		},
		"OfAnotherType": {
			reason: "The type of a Secret is immutable, and does not matter.",
			secret: &corev1.Secret{Type: corev1.SecretTypeOpaque},
			logs:   "The webhook's Secret was damaged",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.secret.Namespace, tc.secret.Name = system, secretName
			c := hub(tc.secret)
			var log record
			s := issuing(c, (&clock{now: begin}).read, log.logger(), "hub.example")
			b := synced(t, s)
			stored, err := pki.Parse(secret(t, c).Data)
			if err != nil || !stored.Serving().Leaf.Equal(b.Serving().Leaf) {
				t.Errorf("%s\nThe Secret does not hold the served certificate: %v", tc.reason, err)
			}
			if got := secret(t, c).Type; got != tc.secret.Type {
				t.Errorf("%s\nThe type of the Secret became %s", tc.reason, got)
			}
			if !strings.Contains(log.String(), tc.logs) || strings.Contains(log.String(), "hunter2") {
				t.Errorf("%s\nThe log must have %q, and no data of the Secret:\n%s", tc.reason, tc.logs, &log)
			}
		})
	}
}

// TestForeignSecretIsLeftAlone: a Secret of another owner is not changed.
func TestForeignSecretIsLeftAlone(t *testing.T) {
	data := func(keys ...string) map[string][]byte {
		d := map[string][]byte{}
		for _, key := range keys {
			d[key] = []byte("precious")
		}
		return d
	}
	cases := map[string]struct {
		reason string
		secret corev1.Secret
		want   string
	}{
		"Mistyped": {
			reason: "The data of an application cannot be restored.",
			secret: corev1.Secret{Data: data("password")}, want: "it has a password that was not issued here",
		},
		"Authority": {
			reason: "The key of a foreign authority cannot be restored.",
			secret: corev1.Secret{Type: corev1.SecretTypeTLS, Data: data("tls.crt", "tls.key", "ca.crt", "ca.key")}, want: "it has a ca.crt that was not issued here",
		},
		"CertManager": {
			reason: "The server and cert-manager would overwrite each other's changes for ever.",
			secret: corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"cert-manager.io/certificate-name": "webhook", IssuedAnnotation: "true"}},
				Type:       corev1.SecretTypeTLS, Data: data("tls.crt", "tls.key", "ca.crt"),
			},
			want: "it belongs to cert-manager",
		},
		"Type": {
			reason: "A Secret whose type tells another purpose is not used.",
			secret: corev1.Secret{Type: corev1.SecretTypeServiceAccountToken}, want: "it is of type kubernetes.io/service-account-token",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.secret.Namespace, tc.secret.Name = system, secretName
			c := hub(&tc.secret)
			before := secret(t, c)
			certs := issuing(c, (&clock{now: begin}).read, logr.Discard(), "hub.example")
			err := certs.sync(t.Context())
			if err == nil || !strings.Contains(err.Error(), system+"/"+secretName) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nThe error of sync() must contain the Secret's name and %q: got %v", tc.reason, tc.want, err)
			}
			if diff := cmp.Diff(before, secret(t, c)); diff != "" {
				t.Errorf("%s\n-before, +after:\n%s", tc.reason, diff)
			}
			if _, err := certs.Serving(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nThe error of Serving(), which readiness reports, must contain %q: got %v", tc.reason, tc.want, err)
			}
		})
	}
}

// TestWhatIsBesideStays: other keys, labels and annotations in the server's Secret stay. The Secret comes from a
// version of Refract that set no annotation.
func TestWhatIsBesideStays(t *testing.T) {
	c, now := hub(), &clock{now: begin}
	first := synced(t, issuing(c, now.read, logr.Discard(), "hub.example"))
	is := secret(t, c)
	is.Annotations, is.Labels = map[string]string{"owner": "me"}, map[string]string{"team": "pizza"}
	is.Data["truststore.jks"] = []byte("precious")
	if err := c.Update(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	now.add(pki.ServingLife)
	if renewed := synced(t, issuing(c, now.read, logr.Discard(), "hub.example")); renewed.Serving().Leaf.Equal(first.Serving().Leaf) {
		t.Error("The certificate was not renewed.")
	}
	after := secret(t, c)
	if diff := cmp.Diff(map[string]string{"owner": "me", IssuedAnnotation: "true"}, after.Annotations); diff != "" {
		t.Errorf("annotations: -want, +got:\n%s", diff)
	}
	if string(after.Data["truststore.jks"]) != "precious" || after.Labels["team"] != "pizza" || len(after.Data) != 5 {
		t.Errorf("Foreign data were lost: got labels %v, keys %v", after.Labels, slices.Sorted(maps.Keys(after.Data)))
	}
}

func TestNames(t *testing.T) {
	cases := map[string]struct {
		reason string
		names  []string
		want   string // Substring of the error; empty for no error.
	}{
		"Good":     {"Hosts that a client can connect to are accepted.", []string{"webhook.pizza.svc", "*.pizza.svc", "localhost", "127.0.0.1", "::1"}, ""},
		"None":     {"No client can verify a certificate without names.", nil, "has no name"},
		"Empty":    {"An empty name is a mistake.", []string{"webhook.pizza.svc", ""}, `cannot be for ""`},
		"URL":      {"The error suggests the host of a URL.", []string{"https://host.example:8443/x"}, `write "host.example"`},
		"Port":     {"A certificate is for a host, not for a port.", []string{"127.0.0.1:8443"}, `write "127.0.0.1"`},
		"Brackets": {"The brackets in a URL are not part of the address.", []string{"[::1]:8443"}, `write "::1"`},
		"Rooted":   {"Certificates have no dot at the end.", []string{"webhook.pizza.svc."}, `write "webhook.pizza.svc"`},
		"Letters":  {"A URL with an invalid host has no valid suggestion.", []string{"https://web_hook"}, "or an IP address"},
		"Rubbish":  {"A name with a space has no valid suggestion.", []string{"web hook"}, `cannot be for "web hook"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			certs := Issued(hub(), types.NamespacedName{Namespace: system, Name: secretName}, tc.names, IssuedOptions{})
			_, err := New(Options{Certificates: certs})
			if tc.want == "" {
				if err != nil {
					t.Errorf("%s\nNew(): %v", tc.reason, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nNew(): want %q, got %v", tc.reason, tc.want, err)
			}
			if err := certs.Run(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nRun(): want %q, got %v", tc.reason, tc.want, err)
			}
		})
	}
}

// TestReplicasRace: another replica writes the Secret right after this replica has read it. One write succeeds, and
// both replicas serve with the certificate of that write.
func TestReplicasRace(t *testing.T) {
	cases := map[string]struct {
		reason  string
		prepare func(other *issued, now *clock) error
	}{
		"Create": {
			reason:  "Both replicas find no Secret.",
			prepare: func(*issued, *clock) error { return nil },
		},
		"Renew": {
			reason: "Both replicas find a certificate that is due for renewal.",
			prepare: func(other *issued, now *clock) error {
				defer now.add(pki.ServingLife)
				return other.sync(t.Context())
			},
		},
		"RenewAuthority": {
			reason: "Both replicas find an authority that is due for renewal.",
			prepare: func(other *issued, now *clock) error {
				defer now.add(pki.AuthorityLife / 4 * 3)
				return other.sync(t.Context())
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, now := hub(), &clock{now: begin}
			other := issuing(c, now.read, logr.Discard(), "hub.example")
			if err := tc.prepare(other, now); err != nil {
				t.Fatal(err)
			}
			var once sync.Once
			slow := interceptor.NewClient(c, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
					err := c.Get(ctx, key, obj, o...)
					once.Do(func() { synced(t, other) })
					return err
				},
			})
			one := issuing(slow, now.read, logr.Discard(), "hub.example")
			if !synced(t, one).Serving().Leaf.Equal(other.bundle.Load().Serving().Leaf) {
				t.Errorf("%s\nThe replicas serve with different certificates.", tc.reason)
			}
			if diff := cmp.Diff(string(other.Trusted()), string(one.Trusted())); diff != "" {
				t.Errorf("%s\nThe replicas trust different authorities: -one, +other:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNamespaceIsMade(t *testing.T) {
	c := interceptor.NewClient(hub(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if obj.GetNamespace() != "" && apierrors.IsNotFound(c.Get(ctx, client.ObjectKey{Name: obj.GetNamespace()}, &corev1.Namespace{})) {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, obj.GetNamespace()) // Like an API server.
			}
			return c.Create(ctx, obj, o...)
		},
	})
	synced(t, issuing(c, (&clock{now: begin}).read, logr.Discard(), "hub.example"))
	if err := c.Get(t.Context(), client.ObjectKey{Name: system}, &corev1.Namespace{}); err != nil {
		t.Error(err)
	}
}

func TestSecretThatOthersWriteAllTheTime(t *testing.T) {
	c := interceptor.NewClient(hub(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: secretName}}), interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, secretName, nil)
		},
	})
	s := issuing(c, (&clock{now: begin}).read, logr.Discard(), "hub.example")
	if err := s.sync(t.Context()); err == nil || !strings.Contains(err.Error(), secretName) {
		t.Errorf("sync() must give up, and name the Secret: got %v", err)
	}
}

// TestServersShareTheSecret: the servers of two programs with different names share a Secret.
func TestServersShareTheSecret(t *testing.T) {
	c := hub()
	now := (&clock{now: begin}).read
	one := issuing(c, now, logr.Discard(), "hub.example")
	other := issuing(c, now, logr.Discard(), "injection.refract.svc")
	synced(t, one)
	synced(t, other)
	is := secret(t, c)
	for _, s := range []*issued{one, other} {
		if err := synced(t, s).Serving().Leaf.VerifyHostname(s.issuer.Names[0]); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(is, secret(t, c)); diff != "" {
		t.Errorf("The servers undo each other's changes: -before, +after:\n%s", diff)
	}
}
