package rollout

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// faults are possible mistakes in this package, each as one replacement in one of its files. TestModel must find each
// of them.
var faults = []struct {
	name     string
	file     string
	old, new string
}{
	{"a wave is opened before the one before it is over", "waves.go", "k > 0 && k == int(r.Opened) && !r.over(k-1)", "k > 1 && k == int(r.Opened) && !r.over(k-2)"},
	{"a wave is over when nobody has tried it", "waves.go", "return tried || !changed", "return true"},
	{"a cluster gets the change before its wave is open", "waves.go", "r.began[wave] && !c.Offline", "wave <= int(r.Opened) && !c.Offline"},
	{"a cluster that joins an empty wave gets the change without an approval", "waves.go", "r.began[wave] && !c.Offline", "wave < int(r.Opened) && !c.Offline"},
	{"an empty wave begins", "waves.go", "r.began[k] = len(r.byWave[k]) > 0 && r.sinceOf(r.in.Policy.nameOf(k)) != nil", "r.began[k] = true"},
	{"a manual wave waits for nobody", "waves.go", "needs := parts[0].manual && !manual\n", "needs := manual && !manual\n"},
	{"an approval holds for every wave", "waves.go", `what := fmt.Sprint(wave)`, `what := "0"`},
	{"a pause does not keep a wave from being opened", "waves.go", "if r.in.Paused {\n\t\treturn \"it is paused\"\n\t}\n\tfirst", "first"},
	{"a pause does not keep an open wave from going on", "waves.go", "if r.in.Paused {\n\t\t\treturn \"it is paused\"\n\t\t}\n", ""},
	{"maxConcurrent does not count those that are under way", "waves.go", "room.wave[k]--\n\t\troom.outer[p.outer(k)]--\n\t}\n\tfor _, name", "_ = k\n\t}\n\tfor _, name"},
	{"maxConcurrent does not count those that it lets in", "waves.go", "room.wave[wave]--\n\troom.outer[p.outer(wave)]--\n", ""},
	{"a percentage of none is none", "policy.go", "return max(m, 1)", "return m"},
	{"a budget lets one more in", "waves.go", "ok && n >= int(b.MaxUnavailable)", "ok && n > int(b.MaxUnavailable)"},
	{"a budget does not count those that cannot be reached", "waves.go", "c.Offline || !c.Holds || !c.Ready {\n\t\t\troom", "!c.Offline && (!c.Holds || !c.Ready) {\n\t\t\troom"},
	{"a cluster is ready with what it had before", "stop.go", "case c.Holds && c.Ready:\n", "case c.Ready:\n"},
	{"a cluster is done the moment that it is ready", "stop.go", "ready := entry.Ready.Add(p.minReady(r.waveOf(c)))", "ready := entry.Ready.Time"},
	{"readiness begins when it was first asked for", "stop.go", "if entry.Ready == nil {\n\t\t\tentry.Ready = at(since)", "if entry.Ready == nil {\n\t\t\tentry.Ready = entry.Since"},
	{"a break between two looks goes unseen", "stop.go", "at(since).After(entry.Ready.Time) && !c.ReadySince.IsZero()", "false"},
	{"nothing is ever too late", "stop.go", "if !now.Before(late) {", "if now.Before(now) {"},
	{"the time of a cluster that was away goes on", "anew.go", "entry.Since, entry.Ready = nil, nil // When", "_ = entry // When"},
	{"a cluster that cannot be reached is looked at", "stop.go", "case c.Offline, c.Unknown:\n\t\treturn \"\", false", "case c.Unknown:\n\t\treturn \"\", false"},
	{"a failure of one that was done goes unseen", "stop.go", "c.Holds && !c.Ready && !r.over(", "false && !r.over("},
	{"one failure more is let pass", "release.go", "len(r.Failed) > r.in.Policy.maxFailures", "len(r.Failed) > r.in.Policy.maxFailures+1"},
	{"what was halted goes on", "release.go", "case refractv1alpha1.RolloutHalted:\n\t\tr.sayStopped()\n\t\treturn\n", ""},
	{"an old word has it tried again", "release.go", "r.says(r.in.Resumed, retry)", `r.in.Resumed != ""`},
	{"what is reverted is over before the clusters have it", "stop.go", "return c.Holds && !c.Offline\n", "return c.Ready\n"},
	{"a cluster that refuses what was good counts as reverted", "stop.go", "return c.Holds && !c.Offline\n", "return c.Holds && !c.Offline || c.Refused != \"\"\n"},
	{"those that had failed keep the target", "release.go", "case reverts(s), s.Phase == refractv1alpha1.RolloutReverted:\n\t\treturn &s.LastGood", "case false:\n\t\treturn &s.LastGood"},
	{"clusters that have an older change keep it for ever", "waves.go", "return !c.Differs\n", "return !c.Changes\n"},
	{"what was reverted is good after an edit", "anew.go", "case refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutStalled, refractv1alpha1.RolloutReverted:\n\t\tr.forget", "case refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutStalled, refractv1alpha1.RolloutReverted:\n\t\tr.LastGood = before\n\t\tr.forget"},
	{"a change under way is good after an edit", "anew.go", "r.Superseded, r.OnSuperseded = &before, had\n", "r.Superseded, r.OnSuperseded = &before, had\n\t\t\tr.LastGood = before\n"},
	{"an edit goes on in the wave where the one before was", "anew.go", "r.Phase, r.Opened, r.Began = refractv1alpha1.RolloutProgressing, 0, at(r.in.Now)", "r.Phase, r.Began = refractv1alpha1.RolloutProgressing, at(r.in.Now)"},
	{"another policy has the waves of the one before", "release.go", "s.Target, s.Opened = in.Target, 0\n", "s.Target = in.Target\n"},
	{"a policy that is made again is the one before", "release.go", "UID:             p.uids[i],", "UID:             p.uids[i][:0],"},
	{"a policy that is gone holds nothing", "release.go", "if r.in.Policy == nil {\n\t\tr.wait(r.in.Hold)\n\t\treturn\n\t}\n", "if r.in.Policy == nil {\n\t\tr.Phase, r.LastGood = refractv1alpha1.RolloutComplete, r.Target\n\t\treturn\n\t}\n"},
	{"a change is complete while the object is placed nowhere", "release.go", "if len(r.in.Clusters) == 0 {\n\t\tr.wait(placedNowhere)\n\t\treturn\n\t}\n", ""},
	{"it is complete when the last wave is over", "waves.go", "!c.Offline && !r.settled(c) {\n\t\t\treturn false\n\t\t}\n\t}\n\tr.Phase", "c == nil {\n\t\t\treturn false\n\t\t}\n\t}\n\tr.Phase"},
	{"a cluster that has left is counted still", "anew.go", "r.Failed = slices.DeleteFunc(r.Failed, func(c refractv1alpha1.FailedCluster) bool { return gone(c.Name) })\n", ""},
	{"what is given is modified", "release.go", "s := was.DeepCopy()", "s := was"},
	{"a floor's waves are lost inside", "policy.go", "levels:      slices.Concat(floor.levels, p.levels)", "levels:      p.levels"},
	{"an object without a record is not looked for", "release.go", "case Unbegun(s):\n\t\tr.found()\n\t\treturn s, time.Time{}\n", ""},
	{"what nobody has looked at is as it is to be", "anew.go", "case c.Unseen:\n\t\t\tr.Message = First(r.Target).Message\n\t\t\treturn\n", ""},
	{"another content that is found is overwritten", "anew.go", "case c.Keeps:\n\t\t\tr.keepFound()\n\t\t\treturn\n", ""},
	{"a cluster that was away is taken for one that was seen", "anew.go", "case c.Offline:\n\t\t\toffline = append(offline, c.Name)\n\t\tcase c.Unseen", "case c.Unseen"},
	{"what one was found with is forgotten by an edit", "anew.go", "len(had) > 0 && !r.unseen()", "len(had) > 0"},
	{"what one was found with is forgotten by a revert", "anew.go", "if !r.unseen() {\n\t\tr.Superseded, r.OnSuperseded = nil, nil", "{\n\t\tr.Superseded, r.OnSuperseded = nil, nil"},
	{"what is lost counts as refused", "stop.go", "case r.LastGood.Name == Found || c.Lost:", "case r.LastGood.Name == Found && c.Lost:"},
	{"who refuses what was good has it", "stop.go", "len(lost)+len(refused) > 0", "len(lost) > 0"},
	{"who was away is forgotten by a revert", "stop.go", "return c.Holds && !c.Offline\n", "return c.Holds || c.Offline\n"},
	{"who was away when it was halted gets it", "stop.go", "return r.holdsNot(c.Name) })", "return false })"},
	{"an approval can be made up from the status", "release.go", "annotation == r.asked && ", ""},
	{"what cannot be stored is the target", "release.go", "s.Message, s.Awaits = why, \"\"\n", "s.Message, s.Awaits, s.Target = why, \"\", target\n"},
	{"it is never looked at again", "stop.go", "if r.until.IsZero() || then.Before(r.until) {\n\t\tr.until = then\n\t}", "r.until = r.in.Now"},
}

// TestFaults verifies, with REFRACT_FAULTS=1, that TestModel finds each fault. This compiles the package for each
// fault. Without the variable, it only verifies that each replacement still applies.
func TestFaults(t *testing.T) {
	t.Parallel()
	compile := os.Getenv("REFRACT_FAULTS") != ""
	if compile {
		if out, err := model(t, "release.go", nil); err != nil {
			t.Fatalf("TestModel fails without a fault: %v\n%s", err, out)
		}
	}
	for i := range faults {
		f := &faults[i]
		t.Run(strings.ReplaceAll(f.name, " ", "_"), func(t *testing.T) {
			text, err := os.ReadFile(f.file)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte(f.old)); n != 1 {
				t.Fatalf("want %q once in %s, got %d times", f.old, f.file, n)
			}
			if compile {
				found(t, f.file, bytes.Replace(text, []byte(f.old), []byte(f.new), 1))
			}
		})
	}
}

// found fails unless TestModel fails with another text of a file.
func found(t *testing.T, file string, text []byte) {
	t.Helper()
	out, err := model(t, file, text)
	if _, fails := errors.AsType[*exec.ExitError](err); !fails {
		t.Fatalf("TestModel finds nothing: %v\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "model_test.go") || strings.Contains(line, "panic: runtime error") {
			t.Log(strings.TrimSpace(line))
			return
		}
	}
	t.Fatalf("it ends in another way: %v\n%s", err, out)
}

// model runs TestModel, with another text of a file unless the text is nil.
func model(t *testing.T, file string, text []byte) (out string, err error) {
	t.Helper()
	dir := t.TempDir()
	replaced := map[string]string{}
	if text != nil {
		original, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		replaced[original] = filepath.Join(dir, file)
		if err := os.WriteFile(replaced[original], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "release.test")
	said, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err := errors.Join(err, os.WriteFile(overlay, said, 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("compiling: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^TestModel$", "-test.timeout", "10m")
	cmd.Env = append(os.Environ(), "REFRACT_HISTORIES=2000")
	all, err := cmd.CombinedOutput()
	return string(all), err
}
