package playground

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// stubSpec returns the spec of a process that runs a stub.
func stubSpec(t *testing.T, bin, dir, name string, rank int, args ...string) spec {
	t.Helper()
	return spec{
		cluster: "hub", component: name, rank: rank,
		binary: filepath.Join(bin, name), args: args, dir: dir,
		log: filepath.Join(dir, strings.Join(append(args, name), "-")+".log"),
	}
}

// atWork waits until the process has written to its log that it works.
func atWork(t *testing.T, p *process) {
	t.Helper()
	err := p.await(t.Context(), func(context.Context) error {
		log, err := os.ReadFile(p.log)
		if err == nil && !strings.Contains(string(log), "at work") {
			err = errors.New("it has not begun")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCrewStopsInOrder(t *testing.T) {
	bin, dir, c := linkStubs(t), t.TempDir(), newCrew()
	for _, p := range []struct {
		name string
		rank int
	}{{"apiserver", rankAPIServer}, {"scheduler", rankClient}, {"etcd", rankEtcd}} {
		started, err := c.start(stubSpec(t, bin, dir, "obedient", p.rank, p.name))
		if err != nil {
			t.Fatal(err)
		}
		c.watch(started)
		atWork(t, started)
	}

	c.stop()

	if err := c.wait(); err != nil {
		t.Errorf("Processes that end because they are told to are no failure.\nwait(): %v", err)
	}
	ended, err := os.ReadFile(filepath.Join(dir, "ended"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("scheduler\napiserver\netcd\n", string(ended)); diff != "" {
		t.Errorf("Nothing may have to go without what it depends on: -want, +got:\n%s", diff)
	}
}

func TestProcessIsKilledWhenItDoesNotEnd(t *testing.T) {
	c := newCrew()
	p, err := c.start(stubSpec(t, linkStubs(t), t.TempDir(), "stubborn", rankEtcd))
	if err != nil {
		t.Fatal(err)
	}
	atWork(t, p)

	p.stop(50 * time.Millisecond)

	if !p.ended() {
		t.Error("stop() returned before the process had ended.")
	}
	c.stop()
}

func TestCrewReportsALoss(t *testing.T) {
	dir, c := t.TempDir(), newCrew()
	p, err := c.start(stubSpec(t, linkStubs(t), dir, "unlucky", rankClient))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := c.bind(t.Context())
	defer cancel()
	c.watch(p)

	var got *ComponentError
	if err := c.wait(); !errors.As(err, &got) {
		t.Fatalf("wait(): want a ComponentError, got %v", err)
	}
	want := &ComponentError{Cluster: "hub", Component: "unlucky", Log: p.log, Tail: "  there is no future"}
	got.Err = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("The user must learn what has ended, and find out why: -want, +got:\n%s", diff)
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, got) {
		t.Errorf("What depends on the crew must end with it, for the same reason: got %v", err)
	}
	if !c.failed() {
		t.Error("A crew that has lost a process has failed.")
	}
	c.stop()
	if err := c.wait(); !errors.Is(err, got) {
		t.Errorf("Stopping afterwards must not hide the loss: got %v", err)
	}
}

func TestServeTakesOtherPorts(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, lost, _ := net.SplitHostPort(taken.Addr().String())

	cases := map[string]struct {
		reason string
		taken  int // How often another process takes the free port before it is used.
		want   int // How often a free port is requested.
		err    bool
	}{
		"Free":       {reason: "A free port needs one attempt.", taken: 0, want: 1},
		"TakenTwice": {reason: "If another process takes the port first, other ports are tried.", taken: 2, want: 3},
		"AlwaysTaken": {
			reason: "The number of attempts is limited, so that the user does not wait forever.",
			taken:  attempts, want: attempts, err: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t.TempDir(), "hub", hub)
			if err := c.prepare(); err != nil {
				t.Fatal(err)
			}
			asked := 0
			s := &starter{crew: newCrew(), assets: linkStubs(t), freePorts: func(ctx context.Context, n int) ([]int, error) {
				asked++
				if asked <= tc.taken {
					return []int{port(t, lost)}, nil
				}
				return FreePorts(ctx, n)
			}}
			defer s.crew.stop()

			url, err := s.serve(t.Context(), c, server{
				ports: 1,
				with: func(ports []int) component {
					return component{name: "listener", args: []string{strings.TrimPrefix(local(ports[0]), "https://127.0.0.1:")}}
				},
				probe: func(_ context.Context, url string) error {
					if strings.HasSuffix(url, ":"+lost) {
						return errors.New("somebody else answers here")
					}
					conn, err := net.Dial("tcp4", strings.TrimPrefix(url, "https://"))
					if err == nil {
						conn.Close()
					}
					return err
				},
			})
			if (err != nil) != tc.err {
				t.Errorf("%s\nserve(): want an error: %t, got %q, %v", tc.reason, tc.err, url, err)
			}
			if diff := cmp.Diff(tc.want, asked); diff != "" {
				t.Errorf("%s\nports asked for: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func port(t *testing.T, s string) int {
	t.Helper()
	n, err := net.LookupPort("tcp", s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
