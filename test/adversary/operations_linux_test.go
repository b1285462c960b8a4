package adversary

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"refract.dev/test/harness"
)

// operations returns an OverridePolicy whose rules have so many operations at one place.
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

// overridden is a ConfigMap that names the policy of its name.
func overridden(name string) string {
	return configMap(name, labelled+", kubeadmiral.io/override-policy-name: "+name, "")
}

// TestTooManyOperations is row 1: an API server refuses a policy that would take the
// controllers' memory, and says what it may have.
func TestTooManyOperations(t *testing.T) {
	t.Parallel()
	_, _, user := tenants(t)
	ns := strings.TrimPrefix(user, "author-of-")
	for name, tc := range map[string]struct {
		reason string
		rules  []int
		want   string // Empty if it is taken.
	}{
		"most":      {"A policy may have that many.", []int{1000, 1000, 1000, 1000, 1000}, ""},
		"onemore":   {"One more is refused.", []int{1000, 1000, 1000, 1000, 1000, 1}, "the rules may have 5000 items together: make several policies of it"},
		"inonerule": {"A rule may have 1000.", []int{1001}, "must have at most 1000 items"},
	} {
		err := create(t, as(t, user), ns, operations(name, tc.rules...), client.DryRunAll)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s want %q, got %v", name, tc.reason, tc.want, err)
		}
	}
}

// TestOperationsStoredBefore is row 1 for policies that were stored before there was a
// bound: with them the controllers took gigabytes, again after each restart.
func TestOperationsStoredBefore(t *testing.T) {
	ns, _, user := tenants(t)
	bounded := unbounded(t)
	for _, n := range []int{12_000, 20_000} {
		name := fmt.Sprint("stored-", n)
		if err := create(t, as(t, user), ns, operations(name, n)); err != nil {
			t.Fatal(err)
		}
		if err := create(t, as(t, user), ns, overridden(name)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "whether the object of a policy with "+fmt.Sprint(n)+" operations is synced", "False", func() string {
			return condition(get(t, "hub", "propagations.refract.dev", ns, name+".configmaps"), "Synced", "status")
		})
		u := get(t, "hub", "propagations.refract.dev", ns, name+".configmaps")
		harness.WantAll(t, "The limit is named, and the policy.", condition(u, "Synced", "message"),
			[]string{"OverridePolicy " + ns + "/" + name, "it has " + fmt.Sprint(n) + " items, and a rule may have 1000"})
		given(t, "hub", ns, configMap("beside-"+name, labelled, ""))
		everywhere(t, "configmap", ns, "beside-"+name, []string{"1", "1"}, "data", "size")
	}
	bounded()
	if got := peak(t); got > 200<<20 {
		t.Errorf("The controllers have taken %d MiB, want at most 200", got>>20)
	}
}

// unbounded has API servers take OverridePolicies as the definition before the bounds let
// them, and returns what brings these back.
func unbounded(t *testing.T) (restore func()) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "config/crd/core.kubeadmiral.io_overridepolicies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		t.Fatal(err)
	}
	set := func(schema *apiextensionsv1.JSONSchemaProps) {
		now := &apiextensionsv1.CustomResourceDefinition{}
		harness.Eventually(t, "another definition of OverridePolicies", func(ctx context.Context) error {
			if err := clients["hub"].Get(ctx, client.ObjectKeyFromObject(crd), now); err != nil {
				return err
			}
			now.Spec.Versions[0].Schema.OpenAPIV3Schema = schema
			return clients["hub"].Update(ctx, now)
		})
	}
	bounds := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	none := bounds.DeepCopy()
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
	set(none)
	restored := sync.OnceFunc(func() { set(bounds) })
	t.Cleanup(restored)
	return restored
}

// peak returns how much memory the controllers have had at most, in bytes.
func peak(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", controllers.PID()))
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
