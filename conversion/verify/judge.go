package verify

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/generate"
	"refract.dev/tree"
)

// judge decides whether a trial violates a law. The decision does not depend on other trials. So a violation can be
// shrunk by trials with smaller objects.
type judge struct {
	subject   caller
	knowledge knowledge
	hub       *structural.Version
}

// broken returns the violation of a law by a trial. The runner adds the law. It also adds the object, unless the caller
// of broken sets another one.
func (j *judge) broken(t *trial, at *structural.Version, path, format string, args ...any) *Violation {
	other := t.version
	if at == t.version {
		other = t.to
	}
	v := &Violation{From: t.version.Name(), To: t.to.Name(), Path: path, Message: fmt.Sprintf(format, args...)}
	v.Rule = j.knowledge.ruleAt(at, other, path)
	return v
}

// failed returns a violation for a failed conversion. Its path is the place at the beginning of the error, if one of
// the versions has this place.
func (j *judge) failed(t *trial, err error, format string, args ...any) *Violation {
	place, args := placeOf(err), append(args, err)
	for _, at := range []*structural.Version{t.version, t.to, j.hub} { // A conversion between two spokes goes through the hub.
		if _, ok := general(at.Structural(), firstOf(place)); ok && place != "" {
			return j.broken(t, at, place, format, args...)
		}
	}
	return j.broken(t, t.version, "", format, args...)
}

// differs returns a violation for a difference between two objects of a version. The message begins with the path and a
// verb, such as "spec.size is lost".
func (j *judge) differs(t *trial, at *structural.Version, d *difference, when string) *Violation {
	subject := d.path
	if subject == "" {
		subject = "the object"
	}
	v := j.broken(t, at, d.path, "%s %v, %s", subject, d, when)
	v.Want, v.Got = shown(d.want), shown(d.got)
	return v
}

// roundTrip checks that an object comes back from the other version, with and without its metadata. Without metadata
// there is no annotation, so functions that are not inverses cannot hide behind kept values.
func (j *judge) roundTrip(t *trial, _ []generate.Edit) (*Violation, bool) {
	out, err := j.subject.forward(t)
	if err != nil {
		return nil, false
	}
	back, err := j.subject.backward(t)
	if err != nil {
		return j.failed(t, err, "converts to %s, but not back: %v", t.to.Name()), true
	}
	way := over(t.version, t.to, out)
	if d := j.knowledge.compare(t.object, back.object, way); d != nil {
		return j.differs(t, t.version, d, "from "+t.version.Name()+" to "+t.to.Name()+" and back"), true
	}
	if unconverted(out) {
		return nil, true // The annotation keeps the whole object, so it cannot come back without the annotation.
	}
	part := headless(t.object)
	if out, err = j.subject.convertObject(part, t.to); err != nil {
		return nil, true // The law Partial reports this error.
	}
	if back, err = j.subject.convert(out.text(), t.version); err != nil {
		v := j.failed(t, err, "without metadata, converts to %s, but not back: %v", t.to.Name())
		v.Object = part
		return v, true
	}
	way.via, way.loses = inside(t.to, out), j.knowledge.mayLose(t.version, t.to)
	if d := j.knowledge.compare(part, back.object, way); d != nil {
		way := "from " + t.version.Name() + " to " + t.to.Name() + " and back without metadata"
		v := j.differs(t, t.version, d, way+", and so without annotations")
		v.Object = part
		return v, true
	}
	return nil, true
}

// planPartial removes fields that other field managers may have applied. It also removes the metadata; some objects
// keep labels.
func (*judge) planPartial(t *trial, src generate.Source) []generate.Edit {
	edits := generate.Parts(src, t.version, t.object)
	if src.Uint64()%4 == 0 {
		labels := map[string]any{"labels": map[string]any{"app": "web"}}
		return append(edits, generate.Edit{Path: []any{"metadata"}, Value: labels})
	}
	return append(edits, generate.Edit{Path: []any{"metadata"}, Removed: true})
}

// partial compares the result for a part of an object with the result for the whole object.
func (j *judge) partial(t *trial, edits []generate.Edit) (*Violation, bool) {
	whole, err := j.subject.forward(t)
	if err != nil || unconverted(whole) {
		return nil, false
	}
	part, ok := generate.Apply(t.object, edits)
	if metadata, there := part["metadata"]; there && memberOf(metadata, "labels") == none {
		return nil, false
	}
	if !ok || memberOf(part["metadata"], "name") != none || memberOf(part["metadata"], "generateName") != none {
		return nil, false
	}
	out, err := j.subject.convertObject(part, t.to)
	if err != nil {
		v := j.failed(t, err, "the part cannot be converted to %s, unlike the whole: %v", t.to.Name())
		v.Object = part
		return v, true
	}
	if path, value := invented("", []any{whole.object}, headless(out.object)); path != "" {
		v := j.broken(t, t.to, path, "%s is added: the result for the whole object does not have it", path)
		v.Object, v.Got = part, value
		return v, true
	}
	if v := j.hollowed(t, part, out); v != nil {
		return v, true
	}
	annotations, _ := memberOf(part["metadata"], "annotations").(map[string]any)
	kept, _ := memberOf(out.object["metadata"], "annotations").(map[string]any)
	for _, key := range keysOf(kept) {
		if memberOf(annotations, key) == none {
			path := member("metadata.annotations", key)
			v := j.broken(t, t.to, path, "%s is added: a part of an object keeps nothing", path)
			v.Object, v.Got = part, kept[key]
			return v, true
		}
	}
	return nil, true
}

// hollowed returns a violation if a part comes back with an additional object that contains no values, such as an empty
// spec.
func (j *judge) hollowed(t *trial, part map[string]any, out *document) *Violation {
	back, err := j.subject.convert(out.text(), t.version)
	if err != nil {
		return nil // The round trips report this error.
	}
	path := emptied("", headless(part), headless(back.object))
	if path == "" {
		return nil
	}
	v := j.broken(t, t.version, path, "%s is added when the part is converted back from %s", path, t.to.Name())
	v.Object, v.Got = part, map[string]any{}
	return v
}

// emptied returns the path of the first added object that contains no values; "" if there is none.
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

// invented returns the first path at which the part has a value and the whole has none, and the value. All elements of
// a list count as one place: wholes are all values of the whole at this place.
func invented(path string, wholes []any, part any) (string, any) {
	if len(wholes) == 0 {
		if hollow(part) {
			return "", nil // The value only contains other fields.
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

// valid checks the converted object against its schema. A recorded object that is itself invalid only has to convert,
// because otherwise clients could not read it.
func (j *judge) valid(t *trial, _ []generate.Edit) (*Violation, bool) {
	out, err := j.subject.forward(t)
	switch {
	case errors.Is(err, ErrContract):
		return nil, false
	case err == nil && unconverted(out):
		return nil, true // The schema may require the missing part. No client may write the object in this form.
	case err != nil:
		return j.failed(t, err, "cannot be converted to %s: %v", t.to.Name()), true
	case t.invalid != "":
		return nil, true
	}
	if err := t.arrive(); err != nil {
		return j.broken(t, t.to, "", "the result cannot be read: %v", err), true
	}
	for _, path := range t.pruned.Unknown {
		if !strings.HasPrefix(path, "metadata.") && !hollow(valueAt(t.out.document.object, path)) {
			return j.broken(t, t.to, path, "%s is unknown in %s, so it is pruned", path, t.to.Name()), true
		}
	}
	for _, c := range t.pruned.Changes {
		if path := pointed(c.Path, t.out.document.object); !strings.HasPrefix(path, "metadata") && !hollow(c.Before) {
			v := j.broken(t, t.to, path, "%s is %s, which is pruned in %s", path, brief(c.Before), t.to.Name())
			v.Got, v.Want = c.Before, c.After
			return v, true
		}
	}
	for _, f := range t.to.Validate(t.decoded) {
		return j.broken(t, t.to, f.Path, "is not valid in %s: %v", t.to.Name(), f), true
	}
	return nil, true
}

// unconverted reports whether an object has the annotation of incompletely converted objects: see [convert.Keep].
func unconverted(out *document) bool {
	return memberOf(memberOf(out.object["metadata"], "annotations"), convert.Unconverted) != none
}

// placeOf returns the place at the beginning of an error; "" if there is none.
func placeOf(err error) string {
	place, _, found := strings.Cut(err.Error(), ": ")
	if !found || strings.ContainsAny(place, " ") {
		return ""
	}
	return place
}

// pointed converts a JSON pointer to a path in an object.
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

// defaulting checks the effect of defaults: those of the source version before the conversion, and those of the target
// version after it, as if the object were stored in that version.
func (j *judge) defaulting(t *trial, _ []generate.Edit) (*Violation, bool) {
	if out, err := j.subject.forward(t); err != nil || unconverted(out) || t.arrive() != nil {
		return nil, false
	}
	if !tree.Equal(t.raw, t.object) {
		bare, err := j.subject.convertObject(t.raw, t.to)
		if err != nil {
			return nil, false
		}
		want, err := decode(t.to, bare.object)
		if err != nil {
			return nil, false
		}
		way := over(t.to, t.version, &document{object: t.object})
		way.lenient = true
		if d := j.knowledge.compare(want, t.out.document.object, way); d != nil {
			return j.differs(t, t.to, d, "if the defaults of "+t.version.Name()+" are filled in before it is converted"), true
		}
	}
	if tree.Equal(t.out.document.object, t.decoded) {
		return nil, true
	}
	back, err := j.subject.convertObject(t.decoded, t.version)
	if err != nil {
		return j.failed(t, err, "does not convert back from %s with the defaults of that version: %v", t.to.Name()), true
	}
	way := over(t.version, t.to, t.out.document)
	way.lenient = true
	if d := j.knowledge.compare(t.object, back.object, way); d != nil {
		return j.differs(t, t.version, d, "when it comes back from "+t.to.Name()+" with the defaults of that version"), true
	}
	return nil, true
}

// triangle compares a conversion through a third version with the direct conversion.
func (j *judge) triangle(t *trial, _ []generate.Edit) (*Violation, bool) {
	if t.over == nil {
		return nil, false
	}
	if _, err := j.subject.forward(t); err != nil || t.arrive() != nil {
		return nil, false
	}
	between, err := j.subject.convert(t.text, t.over)
	if err != nil {
		return nil, false
	}
	out, err := j.subject.convert(between.text(), t.to)
	if err != nil {
		return j.failed(t, err, "converts to %s, but not through %s: %v", t.to.Name(), t.over.Name()), true
	}
	way := over(t.to, t.over, between)
	way.toward = []*structural.Version{t.version, t.over}
	if d := j.knowledge.compare(t.decoded, out.object, way); d != nil {
		return j.differs(t, t.to, d, "if the way from "+t.version.Name()+" to "+t.to.Name()+" is through "+t.over.Name()), true
	}
	return nil, true
}

// repeats is the number of repeated conversions of one object.
const repeats = 3

// deterministic compares the bytes of repeated conversions of the same object.
func (j *judge) deterministic(t *trial, _ []generate.Edit) (*Violation, bool) {
	out, err := j.subject.forward(t)
	if err != nil {
		return nil, false
	}
	given := bytes.Clone(t.text)
	for range repeats {
		again, err := j.subject.convert(given, t.to)
		if !bytes.Equal(given, t.text) {
			return j.broken(t, t.version, "", "is modified when it is converted to %s", t.to.Name()), true
		}
		if v := j.unlike(t, out, again, err, "the second time"); v != nil {
			return v, true
		}
	}
	mate := t.mate
	if mate == nil {
		mate = t.text
	}
	all, err := j.subject.convertAll([][]byte{mate, t.text, mate}, t.to)
	if err != nil {
		return j.unlike(t, out, nil, err, "between others"), true
	}
	among, err := parse(all[1])
	return j.unlike(t, out, among, err, "between others"), true
}

// unlike returns a violation if a repeated conversion has another result than the first one.
func (j *judge) unlike(t *trial, out, again *document, err error, when string) *Violation {
	switch {
	case errors.Is(err, ErrContract):
		return nil
	case err != nil:
		return j.broken(t, t.version, "", "converts to %s, but not %s: %v", t.to.Name(), when, err)
	case bytes.Equal(out.bytes, again.bytes):
		return nil
	}
	if d := (differ{}).first("", out.object, again.object, strict); d != nil {
		return j.differs(t, t.to, d, "when converted "+when)
	}
	return j.broken(t, t.to, "", "converts to %s with other bytes %s", t.to.Name(), when)
}

// Limits of the size of converted objects.
const (
	growth = 16
	extra  = 64 << 10
	trips  = 5
)

// bounded checks sizes.
func (j *judge) bounded(t *trial, _ []generate.Edit) (*Violation, bool) {
	out, err := j.subject.forward(t)
	if err != nil {
		return nil, false
	}
	most := growth*len(t.text) + extra
	if len(out.text()) > most && weight(out.object, t.to.Structural()) > most {
		return j.broken(t, t.version, "", "%d bytes become %d in %s", len(t.text), len(out.text()), t.to.Name()), true
	}
	at, err := j.subject.backward(t)
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
		there, err := j.subject.convert(last, t.to)
		if err != nil {
			return nil, true
		}
		if at, err = j.subject.convert(there.text(), t.version); err != nil {
			return nil, true
		}
	}
	return j.broken(t, t.version, "", "grows with each trip to %s and back: %d bytes become %s",
		t.to.Name(), len(t.text), strings.Join(sizes, ", ")), true
}

// weight returns the size of a value in bytes. In a list with maxItems in its schema, only the largest element counts,
// because the schema limits the length.
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
