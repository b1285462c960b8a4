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

// underWay is how many requests of a run may be at the API server when it ends, and be
// done after somebody has looked at what is stored.
const underWay = 8

// TestInterrupted shows that a run that was interrupted is continued where it was, and
// begun anew if the definition is another meanwhile.
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
		t.Fatalf("It is to be interrupted midway: got %v", counts)
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
		t.Errorf("Run(...): who is asked must know that it is continued: got %+v, %+v", r, plan)
	}
	if diff := cmp.Diff(before, versionsOf(k.listed())); diff != "" {
		t.Errorf("The answer was no: -before, +after:\n%s", diff)
	}

	r := k.migrate(k.options())
	if r.Outcome != migration.Migrated || r.ContinuedAfter != "default/some-00399" || r.Objects != objects || r.Passes != 2 {
		t.Errorf("Run(...): want it continued, got %+v", r)
	}
	if r.Rewritten > counts["v1"] || r.Rewritten < counts["v1"]-underWay {
		t.Errorf("Run(...): want the %d rewritten that were left, got %d", counts["v1"], r.Rewritten)
	}
	k.wantMigrated(objects)
}

// TestInterruptedAndChanged shows that nothing is taken for done that was done for
// another definition.
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
		t.Errorf("want storedVersions as before, and an annotation that is of no use, got %v and %q", stored, annotation)
	}
	if r := k.migrate(k.options()); r.Outcome != migration.Migrated || r.ContinuedAfter != "" {
		t.Errorf("Run(...): want it begun anew, got %+v", r)
	}
	k.wantMigrated(300)
}

// TestTwice shows that two migrations at the same time do each other no harm.
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
			t.Errorf("Run(...): want both to end well, got %+v", r)
		}
	}
	if rewritten < 400 { // More if one has met what the other was just writing.
		t.Errorf("want each object rewritten by one of them, got %d", rewritten)
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

// TestKilled kills a process midway, as the command line has it, and has another one
// finish.
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
		t.Fatalf("It is to be killed before it is done.\n%s", &said)
	}
	counts := k.storedIn()
	if counts["v1"] == 0 || counts["v2"] == 0 {
		t.Fatalf("It is to be killed midway: got %v", counts)
	}
	if stored, _ := k.definition(); !slices.Equal(stored, []string{"v1", "v2"}) {
		t.Errorf("want storedVersions as before, got %v", stored)
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
		t.Errorf("want it continued, and the %d rewritten that were left, got %+v", counts["v1"], r)
	}
	if want := "continuing an interrupted run after " + r.ContinuedAfter; !strings.Contains(narration.String(), want) {
		t.Errorf("want %q said, got:\n%s", want, &narration)
	}
	k.wantMigrated(objects)
	for name, is := range k.listed() {
		if diff := cmp.Diff(same(before[name]), same(is)); diff != "" {
			t.Fatalf("%s: -before, +after:\n%s", name, diff)
		}
	}
}

// refract returns the command line as a process.
func refract(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], append(args, "--kubeconfig", shared.Kubeconfig("hub"))...)
	cmd.Env = append(os.Environ(), asRefract+"=1")
	return cmd
}

// TestCommand shows what the command line prints, and its exit codes.
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
			reason: "The version has to be the storage version first.",
			args:   []string{"--yes"}, code: 2,
			err: []string{"it is not the storage version: that is v1", "hint: in spec.versions of its manifest set storage to true for v2"},
		},
		{
			reason: "A dry run asks nothing, and writes nothing.",
			args:   []string{"--dry-run"},
			out:    []string{"can be migrated to v2: 12 objects, and none would fail", "storedVersions would be: v1, v2 → v2"},
		},
		{
			reason: "Without a terminal nobody can be asked.",
			code:   2,
			err:    []string{"12 objects, stored in v1, v2, to be stored in v2 only", "there is no terminal for the confirmation", "--yes confirms"},
		},
		{
			reason: "All are rewritten.",
			args:   []string{"--yes"},
			out:    []string{"is migrated to v2", "12 objects: 12 rewritten, 0 already there, 0 gone, 0 failed", "storedVersions: v1, v2 → v2"},
			err:    []string{"reading every object", "rewriting"},
		},
		{
			reason: "Again, there is nothing to do.",
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
		_ = cmd.Run() // The code tells.
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

	// Whoever presses Tab waits for a moment at most: an API server that is busy leaves him without an answer.
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
