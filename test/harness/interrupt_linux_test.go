package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// middle is the text that TestChild prints while its test runs.
const middle = "in the middle of it"

// TestInterrupted interrupts a process that runs tests, and checks that no process, file or port remains.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		when   func(said string, components []string) bool
		signal syscall.Signal
	}{
		"Opening": {
			reason: "An interrupt during the start of control planes removes them.",
			when:   func(_ string, components []string) bool { return len(components) > 0 },
			signal: syscall.SIGTERM,
		},
		"Testing": {
			reason: "An interrupt removes the shared control planes, those of a single test, and its replica.",
			when:   func(said string, _ []string) bool { return strings.Contains(said, middle) },
			signal: syscall.SIGINT,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := startChild(t, dir)
			Eventually(t, "it is time to interrupt it", func(context.Context) error {
				if some := namesOf(processesOf(t, dir, c.Process.Pid)); !tc.when(c.said(t), some) {
					return fmt.Errorf("its output is %q, and it started %q", c.said(t), some)
				}
				return nil
			})
			components := processesOf(t, dir, c.Process.Pid)
			ports := portsOf(components)
			if err := c.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
				t.Errorf("\n%s\nwant exit code 130, got %v", tc.reason, err)
			}
			if left := processesOf(t, dir, 0); len(left) > 0 {
				t.Errorf("\n%s\nThese processes are left of %q: %q", tc.reason, namesOf(components), namesOf(left))
			}
			if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || left != nil {
				t.Errorf("\n%s\nThese files are left: %q, %v", tc.reason, left, err)
			}
			for _, port := range ports {
				if c, err := net.Dial("tcp4", "127.0.0.1:"+port); err == nil {
					_ = c.Close()
					t.Errorf("\n%s\nA process still listens on port %s.", tc.reason, port)
				}
			}
			if want := []string{"etcd", "etcd", "kube-apiserver", "kube-apiserver", "replica"}; name == "Testing" && (!isSubset(want, namesOf(components)) || len(ports) < 6) {
				t.Errorf("want at least %q to be interrupted, got %q on %q", want, namesOf(components), ports)
			}
			if t.Failed() {
				t.Logf("The processes were %v, and the output was:\n%s", components, c.said(t))
			}
		})
	}
}

// TestChild is a test that never ends. It is part of TestInterrupted.
func TestChild(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		t.Skip("TestInterrupted runs it.")
	}
	e := New(t, Topology{Own: true})
	if _, err := e.Replica("replica"); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(os.Stderr, middle)
	for i := 0; ; i++ { // An interrupted test may be writing files.
		<-time.After(time.Millisecond)
		_ = os.WriteFile(filepath.Join(e.Dir, strconv.Itoa(i%1000)), nil, 0o600)
	}
}

// child is a process that runs TestChild.
type child struct {
	*exec.Cmd

	log string
}

// startChild starts a child with its temporary files in dir.
func startChild(t *testing.T, dir string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{Cmd: exec.Command(exe, "-test.run", "^TestChild$"), log: filepath.Join(t.TempDir(), "log")}
	log, err := os.Create(c.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // The child has its own descriptor.
	c.Stdout, c.Stderr, c.SysProcAttr = log, log, dieWithParent()
	c.Env = append(os.Environ(), "TMPDIR="+dir, childVariable+"=1", binaryVariable+"="+exe, clustersVariable+"=")
	if err := launch(c.Cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return c
}

// said returns the output of the child.
func (c *child) said(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(c.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// process is a running process.
type process struct {
	pid  int
	name string
	args string
}

// namesOf returns the sorted names of processes.
func namesOf(all []process) []string {
	var out []string
	for _, p := range all {
		out = append(out, p.name)
	}
	slices.Sort(out)
	return out
}

// processesOf returns the processes with their working directory in dir, or with a path in dir in their environment; it
// omits the process with the ID but.
func processesOf(t *testing.T, dir string, but int) []process {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var out []process
	for _, at := range all {
		pid, err := strconv.Atoi(filepath.Base(at))
		if err != nil || pid == but {
			continue
		}
		// An unreadable process has ended, or belongs to another user.
		cwd, _ := os.Readlink(at + "/cwd")
		environ, _ := os.ReadFile(at + "/environ")
		if !strings.HasPrefix(cwd+"/", dir+"/") && !bytes.Contains(environ, []byte("="+dir)) {
			continue
		}
		args, _ := os.ReadFile(at + "/cmdline")
		p := process{pid: pid, args: strings.ReplaceAll(string(args), "\x00", " ")}
		p.name = filepath.Base(strings.Fields(p.args + " ?")[0])
		if strings.Contains(p.args, " run --kubeconfig ") {
			p.name = "replica"
		}
		out = append(out, p)
	}
	return out
}

var portFlag = regexp.MustCompile(`--(?:secure-port=|listen-[a-z-]*=https://127\.0\.0\.1:)([0-9]+)`)

// portsOf returns the listening ports in the arguments of processes.
func portsOf(all []process) []string {
	var out []string
	for _, p := range all {
		for _, m := range portFlag.FindAllStringSubmatch(p.args, -1) {
			if m[1] != "0" {
				out = append(out, m[1])
			}
		}
	}
	return out
}

// isSubset reports whether the sorted list named of contains the elements of the sorted list some, each at least as
// often.
func isSubset(some, of []string) bool {
	for _, s := range of {
		if len(some) > 0 && some[0] == s {
			some = some[1:]
		}
	}
	return len(some) == 0
}
