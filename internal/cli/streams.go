package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
)

// grace is the time that a command has after the end of its context to end by itself.
const grace = 500 * time.Millisecond

// streams are the input and the outputs of a command.
type streams struct {
	*attendance

	in  io.Reader
	out io.Writer // Only data.
	err io.Writer // Narration.
}

// attendance tracks whether a command was abandoned, and its progress.
type attendance struct {
	mu     sync.Mutex
	left   bool   // The command was abandoned.
	held   int    // The number of running operations that must be completed.
	state  string // The progress, for the error after an interrupt; empty for a command without lasting changes.
	remedy string // The advice for that error.
}

func newStreams(in io.Reader, out, err io.Writer) *streams {
	a := &attendance{}
	return &streams{attendance: a, in: in, out: &attended{a, out}, err: &attended{a, err}}
}

// narrating returns the streams of a part of the command that narrates to w.
func (s *streams) narrating(w io.Writer) *streams {
	return &streams{attendance: s.attendance, in: s.in, out: s.out, err: &attended{s.attendance, w}}
}

// attended is a stream that rejects writes after the command was abandoned.
type attended struct {
	*attendance

	w io.Writer
}

func (a *attended) Write(p []byte) (int, error) {
	if a.isLeft() {
		return 0, context.Canceled
	}
	return a.w.Write(p)
}

func (a *attendance) isLeft() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.left
}

// at records the progress, and the advice for a command that ends here by a signal or its --timeout. A command calls at
// before it begins an operation, so the progress includes possible effects of this operation.
func (a *attendance) at(state, remedy string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state, a.remedy = state, remedy
}

// standing returns the last arguments of [attendance.at].
func (a *attendance) standing() (state, remedy string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state, a.remedy
}

// again is the advice for a command that has changed nothing, or that continues when it is repeated.
const again = "the command can be repeated"

// limited calls do, and abandons it after the --timeout of the command, even if it waits for an API server or for the
// credential plugin of the kubeconfig. A timeout of 0 is no limit. The error describes the progress; before the first
// call of [attendance.at], nothing was changed.
func (s *streams) limited(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	s.at("nothing was changed", again)
	if timeout <= 0 {
		return do(ctx)
	}
	limit, cancel := context.WithTimeout(ctx, timeout+grace) // With any timeout, a cluster can be checked once.
	defer cancel()
	err := s.within(limit, grace/2, func() error { return do(limit) })
	if err == nil || ctx.Err() != nil || limit.Err() == nil || !wait.Interrupted(err) {
		return err
	}
	state, remedy := s.standing()
	said := fmt.Sprintf("the --timeout of %s expired, and %s", timeout, state)
	switch {
	case s.isLeft():
		said += ": no answer from an API server, or from the credential plugin of the kubeconfig"
	case err != limit.Err(): //nolint:errorlint // A wrapped error has more information.
		said += ": " + err.Error() // As text, so that a cancellation at the end does not count as an interrupt.
	}
	return withHint(errors.New(said), remedy+"; --timeout sets another limit")
}

// within calls do, and abandons it if it does not return in time after the end of ctx: the function may wait for input
// or for another program, or compute without a check of ctx. The error is then that of ctx. within always waits for
// operations of [streams.whole].
func (s *streams) within(ctx context.Context, patience time.Duration, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	for ; ; patience = grace / 20 {
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			if s.leave() {
				return ctx.Err()
			}
		}
	}
}

// leave reports whether the command may be abandoned now. After that, no operation of [streams.whole] can start.
func (a *attendance) leave() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = a.left || a.held == 0
	return a.left
}

// whole runs an operation that must be completed, such as writing files or deleting objects of a failed command.
func (s *streams) whole(do func() error) error {
	if !s.hold() {
		return context.Canceled
	}
	defer s.release()
	return do()
}

// finishing makes a command uninterruptible, because it stops the processes that it started and then ends by itself.
func (s *streams) finishing(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return s.whole(func() error { return run(cmd, args) })
	}
	return cmd
}

// cleanTimeout bounds the time that a cluster has to answer the deletion of an account or a Secret.
const cleanTimeout = 15 * time.Second

// cleanGrace bounds this time after the end of the command's context. In total, the command has a second to end.
const cleanGrace = 3 * grace / 4

// clean runs an operation that deletes created objects, and waits for it within these bounds. It abandons an operation
// that ignores the end of its context, such as a credential plugin.
func (s *streams) clean(ctx context.Context, do func(context.Context) error) error {
	return s.whole(func() error {
		lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(cleanGrace, cancel) })()
		done := make(chan error, 1)
		go func() { done <- do(lasting) }()
		select {
		case err := <-done:
			return err
		case <-lasting.Done():
			return errors.New("no answer in time")
		}
	})
}

func (a *attendance) hold() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.left {
		a.held++
	}
	return !a.left
}

func (a *attendance) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held--
}

// Interruptible returns a context that ends when the program receives SIGINT or SIGTERM. A second signal ends the
// program itself.
func Interruptible(ctx context.Context) context.Context {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}
