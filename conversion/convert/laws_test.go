package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// maker makes random objects for the laws that every engine must obey.
type maker struct {
	*rand.Rand
	hub bool
}

// either returns the key for the version of the maker.
func (m maker) either(spoke, hub string) string {
	if m.hub {
		return hub
	}
	return spoke
}

// some sets a member of an object with a probability of 3/4.
func (m maker) some(object map[string]any, key string, value any) {
	if m.IntN(4) > 0 {
		object[key] = value
	}
}

func (m maker) spec() map[string]any {
	spec := map[string]any{}
	m.some(spec, "note", m.text())
	m.some(spec, "other", []any{1, nil})
	if m.hub {
		oven := map[string]any{}
		m.some(oven, "degrees", m.IntN(500))
		m.some(oven, "wood", m.text())
		m.some(spec, "oven", oven)
		m.some(spec, "host", m.text())
		m.some(spec, "port", 1+m.IntN(100))
	} else {
		m.some(spec, "degrees", m.IntN(500))
		m.some(spec, "address", fmt.Sprintf("%s:%d", m.text(), 1+m.IntN(100)))
	}
	var orders, drinks []any
	for i := range m.IntN(4) {
		var pizzas []any
		for k := range m.IntN(4) {
			pizzas = append(pizzas, m.element(fmt.Sprint("p", k)))
		}
		order := map[string]any{m.either("no", "number"): i}
		m.some(order, "pizzas", pizzas)
		if !m.hub {
			m.some(order, "note", m.text())
		}
		orders = append(orders, order)
		drinks = append(drinks, m.element(fmt.Sprint("d", i)))
	}
	m.some(spec, m.either("orders", "tables"), orders)
	m.some(spec, "drinks", drinks)
	stock := map[string]any{}
	for _, key := range []string{"flour", "oil.olive", ""} {
		m.some(stock, key, m.element(m.text()))
	}
	m.some(spec, "stock", stock)
	return spec
}

func (m maker) text() string { return []string{"a", "b", "c.d"}[m.IntN(3)] }

// element makes an element with this name.
func (m maker) element(name string) map[string]any {
	e := map[string]any{}
	m.some(e, "new", m.IntN(9))
	if !m.hub {
		e["name"] = name
		m.some(e, "size", []string{"", "small", "large"}[m.IntN(3)])
		m.some(e, "note", m.text())
		return e
	}
	e["id"] = map[string]any{"name": name}
	m.some(e, "diameter", m.IntN(50))
	m.some(e, "origin", m.text())
	return e
}

// edit changes parts of an object: it reorders lists, and removes, replaces or edits elements.
func (m maker) edit(spec map[string]any) {
	fresh := m.spec()
	for _, key := range slices.Sorted(maps.Keys(spec)) {
		switch old := spec[key].(type) {
		case []any:
			spec[key] = m.editList(old, fresh[key])
		default:
			if fresh[key] != nil && m.IntN(3) == 0 {
				spec[key] = fresh[key]
			}
		}
	}
}

func (m maker) editList(list []any, fresh any) []any {
	if m.IntN(2) == 0 {
		m.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	}
	if len(list) > 1 && m.IntN(2) == 0 {
		list = list[1:]
	}
	for _, e := range list {
		object, ok := e.(map[string]any)
		if !ok {
			continue
		}
		if inner, ok := object["pizzas"].([]any); ok {
			object["pizzas"] = m.editList(inner, nil)
		}
		if object["id"] != nil || object["name"] != nil {
			m.some(object, "new", "edited")
			m.some(object, m.either("size", "diameter"), []any{"small", 31}[map[bool]int{true: 1}[m.hub]])
		}
	}
	if more, ok := fresh.([]any); ok && len(more) > 0 && m.IntN(3) == 0 {
		if e, ok := more[0].(map[string]any); ok && e["number"] == nil && e["no"] == nil {
			list = append(list, m.element("new"))
		}
	}
	return list
}

// FuzzLaws converts random objects to another version and back. Without an edit in the other version, the object must
// be unchanged. With an edit, the object must have the edit, and the elements that still exist must get their kept
// values back.
func FuzzLaws(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	e := testEngine(f, "laws")
	f.Fuzz(func(t *testing.T, seed uint64) {
		here := maker{Rand: rand.New(rand.NewPCG(seed, 1)), hub: seed%2 == 1}
		there := maker{Rand: here.Rand, hub: !here.hub}
		from, to := here.either("v1alpha1", "v1beta1"), here.either("v1beta1", "v1alpha1")
		spec, err := json.Marshal(here.spec())
		if err != nil {
			t.Fatal(err)
		}
		object, ok := fuzzObject(from, `{"name":"n"}`, string(spec))
		if !ok {
			t.Fatalf("made no object: %s", spec)
		}
		first := convertThere(t, e, object, to)
		sameObjects(t, "round trip", object, convertThere(t, e, first, from))

		var tree map[string]any
		if err := json.Unmarshal(first, &tree); err != nil {
			t.Fatal(err)
		}
		there.edit(tree["spec"].(map[string]any))
		edited, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		back := convertThere(t, e, edited, from)
		sameSpecs(t, "edit", edited, convertThere(t, e, back, to))
		owned, now := possessions(t, object), possessions(t, back)
		for name, had := range owned {
			if has, ok := now[name]; ok && has != had {
				t.Fatalf("%s had %s, and has %s now:\n%s\n%s\n%s\n%s", name, had, has, object, first, edited, back)
			}
		}
	})
}

func convertThere(t *testing.T, e *Engine, object []byte, version string) []byte {
	t.Helper()
	out := mustConvert(t, e, object, version)
	if out == nil {
		_, err := e.Convert(object, pizzaGroup+"/"+version)
		t.Fatalf("%s: %v", object, err)
	}
	return out
}

func sameObjects(t *testing.T, law string, a, b []byte) {
	t.Helper()
	var c comparer
	if !c.equal(a, b) {
		t.Fatalf("%s: -want, +got:\n%s\n%s\n%s", law, cmp.Diff(canonicalOf(a), canonicalOf(b)), a, b)
	}
}

func canonicalOf(value []byte) string { return string(new(comparer).canonical(nil, value)) }

func sameSpecs(t *testing.T, law string, a, b []byte) {
	t.Helper()
	sameObjects(t, law, memberOf(t, a, "spec"), memberOf(t, b, "spec"))
}

// possessions returns the values of each element with keys that only one version has, by list, key and field.
func possessions(t *testing.T, object []byte) map[string]string {
	t.Helper()
	var tree struct {
		Spec struct {
			Orders []map[string]any `json:"orders"`
			Tables []map[string]any `json:"tables"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(object, &tree); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, o := range slices.Concat(tree.Spec.Orders, tree.Spec.Tables) {
		order := fmt.Sprint("order ", o["no"], o["number"])
		all[order] = fmt.Sprint(o["note"])
		pizzas, _ := o["pizzas"].([]any)
		for _, p := range pizzas {
			pizza, _ := p.(map[string]any)
			all[fmt.Sprint(order, " pizza ", pizza["name"], pizza["id"])] = fmt.Sprint(pizza["note"], pizza["origin"])
		}
	}
	return all
}
