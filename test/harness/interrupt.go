package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// opened are the Envs of this process. An interrupt closes all of them: whoever has
// opened them will not.
var opened = newEnvs()

type envs struct {
	// ctx ends with an interrupt, and what is started for a test's sake with it.
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

// begin has an interrupt wait until what is begun now is either given up or ready to be
// closed, when done is called. After an interrupt nothing is begun.
func (o *envs) begin() (done func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return nil, errors.New("opening control planes: the process has been interrupted")
	}
	o.opening.Add(1)
	return o.opening.Done, nil
}

// end ends the context, and returns when nothing is being opened any more.
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

// close closes those that are open.
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

// removeAll removes a folder, even if somebody goes on writing files there: nobody finds
// it under its name any more.
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
