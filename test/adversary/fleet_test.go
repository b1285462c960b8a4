// Package adversary tests that nobody who may write on the hub can do harm with that to
// clusters or to others: each test does what would.
package adversary

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/test/harness"
)

var (
	// env has the fleet of all tests.
	env *harness.Env
	// controllers run for all tests.
	controllers *harness.Replica
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Topology{Members: 2, CRDs: true}, setup)
}

// setup has the members join and starts the controllers.
func setup(ctx context.Context, e *harness.Env) (stop func() error, err error) {
	env = e
	if err := env.JoinAll(ctx); err != nil {
		return nil, err
	}
	if controllers, err = env.Replica("controllers"); err != nil {
		return nil, err
	}
	if err := harness.Await(ctx, controllers.Ready); err != nil {
		return nil, fmt.Errorf("the controllers are not ready: %w\n%s", err, harness.LogTail(controllers.Log))
	}
	return nil, nil //nolint:nilnil // There is nothing to stop.
}

// apply applies a manifest to a cluster.
func apply(t *testing.T, cluster, manifest string) {
	t.Helper()
	c, err := env.Client(cluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := harness.ApplyAll(t.Context(), c, manifest); err != nil {
		t.Fatal(err)
	}
}

// get returns an object of a cluster, or nil.
func get(t *testing.T, cluster, kind, ns, name string) (u *unstructured.Unstructured) {
	t.Helper()
	harness.Eventually(t, "reading "+kind+" "+name, func(ctx context.Context) (err error) {
		u, err = env.Get(ctx, cluster, kind, ns, name)
		return err
	})
	return u
}

// eventually waits until want is what got returns.
func eventually(t *testing.T, what, want string, got func() string) {
	t.Helper()
	harness.Eventually(t, what, func(context.Context) error {
		if is := got(); is != want {
			return fmt.Errorf("want %q, got %q", want, is)
		}
		return nil
	})
}
