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

// grace is how long a command may take to end after its context has ended.
const grace = 500 * time.Millisecond

// streams are the input and the outputs of a command.
type streams struct {
	*attendance

	in  io.Reader
	out io.Writer // Only data.
	err io.Writer // Narration.
}

// attendance tracks the progress of a command, and whether it was abandoned.
type attendance struct {
	mu     sync.Mutex
	left   bool   // The command was abandoned.
	held   int    // The number of running operations that must not be abandoned.
	state  string // The progress, for the error after an interrupt; empty if the command makes no lasting changes.
	remedy string // The advice in that error.
}

func newStreams(in io.Reader, out, err io.Writer) *streams {
	a := &attendance{}
	return &streams{attendance: a, in: in, out: &attended{a, out}, err: &attended{a, err}}
}

// narrating returns streams that write messages to w instead of stderr.
func (s *streams) narrating(w io.Writer) *streams {
	return &streams{attendance: s.attendance, in: s.in, out: s.out, err: &attended{s.attendance, w}}
}

// attended is a stream that returns an error for all writes after the command was abandoned.
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

// at records the progress of the command, and advice. Both are shown if the command is ended by a signal or its
// --timeout. A command calls this method before each operation, because the operation may have effects even if it is
// interrupted.
func (a *attendance) at(state, remedy string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state, a.remedy = state, remedy
}

// standing returns the arguments of the last call of [attendance.at].
func (a *attendance) standing() (state, remedy string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state, a.remedy
}

// again is the advice if a command has changed nothing, or if it can be repeated to continue.
const again = "the command can be repeated"

// limited calls do, and abandons it after the --timeout of the command. It does so even if the function waits for an
// API server or for a credential plugin. If timeout is 0, there is no limit. The error describes the progress. Before
// the first call of [attendance.at], the progress is that nothing was changed.
func (s *streams) limited(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	s.at("nothing was changed", again)
	if timeout <= 0 {
		return do(ctx)
	}
	limit, cancel := context.WithTimeout(ctx, timeout+grace) // With grace, even a short timeout is long enough for one check.
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
		said += ": " + err.Error() // As text and not as a wrapped error, because a wrapped context.Canceled would look like an interrupt.
	}
	return withHint(errors.New(said), remedy+"; --timeout sets another limit")
}

// within calls do. After the end of ctx it waits for a time, and then abandons the function: the function may be
// waiting for input or another program, or computing without a check of ctx. The error is then the error of ctx. within
// never abandons operations in [streams.whole].
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

// leave reports whether the command may be abandoned now. If so, no operation in [streams.whole] can start any more.
func (a *attendance) leave() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = a.left || a.held == 0
	return a.left
}

// whole runs an operation that must not be abandoned, for example the writing of files.
func (s *streams) whole(do func() error) error {
	if !s.hold() {
		return context.Canceled
	}
	defer s.release()
	return do()
}

// finishing makes a command that is never abandoned. It is for commands that stop the processes that they have started,
// and then end by themselves.
func (s *streams) finishing(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return s.whole(func() error { return run(cmd, args) })
	}
	return cmd
}

// cleanTimeout is how long a cluster may take to delete an account or a Secret.
const cleanTimeout = 15 * time.Second

// cleanGrace is how long this deletion may take after the end of the command's context. The command as a whole must end
// within a second.
const cleanGrace = 3 * grace / 4

// clean runs an operation that deletes objects, within the limits above. It abandons an operation that does not end
// with its context, such as a credential plugin.
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
// program at once.
func Interruptible(ctx context.Context) context.Context {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}
