package release

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

// faults are mistakes that this package could have, each as one replacement in one of its files. TestModel has to find every one.
var faults = []struct {
	name     string
	file     string
	old, new string
}{
	{"a wave is opened before the one before it is over", "release.go", "if r.Opened > 0 && !r.over(int(r.Opened)-1) {", "if r.Opened > 1 && !r.over(int(r.Opened)-2) {"},
	{"a wave is over when nobody has tried it", "release.go", "return tried || !changed", "return true"},
	{"a cluster gets the change before its wave is open", "release.go", "wave < int(r.Opened) && !c.Offline", "wave <= int(r.Opened) && !c.Offline"},
	{"a manual wave waits for nobody", "release.go", "needs := parts[0].manual && !manual\n", "needs := manual && !manual\n"},
	{"an approval holds for every wave", "release.go", `what := fmt.Sprint(wave)`, `what := "0"`},
	{"a pause does not keep a wave from being opened", "release.go", "if r.in.Paused {\n\t\treturn \"it is paused\"\n\t}\n\tfirst", "first"},
	{"a pause does not keep an open wave from going on", "release.go", "if r.in.Paused {\n\t\t\treturn \"it is paused\"\n\t\t}\n", ""},
	{"maxConcurrent does not count those that are under way", "release.go", "room.wave[k]--\n\t\troom.outer[p.outer(k)]--\n\t}\n\tfor _, name", "_ = k\n\t}\n\tfor _, name"},
	{"maxConcurrent does not count those that it lets in", "release.go", "room.wave[wave]--\n\troom.outer[p.outer(wave)]--\n", ""},
	{"a percentage of none is none", "policy.go", "return max(m, 1)", "return m"},
	{"a budget lets one more in", "release.go", "ok && n >= int(b.MaxUnavailable)", "ok && n > int(b.MaxUnavailable)"},
	{"a budget does not count those that cannot be reached", "release.go", "c.Offline || !c.Holds || !c.Ready {\n\t\t\troom", "!c.Offline && (!c.Holds || !c.Ready) {\n\t\t\troom"},
	{"a cluster is ready with what it had before", "release.go", "case c.Holds && c.Ready:\n", "case c.Ready:\n"},
	{"a cluster is done the moment that it is ready", "release.go", "ready := entry.Ready.Add(p.minReady(r.waveOf(c)))", "ready := entry.Ready.Time"},
	{"readiness begins when it was first asked for", "release.go", "if entry.Ready == nil {\n\t\t\tentry.Ready = at(since)", "if entry.Ready == nil {\n\t\t\tentry.Ready = entry.Since"},
	{"a break between two looks goes unseen", "release.go", "at(since).After(entry.Ready.Time) && !c.ReadySince.IsZero()", "false"},
	{"nothing is ever too late", "release.go", "if !now.Before(late) {", "if now.Before(now) {"},
	{"the time of a cluster that was away goes on", "release.go", "entry.Since, entry.Ready = nil, nil // When", "_ = entry // When"},
	{"a cluster that cannot be reached is looked at", "release.go", "case c.Offline, c.Unknown:\n\t\treturn \"\", false", "case c.Unknown:\n\t\treturn \"\", false"},
	{"a failure of one that was done goes unseen", "release.go", "c.Holds && !c.Ready && !r.over(", "false && !r.over("},
	{"one failure more is let pass", "release.go", "len(r.Failed) > r.in.Policy.maxFailures", "len(r.Failed) > r.in.Policy.maxFailures+1"},
	{"what was halted goes on", "release.go", "case refractv1alpha1.RolloutHalted:\n\t\tr.sayStopped()\n\t\treturn\n", ""},
	{"an old word has it tried again", "release.go", "r.says(r.in.Resumed, retry)", `r.in.Resumed != ""`},
	{"what is reverted is over before the clusters have it", "release.go", "return c.Holds && !c.Offline\n", "return c.Ready\n"},
	{"a cluster that refuses what was good counts as reverted", "release.go", "return c.Holds && !c.Offline\n", "return c.Holds && !c.Offline || c.Refused != \"\"\n"},
	{"those that had failed keep the target", "release.go", "case reverts(s), s.Phase == refractv1alpha1.RolloutReverted:\n\t\treturn &s.LastGood", "case false:\n\t\treturn &s.LastGood"},
	{"clusters that have an older change keep it for ever", "release.go", "return !c.Differs\n", "return !c.Changes\n"},
	{"what was reverted is good after an edit", "release.go", "case refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutStalled, refractv1alpha1.RolloutReverted:\n\t\tr.forget", "case refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutStalled, refractv1alpha1.RolloutReverted:\n\t\tr.LastGood = before\n\t\tr.forget"},
	{"a change under way is good after an edit", "release.go", "r.Superseded, r.OnSuperseded = &before, had\n", "r.Superseded, r.OnSuperseded = &before, had\n\t\t\tr.LastGood = before\n"},
	{"an edit goes on in the wave where the one before was", "release.go", "r.Phase, r.Opened, r.Began = refractv1alpha1.RolloutProgressing, 0, at(r.in.Now)", "r.Phase, r.Began = refractv1alpha1.RolloutProgressing, at(r.in.Now)"},
	{"another policy has the waves of the one before", "release.go", "s.Target, s.Opened = in.Target, 0\n", "s.Target = in.Target\n"},
	{"a policy that is made again is the one before", "release.go", "UID:             p.uids[i],", "UID:             p.uids[i][:0],"},
	{"a policy that is gone holds nothing", "release.go", "if r.in.Policy == nil {\n\t\tr.wait(r.in.Hold)\n\t\treturn\n\t}\n", "if r.in.Policy == nil {\n\t\tr.Phase, r.LastGood = refractv1alpha1.RolloutComplete, r.Target\n\t\treturn\n\t}\n"},
	{"a change is complete while the object is placed nowhere", "release.go", "if len(r.in.Clusters) == 0 {\n\t\tr.wait(placedNowhere)\n\t\treturn\n\t}\n", ""},
	{"it is complete when the last wave is over", "release.go", "!c.Offline && !r.settled(c) {\n\t\t\treturn false\n\t\t}\n\t}\n\tr.Phase", "c == nil {\n\t\t\treturn false\n\t\t}\n\t}\n\tr.Phase"},
	{"a cluster that has left is counted still", "release.go", "r.Failed = slices.DeleteFunc(r.Failed, func(c refractv1alpha1.FailedCluster) bool { return gone(c.Name) })\n", ""},
	{"what is given is modified", "release.go", "s := was.DeepCopy()", "s := was"},
	{"a floor's waves are lost inside", "policy.go", "levels:      slices.Concat(floor.levels, p.levels)", "levels:      p.levels"},
	{"an object without a record is not looked for", "release.go", "case Unbegun(s):\n\t\tr.found()\n\t\treturn s, time.Time{}\n", ""},
	{"what nobody has looked at is as it is to be", "release.go", "case c.Unseen:\n\t\t\tr.Message = First(r.Target).Message\n\t\t\treturn\n", ""},
	{"another content that is found is overwritten", "release.go", "case c.Keeps:\n\t\t\tr.keepFound()\n\t\t\treturn\n", ""},
	{"a cluster that was away is taken for one that was seen", "release.go", "case c.Offline:\n\t\t\toffline = append(offline, c.Name)\n\t\tcase c.Unseen", "case c.Unseen"},
	{"what one was found with is forgotten by an edit", "release.go", "len(had) > 0 && !r.unseen()", "len(had) > 0"},
	{"what one was found with is forgotten by a revert", "release.go", "if !r.unseen() {\n\t\tr.Superseded, r.OnSuperseded = nil, nil", "{\n\t\tr.Superseded, r.OnSuperseded = nil, nil"},
	{"what is lost counts as refused", "release.go", "case r.LastGood.Name == Found || c.Lost:", "case r.LastGood.Name == Found && c.Lost:"},
	{"who refuses what was good has it", "release.go", "len(lost)+len(refused) > 0", "len(lost) > 0"},
	{"who was away is forgotten by a revert", "release.go", "return c.Holds && !c.Offline\n", "return c.Holds || c.Offline\n"},
	{"who was away when it was halted gets it", "release.go", "return r.holdsNot(c.Name) })", "return false })"},
	{"an approval can be made up from the status", "release.go", "annotation == r.asked && ", ""},
	{"what cannot be stored is the target", "release.go", "s.Message, s.Awaits = why, \"\"\n", "s.Message, s.Awaits, s.Target = why, \"\", target\n"},
	{"it is never looked at again", "release.go", "if r.until.IsZero() || then.Before(r.until) {\n\t\tr.until = then\n\t}", "r.until = r.in.Now"},
}

// TestFaults asks whether TestModel finds each fault, by REFRACT_FAULTS=1: each has the package compiled anew. Without, it asks only
// whether each can be made still.
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

// found fails unless TestModel does with other text in a file.
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

// model runs TestModel with other text in a file, unless that is nil.
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
