package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/offline/render"
	"refract.dev/internal/output"
	"refract.dev/tree"
)

// UnknownPathError is the error of [Explain] for a place that neither the object nor a variant has.
type UnknownPathError struct {
	Object render.Object
	Path   string
	// Hint is advice that takes the object into account; it may be empty.
	Hint string
}

// Error names the place and the object.
func (e *UnknownPathError) Error() string {
	return fmt.Sprintf("%s has no %s, on the hub or on a cluster", e.Object.String(), e.Path)
}

// checkPath returns an error if neither the object nor a variant has the place of interest.
func (x *Explanation) checkPath(o *render.Outcome, template *unstructured.Unstructured) error {
	if x.Path == "" {
		return nil
	}
	roots := []map[string]any{template.Object, o.Object.Content.Object}
	for i := range x.Groups {
		g := &x.Groups[i]
		if g.Failed || slices.ContainsFunc(g.Fields, func(f Field) bool { return f.exists() }) {
			return nil
		}
	}
	for _, root := range roots {
		if _, ok := lookup(root, x.Path); ok {
			return nil
		}
	}
	for i := range o.Variants {
		if v := &o.Variants[i]; v.Err == nil {
			roots = append(roots, v.Object.Object)
		}
	}
	return &UnknownPathError{Object: x.Object, Path: x.Path, Hint: hint(x.Path, roots)}
}

// hint suggests a similar place, in the root with the longest existing part of the path. Otherwise it describes the
// value where the path ends.
func hint(path string, roots []map[string]any) string {
	keys := tree.MustParse(path).Keys()
	var best lost
	for i, root := range roots {
		if at := getLost(root, keys); i == 0 || at.depth > best.depth {
			best = at
		}
	}
	if near := best.near(); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return best.view()
}

// lost is the point where a path leads no further.
type lost struct {
	node  any      // The last existing value.
	keys  []string // Of the path.
	depth int      // The number of keys that lead to node.
}

func getLost(node any, keys []string) lost {
	for i, key := range keys {
		next, ok := lookup(node, "/"+tree.Escape(key))
		if !ok {
			return lost{node: node, keys: keys, depth: i}
		}
		node = next
	}
	return lost{node: node, keys: keys, depth: len(keys)}
}

// near returns a similar path that exists; empty without one.
func (l *lost) near() string {
	if l.depth == len(l.keys) {
		return ""
	}
	wanted, key := l.keys[l.depth], ""
	switch node := l.node.(type) {
	case map[string]any:
		key = nearest.To(wanted, slices.Sorted(maps.Keys(node)))
	case []any: // The key may be the name of an element.
		i := slices.IndexFunc(node, func(item any) bool {
			m, ok := item.(map[string]any)
			return ok && m["name"] == wanted
		})
		if i >= 0 {
			key = strconv.Itoa(i)
		}
	}
	if key == "" {
		return ""
	}
	found := append(slices.Clone(l.keys[:l.depth]), key)
	if next, ok := lookup(l.node, "/"+tree.Escape(key)); ok {
		rest := l.keys[l.depth+1:]
		if at := getLost(next, rest); at.depth == len(rest) {
			found = append(found, rest...)
		}
	}
	return pointer(found)
}

// view describes the value where the path leads no further.
func (l *lost) view() string {
	at := pointer(l.keys[:l.depth])
	if at == "" {
		at = "the object"
	}
	switch node := l.node.(type) {
	case map[string]any:
		return fmt.Sprintf("%s has %s", at, render.Few(slices.Sorted(maps.Keys(node))))
	case []any:
		return fmt.Sprintf("%s has %s", at, output.Count(len(node), "element", "elements"))
	default:
		return fmt.Sprintf("%s is %s, with nothing inside", at, tree.TypeName(node))
	}
}

func pointer(keys []string) string {
	var b strings.Builder
	for _, key := range keys {
		b.WriteString("/" + tree.Escape(key))
	}
	return b.String()
}
