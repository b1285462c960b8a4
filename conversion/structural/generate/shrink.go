package generate

import (
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// patience is the maximum number of calls of fails by Shrink.
const patience = 2000

// Shrink returns the smallest object that it finds for which fails is true. It removes members and elements, replaces
// values by simpler ones, and shortens texts and numbers, as long as fails stays true.
//
// obj must be an object for which fails is true. It is not modified, and fails must not modify its argument. Shrink
// calls fails at most 2,000 times. As soon as stop is true, it returns the smallest object so far. The result depends
// only on obj, fails and stop. If fails is false for obj, Shrink returns a copy of obj.
func Shrink(obj map[string]any, fails func(map[string]any) bool, stop func() bool) map[string]any {
	s := &shrinker{best: runtime.DeepCopyJSON(obj), fails: fails, stop: stop, left: patience}
	if !s.holds(s.best) {
		return s.best
	}
	s.coarse(nil, s.best)
	for s.pass(nil, s.best) {
		continue
	}
	return s.best
}

// shrinker holds the smallest object so far.
type shrinker struct {
	best  map[string]any
	fails func(map[string]any) bool
	stop  func() bool
	left  int
}

// over reports whether the search has ended. It is called before each copy: copying a large object takes longer than
// calling fails.
func (s *shrinker) over() bool { return s.left == 0 || s.stop() }

func (s *shrinker) holds(obj map[string]any) bool {
	if s.over() {
		return false
	}
	s.left--
	return s.fails(runtime.DeepCopyJSON(obj))
}

// keep makes a changed object the smallest one if fails is true for it.
func (s *shrinker) keep(changed any) bool {
	obj, ok := changed.(map[string]any)
	if !ok || !s.holds(obj) {
		return false
	}
	s.best = obj
	return true
}

// pass tries once to simplify all values below a place, and reports whether it changed any.
func (s *shrinker) pass(at []any, value any) bool {
	smaller := false
	switch value := value.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(value)) {
			if s.over() {
				return false
			}
			smaller = s.reduce(append(slices.Clone(at), k), value[k]) || smaller
		}
	case []any:
		left := s.cut(at, value)
		smaller = len(left) < len(value)
		for i, item := range slices.Backward(left) { // From the end, so that other indexes stay correct.
			if s.over() {
				return false
			}
			smaller = s.reduce(append(slices.Clone(at), i), item) || smaller
		}
	}
	return smaller
}

// reduce removes the value at a place. If it is needed, reduce replaces it by the first simpler value that still fails.
// Without one, it simplifies the values below.
func (s *shrinker) reduce(place []any, value any) bool {
	if s.try(place, removed) {
		return true
	}
	for _, v := range simpler(value) {
		if s.try(place, v) || s.tryTogether(value, v) {
			return true
		}
	}
	return s.pass(place, value)
}

// coarse first shortens long lists or makes all their elements the same text, because each attempt takes time
// proportional to the size of the object.
func (s *shrinker) coarse(at []any, value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(value)) {
			if s.over() {
				return
			}
			s.coarse(append(slices.Clone(at), k), value[k])
		}
	case []any:
		s.coarseList(at, value)
	}
}

func (s *shrinker) coarseList(at []any, list []any) {
	if len(list) > long {
		if s.try(at, []any{}) {
			return
		}
		if same := slices.Repeat(list[:1], len(list)); s.try(at, same) { // The length may be restricted.
			list = same
			for _, v := range simpler(list[0]) {
				if s.tryTogether(list[0], v) {
					list = slices.Repeat([]any{v}, len(list))
					break
				}
			}
		}
		list = s.cut(at, list)
	}
	for i, item := range list[:min(long, len(list))] {
		s.coarse(append(slices.Clone(at), i), item)
	}
}

// long is the maximum number of elements of a short list.
const long = 16

// cut removes several elements of a long list at once, first many and then fewer, and returns the remaining elements.
func (s *shrinker) cut(at []any, list []any) []any {
	for size := len(list) / 2; size > 1 && !s.over(); size /= 2 {
		for end := len(list); end >= size && !s.over(); end -= size {
			if shorter := slices.Delete(slices.Clone(list), end-size, end); s.try(at, shorter) {
				list = shorter
			}
		}
	}
	return list
}

// tryTogether replaces all occurrences of a text, since their equality may matter.
func (s *shrinker) tryTogether(value, simple any) bool {
	text, ok := value.(string)
	if !ok || simple == nil || s.over() {
		return false
	}
	changed, n := replaced(s.best, text, simple)
	return n > 1 && s.keep(changed)
}

// replaced returns a copy of a tree with a text replaced, and the number of replacements.
func replaced(tree any, text string, by any) (out any, n int) {
	var found int
	switch tree := tree.(type) {
	case map[string]any:
		changed := make(map[string]any, len(tree))
		for key, inner := range tree {
			changed[key], found = replaced(inner, text, by)
			n += found
		}
		return changed, n
	case []any:
		changed := make([]any, len(tree))
		for i, inner := range tree {
			changed[i], found = replaced(inner, text, by)
			n += found
		}
		return changed, n
	case string:
		if tree == text {
			return by, 1
		}
	}
	return tree, 0
}

// absent is the type of removed, which represents the absence of a value.
type absent struct{}

var removed = absent{}

// try sets or removes the value at a place, and keeps the change if fails stays true.
func (s *shrinker) try(place []any, value any) bool {
	if s.over() {
		return false
	}
	changed, ok := with(s.best, place, value)
	return ok && s.keep(changed)
}

// with returns a copy of a tree with the value at a place set or removed, and reports whether that was possible: a
// removed value and the parent of a set value must exist. The index after the last element appends. The copy shares
// unchanged values with the tree.
func with(tree any, place []any, value any) (any, bool) {
	if len(place) == 0 {
		return value, true
	}
	switch tree := tree.(type) {
	case map[string]any:
		key, isKey := place[0].(string)
		inner, there := tree[key]
		inner, ok := with(inner, place[1:], value)
		if !isKey || !ok || !there && inner == any(removed) {
			return nil, false
		}
		out := maps.Clone(tree)
		if out[key] = inner; inner == any(removed) {
			delete(out, key)
		}
		return out, true
	case []any:
		i, isIndex := place[0].(int)
		if !isIndex || i < 0 || i > len(tree) {
			return nil, false
		}
		if i == len(tree) {
			return append(slices.Clone(tree), value), len(place) == 1 && value != any(removed)
		}
		inner, ok := with(tree[i], place[1:], value)
		out := slices.Clone(tree)
		if out[i] = inner; inner == any(removed) {
			out = slices.Delete(out, i, i+1)
		}
		return out, ok
	default:
		return nil, false
	}
}

// simpler returns simpler values, those that help most first. A null comes last: an empty value tells a reader more.
func simpler(value any) []any {
	var out []any
	switch value := value.(type) {
	case nil:
		return nil
	case map[string]any:
		if len(value) > 0 {
			out = append(out, map[string]any{})
		}
	case []any:
		if len(value) > 0 {
			out = append(out, []any{})
		}
	case string:
		out = simplerTexts(value)
	case int64:
		out = simplerIntegers(value)
	case float64:
		out = simplerFloats(value)
	case bool:
		if value {
			out = append(out, false)
		}
	}
	return append(out, nil)
}

func simplerTexts(text string) []any {
	if text == "" {
		return nil
	}
	letters := []rune(text)
	out := []any{""}
	if len(letters) > 3 {
		out = append(out, string(letters[:len(letters)/2]), string(letters[len(letters)/2:]))
	}
	if len(letters) > 1 {
		out = append(out, string(letters[:len(letters)-1]), string(letters[1:]))
	}
	if plain := strings.Repeat("a", len(letters)); text != plain {
		out = append(out, plain)
	}
	return out
}

func simplerIntegers(n int64) []any {
	switch {
	case n == 0:
		return nil
	case n < 0:
		return []any{int64(0), n / 2, n - n/4, n - n/32, n + 1}
	case n < 4:
		return []any{int64(0), n / 2, n - 1}
	default:
		return []any{int64(0), int64(1), int64(2), n / 2, n - n/4, n - n/32, n - 1}
	}
}

// simplerFloats also returns floats for whole numbers, since 1.0 is another literal than 1.
func simplerFloats(n float64) []any {
	switch {
	case n == 0:
		return []any{int64(0)}
	case math.Abs(n) > 1<<53:
		return []any{int64(0), float64(0), math.Copysign(1<<53, n)}
	case math.Trunc(n) == n:
		return []any{int64(0), float64(0), int64(n), math.Trunc(n / 2)}
	default:
		return []any{int64(0), float64(0), int64(n), math.Trunc(n)}
	}
}
