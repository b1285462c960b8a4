package verify

import (
	"context"
	"maps"

	"refract.dev/structural"
	"refract.dev/structural/generate"
)

// batch is how many objects are compared with one call of each subject.
const batch = 64

// Compare checks whether two subjects give the same: equal as JSON but for what means the
// same by o.Knowledge, the annotation refract.dev/complement, and metadata that an API
// server does not take from a webhook. Where one fails the other has to, with any message.
// The laws of o are not asked for: the report has one, [Agreement], whose violations have
// what theirs gives in Want, and what ours gives in Got.
//
// The end of ctx and the errors are those of [Run].
func Compare(ctx context.Context, ours, theirs Subject, o Options) (*Report, error) {
	o.Laws = nil
	r, err := newRunner(ctx, ours, o)
	if err != nil {
		return nil, err
	}
	r.laws = []law{{LawInfo: LawInfo{Name: Agreement}}}
	r.report.Laws = []LawResult{{Law: Agreement, Violations: []Violation{}}}
	c := &comparer{runner: r, theirs: theirs, waiting: map[string][]*trial{}}
	c.laws[0].judge = c.judge
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

// comparer collects objects until there are enough for one review.
type comparer struct {
	*runner

	theirs  Subject
	waiting map[string][]*trial
}

func (c *comparer) take(s *sample, of, i int) {
	for _, t := range c.trials(s, of, i) {
		way := t.version.Name() + " " + t.to.Name()
		if c.waiting[way] = append(c.waiting[way], t); len(c.waiting[way]) == batch {
			c.flush(way)
		}
	}
}

// flush compares what waits for one way.
func (c *comparer) flush(way string) {
	all := c.waiting[way]
	delete(c.waiting, way)
	if len(all) == 0 || c.done() {
		return
	}
	texts := make([][]byte, len(all))
	for i, t := range all {
		texts[i] = t.text
	}
	ours, theirs := convertEach(c.ctx, c.subject, texts, all[0].to), convertEach(c.ctx, c.theirs, texts, all[0].to)
	for i, t := range all {
		t.out, t.outErr = ours[i].document, ours[i].err
		t.theirs, t.theirsErr = theirs[i].document, theirs[i].err
		if c.ctx.Err() != nil || c.done() {
			return
		}
		c.hold(&c.laws[0], &c.report.Laws[0], t, 0, 0)
	}
}

// outcome is what became of an object.
type outcome struct {
	document *document
	err      error
}

// convertEach converts objects together or, since one that cannot be converted keeps the
// others from it, in ever smaller parts.
func convertEach(ctx context.Context, s Subject, texts [][]byte, to *structural.Version) []outcome {
	all, err := convertAll(ctx, s, texts, to)
	switch half := len(texts) / 2; {
	case err != nil && len(texts) == 1:
		return []outcome{{err: err}}
	case err != nil:
		return append(convertEach(ctx, s, texts[:half], to), convertEach(ctx, s, texts[half:], to)...)
	}
	out := make([]outcome, len(all))
	for i, text := range all {
		out[i].document, out[i].err = parse(text)
	}
	return out
}

// judge compares what both make of an object.
func (c *comparer) judge(r *runner, t *trial, _ []generate.Edit) (*Violation, bool) {
	ours, err := r.forward(t)
	if t.theirs == nil && t.theirsErr == nil {
		one := convertEach(r.ctx, c.theirs, [][]byte{t.text}, t.to)
		t.theirs, t.theirsErr = one[0].document, one[0].err
	}
	switch {
	case err != nil && t.theirsErr != nil:
		return nil, true
	case err != nil:
		return r.failed(t, err, "only theirs converts to %s, ours does not: %v", t.to.Name()), true
	case t.theirsErr != nil:
		return r.failed(t, t.theirsErr, "only ours converts to %s, theirs does not: %v", t.to.Name()), true
	}
	want, got := taken(t.theirs.object), taken(ours.object)
	d := differ{}.first("", want, got, strict)
	if d == nil {
		return nil, true
	}
	if x, y, ok := r.normalized(t.to, t.version, want, got); ok {
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
	v := r.broken(t, t.to, d.path, "%s, in %s", message, t.to.Name())
	v.Want, v.Got = shown(d.want), shown(d.got)
	return v, true
}

// taken returns an object with what an API server takes of it from a webhook, but
// for the annotation that keeps what a version cannot hold.
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
