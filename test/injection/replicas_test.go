package injection

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/webhook"
	"refract.dev/test/fleet"
	"refract.dev/webhook/pki"
)

// rights is what `refract run --injection` may do, as an administrator is told to
// apply it.
const rights = "../../config/rbac/injection/injection.yaml"

// kubeconfigFor makes a kubeconfig with which `refract run --injection` may do in a
// cluster what it needs, and nothing else.
func kubeconfigFor(ctx context.Context, cluster string) (string, error) {
	api, err := connect(cluster, "", nil)
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
	path := filepath.Join(filepath.Dir(shared.Binary()), cluster+"-injection.yaml")
	return path, os.WriteFile(path, text, 0o600)
}

// replicas are two replicas of `refract run --injection` behind one address, as
// they are behind a Service.
type replicas struct {
	kubeconfig string
	front      *front
	slots      [2]*slot
}

// slot is a replica and where it serves; it may be started again.
type slot struct {
	name, address string
	now           *fleet.Replica
}

// startReplicas starts both for member, with certificates that were issued a while
// ago, so that renewing them can be seen.
func startReplicas(ctx context.Context) (*replicas, error) {
	api, err := connect(member, "", nil)
	if err != nil {
		return nil, err
	}
	r := &replicas{}
	if r.kubeconfig, err = kubeconfigFor(ctx, member); err != nil {
		return nil, err
	}
	bundle, err := issue(nil)
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1alpha1.SystemNamespace, Name: webhook.SecretName}, Type: corev1.SecretTypeTLS, Data: bundle,
	}
	if err := api.Create(ctx, secret); err != nil {
		return nil, err
	}
	addresses, err := fleet.FreePorts(2)
	if err != nil {
		return nil, err
	}
	if r.front, err = listen(addresses...); err != nil {
		return nil, err
	}
	for i, name := range []string{"one", "two"} {
		r.slots[i] = &slot{name: name, address: addresses[i]}
		if err := r.start(r.slots[i]); err != nil {
			return nil, err
		}
	}
	return r, r.ready(ctx)
}

// issue returns the data of the webhook's Secret with an authority that has been
// trusted for hours, beside what there was.
func issue(old map[string][]byte) (map[string][]byte, error) {
	var before *pki.Bundle
	ago := 6 * time.Hour
	if old != nil {
		ago = 3 * time.Hour
		old = maps.Clone(old)
		delete(old, pki.AuthorityKeys) // An authority that cannot sign has a successor issued.
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
	s.now, err = shared.StartReplicaFor(member, s.name, "--kubeconfig", r.kubeconfig, "--injection", "--trusted-authors", trusted,
		"--webhook-url", r.front.url(), "--webhook-bind-address", s.address)
	return err
}

// ready waits until both replicas are at work.
func (r *replicas) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, s := range r.slots {
		if err := wait(ctx, s.now.Ready); err != nil {
			return fmt.Errorf("replica %s is not ready: %w\n%s", s.name, err, fleet.LogTail(s.now.Log))
		}
	}
	return nil
}

// kill ends a replica as a crash does.
func (r *replicas) kill(s *slot) error { return s.now.Stop(syscall.SIGKILL) }

// restore starts what was killed, and waits until all are at work.
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

// busy returns the slot of the replica that the API server is connected to, and is
// nil if it is to none.
func (r *replicas) busy() *slot {
	last := r.front.last()
	for _, s := range r.slots {
		if s.address == last {
			return s
		}
	}
	return nil
}

func (r *replicas) close() { r.front.close() }

// front passes TCP connections on to several addresses, in turn, as a Service
// does. One that refuses is passed over: a Service leaves out what is not ready.
type front struct {
	listener net.Listener
	to       []string

	mu    sync.Mutex
	turn  int
	taken string // Where the last connection went.
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
				return // It was closed.
			}
			go f.pass(c)
		}
	}()
	return f, nil
}

func (f *front) url() string { return "https://" + f.listener.Addr().String() }

func (f *front) close() { _ = f.listener.Close() }

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

// exchange passes on what either says until one of them ends.
func exchange(a, b net.Conn) {
	var both sync.WaitGroup
	for _, c := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(c[0], c[1]) // The end of a connection is no failure here.
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
