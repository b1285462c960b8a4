package diff

import (
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/render"
	"refract.dev/tree"
)

// masked returns the groups as they are shown: the values of Secrets are masked.
func (d *Diff) masked() []Group {
	groups := make([]Group, len(d.Groups))
	for i := range d.Groups {
		g := d.Groups[i]
		if kind := g.kind(); kind == secret {
			g.Changes = make([]Change, len(d.Groups[i].Changes))
			for j, c := range d.Groups[i].Changes {
				g.Changes[j] = Change{Change: render.Mask(kind, c.Change), Cause: c.Cause}
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

// kind returns the kind of the group's objects.
func (g *Group) kind() schema.GroupKind {
	return schema.FromAPIVersionAndKind(g.Objects[0].APIVersion, g.Objects[0].Kind).GroupKind()
}

// maskBoth returns two forms of an object, each of which may be nil, with
// stand-ins for what the values of a Secret say: others for those that differ.
func maskBoth(before, after map[string]any) (maskedBefore, maskedAfter map[string]any) {
	b, a := maskOne(before), maskOne(after)
	if before["kind"] != "Secret" || after["kind"] != "Secret" {
		return b, a
	}
	for _, place := range []string{"data", "stringData"} {
		was, wasMap := before[place].(map[string]any)
		is, isMap := after[place].(map[string]any)
		if wasMap && isMap {
			inBefore, inAfter := maps.Clone(was), maps.Clone(is)
			maskValues("/"+place, inBefore, inAfter)
			b[place], a[place] = inBefore, inAfter
			continue
		}
		if before[place] != nil && after[place] != nil && !tree.Equal(before[place], after[place]) {
			b[place], a[place] = maskPair("/"+place, before[place], after[place])
		}
	}
	return b, a
}

// maskValues writes stand-ins into both maps, which are what is at a place of a
// Secret.
func maskValues(place string, before, after map[string]any) {
	for key, was := range before {
		is, there := after[key]
		if there && !tree.Equal(was, is) {
			before[key], after[key] = maskPair(place+"/"+tree.Escape(key), was, is)
			continue
		}
		before[key] = maskAlone(was)
		if there {
			after[key] = before[key]
		}
	}
	for key, is := range after {
		if _, there := before[key]; !there {
			after[key] = maskAlone(is)
		}
	}
}

// maskOne returns the object with stand-ins, in a map that is its own.
func maskOne(object map[string]any) map[string]any {
	return maps.Clone(render.MaskObject(object))
}

func maskPair(path string, before, after any) (maskedBefore, maskedAfter any) {
	c := render.Mask(secret, tree.Change{Path: path, Op: tree.OpReplace, Before: before, After: after})
	return c.Before, c.After
}

func maskAlone(value any) any {
	return render.Mask(secret, tree.Change{Path: "/data/value", Op: tree.OpAdd, After: value}).After
}
