// Command refract gives every cluster its own variant of an object, and reports which policy changed which field.
package main

import (
	"context"
	"os"

	"refract.dev/internal/cli"
)

func main() {
	os.Exit(cli.Main(cli.Interruptible(context.Background()), os.Args, os.Stdin, os.Stdout, os.Stderr))
}
