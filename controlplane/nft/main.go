// Command nft replaces the program of this name for kube-proxy. The original is written in C, and machines without a
// container engine seldom have it. The command supports the statements that this version of kube-proxy writes for IPv4
// Services with addresses in the cluster. It sends them to the kernel in one transaction, and rejects all other
// statements.
//
//	nft --version
//	nft [--check] -f -    reads a transaction from standard input
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/google/nftables"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	switch {
	case slices.Equal(args, []string{"--version"}):
		_, err := fmt.Fprintln(out, "nftables v1.1.0 (for kube-proxy alone)")
		return err
	case slices.Equal(args, []string{"-f", "-"}), slices.Equal(args, []string{"--check", "-f", "-"}):
		conn, err := nftables.New()
		if err != nil {
			return fmt.Errorf("connecting to the kernel: %w", err)
		}
		if err := read(in, &transaction{conn: conn}); err != nil || args[0] == "--check" {
			return err
		}
		return conn.Flush()
	}
	// kube-proxy also lists the elements of sets. It empties a set that it cannot list.
	return fmt.Errorf("want --version or -f -, got %q", args)
}

// read adds the changes of each line to a transaction.
func read(in io.Reader, t *transaction) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20) // A Service with thousands of endpoints takes one line.
	for n := 1; lines.Scan(); n++ {
		if err := t.add(lines.Text()); err != nil {
			return errors.Join(fmt.Errorf("line %d: %w", n, err), errors.New(lines.Text()))
		}
	}
	return lines.Err()
}
