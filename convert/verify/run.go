package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"refract.dev/convert"
	"refract.dev/structural"
	"refract.dev/structural/generate"
)

// runner checks laws with one object after the other, and keeps count of what came of it.
type runner struct {
	ctx      context.Context //nolint:containedctx // It lives as long as a call of Run.
	options  Options
	versions []*structural.Version
	laws     []law
	judge    judge
	report   *Report
	// mates are objects that can be converted, by the name of their version.
	mates map[string][]byte
	// seen are violations that were found, apart from their objects: their places among
	// those of their law.
	seen map[string]int
	// shrunk is how many times each law's violations were made smaller.
	shrunk map[Law]int
}

// newRunner checks options, and fills in what they leave open.
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
			return nil, fmt.Errorf("verifying %s: there is no law %q", o.Definition.Name(), name)
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

// run checks the recorded objects first, and then generated ones, of each version in
// turn: so that if the time is not sufficient all of them have had some.
func (r *runner) run() (*Report, error) {
	err := r.each(func(s *sample, of, i int) { r.checkObject(s, of, i) })
	if err != nil {
		return nil, err
	}
	return r.report, nil
}

// each calls do with each object, with the index of its version, and with its number
// among those of the version.
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

// recorded takes the recorded objects.
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
			return nil //nolint:nilerr // The report says that it is not complete.
		}
		if s.recorded = i + 1; why != "" {
			r.report.Invalid = append(r.report.Invalid, Invalid{Recorded: i, Why: why})
		}
		take(s, of)
	}
	return nil
}

// done is whether all laws have as many violations as are wanted.
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
	// left is how many are wanted, attempts how many may be made at random for that.
	left, attempts int
	// random is how many were made at random and are valid, and large how many large ones
	// were made in vain since.
	random, large int
}

// Large objects take long, and show little that small ones do not: the 16th, 32nd, 64th
// object made at random and so on is one, if it is valid within some tries.
const (
	firstLarge = 16
	room       = 4000
	largeTries = 8
)

// object makes one at random.
func (p *pool) object() map[string]any {
	o := p.options
	o.Room = -1
	if n := p.random + 1; n >= firstLarge && n&(n-1) == 0 && p.large < largeTries {
		o.Room = room
		p.large++
	}
	return generate.Object(p.src, p.version, o)
}

// attempts is how many random objects are made at most for one that is wanted.
const attempts = 10

// newPool returns the objects to generate of a version, small ones first.
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

// next returns the next valid object; nil if there is none any more, or the time is over: with
// a schema whose rules refuse nearly all of them, that is long before a valid one is found.
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

// checkObject checks all laws with an object.
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

// trials returns the ways that an object goes: one of the hub to all spokes, one of a spoke
// to the hub and to one other spoke, by turns, and a recorded one to all.
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

// check checks a law with a trial. One that needs edits gets others if it has nothing to say
// about these.
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
			return // A conversion may have failed for that.
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

// record makes a violation smaller and adds it, unless it is there or there are enough. One
// by a recorded object names that in any case.
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

// violationKey returns what violations have in common that are the same but for their objects: the
// rule, or else the place.
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

// source returns a source for a place in the order of objects.
func (r *runner) source(parts ...uint64) generate.Source {
	seed := r.options.Seed
	for _, p := range parts {
		seed = generate.Seeded(seed + p).Uint64()
	}
	return generate.Seeded(seed)
}
