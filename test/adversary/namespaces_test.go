package adversary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

const enforce = "pod-security.kubernetes.io/enforce"

// placed is a ConfigMap that goes to all members.
const placed = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere, namespace: NS}
spec: {schedulingMode: Duplicate}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
data: {a: b}
`

// fleet starts controllers with these arguments for a hub and two members.
func fleet(t *testing.T, args ...string) *harness.Env {
	t.Helper()
	env := harness.New(t, harness.Topology{Members: 2, CRDs: true})
	if err := env.JoinAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	controllers, err := env.Replica("controllers", args...)
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the controllers are ready", controllers.Ready)
	return env
}

func put(t *testing.T, env *harness.Env, cluster, ns, manifest string) {
	t.Helper()
	c, err := env.Client(cluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := harness.ApplyAll(t.Context(), c, strings.ReplaceAll(manifest, "NS", ns)); err != nil {
		t.Fatal(err)
	}
}

func patch(t *testing.T, env *harness.Env, cluster, ns, how string) {
	t.Helper()
	if err := env.Patch(t.Context(), cluster, "namespace", "", ns, how); err != nil {
		t.Fatal(err)
	}
}

// there waits until the object exists on a cluster, or, if want is false, until it does not exist.
func there(t *testing.T, env *harness.Env, cluster, kind, ns, name string, want bool) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s %s on %s: %t", kind, name, cluster, want), func(ctx context.Context) error {
		u, err := env.Get(ctx, cluster, kind, ns, name)
		if err == nil && (u != nil) != want {
			err = fmt.Errorf("want it there: %t, got %t", want, u != nil)
		}
		return err
	})
}

// namespaceOf returns a namespace of a cluster. It is nil if the namespace does not exist or is being deleted: the
// members of tests run no namespace controller, which would complete the deletion.
func namespaceOf(ctx context.Context, env *harness.Env, cluster, name string) (*unstructured.Unstructured, error) {
	u, err := env.Get(ctx, cluster, "namespace", "", name)
	if u != nil && u.GetDeletionTimestamp() != nil {
		return nil, err
	}
	return u, err
}

// label waits until a label of the namespace has this value on a member; "" means no label.
func label(t *testing.T, env *harness.Env, cluster, ns, reason, key, want string) {
	t.Helper()
	harness.Eventually(t, reason, func(ctx context.Context) error {
		u, err := namespaceOf(ctx, env, cluster, ns)
		if err != nil {
			return err
		}
		if got := harness.Field(u, "metadata", "labels", key); got != want {
			return fmt.Errorf("label %s on %s: want %q, got %q", key, cluster, want, got)
		}
		return nil
	})
}

// TestPodSecurityTravels: members enforce the hub's Pod Security level, and keep a level that a member's administrator
// has set.
func TestPodSecurityTravels(t *testing.T) {
	t.Parallel()
	env := fleet(t, "--namespace-labels", "example.com/*")
	ns := env.Namespace(t)
	patch(t, env, "hub", ns, `{"metadata":{"labels":{"`+enforce+`":"restricted","`+enforce+`-version":"latest","example.com/team":"a","other":"b"}}}`)
	put(t, env, "hub", ns, placed)
	for _, member := range env.Members {
		there(t, env, member, "configmap", ns, "settings", true)
		u, err := namespaceOf(t.Context(), env, member, ns)
		if err != nil {
			t.Fatal(err)
		}
		// The namespace is created with the labels, so no pod can be admitted before they exist.
		for key, want := range map[string]string{enforce: "restricted", enforce + "-version": "latest", "example.com/team": "a", "other": ""} {
			if got := harness.Field(u, "metadata", "labels", key); got != want {
				t.Errorf("label %s on %s: want %q, got %q", key, member, want, got)
			}
		}
		// Every pod needs this account, and the members of tests have no controller that creates it.
		put(t, env, member, ns, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: NS}}")
		c, err := env.Client(member)
		if err != nil {
			t.Fatal(err)
		}
		pod := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "root", "namespace": ns},
			"spec": map[string]any{
				"automountServiceAccountToken": false,
				"containers":                   []any{map[string]any{"name": "c", "image": "i", "securityContext": map[string]any{"privileged": true}}},
			},
		}}
		if err := c.Create(t.Context(), pod, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
			t.Errorf("a privileged pod on %s: want it refused as on the hub, got %v", member, err)
		}
	}

	patch(t, env, "member-2", ns, `{"metadata":{"labels":{"`+enforce+`":"baseline"}}}`)
	patch(t, env, "hub", ns, `{"metadata":{"labels":{"`+enforce+`":"privileged","`+enforce+`-version":null,"example.com/team":"b"}}}`)
	label(t, env, "member-1", ns, "a change on the hub travels", enforce, "privileged")
	label(t, env, "member-1", ns, "so does a removal", enforce+"-version", "")
	label(t, env, "member-2", ns, "a change of another label", "example.com/team", "b")
	label(t, env, "member-2", ns, "the administrator's level stays", enforce, "baseline")
	label(t, env, "member-2", ns, "and so does its version", enforce+"-version", "latest")
}

// TestNamespacesStay creates Secrets in a namespace while its last copy is deleted. The namespace stays, and no Secret
// is lost. An earlier version deleted the namespace with the Secrets.
func TestNamespacesStay(t *testing.T) {
	t.Parallel()
	env := fleet(t, "--deletion-guard", "100")
	const others = 30
	ns := env.Namespace(t)
	put(t, env, "hub", ns, placed)
	there(t, env, "member-1", "configmap", ns, "settings", true)
	if err := env.Delete(t.Context(), "hub", "configmap", ns, "settings"); err != nil {
		t.Fatal(err)
	}
	there(t, env, "member-1", "configmap", ns, "settings", false)
	made := 0
	harness.Consistently(t, "another user creates Secrets in the namespace", 4*time.Second, func(context.Context) error {
		if made++; made > others {
			return nil
		}
		_, err := env.Kubectl("member-1", "", "create", "secret", "generic", fmt.Sprintf("theirs-%d", made), "-n", ns)
		return err
	})
	u, err := namespaceOf(t.Context(), env, "member-1", ns)
	if err != nil || u == nil {
		t.Fatalf("want the namespace to stay, got %v, %v", u, err)
	}
	for i := range min(made, others) {
		if secret, err := env.Get(t.Context(), "member-1", "secret", ns, fmt.Sprintf("theirs-%d", i+1)); err != nil || secret == nil {
			t.Errorf("want Secret %d, got %v, %v", i+1, secret, err)
		}
	}
}

// TestEmptyNamespaces: an empty namespace is deleted only if an option requests it, an annotation has announced it, and
// no user has put objects into it or changed its annotations.
func TestEmptyNamespaces(t *testing.T) {
	t.Parallel()
	env := fleet(t, "--remove-empty-namespaces-after", "2m", "--deletion-guard", "100")
	name := harness.NameOf(t)
	used, shared, left := name+"-used", name+"-shared", name+"-left"
	for _, ns := range []string{used, shared, left} {
		put(t, env, "hub", ns, "{apiVersion: v1, kind: Namespace, metadata: {name: NS}}")
		put(t, env, "hub", ns, placed)
		there(t, env, "member-1", "configmap", ns, "settings", true)
	}
	patch(t, env, "member-1", shared, `{"metadata":{"annotations":{"keep":"please"}}}`)
	began := time.Now()
	for _, ns := range []string{used, shared, left} {
		if err := env.Delete(t.Context(), "hub", "configmap", ns, "settings"); err != nil {
			t.Fatal(err)
		}
	}
	mark := func(ctx context.Context, ns string) (string, error) {
		u, err := namespaceOf(ctx, env, "member-1", ns)
		return harness.Field(u, "metadata", "annotations", "refract.dev/remove-after"), err
	}
	for _, ns := range []string{used, left} {
		harness.Eventually(t, "an annotation announces the deletion of the namespace", func(ctx context.Context) error {
			text, err := mark(ctx, ns)
			if err != nil {
				return err
			}
			at, err := time.Parse(time.RFC3339, text)
			if err == nil && at.Before(began.Add(2*time.Minute)) {
				err = fmt.Errorf("want two minutes from %s, got %s", began, at)
			}
			return err
		})
	}
	if os.Getenv("REFRACT_SOAK") != "1" {
		return // Only make soak waits the two minutes. The tests of fleet/propagation cover the remaining steps with a fake clock.
	}
	put(t, env, "member-1", used, "{apiVersion: v1, kind: Secret, metadata: {name: theirs, namespace: NS}}")

	harness.Eventually(t, left+" is gone", func(ctx context.Context) error {
		u, err := namespaceOf(ctx, env, "member-1", left)
		if u != nil {
			return errors.New("it is there")
		}
		return err
	})
	if passed := time.Since(began); passed < 2*time.Minute {
		t.Errorf("want the namespace to stay for two minutes, got %s", passed)
	}
	harness.Eventually(t, "the annotation is removed from a namespace in use", func(ctx context.Context) error {
		text, err := mark(ctx, used)
		if err == nil && text != "" {
			err = fmt.Errorf("got %s", text)
		}
		return err
	})
	there(t, env, "member-1", "secret", used, "theirs", true)
	if text, err := mark(t.Context(), shared); text != "" || err != nil {
		t.Errorf("a namespace with a user's annotation: want it to stay without the mark, got %q, %v", text, err)
	}
}
