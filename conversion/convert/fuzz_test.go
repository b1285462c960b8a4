package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"refract.dev/internal/fuzzed"
	"refract.dev/internal/golden"
	"refract.dev/tree/raw"
)

// seeds returns the reviews of the golden files.
func seeds(f *testing.F) [][]byte {
	f.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	var all [][]byte
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, []byte(golden.Texts(txtar.Parse(data).Files)["review.json"]))
	}
	return all
}

// FuzzReview answers arbitrary bytes. The answer must be JSON with the uid and, for a success, the objects in order.
// Values that no conversion names must stay byte for byte, and the body must not be modified.
func FuzzReview(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	f.Add([]byte(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"objects":[` + strings.Repeat("[", 990) + `]}}`))
	e := pizzaEngine(f, true)
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > fuzzed.MiB {
			t.Skip("more than a MiB")
		}
		before := bytes.Clone(body)
		var a *Answer
		var err error
		fuzzed.Run(t, func() int {
			a, err = e.Review(body)
			return len(body)
		})
		if !bytes.Equal(before, body) {
			t.Fatal("the review was modified")
		}
		if err != nil {
			if a != nil || !errors.Is(err, ErrReview) {
				t.Fatalf("Review() = %v, %v", a, err)
			}
			return
		}
		text := a.Bytes()
		if int64(len(text)) != a.Len() || !json.Valid(text) {
			t.Fatalf("the answer is not JSON, or not of length %d:\n%s", a.Len(), text)
		}
		request, response := memberOf(t, body, "request"), memberOf(t, text, "response")
		result := memberOf(t, response, "result")
		objects, converted := elementsOf(memberOf(t, request, "objects")), elementsOf(memberOf(t, response, "convertedObjects"))
		if uid := memberOf(t, request, "uid"); uid != nil && !bytes.Equal(uid, memberOf(t, response, "uid")) {
			t.Fatalf("uid %s:\n%s", uid, text)
		}
		if a.Err() != nil {
			if string(memberOf(t, result, "status")) != `"Failure"` || len(memberOf(t, result, "message")) < 3 || len(converted) > 0 {
				t.Fatalf("Err() = %v:\n%s", a.Err(), text)
			}
			return
		}
		if string(memberOf(t, result, "status")) != `"Success"` || len(converted) != len(objects) || a.Objects() != len(objects) {
			t.Fatalf("%d objects of %d, %d:\n%s", len(converted), len(objects), a.Objects(), text)
		}
		for i, o := range objects {
			compareUntouched(t, o, converted[i])
		}
	})
}

// memberOf returns a member of an object; nil if the member is absent, or if object is nil, empty or null.
func memberOf(t *testing.T, object []byte, key string) []byte {
	t.Helper()
	if len(object) == 0 || object[0] == 'n' {
		return nil
	}
	value, err := raw.Field(object, key)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// compareUntouched compares the parts of an object that a conversion of toppings must not change.
func compareUntouched(t *testing.T, before, after []byte) {
	t.Helper()
	was, is := untouched(t, before), untouched(t, after)
	delete(was, "metadata")
	delete(is, "metadata") // The conversion may have added it.
	if diff := cmp.Diff(was, is); diff != "" {
		t.Fatalf("-before, +after:\n%s", diff)
	}
}

// untouched returns the bytes of each member that must not change, including members of spec and metadata.
func untouched(t *testing.T, object []byte) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := raw.Members(object, func(key, value []byte) bool {
		k := string(key)
		if k == "apiVersion" {
			return true
		}
		if k != "spec" && k != "metadata" || value[0] != '{' {
			found[k] = string(value)
			return true
		}
		return raw.Members(value, func(key, value []byte) bool {
			if inner := string(key); inner != "toppings" && inner != "annotations" {
				found[k+"."+inner] = string(value)
			}
			return true
		}) == nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// fuzzObject returns an object with this metadata and spec. It returns false for invalid JSON and for duplicate keys.
func fuzzObject(version, metadata, spec string) ([]byte, bool) {
	object := fmt.Appendf(nil, `{"apiVersion":"%s/%s","kind":"Pizza"`, pizzaGroup, version)
	if metadata != "" {
		object = append(append(object, `,"metadata":`...), metadata...)
	}
	if spec != "" {
		object = append(append(object, `,"spec":`...), spec...)
	}
	object = append(object, '}')
	return object, json.Valid(object) && !hasTwice(object)
}

// hasTwice reports whether an object has two keys that are equal without regard to case.
func hasTwice(value []byte) bool {
	switch value[0] {
	case '{':
		seen, twice := map[string]bool{}, false
		if err := raw.Members(value, func(key, value []byte) bool {
			k := strings.ToLower(string(key))
			twice = twice || seen[k] || hasTwice(value)
			seen[k] = true
			return true
		}); err != nil {
			return true
		}
		return twice
	case '[':
		twice := false
		err := raw.Elements(value, func(_ int, value []byte) bool {
			twice = twice || hasTwice(value)
			return true
		})
		return twice || err != nil
	default:
		return false
	}
}

var roundTrips = []struct{ engine, from, to string }{
	{"pizza", "v1alpha1", "v1beta1"},
	{"pizza", "v1beta1", "v1alpha1"},
	{"three", "v1alpha1", "v1"},
	{"three", "v1", "v1alpha1"},
	{"moves", "v1alpha1", "v1beta1"},
	{"moves", "v1beta1", "v1alpha1"},
	{"typed", "v1alpha1", "v1beta1"},
	{"typed", "v1beta1", "v1alpha1"},
	{"unstructured", "v1alpha1", "v1beta1"},
	{"unstructured", "v1beta1", "v1alpha1"},
	{"roots", "v1alpha1", "v1beta1"},
	{"roots", "v1beta1", "v1alpha1"},
	{"sliced", "v1beta1", "v1alpha1"},
	{"sliced", "v1alpha1", "v1beta1"},
}

var fuzzSpecs = []string{
	`{"toppings":["a","b","a"]}`, `{"toppings":[{"name":"a","quantity":2},{"name":"a"}],"x":1.0}`, `{"toppings":null}`, `{"toppings":[]}`,
	`{"a":1,"x":[2],"left":{"y":1.0},"right":null}`, `{"b":{"c":1,"d":2,"e":3},"right":9007199254740993}`, `{"b":{"c":1}}`, `null`, `"x"`,
	`{"order":{"lines":["2 a","1 b","1 a"]}}`, `{"size":"large","toppings":["a"],"notes":[{"text":"t","by":"me"}]}`,
	`{"diameter":30,"toppings":[{"name":"a","new":true}]}`, `{"count":12345678901234567890,"z":[1e3]}`, `{"size":{"count":1}}`, `{"size":{"count":1,"x":2}}`,
	`{"sliced":false}`, `{"cut":"no"}`, `{"toppings":["\u0061","😀","\ud800"]}`, `{"diameter":0,"toppings":null,"notes":[]}`,
}

// FuzzRoundTrip converts objects to another version and back. They must be unchanged. If the object is edited in the
// other version, the conversion back must give the same as for an object without an annotation. Values that the other
// version does not have are the exception.
func FuzzRoundTrip(f *testing.F) {
	engines := map[string]*Engine{}
	for i, trip := range roundTrips {
		engines[trip.engine] = testEngine(f, trip.engine)
		for _, spec := range fuzzSpecs {
			f.Add(uint8(i), spec, `{"toppings":["z"]}`)
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, spec, edit string) {
		trip := roundTrips[int(n)%len(roundTrips)]
		e := engines[trip.engine]
		object, ok := fuzzObject(trip.from, `{"name":"n"}`, spec)
		if !ok || strings.Contains(spec, "{}") || strings.Contains(spec, "{ ") {
			return // An empty object may not come back: it is removed with the last value that moves out of it.
		}
		there := mustConvert(t, e, object, trip.to)
		if there == nil {
			return
		}
		back, err := e.Convert(there, pizzaGroup+"/"+trip.from)
		if err != nil {
			t.Fatalf("%s\n%s\ndoes not come back: %v", object, there, err)
		}
		var c comparer
		if !c.equal(object, back) {
			t.Fatalf("-before, +after %s:\n-%s\n+%s", there, object, back)
		}

		checkEdit(t, e, there, trip.from, trip.to, edit)
	})
}

// checkEdit replaces the spec of a converted object, and converts the object back.
func checkEdit(t *testing.T, e *Engine, there []byte, from, to, edit string) {
	t.Helper()
	edited, ok := fuzzObject(to, "", edit)
	if !ok {
		return
	}
	want, err := e.Convert(edited, pizzaGroup+"/"+from)
	if err != nil {
		return
	}
	edited, _ = fuzzObject(to, string(memberOf(t, there, "metadata")), edit)
	got := mustConvert(t, e, edited, from)
	if got == nil {
		return
	}
	var c comparer
	live := memberOf(t, there, "spec")
	if live == nil || live[0] != '{' || c.equal(live, []byte(edit)) {
		return
	}
	for _, key := range []string{"toppings", "order", "sliced", "cut"} {
		was, is := memberOf(t, live, key), byKey([]byte(edit))[key]
		if (was == nil) == (is == nil) && (was == nil || c.equal(was, is)) {
			return // The engine may restore the kept value.
		}
	}
	a, b := memberOf(t, got, "spec"), memberOf(t, want, "spec")
	// The kept values that the other version does not have may differ.
	seen := func(spec []byte) []byte {
		object, _ := fuzzObject(from, "", string(spec))
		return memberOf(t, mustConvert(t, e, object, to), "spec")
	}
	if x, y := seen(a), seen(b); (x == nil) != (y == nil) || x != nil && !c.equal(x, y) {
		t.Fatalf("edit %s of %s:\ngot  %s\nwant %s", edit, there, got, want)
	}
}

// mustConvert converts an object, and checks the properties of all conversions. It returns nil if the conversion
// returns an error.
func mustConvert(t *testing.T, e *Engine, object []byte, version string) []byte {
	t.Helper()
	before := bytes.Clone(object)
	out, err := e.Convert(object, pizzaGroup+"/"+version)
	again, errAgain := e.Convert(object, pizzaGroup+"/"+version)
	if !bytes.Equal(out, again) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
		t.Fatalf("not deterministic:\n%s %v\n%s %v", out, err, again, errAgain)
	}
	if !bytes.Equal(before, object) {
		t.Fatalf("the object was modified:\n%s\n%s", before, object)
	}
	if err != nil {
		return nil
	}
	if !json.Valid(out) {
		t.Fatalf("not JSON: %s", out)
	}
	return out
}

func byKey(object []byte) map[string][]byte {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	values := map[string][]byte{}
	if err := raw.Members(object, func(key, value []byte) bool {
		values[string(key)] = value
		return true
	}); err != nil {
		return nil
	}
	return values
}

func elementsOf(array []byte) [][]byte {
	var elements [][]byte
	if err := raw.Elements(array, func(_ int, value []byte) bool {
		elements = append(elements, value)
		return true
	}); err != nil {
		return nil
	}
	return elements
}
