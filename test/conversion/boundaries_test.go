package conversion

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/test/harness"
)

// send posts or gets JSON without any change of its bytes, and returns the code and the answer.
func (s *scene) send(method, version, name, query, body string) (int, string) {
	s.Helper()
	c, err := rest.HTTPClientFor(s.cfg)
	s.must(err)
	url := strings.TrimSuffix(fmt.Sprintf("%s/apis/%s/%s/namespaces/%s/%s/%s", s.cfg.Host, s.group, version, ns, s.plural, name), "/") + query
	req, err := http.NewRequestWithContext(s.Context(), method, url, strings.NewReader(body))
	s.must(err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	s.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	s.must(err)
	return resp.StatusCode, string(text)
}

// TestValues sends edge cases of values through all versions. etcd stores each value as it was sent, and every version
// returns it unchanged.
func TestValues(t *testing.T) {
	t.Parallel()
	s := begin(t, "widget")
	s.serve(s.policy("widget"))
	cases := map[string]struct {
		alpha, v1 string // JSON, without retries.
	}{
		"empty":         {`{}`, `{}`},
		"empty-values":  {`{"title":"","ports":[],"settings":{},"legacy":""}`, `{"caption":"","ports":[],"settings":{}}`},
		"null":          {`{"title":null}`, `{"caption":null}`},
		"null-within":   {`{"settings":{"a":null,"b":[null],"c":{"d":null}}}`, `{"settings":{"a":null,"b":[null],"c":{"d":null}}}`},
		"null-refused":  {`{"size":null,"ports":null}`, `{}`}, // The API server drops these nulls, because the schemas do not allow null.
		"beyond-double": {`{"serial":9007199254740993}`, `{"serial":9007199254740993}`},
		"most":          {`{"serial":9223372036854775807}`, `{"serial":9223372036854775807}`},
		"least":         {`{"serial":-9223372036854775808}`, `{"serial":-9223372036854775808}`},
		"numbers": {
			`{"settings":{"i":9007199254740993,"f":1.5,"e":1e300,"z":-0.5,"s":5e-324}}`,
			`{"settings":{"i":9007199254740993,"f":1.5,"e":1e300,"z":-0.5,"s":5e-324}}`,
		},
		"astral":     {`{"title":"𝄞😀"}`, `{"caption":"𝄞😀"}`},
		"escaped":    {`{"title":"\ud834\udd1e"}`, `{"caption":"𝄞"}`},
		"combining":  {`{"title":"e\u0301\u00e9"}`, `{"caption":"e\u0301\u00e9"}`},
		"nul":        {`{"title":"a\u0000b"}`, `{"caption":"a\u0000b"}`},
		"separators": {`{"title":"\u2028\u2029\ufeff\u200b"}`, `{"caption":"\u2028\u2029\ufeff\u200b"}`},
		"markup":     {`{"title":"<&>\"\\/\u0001\t"}`, `{"caption":"<&>\"\\/\u0001\t"}`},
		"keys": {
			`{"settings":{"":1,"a.b":2,"c/d~e":3,"[*]":4,"\"":5,"\u0000":6,"é":7}}`,
			`{"settings":{"":1,"a.b":2,"c/d~e":3,"[*]":4,"\"":5,"\u0000":6,"é":7}}`,
		},
		"kept": {`{"legacy":"\u0000\u2028𝄞<","ports":[{"name":"\u0000","color":"\ud834\udd1e"}]}`, `{"ports":[{"name":"\u0000"}]}`},
		"long": {`{"title":"` + strings.Repeat("é", 50_000) + `"}`, `{"caption":"` + strings.Repeat("é", 50_000) + `"}`},
	}
	for name, tc := range cases {
		code, answer := s.send(http.MethodPost, alpha, "", "", fmt.Sprintf(
			`{"apiVersion":"%s/v1alpha1","kind":"Widget","metadata":{"name":%q},"spec":%s}`, s.group, name, tc.alpha))
		if code != http.StatusCreated {
			t.Errorf("%s: %d %s", name, code, answer)
			continue
		}
		before := s.stored(name)["spec"]
		var sent map[string]any
		s.must(decode(tc.alpha, &sent))
		if name != "null-refused" {
			if diff := cmp.Diff(any(sent), before); diff != "" {
				t.Errorf("%s: -sent, +stored:\n%s", name, diff)
			}
		}
		var want map[string]any
		s.must(decode(tc.v1, &want))
		want["retries"] = int64(3)
		if diff := cmp.Diff(any(want), s.get(v1, name).Object["spec"]); diff != "" {
			t.Errorf("%s in v1: -want, +got:\n%s", name, diff)
		}
		for _, through := range []string{beta, v1} { // Each update converts the object from another version and stores it again.
			u := s.get(through, name)
			u.SetLabels(map[string]string{"through": through})
			s.must(s.api.Update(t.Context(), u))
			if diff := cmp.Diff(before, s.stored(name)["spec"]); diff != "" {
				t.Errorf("%s, written in %s: -before, +after:\n%s", name, through, diff)
			}
		}
	}
}

// TestDuplicates sends objects with duplicate keys or list elements. API servers remove or reject duplicates before a
// conversion. The webhook rejects them, because it cannot choose one.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	s := begin(t, "widget")
	s.serve(s.policy("widget"))
	twice := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"twice"},"spec":{"caption":"one","caption":"two"}}`, s.group)
	code, answer := s.send(http.MethodPost, v1, "", "?fieldValidation=Strict", twice)
	if code != http.StatusBadRequest || !strings.Contains(answer, `duplicate field \"spec.caption\"`) {
		t.Errorf("Strict field validation rejects it: %d %s", code, answer)
	}
	if code, answer = s.send(http.MethodPost, v1, "", "?fieldValidation=Ignore", twice); code != http.StatusCreated {
		t.Errorf("Without field validation, the last value counts: %d %s", code, answer)
	}
	s.wantSpec("The API server takes the last value before the conversion.", alpha, "twice", `{title: two}`)
	harness.WantStatus(s.T, "A list has two equal elements.", s.api.Create(t.Context(), s.object(v1, "elements", `{ports: [{name: a}, {name: a}]}`)), 422,
		`spec.ports[1]: Duplicate value: {"name":"a"}`)

	review := func(object string) (string, []map[string]any) {
		out, err := s.post(s.crd, fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u",
			"desiredAPIVersion":"%s/v1","objects":[{"apiVersion":"%s/v1alpha1","kind":"Widget",%s}]}}`, s.group, s.group, object))
		s.must(err)
		result, _, err := unstructured.NestedString(out, "response", "result", "message")
		s.must(err)
		return result, converted(out)
	}
	for object, want := range map[string]string{
		`"metadata":{"name":"n"},"spec":{},"spec":{}`:                      "spec: duplicate key",
		`"metadata":{"name":"n","name":"m"},"spec":{}`:                     "metadata.name: duplicate key",
		`"metadata":{"name":"n"},"spec":{"title":"a","title":"b"}`:         "spec.title: duplicate key",
		`"metadata":{"name":"n"},"spec":{"ports":[{"color":1,"color":2}]}`: "color: duplicate key",
	} {
		if message, objects := review(object); !strings.Contains(message, want) || len(objects) > 0 {
			t.Errorf("%s: want %q, got %q, %v", object, want, message, objects)
		}
	}
	if message, objects := review(`"metadata":{"name":"n"},"spec":{"settings":{"a":1,"a":2}}`); message != "" || len(objects) != 1 {
		t.Errorf("Values that no conversion reads pass: %q, %v", message, objects)
	}
}

// TestAnnotations fills the annotations of objects. A conversion keeps the values of fields that a version lacks in an
// annotation; if they do not fit, the conversion fails. The stored object stays unchanged, and a client can make it
// smaller in its storage version.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	s := begin(t, "widget")
	s.serve(s.policy("widget"))
	sized := func(name string, annotation, note int) *unstructured.Unstructured {
		u := s.object(v1, name, `{note: "`+strings.Repeat("n", note)+`"}`)
		u.SetAnnotations(map[string]string{"a": strings.Repeat("a", annotation)})
		return u
	}
	const limit = 256 << 10
	near := sized("near", limit-60_000, 59_000)
	s.must(s.api.Create(t.Context(), near))
	if diff := cmp.Diff(near.Object["spec"], s.get(v1, "near").Object["spec"]); diff != "" {
		t.Errorf("The annotation has room for the values that v1alpha1 cannot hold: -want, +got:\n%s", diff)
	}
	const failure = "cannot hold this value: to keep it in the annotation refract.dev/complement takes"
	harness.WantStatus(s.T, "The annotation has no room.", s.api.Create(t.Context(), sized("over", limit-60_000, 61_000)), 500,
		"conversion webhook for "+s.group+"/v1, Kind=Widget failed:", "default/over", "spec.note", failure)
	if stored := s.bytes("over"); stored != nil {
		t.Errorf("It was stored nevertheless: %d bytes", len(stored))
	}
	harness.WantStatus(s.T, "After the change, the annotation would have no room.", s.patch(v1, "near", `{"metadata":{"annotations":{"b":"`+strings.Repeat("b", 2000)+`"}}}`), 500, "spec.note", failure)
	if diff := cmp.Diff(near.Object["spec"], s.get(v1, "near").Object["spec"]); diff != "" {
		t.Errorf("The object is unchanged: -want, +got:\n%s", diff)
	}

	s.storeAs(v1)
	s.must(s.api.Create(t.Context(), sized("over", limit-60_000, 61_000)))
	before := s.bytes("over")
	_, err := s.tryGet(t.Context(), alpha, "over")
	harness.WantStatus(s.T, "It is stored in v1, and cannot be converted to v1alpha1.", err, 500, "default/over", "spec.note", failure)
	harness.WantStatus(s.T, "So a list in v1alpha1 fails.", s.list(alpha), 500, "default/over", failure)
	s.must(s.list(v1))
	s.must(s.list(beta)) // v1beta1 has the field note.
	harness.WantStatus(s.T, "And a write in v1alpha1 fails.", s.patch(alpha, "over", `{"spec":{"title":"T"}}`), 500, failure)
	if diff := cmp.Diff(string(before), string(s.bytes("over"))); diff != "" {
		t.Error("It was changed nevertheless.")
	}
	s.must(s.patch(v1, "over", `{"spec":{"note":"short"}}`))
	s.wantSpec("After it was made smaller.", alpha, "over", `{}`)
	s.wantSpec("After it was made smaller.", v1, "over", `{note: short, retries: 3}`)
	s.must(s.list(alpha))
}

// list lists all objects in a version.
func (s *scene) list(version string) error {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(s.group + "/" + version)
	list.SetKind(s.kind + "List")
	return s.api.List(s.Context(), list, client.InNamespace(ns))
}

// TestLimits: the conversion of an object with too many items, or at too high a cost, fails quickly. It fails before
// the API server's timeout of 30 s, and does not change the object.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := begin(t, "crate")
	p := s.policy("crate", func(spec *refractv1alpha1.ConversionPolicySpec) {
		// For each bottle, the expression reads all bottles.
		f := field(spec, "spec.bottles")
		f.ToHub = `value.distinct().map(n, {"name": n, "quantity": value.filter(t, t == n).size()})`
	})
	s.serve(p)
	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) {
		for _, v := range []string{alpha, v1} {
			property(crd, v, func(bottles *apiextensionsv1.JSONSchemaProps) {
				bottles.MaxItems, bottles.XValidations = nil, nil
			}, "spec", "bottles")
		}
		property(crd, v1, func(quantity *apiextensionsv1.JSONSchemaProps) { quantity.Maximum = nil }, "spec", "bottles", "*", "quantity")
	})
	for _, quantity := range []string{"1000000000", "9223372036854775807"} {
		name := "bomb-" + quantity
		s.untilCreated(s.object(v1, name, `{bottles: [{name: a}, {name: b, quantity: `+quantity+`}]}`))
		_, err := s.tryGet(t.Context(), alpha, name)
		harness.WantStatus(s.T, "It is not expanded.", err, 500, "conversion webhook for "+s.group+"/v1, Kind=Crate failed:", "default/"+name, "spec.bottles", "200")
		s.wantSpec("The object is unchanged.", v1, name, `{bottles: [{name: a, quantity: 1}, {name: b, quantity: `+quantity+`}]}`)
		s.must(s.patch(v1, name, `{"spec":{"bottles":[{"name":"b","quantity":2}]}}`))
		s.wantSpec("After it was made smaller.", alpha, name, `{bottles: [b, b]}`)
	}

	var many []string
	for i := range 2000 {
		many = append(many, fmt.Sprintf("b%d", i))
	}
	list, err := json.Marshal(many)
	s.must(err)
	harness.WantStatus(s.T, "The conversion costs too much.", s.api.Create(t.Context(), s.object(alpha, "many", `{"bottles":`+string(list)+`}`)), 500,
		"conversion webhook for "+s.group+"/v1alpha1, Kind=Crate failed:", "default/many", "spec.bottles", "cost")
	if stored := s.bytes("many"); stored != nil {
		t.Errorf("It was stored nevertheless: %d bytes", len(stored))
	}
	s.create(alpha, "few", `{bottles: [b, a, b]}`)
	s.wantSpec("Other objects are converted.", v1, "few", `{bottles: [{name: b, quantity: 2}, {name: a, quantity: 1}]}`)
}

// untilCreated creates an object, and retries until the API server uses a schema that allows it.
func (s *scene) untilCreated(u *unstructured.Unstructured) {
	s.Helper()
	s.until(u.GetName()+" is allowed", func(ctx context.Context) error { return s.api.Create(ctx, u.DeepCopy()) })
}
