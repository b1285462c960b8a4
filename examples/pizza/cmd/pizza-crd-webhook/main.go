// Pizza-crd-webhook is the webhook of the restaurant: it converts pizzas, gives them
// toppings, and refuses those with toppings that the restaurant does not have. It
// runs until it is told to stop, and then answers what it was asked before.
//
// It exits with 0 if it was told to stop, 1 if it cannot go on, 2 if it was started
// with the wrong flags.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends a program that does not end by itself.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args, os.Stderr)
	os.Exit(code) //nolint:forbidigo // This is a main.
}

// run is the program without its process.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "error: %v\nhint: see %s --help\n", err, args[0])
		return 2
	case o == nil: // It was asked for help.
		return 0
	}
	if err := o.serve(ctx, stderr); err != nil {
		fmt.Fprintf(stderr, "error: %v\n", err)
		return 1
	}
	return 0
}
