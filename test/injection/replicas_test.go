package injection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/webhook"
	"refract.dev/kit/webhook/pki"
	"refract.dev/test/harness"
)

// rights is the manifest of the rights of `refract run --injection`, as administrators apply it.
const rights = "../../config/rbac/injection/injection.yaml"

// kubeconfigFor returns a kubeconfig of a cluster with the rights of `refract run --injection` only.
func kubeconfigFor(ctx context.Context, cluster string) (string, error) {
	api, err := shared.Client(cluster)
	if err != nil {
		return "", err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.SystemNamespace}}
	if err := client.IgnoreAlreadyExists(api.Create(ctx, ns)); err != nil {
		return "", err
	}
	if _, err := shared.Kubectl(cluster, "", "apply", "-f", rights); err != nil {
		return "", err
	}
	token, err := shared.Kubectl(cluster, "", "create", "token", "refract-injection", "-n", ns.Name, "--duration", "2h")
	if err != nil {
		return "", err
	}
	to, err := shared.Access(cluster)
	if err != nil {
		return "", err
	}
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: to.Endpoint, CertificateAuthorityData: to.CA}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{cluster: {Token: strings.TrimSpace(token)}},
		Contexts:       map[string]*clientcmdapi.Context{cluster: {Cluster: cluster, AuthInfo: cluster}},
		CurrentContext: cluster,
	})
	if err != nil {
		return "", err
	}
	path := filepath.Join(shared.Dir, cluster+"-injection.yaml")
	return path, os.WriteFile(path, text, 0o600)
}

// replicas are replicas of `refract run --injection` for a cluster behind one address, as behind a Service.
type replicas struct {
	cluster    string
	kubeconfig string
	args       []string // Further arguments of every replica.
	front      *front
	slots      []*slot
}

// slot is a replica with its address. The replica can be started again.
type slot struct {
	name, address string
	now           *harness.Replica
}

// startReplicas starts replicas. Their certificates are some hours old, so that tests can renew them. The replicas end
// with the Env.
func startReplicas(ctx context.Context, cluster string, names []string, args ...string) (*replicas, error) {
	api, err := shared.Client(cluster)
	if err != nil {
		return nil, err
	}
	r := &replicas{cluster: cluster, args: args}
	if r.kubeconfig, err = kubeconfigFor(ctx, cluster); err != nil {
		return nil, err
	}
	bundle, err := issue(nil)
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1alpha1.SystemNamespace, Name: webhook.SecretName}, Type: corev1.SecretTypeTLS, Data: bundle,
	}
	if err := client.IgnoreAlreadyExists(api.Create(ctx, secret)); err != nil { // It may exist from earlier replicas.
		return nil, err
	}
	addresses, err := harness.FreePorts(len(names))
	if err != nil {
		return nil, err
	}
	if r.front, err = listen(addresses...); err != nil {
		return nil, err
	}
	for i, name := range names {
		s := &slot{name: name, address: addresses[i]}
		r.slots = append(r.slots, s)
		if err := r.start(s); err != nil {
			return nil, err
		}
	}
	return r, r.ready(ctx)
}

// turns has a lock for each cluster that only one test may use at a time.
var turns = map[string]*sync.Mutex{"hub": {}, other: {}}

// turn waits until no other test uses the cluster. A test that needs both clusters takes the hub first.
func turn(t *testing.T, cluster string) {
	t.Helper()
	turns[cluster].Lock()
	t.Cleanup(turns[cluster].Unlock)
}

// disturbed are the replicas that inject on other; nil until a test needs them.
var disturbed *replicas

// briefLease is the lease duration of the disturbed replicas. It is as short as a busy machine allows, because tests
// wait until a Lease expires, or until a leader that could not renew its Lease for two thirds of this time ends.
const briefLease = "8s"

// disturb waits until no other test uses the cluster other, and returns the two replicas that inject there. The test
// may stop or pause them: they are restarted before the next test.
func disturb(t *testing.T) *replicas {
	t.Helper()
	turn(t, other)
	if disturbed == nil {
		r, err := startReplicas(context.WithoutCancel(t.Context()), other, []string{"three", "four"}, "--lease-duration", briefLease)
		if err != nil {
			t.Fatal(err)
		}
		disturbed = r
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(disturbed.bury(ctx), disturbed.restore(ctx)); err != nil {
			t.Error(err)
		}
	})
	return disturbed
}

// alone is [begin] for a test that stops replicas, or needs a cluster without policies of other tests. It waits until
// no other test uses the cluster other, and creates a namespace there.
func alone(t *testing.T) *scene {
	t.Helper()
	r := disturb(t)
	s := beginOn(t, other, harness.NameOf(t))
	t.Cleanup(s.clear)
	s.injectors = r
	return s
}

// issue returns the data of the webhook's Secret, with a certificate authority that is some hours old. If old has an
// authority, the new one is its successor.
func issue(old map[string][]byte) (map[string][]byte, error) {
	var before *pki.Bundle
	ago := 6 * time.Hour
	if old != nil {
		ago = 3 * time.Hour
		old = maps.Clone(old)
		delete(old, pki.AuthorityKeys) // Without the key of the authority, the replica issues a successor.
		var err error
		if before, err = pki.Parse(old); err != nil {
			return nil, err
		}
	}
	issuer := pki.Issuer{Names: []string{"127.0.0.1"}, Now: func() time.Time { return time.Now().Add(-ago) }}
	after, _, err := issuer.Renew(before)
	if err != nil {
		return nil, err
	}
	return after.Data()
}

// start starts the replica of a slot.
func (r *replicas) start(s *slot) (err error) {
	s.now, err = shared.ReplicaFor(r.cluster, s.name, append([]string{
		"--kubeconfig", r.kubeconfig, "--injection", "--trusted-authors", trusted,
		"--webhook-url", r.front.url(), "--webhook-bind-address", s.address,
	}, r.args...)...)
	return err
}

// ready waits until all replicas are ready.
func (r *replicas) ready(ctx context.Context) error {
	for _, s := range r.slots {
		if err := harness.Await(ctx, s.now.Ready); err != nil {
			return fmt.Errorf("replica %s is not ready: %w\n%s", s.name, err, harness.LogTail(s.now.Log))
		}
	}
	return nil
}

// kill ends a replica like a crash.
func (r *replicas) kill(s *slot) error { return s.now.Stop(syscall.SIGKILL) }

// restore starts the replicas that have ended, and waits until all are ready.
func (r *replicas) restore(ctx context.Context) error {
	for _, s := range r.slots {
		if !s.now.Ended() {
			continue
		}
		if err := r.start(s); err != nil {
			return err
		}
	}
	return r.ready(ctx)
}

// bury deletes the Lease of a killed leader, so that tests need not wait until the Lease expires. TestLeaderKilled
// tests this wait.
func (r *replicas) bury(ctx context.Context) error {
	api, err := shared.Client(r.cluster)
	if err != nil {
		return err
	}
	lease := &coordinationv1.Lease{}
	if err := api.Get(ctx, leaseKey, lease); err != nil {
		return client.IgnoreNotFound(err)
	}
	for _, s := range r.slots {
		if s.now.Ended() && s.holds(lease) {
			return client.IgnoreNotFound(api.Delete(ctx, lease))
		}
	}
	return nil
}

// leaseKey is the name of the Lease for the leader election.
var leaseKey = client.ObjectKey{Namespace: corev1alpha1.SystemNamespace, Name: "refract-injection"}

// holds reports whether the replica holds the Lease.
func (s *slot) holds(lease *coordinationv1.Lease) bool {
	return lease.Spec.HolderIdentity != nil && strings.HasPrefix(*lease.Spec.HolderIdentity, s.name+"_")
}

// busy returns the slot of the replica that got the API server's last connection; nil if there is none.
func (r *replicas) busy() *slot {
	last := r.front.last()
	for _, s := range r.slots {
		if s.address == last {
			return s
		}
	}
	return nil
}

// front forwards TCP connections to several addresses in turn. Like a Service, it skips those that refuse connections.
type front struct {
	listener net.Listener
	to       []string

	mu    sync.Mutex
	turn  int
	taken string // The target of the last connection.
}

func listen(to ...string) (*front, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &front{listener: l, to: to}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // The listener is closed.
			}
			go f.pass(c)
		}
	}()
	return f, nil
}

func (f *front) url() string { return "https://" + f.listener.Addr().String() }

func (f *front) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken
}

func (f *front) pass(from net.Conn) {
	defer from.Close()
	f.mu.Lock()
	f.turn++
	first := f.turn
	f.mu.Unlock()
	for i := range f.to {
		at := f.to[(first+i)%len(f.to)]
		to, err := net.DialTimeout("tcp4", at, time.Second)
		if err != nil {
			continue
		}
		f.mu.Lock()
		f.taken = at
		f.mu.Unlock()
		exchange(from, to)
		return
	}
}

// exchange copies data between two connections until one of them ends.
func exchange(a, b net.Conn) {
	var both sync.WaitGroup
	for _, c := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(c[0], c[1]) // The end of a connection is not an error here.
			_ = a.Close()
			_ = b.Close()
		})
	}
	both.Wait()
}

// webhookSecret changes the Secret of the webhook's certificates.
func webhookSecret(ctx context.Context, api client.Client, change func(*corev1.Secret) error) error {
	secret := &corev1.Secret{}
	if err := api.Get(ctx, client.ObjectKey{Namespace: corev1alpha1.SystemNamespace, Name: webhook.SecretName}, secret); err != nil {
		return err
	}
	if err := change(secret); err != nil {
		return err
	}
	return api.Update(ctx, secret)
}
