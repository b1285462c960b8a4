package verify

import (
	"errors"
	"fmt"
	"maps"

	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural/generate"
	"refract.dev/tree"
)

// contract checks the answer to one review. The review has two objects of the source version with complete metadata,
// and one object of the target version. The checks are those of API servers:
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-conversion
func (j *judge) contract(t *trial, _ []generate.Edit) (*Violation, bool) {
	out, err := j.subject.forward(t)
	if errors.Is(err, ErrContract) {
		return j.broken(t, t.version, "", "%v", err), true
	}
	if err != nil {
		return nil, false
	}
	given := []map[string]any{stored(t.object, "first"), stored(t.object, "second"), stored(out.object, "third")}
	texts := make([][]byte, len(given))
	for i, obj := range given {
		texts[i] = encode(obj)
	}
	all, err := j.subject.convertAll(texts, t.to)
	if err != nil {
		return j.broken(t, t.version, "", "converts to %s, but not among others, with metadata as on API servers: %v",
			t.to.Name(), err), true
	}
	for i, text := range all {
		d, err := parse(text)
		if err != nil {
			return j.broken(t, t.version, "", "object %d of the answer: %v", i, err), true
		}
		if v := j.identity(t, i, given[i], d.object); v != nil {
			return v, true
		}
	}
	if d, err := parse(all[2]); err == nil && !tree.Equal(d.object, given[2]) {
		return j.broken(t, t.to, "", "an object that is in %s already is changed", t.to.Name()), true
	}
	part, err := j.subject.convertObject(headless(t.object), t.to)
	if err != nil {
		return nil, true
	}
	if _, ok := part.object["metadata"].(map[string]any); !ok {
		v := j.broken(t, t.to, "metadata",
			"metadata is missing in the answer, which API servers refuse, for an object without metadata")
		v.Object = headless(t.object)
		return v, true
	}
	return nil, true
}

// stored returns an object with the metadata that stored objects have.
func stored(obj map[string]any, name string) map[string]any {
	old, _ := obj["metadata"].(map[string]any)
	metadata := maps.Clone(old)
	if metadata == nil {
		metadata = map[string]any{}
	}
	maps.Copy(metadata, map[string]any{
		"name":              name,
		"uid":               "705ab4f5-6393-11e8-b7cc-42010a80000" + fmt.Sprint(len(name)),
		"resourceVersion":   "12345",
		"generation":        int64(3),
		"creationTimestamp": "2026-01-01T00:00:00Z",
		"finalizers":        []any{"example.org/last"},
		"ownerReferences": []any{map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "705ab4f5-6393-11e8-b7cc-42010a80000f",
		}},
		"labels": map[string]any{"example.org/tier": "back"},
	})
	annotations := map[string]any{"example.org/note": "größer"}
	if old, ok := metadata["annotations"].(map[string]any); ok {
		maps.Copy(annotations, old)
	}
	metadata["annotations"] = annotations
	obj = maps.Clone(obj)
	obj["metadata"] = metadata
	return obj
}

// identity returns a violation if an object in the answer does not have the apiVersion, kind and metadata that belong
// to the object at the same index of the review.
func (j *judge) identity(t *trial, i int, given, got map[string]any) *Violation {
	for key, want := range map[string]any{"apiVersion": t.to.APIVersion(), "kind": t.to.Kind()} {
		if got[key] != want {
			v := j.broken(t, t.to, key, "object %d of the answer has %s %s, not %s", i, key, brief(got[key]), brief(want))
			v.Got, v.Want = got[key], want
			return v
		}
	}
	want, _ := given["metadata"].(map[string]any)
	is, ok := got["metadata"].(map[string]any)
	if !ok {
		return j.broken(t, t.to, "metadata", "metadata is missing in object %d of the answer", i)
	}
	for _, key := range keysOf(want, is) {
		path := member("metadata", key)
		w, g := memberOf(want, key), memberOf(is, key)
		var d *difference
		if key == "annotations" {
			d = differ{lenient: true}.first(path, othersOf(w), othersOf(g), strict)
		} else {
			d = differ{}.first(path, w, g, strict)
		}
		if d != nil {
			return j.differs(t, t.to, d, fmt.Sprintf("in object %d of the answer", i))
		}
	}
	return nil
}

// othersOf returns all annotations except refract.dev/complement.
func othersOf(annotations any) any {
	m, ok := annotations.(map[string]any)
	if !ok {
		return annotations
	}
	m = maps.Clone(m)
	delete(m, convert.Annotation)
	return m
}
