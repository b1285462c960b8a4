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

// stageVariable selects the stage of this process. All three stages run the same program: the first creates cgroups and
// waits, the second is the init process of the Linux namespaces, and the third runs the tests. When the second ends,
// the kernel ends every process in the namespaces, and removes their mounts, interfaces and firewall rules. So they
// need no explicit cleanup.
const (
	stageVariable = "REFRACT_NODE_STAGE"
	groupVariable = "REFRACT_NODE_CGROUP"
)

// Enter runs the tests of a package in an isolated environment: with separate processes, mounts, network and cgroups.
// It returns only in the process that runs the tests. All processes in the environment end with the tests, even if the
// tests are killed. If the machine lacks a requirement, Enter ends the process with an error that names the
// requirement.
func Enter() {
	flag.Parse()
	if list := flag.Lookup("test.list"); list != nil && list.Value.String() != "" {
		return // No tests run.
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
	os.Exit(code) //nolint:forbidigo // This process runs no tests itself.
}

// again starts this program as another stage. It locks the goroutine to its thread: the kernel regards this thread as
// the parent, and would kill the child when the thread ends.
func again(stage string, flags uintptr, env ...string) (*exec.Cmd, error) {
	runtime.LockOSThread()
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, os.Args[1:]...) //nolint:gosec,noctx // The child is this program, and lives as long.
	cmd.Env = append(os.Environ(), append(env, stageVariable+"="+stage)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	return cmd, cmd.Start()
}

// outside waits for the tests, and then removes the cgroups, which the kernel does not remove.
func outside() (code int, err error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("mounting, networks and cgroups take root: run make test-node as root")
	}
	groups, err := newGroups(fmt.Sprint("refract-node-", os.Getpid()))
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, groups.remove()) }()
	// An interrupt makes the tests clean up. This process forwards a signal that only it received.
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
			_ = cmd.Process.Signal(s) // The process may have ended.
		}
	}()
	err = cmd.Wait()
	fmt.Fprintf(os.Stderr, "The node was there for %.0f s and took at most %d MiB of memory, files in memory and caches among them.\n",
		time.Since(began).Seconds(), groups.peak()>>20)
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(ended.ExitCode(), 1), nil // The process has printed the reason.
	}
	return 0, err
}

// asInit prepares mounts and the network, starts the tests, and reaps all processes that end, including orphans.
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

// runDir is the folder of all files of the node. It is in memory, and visible only to these processes.
const runDir = "/run"

// mount hides other processes from /proc, and mounts folders in memory at the paths that the programs of the Node use:
// the kubelet writes to /var/lib/kubelet and /var/log, network plugins write to /var/lib/cni.
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

// tunables are values below /proc/sys that the kubelet requires. It would change them for the whole machine.
var tunables = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// hideTunables shows the required values to the kubelet, without a change of the machine's values.
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
