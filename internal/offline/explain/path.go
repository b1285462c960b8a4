package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/internal/offline/manifest/nearest"
	"refract.dev/internal/offline/render"
	"refract.dev/internal/output"
	"refract.dev/tree"
)

// UnknownPathError is the error of [Explain] for a place that is nowhere.
type UnknownPathError struct {
	Object render.Object
	Path   string
	// Hint is advice that comes from having looked; it may be empty.
	Hint string
}

// Error says which place of which object.
func (e *UnknownPathError) Error() string {
	return fmt.Sprintf("%s has no %s, on the hub or on a cluster", e.Object.String(), e.Path)
}

// checkPath returns an error if the place that was asked about is nowhere.
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

// hint looks for the place that somebody may have meant in the root where most
// of the path is there.
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

// lost is where a path leads no further.
type lost struct {
	node  any      // The last that is there.
	keys  []string // Of the path.
	depth int      // How many of keys lead to node.
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

// near returns a path like the one that was asked for, of a place that is there;
// empty if there is none.
func (l *lost) near() string {
	if l.depth == len(l.keys) {
		return ""
	}
	wanted, key := l.keys[l.depth], ""
	switch node := l.node.(type) {
	case map[string]any:
		key = nearest.To(wanted, slices.Sorted(maps.Keys(node)))
	case []any: // Elements may be known by their names.
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

// view says what there is where the path leads no further.
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
