package playground

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestFind(t *testing.T) {
	state := State{
		PID: os.Getpid(), Started: time.Now().UTC(), Ready: true, Bare: true, Created: true, Dir: "somewhere",
		Hub:     Cluster{Name: "hub", Kubeconfig: "/k/hub.yaml", Endpoint: "https://127.0.0.1:1"},
		Members: []Cluster{{Name: "member-1", Kubeconfig: "/k/member-1.yaml"}},
	}
	cases := map[string]struct {
		reason string
		setup  func(t *testing.T, dir string)
		want   *State
	}{
		"NoFolder": {
			reason: "No playground runs in an empty folder.",
			setup:  func(*testing.T, string) {},
		},
		"LeftOver": {
			reason: "Files alone prove nothing: the supervisor may have been killed, and its process ID may belong to another process.",
			setup: func(t *testing.T, dir string) {
				t.Helper()
				h := mustClaim(t, dir)
				if err := errors.Join(h.record(state), h.lock.release()); err != nil {
					t.Fatal(err)
				}
			},
		},
		"Running": {
			reason: "A playground is running as long as its lock is held.",
			setup: func(t *testing.T, dir string) {
				t.Helper()
				h := mustClaim(t, dir)
				t.Cleanup(func() { _ = h.lock.release() })
				if err := h.record(state); err != nil {
					t.Fatal(err)
				}
			},
			want: &state,
		},
		"Beginning": {
			reason: "A supervisor that has not written its state yet will write it soon.",
			setup: func(t *testing.T, dir string) {
				t.Helper()
				h := mustClaim(t, dir)
				t.Cleanup(func() { _ = h.lock.release() })
				time.AfterFunc(100*time.Millisecond, func() { _ = h.record(state) })
			},
			want: &state,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "playground")
			tc.setup(t, dir)
			got, err := Find(t.Context(), dir)
			if err != nil {
				t.Fatalf("%s\nFind(): %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nFind(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestClaimIsExclusive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "playground")
	h := mustClaim(t, dir)
	state := State{PID: 42, Dir: dir}
	if err := h.record(state); err != nil {
		t.Fatal(err)
	}

	_, err := claim(t.Context(), dir)
	var running *RunningError
	if !errors.As(err, &running) {
		t.Fatalf("Two playgrounds in one folder would destroy each other.\nclaim(): want a RunningError, got %v", err)
	}
	if diff := cmp.Diff(state, running.State); diff != "" {
		t.Errorf("The user must learn what is running: -want, +got:\n%s", diff)
	}

	if err := h.leave(false); err != nil {
		t.Fatal(err)
	}
	again := mustClaim(t, dir)
	if err := again.leave(false); err != nil {
		t.Fatal(err)
	}
}

func TestClaimWhileOthersLook(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			_, _ = lockHeld(filepath.Join(dir, lockFile))
		}
	}()
	for range 20 {
		if err := mustClaim(t, dir).leave(false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDownWithoutPlayground(t *testing.T) {
	err := Down(t.Context(), filepath.Join(t.TempDir(), "playground"))
	if diff := cmp.Diff(ErrNotRunning, err, cmpopts.EquateErrors()); diff != "" {
		t.Errorf("A caller has to be able to tell that there was nothing to do: -want, +got:\n%s", diff)
	}
}

func mustClaim(t *testing.T, dir string) *home {
	t.Helper()
	h, err := claim(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
