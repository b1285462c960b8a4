// Package lint looks for mistakes in a [manifest.Set]: in policies, in what they
// say of the fleet's clusters, and in what they do to its objects, for which it
// has them evaluated by the engines that the controllers use.
//
// One mistake is one finding. What is wrong in the same way for many objects and
// clusters is said once, of all of them; what is only a consequence of something
// that is reported is not reported again.
package lint

import (
	"fmt"
	"slices"

	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
)

// Severity says how bad a finding is.
type Severity string

// Severities.
const (
	// Error: some cluster does not get an object, or an API server refuses it.
	Error Severity = "error"
	// Warning: it works, and most likely not as it was meant.
	Warning Severity = "warning"
)

// The type of a [Result], as it stands in JSON.
const (
	APIVersion = "refract.dev/v1alpha1"
	Kind       = "LintResult"
)

// Result is what was found, and in how much.
type Result struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Findings are sorted by file, line and code. None is an empty list.
	Findings []Finding `json:"findings"`
	Summary  Summary   `json:"summary"`
}

// Summary counts.
type Summary struct {
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	// Objects, Policies and Clusters are those that were looked at.
	Objects  int `json:"objects"`
	Policies int `json:"policies"`
	Clusters int `json:"clusters"`
}

// Finding is one mistake. What does not apply is empty.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	// Place is where the mistake is to be mended; its line is that of Field.
	Place manifest.Place `json:"place"`
	// Also are further places of the same mistake, in the order of the input.
	Also []manifest.Place `json:"also,omitempty"`
	// Object or Policy is the manifest at Place; neither if that cannot be told.
	Object *render.Object `json:"object,omitempty"`
	Policy *render.Policy `json:"policy,omitempty"`
	// Field is the path of the field in that manifest.
	Field string `json:"field,omitempty"`
	// Path is the JSON pointer of the place concerned in the objects that the
	// policy acts on.
	Path string `json:"path,omitempty"`
	// Message is what is wrong, without an end mark.
	Message string `json:"message"`
	// Hint is advice that comes from having looked.
	Hint string `json:"hint,omitempty"`
	// Objects are the names of those that are affected: KIND NAMESPACE/NAME, in the
	// order of the input. None when the finding is about the manifest alone.
	Objects []string `json:"objects,omitempty"`
	// Clusters are the names of those on which they are affected, sorted.
	Clusters []string `json:"clusters,omitempty"`
}

// String returns PLACE: SEVERITY: CODE: MANIFEST: FIELD: MESSAGE, without what is
// empty.
func (f *Finding) String() string {
	return fmt.Sprintf("%s: %s: %s: %s", position(f.Place), f.Severity, f.Code, f.sentence())
}

// Lint looks for mistakes in what was read, and lists the problems of reading it,
// too. Where a problem keeps a manifest out of the set, nothing is reported that
// the manifest could explain. Lint modifies neither of its arguments and does no
// I/O; equal arguments give equal results.
func Lint(set *manifest.Set, problems []*manifest.Problem) *Result {
	result, _ := Each(set, problems, func(*render.Outcome) error { return nil }) // Which is the only error there is.
	return result
}

// Each is [Lint] that is told what becomes of each object, as [render.Options] has it,
// and is asked with nil before each kind of mistake, and before each step of what takes long:
// an error ends it, and is returned. Whoever has given one once gives it again.
func Each(set *manifest.Set, problems []*manifest.Problem, each func(*render.Outcome) error) (*Result, error) {
	r := &report{}
	r.problems(problems)
	f, err := gather(set, problems, each)
	if err != nil {
		return nil, err
	}
	for _, check := range f.checks(r) {
		if err := each(nil); err != nil {
			return nil, err
		}
		check()
	}
	if err := each(nil); err != nil {
		return nil, err
	}
	result := &Result{APIVersion: APIVersion, Kind: Kind, Findings: r.sorted()}
	result.Summary = Summary{
		Objects: len(set.Objects) - len(set.InjectionPolicies),
		Policies: len(f.policies.overriding) + len(f.policies.placing) + len(set.InjectionPolicies) +
			len(set.RolloutPolicies) + len(set.ClusterRolloutPolicies),
		Clusters: len(set.Clusters),
	}
	for i := range result.Findings {
		if result.Findings[i].Severity == Error {
			result.Summary.Errors++
		} else {
			result.Summary.Warnings++
		}
	}
	return result, nil
}

// Has reports whether there is a finding of this severity or a worse one.
func (r *Result) Has(least Severity) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return least == Warning || f.Severity == Error })
}

// checks look for one kind of mistake each. They are in the order from cause to
// consequence: a rule or an item of which one has found something is left alone by
// those after it.
func (f *fleet) checks(out *report) []func() {
	set, policies, clusters, outcomes, types, lost := f.set, f.policies, f.clusters, f.outcomes, f.types, f.lost
	overriding, placing, items := policies.overriding, policies.placing, policies.byAuthor
	injecting, pods := f.injections.policies, f.injections.pods
	return []func(){
		func() { checkMisread(set.Manifests, out) },
		// What objects ask for.
		func() { checkLabels(set.Objects, policies, lost, out) },
		func() { checkNatives(outcomes, out) },
		func() { checkAnnotations(set.Objects, out) },
		func() { checkAssigned(set, out) },
		func() { checkForeign(set.Objects, out) },
		// How policies choose clusters.
		func() { checkKnown(clusters, policies, lost, out) },
		func() { checkPlacing(placing, clusters, lost, out) },
		func() { checkTaints(set.Clusters, placing, clusters, lost, out) },
		func() { checkDivided(outcomes, policies.placingBy, clusters, types, out) },
		func() { checkScaled(outcomes, policies.placingBy, out) },
		func() { checkLeftBehind(set.Objects, out) },
		func() { checkInert(placing, out) },
		func() { checkIgnored(overriding, out) },
		func() { checkTargets(overriding, clusters, lost, out) },
		func() { checkRollouts(set, clusters, lost, f.ended, out) },
		// What override policies do.
		func() { checkEmpty(overriding, out) },
		func() { checkReach(outcomes, policies, clusters, lost, out) },
		func() { checkFailures(overriding, out) },
		func() { checkValues(outcomes, types, items, out) },
		func() { checkDigests(outcomes, items, out) },
		func() { checkDuplicates(overriding, out) },
		func() { checkAbsent(overriding, lost, out) },
		func() { checkCreated(overriding, out) },
		func() { checkShares(outcomes, types, items, out) },
		func() { checkShadows(overriding, f.ended, out) },
		func() { checkBoth(outcomes, items, f.ended, out) },
		func() { checkEffect(overriding, lost, out) },
		func() { checkIndexes(overriding, out) },
		func() { checkUsed(set.Objects, policies, lost, out) },
		// What is injected.
		func() { checkNotes(set.Notes, out) },
		func() { checkDoubtful(f.injections, out) },
		func() { checkServices(set.Objects, injecting, lost, out) },
		func() { checkSelected(f.injections, lost, out) },
		func() { checkReferences(set.Objects, injecting, lost, out) },
		func() { checkOverlaps(injecting, out) },
		func() { checkConflicts(f.injections, out) },
		func() { checkTooLate(pods, out) },
	}
}
