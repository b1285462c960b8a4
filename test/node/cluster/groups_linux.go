package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// groups are the cgroups of a node: one in each hierarchy, all with the same name.
type groups struct {
	name string
	dirs []string
}

// own is the child cgroup for the tests and the programs of the Node. The cgroups of pods are its siblings.
const own = "tests"

// hierarchies returns the mount points of the cgroup hierarchies: one with version 2, one for each controller with
// version 1.
func hierarchies() ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("looking for cgroups: %w", err)
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); len(fields) > 4 && strings.HasPrefix(after, "cgroup") {
			all = append(all, fields[4])
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no cgroups are mounted below /sys/fs/cgroup, and the kubelet does not run without: mount them")
	}
	return all, nil
}

// newGroups makes cgroups with this name.
func newGroups(name string) (*groups, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	g := &groups{name: name}
	for _, dir := range all {
		g.dirs = append(g.dirs, filepath.Join(dir, name))
	}
	for _, dir := range g.dirs {
		if err := g.make(dir); err != nil {
			return nil, errors.Join(fmt.Errorf("making the cgroup %s: %w", dir, err), g.remove())
		}
	}
	return g, nil
}

func (g *groups) make(dir string) error {
	if err := passOn(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// With version 1, a cpuset must have processors and memory nodes before a process can join.
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err != nil || strings.TrimSpace(string(text)) == "" {
			continue // This is another controller, or version 2, where an empty cpuset includes all.
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(dir, own), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, own, file), text, 0); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(dir, own), 0o755)
}

// passOn enables all controllers of a version 2 cgroup for its children, which have none by default.
func passOn(dir string) error {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Version 1.
	}
	if err != nil {
		return err
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	passes, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(has)) {
		if slices.Contains(strings.Fields(string(passes)), controller) {
			continue
		}
		if err := os.WriteFile(control, []byte("+"+controller), 0); err != nil {
			return fmt.Errorf("having it pass %s on: %w", controller, err)
		}
	}
	return nil
}

// join moves this process and its future children to the cgroups of a node.
func join(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range all {
		if err := os.WriteFile(filepath.Join(dir, name, own, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("joining a cgroup: %w", err)
		}
	}
	return nil
}

// peak returns the maximum memory use of the cgroups in bytes; 0 if the kernel has not measured it.
func (g *groups) peak() int64 {
	for _, dir := range g.dirs {
		for _, file := range []string{"memory.max_usage_in_bytes", "memory.peak"} {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
				return n
			}
		}
	}
	return 0
}

// remove removes the cgroups. It retries for a while, because an ended process stays in its cgroup for a moment.
func (g *groups) remove() error {
	const patience = 10 * time.Second
	var errs []error
	for _, dir := range g.dirs {
		until := time.Now().Add(patience)
		for {
			err := removeGroup(dir)
			if err == nil {
				break
			}
			if !errors.Is(err, syscall.EBUSY) || time.Now().After(until) {
				errs = append(errs, fmt.Errorf("removing a cgroup: %w", err))
				break
			}
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // The kernel sends no event.
		}
	}
	return errors.Join(errs...)
}

// removeGroup removes a cgroup and its children. Only directories can be removed in a cgroup file system.
func removeGroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return syscall.Rmdir(dir)
}
