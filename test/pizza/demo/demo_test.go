// Package demo tests that the demo of the pizza restaurant tells its story to the end.
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
	// Beside the control plane the demo takes a refract, which is to be this one.
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
			t.Errorf("%q is not in the story:\n%s", text, &stdout)
		}
	}
	readme(t, stdout.String())
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("something is left: %v, %v", left, err)
	}
}

// readme compares what the example's README has with what was printed; "..." stands for
// what is left out.
func readme(t *testing.T, story string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "examples/pizza/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```console\n")[1:]
	if len(blocks) == 0 {
		t.Error("there is nothing in the README that was printed")
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```\n")
		rest := story
		for part := range strings.SplitSeq(block, "...\n") {
			for command := range strings.SplitAfterSeq("\n"+part, "\n$ ") { // Commands may be left out, too.
				at := strings.Index(rest, strings.TrimSuffix(command, "$ "))
				if at < 0 {
					t.Errorf("this is in the README, and was not printed, or not there:\n%s", command)
					continue
				}
				rest = rest[at+len(strings.TrimSuffix(command, "$ "))-1:]
			}
		}
	}
}
