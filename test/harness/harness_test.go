package harness

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// childVariable is an environment variable. If it is set, this test binary runs its tests with [Main], which TestChild
// needs.
const childVariable = "REFRACT_TEST_HARNESS_CHILD"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		asReplica()
		return
	}
	if os.Getenv(childVariable) != "" {
		Main(m, Topology{}, func(context.Context, *Env) (func() error, error) { return nil, nil }) //nolint:nilnil // There is nothing to stop.
	}
	ctrllog.SetLogger(logr.Discard()) // As Main does.
	m.Run()
	if err := ours.close(); err != nil {
		panic(err)
	}
}

// asReplica is a substitute for a replica: it waits for SIGTERM.
func asReplica() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	<-asked
}

// named is a test with a name.
type named struct {
	testing.TB

	name string
}

func (n named) Name() string { return n.name }

// TestNameOf: NameOf returns different valid names for all kinds of test names.
func TestNameOf(t *testing.T) {
	base := fmt.Sprintf("TestNameOf%d", time.Now().UnixNano()) // This test may run several times in one process.
	fifty := base + "/" + strings.Repeat("x", 50)
	var got []string
	for _, name := range []string{
		base, base, base, // The same name repeated, as with -count 3.
		base + "/2", base + "_2", base + "#3", // Names of other tests that are equal to the names generated above.
		base + "/Größe_ß/#00", base + "/", base + "/...",
		fifty, fifty, fifty + "/one", fifty + "/two", fifty[:55] + "/-/", fifty[:55] + "/-/y", fifty[:56] + "/y",
	} {
		is := NameOf(named{t, name})
		if msgs := validation.IsDNS1123Label(is); msgs != nil {
			t.Errorf("NameOf(%s): want the name of a namespace, got %q: %v", name, is, msgs)
		}
		if slices.Contains(got, is) {
			t.Errorf("NameOf(%s): %q is the name of another: %q", name, is, got)
		}
		got = append(got, is)
	}
	name := strings.ToLower(base)
	if want := []string{name, name + "-2", name + "-3"}; !slices.Equal(want, got[:3]) {
		t.Errorf("NameOf(...): want %q, got %q", want, got[:3])
	}
}
