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

// nextSuffix is the suffix of a new file that will replace a file.
const nextSuffix = ".next"

// ErrNotRunning is returned if no playground is running in a folder.
var ErrNotRunning = errors.New("no playground is running")

// State is the state of a playground, which other processes read from playground.json.
type State struct {
	// PID is the process ID of the supervisor.
	PID int `json:"pid"`
	// Started is the time when the supervisor started the playground.
	Started time.Time `json:"started"`
	// Ready is false while the playground is still starting.
	Ready bool `json:"ready"`
	// Bare is true if members have no controllers and no Nodes.
	Bare bool `json:"bare"`
	// Alike is true if the clusters have the same properties.
	Alike bool `json:"alike,omitempty"`
	// OrdinaryHub is true if the hub has all controllers and Nodes.
	OrdinaryHub bool `json:"ordinaryHub,omitempty"`
	// Hub is the hub cluster.
	Hub Cluster `json:"hub"`
	// Members are the member clusters in the order of their numbers.
	Members []Cluster `json:"members"`
	// Dir is the absolute path of the playground's folder.
	Dir string `json:"dir"`
	// Created is true if the folder was created for the playground. Then it is removed with the playground.
	Created bool `json:"created"`
}

// RunningError is returned if a playground is already running in the folder.
type RunningError struct {
	State State
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("a playground is already running in %s (process %d)", e.State.Dir, e.State.PID)
}

// Find returns the state of the playground that is running in dir; nil if none is running. A playground is running if
// its supervisor exists, whatever files there are.
func Find(ctx context.Context, dir string) (*State, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolving the playground's folder %q: %w", dir, err)
	}

	// The supervisor writes the state shortly after it has taken the lock.
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

// Down sends SIGTERM to the supervisor of the playground in dir, and waits until the playground has ended. If no
// playground is running, it returns [ErrNotRunning]. If ctx ends first, it returns the error of ctx.
func Down(ctx context.Context, dir string) error {
	s, err := Find(ctx, dir)
	if err != nil {
		return err
	}
	if s == nil {
		return fmt.Errorf("%w in %s", ErrNotRunning, dir)
	}

	// When a process ends, another process may get its PID. So Down first gets a handle of the process with this PID.
	// Then it checks the lock: if the supervisor still runs, the handle is the supervisor's.
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

// gone reports whether the playground s is no longer running in dir.
func (s *State) gone(ctx context.Context, dir string) (bool, error) {
	now, err := Find(ctx, dir)
	if err != nil {
		return false, err
	}
	return now == nil || now.PID != s.PID || !now.Started.Equal(s.Started), nil
}

// readState returns the content of playground.json, which may be outdated.
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

// writeState replaces playground.json atomically, so that readers never see a part of it.
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
