// Command keep keeps control planes for tests: see harness.Keep. It prints an environment variable that lets tests find
// them. It stops them when its standard input ends, or on an interrupt. All files are in the folder of its argument.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"refract.dev/internal/playground"
	"refract.dev/test/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := keep(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func keep(ctx context.Context, args []string) error {
	ctrllog.SetLogger(logr.Discard()) // Logs of clients are not needed.
	if len(args) != 1 {
		return errors.New("want one argument, a folder")
	}
	root, err := harness.Root()
	if err != nil {
		return err
	}
	assets, err := playground.Assets(filepath.Join(root, "bin", "refract"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // Only the end of the input matters.
		cancel()
	}()
	found, stop, err := harness.Keep(ctx, args[0], assets, harness.Kept())
	if err != nil {
		return err
	}
	fmt.Println(found)
	<-ctx.Done()
	return stop()
}
