// Package e2e tests the program as its users run it: the binary, as separate
// processes, against real control planes, driven by kubectl.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/internal/playground"
)

// members is how many member clusters the fleet of the tests has.
const members = 3

// fleet is a hub with bare members, and the controllers as a process of their
// own. The tests share it; each works in a namespace of its own.
type fleet struct {
	dir     string // Of the playground.
	assets  string
	refract string // The binary.

	mu         sync.Mutex
	controller *exec.Cmd
	log        *os.File
}

var shared *fleet

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "refract-e2e-")
		if err != nil {
			return fail(err)
		}
		defer os.RemoveAll(dir)
		shared, err = startFleet(dir)
		if err != nil {
			return fail(err)
		}
		defer shared.stop()
		return m.Run()
	}())
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "e2e:", err)
	return 1
}

func startFleet(dir string) (*fleet, error) {
	assets, err := playground.Assets(filepath.Join("..", "..", "bin", "refract"))
	if err != nil {
		return nil, err
	}
	f := &fleet{dir: filepath.Join(dir, "fleet"), assets: assets, refract: filepath.Join(dir, "refract")}
	if out, err := exec.Command("go", "build", "-o", f.refract, "../../cmd/refract").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building refract: %w\n%s", err, out)
	}
	if err := os.Setenv("KUBEBUILDER_ASSETS", assets); err != nil {
		return nil, err
	}
	if _, err := f.command("up", "--dir", f.dir, "--members", fmt.Sprint(members), "--bare", "--detach"); err != nil {
		return nil, err
	}
	f.log, err = os.Create(filepath.Join(dir, "run.log"))
	if err != nil {
		return nil, err
	}
	return f, f.startController()
}

func (f *fleet) stop() {
	f.stopController(syscall.SIGTERM)
	if _, err := f.command("down", "--dir", f.dir); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
}

// startController starts `refract run` as a process of its own.
func (f *fleet) startController() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.controller = exec.Command(f.refract, "run", "--kubeconfig", f.kubeconfig("hub"))
	f.controller.Stderr = f.log
	return f.controller.Start()
}

func (f *fleet) stopController(signal syscall.Signal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.controller == nil {
		return
	}
	_ = f.controller.Process.Signal(signal)
	_ = f.controller.Wait() // A signal ends it: that is no failure here.
	f.controller = nil
}

func (f *fleet) kubeconfig(cluster string) string {
	return filepath.Join(f.dir, "kubeconfigs", cluster+".yaml")
}

// command runs refract and returns its standard output.
func (f *fleet) command(args ...string) (string, error) {
	return output(exec.Command(f.refract, args...))
}

// kubectl runs kubectl against a cluster. Standard input is the manifest.
func (f *fleet) kubectl(cluster, manifest string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(f.assets, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+f.kubeconfig(cluster))
	cmd.Stdin = strings.NewReader(manifest)
	return output(cmd)
}

func output(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return string(out), nil
}

// do runs kubectl against the hub and fails the test if that fails.
func do(t *testing.T, manifest string, args ...string) string {
	t.Helper()
	out, err := shared.kubectl("hub", manifest, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply applies a manifest to the hub.
func apply(t *testing.T, manifest string) {
	t.Helper()
	do(t, manifest, "apply", "-f", "-")
}

// namespace makes a namespace on the hub for one test.
func namespace(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	do(t, "", "create", "namespace", name)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(do(t, "", "get", "propagations", "-n", name, "-o", "yaml"))
			if log, err := os.ReadFile(shared.log.Name()); err == nil {
				t.Logf("the controllers' log ends:\n%s", log[max(0, len(log)-4000):])
			}
		}
		do(t, "", "delete", "namespace", name, "--wait=false")
	})
	return name
}

// get returns an object of a cluster, or nil.
func get(t *testing.T, cluster, kind, ns, name string) *unstructured.Unstructured {
	t.Helper()
	out, err := shared.kubectl(cluster, "", "get", kind, "-n", ns, name, "--ignore-not-found", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(out) == "" {
		return nil
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(out), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// field returns a field of an object as text; "absent" for an object that is not
// there, "" for a field that is not.
func field(u *unstructured.Unstructured, path ...string) string {
	if u == nil {
		return "absent"
	}
	v, ok, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil || !ok {
		return ""
	}
	return fmt.Sprint(v)
}

// patience is how long a test waits for what takes milliseconds. How long
// things take is for benchmarks to say.
const patience = 30 * time.Second

// eventually waits until want is what got returns, and logs how long it took.
func eventually(t *testing.T, what, want string, got func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		is := got()
		if is == want {
			t.Logf("%s: %s after %s", what, want, time.Since(began).Round(10*time.Millisecond))
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: want %q, got %q", what, want, is)
		case <-tick.C:
		}
	}
}

// everywhere waits until a field has these values on member-1, member-2, …
func everywhere(t *testing.T, what, kind, ns, name string, want []string, path ...string) {
	t.Helper()
	eventually(t, what, strings.Join(want, " "), func() string {
		var got []string
		for i := range want {
			got = append(got, field(get(t, fmt.Sprintf("member-%d", i+1), kind, ns, name), path...))
		}
		return strings.Join(got, " ")
	})
}

// status waits until the condition Synced of the object's Propagation has the
// reason, and returns the Propagation.
func status(t *testing.T, ns, record, reason string) *unstructured.Unstructured {
	t.Helper()
	var p *unstructured.Unstructured
	eventually(t, "reason of "+record, reason, func() string {
		p = get(t, "hub", "propagations.refract.dev", ns, record)
		return condition(p, "Synced", "reason")
	})
	return p
}

// condition returns a member of a condition, or "".
func condition(u *unstructured.Unstructured, kind, member string) string {
	if u == nil {
		return "absent"
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range list {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			return fmt.Sprint(m[member])
		}
	}
	return ""
}
