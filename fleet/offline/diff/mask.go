package diff

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/offline/render"
	"refract.dev/tree"
)

// masked returns the groups for output, with the values of Secrets masked.
func (d *Diff) masked() []Group {
	groups := make([]Group, len(d.Groups))
	for i := range d.Groups {
		g := d.Groups[i]
		if g.ofSecrets() {
			g.Changes = make([]Change, len(d.Groups[i].Changes))
			for j, c := range d.Groups[i].Changes {
				g.Changes[j] = Change{Change: render.Mask(secret, c.Change), Cause: c.Cause}
			}
		}
		g.Objects = make([]Object, len(d.Groups[i].Objects))
		for j, o := range d.Groups[i].Objects {
			o.Before, o.After = maskBoth(o.Before, o.After)
			g.Objects[j] = o
		}
		groups[i] = g
	}
	return groups
}

var secret = schema.GroupKind{Kind: "Secret"}

// ofSecrets reports whether the group's objects are Secrets.
func (g *Group) ofSecrets() bool {
	return isSecret(map[string]any{"apiVersion": g.Objects[0].APIVersion, "kind": g.Objects[0].Kind})
}

// maskBoth masks the values of a Secret in two forms of an object. Either may be nil. Values that differ get different
// masks.
func maskBoth(before, after map[string]any) (maskedBefore, maskedAfter map[string]any) {
	b, a := render.MaskObject(before), render.MaskObject(after)
	if !isSecret(before) || !isSecret(after) {
		return b, a
	}
	was, is := tellApart(before, after, b, a)
	b, _ = was.(map[string]any)
	a, _ = is.(map[string]any)
	return b, a
}

// tellApart returns the masked forms of two values. Where the real values differ and their masks do not, it uses two
// different masks.
func tellApart(before, after, b, a any) (maskedBefore, maskedAfter any) {
	switch masked := b.(type) {
	case map[string]any:
		if other, ok := a.(map[string]any); ok {
			return tellMembersApart(before, after, masked, other)
		}
	case []any:
		if other, ok := a.([]any); ok {
			return tellElementsApart(before, after, masked, other)
		}
	}
	if tree.Equal(b, a) && !tree.Equal(before, after) {
		return maskPair(before, after)
	}
	return b, a
}

func tellMembersApart(before, after any, b, a map[string]any) (maskedBefore, maskedAfter any) {
	was, _ := before.(map[string]any)
	is, _ := after.(map[string]any)
	b, a = maps.Clone(b), maps.Clone(a)
	for key := range b {
		if _, both := a[key]; both {
			b[key], a[key] = tellApart(was[key], is[key], b[key], a[key])
		}
	}
	return b, a
}

func tellElementsApart(before, after any, b, a []any) (maskedBefore, maskedAfter any) {
	was, _ := before.([]any)
	is, _ := after.([]any)
	b, a = slices.Clone(b), slices.Clone(a)
	for i := range min(len(b), len(a), len(was), len(is)) {
		b[i], a[i] = tellApart(was[i], is[i], b[i], a[i])
	}
	return b, a
}

func isSecret(object map[string]any) bool {
	return object != nil && render.IsSecret(&unstructured.Unstructured{Object: object})
}

// maskPair returns the masks of two different values.
func maskPair(before, after any) (maskedBefore, maskedAfter any) {
	c := render.Mask(secret, tree.Change{Path: "/data/value", Op: tree.OpReplace, Before: textOrNull(before), After: textOrNull(after)})
	return c.Before, c.After
}

// textOrNull replaces any value except null by a text, so that the whole value gets a single mask.
func textOrNull(value any) any {
	if value == nil {
		return nil
	}
	return ""
}
