package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

const liveFleet = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere}
spec: {schedulingMode: Duplicate}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: one}
spec: {schedulingMode: Duplicate, maxClusters: 1, placement: [{cluster: member-2}]}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: web}
spec:
  overrideRules:
  - targetClusters: {clusters: [member-1, member-3]}
    overriders: {labels: [{operator: addIfAbsent, value: {tier: front}}]}
  - targetClusters: {clusters: [member-2]}
    overriders: {jsonpatch: [{path: /data/size, value: small}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, labels: {kubeadmiral.io/propagation-policy-name: everywhere, kubeadmiral.io/override-policy-name: web}}
data: {size: large}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: once, labels: {kubeadmiral.io/propagation-policy-name: one}}
data: {size: large}
---
apiVersion: v1
kind: Secret
metadata: {name: keys, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
stringData: {key: open-sesame}
`

// TestLiveAnswers compares the output of refract render for the hub and for a snapshot of the hub with the copies on
// the members: all three must agree. They must also agree after changes whose result depends on earlier states. The
// test takes snapshots of the whole hub, so it is not parallel.
func TestLiveAnswers(t *testing.T) {
	ns := namespace(t)
	do(t, liveFleet, "apply", "-n", ns, "-f", "-")
	everywhere(t, "size of web", "configmap", ns, "web", []string{"large", "small", "large"}, "data", "size")
	everywhere(t, "size of once", "configmap", ns, "once", []string{"absent", "large"}, "data", "size")
	everywhere(t, "keys", "secret", ns, "keys", []string{"b3Blbi1zZXNhbWU=", "b3Blbi1zZXNhbWU=", "b3Blbi1zZXNhbWU="}, "data", "key")
	agree(t, ns)

	// The policy now allows every cluster. Refract keeps the existing placement.
	change(t, "hub", "propagationpolicy.core.kubeadmiral.io", ns, "one", `{"spec":{"placement":null}}`)
	everywhere(t, "size of once", "configmap", ns, "once", []string{"absent", "large"}, "data", "size")
	agree(t, ns)

	// refract diff shows the effect of a change, and changes nothing.
	changed := filepath.Join(t.TempDir(), "changed.yaml")
	policy := strings.Replace(document(t, "name: web"), "value: small", "value: tiny", 1)
	policy = strings.Replace(policy, "{name: web}", "{name: web, namespace: "+ns+"}", 1)
	if err := os.WriteFile(changed, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	out := exits(t, 1, "diff", "--kubeconfig", env.Kubeconfig("hub"), "-n", ns, "--to", changed)
	for _, want := range []string{"member-2", "/data/size", "small", "tiny", "OverridePolicy " + ns + "/web"} {
		if !strings.Contains(out, want) {
			t.Errorf("refract diff: want %q in the output, got:\n%s", want, out)
		}
	}
	do(t, policy, "apply", "-f", "-")
	everywhere(t, "size of web", "configmap", ns, "web", []string{"large", "tiny", "large"}, "data", "size")
	exits(t, 0, "diff", "--kubeconfig", env.Kubeconfig("hub"), "-n", ns, "--to", changed)

	// After the deletion of a policy, its overrides disappear from the copies and from the output.
	remove(t, "hub", "overridepolicy.core.kubeadmiral.io", ns, "web")
	everywhere(t, "size of web", "configmap", ns, "web", []string{"large", "large", "large"}, "data", "size")
	agree(t, ns)

	// Copies stay when the policy that placed them is deleted.
	remove(t, "hub", "propagationpolicy.core.kubeadmiral.io", ns, "one")
	status(t, ns, "once.configmaps", "Synced")
	agree(t, ns)
}

// document returns the document of liveFleet that contains the text, with rules.
func document(t *testing.T, text string) string {
	t.Helper()
	for d := range strings.SplitSeq(liveFleet, "---\n") {
		if strings.Contains(d, text) && strings.Contains(d, "overrideRules") {
			return d
		}
	}
	t.Fatalf("no document has %q", text)
	return ""
}

// agree compares the output of render for the hub and for a snapshot of it with the copies on the members: each copy
// must equal the output, and no other copy may exist.
func agree(t *testing.T, ns string) {
	t.Helper()
	const copies = 3 + 1 + 3 // web, once, keys.
	hub, dir := env.Kubeconfig("hub"), t.TempDir()
	snapshot, masked := filepath.Join(dir, "snapshot"), filepath.Join(dir, "masked")
	var live, replayed string
	var errs [3]error
	var all sync.WaitGroup
	all.Go(func() { live, errs[0] = ends(0, "render", "--kubeconfig", hub, "-n", ns, "-o", "json") })
	all.Go(func() {
		if _, errs[1] = ends(0, "snapshot", snapshot, "--kubeconfig", hub, "--secrets"); errs[1] == nil {
			replayed, errs[1] = ends(0, "render", "-f", snapshot, "-n", ns, "-o", "json")
		}
	})
	all.Go(func() { _, errs[2] = ends(0, "snapshot", masked, "--kubeconfig", hub) })
	all.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	if live != replayed {
		t.Errorf("render from the hub and from its snapshot differ:\n%s\n%s", live, replayed)
	}
	want := decodeRendered(t, live)
	if len(want) != copies {
		t.Errorf("render: want %d copies, got %d:\n%s", copies, len(want), live)
	}
	compare(t, want)
	held := 0
	for _, m := range env.Members {
		for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}} {
			if err := clients[m].List(t.Context(), list, client.InNamespace(ns), client.MatchingLabels{corev1alpha1.ManagedLabel: "true"}); err != nil {
				t.Fatal(err)
			}
			held += meta.LenList(list)
		}
	}
	if held != copies {
		t.Errorf("the members hold %d copies, want %d", held, copies)
	}
	if err := filepath.WalkDir(masked, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "b3Blbi1zZXNhbWU") || strings.Contains(string(text), "open-sesame") {
			t.Errorf("%s has the value of a Secret", path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func decodeRendered(t *testing.T, text string) []placed {
	t.Helper()
	var result struct {
		Clusters []struct {
			Name    string            `json:"name"`
			Objects []json.RawMessage `json:"objects"`
		} `json:"clusters"`
	}
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		t.Fatal(err)
	}
	var all []placed
	for _, c := range result.Clusters {
		for _, o := range c.Objects {
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(o); err != nil { // UnmarshalJSON decodes numbers as clients do, so they are comparable.
				t.Fatal(err)
			}
			all = append(all, placed{c.Name, u})
		}
	}
	return all
}

// exits runs the program, which must end with the code, and returns its output.
func exits(t *testing.T, code int, args ...string) string {
	t.Helper()
	out, err := ends(code, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ends runs the program like exits, for goroutines, which must not fail a test themselves.
func ends(code int, args ...string) (string, error) {
	out, err := env.Refract(args...)
	got := 0
	if err != nil {
		got = -1
		if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
			got = ended.ExitCode()
		}
	}
	if got != code {
		return out, errors.Join(fmt.Errorf("refract %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out), err)
	}
	return out, nil
}

// TestPlugin runs the program as kubectl's plugin.
func TestPlugin(t *testing.T) {
	t.Parallel()
	binary, err := env.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"kubectl-refract", "kubectl_complete-refract"} {
		if err := os.Symlink(binary, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct{ args, want string }{
		{"refract version", "refract "},
		{"refract render --help", "kubectl refract render [KIND/NAME... | KIND NAME...] -f FILE"},
		{"__complete refract rend", "render"},
	} {
		cmd := exec.Command(filepath.Join(env.Assets(), "kubectl"), strings.Fields(tc.args)...)
		// kubectl looks for plugins in PATH. The variable is set for this process only, because parallel tests need
		// theirs.
		cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "KUBECONFIG="+env.Kubeconfig("hub"))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("kubectl %s: want it to print %q, got %v\n%s", tc.args, tc.want, err, out)
		}
	}
}
