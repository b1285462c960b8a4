package playground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// spec is the specification of a process.
type spec struct {
	cluster   string
	component string
	rank      int    // Processes are stopped in the order of descending ranks.
	binary    string // An absolute path.
	args      []string
	env       []string
	dir       string // The working directory.
	log       string // The absolute path of a file.
}

// process is a started component.
type process struct {
	spec

	handle *os.Process
	halted atomic.Bool   // Whether its end was requested, so that the end is no failure.
	frozen atomic.Bool   // It is paused.
	done   chan struct{} // Closed after the process has ended.
	err    error         // The result of the process. Set before done is closed.
}

// ComponentError reports that a component has ended by itself.
type ComponentError struct {
	Cluster   string // Such as "member-1".
	Component string // Such as "kube-scheduler".
	Log       string // The path of the component's log.
	Tail      string // The last lines of the log.
	Err       error  // The result of the process.
}

func (e *ComponentError) Error() string {
	return fmt.Sprintf("%s: %s has ended: %v; the end of its log, %s:\n%s", e.Cluster, e.Component, e.Err, e.Log, e.Tail)
}

// Unwrap returns the result of the process.
func (e *ComponentError) Unwrap() error { return e.Err }

// death returns the error about a process that has ended by itself.
func (p *process) death() *ComponentError {
	err := p.err
	if err == nil {
		err = errors.New("exit status 0")
	}
	return &ComponentError{Cluster: p.cluster, Component: p.component, Log: p.log, Tail: tail(p.log), Err: err}
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// await calls probe until it returns nil. It returns an error if the process ends, if ctx ends, or after patience.
func (p *process) await(ctx context.Context, probe func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	}()

	err := await(ctx, probe)
	if err == nil {
		return nil
	}
	if p.ended() {
		return p.death()
	}
	return fmt.Errorf("%s: waiting for %s, whose log is %s: %w", p.cluster, p.component, p.log, err)
}

// stop sends SIGTERM to the process. If the process still runs after the given time, stop kills it. A frozen process is
// killed at once. stop returns when the process has ended.
func (p *process) stop(within time.Duration) {
	if p.frozen.Load() {
		within = 0
	}
	// Signal returns an error if the process has already ended.
	_ = p.handle.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return
	case <-time.After(within):
	}
	_ = p.handle.Kill()
	<-p.done
}

// tail returns the last lines of a log, with indentation.
func tail(path string) string {
	const bytes, lines = 4096, 6

	f, err := os.Open(path)
	if err != nil {
		return "  " + err.Error()
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > bytes {
		_, _ = f.Seek(-bytes, io.SeekEnd)
	}
	raw, err := io.ReadAll(f)
	if err != nil {
		return "  " + err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return "  " + strings.Join(all[max(0, len(all)-lines):], "\n  ")
}
