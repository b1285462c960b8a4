// Package lint finds mistakes in a [manifest.Set]: in policies, in their references to clusters of the fleet, and in
// their effects on objects. It computes these effects with the engines of the controllers.
//
// One mistake is one finding. A mistake that concerns several objects and clusters in the same way is reported once,
// with all of them. Consequences of a reported mistake are not reported.
package lint

import (
	"fmt"
	"slices"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
)

// Severity is the severity of a finding.
type Severity string

// Severities.
const (
	// Error: a cluster does not get an object, or an API server rejects the object.
	Error Severity = "error"
	// Warning: the manifests work, but probably not as intended.
	Warning Severity = "warning"
)

// The apiVersion and kind in the JSON of a [Result].
const (
	APIVersion = "refract.dev/v1alpha1"
	Kind       = "LintResult"
)

// Result is the result of Lint.
type Result struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Findings are sorted by file, line and code. Without findings, the list is empty, not nil.
	Findings []Finding `json:"findings"`
	Summary  Summary   `json:"summary"`
}

// Summary counts the findings and the checked manifests.
type Summary struct {
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	// Objects, Policies and Clusters are the numbers of checked manifests.
	Objects  int `json:"objects"`
	Policies int `json:"policies"`
	Clusters int `json:"clusters"`
}

// Finding is one mistake. Fields that do not apply are empty.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	// Place is the place to fix the mistake; its line is that of Field.
	Place manifest.Place `json:"place"`
	// Also are further places of the same mistake, in the order of the input.
	Also []manifest.Place `json:"also,omitempty"`
	// Object or Policy is the manifest at Place. Both are nil if the manifest is not known.
	Object *render.Object `json:"object,omitempty"`
	Policy *render.Policy `json:"policy,omitempty"`
	// Field is the path of the field in that manifest.
	Field string `json:"field,omitempty"`
	// Path is the JSON pointer of the place in the objects that the policy applies to.
	Path string `json:"path,omitempty"`
	// Message describes the mistake, without a final period.
	Message string `json:"message"`
	// Hint is advice that takes the rest of the input into account.
	Hint string `json:"hint,omitempty"`
	// Objects are the affected objects: KIND NAMESPACE/NAME, in the order of the input. Empty if the finding concerns
	// only the manifest.
	Objects []string `json:"objects,omitempty"`
	// Clusters are the names of the clusters with affected copies, sorted.
	Clusters []string `json:"clusters,omitempty"`
}

// String returns PLACE: SEVERITY: CODE: MANIFEST: FIELD: MESSAGE, without empty parts.
func (f *Finding) String() string {
	return fmt.Sprintf("%s: %s: %s: %s", position(f.Place), f.Severity, f.Code, f.sentence())
}

// Lint finds mistakes in a set, and also lists the problems of reading the set. If a problem keeps a manifest out of
// the set, findings that the missing manifest could explain are not reported. Lint does not modify its arguments and
// does no I/O; equal arguments give equal results.
func Lint(set *manifest.Set, problems []*manifest.Problem) *Result {
	result, _ := Each(set, problems, func(*render.Outcome) error { return nil }) // Only the callback can return an error.
	return result
}

// Each is [Lint] with a callback. The callback gets every outcome, as described in [render.Options]. It gets nil before
// each check, and repeatedly during long ones. An error of the callback ends the lint, and Each returns it. After an
// error, the callback must always return an error.
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

// checks returns the checks, one for each kind of mistake, in the order from causes to consequences: a rule or an item
// with a finding is skipped by later checks.
func (f *fleet) checks(out *report) []func() {
	set, policies, clusters, outcomes, types, lost := f.set, f.policies, f.clusters, f.outcomes, f.types, f.lost
	overriding, placing, items := policies.overriding, policies.placing, policies.byAuthor
	injecting, pods := f.injections.policies, f.injections.pods
	return []func(){
		func() { checkMisread(set.Manifests, out) },
		// The labels, annotations and kinds of objects.
		func() { checkLabels(set.Objects, policies, lost, out) },
		func() { checkNatives(outcomes, out) },
		func() { checkAnnotations(set.Objects, out) },
		func() { checkAssigned(set, out) },
		func() { checkForeign(set.Objects, out) },
		// The choice of clusters by policies.
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
		// The effects of override policies.
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
		// The effects of injection policies.
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
