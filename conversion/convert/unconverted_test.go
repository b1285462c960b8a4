package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"refract.dev/tree/raw"
)

// keepers are the engines that FuzzKeep tests.
var keepers = []string{
	"pizza", "three", "moves", "typed", "unstructured", "roots", "passing", "deep", "matrix", "group", "parents", "laws", "panics",
}

// FuzzKeep converts objects to another version and back, with engines that have the option Keep. Some objects cannot be
// converted completely. Every object must be converted and come back unchanged. It must have the annotation Unconverted
// if and only if an engine without Keep returns an error.
func FuzzKeep(f *testing.F) {
	for seed := range uint64(1500) {
		f.Add(seed)
	}
	keeping, failing := map[string]*Engine{}, map[string]*Engine{}
	for _, name := range keepers {
		keeping[name], failing[name] = testEngine(f, name+" keep"), testEngine(f, name)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		m := maker{Rand: rand.New(rand.NewPCG(seed, 7)), hub: seed%2 == 1}
		name := keepers[seed%uint64(len(keepers))]
		from, to := m.either("v1alpha1", "v1beta1"), m.either("v1beta1", "v1alpha1")
		var tree any
		if err := json.Unmarshal([]byte(fuzzSpecs[m.IntN(len(fuzzSpecs))]), &tree); err != nil || m.IntN(2) == 0 {
			tree = m.spec()
		}
		m.spoil(&tree)
		spec, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		object, ok := fuzzObject(from, `{"name":"n","annotations":{"by":"me"}}`, string(spec))
		if !ok || strings.Contains(string(spec), "{}") {
			return // An empty object may not come back: it is removed with the last value that moves out of it.
		}
		there := convertThere(t, keeping[name], object, to)
		mark := annotationOf(t, there, Unconverted)
		same, err := failing[name].Convert(object, pizzaGroup+"/"+to)
		if (err != nil) != (mark != "") || err == nil && !bytes.Equal(same, there) {
			t.Fatalf("%s: %s is %q as %s, and without Keep: %s %v", name, object, mark, there, same, err)
		}
		back := convertThere(t, keeping[name], there, from)
		sameObjects(t, name+", by "+string(there), object, back)

		// A change of the metadata must not affect the way back.
		labelled := []byte(strings.Replace(string(there), `"name":"n"`, `"name":"n","labels":{"a":"b"}`, 1))
		wanted := []byte(strings.Replace(string(object), `"name":"n"`, `"name":"n","labels":{"a":"b"}`, 1))
		sameObjects(t, name+", labelled", wanted, convertThere(t, keeping[name], labelled, from))
	})
}

// spoil replaces some values of a tree by values that most functions reject.
func (m maker) spoil(tree *any) {
	wrong := []any{"no size", 17.5, true, []any{"x"}, map[string]any{"a": 1}, nil, "host:door"}
	switch v := (*tree).(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			value := v[key]
			m.spoil(&value)
			v[key] = value
		}
	case []any:
		for i := range v {
			m.spoil(&v[i])
		}
	default:
		if m.IntN(3) == 0 {
			*tree = wrong[m.IntN(len(wrong))]
		}
	}
}

// TestUnconverted checks which objects of a review the answer reports as incompletely converted.
func TestUnconverted(t *testing.T) {
	object := func(name, size string) string {
		return fmt.Sprintf(`{"apiVersion":"%s/v1alpha1","kind":"Pizza","metadata":{"namespace":"ns","name":%q},"spec":{"toppings":[{"name":"x","size":%q}]}}`, pizzaGroup, name, size)
	}
	review := fmt.Sprintf(`{"apiVersion":%q,"kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"%s/v1beta1","objects":[%s,%s,%s]}}`,
		reviewV1, pizzaGroup, object("a", "huge"), object("b", "large"), object("c", "vast"))
	a, err := testEngine(t, "list keep").Review([]byte(review))
	if err != nil || a.Err() != nil {
		t.Fatal(err, a.Err())
	}
	first, count := a.Unconverted()
	got := fmt.Sprint(count, first)
	want := fmt.Sprintf(`2 [object 0 (ns/a) from %[1]s/v1alpha1 to %[1]s/v1beta1: spec.toppings[0].size: "huge" is no size `+
		`object 2 (ns/c) from %[1]s/v1alpha1 to %[1]s/v1beta1: spec.toppings[0].size: "vast" is no size]`, pizzaGroup)
	if got != want {
		t.Errorf("Unconverted() = %s\nwant %s", got, want)
	}
}

// TestUnconvertedTooLarge has an object that cannot be converted, and that is too large for the annotation.
func TestUnconvertedTooLarge(t *testing.T) {
	object := fmt.Appendf(nil, `{"apiVersion":"%s/v1alpha1","kind":"Pizza","metadata":{"name":"a"},"spec":{"toppings":%s}}`,
		pizzaGroup, raw.AppendString(nil, strings.Repeat("x", maxAnnotations)))
	_, err := testEngine(t, "pizza keep").Convert(object, pizzaGroup+"/v1beta1")
	if err == nil || !strings.Contains(err.Error(), "and it cannot be kept: ") {
		t.Errorf("Convert() = %v, want to be told that it cannot be kept", err)
	}
}
