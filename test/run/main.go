// Command run implements `make test`: it runs stages, which are targets of the Makefile, and tests, and reports the
// duration of each.
//
//	run stages TARGET...   runs make for each target, until one fails
//	run unit [FLAG...]     runs the tests that need no control plane, with go test
//	run quick [FLAG...]    runs the same tests without the race detector
//	run live [FLAG...]     runs the tests that need control planes, and keeps control planes for them
//	run node [FLAG...]     runs the tests that need a Node with pods in containers
//	run browser [FLAG...]  runs the tests that need a browser
//	run benchmarks [FLAG...]
//	                       runs the benchmarks that need no control plane
//
// FLAGs are passed to go test. A package path, such as ./test/e2e, replaces the default of all packages.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	const want = "want stages, unit, quick, live, node, browser or benchmarks"
	if len(args) == 0 {
		return errors.New(want)
	}
	switch what, args := args[0], args[1:]; what {
	case "stages":
		return stages(ctx, os.Stdout, args)
	case "unit":
		return unit(ctx, args)
	case "quick":
		return quick(ctx, args)
	case "benchmarks":
		return benchmarks(ctx, args)
	case "live":
		return live(ctx, args)
	case "node":
		return alone(ctx, onNode, args)
	case "browser":
		return alone(ctx, inBrowser, args)
	default:
		return errors.New(want + ", got " + what)
	}
}
