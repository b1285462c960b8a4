// Command refract gives every cluster its own variant of an object, and says
// which policy changed what.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"refract.dev/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends a program that does not end by itself.
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Main(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr))
}
