package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/playground"
	"refract.dev/test/harness"
)

// demoPod is a pod of a member in the output of the demo.
type demoPod struct {
	Cluster string   `json:"cluster"`
	Name    string   `json:"name"`
	Owner   string   `json:"owner"`
	Added   []string `json:"added"`
}

// injected checks that each of three members has its two pods, with the items of the demo's policy.
func injected(t *testing.T, pods []demoPod, env string) {
	t.Helper()
	on := map[string]int{}
	for _, p := range pods {
		on[p.Cluster]++
		containers := "web"
		if p.Cluster == "member-2" { // The injection webhook of this member has added a container.
			containers += ", " + playground.Sidecar
		}
		want := []string{env + " in " + containers, "volume cache-volume (emptyDir)", "volumeMount /cache (volume cache-volume) in " + containers}
		if diff := cmp.Diff(want, p.Added); diff != "" || p.Owner != "Deployment/storefront" {
			t.Errorf("pod %s of %s, of %s: items of the policy: -want, +got:\n%s", p.Name, p.Cluster, p.Owner, diff)
		}
	}
	if diff := cmp.Diff(map[string]int{"member-1": 2, "member-2": 2, "member-3": 2}, on); diff != "" {
		t.Errorf("pods by cluster: -want, +got:\n%s", diff)
	}
}

// TestDemo runs the demo in its own folder. The demo must report each copy as equal to the output of refract render,
// and must leave no process or file.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	var out string
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out, err = env.RefractIn(dir, "demo", "--once", "-o", "json")
	}()
	t.Parallel() // This test takes longest, so it starts the demo before the other tests run in parallel.
	<-ended
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var result struct {
		Objects []struct {
			Object struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"object"`
			Clusters []struct {
				Name string `json:"name"`
			} `json:"clusters"`
		} `json:"objects"`
		RollBack struct {
			Right bool `json:"right"`
		} `json:"rollBack"`
		Rollout struct {
			Had    []string `json:"had"`
			Spared []string `json:"spared"`
			Right  bool     `json:"right"`
		} `json:"rollout"`
		Injection struct {
			Pods   []demoPod `json:"pods"`
			Change struct {
				Pods []demoPod `json:"pods"`
			} `json:"change"`
			Right bool `json:"right"`
		} `json:"injection"`
		Right bool `json:"right"`
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatal(err)
	}
	if !result.Right || !result.RollBack.Right || len(result.Objects) < 7 {
		t.Errorf("demo: want at least 7 objects, all correct before and after the roll-back, got %s", out)
	}
	for _, o := range result.Objects {
		if len(o.Clusters) != 3 {
			t.Errorf("%s %s: want it on 3 clusters, got %d", o.Object.Kind, o.Object.Name, len(o.Clusters))
		}
	}
	if r := result.Rollout; !r.Right || !slices.Equal(r.Had, []string{"member-2"}) || !slices.Equal(r.Spared, []string{"member-1", "member-3"}) {
		t.Errorf("demo: want a change that fails only on member-2, and is reverted, got %s", out)
	}
	if !result.Injection.Right {
		t.Errorf("demo: want the pods of all members correct before and after the change of their policy, got %s", out)
	}
	injected(t, result.Injection.Pods, `env DB_PORT="6379"`)
	injected(t, result.Injection.Change.Pods, `env DB_PORT="6380"`)
	for _, p := range result.Injection.Pods {
		if slices.ContainsFunc(result.Injection.Change.Pods, func(after demoPod) bool { return after.Name == p.Name && after.Cluster == p.Cluster }) {
			t.Errorf("pod %s of %s is still there after its policy was changed", p.Name, p.Cluster)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("the demo left %s behind", left[0].Name())
	}
	// The processes of the demo have its folder as their working directory.
	processes, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if cwd, err := os.Readlink(p); err == nil && strings.HasPrefix(cwd, dir) {
			t.Errorf("the demo left process %s behind, in %s", filepath.Base(filepath.Dir(p)), cwd)
		}
	}
}

// TestSecondUpFindsTheFirst starts its own playground, in which the member has joined the hub. The controllers must
// find the member ready.
func TestSecondUpFindsTheFirst(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "playground")
	t.Cleanup(func() {
		if _, err := env.Refract("down", "--dir", dir); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("down: want nothing left, got %v", err)
		}
	})
	up := func(args ...string) (string, error) {
		return env.Refract(append([]string{"up", "--dir", dir}, args...)...)
	}
	first, err := up("--members", "1", "--bare", "--detach")
	if err != nil {
		t.Fatal(err)
	}
	out, err := up("--members", "1", "--bare")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "member-1") || out != first {
		t.Errorf("up: want the running members in the words of the first call:\n%s\ngot:\n%s", first, out)
	}
	if _, err := up("--members", "7"); err == nil || !strings.Contains(err.Error(), "already running") {
		t.Errorf("up with other members: want it refused, got %v", err)
	}

	hub := filepath.Join(dir, "kubeconfigs", "hub.yaml")
	cfg, err := clientcmd.BuildConfigFromFlags("", hub)
	if err != nil {
		t.Fatal(err)
	}
	c, err := harness.ClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "member-1"}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(fc), fc); err != nil {
		t.Fatal(err)
	}
	if got := fc.Labels["region"] + " " + fc.Labels["provider"]; got != "eu alpha" {
		t.Errorf("the labels region and provider of member-1: want eu alpha, got %s", got)
	}
	r, err := env.Replica("up", "--kubeconfig", hub)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	})
	harness.Eventually(t, "member-1 is ready", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(fc), fc); err != nil {
			return err
		}
		for _, c := range fc.Status.Conditions {
			if c.Type == corev1alpha1.ClusterReady && c.Status == metav1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("its conditions: %v", fc.Status.Conditions)
	})
}
