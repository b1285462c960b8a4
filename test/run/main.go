// Command run is what `make test` is made of: it runs stages, which are targets of the
// Makefile, and tests, and says in the end what took how long.
//
//	run stages TARGET...   runs make for each target; the first that fails ends it
//	run unit [FLAG...]     runs the tests that need no control plane, by go test
//	run quick [FLAG...]    does so without the race detector
//	run live [FLAG...]     runs the others, beside control planes that it keeps for them
//	run node [FLAG...]     runs those that need a Node with pods in containers
//	run browser [FLAG...]  runs those that need a browser
//	run benchmarks [FLAG...]
//	                       runs the benchmarks that need no control plane
//
// FLAGs go to go test; one that chooses packages, ./test/e2e, takes the place of all.
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
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "error: want stages, unit, quick, live, node, browser or benchmarks")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1], os.Args[2:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, what string, args []string) error {
	switch what {
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
	}
	return errors.New("want stages, unit, quick, live, node, browser or benchmarks, got " + what)
}
