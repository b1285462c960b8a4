// Pizza-crd-webhook is the webhook of the restaurant. It converts pizzas, gives them toppings, and rejects pizzas with
// toppings that the restaurant does not have. It runs until it receives a signal, and then first answers the requests
// in progress.
//
// It exits with 0 after a signal, with 1 after an error, and with 2 if the flags are wrong.
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

// run is the program, separated from its process.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "error: %v\nhint: see %s --help\n", err, args[0])
		return 2
	case o == nil: // Help was requested.
		return 0
	}
	if err := o.serve(ctx, stderr); err != nil {
		fmt.Fprintf(stderr, "error: %v\n", err)
		return 1
	}
	return 0
}
