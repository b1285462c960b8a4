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

// grace is the time between SIGTERM and SIGKILL. Most processes need less than a second to end, but an API server that
// has lost its etcd does not end by itself. All data is temporary, so SIGKILL does no harm.
const grace = 3 * time.Second

// crew is the processes of a playground. It starts them, ensures that none outlives the supervisor, and reports
// unexpected ends.
type crew struct {
	starts chan func() // Calls for the thread that starts processes, which runs them one by one.

	mu        sync.Mutex
	processes []*process

	overOnce sync.Once
	over     chan struct{} // Closed when the crew is told to stop or has lost a process.
	err      error         // The loss of a process. Written before over is closed.
}

func newCrew() *crew {
	c := &crew{starts: make(chan func()), over: make(chan struct{})}
	go c.startLoop()
	return c
}

// startLoop starts all processes from one thread, which lives until the last process has ended. Linux treats the thread
// as the parent that Pdeathsig refers to, not the whole process.
func (c *crew) startLoop() {
	runtime.LockOSThread()
	for start := range c.starts {
		start()
	}
}

// start starts a process. Its output replaces its log.
func (c *crew) start(s spec) (*process, error) {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: opening the log of %s: %w", s.cluster, s.component, err)
	}
	defer func() { _ = log.Close() }() // The child has its own copy.

	cmd := exec.Command(s.binary, s.args...) //nolint:noctx // It lives until the crew stops it, in order.
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

// watch ends the crew when p ends, unless p was halted.
func (c *crew) watch(p *process) {
	go func() {
		<-p.done
		if !p.halted.Load() {
			c.end(p.death())
		}
	}()
}

// find returns the last started process of a component, or nil.
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

// end marks the crew as over, unless it already is. err is nil if the crew was told to stop.
func (c *crew) end(err error) {
	c.overOnce.Do(func() {
		c.err = err
		close(c.over)
	})
}

// wait returns when the crew is over: nil if it was told to stop.
func (c *crew) wait() error {
	<-c.over
	return c.err
}

// failed reports whether the crew has lost a process.
func (c *crew) failed() bool {
	select {
	case <-c.over:
		return c.err != nil
	default:
		return false
	}
}

// bind returns a context that also ends with the crew, with the crew's error as the cause.
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

// stop ends all processes by descending rank, and returns when they have ended. It may be called once, and no process
// can be started after it.
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
