// Package harness is what tests with real control planes stand on: a hub and members
// that they may share with others, the programs as users run them, what makes them
// misbehave, and waiting.
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
	// binaryVariable names the program that was built for all tests, and
	// clustersVariable the folder of the control planes that are kept for them.
	binaryVariable   = "REFRACT_TEST_BINARY"
	clustersVariable = "REFRACT_TEST_CLUSTERS"

	// parallel is how many tests of a package run at the same time that say that they
	// may, unless -parallel says otherwise: they wait most of the time.
	parallel = "8"
)

// Setup prepares an Env for the tests of a package, and returns what is to be called
// when they have ended; nil if there is nothing to be done.
type Setup func(context.Context, *Env) (stop func() error, err error)

// Main runs the tests of a package with control planes, and ends the process. If setup
// is nil there are none but those that tests open, and the topology is of no interest.
// An interrupt ends them too, and leaves neither process nor folder behind.
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
	ctrllog.SetLogger(logr.Discard()) // Clients of the tests have nothing to say.
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

	var last sync.Mutex // Whoever ends the process takes it, and keeps it.
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

// prepare opens an Env and has it prepared. An interrupt waits for that, and so knows
// how to stop what setup has begun.
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

// moreAtATime has more tests run at the same time than there are processors.
func moreAtATime() error {
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if asked {
		return nil
	}
	return flag.Set("test.parallel", parallel)
}

// none reports whether no test is going to run that needs anything.
func none() bool {
	list := flag.Lookup("test.list")
	return list != nil && list.Value.String() != ""
}

// temporary has all temporary files of this process, and of those that it starts, be in
// a folder of their own, and returns what removes it: an interrupted test does not
// remove what it has made.
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

// places are for Envs of single tests. More of them at a time would wait for each other's
// processors, and not for what they test.
var places = make(chan struct{}, 2)

// New is [Open] for one test, or the part of one, which the Env ends with. If two tests of
// the package have one already it waits, so no test may open two.
func New(t testing.TB, of Topology) *Env {
	t.Helper()
	places <- struct{}{}
	t.Cleanup(func() { <-places })
	e, err := Open(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// names are those that were given to tests.
var names = struct {
	sync.Mutex
	given map[string]bool
}{given: map[string]bool{}}

// NameOf returns the name of the test as that of an object, other than any that it has
// returned: a DNS label.
func NameOf(t testing.TB) string {
	t.Helper()
	const most = 56 // And up to seven characters more, as in those of ReplicaSets' pods.
	name := strings.Trim(regexp.MustCompile("[^a-z0-9]+").ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	name = strings.Trim(name[:min(most, len(name))], "-")
	names.Lock()
	defer names.Unlock()
	free := name
	for n := 2; names.given[free]; n++ { // A test may run several times, and another be called as this one is then.
		free = fmt.Sprintf("%s-%d", name, n)
	}
	names.given[free] = true
	return free
}

// Namespace makes a namespace for the test on the hub, and returns its name. It goes
// when the test ends.
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
