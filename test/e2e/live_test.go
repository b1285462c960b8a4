package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// TestLiveAnswers asks about a hub what the controllers have made of it: the
// answers from the hub, from its snapshot and from the members must agree, after
// each of the changes that only somebody with a memory gets right.
func TestLiveAnswers(t *testing.T) {
	ns := namespace(t)
	do(t, liveFleet, "apply", "-n", ns, "-f", "-")
	everywhere(t, "size of web", "configmap", ns, "web", []string{"large", "small", "large"}, "data", "size")
	everywhere(t, "size of once", "configmap", ns, "once", []string{"absent", "large"}, "data", "size")
	everywhere(t, "keys", "secret", ns, "keys", []string{"b3Blbi1zZXNhbWU=", "b3Blbi1zZXNhbWU=", "b3Blbi1zZXNhbWU="}, "data", "key")
	agree(t, ns)

	// The placement could now be any cluster, and stays.
	do(t, "", "patch", "propagationpolicy.core.kubeadmiral.io", "one", "-n", ns, "--type=merge", "-p", `{"spec":{"placement":null}}`)
	everywhere(t, "size of once", "configmap", ns, "once", []string{"absent", "large"}, "data", "size")
	agree(t, ns)

	// What would a change do? Nothing happens by asking.
	changed := filepath.Join(t.TempDir(), "changed.yaml")
	policy := strings.Replace(document(t, "name: web"), "value: small", "value: tiny", 1)
	policy = strings.Replace(policy, "{name: web}", "{name: web, namespace: "+ns+"}", 1)
	if err := os.WriteFile(changed, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	out := exits(t, 1, "diff", "--hub-kubeconfig", shared.Kubeconfig("hub"), "-n", ns, "--to", changed)
	for _, want := range []string{"member-2", "/data/size", "small", "tiny", "OverridePolicy " + ns + "/web"} {
		if !strings.Contains(out, want) {
			t.Errorf("refract diff: want it to say %q, got:\n%s", want, out)
		}
	}
	apply(t, policy)
	everywhere(t, "size of web", "configmap", ns, "web", []string{"large", "tiny", "large"}, "data", "size")
	exits(t, 0, "diff", "--hub-kubeconfig", shared.Kubeconfig("hub"), "-n", ns, "--to", changed)

	// A policy that is deleted is taken back, here as there.
	do(t, "", "delete", "overridepolicy.core.kubeadmiral.io", "web", "-n", ns)
	everywhere(t, "size of web", "configmap", ns, "web", []string{"large", "large", "large"}, "data", "size")
	agree(t, ns)

	// And copies stay whose placement is no longer decided by anybody.
	do(t, "", "delete", "propagationpolicy.core.kubeadmiral.io", "one", "-n", ns)
	status(t, ns, "once.configmaps", "Synced")
	agree(t, ns)
}

// document returns the document of liveFleet that has the text and rules.
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

// agree compares what render says of the hub, and of a snapshot of it, with what
// the members hold: each copy as rendered, and no other.
func agree(t *testing.T, ns string) {
	t.Helper()
	const copies = 3 + 1 + 3 // web, once, keys.
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	exits(t, 0, "snapshot", snapshot, "--hub-kubeconfig", shared.Kubeconfig("hub"), "--secrets")
	live := exits(t, 0, "render", "--hub-kubeconfig", shared.Kubeconfig("hub"), "-n", ns, "-o", "json")
	if replayed := exits(t, 0, "render", "-f", snapshot, "-n", ns, "-o", "json"); live != replayed {
		t.Errorf("render from the hub and from its snapshot differ:\n%s\n%s", live, replayed)
	}
	want := decodeRendered(t, live)
	if len(want) != copies {
		t.Errorf("render: want %d copies, got %d:\n%s", copies, len(want), live)
	}
	compare(t, want)
	held := 0
	for _, cluster := range shared.Members {
		out, err := shared.Kubectl(cluster, "", "get", "configmaps,secrets", "-n", ns, "-l", "kubeadmiral.io/managed=true", "-o", "name")
		if err != nil {
			t.Fatal(err)
		}
		held += len(strings.Fields(out))
	}
	if held != copies {
		t.Errorf("the members hold %d copies, want %d", held, copies)
	}
	masked := filepath.Join(t.TempDir(), "masked")
	exits(t, 0, "snapshot", masked, "--hub-kubeconfig", shared.Kubeconfig("hub"))
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
			Name    string           `json:"name"`
			Objects []map[string]any `json:"objects"`
		} `json:"clusters"`
	}
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		t.Fatal(err)
	}
	var all []placed
	for _, c := range result.Clusters {
		for _, o := range c.Objects {
			all = append(all, placed{c.Name, &unstructured.Unstructured{Object: o}})
		}
	}
	return all
}

// exits runs the program, which must end with the code, and returns what it
// prints.
func exits(t *testing.T, code int, args ...string) string {
	t.Helper()
	out, err := shared.Refract(args...)
	got := 0
	if err != nil {
		got = -1
		if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
			got = ended.ExitCode()
		}
	}
	if got != code {
		t.Fatalf("refract %s: exit code %d, want %d: %v\n%s", strings.Join(args, " "), got, code, err, out)
	}
	return out
}

// TestPlugin runs the program as kubectl's plugin.
func TestPlugin(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"kubectl-refract", "kubectl_complete-refract"} {
		if err := os.Symlink(shared.Binary(), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	for _, tc := range []struct{ args, want string }{
		{"refract version", "refract "},
		{"refract render --help", "kubectl refract render -f FILE"},
		{"__complete refract rend", "render"},
	} {
		out, err := shared.Kubectl("hub", "", strings.Fields(tc.args)...)
		if err != nil || !strings.Contains(out, tc.want) {
			t.Errorf("kubectl %s: want it to print %q, got %v\n%s", tc.args, tc.want, err, out)
		}
	}
}
