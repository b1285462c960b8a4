package policytest

import (
	"slices"
	"strings"

	"refract.dev/fleet/offline/manifest"
)

// FindFunc finds an object of a set by the reference in a test. The hint is advice for an error; it may be empty.
type FindFunc func(set *manifest.Set, reference string) (object *manifest.Object, hint string, err error)

// Run runs the tests. Inputs that several tests name are read and evaluated once.
//
// Mistakes in the inputs, and references of the tests to missing objects and clusters, are problems. With problems
// there is no result.
func Run(tests []Test, find FindFunc) (*Result, []*manifest.Problem) {
	r := &runner{
		find:     find,
		fleets:   map[string]*fleet{},
		coverage: newCoverage(),
		result:   &Result{APIVersion: apiVersion, Kind: resultKind, Cases: []Case{}},
	}
	for i := range tests {
		r.test(&tests[i])
	}
	if len(r.problems) > 0 {
		return nil, r.problems
	}
	r.result.Coverage = r.coverage.result()
	return r.result, nil
}

type runner struct {
	find     FindFunc
	fleets   map[string]*fleet // By the inputs.
	coverage *coverage
	problems []*manifest.Problem
	result   *Result
}

func (r *runner) test(t *Test) {
	key := strings.Join(t.Inputs, "\x00")
	f, ok := r.fleets[key]
	if !ok {
		f = newFleet(t.Inputs)
		r.fleets[key] = f
		r.report(f.problems)
		r.coverage.policies(f.set)
		r.coverage.used(f.evaluation)
	}
	if len(f.problems) > 0 {
		return
	}
	for i := range t.cases {
		c := &t.cases[i]
		r.result.Cases = append(r.result.Cases, r.testCase(t, c, f.arrivals(c, r.find)))
	}
	r.problems = append(r.problems, t.doc.problems...)
	t.doc.problems = nil
}

// report records the problems of inputs, each once: inputs may share files.
func (r *runner) report(problems []*manifest.Problem) {
	for _, p := range problems {
		if !slices.ContainsFunc(r.problems, func(q *manifest.Problem) bool { return *p == *q }) {
			r.problems = append(r.problems, p)
		}
	}
}

// testCase checks the object of a case on each of its clusters.
func (r *runner) testCase(t *Test, c *testCase, arrivals []*arrival) Case {
	out := Case{File: t.Place.File, Line: c.at.line, Test: t.Name, Name: c.name, Failures: []Failure{}}
	proposals := make([]proposal, len(c.expect.checks)+1)
	for _, a := range arrivals {
		r.coverage.tested(a)
		out.Failures = append(out.Failures, c.expect.judge(a, proposals)...)
	}
	out.Passed = len(out.Failures) == 0
	for i := range proposals {
		if p := &proposals[i]; p.needed && !p.refused {
			r.result.proposals = append(r.result.proposals, *p)
		}
	}
	return out
}

// judge returns the failures. For each check it also records the value for which the check would pass. The proposal for
// the error is the last one.
func (x *expectations) judge(got *arrival, proposals []proposal) []Failure {
	problem, failed := got.problem()
	last := &proposals[len(x.checks)]
	switch {
	case x.failure != nil:
		last.note(&x.failure.at, problem, failed, failed && !x.failure.in(problem))
		return slices.Concat(x.failure.judge(got, problem, failed), x.judgeWarnings(got))
	case failed:
		return []Failure{{Check: "error", Cluster: got.cluster.Name, Line: x.at.line, Message: "fails: " + problem}}
	case x.absent != (got.variant == nil):
		return []Failure{{Check: "placed", Cluster: got.cluster.Name, Line: x.at.line, Message: got.misplaced()}}
	case x.absent:
		return nil
	}
	var failures []Failure
	for i := range x.checks {
		c := &x.checks[i]
		v := c.judge(&c.at, got)
		proposals[i].note(&c.at, v.now, v.known, len(v.failures) > 0)
		proposals[i].kind = got.kind()
		failures = append(failures, v.failures...)
	}
	return append(failures, x.judgeWarnings(got)...)
}

func (x *expectations) judgeWarnings(got *arrival) []Failure {
	if x.warnings == nil {
		return nil
	}
	return x.warnings.judge(got)
}

// judge returns a failure if the actual error is not the expected one.
func (p *pattern) judge(got *arrival, problem string, failed bool) []Failure {
	want := "an error with " + quote(p.text)
	switch {
	case !failed && got.variant == nil:
		return []Failure{got.failure(&p.at, "is not placed on the cluster, want "+want)}
	case !failed:
		return []Failure{got.failure(&p.at, "does not fail, want "+want)}
	case !p.in(problem):
		return []Failure{got.failure(&p.at, "fails with: "+problem+"; want "+want)}
	default:
		return nil
	}
}

// misplaced describes why an object is or is not on a cluster.
func (a *arrival) misplaced() string {
	by := "it has no propagation label"
	if p := a.outcome.Propagation; p != nil {
		by = p.String()
	}
	if a.variant != nil {
		return "is placed on the cluster, want no placement: " + by
	}
	return "is not placed on the cluster: " + by
}

// Passed reports whether all cases passed.
func (r *Result) Passed() bool {
	return !slices.ContainsFunc(r.Cases, func(c Case) bool { return !c.Passed })
}
