package playground

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// list returns the files below dir, or "gone" if dir does not exist.
func list(t *testing.T, dir string) []string {
	t.Helper()
	if _, err := os.Stat(dir); err != nil {
		return []string{"gone"}
	}
	files := []string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		files = append(files, rel)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// running are files that a running playground has.
var running = []string{
	"hub/certs/ca.key", "hub/etcd/member/wal/0.wal", "hub/logs/etcd.log", "hub/kube-scheduler.yaml",
	"member-12/logs/kwok.log", "member-12/kwok-stages.yaml",
	"kubeconfigs/hub.yaml", "kubeconfigs/member-12.yaml", "playground.json.next",
}

func TestHome(t *testing.T) {
	cases := map[string]struct {
		reason   string
		before   []string // The files before the claim; nil if the folder does not exist.
		refused  bool
		claimed  []string // The files after the claim.
		foreign  []string // Files of other programs, created after the claim.
		keepLogs bool
		after    []string
	}{
		"New": {
			reason:  "A folder that was created for the playground is removed with it.",
			claimed: []string{"playground.lock"},
			after:   []string{"gone"},
		},
		"Empty": {
			reason:  "A folder that existed before stays.",
			before:  []string{},
			claimed: []string{"playground.lock"},
			after:   []string{},
		},
		"Failed": {
			reason:   "The logs stay to show the reason, and the lock file identifies the folder as a playground's.",
			keepLogs: true,
			claimed:  []string{"playground.lock"},
			after:    []string{"hub/logs/etcd.log", "member-12/logs/kwok.log", "playground.lock"},
		},
		"LeftOver": {
			reason:  "Files of an earlier playground are removed.",
			before:  append([]string{"playground.lock", "playground.json"}, running...),
			claimed: []string{"playground.lock"},
			after:   []string{},
		},
		"UsersFiles": {
			reason: "Only files of a playground are removed. Files of other programs stay, wherever they are.",
			before: append([]string{"playground.lock", "notes.txt", "member-0/x", "hubs/x", "kubeconfigs/mine.yaml"}, running...),
			claimed: []string{
				"hubs/x", "kubeconfigs/mine.yaml", "member-0/x", "notes.txt", "playground.lock",
			},
			foreign: []string{"more.txt"},
			after:   []string{"hubs/x", "kubeconfigs/mine.yaml", "member-0/x", "more.txt", "notes.txt"},
		},
		"NewButUsed": {
			reason:  "A folder that was created for the playground stays if it has other files.",
			claimed: []string{"playground.lock"},
			foreign: []string{"notes.txt"},
			after:   []string{"notes.txt"},
		},
		"SomebodyElses": {
			reason:  "A folder with other files might be important, so it is not used.",
			before:  []string{"hub/precious.txt"},
			refused: true,
			after:   []string{"hub/precious.txt"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a b", "play,ground")
			if tc.before != nil {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				fill(t, dir, tc.before...)
			}

			h, err := claim(t.Context(), dir)
			if (err != nil) != tc.refused {
				t.Fatalf("%s\nclaim(): want it refused: %t, got %v", tc.reason, tc.refused, err)
			}
			if err == nil {
				if diff := cmp.Diff(tc.claimed, list(t, dir)); diff != "" {
					t.Errorf("%s\nclaimed: -want, +got:\n%s", tc.reason, diff)
				}
				fill(t, dir, append(tc.foreign, running...)...)
				if err := h.leave(tc.keepLogs); err != nil {
					t.Errorf("%s\nleave(): %v", tc.reason, err)
				}
			}
			if diff := cmp.Diff(tc.after, list(t, dir)); diff != "" {
				t.Errorf("%s\nin the end: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestHomeOfACrashGoesToo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "playground")
	crashed, err := claim(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := crashed.record(State{Created: crashed.created}); err != nil {
		t.Fatal(err)
	}
	if err := crashed.lock.release(); err != nil {
		t.Fatal(err)
	}

	next, err := claim(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.leave(false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"gone"}, list(t, dir)); diff != "" {
		t.Errorf("The folder was made for a playground, if not for this one: -want, +got:\n%s", diff)
	}
}
