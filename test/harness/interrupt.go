package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// opened contains the open Envs of this process. After an interrupt the tests do not close their Envs, so the handler
// closes all of them.
var opened = newEnvs()

type envs struct {
	// ctx is canceled by an interrupt. This ends all processes that tests have started.
	ctx       context.Context //nolint:containedctx // It belongs to the process.
	interrupt context.CancelFunc

	mu      sync.Mutex
	all     map[*Env]bool
	opening sync.WaitGroup
}

func newEnvs() *envs {
	ctx, cancel := context.WithCancel(context.Background())
	return &envs{ctx: ctx, interrupt: cancel, all: map[*Env]bool{}}
}

// begin announces that the caller opens an Env. The handling of an interrupt waits until done is called: by then the
// Env is registered, or the caller has given up. After an interrupt, begin returns an error.
func (o *envs) begin() (done func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return nil, errors.New("opening control planes: the process has been interrupted")
	}
	o.opening.Add(1)
	return o.opening.Done, nil
}

// end cancels the context and waits until no Env is being opened.
func (o *envs) end() {
	o.mu.Lock()
	o.interrupt()
	o.mu.Unlock()
	o.opening.Wait()
}

func (o *envs) add(e *Env) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[e] = true
}

func (o *envs) remove(e *Env) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, e)
}

// close closes all open Envs.
func (o *envs) close() error {
	o.mu.Lock()
	var errs []error
	var mu sync.Mutex
	var each sync.WaitGroup
	for e := range o.all {
		each.Go(func() {
			err := e.Close()
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	o.mu.Unlock()
	each.Wait()
	return errors.Join(errs...)
}

// removeAll removes a folder even while another process is still writing files into it. It renames the folder first, so
// that the process no longer finds it.
func removeAll(dir string) error {
	gone := dir + ".gone"
	if err := os.Rename(dir, gone); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("removing what was written: %w", err)
	}
	return os.RemoveAll(gone)
}
