package playground

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// stubs are programs that the test binary runs if it is started by their names. Tests of process handling use them in
// place of components. One of them is the supervisor of a playground.
var stubs = map[string]func(args []string) int{
	"obedient":   obedient,
	"stubborn":   stubborn,
	"unlucky":    unlucky,
	"listener":   listener,
	"supervisor": supervisor,
}

func TestMain(m *testing.M) {
	if stub, ok := stubs[filepath.Base(os.Args[0])]; ok {
		os.Exit(stub(os.Args[1:])) // This process runs a stub and no tests.
	}
	// Tests with control planes run in parallel even on few processors, because they wait half of the time. The flags
	// of the user are parsed later and take precedence.
	if err := flag.Set("test.parallel", "3"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}

// linkStubs returns a folder with a link for each stub.
func linkStubs(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name := range stubs {
		if err := os.Symlink(exe, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// obedient ends on SIGTERM, and then appends its first argument to the file "ended".
func obedient(args []string) int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	fmt.Fprintln(os.Stdout, "at work")
	<-asked
	f, err := os.OpenFile("ended", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	defer f.Close()
	fmt.Fprintln(f, args[0])
	return 0
}

// stubborn ignores SIGTERM.
func stubborn([]string) int {
	signal.Ignore(syscall.SIGTERM)
	fmt.Fprintln(os.Stdout, "at work")
	<-time.After(time.Minute)
	return 0
}

// unlucky ends at once.
func unlucky([]string) int {
	fmt.Fprintln(os.Stderr, "there is no future")
	return 3
}

// listener listens on the port in its first argument.
func listener(args []string) int {
	l, err := net.Listen("tcp4", "127.0.0.1:"+args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer l.Close()
	for {
		if _, err := l.Accept(); err != nil {
			return 1
		}
	}
}

// supervisor runs a playground that only has a hub, until it receives SIGTERM. Its arguments are the folders of the
// playground and of the binaries.
func supervisor(args []string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	p, err := Start(ctx, Options{Dir: args[0], Assets: args[1]})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	<-ctx.Done()
	if err := p.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
