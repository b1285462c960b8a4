//go:build unix

package cli

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

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
		more  bool // Whether there is more to come.
	}{
		// More than a pipe holds: when all of it is written, the program is reading.
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
