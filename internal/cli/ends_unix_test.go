//go:build unix

package cli

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHangingPlugin: a command ends soon after its --timeout even if the credential plugin of its kubeconfig still
// runs.
func TestHangingPlugin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "wait")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(file); err != nil { // The plugins end when the file does not exist any more.
			t.Error(err)
		}
	})
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: hub, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: hub, context: {cluster: hub, user: somebody}}]
users:
- name: somebody
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: sh
      args: [-c, "while [ -e %s ]; do sleep 0.1; done"]
      interactiveMode: Never
current-context: hub
`, file)
	name := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(name, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for command, tc := range hangs {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(strings.ReplaceAll(tc.args, "MEMBER", name))
			run := start(t.Context(), "refract", append(args, "--kubeconfig", name, "--timeout", "100ms"), strings.NewReader(""))
			code := run.wantSoon(t, 100*time.Millisecond+soon)
			if text := run.said.String(); code != exitError || !strings.Contains(text, "the --timeout of 100ms expired, and ") ||
				!strings.Contains(text, "the credential plugin of the kubeconfig") || !strings.Contains(text, "\nhint: ") {
				t.Errorf("exit code %d, and it said:\n%s", code, text)
			}
		})
	}
}

// TestSignals: the program ends soon after a signal, whether it waits for input or computes.
func TestSignals(t *testing.T) {
	t.Chdir(hostileFolder(t))
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args  string
		stdin string
		more  bool // Whether stdin stays open.
	}{
		// The text is larger than the buffer of a pipe. When all of it is written, the program must have begun to read.
		"Input": {"render -f -", strings.Repeat("# There is more to come.\n", 10_000), true},
		"Busy":  {"crd verify --crd - --policy policy.yaml --count 20 --timeout 10m", hostileCRD(), false},
	} {
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(name+"/"+signal.String(), func(t *testing.T) {
				t.Parallel()
				var out said
				cmd := exec.CommandContext(t.Context(), program, strings.Fields(tc.args)...)
				cmd.Args[0], cmd.Stdout, cmd.Stderr = "refract", &out, &out
				stdin, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(stdin, tc.stdin); err != nil {
					t.Error(err)
				}
				if !tc.more {
					if err := stdin.Close(); err != nil {
						t.Error(err)
					}
				}
				if err := cmd.Process.Signal(signal); err != nil {
					t.Error(err)
				}
				end := make(chan error, 1)
				go func() { end <- cmd.Wait() }()
				select {
				case <-end:
				case <-time.After(soon):
					t.Errorf("it goes on %s after the signal", soon)
					if err := cmd.Process.Kill(); err != nil {
						t.Error(err)
					}
					<-end
				}
				if code := cmd.ProcessState.ExitCode(); code != exitError || !strings.Contains(out.String(), "interrupted") {
					t.Errorf("exit code %d, want %d and that it was interrupted:\n%s", code, exitError, &out)
				}
			})
		}
	}
}
