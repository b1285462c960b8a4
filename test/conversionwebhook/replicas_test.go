package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestReplicas has two processes behind one address, as behind a Service: one leads, both
// convert, and the other one takes over.
func TestReplicas(t *testing.T) {
	t.Parallel()
	w := begin(t)
	program := filepath.Join(t.TempDir(), "refract")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "refract.dev/cmd/refract").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kubeconfig := w.asItself(t)
	f := inFront(t, w.address)
	one, two := start(t, program, kubeconfig, w.address, "one"), start(t, program, kubeconfig, w.address, "two")
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

// asItself returns a kubeconfig with which the program may do what the documented roles
// say.
func (w *world) asItself(t *testing.T) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(w.kubeconfig)
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

// replica is a process.
type replica struct {
	name, address, health string
	cmd                   *exec.Cmd
}

func start(t *testing.T, program, kubeconfig, front, name string) *replica {
	t.Helper()
	r := &replica{name: name, address: free(t), health: free(t)}
	r.cmd = exec.Command(program, "run", "--conversion", "--kubeconfig", kubeconfig, "--webhook-url", "https://"+front,
		"--webhook-bind-address", r.address, "--health-probe-bind-address", r.health, "--metrics-bind-address", "0",
		"--identity", name, "--lease-duration", "2s")
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			r.end(t)
		}
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s:\n%s", name, text)
		}
		log.Close()
	})
	return r
}

// end has a replica crash.
func (r *replica) end(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if _, ok := errors.AsType[*exec.ExitError](r.cmd.Wait()); !ok {
		t.Errorf("Replica %s ended by itself", r.name)
	}
}

// ready waits until a replica says that it is ready.
func (r *replica) ready(t *testing.T) {
	t.Helper()
	eventually(t, "replica "+r.name+" is ready", func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.health+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("it answers %s", resp.Status)
		}
		return nil
	})
}

// free returns an address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
