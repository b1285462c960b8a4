package verify

import (
	"context"
	"maps"

	"refract.dev/conversion/structural/generate"
)

// batch is the number of objects in one call of each subject.
const batch = 64

// Compare checks whether two subjects give the same results. The results must be equal as JSON. Some differences are
// ignored: values that are equivalent by o.Knowledge, the annotation refract.dev/complement, and metadata that an API
// server does not accept from a webhook. If one subject returns an error for an object, the other must return an error
// as well; the messages may differ. Compare ignores o.Laws. The report has the law [Agreement], with the value of
// theirs in Want and the value of ours in Got.
//
// The end of ctx and errors have the same effect as in [Run].
func Compare(ctx context.Context, ours, theirs Subject, o Options) (*Report, error) {
	o.Laws = nil
	r, err := newRunner(ctx, ours, o)
	if err != nil {
		return nil, err
	}
	r.laws = []law{{LawInfo: LawInfo{Name: Agreement}}}
	r.report.Laws = []LawResult{{Law: Agreement, Violations: []Violation{}}}
	c := &comparer{runner: r, theirs: caller{ctx: ctx, subject: theirs}, waiting: map[string][]*trial{}}
	r.laws[0].judge = c.judge
	if err := r.each(c.take); err != nil {
		return nil, err
	}
	for _, v := range r.versions {
		for _, to := range r.versions {
			c.flush(v.Name() + " " + to.Name())
		}
	}
	r.report.Complete = ctx.Err() == nil
	return r.report, nil
}

// comparer collects the objects for one call of each subject.
type comparer struct {
	runner  *runner
	theirs  caller
	waiting map[string][]*trial
}

// take adds an object to the waiting list of each conversion.
func (c *comparer) take(s *sample, of, i int) {
	for _, t := range c.runner.trials(s, of, i) {
		way := t.version.Name() + " " + t.to.Name()
		if c.waiting[way] = append(c.waiting[way], t); len(c.waiting[way]) == batch {
			c.flush(way)
		}
	}
}

// flush compares the results for the waiting objects of one conversion.
func (c *comparer) flush(way string) {
	all := c.waiting[way]
	delete(c.waiting, way)
	if len(all) == 0 || c.runner.done() {
		return
	}
	texts := make([][]byte, len(all))
	for i, t := range all {
		texts[i] = t.text
	}
	ours, theirs := c.runner.judge.subject.convertEach(texts, all[0].to), c.theirs.convertEach(texts, all[0].to)
	for i, t := range all {
		t.out, t.theirs = ours[i], theirs[i]
		if c.runner.ctx.Err() != nil || c.runner.done() {
			return
		}
		c.runner.check(&c.runner.laws[0], &c.runner.report.Laws[0], t, 0, 0)
	}
}

// judge compares the results of both subjects for one object.
func (c *comparer) judge(j *judge, t *trial, _ []generate.Edit) (*Violation, bool) {
	ours, err := j.subject.forward(t)
	if !t.theirs.isKnown() { // The trial is new, because the object was shrunk.
		t.theirs.document, t.theirs.err = c.theirs.convert(t.text, t.to)
	}
	switch {
	case err != nil && t.theirs.err != nil:
		return nil, true
	case err != nil:
		return j.failed(t, err, "only theirs converts to %s, ours does not: %v", t.to.Name()), true
	case t.theirs.err != nil:
		return j.failed(t, t.theirs.err, "only ours converts to %s, theirs does not: %v", t.to.Name()), true
	}
	want, got := taken(t.theirs.document.object), taken(ours.object)
	d := differ{}.first("", want, got, strict)
	if d == nil {
		return nil, true
	}
	if x, y, ok := j.knowledge.normalized(t.to, t.version, want, got); ok {
		d = differ{}.first("", x, y, strict)
	}
	if d == nil {
		return nil, true
	}
	var message string
	switch {
	case d.got == none:
		message = "only theirs has it"
	case d.want == none:
		message = "only ours has it"
	default:
		message = "ours is " + brief(d.got) + ", theirs " + brief(d.want)
	}
	v := j.broken(t, t.to, d.path, "%s, in %s", message, t.to.Name())
	v.Want, v.Got = shown(d.want), shown(d.got)
	return v, true
}

// taken returns an object without the annotation refract.dev/complement, and with only that metadata that an API server
// accepts from a webhook.
func taken(obj map[string]any) map[string]any {
	metadata := map[string]any{}
	for _, key := range []string{"labels", "annotations"} {
		if m, ok := memberOf(obj["metadata"], key).(map[string]any); ok && len(m) > 0 {
			metadata[key] = m
		}
	}
	obj = maps.Clone(obj)
	obj["metadata"] = metadata
	return bare(obj)
}
