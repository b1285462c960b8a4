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
	{"a wave is opened before the previous wave is over", "waves.go", "k > 0 && k == int(r.Opened) && !r.over(k-1)", "k > 1 && k == int(r.Opened) && !r.over(k-2)"},
	{"a wave is over although no cluster has tried the target", "waves.go", "return tried || !changed", "return true"},
	{"a cluster gets the change before its wave is open", "waves.go", "r.began[wave] && !c.Offline", "wave <= int(r.Opened) && !c.Offline"},
	{"a cluster that joins an empty wave gets the change without an approval", "waves.go", "r.began[wave] && !c.Offline", "wave < int(r.Opened) && !c.Offline"},
	{"an empty wave begins", "waves.go", "r.began[k] = len(r.byWave[k]) > 0 && r.sinceOf(r.in.Policy.nameOf(k)) != nil", "r.began[k] = true"},
	{"a manual wave does not wait", "waves.go", "needs := parts[0].manual && !manual\n", "needs := manual && !manual\n"},
	{"an approval applies to every wave", "waves.go", `what := fmt.Sprint(wave)`, `what := "0"`},
	{"a wave is opened during a pause", "waves.go", "if r.in.Paused {\n\t\treturn \"it is paused\"\n\t}\n\tfirst", "first"},
	{"an open wave continues during a pause", "waves.go", "if r.in.Paused {\n\t\t\treturn \"it is paused\"\n\t\t}\n", ""},
	{"maxConcurrent does not count clusters in progress", "waves.go", "room.wave[k]--\n\t\troom.outer[p.outer(k)]--\n\t}\n\tfor _, name", "_ = k\n\t}\n\tfor _, name"},
	{"maxConcurrent does not count clusters released in the same call", "waves.go", "room.wave[wave]--\n\troom.outer[p.outer(wave)]--\n", ""},
	{"a percentage is rounded down to 0 clusters", "policy.go", "return max(m, 1)", "return m"},
	{"a budget allows one cluster more", "waves.go", "ok && n >= int(b.MaxUnavailable)", "ok && n > int(b.MaxUnavailable)"},
	{"a budget does not count unreachable clusters", "waves.go", "c.Offline || !c.Holds || !c.Ready {\n\t\t\troom", "!c.Offline && (!c.Holds || !c.Ready) {\n\t\t\troom"},
	{"a cluster counts as ready with its former content", "stop.go", "case c.Holds && c.Ready:\n", "case c.Ready:\n"},
	{"a cluster is done as soon as it is ready", "stop.go", "ready := entry.Ready.Add(p.minReady(r.waveOf(c)))", "ready := entry.Ready.Time"},
	{"readiness begins with the release", "stop.go", "if entry.Ready == nil {\n\t\t\tentry.Ready = at(since)", "if entry.Ready == nil {\n\t\t\tentry.Ready = entry.Since"},
	{"an interruption of readiness between two calls is ignored", "stop.go", "at(since).After(entry.Ready.Time) && !c.ReadySince.IsZero()", "false"},
	{"no cluster fails by its time limit", "stop.go", "if !now.Before(late) {", "if now.Before(now) {"},
	{"the time of an offline cluster continues", "anew.go", "restart(entry, nil) // When", "_ = entry // When"},
	{"the time before an offline cluster is back counts", "stop.go", "entry.Ready = entry.Since // The", "_ = entry // The"},
	{"the time of a copy that was written again continues", "stop.go", "entry.Copy != c.Copy {", "false {"},
	{"an unreachable cluster is evaluated", "stop.go", "case c.Offline, c.Unknown:\n\t\treturn \"\", false", "case c.Unknown:\n\t\treturn \"\", false"},
	{"a failure of a cluster that was done is ignored", "stop.go", "c.Holds && !c.Ready && !r.over(", "false && !r.over("},
	{"one failure too many is allowed", "release.go", "len(r.Failed) > r.in.Policy.maxFailures", "len(r.Failed) > r.in.Policy.maxFailures+1"},
	{"a halted rollout continues", "release.go", "case refractv1alpha1.RolloutHalted:\n\t\tr.sayStopped()\n\t\treturn\n", ""},
	{"an old token resumes the rollout", "release.go", "r.says(r.in.Resumed, retry)", `r.in.Resumed != ""`},
	{"a revert is complete before the clusters have the content", "stop.go", "return c.Holds && !c.Offline\n", "return c.Ready\n"},
	{"a cluster that rejects the good content counts as reverted", "stop.go", "return c.Holds && !c.Offline\n", "return c.Holds && !c.Offline || c.Refused != \"\"\n"},
	{"failed clusters keep the target", "release.go", "case reverts(s), s.Phase == refractv1alpha1.RolloutReverted:\n\t\treturn &s.LastGood", "case false:\n\t\treturn &s.LastGood"},
	{"clusters with an older change keep it forever", "waves.go", "return !c.Differs\n", "return !c.Changes\n"},
	{"a reverted revision is good after an edit", "anew.go", "case refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutStalled, refractv1alpha1.RolloutReverted:\n\t\tr.forget", "case refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutStalled, refractv1alpha1.RolloutReverted:\n\t\tr.LastGood = before\n\t\tr.forget"},
	{"a change in progress is good after an edit", "anew.go", "r.Superseded, r.OnSuperseded = &before, had\n", "r.Superseded, r.OnSuperseded = &before, had\n\t\t\tr.LastGood = before\n"},
	{"an edit continues in the wave of the previous edit", "anew.go", "r.Phase, r.Opened, r.Began = refractv1alpha1.RolloutProgressing, 0, at(r.in.Now)", "r.Phase, r.Began = refractv1alpha1.RolloutProgressing, at(r.in.Now)"},
	{"another policy inherits the waves of the previous one", "release.go", "s.Target, s.Opened = in.Target, 0\n", "s.Target = in.Target\n"},
	{"a policy that is created again counts as the previous one", "release.go", "UID:             p.uids[i],", "UID:             p.uids[i][:0],"},
	{"a missing policy does not hold the rollout", "release.go", "if r.in.Policy == nil {\n\t\tr.wait(r.in.Hold)\n\t\treturn\n\t}\n", "if r.in.Policy == nil {\n\t\tr.Phase, r.LastGood = refractv1alpha1.RolloutComplete, r.Target\n\t\treturn\n\t}\n"},
	{"a change is complete although no cluster has the object", "release.go", "if len(r.in.Clusters) == 0 {\n\t\tr.wait(placedNowhere)\n\t\treturn\n\t}\n", ""},
	{"the rollout is complete when the last wave is over", "waves.go", "!c.Offline && !r.settled(c) {\n\t\t\treturn false\n\t\t}\n\t}\n\tr.Phase", "c == nil {\n\t\t\treturn false\n\t\t}\n\t}\n\tr.Phase"},
	{"a cluster that has left is still counted", "anew.go", "s.Failed = slices.DeleteFunc(s.Failed, func(c refractv1alpha1.FailedCluster) bool { return gone(c.Name) })\n", ""},
	{"the arguments are modified", "release.go", "s := was.DeepCopy()", "s := was"},
	{"the waves of a floor are lost in the combination", "policy.go", "levels:      slices.Concat(floor.levels, p.levels)", "levels:      p.levels"},
	{"the contents without a RolloutStatus are not examined", "release.go", "case Unbegun(s):\n\t\tr.found()\n\t\treturn s, time.Time{}\n", ""},
	{"unread content counts as the newest", "anew.go", "case c.Unseen:\n\t\t\tr.Message = First(r.Target).Message\n\t\t\treturn\n", ""},
	{"other existing content is overwritten", "anew.go", "case c.Keeps:\n\t\t\tr.keepFound()\n\t\t\treturn\n", ""},
	{"an offline cluster counts as read", "anew.go", "case c.Offline:\n\t\t\toffline = append(offline, c.Name)\n\t\tcase c.Unseen", "case c.Unseen"},
	{"an edit drops the content found on a cluster", "anew.go", "len(had) > 0 && !r.unseen()", "len(had) > 0"},
	{"a revert drops the content found on a cluster", "anew.go", "if !r.unseen() {\n\t\tr.Superseded, r.OnSuperseded = nil, nil", "{\n\t\tr.Superseded, r.OnSuperseded = nil, nil"},
	{"lost content counts as rejected", "stop.go", "case r.LastGood.Name == Found || c.Lost:", "case r.LastGood.Name == Found && c.Lost:"},
	{"a cluster that rejects the good content counts as having it", "stop.go", "len(lost)+len(refused) > 0", "len(lost) > 0"},
	{"a revert drops offline clusters", "stop.go", "return c.Holds && !c.Offline\n", "return c.Holds || c.Offline\n"},
	{"a cluster that was offline at the halt gets the target", "stop.go", "return r.holdsNot(c.Name) })", "return false })"},
	{"an approval can be derived from the status", "release.go", "annotation == r.asked && ", ""},
	{"a revision that cannot be stored is the target", "release.go", "s.Message, s.Awaits = why, \"\"\n", "s.Message, s.Awaits, s.Target = why, \"\", target\n"},
	{"the time of the next call is wrong", "stop.go", "if r.until.IsZero() || then.Before(r.until) {\n\t\tr.until = then\n\t}", "r.until = r.in.Now"},
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

// found fails unless TestModel fails with a modified file.
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
	t.Fatalf("TestModel ends unexpectedly: %v\n%s", err, out)
}

// model runs TestModel, with a modified file unless the text is nil.
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
