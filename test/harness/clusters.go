package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"refract.dev/internal/playground"
)

// Kept are the control planes that `make test` keeps for the tests of many packages: two
// hubs, and one with members. Tests that need something else start it.
func Kept() []Topology { return []Topology{{}, {}, {Members: 3}} }

// Files of kept control planes, in a folder for each.
const (
	fleetDir   = "fleet"      // The playground.
	initialSet = "initial"    // What each of its clusters held at first.
	leaseFile  = "lease.lock" // Held by who uses them.
)

// Keep starts control planes in dir that any number of processes may use from then on,
// one after the other: those whose environment has the variable that it returns. They
// end when stop is called, or with this process.
func Keep(ctx context.Context, dir, assets string, all []Topology) (variable string, stop func() error, err error) {
	kept := make([]*playground.Playground, len(all))
	stop = func() error {
		var each errgroup.Group
		for _, p := range kept {
			if p != nil {
				each.Go(p.Stop)
			}
		}
		return each.Wait()
	}
	each, ctx := errgroup.WithContext(ctx)
	for i, t := range all {
		each.Go(func() (err error) {
			kept[i], err = startKept(ctx, filepath.Join(dir, strconv.Itoa(i)), assets, t)
			return err
		})
	}
	if err := each.Wait(); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return clustersVariable + "=" + dir, stop, nil
}

// startKept starts control planes in a folder where [take] finds them.
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

// shelf are control planes that this process has started, for its tests to use one after the other until it ends.
type shelf struct {
	mu  sync.Mutex
	dir string                            // Empty until there are some.
	all map[string]*playground.Playground // By the folder where [take] finds them.
}

// ours are those of this process.
var ours shelf

// folder returns where they are, or "".
func (s *shelf) folder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir
}

// start starts control planes, and lends them.
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
		return nil, errors.Join(fmt.Errorf("%s is new, and somebody has locked it", file.Name()), file.Close())
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

// lame reports whether control planes of this process have lost one of theirs: what is beside the API server nobody else asks.
func (s *shelf) lame(at string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[at]
	return p != nil && p.Failed()
}

// drop ends control planes that are of no use any more, if they are of this process.
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

// close ends them, when nobody uses them any more.
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

// remember writes down what the clusters hold now.
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
	return os.WriteFile(filepath.Join(at, initialSet), text, 0o600)
}

func everyCluster(v *playground.View) []playground.Cluster {
	return append([]playground.Cluster{v.Hub()}, v.Members()...)
}

// loan is the use of kept control planes.
type loan struct {
	view *playground.View
	file *os.File // Locked.
}

// borrow returns kept control planes that nobody uses and that are of the topology, as
// they were at first: those that `make test` keeps before those that this process does. It returns nil if there are none.
func borrow(ctx context.Context, t Topology) (*loan, error) {
	var all []string
	for _, dir := range []string{os.Getenv(clustersVariable), ours.folder()} {
		if dir == "" {
			continue
		}
		found, err := filepath.Glob(filepath.Join(dir, "*", fleetDir))
		if err != nil {
			return nil, err
		}
		slices.Sort(found)
		all = append(all, found...)
	}
	for _, fleet := range all {
		at := filepath.Dir(fleet)
		if ours.lame(at) {
			continue
		}
		s, err := playground.Find(ctx, fleet)
		if err != nil {
			return nil, err
		}
		if s == nil || !s.Ready || !suits(t, s) {
			continue
		}
		l, err := take(ctx, at)
		if l != nil || err != nil {
			return l, err
		}
	}
	return nil, nil //nolint:nilnil // As the comment says.
}

// suits reports whether a playground is of the topology. One with members that nobody
// has asked for is not: others might.
func suits(t Topology, s *playground.State) bool {
	if t.Alike != s.Alike || t.OrdinaryHub != s.OrdinaryHub {
		return false
	}
	return (t.Members == 0) == (len(s.Members) == 0) && t.Members <= len(s.Members) && (t.Members == 0 || t.Nodes == !s.Bare)
}

// emptying is how long it may take until control planes are empty. An API server that
// has failed to remove the objects of a type may rest for minutes before it tries again.
const emptying = 30 * time.Second

// take returns the control planes of a folder, unless somebody has them, or they cannot
// be emptied: nobody uses them again then.
func take(ctx context.Context, at string) (*loan, error) {
	file, err := os.OpenFile(filepath.Join(at, leaseFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if !lock(file) {
		return nil, file.Close()
	}
	if _, err := os.Stat(filepath.Join(at, initialSet)); errors.Is(err, fs.ErrNotExist) {
		return nil, file.Close()
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

// giveBack lets others have the control planes. What is left there they remove: who
// holds them may end in any way.
func (l *loan) giveBack() error { return l.file.Close() }

// empty removes everything from the clusters that they did not hold at first.
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
