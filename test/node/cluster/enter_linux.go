package cluster

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"refract.dev/test/harness"
)

// stageVariable says which of three processes this is: the first makes cgroups and waits, the second is what init is
// to a machine, the third runs the tests. All three are the same program. When the second ends, the kernel ends every
// process in its namespaces, and then takes mounts, interfaces and rules away: nothing has to be undone one by one.
const (
	stageVariable = "REFRACT_NODE_STAGE"
	groupVariable = "REFRACT_NODE_CGROUP"
)

// Enter has this process, the tests of a package, be on a machine of their own: with processes, mounts and a network that
// are nobody else's, and cgroups under a name of their own. It returns there, and nowhere else. What is run in it ends
// with it, also if it is killed. It ends the process with an error that says what the machine lacks.
func Enter() {
	flag.Parse()
	if list := flag.Lookup("test.list"); list != nil && list.Value.String() != "" {
		return // They are not run.
	}
	var code int
	var err error
	switch os.Getenv(stageVariable) {
	case "":
		code, err = outside()
	case "init":
		code, err = asInit()
	default:
		if err = os.Unsetenv(stageVariable); err == nil {
			return
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error: a node for tests:", err)
		code = max(code, 1)
	}
	os.Exit(code) //nolint:forbidigo // Of a process that has no tests of its own.
}

// again starts this program once more as a stage, by a thread that lives until it has ended: or the kernel would take
// its parent to be gone.
func again(stage string, flags uintptr, env ...string) (*exec.Cmd, error) {
	runtime.LockOSThread()
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, os.Args[1:]...) //nolint:gosec,noctx // It is this program, and lives for as long.
	cmd.Env = append(os.Environ(), append(env, stageVariable+"="+stage)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	return cmd, cmd.Start()
}

// outside waits for the tests and then removes what the kernel has not.
func outside() (code int, err error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("mounting, networks and cgroups take root: run make test-node as root")
	}
	groups, err := newGroups(fmt.Sprint("refract-node-", os.Getpid()))
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, groups.remove()) }()
	// They clean up when they are interrupted; whoever sends it to this process alone means them.
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	const own = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	began := time.Now()
	cmd, err := again("init", own, groupVariable+"="+groups.name)
	if err != nil {
		return 1, fmt.Errorf("making namespaces, which takes CAP_SYS_ADMIN: a container has to be privileged: %w", err)
	}
	go func() {
		for s := range told {
			_ = cmd.Process.Signal(s) // It may have ended.
		}
	}()
	err = cmd.Wait()
	fmt.Fprintf(os.Stderr, "The node was there for %.0f s and took at most %d MiB of memory, files in memory and caches among them.\n",
		time.Since(began).Seconds(), groups.peak()>>20)
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(ended.ExitCode(), 1), nil // It has said why.
	}
	return 0, err
}

// asInit prepares mounts and the network, starts the tests, and takes note of every process that ends, as those do that
// have lost their parents.
func asInit() (code int, err error) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	if err := join(os.Getenv(groupVariable)); err != nil {
		return 1, err
	}
	if err := mount(); err != nil {
		return 1, err
	}
	if err := connect(); err != nil {
		return 1, err
	}
	cmd, err := again("inside", 0, "TMPDIR="+runDir)
	if err != nil {
		return 1, err
	}
	go func() {
		for s := range told {
			_ = syscall.Kill(cmd.Process.Pid, s.(syscall.Signal)) //nolint:forcetypeassert // There is no other. It may have ended.
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1, fmt.Errorf("waiting for the tests: %w", err)
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus(), nil
		case pid == cmd.Process.Pid:
			return 1, fmt.Errorf("the tests were ended by %s", status.Signal())
		}
	}
}

// runDir is where the node keeps everything: in memory, and in the mounts of these processes alone.
const runDir = "/run"

// mount has these processes see themselves alone in /proc, and puts folders in memory where the parts of a node write
// without asking: the kubelet to /var/lib/kubelet and /var/log, network plugins to /var/lib/cni.
func mount() error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	for _, m := range []struct {
		what, where, kind string
		flags             uintptr
	}{
		{"none", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"tmpfs", runDir, "tmpfs", unix.MS_NODEV},
		{"tmpfs", "/var/lib", "tmpfs", unix.MS_NODEV},
		{"tmpfs", "/var/log", "tmpfs", unix.MS_NODEV},
	} {
		if err := unix.Mount(m.what, m.where, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", m.what, m.where, err)
		}
	}
	if err := hideTunables(); err != nil {
		return err
	}
	for _, hidden := range []string{runDir, "/var/lib", "/var/log"} {
		if root == hidden || strings.HasPrefix(root, hidden+string(filepath.Separator)) {
			return fmt.Errorf("%s is below %s, which the node has for itself: clone the repository elsewhere", root, hidden)
		}
	}
	return nil
}

// tunables are what the kubelet sets for the whole machine, below /proc/sys, unless it is so already.
var tunables = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// hideTunables has the kubelet find what it wants, and the machine keep what it has.
func hideTunables() error {
	for name, value := range tunables {
		shown := filepath.Join(runDir, "sys", name)
		if err := os.MkdirAll(filepath.Dir(shown), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(shown, []byte(value+"\n"), 0o600); err != nil {
			return err
		}
		if err := unix.Mount(shown, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hiding /proc/sys/%s: %w", name, err)
		}
	}
	return nil
}
