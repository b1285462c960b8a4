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

// grace is how long a command may go on after the end of its context, to end by itself.
const grace = 500 * time.Millisecond

// streams are where a command reads and writes.
type streams struct {
	*attendance

	in  io.Reader
	out io.Writer // Data, and nothing else.
	err io.Writer // Narration.
}

// attendance is whether somebody waits for a command, and how far the command has come.
type attendance struct {
	mu     sync.Mutex
	left   bool   // Nobody waits for the command any more.
	held   int    // How many things are being done that must not be left half done.
	state  string // What is done so far, for who ends the command in the middle; empty if it changes nothing that lasts.
	remedy string // What to do then.
}

func newStreams(in io.Reader, out, err io.Writer) *streams {
	a := &attendance{}
	return &streams{attendance: a, in: in, out: &attended{a, out}, err: &attended{a, err}}
}

// narrating returns the streams of a part of the command, whose narration goes elsewhere.
func (s *streams) narrating(w io.Writer) *streams {
	return &streams{attendance: s.attendance, in: s.in, out: s.out, err: &attended{s.attendance, w}}
}

// attended is a stream that nothing is written to after the command was left.
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

// at says what is done so far, and what to do if the command ends here, by a signal or by its --timeout. It is said before
// something is begun, and tells what may have been done of that.
func (a *attendance) at(state, remedy string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state, a.remedy = state, remedy
}

// standing returns what [attendance.at] was told last.
func (a *attendance) standing() (state, remedy string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state, a.remedy
}

// again is what to do if a command ends before it has changed anything, or if it goes on from where it has ended.
const again = "the same command can be given again"

// limited does something, and ends it after the --timeout of the command: what waits for an API server, or for a program that the
// kubeconfig names. Without a timeout nothing is ended. The error says how far the command has come; before anything was told by
// [attendance.at], nothing was changed.
func (s *streams) limited(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	s.at("nothing was changed", again)
	if timeout <= 0 {
		return do(ctx)
	}
	limit, cancel := context.WithTimeout(ctx, timeout+grace) // A cluster may be looked at once, however short the timeout is.
	defer cancel()
	err := s.within(limit, grace/2, func() error { return do(limit) })
	if err == nil || ctx.Err() != nil || limit.Err() == nil || !wait.Interrupted(err) {
		return err
	}
	state, remedy := s.standing()
	said := fmt.Sprintf("the --timeout of %s was over, and %s", timeout, state)
	switch {
	case s.isLeft():
		said += ": there was no answer, of an API server or of the program that the kubeconfig names for credentials"
	case err != limit.Err(): //nolint:errorlint // What wraps it says more.
		said += ": " + err.Error() // As text: what was canceled at the end was not interrupted.
	}
	return withHint(errors.New(said), remedy+"; --timeout gives it more time")
}

// within does something, and leaves it if it does not return in time after the end of ctx: it may
// wait for input or for another program, or compute without a look at the end. The error is that of ctx then. What
// [streams.whole] does it waits for.
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

// leave reports whether the command may be left now. If so it begins nothing more that must be
// finished.
func (a *attendance) leave() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = a.left || a.held == 0
	return a.left
}

// whole does something that must not be left half done, such as to write files or to take away
// again what was made.
func (s *streams) whole(do func() error) error {
	if !s.hold() {
		return context.Canceled
	}
	defer s.release()
	return do()
}

// finishing has a command waited for, that ends in order by itself: it ends what it has started.
func (s *streams) finishing(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return s.whole(func() error { return run(cmd, args) })
	}
	return cmd
}

// cleanTimeout is how long a cluster may take to answer when an account or a Secret is taken away.
const cleanTimeout = 15 * time.Second

// cleanGrace is how long it may take after the end of the command, which has a second in all.
const cleanGrace = 3 * grace / 4

// clean takes away what was made, and is waited for, but no longer than these. What does not look at the end of its context, as a
// program that gives credentials, is left then.
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
			return errors.New("there was no answer in time")
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

// Interruptible returns a context that ends when the program is interrupted or told to terminate.
// A second signal ends a program that does not end by itself.
func Interruptible(ctx context.Context) context.Context {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}
