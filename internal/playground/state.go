package playground

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// nextSuffix is added to the name of a file that is about to replace another.
const nextSuffix = ".next"

// ErrNotRunning says that no playground is running in a folder.
var ErrNotRunning = errors.New("no playground is running")

// State is what other processes can know of a playground: playground.json.
type State struct {
	// PID is the process that supervises the playground.
	PID int `json:"pid"`
	// Started is when it began to.
	Started time.Time `json:"started"`
	// Ready is false while the playground is still starting.
	Ready bool `json:"ready"`
	// Bare says that the members have no controllers and no Nodes.
	Bare bool `json:"bare"`
	// Alike says that the clusters do not differ.
	Alike bool `json:"alike,omitempty"`
	// OrdinaryHub says that the hub has all controllers and Nodes.
	OrdinaryHub bool `json:"ordinaryHub,omitempty"`
	// Hub is the cluster from which the members are told what to run.
	Hub Cluster `json:"hub"`
	// Members are the other clusters in the order of their numbers.
	Members []Cluster `json:"members"`
	// Dir is the absolute path of the playground's folder.
	Dir string `json:"dir"`
	// Created says that the folder was made for the playground, and goes with it.
	Created bool `json:"created"`
}

// RunningError says that a folder already has a playground running.
type RunningError struct {
	State State
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("a playground is already running in %s (process %d)", e.State.Dir, e.State.PID)
}

// Find returns what is running in dir, or nil if nothing is. Whatever files an
// earlier playground may have left there, only a living supervisor counts.
func Find(ctx context.Context, dir string) (*State, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolving the playground's folder %q: %w", dir, err)
	}

	// The supervisor needs a moment between taking the lock and writing the state.
	for try := 0; ; try++ {
		held, err := lockHeld(filepath.Join(dir, lockFile))
		if err != nil || !held {
			return nil, err
		}
		s, err := readState(dir)
		if err == nil {
			return s, nil
		}
		if try == 100 {
			return nil, fmt.Errorf("reading the state of the playground that is running in %s: %w", dir, err)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return nil, fmt.Errorf("looking for a playground in %s: %w", dir, err)
		}
	}
}

// Down tells the supervisor of the playground in dir to stop and returns when it
// has. Its supervisor is expected to do so when it receives SIGTERM. Down
// returns [ErrNotRunning] if there is none, and the context's error if that ends
// first.
func Down(ctx context.Context, dir string) error {
	s, err := Find(ctx, dir)
	if err != nil {
		return err
	}
	if s == nil {
		return fmt.Errorf("%w in %s", ErrNotRunning, dir)
	}

	// The number of a process that has ended may be given to another. So take hold
	// of the process first, and signal it only if the lock says that it still is
	// the supervisor.
	supervisor, err := os.FindProcess(s.PID)
	if err != nil {
		return fmt.Errorf("finding the supervisor of the playground in %s: %w", dir, err)
	}
	if gone, err := s.gone(ctx, dir); gone || err != nil {
		return err
	}
	if err := supervisor.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("telling process %d to stop the playground in %s: %w", s.PID, dir, err)
	}
	for {
		if gone, err := s.gone(ctx, dir); gone || err != nil {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for process %d to stop the playground in %s: %w", s.PID, dir, err)
		}
	}
}

// gone says whether s has ceased to be the playground that is running in dir.
func (s *State) gone(ctx context.Context, dir string) (bool, error) {
	now, err := Find(ctx, dir)
	if err != nil {
		return false, err
	}
	return now == nil || now.PID != s.PID || !now.Started.Equal(s.Started), nil
}

// readState returns what playground.json says, whether or not it still is true.
func readState(dir string) (*State, error) {
	raw, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, err
	}
	s := &State{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("parsing %s: %w", stateFile, err)
	}
	return s, nil
}

// writeState replaces playground.json at once: readers see the old one or the
// new one, and never a part.
func writeState(dir string, s State) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the playground's state: %w", err)
	}
	file := filepath.Join(dir, stateFile)
	next := file + nextSuffix
	if err := os.WriteFile(next, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the playground's state: %w", err)
	}
	if err := os.Rename(next, file); err != nil {
		return fmt.Errorf("writing the playground's state: %w", err)
	}
	return nil
}
