// Package e2e tests the program as its users run it: the binary, as separate
// processes, against real control planes, driven by kubectl.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/test/fleet"
)

// members is how many member clusters the fleet of the tests has.
const members = 3

// shared is the fleet of all tests, controllers included. Each test works in a
// namespace of its own.
var shared *fleet.Fleet

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "refract-e2e-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if shared, err = fleet.Start(dir, "../..", members); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, shared.Stop()) }()
	if err := shared.StartControllers(); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// do runs kubectl against the hub and fails the test if that fails.
func do(t *testing.T, manifest string, args ...string) string {
	t.Helper()
	out, err := shared.Kubectl("hub", manifest, args...)
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
			if log, err := os.ReadFile(shared.Log); err == nil {
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
	out, err := shared.Kubectl(cluster, "", "get", kind, "-n", ns, name, "--ignore-not-found", "-o", "json")
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
// things take is for benchmarks to say. A machine that is busy with other things is slow.
const patience = 90 * time.Second

// eventually waits until want is what got returns, and logs how long it took.
func eventually(t *testing.T, what, want string, got func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience) // It may be asked for by a cleanup.
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

// everywhere waits until a field has these values on member-1, member-2 and so on.
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
