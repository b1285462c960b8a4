package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// grace is how long a command may go on after the end of its context, to end by itself.
const grace = 500 * time.Millisecond

// streams are where a command reads and writes.
type streams struct {
	in  io.Reader
	out io.Writer // Data, and nothing else.
	err io.Writer // Narration.

	mu   sync.Mutex
	left bool // Nobody waits for the command any more.
	held int  // How many things are being done that must not be left half done.
}

func newStreams(in io.Reader, out, err io.Writer) *streams {
	s := &streams{in: in}
	s.out, s.err = &attended{s, out}, &attended{s, err}
	return s
}

// attended is a stream that nothing is written to after the command was left.
type attended struct {
	*streams

	w io.Writer
}

func (a *attended) Write(p []byte) (int, error) {
	if a.isLeft() {
		return 0, context.Canceled
	}
	return a.w.Write(p)
}

func (s *streams) isLeft() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// within does something, and leaves it if it does not return in time after the end of ctx: it may
// wait for input, or compute without a look at the end. The error is that of ctx then. What
// [streams.whole] does it waits for.
func (s *streams) within(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	for patience := grace; ; patience = grace / 20 {
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
func (s *streams) leave() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = s.left || s.held == 0
	return s.left
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

func (s *streams) hold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left {
		s.held++
	}
	return !s.left
}

func (s *streams) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
}

// Interruptible returns a context that ends when the program is interrupted or told to terminate.
// A second signal ends a program that does not end by itself.
func Interruptible(ctx context.Context) context.Context {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}
