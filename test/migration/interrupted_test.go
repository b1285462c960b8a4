package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/conversion/migration"
	"refract.dev/test/harness"
)

// underWay is the maximum number of requests of an interrupted run that the API server may still process after the test
// has read the stored objects.
const underWay = 8

// TestInterrupted: an interrupted migration is continued where it stopped. It starts again if the definition has
// changed since then.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	const objects = 500
	k := install(t, kind{})
	k.create("some", objects)
	k.mustApply(versions{storage: "v2"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := k.options()
	o.Progress = func(p migration.Progress) {
		if p.Phase == migration.Rewriting && p.Done > 430 {
			cancel()
		}
	}
	if _, err := migration.Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("Run(...): want %v, got %v", context.Canceled, err)
	}
	counts := k.storedIn()
	if counts["v1"] == 0 || counts["v2"] < 400 {
		t.Fatalf("want an interruption in the middle, got %v", counts)
	}
	stored, annotation := k.definition()
	if diff := cmp.Diff([]string{"v1", "v2"}, stored); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if want := `"after":"default/some-00399"`; !strings.Contains(annotation, want) {
		t.Errorf("want %s in the annotation, got %s", want, annotation)
	}

	o = k.options()
	var plan *migration.Plan
	o.Confirm = func(p *migration.Plan) (bool, error) {
		plan = p
		return false, nil
	}
	before := versionsOf(k.listed())
	if r := k.migrate(o); r.Outcome != migration.Declined || plan.After != "default/some-00399" || !plan.Continuing || plan.Objects != objects {
		t.Errorf("Run(...): the confirmation must mention the continuation: got %+v, %+v", r, plan)
	}
	if diff := cmp.Diff(before, versionsOf(k.listed())); diff != "" {
		t.Errorf("without a confirmation: -before, +after:\n%s", diff)
	}

	r := k.migrate(k.options())
	if r.Outcome != migration.Migrated || r.ContinuedAfter != "default/some-00399" || r.Objects != objects || r.Passes != 2 {
		t.Errorf("Run(...): want a continued run, got %+v", r)
	}
	if r.Rewritten > counts["v1"] || r.Rewritten < counts["v1"]-underWay {
		t.Errorf("Run(...): want the %d remaining objects rewritten, got %d", counts["v1"], r.Rewritten)
	}
	k.wantMigrated(objects)
}

// TestInterruptedAndChanged: the definition changes during a migration, so the migration must start again.
func TestInterruptedAndChanged(t *testing.T) {
	t.Parallel()
	k := install(t, kind{})
	k.create("some", 300)
	k.mustApply(versions{storage: "v2"})
	o := k.options()
	var once sync.Once
	o.Progress = func(p migration.Progress) {
		if p.Phase == migration.Rewriting && p.Done > 210 {
			once.Do(func() {
				if err := k.apply(versions{storage: "v2", rules: []string{"self.size < 100"}}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if _, err := migration.Run(t.Context(), o); !errors.Is(err, migration.ErrChanged) {
		t.Fatalf("Run(...): want %v, got %v", migration.ErrChanged, err)
	}
	if stored, annotation := k.definition(); !slices.Equal(stored, []string{"v1", "v2"}) || annotation == "" {
		t.Errorf("want unchanged storedVersions, and an outdated annotation, got %v and %q", stored, annotation)
	}
	if r := k.migrate(k.options()); r.Outcome != migration.Migrated || r.ContinuedAfter != "" {
		t.Errorf("Run(...): want a new run, got %+v", r)
	}
	k.wantMigrated(300)
}

// TestTwice: two migrations at the same time do not harm each other.
func TestTwice(t *testing.T) {
	t.Parallel()
	k := install(t, kind{webhook: true})
	k.create("some", 400)
	k.mustApply(versions{storage: "v2"})
	before := k.listed()
	results := make([]*migration.Result, 2)
	var running sync.WaitGroup
	for i := range results {
		running.Go(func() {
			var err error
			if results[i], err = migration.Run(t.Context(), k.options()); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if t.Failed() {
		return
	}
	rewritten := 0
	for _, r := range results {
		rewritten += r.Rewritten
		if r.Outcome != migration.Migrated || r.Objects != 400 {
			t.Errorf("Run(...): want two successful runs, got %+v", r)
		}
	}
	if rewritten < 400 { // More if both runs wrote the same object.
		t.Errorf("want each object rewritten by one of the runs, got %d", rewritten)
	}
	if got := k.storedIn(); !cmp.Equal(got, map[string]int{"v2": 400}) {
		t.Errorf("want everything stored in v2, got %v", got)
	}
	for name, is := range k.listed() {
		if diff := cmp.Diff(same(before[name]), same(is)); diff != "" {
			t.Fatalf("%s: -before, +after:\n%s", name, diff)
		}
	}
}

// TestKilled kills a process of the command in the middle of a migration, and lets another process finish it.
func TestKilled(t *testing.T) {
	t.Parallel()
	const objects = 500
	k := install(t, kind{})
	k.create("some", objects)
	k.mustApply(versions{storage: "v2"})
	before := k.listed()

	victim := refract(t, "crd", "migrate", k.name(), "--to", "v2", "--rate", "50", "--settle", "0s", "--yes")
	var said bytes.Buffer
	victim.Stderr = &said
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = victim.Process.Kill() })
	harness.Eventually(t, "some are rewritten", func(context.Context) error {
		if _, annotation := k.definition(); !strings.Contains(annotation, "after") {
			return fmt.Errorf("the annotation is %q", annotation)
		}
		return nil
	})
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := victim.Wait(); err == nil {
		t.Fatalf("want the process killed before its end\n%s", &said)
	}
	counts := k.storedIn()
	if counts["v1"] == 0 || counts["v2"] == 0 {
		t.Fatalf("want a kill in the middle, got %v", counts)
	}
	if stored, _ := k.definition(); !slices.Equal(stored, []string{"v1", "v2"}) {
		t.Errorf("want unchanged storedVersions, got %v", stored)
	}

	var out, narration bytes.Buffer
	next := refract(t, "crd", "migrate", k.name(), "--to", "v2", "--rate", "0", "--settle", "0s", "--yes", "-o", "json")
	next.Stdout, next.Stderr = &out, &narration
	if err := next.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &narration)
	}
	r := &migration.Result{}
	if err := json.Unmarshal(out.Bytes(), r); err != nil {
		t.Fatal(err)
	}
	if r.Outcome != migration.Migrated || r.ContinuedAfter == "" || r.Objects != objects || r.Rewritten > counts["v1"] || r.Rewritten < counts["v1"]-underWay {
		t.Errorf("want a continued run with the %d remaining objects rewritten, got %+v", counts["v1"], r)
	}
	if want := "continuing an interrupted run after " + r.ContinuedAfter; !strings.Contains(narration.String(), want) {
		t.Errorf("want %q in the output, got:\n%s", want, &narration)
	}
	k.wantMigrated(objects)
	for name, is := range k.listed() {
		if diff := cmp.Diff(same(before[name]), same(is)); diff != "" {
			t.Fatalf("%s: -before, +after:\n%s", name, diff)
		}
	}
}

// refract returns the command as a process.
func refract(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], append(args, "--kubeconfig", shared.Kubeconfig("hub"))...)
	cmd.Env = append(os.Environ(), asRefract+"=1")
	return cmd
}

// TestCommand checks the output of the command, and its exit codes.
func TestCommand(t *testing.T) {
	t.Parallel()
	k := install(t, kind{webhook: true})
	k.create("some", 12)
	cases := []struct {
		reason string
		args   []string
		code   int
		out    []string
		err    []string
	}{
		{
			reason: "The version must be the storage version already.",
			args:   []string{"--yes"}, code: 2,
			err: []string{"it is not the storage version: that is v1", "hint: in spec.versions of its manifest set storage to true for v2"},
		},
		{
			reason: "A dry run needs no confirmation, and writes nothing.",
			args:   []string{"--dry-run"},
			out:    []string{"can be migrated to v2: 12 objects, and none would fail", "storedVersions would be: v1, v2 → v2"},
		},
		{
			reason: "Without a terminal there can be no confirmation.",
			code:   2,
			err:    []string{"12 objects, stored in v1, v2, to be stored in v2 only", "there is no terminal for the confirmation", "--yes confirms"},
		},
		{
			reason: "All objects are rewritten.",
			args:   []string{"--yes"},
			out:    []string{"is migrated to v2", "12 objects: 12 rewritten, 0 already there, 0 gone, 0 failed", "storedVersions: v1, v2 → v2"},
			err:    []string{"reading every object", "rewriting"},
		},
		{
			reason: "A second run rewrites nothing.",
			args:   []string{"--yes", "--context", "hub"},
			out:    []string{"12 objects: 0 rewritten, 12 already there", "storedVersions: v2 → v2"},
		},
	}
	for i, tc := range cases {
		if i == 1 {
			k.mustApply(versions{storage: "v2"})
			k.listed()
		}
		cmd := refract(t, append([]string{"crd", "migrate", k.name(), "--to", "v2", "--settle", "0s"}, tc.args...)...)
		var out, narration bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &narration
		_ = cmd.Run() // The exit code is compared below.
		if got := cmd.ProcessState.ExitCode(); got != tc.code {
			t.Errorf("\n%s\n%v: want exit code %d, got %d\n%s", tc.reason, tc.args, tc.code, got, &narration)
		}
		for _, want := range tc.out {
			if !strings.Contains(out.String(), want) {
				t.Errorf("\n%s\n%v: want %q on stdout, got:\n%s", tc.reason, tc.args, want, &out)
			}
		}
		for _, want := range tc.err {
			if !strings.Contains(narration.String(), want) {
				t.Errorf("\n%s\n%v: want %q on stderr, got:\n%s", tc.reason, tc.args, want, &narration)
			}
		}
	}

	// Completion stops after a moment, so a busy API server may not answer in time.
	completes := func(want string, args ...string) {
		t.Helper()
		harness.Eventually(t, want+" is completed", func(context.Context) error {
			completed := refract(t)
			completed.Args = append([]string{completed.Args[0], "__complete", "crd", "migrate"}, args...)
			out, err := completed.Output()
			if err == nil && !strings.Contains("\n"+string(out), "\n"+want+"\n") {
				err = fmt.Errorf("got %s", out)
			}
			return err
		})
	}
	completes(k.name(), "--kubeconfig", shared.Kubeconfig("hub"), "")
	completes("v2", k.name(), "--kubeconfig", shared.Kubeconfig("hub"), "--to", "")
}
