// Package harness is the common part of tests with real control planes. It has a hub and members that packages may
// share, the programs that users run, faults, and functions that wait for a state.
package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// binaryVariable is the environment variable with the path of the refract program that was built for all tests.
	// clustersVariable is the environment variable with the folder of the kept control planes.
	binaryVariable   = "REFRACT_TEST_BINARY"
	clustersVariable = "REFRACT_TEST_CLUSTERS"

	// parallel is the default number of parallel tests of a package. It is high, because the tests mostly wait.
	parallel = "8"
)

// Setup prepares an Env for the tests of a package. It returns a function to call after the tests, or nil.
type Setup func(context.Context, *Env) (stop func() error, err error)

// Main runs the tests of a package with control planes, and ends the process. It opens an Env with the topology for
// setup; if setup is nil, it opens none, and only the tests themselves open control planes. An interrupt also ends the
// tests, and leaves no processes or folders behind.
func Main(m *testing.M, t Topology, setup Setup) {
	flag.Parse()
	code, err := run(m, t, setup)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, t Topology, setup Setup) (code int, err error) {
	ctrllog.SetLogger(logr.Discard()) // Logs of the tests' clients are not needed.
	if err := moreAtATime(); err != nil {
		return 0, err
	}
	clean, err := temporary()
	if err != nil {
		return 0, err
	}
	if none() {
		return m.Run(), clean()
	}
	ctx, cancel := context.WithCancel(opened.ctx)
	defer cancel()
	stop := func() error { return nil }
	shut := func() error { return errors.Join(stop(), opened.close(), ours.close(), clean()) }

	var last sync.Mutex // The goroutine that ends the process locks this and never unlocks it.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		last.Lock()
		opened.end()
		fmt.Fprintln(os.Stderr, "error:", errors.Join(errors.New("interrupted"), shut()))
		os.Exit(130)
	}()
	if err = prepare(ctx, t, setup, &stop); err == nil {
		code = m.Run()
	}
	last.Lock()
	return code, errors.Join(err, shut())
}

// prepare opens an Env and calls setup. An interrupt is handled only after that, so the handler knows the stop
// function.
func prepare(ctx context.Context, t Topology, setup Setup, stop *func() error) error {
	if setup == nil {
		return nil
	}
	done, err := opened.begin()
	if err != nil {
		return err
	}
	defer done()
	env, err := Open(ctx, t)
	if err != nil {
		return err
	}
	to, err := setup(ctx, env)
	if to != nil {
		*stop = to
	}
	return err
}

// moreAtATime raises the number of parallel tests, unless -parallel sets it. The default of Go is the number of
// processors.
func moreAtATime() error {
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if asked {
		return nil
	}
	return flag.Set("test.parallel", parallel)
}

// none reports whether no test runs, as with -test.list.
func none() bool {
	list := flag.Lookup("test.list")
	return list != nil && list.Value.String() != ""
}

// temporary sets a folder for all temporary files of this process and its children, and returns a function that removes
// it. Interrupted tests do not remove their files themselves.
func temporary() (clean func() error, err error) {
	dir, err := os.MkdirTemp("", "refract-tests-")
	if err != nil {
		return nil, err
	}
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return func() error { return removeAll(dir) }, nil
}

// places limits the number of Envs that single tests open. With more Envs at a time, tests would mostly wait for
// processors.
var places = make(chan struct{}, 2)

// New is [Open] for a single test or subtest, and closes the Env at the end of the test. New waits while two other
// tests of the package have an Env, so a test must not open two.
func New(t testing.TB, of Topology) *Env {
	t.Helper()
	places <- struct{}{}
	t.Cleanup(func() { <-places })
	e, err := Open(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for log, name := range e.logs() {
				t.Logf("the log of replica %s ends:\n%s", name, LogTail(log))
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// names contains the names that NameOf has returned.
var names = struct {
	sync.Mutex
	given map[string]bool
}{given: map[string]bool{}}

// NameOf returns a name for objects of the test: a DNS label made from the name of the test, and different from all
// names returned before.
func NameOf(t testing.TB) string {
	t.Helper()
	const most = 56 // At most seven more characters are appended, as for pods of a ReplicaSet.
	name := strings.Trim(regexp.MustCompile("[^a-z0-9]+").ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	name = strings.Trim(name[:min(most, len(name))], "-")
	names.Lock()
	defer names.Unlock()
	free := name
	for n := 2; names.given[free]; n++ { // A test may run several times, or another test may have this name.
		free = fmt.Sprintf("%s-%d", name, n)
	}
	names.given[free] = true
	return free
}

// Namespace creates a namespace for the test on the hub and returns its name. It is deleted at the end of the test.
func (e *Env) Namespace(t testing.TB) string {
	t.Helper()
	c, err := e.Client("hub")
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: NameOf(t)}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), ns); err != nil {
			t.Error(err)
		}
	})
	return ns.Name
}
