package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"refract.dev/internal/playground"
)

// Kept returns the topologies that `make test` keeps for the tests of all packages: two single hubs, and a hub with
// three members. Tests that need another topology start their own control planes.
func Kept() []Topology { return []Topology{{}, {}, {Members: 3}} }

// Files of kept control planes. Each group of control planes has its own folder.
const (
	fleetDir   = "fleet"       // The playground.
	futureFile = "future.json" // The state of a playground that starts on demand, as far as it is known.
	wantedFile = "wanted"      // Makes it start.
	failedFile = "failed"      // The error of a failed start.
	initialSet = "initial"     // The initial objects of each cluster.
	leaseFile  = "lease.lock"  // Locked by the process that uses the control planes.
)

// Keep keeps control planes in dir. Processes may use them, one after the other, if their environment has the returned
// variable. They start when a process needs them for the first time, because idle control planes slow other tests down.
// They end when stop is called, or with this process.
func Keep(ctx context.Context, dir, assets string, all []Topology) (variable string, stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var each errgroup.Group
	stop = func() error {
		cancel()
		return each.Wait()
	}
	for i, t := range all {
		at := filepath.Join(dir, strconv.Itoa(i))
		text, err := json.Marshal(playground.State{
			Bare: !t.Nodes, Alike: t.Alike, OrdinaryHub: t.OrdinaryHub, Members: make([]playground.Cluster, t.Members),
		})
		if err == nil {
			err = errors.Join(os.MkdirAll(at, 0o700), os.WriteFile(filepath.Join(at, futureFile), text, 0o600))
		}
		if err != nil {
			return "", nil, errors.Join(err, stop())
		}
		each.Go(func() error { return keep(ctx, at, assets, t) })
	}
	return clustersVariable + "=" + dir, stop, nil
}

// keep starts control planes when a process wants them, and stops them when ctx ends.
func keep(ctx context.Context, at, assets string, t Topology) error {
	for !exists(filepath.Join(at, wantedFile)) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
	p, err := startKept(ctx, at, assets, t)
	if err != nil {
		return errors.Join(err, os.WriteFile(filepath.Join(at, failedFile), []byte(err.Error()), 0o600))
	}
	<-ctx.Done()
	return p.Stop()
}

// demand has control planes started that no process has used before, and waits for them.
func demand(ctx context.Context, at string) error {
	if err := os.WriteFile(filepath.Join(at, wantedFile), nil, 0o600); err != nil {
		return err
	}
	failed := filepath.Join(at, failedFile)
	if err := Await(ctx, func(context.Context) error {
		if exists(failed) || exists(filepath.Join(at, initialSet)) {
			return nil
		}
		return errors.New("the control planes in " + at + " are not ready")
	}); err != nil {
		return err
	}
	if text, err := os.ReadFile(failed); err == nil {
		return fmt.Errorf("starting control planes in %s: %s", at, text)
	}
	return nil
}

// exists reports whether a file exists.
func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// startKept starts control planes in a folder, in the layout that [take] expects.
func startKept(ctx context.Context, at, assets string, t Topology) (*playground.Playground, error) {
	t.Unaudited = false
	p, err := playground.Start(ctx, t.options(filepath.Join(at, fleetDir), assets))
	if err != nil {
		return nil, err
	}
	if err := remember(ctx, &p.View, at); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// shelf contains the control planes that this process has started. The tests of the process use them one after the
// other until it ends.
type shelf struct {
	mu  sync.Mutex
	dir string                            // Empty until the first control plane is started.
	all map[string]*playground.Playground // By the folder that [take] expects.
}

// ours is the shelf of this process.
var ours shelf

// folder returns the folder of the control planes, or "" before the first one.
func (s *shelf) folder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir
}

// start starts control planes and lends them.
func (s *shelf) start(ctx context.Context, assets string, t Topology) (*loan, error) {
	at, err := s.place()
	if err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(at, leaseFile))
	if err != nil {
		return nil, err
	}
	if !lock(file) {
		return nil, errors.Join(fmt.Errorf("the new file %s is already locked", file.Name()), file.Close())
	}
	p, err := startKept(ctx, at, assets, t)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*playground.Playground{}
	}
	s.all[at] = p
	return &loan{view: &p.View, file: file}, nil
}

// lame reports whether a component of these control planes has failed, if this process has started them. No other check
// finds failures of components other than the API server.
func (s *shelf) lame(at string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[at]
	return p != nil && p.Failed()
}

// drop stops control planes that can no longer be used, if they belong to this process.
func (s *shelf) drop(at string) error {
	s.mu.Lock()
	p := s.all[at]
	delete(s.all, at)
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.Stop()
}

// place makes a folder for control planes.
func (s *shelf) place() (at string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "refract-kept-"); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(s.dir, "")
}

// close stops all control planes of this process. No test may use them any more.
func (s *shelf) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var each errgroup.Group
	for _, p := range s.all {
		each.Go(p.Stop)
	}
	s.all = nil
	err := each.Wait()
	if s.dir != "" {
		err = errors.Join(err, removeAll(s.dir))
		s.dir = ""
	}
	return err
}

// remember stores the present objects of the clusters as the initial ones.
func remember(ctx context.Context, v *playground.View, at string) error {
	initial := map[string][]string{}
	for _, c := range everyCluster(v) {
		in, err := newInventory(c.Kubeconfig)
		if err != nil {
			return err
		}
		if initial[c.Name], err = in.uids(ctx); err != nil {
			return fmt.Errorf("listing what %s holds: %w", c.Name, err)
		}
	}
	text, err := json.Marshal(initial)
	if err != nil {
		return err
	}
	file := filepath.Join(at, initialSet)
	if err := os.WriteFile(file+".next", text, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".next", file) // Other processes never see a part of the file.
}

func everyCluster(v *playground.View) []playground.Cluster {
	return append([]playground.Cluster{v.Hub()}, v.Members()...)
}

// loan is the use of kept control planes.
type loan struct {
	view *playground.View
	file *os.File // Locked during the loan.
}

// borrow returns free control planes of the topology, without the objects of earlier tests; nil if none are free. It
// prefers control planes that run, and those of `make test` to those of this process.
func borrow(ctx context.Context, t Topology) (*loan, error) {
	kept := os.Getenv(clustersVariable)
	running := func(at string) (*playground.State, error) {
		s, err := playground.Find(ctx, filepath.Join(at, fleetDir))
		if err != nil || s == nil || !s.Ready || ours.lame(at) {
			return nil, err
		}
		return s, nil
	}
	future := func(at string) (*playground.State, error) {
		if exists(filepath.Join(at, wantedFile)) {
			return nil, nil //nolint:nilnil // It has none any more.
		}
		text, err := os.ReadFile(filepath.Join(at, futureFile))
		if err != nil {
			return nil, err
		}
		s := &playground.State{}
		return s, json.Unmarshal(text, s)
	}
	for _, from := range []struct {
		dir, file string
		state     func(at string) (*playground.State, error) // May be nil.
	}{{kept, fleetDir, running}, {ours.folder(), fleetDir, running}, {kept, futureFile, future}} {
		found, err := groups(from.dir, from.file)
		if err != nil {
			return nil, err
		}
		for _, at := range found {
			s, err := from.state(at)
			if err != nil {
				return nil, err
			}
			if s == nil || !suits(t, s) {
				continue
			}
			l, err := take(ctx, at)
			if l != nil || err != nil {
				return l, err
			}
		}
	}
	return nil, nil //nolint:nilnil // As the comment says.
}

// groups returns the folders of kept control planes in dir that have a file of this name; none if dir is empty.
func groups(dir, file string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	found, err := filepath.Glob(filepath.Join(dir, "*", file))
	if err != nil {
		return nil, err
	}
	slices.Sort(found)
	for i, path := range found {
		found[i] = filepath.Dir(path)
	}
	return found, nil
}

// suits reports whether a playground fits the topology. A playground with members does not fit a topology without
// members, so that it stays free for other tests.
func suits(t Topology, s *playground.State) bool {
	if t.Alike != s.Alike || t.OrdinaryHub != s.OrdinaryHub {
		return false
	}
	return (t.Members == 0) == (len(s.Members) == 0) && t.Members <= len(s.Members) && (t.Members == 0 || t.Nodes == !s.Bare)
}

// emptying is the time limit for removing the objects of earlier tests. An API server that fails to remove the objects
// of a type may wait for minutes before its next attempt.
const emptying = 30 * time.Second

// take returns the control planes of a folder. It returns nil if another process uses them, or if their objects cannot
// be removed; in the second case, nobody uses them again.
func take(ctx context.Context, at string) (*loan, error) {
	file, err := os.OpenFile(filepath.Join(at, leaseFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if !lock(file) {
		return nil, file.Close()
	}
	if !exists(filepath.Join(at, initialSet)) {
		if exists(filepath.Join(at, wantedFile)) || !exists(filepath.Join(at, futureFile)) {
			return nil, file.Close()
		}
		if err := demand(ctx, at); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	l := &loan{file: file}
	if l.view, err = playground.Attach(ctx, filepath.Join(at, fleetDir)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	limited, cancel := context.WithTimeout(ctx, emptying)
	defer cancel()
	if err := empty(limited, l.view, at); err != nil {
		if ctx.Err() != nil {
			return nil, errors.Join(err, file.Close())
		}
		fmt.Fprintf(os.Stderr, "control planes in %s are not used any more: %v\n", at, err)
		return nil, errors.Join(os.Remove(filepath.Join(at, initialSet)), ours.drop(at), file.Close())
	}
	return l, nil
}

// giveBack makes the control planes available to others. It removes no objects: the process may also end without a call
// of giveBack, so the next user removes them.
func (l *loan) giveBack() error { return l.file.Close() }

// empty removes all objects from the clusters except the initial ones.
func empty(ctx context.Context, v *playground.View, at string) error {
	text, err := os.ReadFile(filepath.Join(at, initialSet))
	if err != nil {
		return err
	}
	initial := map[string][]string{}
	if err := json.Unmarshal(text, &initial); err != nil {
		return err
	}
	each, ctx := errgroup.WithContext(ctx)
	for _, c := range everyCluster(v) {
		each.Go(func() error {
			in, err := newInventory(c.Kubeconfig)
			if err != nil {
				return err
			}
			if err := in.empty(ctx, initial[c.Name]); err != nil {
				return fmt.Errorf("emptying %s: %w", c.Name, err)
			}
			return nil
		})
	}
	return each.Wait()
}
