package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type keptV1 struct {
	Spec   keptV1Spec `json:"spec"`
	Status keptStatus `json:"status"`
}

type keptV1Spec struct {
	Size  int    `json:"size,omitempty"`
	Extra string `json:"extra,omitempty"`
}

type keptV2 struct {
	Spec   keptV2Spec `json:"spec"`
	Status keptStatus `json:"status"`
}

type keptV2Spec struct {
	Width int    `json:"width,omitempty"`
	Mode  string `json:"mode,omitempty"`
}

type keptStatus struct {
	Phase string `json:"phase,omitempty"`
}

type onV1 struct {
	Spec struct {
		On    bool     `json:"on"`
		Items []string `json:"items,omitempty"`
		Count int      `json:"count"`
	} `json:"spec"`
}

type offV2 struct {
	Spec struct {
		Off      bool     `json:"off"`
		Things   []string `json:"things,omitempty"`
		Replicas int      `json:"replicas"`
	} `json:"spec"`
}

type zeroV1 struct {
	Spec struct {
		Size  int               `json:"size,omitempty"`
		Debug bool              `json:"debug,omitempty"`
		Cfg   map[string]string `json:"cfg,omitempty"`
		Same  int               `json:"same,omitempty"`
	} `json:"spec"`
}

type zeroV2 struct {
	Spec struct {
		Width int    `json:"width,omitempty"`
		Size  string `json:"size,omitempty"`
		Same  int    `json:"same,omitempty"`
	} `json:"spec"`
}

type freeV1 struct {
	Spec struct {
		Cfg map[string]any `json:"cfg,omitempty"`
	} `json:"spec"`
}

type freeV2 struct {
	Spec struct {
		Config map[string]any `json:"config,omitempty"`
	} `json:"spec"`
}

type nameV1 struct {
	Name  string `json:"name"`
	Extra string `json:"extra,omitempty"`
}

type nameV2 struct {
	Name string            `json:"name"`
	Mode string            `json:"mode,omitempty"`
	List []string          `json:"list"`
	Map  map[string]string `json:"map"`
	Ptr  *int              `json:"ptr"`
}

// keptConversions are the conversions of v1. The hub is v2.
var keptConversions = map[string]Conversion{
	"object": Object(func(in *keptV1, out *keptV2) error {
		out.Spec.Width, out.Status = in.Spec.Size, in.Status
		return nil
	}, func(in *keptV2, out *keptV1) error {
		out.Spec.Size, out.Status = in.Spec.Width, in.Status
		return nil
	}),
	"on": Object(func(in *onV1, out *offV2) error {
		out.Spec.Off, out.Spec.Things, out.Spec.Replicas = !in.Spec.On, in.Spec.Items, in.Spec.Count
		return nil
	}, func(in *offV2, out *onV1) error {
		out.Spec.On, out.Spec.Items, out.Spec.Count = !in.Spec.Off, in.Spec.Things, in.Spec.Replicas
		return nil
	}),
	"default": Unstructured(func(o map[string]any) (map[string]any, error) {
		return map[string]any{"spec": map[string]any{"replicas": member1(o, "count", int64(1))}}, nil
	}, func(o map[string]any) (map[string]any, error) {
		spec := map[string]any{}
		if n := member1(o, "replicas", nil); n != nil {
			spec["count"] = n
		}
		return map[string]any{"spec": spec}, nil
	}),
	"zero": Object(func(in *zeroV1, out *zeroV2) error {
		out.Spec.Width, out.Spec.Same = in.Spec.Size, in.Spec.Same
		return nil
	}, func(in *zeroV2, out *zeroV1) error {
		out.Spec.Size, out.Spec.Same = in.Spec.Width, in.Spec.Same
		return nil
	}),
	"free": Object(func(in *freeV1, out *freeV2) error {
		out.Spec.Config = in.Spec.Cfg
		return nil
	}, func(in *freeV2, out *freeV1) error {
		out.Spec.Cfg = in.Spec.Config
		return nil
	}),
	"map": Field("spec", "spec", func(in map[string]any) (map[string]any, error) { return in, nil },
		func(in map[string]any) (map[string]any, error) { return in, nil }),
	"field": Field("spec", "spec", func(in nameV1) (nameV2, error) { return nameV2{Name: in.Name}, nil },
		func(in nameV2) (nameV1, error) { return nameV1{Name: in.Name}, nil }),
	"panics": Unstructured(func(o map[string]any) (map[string]any, error) {
		if n := member1(o, "count", nil); n != nil {
			return map[string]any{"spec": map[string]any{"count": n.(int64)}}, nil
		}
		return o, nil
	}, func(o map[string]any) (map[string]any, error) { return o, nil }),
	"panicsField": Field("spec", "spec", func(in nameV1) (nameV2, error) {
		if in.Name == "boom" {
			panic(in.Name)
		}
		return nameV2{Name: in.Name}, nil
	}, func(in nameV2) (nameV1, error) { return nameV1{Name: in.Name}, nil }),
	"moved": Unstructured(func(o map[string]any) (map[string]any, error) {
		return map[string]any{"spec": map[string]any{"b": member1(o, "a", nil)}}, nil
	}, func(o map[string]any) (map[string]any, error) {
		return map[string]any{"spec": map[string]any{"a": member1(o, "b", nil)}}, nil
	}),
}

func member1(object map[string]any, key string, otherwise any) any {
	spec, _ := object["spec"].(map[string]any)
	if value, ok := spec[key]; ok {
		return value
	}
	return otherwise
}

func keptEngine(t *testing.T, name string) *Engine {
	t.Helper()
	e, err := New(Resource{Group: "g", Kind: "K", Hub: "v2", Spokes: []Spoke{{Version: "v1", Conversions: []Conversion{keptConversions[name]}}}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// restOfText returns an object without apiVersion, kind and metadata.
func restOfText(t *testing.T, object []byte) string {
	t.Helper()
	members, err := restOf(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(objectOf(members))
}

// TestKept converts objects from v1 to v2 and back. In some cases they are edited in v2.
func TestKept(t *testing.T) {
	cases := map[string]struct {
		reason, engine, metadata, spec string
		there                          string
		edit                           [2]string
		back                           string
		kept                           string // A part of the annotation after the conversion back.
	}{
		"StatusWrite": {
			reason: "A write to another field does not invalidate the kept value.", engine: "object",
			spec: `"spec":{"size":1,"extra":"PRECIOUS"},"status":{"phase":"Pending"}`, there: `{"spec":{"width":1},"status":{"phase":"Pending"}}`,
			edit: [2]string{"Pending", "Ready"}, back: `{"spec":{"size":1,"extra":"PRECIOUS"},"status":{"phase":"Ready"}}`,
		},
		"Default": {
			reason: "A default that the conversion adds does not invalidate the kept value, and is kept in turn.", engine: "object",
			spec: `"spec":{"size":1,"extra":"PRECIOUS"}`, there: `{"spec":{"width":1}}`,
			edit: [2]string{`"width":1`, `"width":1,"mode":"auto"`}, back: `{"spec":{"size":1,"extra":"PRECIOUS"}}`, kept: `\"mode\":\"auto\"`,
		},
		"Edit": {
			reason: "An edit wins for the edited field only.", engine: "object",
			spec: `"spec":{"size":1,"extra":"PRECIOUS"}`, there: `{"spec":{"width":1}}`,
			edit: [2]string{`"width":1`, `"width":2`}, back: `{"spec":{"size":2,"extra":"PRECIOUS"}}`,
		},
		"Gone": {
			reason: "A removed field stays removed.", engine: "object",
			spec: `"spec":{"size":1,"extra":"PRECIOUS"},"status":{"phase":"x"}`, there: `{"spec":{"width":1},"status":{"phase":"x"}}`,
			edit: [2]string{`"spec":{"width":1},`, ``}, back: `{"status":{"phase":"x"}}`,
		},
		"FieldDefault": {
			reason: "Values of a Field behave the same.", engine: "field",
			spec: `"spec":{"name":"n","extra":"PRECIOUS"}`, there: `{"spec":{"name":"n"}}`,
			edit: [2]string{`"name":"n"}`, `"name":"n","mode":"auto"}`}, back: `{"spec":{"name":"n","extra":"PRECIOUS"}}`, kept: `\"mode\":\"auto\"`,
		},
		"FieldEdit": {
			reason: "A Field merges member by member.", engine: "field",
			spec: `"spec":{"name":"n","extra":"PRECIOUS","unknown":1.0}`, there: `{"spec":{"name":"n"}}`,
			edit: [2]string{`"name":"n"}`, `"name":"m"}`}, back: `{"spec":{"name":"m","extra":"PRECIOUS","unknown":1.0}}`,
		},
		"FieldPartial": {
			reason: "No nulls appear that a client did not write.", engine: "field", metadata: `{}`,
			spec: `"spec":{"name":"a"}`, there: `{"spec":{"name":"a"}}`, back: `{"spec":{"name":"a"}}`,
		},
		"Inverted": {
			reason: "An explicit value stays, even if an empty object gets the same value.", engine: "on",
			spec: `"spec":{"on":false,"items":[]}`, there: `{"spec":{"off":true}}`, back: `{"spec":{"on":false,"items":[]}}`,
		},
		"InvertedPartial": {
			reason: "An explicit value stays without an annotation, too.", engine: "on", metadata: `{}`,
			spec: `"spec":{"on":false,"count":3}`, there: `{"spec":{"off":true,"replicas":3}}`, back: `{"spec":{"on":false,"count":3}}`,
		},
		"ZeroPartial": {
			reason: "An explicit zero value stays, too.", engine: "on", metadata: `{}`,
			spec: `"spec":{"on":true,"count":0}`, there: `{"spec":{"off":false,"replicas":0}}`, back: `{"spec":{"on":true,"count":0}}`,
		},
		"ZeroNobodyWrote": {
			reason: "A zero value that a client did not write does not appear.", engine: "on", metadata: `{}`,
			spec: `"spec":{"on":true}`, there: `{"spec":{"off":false}}`, back: `{"spec":{"on":true}}`,
		},
		"NoSpec": {
			reason: "An absent field at the root stays absent.", engine: "on", spec: `"other":1.0`, there: `{"other":1.0}`, back: `{"other":1.0}`,
		},
		"DefaultWritten": {
			reason: "An explicit value that equals a default of the conversion stays.", engine: "default",
			spec: `"spec":{"count":1}`, there: `{"spec":{"replicas":1}}`, back: `{"spec":{"count":1}}`,
		},
		"KnownZero": {
			reason: "A zero value of a known field does not remain under its old name.", engine: "zero",
			spec: `"spec":{"size":0,"debug":false,"cfg":{},"same":0,"new":0}`, there: `{"spec":{"same":0,"new":0}}`,
			back: `{"spec":{"size":0,"debug":false,"cfg":{},"same":0,"new":0}}`,
		},
		"Integers": {
			reason: "Integers in untyped values keep their digits.", engine: "free", metadata: `{}`,
			spec: `"spec":{"cfg":{"n":9007199254740993}}`, there: `{"spec":{"config":{"n":9007199254740993}}}`, back: `{"spec":{"cfg":{"n":9007199254740993}}}`,
		},
		"IntegersOfField": {
			reason: "Integers in maps keep their digits, too.", engine: "map", metadata: `{}`,
			spec: `"spec":{"n":9007199254740993}`, there: `{"spec":{"n":9007199254740993}}`, back: `{"spec":{"n":9007199254740993}}`,
		},
		"Case": {
			reason: "Names of fields are case-sensitive.", engine: "field",
			spec: `"spec":{"name":"ok","Name":"evil"}`, there: `{"spec":{"name":"ok"}}`, back: `{"spec":{"name":"ok","Name":"evil"}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := keptEngine(t, tc.engine)
			if tc.metadata == "" {
				tc.metadata = `{"name":"n"}`
			}
			object := fmt.Appendf(nil, `{"apiVersion":"g/v1","kind":"K","metadata":%s,%s}`, tc.metadata, tc.spec)
			there, err := e.Convert(object, "g/v2")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.there, restOfText(t, there)); diff != "" {
				t.Errorf("%s\nv2: -want, +got:\n%s", tc.reason, diff)
			}
			if tc.edit[0] != "" {
				n := bytes.LastIndex(there, []byte(tc.edit[0])) // After the metadata.
				there = append(append(bytes.Clone(there[:n]), tc.edit[1]...), there[n+len(tc.edit[0]):]...)
			}
			back, err := e.Convert(there, "g/v1")
			if err != nil {
				t.Fatal(err)
			}
			var c comparer
			if got := restOfText(t, back); !c.equal([]byte(tc.back), []byte(got)) {
				t.Errorf("%s\nv1: -want, +got:\n%s", tc.reason, cmp.Diff(tc.back, got))
			}
			if kept := strings.Contains(string(back), Annotation); kept != (tc.kept != "") || !strings.Contains(string(back), tc.kept) {
				t.Errorf("%s\nkept in v1: %s", tc.reason, back)
			}
		})
	}
}

// TestKeptPanics has entries on which conversion functions panic. The engine must ignore such entries.
func TestKeptPanics(t *testing.T) {
	var c comparer
	for name, tc := range map[string]struct{ place, value, spec, want string }{
		"panics":      {place: "", value: `{"spec":{"count":"boom"}}`, spec: `{"x":1}`, want: `{"x":1}`},
		"panicsField": {place: "spec", value: `{"name":"boom"}`, spec: `{"name":"x"}`, want: `{"name":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			live := tc.spec
			if tc.place == "" {
				live = `{"spec":` + live + `}`
			}
			for _, of := range []fingerprint{c.fingerprint([]byte(live)), {'0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0'}} {
				text, err := json.Marshal(fmt.Sprintf(`{"v1":{%q:{"value":%s,"of":"%s"}}}`, tc.place, tc.value, of))
				if err != nil {
					t.Fatal(err)
				}
				object := fmt.Appendf(nil, `{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n","annotations":{"refract.dev/complement":%s}},"spec":%s}`, text, tc.spec)
				out, err := keptEngine(t, name).Convert(object, "g/v1")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(`{"spec":`+tc.want+`}`, restOfText(t, out)); diff != "" {
					t.Errorf("-want, +got:\n%s", diff)
				}
			}
		})
	}
}

// TestDeep converts objects with the maximum depth: the time must not grow with the depth, but only with the size.
func TestDeep(t *testing.T) {
	e := keptEngine(t, "moved")
	for _, depth := range []int{10, 900, 9000} {
		var b strings.Builder
		for range depth {
			b.WriteString(`{"z":`)
		}
		b.WriteString("[1" + strings.Repeat(",1", 50_000) + "]")
		b.WriteString(strings.Repeat(`,"a":1}`, depth))
		object := fmt.Appendf(nil, `{"apiVersion":"g/v1","kind":"K","metadata":{},"spec":{"a":%s}}`, b.String())
		start := time.Now()
		out, err := e.Convert(object, "g/v2")
		if err != nil {
			t.Fatal(err)
		}
		if len(out) != len(object) {
			t.Errorf("%d bytes of %d", len(out), len(object))
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%d levels took %v", depth, took)
		} else {
			t.Logf("%d levels took %v", depth, took)
		}
	}
}

// TestTooDeep has a review with an object that exceeds the maximum depth. The failure must name the object.
func TestTooDeep(t *testing.T) {
	body := `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"g/v2","objects":[` +
		`{"apiVersion":"g/v1","kind":"K","metadata":{"name":"n","namespace":"s"},"spec":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}]}}`
	a, err := keptEngine(t, "field").Review([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	var failed *ObjectError
	if !errors.As(a.Err(), &failed) || failed.Index != 0 || failed.Name != "n" || failed.Namespace != "s" {
		t.Errorf("Err() = %v", a.Err())
	}
	if !json.Valid(a.Bytes()) || !bytes.Contains(a.Bytes(), []byte(`"uid":"u"`)) {
		t.Errorf("%s", a.Bytes())
	}
}

// pooled reuses one buffer.
type pooled struct{ text string }

var pool = make([]byte, 0, 64)

func (p *pooled) UnmarshalJSON(data []byte) error { p.text = string(data); return nil }

func (p *pooled) AppendJSON([]byte) ([]byte, error) { return append(pool[:0], p.text...), nil }

// TestPooled has a type whose AppendJSON does not append to the given slice.
func TestPooled(t *testing.T) {
	same := func(p pooled) (pooled, error) { return p, nil }
	e, err := New(Resource{Group: "g", Kind: "K", Hub: "v2", Spokes: []Spoke{{Version: "v1", Conversions: []Conversion{
		Field("spec.a", "spec.a", same, same), Field("spec.b", "spec.b", same, same),
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.Convert([]byte(`{"apiVersion":"g/v1","kind":"K","metadata":{},"spec":{"a":"one","b":"two"}}`), "g/v2")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"spec":{"a":"one","b":"two"}}`, restOfText(t, out)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
