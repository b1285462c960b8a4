package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// zzField generates in each version.
type zzType struct {
	fields []zzF
}
type zzF struct {
	kind       string // same, move, nestmove, spoke, hub, lossy, group, items, uitems, values, obj, matrix
	s, h       string
	inner      *zzType
	spokeParent bool
	def        bool
}

func zzMake(r *rand.Rand, depth int, keyed bool) *zzType {
	t := &zzType{}
	n := 1 + r.IntN(5)
	for i := range n {
		kinds := []string{"same", "move", "nestmove", "snestmove", "spoke", "hub", "lossy", "group", "both", "hubparent", "spokeparent"}
		if depth > 0 {
			kinds = append(kinds, "items", "items", "uitems", "values", "obj", "matrix")
		}
		f := zzF{kind: kinds[r.IntN(len(kinds))]}
		f.s = fmt.Sprintf("s%d", i)
		f.h = f.s
		switch f.kind {
		case "move", "nestmove", "snestmove":
			f.h = fmt.Sprintf("h%d", i)
		case "items", "uitems", "values":
			if r.IntN(2) == 0 {
				f.h = fmt.Sprintf("h%d", i)
			}
			f.inner = zzMake(r, depth-1, f.kind == "items")
		case "obj":
			f.inner = zzMake(r, depth-1, false)
		}
		t.fields = append(t.fields, f)
	}
	return t
}

func (t *zzType) conv(prefixS, prefixH string) []Conversion {
	var out []Conversion
	for i, f := range t.fields {
		s, h := prefixS+f.s, prefixH+f.h
		switch f.kind {
		case "move":
			out = append(out, Move(s, h))
		case "nestmove":
			out = append(out, HubParent(h), Move(s, h+".x"), HubOnly(h+".only"))
		case "snestmove":
			out = append(out, SpokeParent(s), SpokeParent(s+".y"), Move(s+".y.x", h), SpokeOnly(s+".only"), SpokeOnly(s+".y.only"))
		case "spoke":
			out = append(out, SpokeOnly(s))
		case "hub":
			out = append(out, HubOnly(h))
		case "both":
			out = append(out, SpokeOnly(s), HubOnly(h))
		case "hubparent":
			out = append(out, HubParent(h), HubOnly(h+".a"), HubParent(h+".b"), HubOnly(h+".b.c"))
		case "spokeparent":
			out = append(out, SpokeParent(s), SpokeOnly(s+".a"), SpokeParent(s+".b"), SpokeOnly(s+".b.c"))
		case "lossy":
			out = append(out, RawField(s, h, sizeToDiameter, diameterToSize))
		case "group":
			out = append(out, RawField(prefixS+fmt.Sprintf("addr%d", i), prefixH+fmt.Sprintf("{host%d,port%d}", i, i), zzSplit(i), zzJoin(i)))
		case "items":
			out = append(out, Items(s, h, append(f.inner.conv("", ""), Move("name", "id")), Keys([]string{"name"}, []string{"id"})))
		case "uitems":
			out = append(out, Items(s, h, f.inner.conv("", "")))
		case "values":
			out = append(out, Values(s, h, f.inner.conv("", "")))
		case "obj":
			out = append(out, f.inner.conv(s+".", h+".")...)
		case "matrix":
			out = append(out, Items(s, h, []Conversion{Items("", "", []Conversion{RawField("", "", sizeToDiameter, diameterToSize)})}))
		}
	}
	return out
}

func zzSplit(i int) func(dst, v []byte) ([]byte, error) {
	return func(dst, v []byte) ([]byte, error) {
		var s string
		if err := json.Unmarshal(v, &s); err != nil {
			return dst, err
		}
		a, b, _ := strings.Cut(s, ":")
		m := map[string]any{}
		if a != "" {
			m[fmt.Sprintf("host%d", i)] = a
		}
		if b != "" {
			n, err := strconv.Atoi(b)
			if err != nil {
				return dst, err
			}
			m[fmt.Sprintf("port%d", i)] = n
		}
		j, _ := json.Marshal(m)
		return append(dst, j...), nil
	}
}

func zzJoin(i int) func(dst, v []byte) ([]byte, error) {
	return func(dst, v []byte) ([]byte, error) {
		var m map[string]any
		if err := json.Unmarshal(v, &m); err != nil {
			return dst, err
		}
		s := ""
		if h, ok := m[fmt.Sprintf("host%d", i)].(string); ok {
			s = h
		}
		if p, ok := m[fmt.Sprintf("port%d", i)].(float64); ok {
			s += fmt.Sprintf(":%d", int(p))
		}
		return append(dst, strconv.Quote(s)...), nil
	}
}

func zzText(r *rand.Rand) any { return []any{"a", "b", "c\"d\u00e9", 7, true, map[string]any{}, []any{}, ""}[r.IntN(8)] }

func (t *zzType) make(r *rand.Rand, hub bool, nulls bool) map[string]any {
	o := map[string]any{}
	put := func(k string, v any) {
		if r.IntN(4) > 0 {
			if nulls && r.IntN(10) == 0 {
				v = nil
			}
			o[k] = v
		}
	}
	if r.IntN(2) == 0 {
		o["zunknown"] = r.IntN(3)
	}
	for i, f := range t.fields {
		k := f.s
		if hub {
			k = f.h
		}
		sub := func(keys ...string) map[string]any {
			m := map[string]any{}
			for _, x := range keys {
				if r.IntN(3) > 0 {
					m[x] = zzText(r)
				}
			}
			return m
		}
		switch f.kind {
		case "same", "move", "both":
			put(k, zzText(r))
		case "nestmove":
			if hub {
				put(k, sub("x", "only"))
			} else {
				put(k, zzText(r))
			}
		case "snestmove":
			if hub {
				put(k, zzText(r))
			} else {
				m := sub("only")
				if r.IntN(2) == 0 {
					m["y"] = sub("x", "only")
				}
				put(k, m)
			}
		case "spoke":
			if !hub {
				put(k, zzText(r))
			}
		case "hub":
			if hub {
				put(k, zzText(r))
			}
		case "hubparent", "spokeparent":
			if hub == (f.kind == "hubparent") {
				m := sub("a")
				if r.IntN(2) == 0 {
					m["b"] = sub("c")
				}
				put(k, m)
			}
		case "lossy":
			put(k, zzSize(r, hub))
		case "group":
			if hub {
				if r.IntN(3) > 0 {
					o[fmt.Sprintf("host%d", i)] = []any{"a", "", "b"}[r.IntN(3)]
				}
				if r.IntN(3) > 0 {
					o[fmt.Sprintf("port%d", i)] = []any{1, 2}[r.IntN(2)]
				}
			} else {
				put(fmt.Sprintf("addr%d", i), []any{"a:1", "a", ":1", "", "b:02"}[r.IntN(5)])
			}
		case "items", "uitems":
			var l []any = []any{}
			for j := range r.IntN(4) {
				e := f.inner.make(r, hub, nulls)
				if f.kind == "items" {
					kk := "name"
					if hub {
						kk = "id"
					}
					e[kk] = fmt.Sprintf("k%d", j)
					if r.IntN(12) == 0 {
						e[kk] = "k0"
					}
					if r.IntN(12) == 0 {
						delete(e, kk)
					}
				}
				if nulls && r.IntN(8) == 0 {
					l = append(l, []any{nil, "x", 1, []any{}}[r.IntN(4)])
				} else {
					l = append(l, e)
				}
			}
			put(k, l)
		case "values":
			m := map[string]any{}
			for _, x := range []string{"a", "b.c", "", "\"q\u00e9"} {
				if r.IntN(3) == 0 {
					m[x] = f.inner.make(r, hub, nulls)
				}
			}
			put(k, m)
		case "obj":
			m := f.inner.make(r, hub, nulls)
			m["fixed"] = 1
			put(k, m)
		case "matrix":
			var rows []any = []any{}
			for range r.IntN(3) {
				var row []any = []any{}
				for range r.IntN(3) {
					row = append(row, zzSize(r, hub))
				}
				rows = append(rows, row)
			}
			put(k, rows)
		}
	}
	return o
}

func zzSize(r *rand.Rand, hub bool) any {
	if hub {
		return r.IntN(50)
	}
	return []any{"", "small", "large"}[r.IntN(3)]
}

func zzShuffledJSON(r *rand.Rand, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		r.Shuffle(len(keys), func(i, k int) { keys[i], keys[k] = keys[k], keys[i] })
		out := []byte("{")
		sp := []string{"", " ", "  "}[r.IntN(30)/28]
		for i, k := range keys {
			if i > 0 {
				out = append(out, ',')
			}
			q, _ := json.Marshal(k)
			out = append(append(append(out, sp...), q...), sp...)
			out = append(append(append(out, ':'), sp...), zzShuffledJSON(r, v[k])...)
			out = append(out, sp...)
		}
		return append(out, '}')
	case []any:
		out := []byte("[")
		for i, x := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, zzShuffledJSON(r, x)...)
		}
		return append(out, ']')
	}
	q, _ := json.Marshal(v)
	return q
}

func zzEdit(r *rand.Rand, v any, fresh any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if k == "id" || k == "name" {
				continue
			}
			var f any
			if m, ok := fresh.(map[string]any); ok {
				f = m[k]
			}
			switch {
			case r.IntN(8) == 0:
				delete(v, k)
			case r.IntN(5) == 0 && f != nil:
				v[k] = f
			default:
				v[k] = zzEdit(r, v[k], f)
			}
		}
		return v
	case []any:
		if len(v) > 0 && r.IntN(3) == 0 {
			i := r.IntN(len(v))
			v = slices.Delete(v, i, i+1)
		}
		if r.IntN(3) == 0 {
			r.Shuffle(len(v), func(i, k int) { v[i], v[k] = v[k], v[i] })
		}
		if len(v) == 0 {
			return []any{}
		}
		for i := range v {
			if m, ok := v[i].(map[string]any); ok {
				v[i] = zzEdit(r, m, nil)
			}
		}
		return v
	}
	return v
}

func TestZZRand(t *testing.T) {
	n := 3000
	if s := os.Getenv("ZZN"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	base := uint64(0)
	if s := os.Getenv("ZZS"); s != "" {
		x, _ := strconv.Atoi(s)
		base = uint64(x)
	}
	bad := map[string]int{}
	smallest := map[string]string{}
	defer func() {
		for _, text := range smallest {
			t.Error(strings.ReplaceAll(text, "restaurant.programming-kubernetes.info", "R"))
		}
	}()
	start := time.Now()
	for seed := base; seed < base+uint64(n); seed++ {
		if time.Since(start) > 90*time.Second {
			t.Log("stopped at", seed)
			break
		}
		r := rand.New(rand.NewPCG(seed, 3))
		nulls := seed%3 == 0
		typ := zzMake(r, 2, false)
		typ2 := zzMake(r, 2, false)
		_ = typ2
		convs := typ.conv("spec.", "spec.")
		e, err := New(Resource{Group: pizzaGroup, Kind: "Pizza", Hub: "v1beta1", Spokes: []Spoke{{Version: "v1alpha1", Conversions: convs}, {Version: "v1", Conversions: typ.conv("spec.", "spec.")}}})
		if err != nil {
			t.Fatal(err)
		}
		fail := func(law string, args ...any) {
			bad[law]++
			var d []string
			for _, f := range typ.fields {
				d = append(d, f.desc())
			}
			text := fmt.Sprintf("seed %d %s: %v\n%s", seed, law, d, fmt.Sprintln(args...))
			if old := smallest[law]; old == "" || len(text) < len(old) {
				smallest[law] = text
			}
		}
		hub := r.IntN(2) == 0
		from, to := "v1alpha1", "v1beta1"
		if hub {
			from, to = to, from
		}
		if !hub && r.IntN(3) == 0 {
			to = "v1"
		}
		conv := func(law string, o []byte, v string) []byte {
			out, err := e.Convert(o, pizzaGroup+"/"+v)
			if err != nil {
				fail(law+" error", err, "\n"+string(o))
				return nil
			}
			if !json.Valid(out) {
				fail(law+" invalid", string(o), "\n"+string(out))
				return nil
			}
			return out
		}
		var c comparer
		o := zzObj(from, "", string(zzShuffledJSON(r, typ.make(r, hub, nulls))))
		h1 := conv("forth", o, to)
		if h1 == nil {
			continue
		}
		s2 := conv("back", h1, from)
		if s2 == nil {
			continue
		}
		if !c.equal(o, s2) {
			fail("roundtrip", string(o), "\n"+string(h1), "\n"+string(s2))
			continue
		}
		h2 := conv("forth2", s2, to)
		if !bytes.Equal(h1, h2) {
			// order may change once
			s3 := conv("b", h2, from)
			h3 := conv("c", s3, to)
			if !bytes.Equal(h2, h3) {
				fail("idempotence", "\n"+string(h1), "\n"+string(h2), "\n"+string(h3))
			}
			if len(h2) != len(h1) {
				fail("growth", "\n"+string(h1), "\n"+string(h2))
			}
		}
		// review of two
		o2 := zzObj(from, "", string(zzShuffledJSON(r, typ.make(r, hub, nulls))))
		alone := conv("alone", o2, to)
		if alone == nil {
			continue
		}
		review := fmt.Sprintf(`{"apiVersion":%q,"kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"%s/%s","objects":[%s,%s,%s]}}`, reviewV1, pizzaGroup, to, o, o2, o)
		a, err := e.Review([]byte(review))
		if err != nil || a.Err() != nil {
			fail("review", err, a.Err())
		} else if want := "[" + string(h1) + "," + string(alone) + "," + string(h1) + "]"; !strings.Contains(string(a.Bytes()), want) {
			fail("review differs", want, "\n"+string(a.Bytes()))
		}
		// edit
		var tree map[string]any
		d := json.NewDecoder(bytes.NewReader(h1))
		d.UseNumber()
		if err := d.Decode(&tree); err != nil {
			fail("decode", err)
			continue
		}
		tree["spec"] = zzEdit(r, tree["spec"], typ.make(r, to == "v1beta1", nulls))
		edited := zzShuffledJSON(r, tree)
		back := conv("edit back", edited, from)
		if back == nil {
			continue
		}
		again := conv("edit again", back, to)
		if again == nil {
			continue
		}
		if !c.equal(memberOf(t, edited, "spec"), memberOf(t, again, "spec")) {
			fail("edit", string(o), "\n"+string(edited), "\n"+string(back), "\n"+string(again))
		}
		// foreign entries: the annotation of another object
		var other map[string]any
		_ = json.Unmarshal(alone, &other)
		m1, _ := tree["metadata"].(map[string]any)
		if om, ok := other["metadata"].(map[string]any); ok && om["annotations"] != nil {
			m1["annotations"] = om["annotations"]
			forged := zzShuffledJSON(r, tree)
			fb := conv("forged back", forged, from)
			if fb != nil {
				fa := conv("forged again", fb, to)
				if fa != nil && !c.equal(memberOf(t, forged, "spec"), memberOf(t, fa, "spec")) {
					fail("forged", "\n"+string(forged), "\n"+string(fb), "\n"+string(fa))
				}
			}
		}
	}
	t.Log(bad)
}

func (f zzF) desc() string {
	s := f.kind + ":" + f.s + ">" + f.h
	if f.inner != nil {
		s += "("
		for _, x := range f.inner.fields {
			s += x.desc() + " "
		}
		s += ")"
	}
	return s
}
