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
	for _, look := range checks {
		if err := each(nil); err != nil {
			return nil, err
		}
		look(f, r)
	}
	if err := each(nil); err != nil {
		return nil, err
	}
	result := &Result{APIVersion: APIVersion, Kind: Kind, Findings: r.sorted()}
	result.Summary = Summary{
		Objects:  len(set.Objects) - len(set.InjectionPolicies),
		Policies: len(f.overriding) + len(f.placing) + len(set.InjectionPolicies),
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

// check looks for one kind of mistake.
type check func(*fleet, *report)

// checks are in the order from cause to consequence: a rule or an item of which
// one has found something is left alone by those after it.
var checks = []check{
	checkLabels,      // Objects that name policies wrongly.
	checkNatives,     // Objects that are none to be placed.
	checkAnnotations, // Objects that ask for what is not done.
	checkKnown,       // No clusters at all.
	checkPlacing,     // Propagation policies that choose clusters wrongly.
	checkTaints,      // Clusters that nothing reaches.
	checkDivided,     // Replicas that cannot be divided as asked for.
	checkInert,       // What propagation policies ask for in vain.
	checkIgnored,     // What overriders say in vain.
	checkTargets,     // Rules that choose clusters wrongly.
	checkEmpty,       // Rules that say nothing.
	checkReach,       // Rules that hold where no object is.
	checkFailures,    // Rules that fail.
	checkValues,      // Values that the type cannot hold.
	checkDuplicates,  // Rules that stand there twice.
	checkAbsent,      // Containers, variables, labels, annotations and arguments that nothing has.
	checkCreated,     // replace of what is not there.
	checkShares,      // Replicas that a propagation policy divides, and an override sets.
	checkShadows,     // Changes that later ones hide.
	checkBoth,        // Fields that both override policies set.
	checkEffect,      // Changes to what is there already.
	checkIndexes,     // Names given as numbers.
	checkUsed,        // Policies that nothing names.

	checkNotes,      // What is no longer written so.
	checkDoubtful,   // What is injected and presumably not meant.
	checkServices,   // Services that do not complete a policy.
	checkSelected,   // Policies that select no pod.
	checkReferences, // Secrets and ConfigMaps that are not there.
	checkOverlaps,   // Policies that cannot both hold.
	checkConflicts,  // Pods that say something else than policies do.
	checkTooLate,    // Variables that are injected behind those that use them.
}
