package verify

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"refract.dev/structural"
	"refract.dev/structural/generate"
	"refract.dev/tree"
)

// broken returns a violation by a trial. The runner fills in the law, and the object
// unless the law is about another one.
func (r *runner) broken(t *trial, at *structural.Version, path, format string, args ...any) *Violation {
	other := t.version
	if at == t.version {
		other = t.to
	}
	v := &Violation{From: t.version.Name(), To: t.to.Name(), Path: path, Message: fmt.Sprintf(format, args...)}
	v.Rule = r.ruleAt(at, other, path)
	return v
}

// ruleAt returns the rule for a path of a version; empty if it is not known.
func (r *runner) ruleAt(version, other *structural.Version, path string) string {
	if r.options.Knowledge == nil || path == "" {
		return ""
	}
	return r.options.Knowledge.RuleAt(version.Name(), other.Name(), firstOf(path))
}

// failed returns a violation by a conversion that fails: at the place that its error begins
// with, if a version has that place.
func (r *runner) failed(t *trial, err error, format string, args ...any) *Violation {
	place, args := placeOf(err), append(args, err)
	versions := []*structural.Version{t.version, t.to}
	for _, v := range r.versions {
		if v.Name() == r.options.Hub { // Between two spokes it may be on the way.
			versions = append(versions, v)
		}
	}
	for _, at := range versions {
		if _, ok := general(at.Structural(), firstOf(place)); ok && place != "" {
			return r.broken(t, at, place, format, args...)
		}
	}
	return r.broken(t, t.version, "", format, args...)
}

// differs returns a violation that is a difference between objects of a version. The
// message is "subject verb", such as "spec.size is lost, after the way there and back".
func (r *runner) differs(t *trial, at *structural.Version, d *difference, when string) *Violation {
	subject := d.path
	if subject == "" {
		subject = "the object"
	}
	v := r.broken(t, at, d.path, "%s %v, %s", subject, d, when)
	v.Want, v.Got = shown(d.want), shown(d.got)
	return v
}

// roundTrip judges the way there and back: of the object, and of the object without
// metadata. Nothing can be kept for the latter, so that it shows whether what computes is
// inverse.
func (r *runner) roundTrip(t *trial, _ []generate.Edit) (*Violation, bool) {
	out, err := r.forward(t)
	if err != nil {
		return nil, false
	}
	back, err := r.backward(t)
	if err != nil {
		return r.failed(t, err, "converts to %s, but not back: %v", t.to.Name()), true
	}
	way := comparison{version: t.version, toward: []*structural.Version{t.to}, via: inside(t.to, out)}
	if d := r.compare(t.object, back.object, way); d != nil {
		return r.differs(t, t.version, d, "from "+t.version.Name()+" to "+t.to.Name()+" and back"), true
	}
	part := headless(t.object)
	if out, err = r.convertObject(part, t.to); err != nil {
		return nil, true // That is for the law of parts.
	}
	if back, err = r.convert(out.text(), t.version); err != nil {
		v := r.failed(t, err, "without metadata, converts to %s, but not back: %v", t.to.Name())
		v.Object = part
		return v, true
	}
	way.via, way.loses = inside(t.to, out), r.mayLose(t.version, t.to)
	if d := r.compare(part, back.object, way); d != nil {
		v := r.differs(t, t.version, d, "from "+t.version.Name()+" to "+t.to.Name()+" and back without metadata, so that no annotation helps")
		v.Object = part
		return v, true
	}
	return nil, true
}

// planPartial takes away what other managers may have applied, and metadata but, at times,
// labels.
func (*runner) planPartial(t *trial, src generate.Source) []generate.Edit {
	edits := generate.Parts(src, t.version, t.object)
	if src.Uint64()%4 == 0 {
		labels := map[string]any{"labels": map[string]any{"app": "web"}}
		return append(edits, generate.Edit{Path: []any{"metadata"}, Value: labels})
	}
	return append(edits, generate.Edit{Path: []any{"metadata"}, Removed: true})
}

// partial judges a part of an object by what becomes of the whole.
func (r *runner) partial(t *trial, edits []generate.Edit) (*Violation, bool) {
	whole, err := r.forward(t)
	if err != nil {
		return nil, false
	}
	part, ok := generate.Apply(t.object, edits)
	if metadata, there := part["metadata"]; there && memberOf(metadata, "labels") == none {
		return nil, false
	}
	if !ok || memberOf(part["metadata"], "name") != none || memberOf(part["metadata"], "generateName") != none {
		return nil, false
	}
	out, err := r.convertObject(part, t.to)
	if err != nil {
		v := r.failed(t, err, "the part cannot be converted to %s, unlike the whole: %v", t.to.Name())
		v.Object = part
		return v, true
	}
	if path, value := invented("", []any{whole.object}, headless(out.object)); path != "" {
		v := r.broken(t, t.to, path, "%s comes from nowhere: what the whole object converts to does not have it", path)
		v.Object, v.Got = part, value
		return v, true
	}
	if v := r.hollowed(t, part, out); v != nil {
		return v, true
	}
	annotations, _ := memberOf(part["metadata"], "annotations").(map[string]any)
	kept, _ := memberOf(out.object["metadata"], "annotations").(map[string]any)
	for _, key := range keysOf(kept) {
		if memberOf(annotations, key) == none {
			path := member("metadata.annotations", key)
			v := r.broken(t, t.to, path, "%s comes from nowhere: a part of an object keeps nothing", path)
			v.Object, v.Got = part, kept[key]
			return v, true
		}
	}
	return nil, true
}

// hollowed returns a violation if a part comes back with an object without values that it
// did not have, such as a spec of which it says nothing.
func (r *runner) hollowed(t *trial, part map[string]any, out *document) *Violation {
	back, err := r.convert(out.text(), t.version)
	if err != nil {
		return nil // That is for the round trips.
	}
	path := emptied("", headless(part), headless(back.object))
	if path == "" {
		return nil
	}
	v := r.broken(t, t.version, path, "%s comes from nowhere, when the part comes back from %s", path, t.to.Name())
	v.Object, v.Got = part, map[string]any{}
	return v
}

// emptied returns the first path at which there is nothing, and then an object without
// values.
func emptied(path string, was, is any) string {
	if was == none && hollow(is) {
		return path
	}
	members, _ := is.(map[string]any)
	for _, key := range keysOf(members) {
		if found := emptied(member(path, key), memberOf(was, key), members[key]); found != "" {
			return found
		}
	}
	return ""
}

// invented returns the first path at which a part has something, and the whole nothing. All
// elements of a list are one place: wholes are the values that the whole has there.
func invented(path string, wholes []any, part any) (string, any) {
	if len(wholes) == 0 {
		if hollow(part) {
			return "", nil // It is what was around something.
		}
		return path, part
	}
	switch p := part.(type) {
	case map[string]any:
		for _, key := range keysOf(p) {
			var inner []any
			for _, w := range wholes {
				if v := memberOf(w, key); v != none {
					inner = append(inner, v)
				}
			}
			if found, value := invented(member(path, key), inner, p[key]); found != "" {
				return found, value
			}
		}
	case []any:
		var inner []any
		for _, w := range wholes {
			list, _ := w.([]any)
			inner = append(inner, list...)
		}
		for i, v := range p {
			if found, value := invented(element(path, i), inner, v); found != "" {
				return found, value
			}
		}
	}
	return "", nil
}

// valid judges what comes out by the schema. Of a recorded object that is not valid itself
// it wants no more than that it converts: otherwise nobody could read it any more.
func (r *runner) valid(t *trial, _ []generate.Edit) (*Violation, bool) {
	_, err := r.forward(t)
	switch {
	case errors.Is(err, ErrContract):
		return nil, false
	case err != nil:
		return r.failed(t, err, "cannot be converted to %s: %v", t.to.Name()), true
	case t.invalid != "":
		return nil, true
	}
	if err := r.arrive(t); err != nil {
		return r.broken(t, t.to, "", "what comes out cannot be read: %v", err), true
	}
	for _, path := range t.pruned.Unknown {
		if !strings.HasPrefix(path, "metadata.") && !hollow(valueAt(t.out.object, path)) {
			return r.broken(t, t.to, path, "%s is unknown in %s, so it is pruned", path, t.to.Name()), true
		}
	}
	for _, c := range t.pruned.Changes {
		if path := pointed(c.Path, t.out.object); !strings.HasPrefix(path, "metadata") && !hollow(c.Before) {
			v := r.broken(t, t.to, path, "%s is %s, which is pruned in %s", path, brief(c.Before), t.to.Name())
			v.Got, v.Want = c.Before, c.After
			return v, true
		}
	}
	for _, f := range t.to.Validate(t.decoded) {
		return r.broken(t, t.to, f.Path, "is not valid in %s: %v", t.to.Name(), f), true
	}
	return nil, true
}

// placeOf returns the place that an error begins with, if it does.
func placeOf(err error) string {
	place, _, found := strings.Cut(err.Error(), ": ")
	if !found || strings.ContainsAny(place, " ") {
		return ""
	}
	return place
}

// pointed returns a JSON pointer into an object as a path.
func pointed(pointer string, obj map[string]any) string {
	var path string
	at := any(obj)
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		if list, ok := at.([]any); ok {
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(list) {
				return path
			}
			path, at = element(path, i), list[i]
			continue
		}
		path, at = member(path, token), memberOf(at, token)
	}
	return path
}

// defaulting judges what defaults change: those of the version before the conversion, and
// those of the other one if objects are stored in that.
func (r *runner) defaulting(t *trial, _ []generate.Edit) (*Violation, bool) {
	if _, err := r.forward(t); err != nil || r.arrive(t) != nil {
		return nil, false
	}
	if !tree.Equal(t.raw, t.object) {
		bare, err := r.convertObject(t.raw, t.to)
		if err != nil {
			return nil, false
		}
		want, err := decode(t.to, bare.object)
		if err != nil {
			return nil, false
		}
		way := comparison{version: t.to, toward: []*structural.Version{t.version}, via: inside(t.version, &document{object: t.object}), lenient: true}
		if d := r.compare(want, t.out.object, way); d != nil {
			return r.differs(t, t.to, d, "if the defaults of "+t.version.Name()+" are filled in before it is converted"), true
		}
	}
	if tree.Equal(t.out.object, t.decoded) {
		return nil, true
	}
	back, err := r.convertObject(t.decoded, t.version)
	if err != nil {
		return r.failed(t, err, "does not convert back from %s with the defaults of that: %v", t.to.Name()), true
	}
	way := comparison{version: t.version, toward: []*structural.Version{t.to}, via: inside(t.to, t.out), lenient: true}
	if d := r.compare(t.object, back.object, way); d != nil {
		return r.differs(t, t.version, d, "when it comes back from "+t.to.Name()+" with the defaults of that"), true
	}
	return nil, true
}

// triangle judges the way over a third version by the direct one.
func (r *runner) triangle(t *trial, _ []generate.Edit) (*Violation, bool) {
	if t.over == nil {
		return nil, false
	}
	if _, err := r.forward(t); err != nil || r.arrive(t) != nil {
		return nil, false
	}
	between, err := r.convert(t.text, t.over)
	if err != nil {
		return nil, false
	}
	out, err := r.convert(between.text(), t.to)
	if err != nil {
		return r.failed(t, err, "converts to %s, but not over %s: %v", t.to.Name(), t.over.Name()), true
	}
	way := comparison{version: t.to, toward: []*structural.Version{t.version, t.over}, via: inside(t.over, between)}
	if d := r.compare(t.decoded, out.object, way); d != nil {
		return r.differs(t, t.to, d, "if the way from "+t.version.Name()+" to "+t.to.Name()+" is over "+t.over.Name()), true
	}
	return nil, true
}

// repeats is how often the same object is converted alone.
const repeats = 3

// deterministic judges bytes.
func (r *runner) deterministic(t *trial, _ []generate.Edit) (*Violation, bool) {
	out, err := r.forward(t)
	if err != nil {
		return nil, false
	}
	given := bytes.Clone(t.text)
	for range repeats {
		again, err := r.convert(given, t.to)
		if !bytes.Equal(given, t.text) {
			return r.broken(t, t.version, "", "is modified when it is converted to %s", t.to.Name()), true
		}
		if v := r.unlike(t, out, again, err, "the second time"); v != nil {
			return v, true
		}
	}
	mate := t.mate
	if mate == nil {
		mate = t.text
	}
	all, err := convertAll(r.ctx, r.subject, [][]byte{mate, t.text, mate}, t.to)
	if err != nil {
		return r.unlike(t, out, nil, err, "between others"), true
	}
	among, err := parse(all[1])
	return r.unlike(t, out, among, err, "between others"), true
}

// unlike returns a violation if what comes out is not what came out before.
func (r *runner) unlike(t *trial, out, again *document, err error, when string) *Violation {
	switch {
	case errors.Is(err, ErrContract):
		return nil
	case err != nil:
		return r.broken(t, t.version, "", "converts to %s, but not %s: %v", t.to.Name(), when, err)
	case bytes.Equal(out.bytes, again.bytes):
		return nil
	}
	if d := (differ{}).first("", out.object, again.object, strict); d != nil {
		return r.differs(t, t.to, d, when+" that the same is converted")
	}
	return r.broken(t, t.to, "", "converts to %s in other bytes %s", t.to.Name(), when)
}

// The bounds of what may come out.
const (
	growth = 16
	extra  = 64 << 10
	trips  = 5
)

// bounded judges sizes.
func (r *runner) bounded(t *trial, _ []generate.Edit) (*Violation, bool) {
	out, err := r.forward(t)
	if err != nil {
		return nil, false
	}
	most := growth*len(t.text) + extra
	if len(out.text()) > most && weight(out.object, t.to.Structural()) > most {
		return r.broken(t, t.version, "", "%d bytes become %d in %s", len(t.text), len(out.text()), t.to.Name()), true
	}
	at, err := r.backward(t)
	if err != nil {
		return nil, false
	}
	last := t.text
	sizes := make([]string, 0, trips)
	for trip := 1; ; trip++ {
		if bytes.Equal(at.text(), last) || trip > 2 && len(at.text()) <= len(last) {
			return nil, true
		}
		if sizes = append(sizes, strconv.Itoa(len(at.text()))); trip == trips {
			break
		}
		last = at.text()
		there, err := r.convert(last, t.to)
		if err != nil {
			return nil, true
		}
		if at, err = r.convert(there.text(), t.version); err != nil {
			return nil, true
		}
	}
	return r.broken(t, t.version, "", "grows with each trip to %s and back: %d bytes become %s",
		t.to.Name(), len(t.text), strings.Join(sizes, ", ")), true
}

// weight returns how many bytes a value has, where of a list that its schema limits only the
// largest element counts: how long it can get was agreed on.
func weight(value any, s *schema.Structural) int {
	n := 0
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			n += len(key) + len(`"":,`) + weight(inner, below(s, key))
		}
	case []any:
		var items *schema.Structural
		limited := false
		if s != nil {
			items, limited = s.Items, s.ValueValidation != nil && s.ValueValidation.MaxItems != nil
		}
		for _, inner := range value {
			if one := weight(inner, items) + len(","); limited {
				n = max(n, one)
			} else {
				n += one
			}
		}
	default:
		return len(encode(value))
	}
	return n + len("{}")
}
