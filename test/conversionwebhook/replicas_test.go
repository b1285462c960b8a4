package conversionwebhook

import (
	"syscall"

	"refract.dev/test/harness"

	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestReplicas runs two processes behind one address, as behind a Service: one leads, both convert, and the other one
// takes over after a crash.
func TestReplicas(t *testing.T) {
	t.Parallel()
	w := begin(t)
	kubeconfig := w.asItself(t)
	f := inFront(t, w.address)
	one, two := w.start(t, kubeconfig, "one"), w.start(t, kubeconfig, "two")
	one.ready(t)
	two.ready(t)
	f.to.Store(&one.address)

	w.converts(t, "Widget")
	f.to.Store(&two.address)
	w.create(t, of(object, "Widget", "name: a", "name: b"))
	w.reads(t, "Widget", "v2", "b", ".spec.capacity", "5")

	leader, other := one, two
	holder := w.must(t, "", "get", "lease", "refract-conversion", "-n", "kube-admiral-system", "-o", "jsonpath={.spec.holderIdentity}")
	if strings.HasPrefix(holder, "two_") {
		leader, other = two, one
	}
	leader.end(t)
	f.to.Store(&other.address)
	w.converts(t, "Gadget")
	w.must(t, of(policy, "Widget")+"    - {hub: spec.name, spoke: spec.name, map: [{hub: six, spoke: five}]}\n", "apply", "-f", "-")
	if message := w.condition(t, "widgets", refractv1alpha1.ConversionReady, "Serving"); !strings.Contains(message, "generation 2") {
		t.Errorf("The message is %q", message)
	}
	w.create(t, of(object, "Widget", "name: a", "name: c"))
	w.reads(t, "Widget", "v2", "c", ".spec.name", "six")
}

// asItself returns a kubeconfig for a user with the documented roles of the program.
func (w *world) asItself(t *testing.T) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(w.env.Kubeconfig("hub"))
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate, user.ImpersonateGroups = w.own.Impersonate.UserName, w.own.Impersonate.Groups
	}
	path := filepath.Join(t.TempDir(), "kubeconfig.yaml")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// front passes connections on to a replica.
type front struct{ to atomic.Pointer[string] }

func inFront(t *testing.T, address string) *front {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f := &front{}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go f.pass(in)
		}
	}()
	return f
}

func (f *front) pass(in net.Conn) {
	defer in.Close()
	to := f.to.Load()
	if to == nil {
		return
	}
	out, err := new(net.Dialer).DialContext(context.Background(), "tcp", *to)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		_, _ = io.Copy(out, in)
		out.Close()
	}()
	_, _ = io.Copy(in, out)
}

// replica is a process and its address.
type replica struct {
	*harness.Replica

	address string
}

// start starts a replica behind the front.
func (w *world) start(t *testing.T, kubeconfig, name string) *replica {
	t.Helper()
	addresses, err := harness.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{address: addresses[0]}
	r.Replica, err = w.env.Replica(name, "--conversion", "--kubeconfig", kubeconfig, "--webhook-url", "https://"+w.address,
		"--webhook-bind-address", r.address, "--lease-duration", "2s")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// end makes a replica crash.
func (r *replica) end(t *testing.T) {
	t.Helper()
	if r.Ended() {
		t.Errorf("Replica %s ended before it was killed", r.Name)
	}
	if err := r.Stop(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// ready waits until a replica reports that it is ready.
func (r *replica) ready(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "replica "+r.Name+" is ready", r.Ready)
}
