package playground

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestControl stops the components of a hub with each of the methods, and starts them again.
func TestControl(t *testing.T) {
	t.Parallel()
	bin, err := Assets("../../bin/refract")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(t.Context(), Options{Dir: filepath.Join(t.TempDir(), "p"), Assets: bin, Audit: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, must := client(t, p.Hub()), func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	identity := uid(t, c)
	create(t, c, "first")

	t.Run("HaltAndRevive", func(t *testing.T) {
		must(p.Halt("hub", APIServer))
		must(p.Halt("hub", APIServer)) // The second call has no effect.
		if _, err := net.Dial("tcp4", strings.TrimPrefix(p.Hub().Endpoint, "https://")); err == nil {
			t.Error("The port of a server that is halted must refuse connections.")
		}
		must(p.Kill("hub", Etcd))
		must(p.Revive(t.Context(), "hub", Etcd))
		must(p.Revive(t.Context(), "hub", APIServer))
		if p.Revive(t.Context(), "hub", APIServer) == nil {
			t.Error("What runs cannot be revived.")
		}
		if _, err := c.CoreV1().Namespaces().Get(t.Context(), "first", metav1.GetOptions{}); err != nil {
			t.Errorf("The data must be there as before: %v", err)
		}
	})

	t.Run("FreezeAndThaw", func(t *testing.T) {
		must(p.Freeze("hub", APIServer))
		must(await(t.Context(), func(ctx context.Context) error { // A process that runs on another processor stops only after a moment.
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			if _, err := c.CoreV1().Namespaces().Get(ctx, "first", metav1.GetOptions{}); !errors.Is(err, context.DeadlineExceeded) {
				return errors.Join(errors.New("a server that is frozen answers"), err)
			}
			return nil
		}))
		must(p.Thaw("hub", APIServer))
		if _, err := c.CoreV1().Namespaces().Get(t.Context(), "first", metav1.GetOptions{}); err != nil {
			t.Errorf("A server that was thawed answers: %v", err)
		}
	})

	t.Run("SaveAndRestore", func(t *testing.T) {
		backup := filepath.Join(t.TempDir(), "backup")
		if p.Save("hub", backup) == nil || p.Wipe("hub") == nil {
			t.Error("What is at work must not be copied or removed.")
		}
		must(p.Halt("hub", APIServer))
		must(p.Halt("hub", Etcd))
		must(p.Save("hub", backup))
		must(p.Revive(t.Context(), "hub", Etcd))
		must(p.Revive(t.Context(), "hub", APIServer))
		create(t, c, "second")

		must(p.Halt("hub", APIServer))
		must(p.Halt("hub", Etcd))
		must(p.Restore("hub", backup))
		must(p.Revive(t.Context(), "hub", Etcd))
		must(p.Revive(t.Context(), "hub", APIServer))
		if _, err := c.CoreV1().Namespaces().Get(t.Context(), "second", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("What came after the backup is lost: got %v", err)
		}
		if got := uid(t, c); got != identity {
			t.Errorf("It is the same cluster: want UID %s, got %s", identity, got)
		}
	})

	t.Run("Wipe", func(t *testing.T) {
		must(p.Kill("hub", APIServer))
		must(p.Kill("hub", Etcd))
		must(p.Wipe("hub"))
		must(p.Revive(t.Context(), "hub", Etcd))
		must(p.Revive(t.Context(), "hub", APIServer))
		must(await(t.Context(), func(context.Context) error { // The API server creates its namespaces only after a moment.
			_, err := c.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
			return err
		}))
		if got := uid(t, c); got == identity {
			t.Errorf("A cluster that has lost everything is another one: got the same UID %s", got)
		}
	})

	t.Run("Audit", func(t *testing.T) {
		path, err := p.AuditLog("hub")
		must(err)
		raw, err := os.ReadFile(path)
		must(err)
		for line := range strings.Lines(string(raw)) {
			var e struct {
				Verb string `json:"verb"`
				User struct {
					Username string `json:"username"`
				} `json:"user"`
				ObjectRef struct {
					Resource string `json:"resource"`
					Name     string `json:"name"`
				} `json:"objectRef"`
			}
			must(json.Unmarshal([]byte(line), &e))
			if e.Verb == "create" && e.ObjectRef.Resource == "namespaces" && e.ObjectRef.Name == "second" && e.User.Username == "hub-admin" {
				return
			}
		}
		t.Error("The audit log must say who has created the second namespace.")
	})

	t.Run("ClientCertificate", func(t *testing.T) {
		cert, key, err := p.ClientCertificate("hub", "late", []string{"system:masters"}, time.Now().Add(-time.Minute))
		must(err)
		if status := present(t, p.Hub(), cert, key); status != http.StatusUnauthorized {
			t.Errorf("A certificate that has expired is refused: got %d", status)
		}
		cert, key, err = p.ClientCertificate("hub", "early", []string{"system:masters"}, time.Now().Add(time.Minute))
		must(err)
		if status := present(t, p.Hub(), cert, key); status != http.StatusOK {
			t.Errorf("A certificate that has not expired is accepted: got %d", status)
		}
	})

	if p.crew.failed() {
		t.Errorf("What the playground itself has stopped is no loss: got %v", p.Wait())
	}
}

func create(t *testing.T, c *kubernetes.Clientset, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// uid returns the UID that identifies the cluster.
func uid(t *testing.T, c *kubernetes.Clientset) string {
	t.Helper()
	ns, err := c.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(ns.UID)
}

// present sends a request that needs permissions, with a client certificate. It returns the HTTP status.
func present(t *testing.T, c Cluster, cert, key []byte) int {
	t.Helper()
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(filepath.Dir(c.Kubeconfig), "..", c.Name, caFile+".crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{both}}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(c.Endpoint + "/api/v1/namespaces")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
