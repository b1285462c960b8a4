// Package e2e tests the program as a separate process against real control planes, as users run it. Most tests write
// with a Go client, because kubectl takes a hundred times as long.
package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

// members is the number of member clusters of the shared fleet.
const members = 3

var (
	// env has the fleet of all tests. Each test has its own namespace, and its own names for cluster-scoped objects.
	env *harness.Env
	// clients are administrators' clients, by the name of the cluster.
	clients = map[string]client.WithWatch{}
	// controllers run for all tests. Tests that stop them are not parallel.
	controllers *harness.Replica
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Topology{Members: members, CRDs: true}, setup)
}

// setup joins the members and starts the controllers. Some tests run the program to start their own playgrounds; the
// program must find the binaries of the control plane for that.
func setup(ctx context.Context, e *harness.Env) (stop func() error, err error) {
	env = e
	if err := os.Setenv("KUBEBUILDER_ASSETS", env.Assets()); err != nil {
		return nil, err
	}
	for _, cluster := range append([]string{"hub"}, env.Members...) {
		if clients[cluster], err = env.Client(cluster); err != nil {
			return nil, err
		}
	}
	if err := env.JoinAll(ctx); err != nil {
		return nil, err
	}
	if err := startControllers(usual); err != nil {
		return nil, err
	}
	if err := harness.Await(ctx, controllers.Ready); err != nil {
		return nil, fmt.Errorf("the controllers are not ready: %w\n%s", err, harness.LogTail(controllers.Log))
	}
	return nil, nil //nolint:nilnil // There is nothing to stop.
}

// usual and brief are lease durations: the failover delay after a crash. A test that kills controllers starts them with
// brief, because the next controllers wait until the lease expires. A brief lease is risky for long: the controllers
// end if the API server of a busy machine does not answer for two thirds of it.
const usual, brief = 15 * time.Second, 5 * time.Second

func startControllers(lease time.Duration) (err error) {
	controllers, err = env.Replica("controllers", "--lease-duration", lease.String(), "--deletion-guard", "100")
	return err
}

// start starts the controllers.
func start(t *testing.T, lease time.Duration) {
	t.Helper()
	if err := startControllers(lease); err != nil {
		t.Fatal(err)
	}
}

// stop ends the controllers with the signal. They are started again at the end of the test.
func stop(t *testing.T, signal syscall.Signal) {
	t.Helper()
	t.Cleanup(func() {
		if controllers.Ended() {
			start(t, usual)
		}
	})
	if err := controllers.Stop(signal); err != nil {
		t.Fatal(err)
	}
}

// do runs kubectl against the hub and fails the test if that fails.
func do(t *testing.T, manifest string, args ...string) string {
	t.Helper()
	out, err := env.Kubectl("hub", manifest, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply applies a manifest to the hub.
func apply(t *testing.T, manifest string) {
	t.Helper()
	if err := harness.ApplyAll(t.Context(), clients["hub"], manifest); err != nil {
		t.Fatal(err)
	}
}

// namespace makes a namespace on the hub for one test.
func namespace(t *testing.T) string {
	t.Helper()
	name := env.Namespace(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(env.Kubectl("hub", "", "get", "propagations", "-n", name, "-o", "yaml"))
			t.Logf("the controllers' log ends:\n%s", harness.LogTail(controllers.Log))
		}
	})
	return name
}

// get returns an object of a cluster, or nil. It waits until the cluster serves the type.
func get(t *testing.T, cluster, kind, ns, name string) (u *unstructured.Unstructured) {
	t.Helper()
	harness.Eventually(t, "reading "+kind+" "+name, func(ctx context.Context) (err error) {
		u, err = env.Get(ctx, cluster, kind, ns, name)
		return err
	})
	return u
}

// there returns an object like get, and fails the test if the object does not exist.
func there(t *testing.T, cluster, kind, ns, name string) *unstructured.Unstructured {
	t.Helper()
	u := get(t, cluster, kind, ns, name)
	if u == nil {
		t.Fatalf("%s: there is no %s %s/%s", cluster, kind, ns, name)
	}
	return u
}

// change patches an object of a cluster: with a JSON patch if the patch is a list, otherwise with a merge patch.
func change(t *testing.T, cluster, kind, ns, name, patch string, options ...client.PatchOption) {
	t.Helper()
	of := types.MergePatchType
	if strings.HasPrefix(patch, "[") {
		of = types.JSONPatchType
	}
	ctx := context.WithoutCancel(t.Context()) // Cleanups may call this function.
	if err := clients[cluster].Patch(ctx, there(t, cluster, kind, ns, name), client.RawPatch(of, []byte(patch)), options...); err != nil {
		t.Fatal(err)
	}
}

// somebody is a field manager for changes of objects that it does not own.
const somebody = client.FieldOwner("somebody")

// annotate sets annotations of an object on the hub; a null value removes the annotation.
func annotate(t *testing.T, kind, ns, name, annotations string) {
	t.Helper()
	change(t, "hub", kind, ns, name, `{"metadata":{"annotations":{`+annotations+`}}}`)
}

// label sets labels of an object on the hub; a null value removes the label.
func label(t *testing.T, kind, ns, name, labels string) {
	t.Helper()
	change(t, "hub", kind, ns, name, `{"metadata":{"labels":{`+labels+`}}}`)
}

// remove deletes an object of a cluster, and waits until it is gone.
func remove(t *testing.T, cluster, kind, ns, name string) {
	t.Helper()
	u := there(t, cluster, kind, ns, name)
	ctx := context.WithoutCancel(t.Context())
	if err := clients[cluster].Delete(ctx, u, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	eventually(t, kind+" "+name+" of "+cluster, "gone", func() string {
		if now := get(t, cluster, kind, ns, name); now != nil && now.GetUID() == u.GetUID() {
			return "there"
		}
		return "gone"
	})
}

// define installs a definition on a cluster until the test ends.
func define(t *testing.T, cluster, definition, name string) {
	t.Helper()
	if err := harness.ApplyAll(t.Context(), clients[cluster], definition); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if get(t, cluster, "crd", "", name) != nil {
			remove(t, cluster, "crd", "", name)
		}
	})
	eventually(t, cluster+": "+name+" is established", "True", func() string {
		return condition(get(t, cluster, "crd", "", name), string(apiextensionsv1.Established), "status")
	})
}

// eventually waits until got returns want.
func eventually(t *testing.T, what, want string, got func() string) {
	t.Helper()
	harness.Eventually(t, what, func(context.Context) error { return is(want, got()) })
}

// is returns an error if the texts differ.
func is(want, got string) error {
	if got != want {
		return fmt.Errorf("want %q, got %q", want, got)
	}
	return nil
}

// everywhere waits until a field has these values on member-1, member-2 and so on.
func everywhere(t *testing.T, what, kind, ns, name string, want []string, path ...string) {
	t.Helper()
	eventually(t, what, strings.Join(want, " "), func() string {
		var got []string
		for i := range want {
			got = append(got, harness.Field(get(t, fmt.Sprintf("member-%d", i+1), kind, ns, name), path...))
		}
		return strings.Join(got, " ")
	})
}

// status waits until the condition Synced of a Propagation has the reason, and returns the Propagation.
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
