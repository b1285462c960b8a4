package adversary

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"refract.dev/test/harness"
)

// operations returns an OverridePolicy. Each number stands for a rule with that many operations, all on the same field.
func operations(name string, rules ...int) string {
	var p strings.Builder
	fmt.Fprintf(&p, "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: %s}, spec: {overrideRules: [", name)
	written := 0
	for _, n := range rules {
		p.WriteString("{overriders: {jsonpatch: [")
		for range n {
			written++
			fmt.Fprintf(&p, "{path: /data/x,value: \"%d\"},", written)
		}
		p.WriteString("]}},")
	}
	p.WriteString("]}}")
	return p.String()
}

// overridden returns a ConfigMap that names the override policy of the same name.
func overridden(name string) string {
	return configMap(name, labelled+", kubeadmiral.io/override-policy-name: "+name, "")
}

// TestTooManyOperations is row 1: the API server rejects a policy that would exhaust the memory of the controllers, and
// names the limit.
func TestTooManyOperations(t *testing.T) {
	t.Parallel()
	_, _, user := tenants(t)
	ns := strings.TrimPrefix(user, "author-of-")
	for name, tc := range map[string]struct {
		reason string
		rules  []int
		want   string // Empty: the policy is accepted.
	}{
		"most":      {"The maximum of a policy is accepted.", []int{1000, 1000, 1000, 1000, 1000}, ""},
		"onemore":   {"One more is refused.", []int{1000, 1000, 1000, 1000, 1000, 1}, "the rules may have 5000 items together: make several policies of it"},
		"inonerule": {"A rule may have 1000.", []int{1001}, "must have at most 1000 items"},
	} {
		err := create(t, as(t, user), ns, operations(name, tc.rules...), client.DryRunAll)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s want %q, got %v", name, tc.reason, tc.want, err)
		}
	}
}

// TestOperationsStoredBefore is row 1 for policies that were stored before the limits existed. Such policies made the
// controllers use gigabytes of memory, also after a restart.
func TestOperationsStoredBefore(t *testing.T) {
	env := harness.New(t, harness.Topology{Members: 2, CRDs: true})
	if err := env.JoinAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	hub, err := env.Client("hub")
	if err != nil {
		t.Fatal(err)
	}
	ns := env.Namespace(t)
	put(t, env, "hub", ns, placed)
	unbounded(t, hub)
	sizes := []int{12_000, 20_000}
	for _, n := range sizes {
		name := fmt.Sprint("stored-", n)
		// The API server uses the new definition a moment later.
		harness.Eventually(t, fmt.Sprint("a policy with ", n, " operations is stored"), func(context.Context) error {
			return client.IgnoreAlreadyExists(create(t, hub, ns, operations(name, n)))
		})
		if err := create(t, hub, ns, overridden(name)); err != nil {
			t.Fatal(err)
		}
	}
	controllers, err := env.Replica("controllers")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range sizes {
		name := fmt.Sprint("stored-", n)
		var u *unstructured.Unstructured
		harness.Eventually(t, fmt.Sprint("the object of a policy with ", n, " operations has failed"), func(ctx context.Context) error {
			if u, err = env.Get(ctx, "hub", "propagations.refract.dev", ns, name+".configmaps"); err != nil {
				return err
			}
			// Before the clusters are ready, the Propagation has another reason.
			if got := condition(u, "Synced", "message"); condition(u, "Synced", "status") != "False" || !strings.Contains(got, "items") {
				return fmt.Errorf("the message of condition Synced is %q", got)
			}
			return nil
		})
		harness.WantAll(t, "The message names the limit and the policy.", condition(u, "Synced", "message"),
			[]string{"OverridePolicy " + ns + "/" + name, "values together (items", "a policy may have 15000"})
	}
	there(t, env, "member-1", "configmap", ns, "settings", true) // Other objects propagate.
	switch got := peak(t, controllers); {
	case got > 200<<20:
		t.Errorf("The controllers took %d MiB, want at most 200", got>>20)
	default:
		t.Logf("The controllers took %d MiB", got>>20)
	}
	if controllers.Ended() {
		t.Error("The controllers have ended")
	}
}

// unbounded removes the limits from the definition of OverridePolicies, as in earlier versions.
func unbounded(t *testing.T, hub client.Client) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "config/crd/core.kubeadmiral.io_overridepolicies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		t.Fatal(err)
	}
	none := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	spec := none.Properties["spec"]
	spec.XValidations = nil
	rules := spec.Properties["overrideRules"]
	overriders := rules.Items.Schema.Properties["overriders"]
	overriders.XValidations = nil
	patches := overriders.Properties["jsonpatch"]
	patches.MaxItems = nil
	patches.Items.Schema.XValidations = nil
	overriders.Properties["jsonpatch"] = patches
	rules.Items.Schema.Properties["overriders"] = overriders
	spec.Properties["overrideRules"] = rules
	none.Properties["spec"] = spec
	harness.Eventually(t, "the definition of OverridePolicies without limits is stored", func(ctx context.Context) error {
		now := &apiextensionsv1.CustomResourceDefinition{}
		if err := hub.Get(ctx, client.ObjectKeyFromObject(crd), now); err != nil {
			return err
		}
		now.Spec.Versions[0].Schema.OpenAPIV3Schema = none
		return hub.Update(ctx, now)
	})
}

// peak returns the maximum resident memory of a program so far, in bytes.
func peak(t *testing.T, of *harness.Replica) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", of.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatalf("There is no VmHWM in\n%s", text)
	return 0
}
