//go:build unix

// Package shards tests, with processes and an API server, that members are
// shared out among replicas and never worked on by two.
package shards

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"refract.dev/test/harness"
)

func TestMain(m *testing.M) {
	if identity := os.Getenv(replicaVariable); identity != "" {
		if err := replicate(identity); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	harness.Main(m, harness.Topology{}, func(_ context.Context, e *harness.Env) (func() error, error) {
		env = e
		return nil, nil //nolint:nilnil // There is nothing to stop.
	})
}

// env is the hub of all tests. Replicas that are to meet are in a namespace of their own.
var env *harness.Env

// process is a replica in a process of its own.
type process struct {
	*exec.Cmd

	identity string
	began    time.Time
	stopped  int64 // When it was made to stand still last.
	stderr   bytes.Buffer
	read     sync.WaitGroup

	mu     sync.Mutex
	now    event // What it said last of how things are.
	writes []event
}

// hub is where the replicas meet.
type hub struct {
	*testing.T

	namespace string        // Where their Leases are.
	lease     time.Duration // Of the replicas.
	patience  time.Duration // How long anything may take.
	processes []*process
}

// start starts a replica.
func (h *hub) start(identity string) *process {
	h.Helper()
	p := &process{Cmd: exec.Command(os.Args[0]), identity: identity, began: time.Now()}
	p.Env = append(os.Environ(), replicaVariable+"="+identity, namespaceVariable+"="+h.namespace, leaseVariable+"="+h.lease.String(),
		"KUBECONFIG="+env.Kubeconfig("hub"))
	p.Stderr = &p.stderr
	out, err := p.StdoutPipe()
	if err != nil {
		h.Fatal(err)
	}
	if err := p.Start(); err != nil {
		h.Fatal(err)
	}
	h.processes = append(h.processes, p)
	p.read.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) != nil {
				continue // Cut short by a signal.
			}
			p.mu.Lock()
			if e.Member == "" {
				p.now = e
			} else {
				p.writes = append(p.writes, e)
			}
			p.mu.Unlock()
		}
	})
	h.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Process.Signal(syscall.SIGCONT)
		if p.ProcessState == nil {
			p.end()
		}
		if h.Failed() {
			h.Logf("%s:\n%s", identity, p.stderr.String())
		}
	})
	return p
}

// end waits for the end of the process, and returns what it did not like.
func (p *process) end() string {
	p.read.Wait()
	_ = p.Wait() // A signal ends it: that is no failure here.
	_, text, _ := strings.Cut(p.stderr.String(), "error: ")
	return strings.TrimSpace(text)
}

func (p *process) signal(s syscall.Signal) {
	_ = p.Process.Signal(s)
	if s != syscall.SIGSTOP {
		return
	}
	// Whatever it has begun was begun before it stands still, and not before this test was
	// about to send the signal, which may have had to wait for a processor.
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(p.Process.Pid, &status, syscall.WUNTRACED, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	p.stopped = time.Now().UnixNano()
}

func (p *process) state() event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *process) leads() bool { return p.state().Leads }

// share waits until the processes own that many members each, and no others.
func (h *hub) share(what string, want map[*process]int) {
	h.Helper()
	h.within(what, func() bool {
		for p, n := range want {
			if p.state().Owned != n {
				return false
			}
		}
		return true
	})
}

// within waits for a condition, and says how long it took.
func (h *hub) within(what string, is func() bool) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), h.patience)
	defer cancel()
	began := time.Now()
	err := harness.Await(ctx, func(context.Context) error {
		if is() {
			return nil
		}
		var states []string
		for _, p := range h.processes {
			states = append(states, fmt.Sprintf("%s: %+v", p.identity, p.state()))
		}
		return fmt.Errorf("it is not so: %s", strings.Join(states, "; "))
	})
	if err != nil {
		h.Fatalf("%s: %v", what, err)
	}
	h.Logf("%s: %s", what, time.Since(began).Round(time.Millisecond))
}

// TestReplicas has replicas come, end, crash and stand still: those that own members, the
// one that leads, and those whose Leases nobody can wait for.
func TestReplicas(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		lease  time.Duration
		// patience is how long anything may take.
		patience time.Duration
		run      func(h *hub)
		// changes is how many members change hands at least.
		changes int
	}{
		"Owners": {
			reason: "Members are shared out anew whenever a replica comes or goes, in whatever way.",
			// Two thirds of it a busy machine may be silent.
			lease: 5 * time.Second, patience: harness.Patience, run: (*hub).owners, changes: members,
		},
		"Leaders": {
			reason: "Another takes over from the leader, too, in whatever way that goes.",
			lease:  5 * time.Second, patience: harness.Patience, run: (*hub).leaders, changes: 2 * members,
		},
		"HandOver": {
			reason: "Who ends as it should gives back what it has, and the others do not wait for its Lease.",
			// They look for a leader every tenth of it, with jitter, and would wait for more
			// than three quarters if they did.
			lease: time.Minute, patience: 45 * time.Second, run: (*hub).handOver, changes: members / 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &hub{T: t, namespace: env.Namespace(t), lease: tc.lease, patience: tc.patience}
			tc.run(h)
			h.wantNoLease()
			h.wantOneWriter(tc.changes)
			if t.Failed() {
				t.Log(tc.reason)
			}
		})
	}
}

// owners has replicas come, end and stand still that do not lead.
func (h *hub) owners() {
	h.Helper()
	a := h.start("a")
	h.share("the first owns all", map[*process]int{a: 9})
	h.Logf("that was %s after its start", time.Duration(a.state().At-a.began.UnixNano()).Round(time.Millisecond))
	b := h.start("b")
	h.share("two have halves", map[*process]int{a: 5, b: 4})
	c := h.start("c")
	h.share("three have thirds", map[*process]int{a: 3, b: 3, c: 3})

	h.ends(b)
	h.share("those that stay own all when one ends", map[*process]int{a: 5, c: 4})

	d := h.start("d")
	h.share("a new one has a third", map[*process]int{a: 3, c: 3, d: 3})
	d.signal(syscall.SIGSTOP)
	h.share("those that move own all when one stands still", map[*process]int{a: 5, c: 4})
	d.signal(syscall.SIGCONT)
	if text := d.end(); !strings.Contains(text, "its Lease was removed") {
		h.Errorf("It went on too late; want that its Lease was removed, got %q", text)
	}
	h.ends(c)
	h.ends(a)
}

// leaders has the leader stand still, crash and end.
func (h *hub) leaders() {
	h.Helper()
	a := h.start("a")
	h.share("the first owns all", map[*process]int{a: 9})
	h.within("and leads", a.leads)
	c := h.start("c")
	h.share("two have halves", map[*process]int{a: 5, c: 4})
	a.signal(syscall.SIGSTOP)
	h.within("another owns all and leads when the leader stands still", func() bool { return c.leads() && c.state().Owned == 9 })
	a.signal(syscall.SIGCONT)
	if text := a.end(); text == "" {
		h.Error("The leader went on too late; want that it ends with an error")
	}

	e := h.start("e")
	h.share("two have halves again", map[*process]int{c: 5, e: 4})
	c.signal(syscall.SIGKILL)
	h.within("another owns all and leads when the leader is killed", func() bool { return e.leads() && e.state().Owned == 9 })
	c.end()

	f := h.start("f")
	h.share("two have halves once more", map[*process]int{e: 5, f: 4})
	e.signal(syscall.SIGTERM)
	h.share("the other owns all when the leader ends", map[*process]int{f: 9})
	if text := e.end(); text != "" {
		h.Errorf("It ended: %s", text)
	}
	h.within("and leads", f.leads)
	h.ends(f)
}

// ends has a replica end, which is not to mind.
func (h *hub) ends(p *process) {
	h.Helper()
	p.signal(syscall.SIGTERM)
	if text := p.end(); text != "" {
		h.Errorf("%s ended: %s", p.identity, text)
	}
}

// handOver has replicas end, one after the other, until there is none.
func (h *hub) handOver() {
	h.Helper()
	a, b, c := h.start("a"), h.start("b"), h.start("c")
	h.share("three have thirds", map[*process]int{a: 3, b: 3, c: 3})
	all := []*process{a, b, c}
	leader := func() int { return slices.IndexFunc(all, (*process).leads) }
	h.within("one leads", func() bool { return leader() >= 0 })
	ends := func(i int) {
		h.Helper()
		p := all[i]
		all = slices.Delete(all, i, i+1)
		h.ends(p)
	}
	together := func() bool {
		owned := 0
		for _, p := range all {
			owned += p.state().Owned
		}
		return owned == members && leader() >= 0
	}
	ends((leader() + 1) % len(all))
	h.within("those that stay own all when one ends that does not lead", together)
	ends(leader())
	h.within("the other owns all and leads when the leader ends", together)
	ends(0)
}

// wantNoLease fails unless all replicas have taken their Leases with them, those
// that came back too late included.
func (h *hub) wantNoLease() {
	h.Helper()
	cfg, err := env.Config("hub")
	if err != nil {
		h.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		h.Fatal(err)
	}
	leases, err := client.CoordinationV1().Leases(h.namespace).List(h.Context(), metav1.ListOptions{})
	if err != nil {
		h.Fatal(err)
	}
	var left []string
	for i := range leases.Items {
		left = append(left, leases.Items[i].Name)
	}
	if diff := gocmp.Diff([]string{"refract-leader", "refract-members"}, left); diff != "" {
		h.Errorf("Leases in the end: -want, +got:\n%s", diff)
	}
}

// wantOneWriter fails if two replicas wrote to one member at one time, or fewer members
// changed hands than should. A write that a replica was stopped in the middle of has
// reached its member by then.
func (h *hub) wantOneWriter(least int) {
	h.Helper()
	type write struct {
		event

		by string
	}
	writes := map[string][]write{}
	for _, p := range h.processes {
		for _, w := range p.writes {
			if w.Began < p.stopped && p.stopped < w.At {
				w.At = p.stopped
			}
			writes[w.Member] = append(writes[w.Member], write{w, p.identity})
		}
	}
	var overlaps, changes int
	for _, ws := range writes {
		slices.SortFunc(ws, func(a, b write) int { return cmp.Compare(a.Began, b.Began) })
		for i := 1; i < len(ws); i++ {
			if ws[i].by == ws[i-1].by {
				continue
			}
			changes++
			if ws[i].Began < ws[i-1].At {
				overlaps++
				h.Errorf("%s was written to by %s until %d, and by %s from %d", ws[i].Member, ws[i-1].by, ws[i-1].At, ws[i].by, ws[i].Began)
			}
		}
	}
	h.Logf("%d members changed hands %d times, %d times too early", len(writes), changes, overlaps)
	if len(writes) != members || changes < least {
		h.Errorf("want writes to %d members and at least %d changes of hands", members, least)
	}
}
