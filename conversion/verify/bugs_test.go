package verify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/verify"
)

const (
	plainV1 = "v1: {type: object, properties: {size: {type: string}, count: {type: integer}, list: {type: array, items: {type: string}}}}"
	plainV2 = "v2: {type: object, properties: {size: {type: string}, count: {type: integer}, list: {type: array, items: {type: string}}}}"
)

// annotate sets an annotation of an object with a name.
func annotate(obj map[string]any, key, value string) {
	metadata, _ := obj["metadata"].(map[string]any)
	if metadata["name"] == nil {
		return
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[key] = value
	metadata["annotations"] = annotations
}

// annotation removes an annotation, and returns its text.
func annotation(obj map[string]any, key string) string {
	metadata, _ := obj["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	text, _ := annotations[key].(string)
	if delete(annotations, key); len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	return text
}

// blindStash keeps the whole spec in the annotation. It restores the spec even after an edit.
func blindStash(obj map[string]any, _, to string) (map[string]any, error) {
	if old := annotation(obj, convert.Annotation); old != "" {
		var was map[string]any
		if err := utiljson.Unmarshal([]byte(old), &was); err != nil {
			return nil, err
		}
		if s, ok := was[to]; ok {
			obj["spec"] = s
			return obj, nil
		}
	}
	if s, ok := spec(obj); ok {
		text, err := json.Marshal(map[string]any{map[string]string{"v1": "v2", "v2": "v1"}[to]: s})
		if err != nil {
			return nil, err
		}
		annotate(obj, convert.Annotation, string(text))
	}
	return obj, nil
}

// nervousStash keeps the fields that only v1 has in the annotation. After any edit it drops them.
func nervousStash(obj map[string]any, _, to string) (map[string]any, error) {
	s, ok := spec(obj)
	if !ok {
		return obj, nil
	}
	old := annotation(obj, convert.Annotation)
	if to == "v2" {
		v, ok := s["only"]
		delete(s, "only")
		if text := fmt.Sprint(s, obj["status"]); ok {
			annotate(obj, convert.Annotation, fmt.Sprint(v)+"|"+text)
		}
		return obj, nil
	}
	if v, of, ok := strings.Cut(old, "|"); ok && of == fmt.Sprint(s, obj["status"]) {
		s["only"] = v
	}
	return obj, nil
}

// shuffled returns the objects in the wrong order.
type shuffled struct{ each }

func (s shuffled) Convert(ctx context.Context, objects [][]byte, apiVersion string) ([][]byte, error) {
	out, err := s.each.Convert(ctx, objects, apiVersion)
	slices.Reverse(out)
	return out, err
}

// forgetful returns one object less than it gets.
type forgetful struct{ each }

func (s forgetful) Convert(ctx context.Context, objects [][]byte, apiVersion string) ([][]byte, error) {
	if len(objects) > 1 {
		objects = objects[1:]
	}
	return s.each.Convert(ctx, objects, apiVersion)
}

// scribbler modifies its input.
type scribbler struct{ each }

func (s scribbler) Convert(ctx context.Context, objects [][]byte, apiVersion string) ([][]byte, error) {
	out, err := s.each.Convert(ctx, objects, apiVersion)
	for _, o := range objects {
		copy(o, bytes.ToUpper(o))
	}
	return out, err
}

// numbered writes the number of conversions so far into each object.
func numbered() each {
	n := 0
	return func(obj map[string]any, _, to string) (map[string]any, error) {
		n++
		if s, ok := spec(obj); ok && to == "v2" && s["size"] == "" {
			s["size"] = fmt.Sprint(n % 2)
		} else if ok && to == "v1" && (s["size"] == "0" || s["size"] == "1") {
			s["size"] = ""
		}
		return obj, nil
	}
}

// digits converts the text size of v1 to a number in v2. It relies on the notation of the number, which API servers
// change.
type digits struct{}

func (digits) Convert(_ context.Context, objects [][]byte, apiVersion string) ([][]byte, error) {
	out := make([][]byte, len(objects))
	for i, text := range objects {
		obj := map[string]any{}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&obj); err != nil {
			return nil, err
		}
		obj["apiVersion"] = apiVersion
		if s, ok := spec(obj); ok {
			switch size := s["size"].(type) {
			case string:
				if apiVersion == group+"/v2" && json.Valid([]byte(size)) && strings.Trim(size, "0123456789.e") == "" {
					s["size"] = json.Number(size)
				}
			case json.Number:
				if apiVersion == group+"/v1" {
					s["size"] = size.String()
				}
			}
		}
		var err error
		if out[i], err = json.Marshal(obj); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// merged converts the name of v1 to the image of v2. If joins is true, the image is the name and the tag. It keeps the
// values of both versions, and restores the values of one version if those of the other are unchanged.
func merged(joins bool) each {
	return func(obj map[string]any, _, to string) (map[string]any, error) {
		s, ok := spec(obj)
		old := strings.SplitN(annotation(obj, convert.Annotation), "|", 2)
		if !ok {
			return obj, nil
		}
		image, imaged := s["image"].(string)
		parts := map[string]any{}
		for _, key := range []string{"name", "tag"} {
			if v, ok := s[key]; ok {
				parts[key] = v
			}
			delete(s, key)
		}
		delete(s, "image")
		same := func() bool { return len(old) == 2 && old[0] == fmt.Sprint(parts) }
		switch {
		case to == "v2":
			if len(parts) == 0 {
				return obj, nil
			}
			name, _ := parts["name"].(string)
			tag, tagged := parts["tag"].(string)
			if image = name; joins && tagged {
				image += ":" + tag
			}
			if same() {
				image = old[1]
			}
			s["image"] = image
		case imaged:
			name, tag, _ := strings.Cut(image, ":")
			if parts["name"] = name; tag != "" {
				parts["tag"] = tag
			}
			if len(old) == 2 && old[1] == image {
				parts = partsOf(old[0])
			}
			maps.Copy(s, parts)
		default:
			return obj, nil
		}
		annotate(obj, convert.Annotation, fmt.Sprint(parts)+"|"+image)
		return obj, nil
	}
}

// partsOf parses the parts of an image from the output of fmt.Sprint.
func partsOf(text string) map[string]any {
	out := map[string]any{}
	for part := range strings.FieldsSeq(strings.TrimSuffix(strings.TrimPrefix(text, "map["), "]")) {
		key, value, _ := strings.Cut(part, ":")
		out[key] = value
	}
	return out
}

const (
	mergedV1 = "v1: {type: object, properties: {name: {type: string, pattern: '^[a-z]*$'}, tag: {type: string, pattern: '^[a-z]*$'}, count: {type: integer}}}"
	mergedV2 = "v2: {type: object, properties: {image: {type: string, pattern: '^[a-z:]*$'}, count: {type: integer}}}"
)

var knownMerged = known{
	mayLose: map[string][]string{"v1": {"spec.{name,tag}"}, "v2": {"spec.image"}},
	rules:   map[string]string{"spec.name": "the image", "spec.tag": "the image", "spec.image": "the image"},
}

func same(obj map[string]any, _, _ string) (map[string]any, error) { return obj, nil }

// A bug is a wrong conversion.
type bug struct {
	reason     string
	definition *structural.Definition
	subject    verify.Subject
	knowledge  verify.Knowledge
	// law is a law that the bug violates. If alone is true, only this law is checked; otherwise the bug may violate
	// other laws as well.
	law   verify.Law
	alone bool
	path  string
}

func bugs(t *testing.T) map[string]bug {
	t.Helper()
	two := definition(t, plainV1, plainV2)
	add := func(n int64) func(int64) (int64, error) { return func(i int64) (int64, error) { return i + n, nil } }
	return map[string]bug{
		"WrongInverse": {
			reason:     "The functions are not inverses. The annotation hides this for whole objects, but not for partial ones.",
			definition: two, law: verify.RoundTripSpoke, path: "spec.count",
			subject: verify.Engine(engine(t, convert.Spoke{Version: "v1", Conversions: []convert.Conversion{
				convert.Field("spec.count", "spec.count", add(1), add(-2)),
			}})),
		},
		"LostField": {
			reason:     "A field that exists only in v1 is dropped.",
			definition: definition(t, strings.Replace(plainV1, "size:", "only: {type: string}, size:", 1), plainV2), law: verify.RoundTripSpoke, path: "spec.only",
			subject: each(func(obj map[string]any, _, _ string) (map[string]any, error) {
				if s, ok := spec(obj); ok {
					delete(s, "only")
				}
				return obj, nil
			}),
		},
		"LostInTheHub": {
			reason:     "Lists lose duplicate elements.",
			definition: two, law: verify.RoundTripHub, path: "spec.list",
			subject: each(func(obj map[string]any, _, to string) (map[string]any, error) {
				if s, ok := spec(obj); ok && to == "v1" {
					if l, ok := s["list"].([]any); ok {
						s["list"] = slices.Compact(l)
					}
				}
				return obj, nil
			}),
		},
		"InventedField": {
			reason:     "A partial object gets a field that its manager did not apply.",
			definition: two, law: verify.Partial, path: "spec.count",
			subject: each(func(obj map[string]any, _, to string) (map[string]any, error) {
				if s, ok := spec(obj); ok && to == "v2" && s["size"] == nil && s["count"] == nil {
					s["count"] = int64(1)
				}
				return obj, nil
			}),
		},
		"InventedParent": {
			reason:     "A partial object without a spec gets an empty spec.",
			definition: two, law: verify.Partial, path: "spec", alone: true,
			subject: each(func(obj map[string]any, _, _ string) (map[string]any, error) {
				if _, ok := spec(obj); !ok {
					obj["spec"] = map[string]any{}
				}
				return obj, nil
			}),
		},
		"PartThatFails": {
			reason:     "A partial object may lack fields, so the conversion must not fail for a missing one.",
			definition: two, law: verify.Partial, alone: true,
			subject: each(func(obj map[string]any, _, _ string) (map[string]any, error) {
				if s, _ := spec(obj); s["size"] != nil && s["count"] == nil {
					return nil, errors.New("spec.count is missing")
				}
				return obj, nil
			}),
		},
		"BlindStash": {
			reason:     "A kept value overwrites an edit.",
			definition: two, law: verify.Edit, subject: each(blindStash),
		},
		"NervousStash": {
			reason:     "A kept value is lost after an edit of another field.",
			definition: definition(t, strings.Replace(plainV1, "size:", "only: {type: string}, size:", 1), plainV2), law: verify.Edit, path: "spec.only",
			subject: each(nervousStash), knowledge: known{mayLose: map[string][]string{"v1": {"spec.only"}}},
		},
		"ForgottenTag": {
			reason:     "A kept value is lost after an edit of another field of the same rule, although the edit does not affect that value.",
			definition: definition(t, mergedV1, mergedV2), law: verify.Edit, path: "spec.tag", alone: true,
			subject: merged(false), knowledge: knownMerged,
		},
		"Digits": {
			reason:     "An API server stores the value of a number, not its notation.",
			definition: definition(t, plainV1, strings.Replace(plainV2, "size: {type: string}", "size: {type: number}", 1)), law: verify.RoundTripSpoke, path: "spec.size", alone: true,
			subject: digits{},
		},
		"PlaceOfAPart": {
			reason:     "The error names the place that cannot be converted in a partial object.",
			definition: two, law: verify.Partial, path: "spec.size", alone: true,
			subject: each(func(obj map[string]any, _, _ string) (map[string]any, error) {
				if s, _ := spec(obj); s["size"] != nil && s["count"] == nil {
					return nil, errors.New("spec.size: want a count, too")
				}
				return obj, nil
			}),
		},
		"TooMany": {
			reason:     "A list that v1 allows is too long for v2.",
			definition: definition(t, plainV1, strings.Replace(plainV2, "items: {type: string}", "maxItems: 2, items: {type: string}", 1)), law: verify.Valid, path: "spec.list",
			subject: verify.Engine(engine(t, convert.Spoke{Version: "v1"})),
		},
		"Unknown": {
			reason:     "A field that the schema of the other version does not have is pruned.",
			definition: definition(t, plainV1, strings.Replace(plainV2, "count:", "number:", 1)), law: verify.Valid, path: "spec.number",
			subject: verify.Engine(engine(t, convert.Spoke{Version: "v1"})),
		},
		"Fails": {
			reason:     "A valid object that cannot be converted cannot be read.",
			definition: two, law: verify.Valid, path: "spec.list",
			subject: verify.Engine(engine(t, convert.Spoke{Version: "v1", Conversions: []convert.Conversion{
				convert.Field("spec.list", "spec.list", func(l []string) ([]string, error) {
					if len(l) > 1 {
						return nil, errors.New("more than one")
					}
					return l, nil
				}, func(l []string) ([]string, error) { return l, nil }),
			}})),
		},
		"OtherDefault": {
			reason:     "The result depends on the version whose default is filled in.",
			definition: definition(t, strings.Replace(plainV1, "size: {", "size: {default: L, ", 1), strings.Replace(plainV2, "size: {", "size: {default: M, ", 1)),
			law:        verify.Defaulting, path: "spec.size",
			subject: verify.Engine(engine(t, convert.Spoke{Version: "v1"})),
		},
		"DefaultOverValue": {
			reason:     "In v2, the value moves to another field and a default fills its old place. On the way back, the default wins.",
			definition: definition(t, plainV1, strings.Replace(plainV2, "size: {", "length: {type: string}, size: {default: M, ", 1)),
			law:        verify.Defaulting, path: "spec.size", alone: true,
			subject: each(func(obj map[string]any, _, to string) (map[string]any, error) {
				if to == "v2" {
					move(obj, "size", "length")
					return obj, nil
				}
				if s, ok := spec(obj); ok && s["size"] == nil {
					move(obj, "length", "size")
				}
				return obj, nil
			}),
		},
		"Triangle": {
			reason:     "The direct conversion from v1 to v3 differs from the conversion through v2.",
			definition: definition(t, plainV1, plainV2, strings.Replace(plainV2, "v2", "v3", 1)), law: verify.Triangle, path: "spec.size",
			subject: each(func(obj map[string]any, from, to string) (map[string]any, error) {
				if s, ok := spec(obj); ok && from+to == "v1v3" && s["size"] != nil {
					s["size"] = fmt.Sprint(s["size"]) + "!"
				}
				return obj, nil
			}),
		},
		"Numbered": {
			reason:     "The result depends on the number of earlier conversions.",
			definition: two, law: verify.Deterministic, path: "spec.size", alone: true, subject: numbered(),
		},
		"Scribbler": {
			reason:     "A conversion must not modify its input.",
			definition: two, law: verify.Deterministic, subject: scribbler{same},
		},
		"Growing": {
			reason:     "The object grows with each round trip.",
			definition: two, law: verify.Bounded,
			subject: each(func(obj map[string]any, _, _ string) (map[string]any, error) {
				annotate(obj, "note", annotation(obj, "note")+"+")
				return obj, nil
			}),
		},
		"Bomb": {
			reason:     "A number becomes the length of a list.",
			definition: definition(t, strings.Replace(plainV1, "count: {", "count: {minimum: 0, maximum: 10000, ", 1), plainV2), law: verify.Bounded, alone: true,
			subject: each(func(obj map[string]any, _, to string) (map[string]any, error) {
				s, ok := spec(obj)
				n, isNumber := s["count"].(int64)
				if ok && isNumber && to == "v2" {
					s["list"] = slices.Repeat([]any{strings.Repeat("x", 20)}, int(n))
				}
				return obj, nil
			}),
		},
		"Shuffled": {
			reason:     "The answer has the objects in another order.",
			definition: two, law: verify.Contract, path: "metadata.name", alone: true, subject: shuffled{same},
		},
		"Forgetful": {
			reason:     "The answer has fewer objects than the review.",
			definition: two, law: verify.Contract, subject: forgetful{same},
		},
		"Labels": {
			reason:     "A conversion must not change labels.",
			definition: two, law: verify.Contract, path: "metadata.labels",
			subject: each(func(obj map[string]any, _, _ string) (map[string]any, error) {
				if metadata, ok := obj["metadata"].(map[string]any); ok {
					delete(metadata, "labels")
				}
				return obj, nil
			}),
		},
		"Panics": {
			reason:     "A panic counts as a failure to convert the object.",
			definition: two, law: verify.Valid,
			subject: each(func(obj map[string]any, _, _ string) (map[string]any, error) {
				s, _ := spec(obj)
				list, _ := s["list"].([]any)
				if len(list) > 0 && list[0] == nil || len(list) == 1 {
					panic("index out of range")
				}
				return obj, nil
			}),
		},
	}
}

// mostConverted is the maximum number of conversions to find a bug and shrink its object. On any machine they take much
// less than ten seconds.
const mostConverted = 20_000

// counter counts the converted objects.
type counter struct {
	verify.Subject

	objects int
}

func (c *counter) Convert(ctx context.Context, objects [][]byte, apiVersion string) ([][]byte, error) {
	c.objects += len(objects)
	return c.Subject.Convert(ctx, objects, apiVersion)
}

// TestBugsAreFound: each bug is found, and its violation has a small object.
func TestBugsAreFound(t *testing.T) {
	for name, tc := range bugs(t) {
		t.Run(name, func(t *testing.T) {
			o := verify.Options{Definition: tc.definition, Hub: "v2", Versions: []string{"v1", "v2"}, Knowledge: tc.knowledge, Objects: 50}
			if tc.law == verify.Triangle {
				o.Versions = append(o.Versions, "v3")
			}
			if tc.alone {
				o.Laws = []verify.Law{tc.law}
			}
			if tc.knowledge == nil {
				o.Knowledge = known{}
			}
			counted := &counter{Subject: tc.subject}
			r, err := verify.Run(t.Context(), counted, o)
			if err != nil {
				t.Fatal(err)
			}
			var found *verify.Violation
			for _, v := range r.Violations() {
				if v.Law == tc.law {
					found = &v
				}
			}
			if found == nil {
				t.Fatalf("%s\nit was not found: %s", tc.reason, text(t, r))
			}
			if counted.objects > mostConverted {
				t.Errorf("%s\n%d objects were converted, want %d at most", tc.reason, counted.objects, mostConverted)
			}
			if tc.path != "" && found.Path != tc.path {
				t.Errorf("%s\npath %q, want %q: %s", tc.reason, found.Path, tc.path, found.Message)
			}
			if n := leaves(body(found.Object)); n > 5 {
				t.Errorf("%s\nthe object has %d leaves: %v", tc.reason, n, found.Object)
			}
			if found.Path != "" && found.Rule != "rule of "+found.Path && tc.knowledge == nil {
				t.Errorf("rule %q of %s", found.Rule, found.Path)
			}
			t.Logf("after %d objects: %s from %s to %s: %s\n%v", counted.objects, found.Law, found.From, found.To, found.Message, found.Object)
		})
	}
}
