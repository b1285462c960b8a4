package simulate

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// Fault is a possible mistake in the real code that the simulation must find.
type Fault struct {
	// Name describes the fault as a user would see it, in one sentence.
	Name string
	// Row identifies the source of the fault: a row of the review of fail-closed behavior or of different clusters, or
	// the name of a page in docs/design.
	Row string
	// Invariant is the promise that the fault breaks.
	Invariant string
	// Edits are the changes of the code.
	Edits []Edit
}

// Edit replaces a text that occurs exactly once in a file.
type Edit struct {
	File     string // Path from the root of the module.
	Old, New string
}

// moduleRoot is the root of the module, relative to this folder.
const moduleRoot = "../.."

// mutated returns the content of the files that the faults change together, by path from the root of the module. left
// are the faults that change the same place as an earlier one. It returns an error if a fault does not apply to the
// code.
func mutated(together ...*Fault) (texts map[string]string, left []*Fault, err error) {
	texts = map[string]string{}
	for _, f := range together {
		all := maps.Clone(texts)
		switch err := f.apply(all); {
		case err == nil:
			texts = all
		case len(texts) == 0:
			return nil, nil, err
		default:
			left = append(left, f)
		}
	}
	return texts, left, nil
}

// apply makes the edits of the fault in the texts, and reads the files that the texts lack. It returns an error unless
// each replaced text occurs exactly once.
func (f *Fault) apply(texts map[string]string) error {
	for _, e := range f.Edits {
		if _, begun := texts[e.File]; !begun {
			original, err := os.ReadFile(filepath.Join(moduleRoot, filepath.FromSlash(e.File)))
			if err != nil {
				return fmt.Errorf("making the fault %q: %w", f.Name, err)
			}
			texts[e.File] = string(original)
		}
		if n := strings.Count(texts[e.File], e.Old); n != 1 {
			return fmt.Errorf("making the fault %q: want %q once in %s, got it %d times; adapt the fault to the code", f.Name, e.Old, e.File, n)
		}
		texts[e.File] = strings.Replace(texts[e.File], e.Old, e.New, 1)
	}
	return nil
}

// overlay writes the changed files into a folder, together with a file for the flag -overlay of the go command that
// names them. It returns the path of that file.
func overlay(dir string, texts map[string]string) (file string, err error) {
	replaced := map[string]string{}
	for name, text := range texts {
		original, err := filepath.Abs(filepath.Join(moduleRoot, filepath.FromSlash(name)))
		if err != nil {
			return "", fmt.Errorf("writing the overlay: %w", err)
		}
		replaced[original] = filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(replaced[original], []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("writing the overlay: %w", err)
		}
	}
	said, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return "", fmt.Errorf("writing the overlay: %w", err)
	}
	file = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, said, 0o600); err != nil {
		return "", fmt.Errorf("writing the overlay: %w", err)
	}
	return file, nil
}

// faults are mistakes that reviews and trials found, and similar ones. Each reverts the essential part of the fix, or
// breaks the line that keeps the promise.
var faults = []Fault{
	// Releases.
	{
		"a Deployment that is deleted and created again changes on all clusters at once", "fails-closed 1", "unreleased-content",
		[]Edit{{"fleet/propagation/found.go", "case p.governed == nil:\n\t\treturn false\n", "case p != nil:\n\t\treturn false\n"}},
	},
	{
		"a Deployment that is created again a moment after its last copy has gone is not released wave by wave", "fails-closed 1", "unreleased-content",
		[]Edit{{"fleet/propagation/report.go", "return recreated - now.Sub(", "return 0 * now.Sub("}},
	},
	{
		"a hub that is restored from a backup changes the content of all clusters at once", "rollouts", "unreleased-content",
		[]Edit{{"fleet/propagation/found.go", "|| a.setBack(p, t, r, have) ||\n", "||\n"}},
	},
	{
		"a change goes out although its content could not be stored", "fails-closed 2", "unreleased-content",
		[]Edit{{
			"fleet/propagation/rollouts.go",
			`is, until = rollout.Hold(was, is.Target, in.Clusters, output.Cut("the revision cannot be stored: "+err.Error(), maxMessage)), time.Time{}`, "err = nil",
		}},
	},
	{
		"an object whose content cannot be stored has no record, and changes on all clusters at once", "fails-closed 2", "unreleased-content",
		[]Edit{
			{
				"fleet/propagation/report.go", "if errors.Is(err, errRevision) {\n\t\trep.decider.add(key, priorityChanged)\n",
				"if err != nil && !errors.Is(err, errRevision) {\n\t\treturn reconcile.Result{}, err\n\t}\n" +
					"\tif errors.Is(err, errRevision) {\n\t\trep.decider.add(key, priorityChanged)\n",
			},
			{
				"fleet/propagation/found.go",
				"case p.governed == nil:\n\t\treturn false\n",
				"case p.governed == nil, p.governed.recorded == nil:\n\t\treturn false\n",
			},
		},
	},
	{
		"an approval of one wave approves all others, also before there is a rollout", "fails-closed 3", "unreleased-content",
		[]Edit{{"fleet/policy/rollout/release.go", `return r.Nonce != "" && annotation == r.asked && annotation == r.token(what)`, `return annotation != ""`}},
	},
	{
		"a cluster gets a change before the release is stored, and a killed leader leaves it unrecorded", "rollouts", "unreleased-content",
		[]Edit{{
			"fleet/propagation/report.go", "\t*r.status = status\n\tr.status.Rollout = progress",
			"\trep.records.mu.Lock()\n\tif is := rep.records.items[key]; is != nil && rollout != nil {\n\t\tnow := *is\n\t\tnow.rollout = rollout\n" +
				"\t\trep.records.items[key] = &now\n\t}\n\trep.records.mu.Unlock()\n\trep.decider.add(key, priorityChanged)\n" +
				"\t*r.status = status\n\tr.status.Rollout = progress",
		}},
	},
	{
		"a Manual wave begins without an approval", "rollouts", "unreleased-content",
		[]Edit{{"fleet/policy/rollout/waves.go", "needs := parts[0].manual && !manual\n", "needs := manual && !manual\n"}},
	},
	{
		"a cluster gets the change when the wave before its own has begun", "rollouts", "unreleased-content",
		[]Edit{{"fleet/policy/rollout/waves.go", "r.began[wave] && !c.Offline", "wave <= int(r.Opened) && !c.Offline"}},
	},
	{
		"a wave begins while the copies of the one before it are not ready", "rollouts", "unreleased-content",
		[]Edit{{"fleet/policy/rollout/stop.go", "case c.Holds && c.Ready:\n", "case c.Holds:\n"}},
	},
	{
		"an edit during a rollout sends the content before it to all clusters", "rollouts", "unreleased-content",
		[]Edit{{
			"fleet/policy/rollout/anew.go",
			"r.Superseded, r.OnSuperseded = &before, had\n",
			"r.Superseded, r.OnSuperseded = &before, had\n\t\t\tr.LastGood = before\n",
		}},
	},
	{
		"a rollout policy that is changed, or created again, has the waves open that were open before", "rollouts", "unreleased-content",
		[]Edit{{"fleet/policy/rollout/release.go", "s.Target, s.Opened = in.Target, 0\n", "s.Target = in.Target\n"}},
	},
	{
		"a ConfigMap that a Deployment refers to changes on all clusters at once", "rollouts", "unreleased-content",
		[]Edit{{
			"fleet/propagation/governance.go",
			"if by := d.ledBy(key, with); by != nil {",
			`if by := d.ledBy(key, with); by != nil && key.Name == "" {`,
		}},
	},
	{
		"a cluster that is renamed during a rollout goes back to the content before", "members", "unreleased-content",
		[]Edit{{"fleet/propagation/renames.go", "if n.inRollout(r) {", "if n.inRollout(r) && n.to == n.from {"}},
	},
	{
		"a replica whose clock is wrong does not wait for minReadySeconds", "fails-closed 11", "unreleased-content",
		[]Edit{{"fleet/hub/clock.go", "return c.began.Add(at + c.ahead)", "return c.began.Add(at)"}},
	},
	{
		"minReadySeconds begins when the change is sent, and not when the copy is ready", "fails-closed 11", "unreleased-content",
		[]Edit{{
			"fleet/policy/rollout/stop.go",
			"if entry.Ready == nil {\n\t\t\tentry.Ready = at(since)",
			"if entry.Ready == nil {\n\t\t\tentry.Ready = entry.Since",
		}},
	},
	{
		"minReadySeconds continues for a copy that was lost with its cluster, and written again", "rollouts", "unreleased-content",
		[]Edit{
			{"fleet/policy/rollout/stop.go", "entry.Copy != c.Copy {", "false {"},
			{"fleet/policy/rollout/stop.go", "if entry.Ready.Before(entry.Since) {", "if false {"},
		},
	},
	{
		"an edit right after a floor was set on the namespace goes out at once", "fails-closed 13", "unreleased-content",
		[]Edit{{
			"fleet/propagation/unfloored.go",
			`p.governed != nil || key.Namespace == ""`,
			`p.governed != nil || key.Namespace != "*"`,
		}},
	},
	{
		"a cluster that was away when a rollout halted gets the change when it is back", "rollouts", "halted-or-reverted",
		[]Edit{{
			"fleet/policy/rollout/stop.go",
			"r.Current = slices.DeleteFunc(r.Current, func(c refractv1alpha1.ReleasedCluster) bool { return r.holdsNot(c.Name) })\n",
			"r.Current = slices.DeleteFunc(r.Current, func(c refractv1alpha1.ReleasedCluster) bool { return false })\n",
		}},
	},
	{
		"a rollout goes on after a cluster has failed", "rollouts", "halted-or-reverted",
		[]Edit{{"fleet/policy/rollout/release.go", "len(r.Failed) > r.in.Policy.maxFailures", "len(r.Failed) > r.in.Policy.maxFailures+1"}},
	},
	{
		"the clusters on which a change has failed keep it after a revert", "rollouts", "halted-or-reverted",
		[]Edit{{
			"fleet/policy/rollout/release.go",
			"case reverts(s), s.Phase == refractv1alpha1.RolloutReverted:\n\t\treturn &s.LastGood",
			"case false:\n\t\treturn &s.LastGood",
		}},
	},
	{
		"a rollout ends as Reverted though the content before it is stored nowhere any more", "fails-closed 9", "halted-or-reverted",
		[]Edit{{"fleet/policy/rollout/stop.go", "return c.Holds && !c.Offline\n", "return (c.Holds || c.Lost) && !c.Offline\n"}},
	},
	{
		"a cluster that refuses the content before a change counts as reverted", "rollouts", "halted-or-reverted",
		[]Edit{{"fleet/policy/rollout/stop.go", "return c.Holds && !c.Offline\n", "return (c.Holds || c.Refused != \"\") && !c.Offline\n"}},
	},
	{
		"the content before a change is deleted from the hub while the change is under way", "fails-closed 9", "halted-or-reverted",
		[]Edit{{
			"fleet/propagation/rollouts.go",
			"if r.Name == rollout.Found {\n\t\t\tcontinue\n",
			"if r.Name == rollout.Found || r == &s.LastGood {\n\t\t\tcontinue\n",
		}},
	},
	{
		"the content of an edit is not stored before it goes out, so that a leader that is killed then cannot take it back", "rollouts", "halted-or-reverted",
		[]Edit{{
			"fleet/propagation/rollouts.go",
			"rollout.Unbegun(was) || is.Target.Name != was.Target.Name || !equality", "rollout.Unbegun(was) || is.Target.Name == was.Target.Name && !equality",
		}},
	},

	// Deletions.
	{
		"a claim is deleted on all clusters with the Deployment that refers to it", "real-clusters 2", "volume-deleted",
		[]Edit{{
			"fleet/propagation/keep.go",
			"return h != holdsNothing && c != causeDeleted",
			"return h != holdsNothing && !c.asked()",
		}},
	},
	{
		"a claim is deleted as any other copy", "real-clusters 2", "volume-deleted",
		[]Edit{{
			"fleet/policy/placement/volume.go",
			`(of.Resource == "persistentvolumeclaims" || of.Resource == "persistentvolumes")`,
			`of.Resource == "persistentvolumes"`,
		}},
	},
	{
		"a ConfigMap is deleted while its Deployment is being replaced", "real-clusters 2", "deletion-without-cause",
		[]Edit{{"fleet/propagation/departed.go", "const leaderGrace = time.Minute", "const leaderGrace = 0 * time.Minute"}},
	},
	{
		"the deletion of a namespace deletes its claims on all clusters", "deletions", "volume-deleted",
		[]Edit{{"fleet/propagation/cause.go", `case e.around != "":`, `case e.around == causeType:`}},
	},
	{
		"a restore of the hub deletes the copies of lost objects, claims included", "deletions", "volume-deleted",
		[]Edit{
			{"fleet/propagation/cause.go", "default:\n\t\treturn causeMissing\n", "default:\n\t\treturn causeDeleted\n"},
			{"fleet/propagation/cause.go", "case !e.known:\n\t\treturn causeForgotten\n", "case !e.known:\n\t\treturn causeDeleted\n"},
		},
	},
	{
		"claims are deleted from a cluster that leaves", "real-clusters 3", "volume-deleted",
		[]Edit{{
			"fleet/propagation/keep.go",
			"return h != holdsNothing && c != causeDeleted",
			"return h != holdsNothing && c != causeDeleted && c != causeLeaves",
		}},
	},
	{
		"claims are deleted where the object is not placed any more", "deletions", "volume-deleted",
		[]Edit{{
			"fleet/propagation/keep.go",
			"return h != holdsNothing && c != causeDeleted",
			"return h != holdsNothing && c != causeDeleted && c != causePlacement",
		}},
	},
	{
		"a copy is deleted that the annotation keep protects", "deletions", "deletion-without-cause",
		[]Edit{{"fleet/propagation/keep.go", "case marked:\n", "case marked && kinds != nil:\n"}},
	},
	{
		"a copy is deleted that the annotation orphan leaves to its cluster", "deletions", "deletion-without-cause",
		[]Edit{{"fleet/propagation/removal.go", "return have.Native || gone && (", "return have.Native || gone && have.Native && ("}},
	},
	{
		"the guard judges each deletion by itself, so that a taint removes all copies from a cluster", "deletions", "deletion-without-cause",
		[]Edit{{
			"fleet/propagation/guard.go",
			"if left := g.collecting(now); left > 0 {\n\t\t\treturn notYet, left",
			"if left := g.collecting(now); left > guardCollects {\n\t\t\treturn notYet, left",
		}},
	},
	{
		"an earlier approval deletes claims that wait since then", "fails-closed 3", "volume-deleted",
		[]Edit{{
			"fleet/propagation/guard.go",
			"at := slices.IndexFunc(g.issued, func(i issue) bool { return i.token == token })\n\tif at < 0 {\n\t\treturn\n",
			"g.issue()\n\tat := len(g.issued) - 1\n\tif at < 0 {\n\t\treturn\n",
		}},
	},
	{
		"an approval of one change of a placement approves the next one", "fails-closed 3", "deletion-without-cause",
		[]Edit{{"fleet/policy/placement/hold.go", `if q.Token == "" || q.Token != annotation {`, `if annotation == "" {`}},
	},
	{
		"a cluster that is joined under two names loses its copies when one of them leaves", "real-clusters 3", "deletion-without-cause",
		[]Edit{{"fleet/member/claim.go", "is.contested = contested(fc, all)", "_ = contested(fc, all)"}},
	},
	{
		"a typo in a selector takes an object from all of its clusters", "real-clusters 5", "deletion-without-cause",
		[]Edit{{"fleet/policy/placement/hold.go", "return lost > mostLost && ", "return lost > 100*mostLost && "}},
	},
	{
		"an emptied placement brings an object to all clusters", "real-clusters 5", "differs-from-render",
		[]Edit{{"fleet/policy/placement/hold.go", "empties := r.Narrowed && !p.narrows()\n", "empties := r.Narrowed && !p.narrows() && r.Clusters == nil\n"}},
	},
	{
		"an object that loses its label by mistake is removed from all clusters", "real-clusters 5", "deletion-without-cause",
		[]Edit{{
			"fleet/decide/decide.go",
			"if hold == nil || hold.Number == was.Asked.Approved(w.Approved) {",
			"if hold == nil || hold.Number != was.Asked.Approved(w.Approved) {",
		}},
	},
	{
		"the deletion of a PropagationPolicy takes its objects from all clusters", "placement", "deletion-without-cause",
		[]Edit{{
			"fleet/decide/decide.go",
			"d.Own, d.Hash, d.ChosenBy = present(was.Placed, w.Clusters), was.Hash, was.ChosenBy\n",
			"d.Own, d.Hash, d.ChosenBy = present(nil, w.Clusters), was.Hash, was.ChosenBy\n",
		}},
	},
	{
		"an object that gets another label for its policy is deleted on the clusters for a moment", "deletions", "deletion-without-cause",
		[]Edit{{
			"fleet/propagation/decider_gone.go",
			"if live, found, err = d.sources.look(ctx, key, *src); err != nil {",
			"if found = causeMissing; err != nil {",
		}},
	},
	{
		"a restart deletes the ConfigMaps of Deployments that are not read yet", "followers", "deletion-without-cause",
		[]Edit{{
			"fleet/propagation/state_followers.go",
			"case e == nil:\n\t\t\tleaders.unknown = append(leaders.unknown, leader)\n",
			"case e == nil:\n",
		}},
	},
	{
		"the deletion of a copy deletes an object of the same name that has replaced it", "fails-closed 17", "deletion-without-cause",
		[]Edit{{"fleet/member/copies.go", "metav1.Preconditions{UID: &uid})", "metav1.Preconditions{})"}},
	},
	{
		"objects of a cluster are taken over without permission", "deletions", "deletion-without-cause",
		[]Edit{{
			"fleet/propagation/applier_outcome.go", `return have.Source == "" && p.keeping.Adopt.Includes(a.member.Name)`,
			`return have.Source == "" && (p.keeping.Adopt.Includes(a.member.Name) || a.member.Name != "")`,
		}},
	},
	{
		"a copy that is created overwrites an object that the cluster has already", "decide-apply-report", "deletion-without-cause",
		[]Edit{{
			"fleet/propagation/encode.go",
			"b.created.with(`\"resourceVersion\":\"1\"`)",
			"b.created.with(`\"generateName\":\"\"`)",
		}},
	},

	// Replicas and names.
	{
		"a replica that cannot reach the hub writes on after its Lease has run out", "replicas", "two-writers",
		[]Edit{{
			"fleet/leadership/leadership.go",
			"until := began.Add(l.options.LeaseDuration * 2 / 3)",
			"until := began.Add(l.options.LeaseDuration * 4)",
		}},
	},
	{
		"the Lease is given back while a write is under way", "replicas", "two-writers",
		[]Edit{{"fleet/leadership/leadership.go", "if l.busy == 0 {\n\t\tclose(l.idle)", "if l.busy >= 0 {\n\t\tclose(l.idle)"}},
	},
	{
		"another replica leads as soon as the Lease is deleted", "replicas", "two-writers",
		[]Edit{{"fleet/leadership/lock.go", "!t.leadership.Leads() && !t.gone.IsZero() &&", "false &&"}},
	},
	{
		"a cluster that is joined under a second name is written to under both", "real-clusters 3", "two-writers",
		[]Edit{{"fleet/member/names.go", "return decision{standing: duplicate, other: last.Name}", "return decision{standing: inService}"}},
	},
	{
		"an event that comes late sets the record of a rollout back", "replicas", "old-decision",
		[]Edit{{
			"fleet/propagation/records.go",
			"(before.version == k.version || (how == told && numberOf(before.version) > numberOf(k.version)))", "before.version == k.version",
		}},
	},

	// Restores and lost events.
	{
		"a cluster that was restored from a backup keeps the content of then", "load-and-memory", "differs-from-render",
		[]Edit{{"fleet/member/identity.go", "now.revision != 0 && now.revision < newest:", `now.uid == "" && now.revision < newest:`}},
	},
	{
		"a rebuilt cluster at the same address stays empty", "members", "differs-from-render",
		[]Edit{
			{"fleet/member/identity.go", "case was.uid != now.uid:\n", "case was.uid != now.uid && newest == 0:\n"},
			{"fleet/member/identity.go", "now.revision != 0 && now.revision < newest:", `now.uid == "" && now.revision < newest:`},
		},
	},
	{
		"the content of a restored cluster counts as outdated", "load-and-memory", "differs-from-render",
		[]Edit{{"fleet/member/store.go", "setBack = version < s.seenAt\n", "setBack = version < s.seenAt && version == 0\n"}},
	},
	{
		"a restored hub has no report written any more", "replicas", "stuck",
		[]Edit{{
			"fleet/propagation/records.go",
			"(how == told && numberOf(before.version) > numberOf(k.version))",
			"numberOf(before.version) > numberOf(k.version)",
		}},
	},
	{
		"an edit during a break of the watch is never noticed", "load-and-memory", "differs-from-render",
		[]Edit{{
			"fleet/propagation/source_view.go",
			"if was := before[name]; was == nil || was.GetResourceVersion() != u.GetResourceVersion() {", "if was := before[name]; was == nil || u == nil {",
		}},
	},
	{
		"a deletion during a break of the watch is never noticed", "load-and-memory", "differs-from-render",
		[]Edit{{
			"fleet/propagation/source_view.go",
			"if _, ok := items[name]; !ok {\n\t\t\tv.changed(name, false)",
			"if _, ok := items[name]; !ok && first {\n\t\t\tv.changed(name, false)",
		}},
	},
	{
		"a copy that is deleted on a cluster during a break of the watch is never restored", "load-and-memory", "differs-from-render",
		[]Edit{{
			"fleet/member/store.go",
			"if r.round != s.listing.round && r.version <= listedAt {",
			"if r.round != s.listing.round && r.version <= listedAt && listedAt == 0 {",
		}},
	},
	{
		"a copy that is changed on a cluster during a break of the watch is never corrected", "load-and-memory", "differs-from-render",
		[]Edit{{"fleet/member/store.go", "told := s.listing.pending\n", "told := map[types.NamespacedName]difference{}\n"}},
	},
	{
		"a watch of a cluster whose version has expired is never begun anew", "members", "differs-from-render",
		[]Edit{{"fleet/member/resume.go", "case !unreachable(err):\n\t\treturn nil, words\n", ""}},
	},
	{
		"a field that another writer changes on a cluster stays changed", "decide-apply-report", "differs-from-render",
		[]Edit{
			{"fleet/propagation/drift.go", "case r.asWritten(have):\n\t\treturn nil\n", "case r != nil:\n\t\treturn nil\n"},
			{
				"fleet/propagation/drift.go",
				`return r.asWritten(have) && (r.baseline() != "" || (r.state == refractv1alpha1.StateSynced && r.hash == hash))`, "return have.Hash == hash",
			},
		},
	},
	{
		"a copy that is deleted on a cluster is not restored", "decide-apply-report", "differs-from-render",
		[]Edit{{"fleet/member/reflect.go", "r.tell(e, difference{content: true})", "r.tell(e, difference{})"}},
	},
	{
		"a policy that changes while objects are decided about has no effect on them", "decide-apply-report", "differs-from-render",
		[]Edit{{
			"fleet/propagation/decider.go",
			"return now.edited != at.edited || first && now.rounds != at.rounds",
			"return first && now.rounds < at.rounds",
		}},
	},
	{
		"a change of an object while it is worked on is forgotten", "decide-apply-report", "differs-from-render",
		[]Edit{{"fleet/propagation/queue.go", "if asked != nowhere {\n", "if asked != nowhere && o.failed {\n"}},
	},

	// Fields and Jobs that clusters assign.
	{
		"no Service reaches a cluster, because it has the address of the hub's Service", "real-clusters 1", "stuck",
		[]Edit{{
			"fleet/policy/local/table.go", "field(\"/spec/clusterIP\", unowned).keeping(isNone),\n\t\tfield(\"/spec/clusterIPs\", unowned).keeping(isNone),\n", "",
		}},
	},
	{
		"no Job reaches a cluster, because it has the selector of the hub's Job", "real-clusters 1", "stuck",
		[]Edit{{"fleet/policy/local/table.go", "return spec[\"manualSelector\"] != true\n", "return spec[\"manualSelector\"] == true\n"}},
	},
	{
		"a Deployment that an autoscaler scales is scaled back", "real-clusters 4", "differs-from-render",
		[]Edit{{
			"fleet/propagation/scalers.go",
			"return append(slices.Clip(t.variant.left), replicasField)",
			"return slices.Clip(t.variant.left)",
		}},
	},
	{
		"replicas that are to be retained are scaled back", "other-writers", "differs-from-render",
		[]Edit{{"fleet/propagation/left.go", "if keeping.RetainReplicas && !slices.", "if keeping.RetainReplicas && slices."}},
	},
	{
		"a Job runs again when its cluster has removed it", "real-clusters 6", "differs-from-render",
		[]Edit{{"fleet/propagation/jobs.go", "return r.run != nil\n", "return r.run != nil && key.Name == \"\"\n"}},
	},
	{
		"a Job that is deleted and created again does not run again", "real-clusters 6", "differs-from-render",
		[]Edit{{"fleet/propagation/jobs.go", "&& have.Source != a.sourceOf(key, p)\n", "&& have.Source == \"\"\n"}},
	},
	{
		"a cluster that serves an older version of a type gets no copies of it", "real-clusters 8", "differs-from-render",
		[]Edit{{"fleet/propagation/versions.go", "if at <= 0 {\n\t\treturn \"\"", "if at != 0 || at == 0 {\n\t\treturn \"\""}},
	},
	{
		"an object with the annotation dry-run is written to the clusters", "deletions", "unreleased-content",
		[]Edit{{"fleet/propagation/applier.go", "case p.dryRun && !leaving:\n", "case p.dryRun && leaving:\n"}},
	},

	// Failures that must not affect other objects.
	{
		"an API server that answers writes of one type with status 500 has the copies of all others wait", "fails-closed 5", "stuck",
		[]Edit{{"fleet/member/breaker.go", "default:\n\t\treturn ofType\n", "default:\n\t\treturn ofMember\n"}},
	},
	{
		"an object that is too large, or a webhook that fails, has the copies of all others wait", "fails-closed 5", "stuck",
		[]Edit{
			{"fleet/member/breaker.go", "isTooLarge(s.Message), isUntyped(s.Message):", "isUntyped(s.Message):"},
			{"fleet/member/breaker.go", "return ofObject // A webhook", "return ofMember // A webhook"},
			{"fleet/member/breaker.go", "case ofStorage(s.Message) != \"\":\n", "case ofStorage(s.Message) != \"\", isTooLarge(s.Message):\n"},
		},
	},
	{
		"each copy of a type that a cluster does not serve is tried again by itself every few seconds", "real-clusters 7", "too-many-requests",
		[]Edit{
			{"fleet/propagation/gates.go", "if g.count == 0 {\n\t\treturn nil\n", "if g.count >= 0 {\n\t\treturn nil\n"},
			{
				"fleet/propagation/applier.go", "n := a.gates.failed(key, t.variant.hash, f)\n\tif n == nil {",
				"n := a.gates.failed(key, t.variant.hash, f)\n\tif n != nil || f != nil {",
			},
			{
				"fleet/propagation/applier_outcome.go",
				"case reasonUnreachable:\n",
				"case reasonUnreachable, reasonTypeNotServed, reasonWebhookFailed, reasonBeingDeleted:\n",
			},
		},
	},
	{
		"a copy that cannot be written is tried again five times a second", "load-and-memory", "too-many-requests",
		[]Edit{
			{"fleet/propagation/applier_outcome.go", "after := a.retries.When(key)\n\tswitch", "after := firstRetry\n\tswitch"},
			{"fleet/propagation/applier_outcome.go", "after = a.failing.again(after)\n", "after = firstRetry\n"},
		},
	},
	{
		"Refract and another writer of a copy correct each other without an end", "other-writers", "too-many-requests",
		[]Edit{{
			"fleet/propagation/drift.go",
			"if f.count >= promptCorrections && now.Before(f.next) {",
			"if f.count >= promptCorrections && now.After(f.next.Add(lastCorrectionDelay)) {",
		}},
	},
	{
		"the report on an object whose namespace is gone is tried without an end", "fails-closed 4", "too-many-requests",
		[]Edit{{"fleet/propagation/report.go", "case p.gone && !found:\n", `case p.gone && !found && key.Namespace == "":` + "\n"}},
	},

	// Finalizers and approvals.
	{
		"a namespace of the hub cannot be deleted while Refract does not run", "fails-closed 4", "stuck",
		[]Edit{
			{
				"fleet/propagation/records.go", "return controllerutil.ContainsFinalizer(r.Object, refractv1alpha1.Finalizer) || slices.",
				"return !controllerutil.ContainsFinalizer(r.Object, refractv1alpha1.Finalizer) && slices.",
			},
			{
				"fleet/propagation/report.go", "api := p.gvr.GroupVersion().String()\n",
				"api := p.gvr.GroupVersion().String()\n\tcontrollerutil.AddFinalizer(r.Object, refractv1alpha1.Finalizer)\n",
			},
		},
	},
	{
		"a claim that its user has deleted waits for an approval after a restart", "deletions", "stuck",
		[]Edit{{
			"fleet/propagation/decider.go",
			"warned: k.status.Warnings, cause: causeIn(k.conditions),\n",
			"warned: k.status.Warnings,\n",
		}},
	},
	{
		"a cluster that is to leave never does", "installation", "stuck",
		[]Edit{{"fleet/member/reconciler.go", "free && (wasLeaving || is.standing == duplicate) {", "free && !wasLeaving && is.standing == duplicate {"}},
	},
	{
		"a cluster has left while it has copies still", "installation", "differs-from-render",
		[]Edit{
			{"fleet/member/reconciler.go", "case left > 0:\n", "case left > 0 && !known:\n"},
			{"fleet/member/reconciler.go", "case r.Set.Emptied != nil && !r.Set.Emptied(fc.Name):", "case r.Set.Emptied == nil:"},
		},
	},

	// Statuses.
	{
		"a report that meets a conflict is not written any more", "replicas", "wrong-status",
		[]Edit{{
			"fleet/propagation/report.go",
			"if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {\n\t\treturn reconcile.Result{RequeueAfter: settledDelay}, nil\n",
			"if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {\n\t\treturn reconcile.Result{}, nil\n",
		}},
	},
	{
		"the last word on an object is not reported", "decide-apply-report", "wrong-status",
		[]Edit{{"fleet/propagation/applier_outcome.go", "case settled:\n\t\ta.stations.reportAfter(key, settledDelay)\n", "case settled:\n"}},
	},
	{
		"a copy becomes ready, and the report does not change", "rollouts", "wrong-status",
		[]Edit{{"fleet/propagation/rollouts.go", "rep.reportReadiness(key, awaited)\n}", "_ = awaited\n}"}},
	},
	{
		"reports name a cluster that has left", "installation", "wrong-status",
		[]Edit{{
			"fleet/propagation/dispatcher.go",
			"if !d.members.Known(name) || d.members.Hidden(name) {",
			"if d.members.Hidden(name) {",
		}},
	},
	{
		"the status of a policy says Progressing forever", "placement", "wrong-status",
		[]Edit{{
			"fleet/propagation/report.go",
			"for _, ref := range rep.state.policiesOf(key) {\n\t\trep.reviewer.later(ref)\n\t}\n", "",
		}},
	},
	{
		"the status of a rollout policy counts rollouts that are over as under way", "rollouts", "wrong-status",
		[]Edit{{"fleet/propagation/review.go", "status.Phases.Complete++", "status.Phases.Progressing++"}},
	},

	// Injection.
	{
		"pods are recreated for a policy on injection though a budget forbids it", "injection", "restart-beyond-budget",
		[]Edit{{
			"injection/restart/apply.go", `err := w.client.SubResource("eviction").Create(ctx, target, &policyv1.Eviction{` + "\n" +
				"\t\tObjectMeta:    target.ObjectMeta,\n" +
				"\t\tDeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &t.victim.uid}},\n\t})\n",
			"_ = policyv1.Eviction{}\n\terr := w.client.Delete(ctx, target)\n",
		}},
	},
	{
		"all workloads of a namespace are restarted at once for a policy on injection", "injection", "restart-beyond-budget",
		[]Edit{{
			"injection/restart/decide.go", "return current < limit && len(st.rolling)+st.probing < int(st.rollout.MaxConcurrent)",
			"return current < limit || len(st.rolling)+st.probing >= 0",
		}},
	},
	{
		"pods are recreated for a policy on injection with the strategy Manual before it is approved", "injection", "restart-beyond-budget",
		[]Edit{{
			"injection/restart/decide.go", "case p.rollout.Strategy == refractv1beta1.RolloutManual && p.approved != p.hash:",
			`case p.rollout.Strategy == refractv1beta1.RolloutManual && p.approved != p.hash && p.hash == "":`,
		}},
	},
	{
		"restarts for a policy on injection go on after pods of a workload have not become ready", "injection", "restart-beyond-budget",
		[]Edit{{"injection/restart/decide.go", "st.closed, st.why = refractv1beta1.PhaseHalted, a.ref.String()+\": \"+a.message", "_ = st.closed"}},
	},
	{
		"the status of a policy on injection counts outdated pods of Jobs as pods that need an action", "injection", "policy-status",
		[]Edit{{"injection/restart/status.go", "st.counts.nextRun += int32(n)\n", "st.counts.manual += int32(n)\n"}},
	},
}
