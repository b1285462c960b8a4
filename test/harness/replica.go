package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"refract.dev/internal/playground"
)

// Replica is a process of `refract run`. It ends with the process of the test.
type Replica struct {
	// Name is its identity, and part of its user agent: refract/NAME.
	Name string
	// Log is the path of its log. Replicas with the same name append to the same log.
	Log string

	metrics, health string // URLs.
	cmd             *exec.Cmd
	ended           chan struct{}
}

// lease is the default lease duration of replicas. A replica that cannot renew its Lease for two thirds of this time
// ends, so the duration is long: the API server of a busy machine may not answer for seconds.
const lease = 15 * time.Second

// patience is the time limit for the end of a replica. asking is the time limit for a response of a replica. Both are
// long, because a busy machine is slow.
const patience, asking = time.Minute, 30 * time.Second

// Replica starts a replica for the hub with a name, further arguments, and its own ports. It ends with the Env at the latest.
func (e *Env) Replica(name string, args ...string) (*Replica, error) {
	return e.ReplicaFor("hub", name, args...)
}

// ReplicaFor is like [Env.Replica], for any cluster. For example, a member with injection runs its own replicas.
func (e *Env) ReplicaFor(cluster, name string, args ...string) (*Replica, error) {
	binary, err := e.Binary()
	if err != nil {
		return nil, err
	}
	ports, err := FreePorts(2)
	if err != nil {
		return nil, err
	}
	r := &Replica{
		Name: name, Log: filepath.Join(e.Dir, name+".log"),
		metrics: "http://" + ports[0], health: "http://" + ports[1], ended: make(chan struct{}),
	}
	log, err := os.OpenFile(r.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // The child has its own descriptor.
	r.cmd = exec.Command(binary, append([]string{
		"run", "--kubeconfig", e.Kubeconfig(cluster), "--identity", name, "--lease-duration", lease.String(),
		"--metrics-bind-address", ports[0], "--health-probe-bind-address", ports[1],
	}, args...)...)
	r.cmd.Stderr = log
	r.cmd.SysProcAttr = dieWithParent()
	if err := launch(r.cmd); err != nil {
		return nil, fmt.Errorf("starting replica %s: %w", name, err)
	}
	e.mu.Lock()
	e.replicas = append(e.replicas, r)
	e.mu.Unlock()
	go func() {
		_ = r.cmd.Wait() // The test uses the log to judge why the process ended.
		close(r.ended)
	}()
	return r, nil
}

// Signal sends a signal to the replica. It does nothing if the replica has ended.
func (r *Replica) Signal(s syscall.Signal) error {
	if err := r.cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Stop sends a signal that ends the replica, and waits for the end. If the replica does not end in time, Stop kills it
// and returns an error.
func (r *Replica) Stop(s syscall.Signal) error {
	if err := r.Signal(s); err != nil {
		return err
	}
	select {
	case <-r.ended:
		return nil
	case <-time.After(patience):
		err := r.Signal(syscall.SIGKILL)
		<-r.ended
		return errors.Join(err, fmt.Errorf("replica %s did not end within %s of signal %q", r.Name, patience, s))
	}
}

// crashed returns an error if a program that wrote this log has crashed. A test may not notice a crash while other
// replicas take over.
func crashed(log string) error {
	text, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	i := slices.IndexFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
	})
	if i < 0 {
		return nil
	}
	const most = 40
	return fmt.Errorf("%s: a program has crashed:\n%s", filepath.Base(log), strings.Join(lines[i:min(i+most, len(lines))], "\n"))
}

// PID returns the ID of the process.
func (r *Replica) PID() int { return r.cmd.Process.Pid }

// Ended reports whether the replica has ended.
func (r *Replica) Ended() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// Ready returns nil if the replica reports at /readyz that it is ready.
func (r *Replica) Ready(ctx context.Context) error {
	_, err := get(ctx, r.health+"/readyz")
	return err
}

// Metrics returns the metrics of the replica in the text format of Prometheus.
func (r *Replica) Metrics(ctx context.Context) (string, error) { return get(ctx, r.metrics+"/metrics") }

// get returns the content of a URL. It returns an error with the content unless the status is 200 OK.
func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

// FreePorts returns n local addresses with free ports.
func FreePorts(n int) ([]string, error) {
	ports, err := playground.FreePorts(context.Background(), n)
	var out []string
	for _, port := range ports {
		out = append(out, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return out, err
}

// launches sends functions to a thread that exists as long as this process. Linux regards the thread that starts a
// child as the parent of the child, and would kill the child when the thread ends.
var launches = sync.OnceValue(func() chan<- func() {
	c := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range c {
			start()
		}
	}()
	return c
})

func launch(cmd *exec.Cmd) error {
	err := make(chan error)
	launches() <- func() { err <- cmd.Start() }
	return <-err
}

// LogTail returns the last lines of a log, for the output of a failed test, without the lines about failed readiness checks.
func LogTail(path string) string {
	const most = 60
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"), func(line string) bool {
		return strings.Contains(line, "healthz check failed")
	})
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
