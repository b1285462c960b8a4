package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"refract.dev/tree/raw"
)

// refField is a conversion of the reference implementation, which is simple and slow, and works on decoded trees.
type refField struct {
	spoke, hub  []string
	toHub, back func(value any) (any, error)
}

// refFields are the conversions of some of the test engines.
var refFields = map[string][]refField{
	"pizza": {{
		spoke: []string{"spec", "toppings"}, hub: []string{"spec", "toppings"},
		toHub: through(toToppings), back: through(toToppingNames),
	}},
	"moves": {
		{spoke: []string{"spec", "a"}, hub: []string{"spec", "b", "c"}, toHub: asIs, back: asIs},
		{spoke: []string{"spec", "x"}, hub: []string{"spec", "b", "d"}, toHub: asIs, back: asIs},
		{spoke: []string{"spec", "left"}, hub: []string{"spec", "right"}, toHub: asIs, back: asIs},
		{spoke: []string{"spec", "right"}, hub: []string{"spec", "left"}, toHub: asIs, back: asIs},
	},
}

func asIs(value any) (any, error) { return value, nil }

// through converts a tree with a function of Go values.
func through[A, B any](f func([]A) ([]B, error)) func(any) (any, error) {
	return func(value any) (any, error) {
		data, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		var a []A
		if err := json.Unmarshal(data, &a); err != nil {
			return nil, err
		}
		b, err := f(a)
		if err != nil {
			return nil, err
		}
		if b == nil {
			b = []B{}
		}
		if data, err = json.Marshal(b); err != nil {
			return nil, err
		}
		return decodeTree(data)
	}
}

func decodeTree(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var tree any
	err := d.Decode(&tree)
	return tree, err
}

func canonicalTree(tree any) string {
	data, err := json.Marshal(tree)
	if err != nil {
		panic(err)
	}
	var c comparer
	return string(c.canonical(nil, data))
}

func fingerprintTree(tree any) string {
	var c comparer
	f := c.fingerprint([]byte(canonicalTree(tree)))
	return string(f[:])
}

// lookUp returns the value at a path.
func lookUp(object map[string]any, path []string) (any, bool) {
	for _, key := range path[:len(path)-1] {
		inner, ok := object[key].(map[string]any)
		if !ok {
			return nil, false
		}
		object = inner
	}
	value, ok := object[path[len(path)-1]]
	return value, ok
}

// refComplement is the annotation, by version and place.
type refComplement map[string]map[string]refEntry

type refEntry struct {
	Value any    `json:"value"`
	Of    string `json:"of"`
}

func readRefComplement(object map[string]any) refComplement {
	text, ok := lookUp(object, []string{"metadata", "annotations", Annotation})
	if !ok {
		return nil
	}
	s, ok := text.(string)
	if !ok || !json.Valid([]byte(s)) || hasTwice([]byte(strings.TrimSpace(s))) {
		return nil
	}
	tree, err := decodeTree([]byte(s))
	versions, ok := tree.(map[string]any)
	if err != nil || !ok {
		return nil
	}
	c := refComplement{}
	for version, tree := range versions {
		places, ok := tree.(map[string]any)
		if !ok {
			return nil
		}
		c[version] = map[string]refEntry{}
		for place, tree := range places {
			e, _ := tree.(map[string]any)
			of, _ := e["of"].(string)
			if _, ok := e["value"]; !ok || len(e) != 2 || len(of) != 16 {
				return nil
			}
			c[version][place] = refEntry{Value: e["value"], Of: of}
		}
	}
	return c
}

// refConvert converts an object in place.
func refConvert(fields []refField, object map[string]any, from, to string, toHub bool) error {
	object["apiVersion"] = pizzaGroup + "/" + to
	metadata, ok := object["metadata"].(map[string]any)
	switch {
	case object["metadata"] == nil:
		metadata = map[string]any{}
		object["metadata"] = metadata
	case !ok:
		return errors.New("metadata")
	}
	name, isName := metadata["name"].(string)
	generate, isGenerate := metadata["generateName"].(string)
	partial := (!isName || name == "") && (!isGenerate || generate == "")
	complement := readRefComplement(object)
	kept := map[string]refEntry{}

	var moves []refMove
	for _, f := range fields {
		place, target := f.places(toHub)
		_, occupied := lookUp(object, target)
		leaves := slices.ContainsFunc(fields, func(o refField) bool {
			other, _ := o.places(toHub)
			return slices.Equal(other, target)
		})
		if occupied && !leaves {
			return errors.New("both")
		}
		value, ok := lookUp(object, place)
		if !ok {
			continue
		}
		m := refMove{from: place, to: target, value: value}
		if value != nil {
			entry, lost, err := m.convert(f, toHub, complement[to])
			if err != nil {
				return err
			}
			if lost && !partial {
				kept[strings.Join(place, ".")] = entry
			}
		}
		moves = append(moves, m)
	}
	if err := refApply(fields, object, moves, toHub); err != nil {
		return err
	}
	_, hadFrom := complement[from]
	_, hadTo := complement[to]
	if !hadFrom && !hadTo && len(kept) == 0 {
		return nil
	}
	if complement == nil {
		complement = refComplement{}
	}
	delete(complement, from)
	delete(complement, to)
	if len(kept) > 0 {
		complement[from] = kept
	}
	return refAnnotate(metadata, complement)
}

// places returns the place of the value before and after the conversion.
func (f *refField) places(toHub bool) (place, target []string) {
	if toHub {
		return f.spoke, f.hub
	}
	return f.hub, f.spoke
}

type refMove struct {
	from, to []string
	value    any
}

// convert converts the value. It returns an entry for the value, and whether the annotation must keep this entry.
func (m *refMove) convert(f refField, toHub bool, entries map[string]refEntry) (entry refEntry, lost bool, err error) {
	forth, back := f.back, f.toHub
	if toHub {
		forth, back = back, forth
	}
	before := m.value
	if e := entries[strings.Join(m.to, ".")]; e.Value != nil && e.Of == fingerprintTree(before) {
		if y, err := back(e.Value); err == nil && canonicalTree(y) == canonicalTree(before) {
			m.value = e.Value
			return refEntry{}, false, nil
		}
	}
	if m.value, err = forth(before); err != nil {
		return refEntry{}, false, err
	}
	plain, err := back(m.value)
	lost = err != nil || canonicalTree(plain) != canonicalTree(before)
	if e := entries[strings.Join(m.to, ".")]; e.Value != nil && err == nil {
		if y, err := back(e.Value); err == nil {
			if base, err := forth(y); err == nil {
				value, _ := refThreeWay(base, m.value, e.Value, true, true, true)
				if again, err := back(value); err == nil && canonicalTree(again) == canonicalTree(plain) {
					m.value = value
				}
			}
		}
	}
	return refEntry{Value: before, Of: fingerprintTree(m.value)}, lost, nil // If the conversion back fails, the value is lost.
}

// refThreeWay applies the changes between base and live to kept. Each of the values may be absent.
func refThreeWay(base, live, kept any, hasBase, hasLive, hasKept bool) (any, bool) {
	if hasBase == hasLive && (!hasBase || canonicalTree(base) == canonicalTree(live)) {
		return kept, hasKept
	}
	b, isBase := base.(map[string]any)
	l, isLive := live.(map[string]any)
	k, isKept := kept.(map[string]any)
	if !isBase || !isLive || !isKept {
		return live, hasLive
	}
	out := map[string]any{}
	for _, m := range []map[string]any{l, k} {
		for key := range m {
			bv, hasB := b[key]
			lv, hasL := l[key]
			kv, hasK := k[key]
			if value, ok := refThreeWay(bv, lv, kv, hasB, hasL, hasK); ok {
				out[key] = value
			}
		}
	}
	return out, true
}

// refApply applies the moves.
func refApply(fields []refField, object map[string]any, moves []refMove, toHub bool) error {
	for _, m := range moves {
		if slices.Equal(m.from, m.to) {
			continue
		}
		refDelete(object, m.from, func(parent string) bool { // Parents that the other version has stay.
			return slices.ContainsFunc(fields, func(f refField) bool {
				_, target := f.places(toHub)
				return strings.HasPrefix(strings.Join(target, "."), parent+".")
			})
		})
	}
	for _, m := range moves {
		if err := refSet(object, m.to, m.value); err != nil {
			return err
		}
	}
	return nil
}

func refAnnotate(metadata map[string]any, complement refComplement) error {
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok && metadata["annotations"] != nil {
		return errors.New("annotations")
	}
	if len(complement) == 0 {
		if delete(annotations, Annotation); len(annotations) == 0 {
			delete(metadata, "annotations")
		}
		return nil
	}
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	text, err := json.Marshal(complement)
	annotations[Annotation] = string(text)
	return err
}

func refDelete(object map[string]any, path []string, stays func(string) bool) {
	chain := []map[string]any{object}
	for _, key := range path[:len(path)-1] {
		object = object[key].(map[string]any)
		chain = append(chain, object)
	}
	for i, key := range slices.Backward(path) {
		delete(chain[i], key)
		if len(chain[i]) > 0 || i == 0 || stays(strings.Join(path[:i], ".")) {
			return
		}
	}
}

func refSet(object map[string]any, path []string, value any) error {
	for _, key := range path[:len(path)-1] {
		inner, ok := object[key].(map[string]any)
		if !ok && object[key] != nil {
			return fmt.Errorf("%s is no object", key)
		}
		if inner == nil {
			inner = map[string]any{}
			object[key] = inner
		}
		object = inner
	}
	object[path[len(path)-1]] = value
	return nil
}

// unfold replaces the text of the annotation by its parsed content, for a comparison.
func unfold(tree map[string]any) {
	if c := readRefComplement(tree); c != nil {
		annotations := tree["metadata"].(map[string]any)["annotations"].(map[string]any)
		annotations[Annotation] = map[string]any{"decoded": c}
	}
}

// FuzzConvertAgainstReference compares the engine with the reference.
func FuzzConvertAgainstReference(f *testing.F) {
	const order = `{"refract.dev/complement":"{\"v1alpha1\":{\"spec.toppings\":{\"value\":[\"a\",\"b\",\"a\"],\"of\":\"221117a02b875354\"}}}"}`
	for _, spec := range fuzzSpecs {
		for _, metadata := range []string{``, `null`, `{"name":"n"}`, `{"generateName":"g","annotations":null}`, `{"name":"n","annotations":` + order + `}`} {
			for n := range uint8(4) {
				f.Add(n, metadata, spec)
			}
		}
	}
	f.Add(uint8(1), `{"name":"n","annotations":`+order+`}`, `{"toppings":[{"quantity":2,"name":"a"},{"name":"b","quantity":1.0}]}`)
	f.Add(uint8(1), `{"annotations":`+strings.Replace(order, "v1alpha1", "v1beta1", 1)+`}`, `{"toppings":[{"quantity":2,"name":"a"}]}`)
	engines := map[string]*Engine{"pizza": testEngine(f, "pizza"), "moves": testEngine(f, "moves")}
	f.Fuzz(func(t *testing.T, n uint8, metadata, spec string) {
		name := []string{"pizza", "moves"}[n/2%2]
		from, to, toHub := "v1alpha1", "v1beta1", true
		if n%2 == 1 {
			from, to, toHub = to, from, false
		}
		object, ok := fuzzObject(from, metadata, spec)
		if !ok || strings.Contains(metadata, "items") || strings.Contains(metadata, "members") {
			return // The reference does not support lists.
		}
		tree, err := decodeTree(object)
		if err != nil {
			t.Fatal(err)
		}
		want, ok := tree.(map[string]any)
		if !ok || len(want) > 4 {
			return
		}
		wantErr := refConvert(refFields[name], want, from, to, toHub)
		got, err := engines[name].Convert(object, pizzaGroup+"/"+to)
		if (err == nil) != (wantErr == nil) {
			if err != nil && (errors.Is(err, raw.ErrSyntax) || strings.Contains(err.Error(), Annotation)) {
				return // The text is not UTF-8 or too deep, or the annotation is too large.
			}
			t.Fatalf("%s to %s:\nerror %v, want %v", object, to, err, wantErr)
		}
		if err != nil {
			return
		}
		gotTree, err := decodeTree(got)
		if err != nil {
			t.Fatal(err)
		}
		unfold(want)
		unfold(gotTree.(map[string]any))
		if a, b := canonicalTree(want), canonicalTree(gotTree); a != b {
			t.Fatalf("%s to %s:\ngot  %s\nwant %s", object, to, b, a)
		}
	})
}
