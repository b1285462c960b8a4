package verify

import (
	"maps"
	"regexp"
	"slices"
	"strconv"

	"refract.dev/conversion/structural/generate"
)

var indexes = regexp.MustCompile(`\[\d+\]`)

// mostShrinking limits the work for shrinking one violation. It is the total size in bytes of all tried objects; each
// attempt counts perAttempt bytes in addition, for its fixed cost. Shrinking the first violation of a law takes one or
// two seconds, and each further one a fraction of this time.
const (
	mostShrinking = 4 << 20
	perAttempt    = 500
)

// shrink returns a violation with a smaller object and smaller edits, if these violate the law in the same way.
func (r *runner) shrink(l *law, t *trial, edits []generate.Edit, v *Violation) *Violation {
	best, object := v, t.raw
	left := mostShrinking / (1 + r.shrunk[l.Name])
	r.shrunk[l.Name]++
	key := violationKey(l, t, v)
	fails := func(together map[string]any) bool {
		obj, ok := together["object"].(map[string]any)
		if !ok {
			return false
		}
		s, _ := newSample(t.version, obj)
		if s == nil || t.invalid == "" && s.invalid != "" {
			return false
		}
		s.recorded = t.recorded
		smaller := &trial{sample: s, to: t.to, over: t.over, mate: t.mate}
		found, _ := l.judge(&r.judge, smaller, fitted(r.judge.editable(l, smaller), unpack(edits, together["edits"])))
		if left -= len(s.text) + perAttempt; smaller.out.document != nil {
			left -= len(smaller.out.document.text())
		}
		if found == nil || (found.Path == "") != (v.Path == "") {
			return false
		}
		if r.options.Violations > 1 && violationKey(l, smaller, found) != key {
			return false // This is another violation.
		}
		if l.Name == Valid && t.recorded > 0 && found.Message != v.Message {
			return false // The message must be true for the recorded object.
		}
		best, object = found, s.raw
		return true
	}
	generate.Shrink(map[string]any{"object": t.raw, "edits": pack(edits)}, fails, func() bool { return r.ctx.Err() != nil || left <= 0 })
	if best.Object == nil {
		best.Object = object
	}
	best.Object = maps.Clone(best.Object)
	return best
}

// pack returns the values of edits as an object, by index, so that Shrink can simplify them. It omits the paths.
func pack(edits []generate.Edit) map[string]any {
	out := map[string]any{}
	for i, e := range edits {
		value := map[string]any{}
		if !e.Removed {
			value["value"] = e.Value
		}
		out[strconv.Itoa(i)] = value
	}
	return out
}

// unpack returns the edits that Shrink has not removed.
func unpack(edits []generate.Edit, packed any) []generate.Edit {
	var out []generate.Edit
	for i, e := range edits {
		value, ok := memberOf(packed, strconv.Itoa(i)).(map[string]any)
		if !ok {
			continue
		}
		inner, set := value["value"]
		if e.Removed == set {
			continue
		}
		out = append(out, generate.Edit{Path: e.Path, Value: inner, Removed: e.Removed})
	}
	return out
}

// editable returns the object that the edits of a law change.
func (j *judge) editable(l *law, t *trial) map[string]any {
	if l.Name != Edit {
		return t.object
	}
	if _, err := j.subject.forward(t); err != nil || t.arrive() != nil {
		return nil
	}
	return t.decoded
}

// fitted adapts edits after Shrink has shortened lists. An index beyond the end of a list becomes the index of the last
// element.
func fitted(obj map[string]any, edits []generate.Edit) []generate.Edit {
	out := slices.Clone(edits)
	for n, e := range out {
		e.Path = slices.Clone(e.Path)
		at := any(obj)
		for i, step := range e.Path {
			list, ok := at.([]any)
			index, isIndex := step.(int)
			if !ok || !isIndex {
				key, _ := step.(string)
				at = memberOf(at, key)
				continue
			}
			last := len(list) - 1
			if i == len(e.Path)-1 && !e.Removed {
				last++ // An append.
			}
			if index = min(index, last); index < 0 {
				break
			}
			if e.Path[i] = index; index < len(list) {
				at = list[index]
			}
		}
		out[n] = e
	}
	return out
}
