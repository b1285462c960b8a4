// Demo tells the story of the pizza restaurant on a control plane of this machine, with the commands that a reader
// would type and their output: two versions without a conversion between them, then with one, admission, and the
// removal of the first version. It uses the programs that `make build controlplane` puts into bin, and must be started
// in the root folder of the repository.
//
// The story is on standard output, and progress messages are on standard error. The demo removes everything at its end.
// It exits with 0 if all steps had the expected result, with 1 if one did not, and with 2 if it was started with
// arguments.
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
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"refract.dev/internal/playground"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends a program that does not end by itself.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	os.Exit(code) //nolint:forbidigo // This is a main.
}

// run is the program, separated from its process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		fmt.Fprintf(stderr, "error: unexpected argument %q: the demo takes none\n", args[0])
		return 2
	}
	if err := tell(ctx, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "error: %v\n", err)
		return 1
	}
	return 0
}

// tell prepares the stage, tells the story, and cleans up.
func tell(ctx context.Context, stdout, stderr io.Writer) (err error) {
	ctrllog.SetLogger(logr.Discard())
	began := time.Now()
	assets, err := playground.Assets(filepath.Join("bin", "refract"))
	if err == nil {
		assets, err = filepath.Abs(assets)
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(folder); err != nil {
		return fmt.Errorf("finding the example (start the demo in the folder of the repository): %w", err)
	}
	dir, err := os.MkdirTemp("", "refract-pizza-")
	if err != nil {
		return fmt.Errorf("making a folder for the control plane: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	pg, err := playground.Start(ctx, playground.Options{
		Dir: filepath.Join(dir, "playground"), Assets: assets,
		Progress: func(msg string) { fmt.Fprintln(stderr, msg) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	s, err := newStage(ctx, pg, assets, dir, stdout, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, scene := range story {
		err := s.play(ctx, scene)
		if ctx.Err() != nil {
			return errors.New("interrupted") // The error of the interrupted command does not matter.
		}
		if err != nil {
			return fmt.Errorf("%s: %w", scene.title, err)
		}
	}
	fmt.Fprintf(stdout, "\nShown: conversion, pruning, admission, an outage, and a migration to v1beta1: %d commands, in %s.\n",
		s.commands, time.Since(began).Round(100*time.Millisecond))
	return nil
}
