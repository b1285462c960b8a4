// Package demo tests that the demo of the pizza restaurant runs to its end.
package demo

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"refract.dev/internal/playground"
	"refract.dev/test/harness"
)

const root = "../../.."

func TestDemo(t *testing.T) {
	assets, err := playground.Assets(filepath.Join(root, "bin/refract"))
	if err != nil {
		t.Fatal(err)
	}
	// The demo takes refract from the folder of the control plane. The test adds the program under test there.
	dir := t.TempDir()
	binary, err := harness.Program(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	from := map[string]string{"refract": binary}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok"} {
		from[name] = filepath.Join(assets, name)
	}
	for name, path := range from {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "demo"), "./examples/pizza/demo")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	temporary := filepath.Join(dir, "temporary")
	if err := os.Mkdir(temporary, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "demo"))
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+dir, "TMPDIR="+temporary)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, &stderr, &stdout)
	}
	for _, text := range []string{
		"$ kubectl create -f objects/margherita-pizza.yaml\npizza.restaurant.programming-kubernetes.info/margherita created\n",
		`denied the request: topping "mozzarella" not known` + "\n",
		"  - name: tomato\n    quantity: 1\n  - name: mozzarella\n    quantity: 1\n  - name: salami\n    quantity: 1\n",
		"\n[\"v1beta1\"]\n",
		"\nShown: ",
	} {
		if !strings.Contains(stdout.String(), text) {
			t.Errorf("%q is not in the output:\n%s", text, &stdout)
		}
	}
	readme(t, stdout.String())
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}

// readme fails the test unless the printed output contains all output in the example's README. "..." stands for omitted
// parts.
func readme(t *testing.T, story string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "examples/pizza/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```console\n")[1:]
	if len(blocks) == 0 {
		t.Error("the README has no output")
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```\n")
		rest := story
		for part := range strings.SplitSeq(block, "...\n") {
			for command := range strings.SplitAfterSeq("\n"+part, "\n$ ") { // The README may omit commands, too.
				at := strings.Index(rest, strings.TrimSuffix(command, "$ "))
				if at < 0 {
					t.Errorf("the README has output that the demo did not print, or not in this order:\n%s", command)
					continue
				}
				rest = rest[at+len(strings.TrimSuffix(command, "$ "))-1:]
			}
		}
	}
}
