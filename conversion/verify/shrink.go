package verify

import (
	"maps"
	"regexp"
	"slices"
	"strconv"

	"refract.dev/conversion/structural/generate"
)

var indexes = regexp.MustCompile(`\[\d+\]`)

// mostShrinking limits the work to shrink one violation: the total size in bytes of all tried objects, plus perAttempt
// bytes for the fixed cost of each attempt. This takes a second or two for the first violation of a law, and a fraction
// for each further one.
const (
	mostShrinking = 4 << 20
	perAttempt    = 500
)

// shrink returns the violation with the smallest object and edits that violate the law in the same way.
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
			return false // It is a different violation.
		}
		if l.Name == Valid && t.recorded > 0 && found.Message != v.Message {
			return false // The message has to be true for the real object.
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

// pack returns the values of edits by index, as an object that can be shrunk. The paths are not shrunk.
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

// unpack returns the remaining edits.
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

// editable returns the object that the edits for a law apply to.
func (j *judge) editable(l *law, t *trial) map[string]any {
	if l.Name != Edit {
		return t.object
	}
	if _, err := j.subject.forward(t); err != nil || t.arrive() != nil {
		return nil
	}
	return t.decoded
}

// fitted adapts edits to lists that may have become shorter: an index beyond the last element becomes the last element.
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
