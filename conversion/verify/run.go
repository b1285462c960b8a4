package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/generate"
)

// runner checks the laws with one object after the other, and collects the results.
type runner struct {
	ctx      context.Context //nolint:containedctx // Valid only during a call of Run.
	options  Options
	versions []*structural.Version
	laws     []law
	judge    judge
	report   *Report
	// mates are objects that can be converted, by source version and target version.
	mates map[string][]byte
	// seen has the index of each known violation of a law, by violationKey.
	seen map[string]int
	// shrunk is the number of shrunk violations of each law.
	shrunk map[Law]int
}

// newRunner checks the options, and sets defaults.
func newRunner(ctx context.Context, s Subject, o Options) (*runner, error) {
	if o.Definition == nil {
		return nil, errors.New("verifying: want a definition")
	}
	o.Objects = max(0, orDefault(o.Objects, defaultObjects))
	o.Leaves = orDefault(o.Leaves, defaultLeaves)
	o.Violations = max(1, orDefault(o.Violations, defaultViolations))
	r := &runner{
		ctx: ctx, options: o, mates: map[string][]byte{}, seen: map[string]int{}, shrunk: map[Law]int{},
		report: &Report{Seed: o.Seed},
		judge:  judge{subject: caller{ctx: ctx, subject: s}, knowledge: knowledge{of: o.Knowledge}},
	}
	for _, name := range o.Versions {
		v, err := o.Definition.Version(name)
		if err != nil {
			return nil, fmt.Errorf("verifying %s: %w", o.Definition.Name(), err)
		}
		r.versions = append(r.versions, v)
		if name == o.Hub {
			r.judge.hub = v
		}
		r.report.Versions = append(r.report.Versions, VersionResult{Version: name, Leaves: -1})
	}
	if r.judge.hub == nil || len(o.Versions) < 2 {
		return nil, fmt.Errorf("verifying %s: want two versions or more, the hub %q among them, got %q",
			o.Definition.Name(), o.Hub, o.Versions)
	}
	for _, l := range laws {
		if len(o.Laws) == 0 || slices.Contains(o.Laws, l.Name) {
			r.laws = append(r.laws, l)
			r.report.Laws = append(r.report.Laws, LawResult{Law: l.Name, Violations: []Violation{}})
		}
	}
	for _, name := range o.Laws {
		if !slices.ContainsFunc(laws, func(l law) bool { return l.Name == name }) {
			return nil, fmt.Errorf("verifying %s: unknown law %q", o.Definition.Name(), name)
		}
	}
	return r, nil
}

func orDefault(n, usual int) int {
	if n == 0 {
		return usual
	}
	return n
}

// run checks the recorded objects first. Then it checks generated objects, one of each version in turn, so that a time
// limit affects all versions.
func (r *runner) run() (*Report, error) {
	err := r.each(func(s *sample, of, i int) { r.checkObject(s, of, i) })
	if err != nil {
		return nil, err
	}
	return r.report, nil
}

// each calls do with each object, the index of its version, and its number among the objects of that version.
func (r *runner) each(do func(s *sample, of, i int)) error {
	numbers := make([]int, len(r.versions))
	take := func(s *sample, of int) {
		r.report.Objects++
		r.report.Versions[of].Objects++
		do(s, of, numbers[of])
		numbers[of]++
	}
	if err := r.recorded(take); err != nil {
		return err
	}
	pools := make([]*pool, len(r.versions))
	for i, v := range r.versions {
		pools[i] = r.newPool(v, i)
	}
	for left := true; left && r.ctx.Err() == nil && !r.done(); {
		left = false
		for i, p := range pools {
			if s := p.next(r.ctx); s != nil && r.ctx.Err() == nil {
				left = true
				take(s, i)
			}
		}
	}
	r.report.Complete = r.ctx.Err() == nil
	if r.report.Objects == 0 && r.report.Complete {
		last := r.report.Versions[0]
		return fmt.Errorf("verifying %s: of %d generated objects none is valid, give recorded ones; the last one of %s: %s",
			r.options.Definition.Name(), r.report.Refused, last.Version, last.Why)
	}
	return nil
}

// recorded calls take with each recorded object.
func (r *runner) recorded(take func(*sample, int)) error {
	for i, obj := range r.options.Recorded {
		v, err := r.options.Definition.VersionOf(obj)
		if err != nil {
			return fmt.Errorf("verifying %s: recorded object %d: %w", r.options.Definition.Name(), i, err)
		}
		of := slices.Index(r.options.Versions, v.Name())
		if of < 0 {
			return fmt.Errorf("verifying %s: recorded object %d is of version %s, which is not converted",
				r.options.Definition.Name(), i, v.Name())
		}
		s, why := newSample(v, obj)
		if s == nil {
			return fmt.Errorf("verifying %s: recorded object %d: %s", r.options.Definition.Name(), i, why)
		}
		if r.ctx.Err() != nil {
			return nil //nolint:nilerr // The report says that it is incomplete.
		}
		if s.recorded = i + 1; why != "" {
			r.report.Invalid = append(r.report.Invalid, Invalid{Recorded: i, Why: why})
		}
		take(s, of)
	}
	return nil
}

// done reports whether all laws have the maximum number of violations.
func (r *runner) done() bool {
	return !slices.ContainsFunc(r.report.Laws, func(l LawResult) bool { return len(l.Violations) < r.options.Violations })
}

// pool generates the objects of a version.
type pool struct {
	version *structural.Version
	options generate.ObjectOptions
	result  *VersionResult
	report  *Report
	src     generate.Source
	small   []map[string]any
	// left is the number of objects that next may still return. attempts is the remaining number of random objects to
	// try.
	left, attempts int
	// random is the number of valid random objects. large is the number of invalid large objects since the last valid
	// object.
	random, large int
}

// Large objects take much time and find few additional violations. So only the 16th, 32nd, 64th random object and so on
// are large. If largeTries large objects in a row are invalid, a small one takes their place.
const (
	firstLarge = 16
	room       = 4000
	largeTries = 8
)

// object generates a random object.
func (p *pool) object() map[string]any {
	o := p.options
	o.Room = -1
	if n := p.random + 1; n >= firstLarge && n&(n-1) == 0 && p.large < largeTries {
		o.Room = room
		p.large++
	}
	return generate.Object(p.src, p.version, o)
}

// attempts is the maximum number of random objects to try for each requested object.
const attempts = 10

// newPool returns the pool of a version. The pool returns small objects first.
func (r *runner) newPool(v *structural.Version, of int) *pool {
	p := &pool{
		version: v, result: &r.report.Versions[of], report: r.report,
		options: generate.ObjectOptions{Valid: true, Texts: r.texts()},
		src:     r.source(uint64(of)),
		left:    r.options.Objects, attempts: attempts * r.options.Objects,
	}
	if r.options.Definition.Namespaced() {
		p.options.Namespace = "default"
	}
	if r.options.Leaves >= 0 {
		p.small, p.result.Leaves = generate.Small(v, p.options, r.options.Leaves, r.options.Objects/2)
	}
	return p
}

// next returns the next valid object; nil after the last one. It also returns nil after the end of ctx: if the rules of
// a schema reject nearly all objects, it takes long to find a valid one.
func (p *pool) next(ctx context.Context) *sample {
	for p.left > 0 && ctx.Err() == nil {
		var obj map[string]any
		var random int
		switch {
		case len(p.small) > 0:
			obj, p.small = p.small[0], p.small[1:]
		case p.attempts > 0:
			p.attempts--
			obj, random = p.object(), 1
		default:
			return nil
		}
		s, why := newSample(p.version, obj)
		if s != nil && why == "" {
			p.left--
			if p.random += random; random > 0 {
				p.large = 0
			}
			return s
		}
		p.report.Refused++
		p.result.Refused++
		p.result.Why = why
	}
	return nil
}

// checkObject checks all laws with one object.
func (r *runner) checkObject(s *sample, of, i int) {
	lacks := ""
	defer func() {
		if v := &r.report.Versions[of]; lacks != "" {
			v.Unconverted++
			v.Lacks = cmp.Or(v.Lacks, lacks)
		}
	}()
	for _, t := range r.trials(s, of, i) {
		for l := range r.laws {
			if r.ctx.Err() != nil {
				return
			}
			if s.recorded > 0 || len(r.report.Laws[l].Violations) < r.options.Violations {
				r.check(&r.laws[l], &r.report.Laws[l], t, uint64(of), uint64(i))
			}
		}
		if t.out.document != nil && lacks == "" && unconverted(t.out.document) {
			lacks = fmt.Sprintf("%s: %s", t.to.Name(), memberOf(memberOf(t.out.document.object["metadata"], "annotations"), convert.Unconverted))
		}
		if t.out.document != nil && r.mates[t.version.Name()+t.to.Name()] == nil {
			r.mates[t.version.Name()+t.to.Name()] = s.text
		}
	}
}

// trials returns the conversions to check with an object. An object of the hub is converted to each spoke. An object of
// a spoke is converted to the hub and to one other spoke, which changes from object to object. A recorded object is
// converted to all versions.
func (r *runner) trials(s *sample, of, i int) []*trial {
	var others []int
	for j := range r.versions {
		if j != of {
			others = append(others, j)
		}
	}
	var out []*trial
	for n, j := range others {
		name := r.versions[j].Name()
		if s.version.Name() != r.options.Hub && name != r.options.Hub && n != i%len(others) && s.recorded == 0 {
			continue
		}
		t := &trial{sample: s, to: r.versions[j], mate: r.mates[s.version.Name()+name]}
		if len(others) > 1 {
			t.over = r.versions[others[(n+1+i%(len(others)-1))%len(others)]]
		}
		out = append(out, t)
	}
	return out
}

// check checks a law with a trial. If the law has edits and does not apply to them, check tries other edits.
func (r *runner) check(l *law, result *LawResult, t *trial, of, i uint64) {
	if l.about != nil && !l.about(t.version.Name() == r.options.Hub) {
		return
	}
	var edits []generate.Edit
	for try := range max(1, l.tries) {
		if l.plan != nil {
			edits = l.plan(&r.judge, t, r.source(of, i, uint64(try)))
		}
		v, checked := l.judge(&r.judge, t, edits)
		if r.ctx.Err() != nil {
			return // The end of ctx may be the reason for the violation.
		}
		if !checked {
			continue
		}
		result.Checks++
		r.report.Checks++
		if v != nil {
			r.record(l, result, t, edits, v)
		}
		return
	}
}

// record shrinks a new violation and adds it to the result, unless the result already has enough violations. If the
// object is a recorded one, record adds its index to the new violation, or to a known violation with the same key.
func (r *runner) record(l *law, result *LawResult, t *trial, edits []generate.Edit, v *Violation) {
	first := violationKey(l, t, v)
	at, known := r.seen[first]
	if !known {
		if len(result.Violations) >= r.options.Violations {
			return
		}
		v = r.shrink(l, t, edits, v)
		v.Law = l.Name
		last := violationKey(l, t, v)
		if at, known = r.seen[last]; !known {
			at = len(result.Violations)
			result.Violations = append(result.Violations, *v)
		}
		r.seen[first], r.seen[last] = at, at
	}
	if n := t.recorded - 1; n >= 0 && !slices.Contains(result.Violations[at].Recorded, n) {
		result.Violations[at].Recorded = append(result.Violations[at].Recorded, n)
	}
}

// violationKey returns a key that is equal for the same violation by different objects. It contains the rule or, if no
// rule is known, the place.
func violationKey(l *law, t *trial, v *Violation) string {
	if v.Rule != "" {
		return fmt.Sprintf("%s %s", l.Name, v.Rule)
	}
	place := indexes.ReplaceAllString(v.Path, each)
	for _, version := range []*structural.Version{t.version, t.to} {
		if found, ok := general(version.Structural(), v.Path); ok {
			place = found
			break
		}
	}
	return fmt.Sprintf("%s %s %s %s", l.Name, v.From, v.To, place)
}

// source returns the random source for the object or trial with these numbers.
func (r *runner) source(parts ...uint64) generate.Source {
	seed := r.options.Seed
	for _, p := range parts {
		seed = generate.Seeded(seed + p).Uint64()
	}
	return generate.Seeded(seed)
}
