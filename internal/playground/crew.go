package playground

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"
)

// grace is the time between SIGTERM and SIGKILL. Most processes end within a second, but an API server without etcd
// never ends by itself. SIGKILL does no harm, because all data is temporary.
const grace = 3 * time.Second

// crew starts and stops the processes of a playground. It ensures that no process runs longer than the supervisor, and
// reports processes that end by themselves.
type crew struct {
	starts chan func() // Functions that the thread of startLoop calls one by one.

	mu        sync.Mutex
	processes []*process

	overOnce sync.Once
	over     chan struct{} // Closed when the crew should stop, or when a process has ended by itself.
	err      error         // The error of a process that has ended by itself. Set before over is closed.
}

func newCrew() *crew {
	c := &crew{starts: make(chan func()), over: make(chan struct{})}
	go c.startLoop()
	return c
}

// startLoop starts all processes from one thread. On Linux, Pdeathsig kills a child when the thread that started it
// ends, even if the process still runs. So this thread must not end before the last child.
func (c *crew) startLoop() {
	runtime.LockOSThread()
	for start := range c.starts {
		start()
	}
}

// start starts a process. The output of the process replaces its log.
func (c *crew) start(s spec) (*process, error) {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: opening the log of %s: %w", s.cluster, s.component, err)
	}
	defer func() { _ = log.Close() }() // The child has its own copy.

	cmd := exec.Command(s.binary, s.args...) //nolint:noctx // The crew stops processes in order, and not by a context.
	cmd.Dir = s.dir
	cmd.Env = s.env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = spawnAttr()

	started := make(chan error)
	c.starts <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: starting %s: %w", s.cluster, s.component, err)
	}

	p := &process{spec: s, handle: cmd.Process, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes = append(c.processes, p)
	return p, nil
}

// watch ends the crew when p ends, unless p is halted.
func (c *crew) watch(p *process) {
	go func() {
		<-p.done
		if !p.halted.Load() {
			c.end(p.death())
		}
	}()
}

// find returns the process of a component that was started last, or nil.
func (c *crew) find(cluster, component string) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range slices.Backward(c.processes) {
		if p.cluster == cluster && p.component == component {
			return p
		}
	}
	return nil
}

// end closes the channel over, unless it is already closed. err is nil if the crew should stop.
func (c *crew) end(err error) {
	c.overOnce.Do(func() {
		c.err = err
		close(c.over)
	})
}

// wait waits until the channel over is closed. It returns the error of a process that has ended by itself; nil if the
// crew should stop.
func (c *crew) wait() error {
	<-c.over
	return c.err
}

// failed reports whether a process has ended by itself.
func (c *crew) failed() bool {
	select {
	case <-c.over:
		return c.err != nil
	default:
		return false
	}
}

// bind returns a context that ends with ctx or with the crew. In the latter case its cause is the crew's error.
func (c *crew) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c.over:
			cancel(c.err)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// stop stops all processes in the order of descending ranks, and returns when they have ended. It must be called only
// once, and no process can be started after it.
func (c *crew) stop() {
	c.end(nil)
	for rank := rankClient; rank >= rankEtcd; rank-- {
		var wg sync.WaitGroup
		for _, p := range c.processes {
			if p.rank == rank {
				wg.Go(func() { p.stop(grace) })
			}
		}
		wg.Wait()
	}
	close(c.starts)
}
