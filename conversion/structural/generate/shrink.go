package generate

import (
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// patience is the maximum number of calls of the function fails by Shrink.
const patience = 2000

// Shrink looks for a small object for which the function fails returns true, and returns the smallest one that it
// finds. It begins with obj, for which the function fails should return true. In each step it removes a member or an
// element, or replaces a value by a simpler one. It keeps the result of a step for which the function fails returns
// true.
//
// Shrink does not modify obj, and the function fails must not modify its argument. Shrink calls it at most 2,000 times.
// As soon as the function stop returns true, Shrink returns the smallest object so far. The result depends only on the
// arguments. If the function fails returns false for obj, Shrink returns a copy of obj.
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

// shrinker has the smallest object so far.
type shrinker struct {
	best  map[string]any
	fails func(map[string]any) bool
	stop  func() bool
	left  int
}

// over reports whether the search must end. It is called before each copy of an object, because copying a large object
// takes longer than a call of the function fails.
func (s *shrinker) over() bool { return s.left == 0 || s.stop() }

func (s *shrinker) holds(obj map[string]any) bool {
	if s.over() {
		return false
	}
	s.left--
	return s.fails(runtime.DeepCopyJSON(obj))
}

// keep checks a changed object with the function fails. If the result is true, the changed object becomes the smallest
// object, and keep returns true.
func (s *shrinker) keep(changed any) bool {
	obj, ok := changed.(map[string]any)
	if !ok || !s.holds(obj) {
		return false
	}
	s.best = obj
	return true
}

// pass tries once to simplify each value below a place. It returns true if one of them became simpler.
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
		for i, item := range slices.Backward(left) { // From the end, so that the indexes of earlier elements stay valid.
			if s.over() {
				return false
			}
			smaller = s.reduce(append(slices.Clone(at), i), item) || smaller
		}
	}
	return smaller
}

// reduce tries to make the object smaller at a place, until an attempt succeeds. It removes the value, replaces it by a
// simpler value, or simplifies the values below it. It returns false if no attempt succeeds.
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

// coarse shortens long lists, or makes all their elements equal and simple. It runs first, because the time for each
// attempt is proportional to the size of the object.
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
		if same := slices.Repeat(list[:1], len(list)); s.try(at, same) { // The length stays the same, because the schema may require it.
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

// long is the length above which coarse shortens a list.
const long = 16

// cut tries to remove ranges of elements from a list, and returns the remaining elements. It begins with halves of the
// list, and continues with smaller ranges of more than one element.
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

// tryTogether replaces all occurrences of a text in the object at once, because the function fails may depend on their
// equality.
func (s *shrinker) tryTogether(value, simple any) bool {
	text, ok := value.(string)
	if !ok || simple == nil || s.over() {
		return false
	}
	changed, n := replaced(s.best, text, simple)
	return n > 1 && s.keep(changed)
}

// replaced returns a copy of a tree in which by replaces the text, and the number of replacements.
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

// absent is the type of removed. As the new value of a place, removed means that the value is removed.
type absent struct{}

var removed = absent{}

// try sets or removes the value at a place. If the function fails returns true for the changed object, try keeps that
// object and returns true.
func (s *shrinker) try(place []any, value any) bool {
	if s.over() {
		return false
	}
	changed, ok := with(s.best, place, value)
	return ok && s.keep(changed)
}

// with returns a copy of a tree in which the value at a place is set or removed. The copy shares unchanged values with
// the tree. with returns false if the value to remove, or the parent of the value to set, does not exist. A place at
// the end of a list ends with the length of the list.
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

// simpler returns values that are simpler than a value, the most useful ones first. Null is last, because an empty
// value of the same type tells a reader more.
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

// simplerFloats returns simpler numbers. It also returns whole numbers as floats, because 1.0 and 1 have different
// texts.
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
