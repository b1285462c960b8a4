package manifest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/tree"
)

// Identity is the unique key of an object in an API server.
type Identity struct {
	schema.GroupKind

	// Namespace of the object; empty for a cluster-scoped one.
	Namespace string
	// Name of the object.
	Name string
}

// String returns KIND.GROUP NAMESPACE/NAME, without empty parts.
func (id Identity) String() string {
	if id.Namespace == "" {
		return id.GroupKind.String() + " " + id.Name
	}
	return id.GroupKind.String() + " " + id.Namespace + "/" + id.Name
}

// Identity returns the identity of the object.
func (o *Object) Identity() Identity { return identityOf(o.Content) }

// collector collects documents into a Set.
type collector struct {
	objects  []*object
	problems []*Problem
	// namespaced returns the scopes of further kinds; it may be nil.
	namespaced func(schema.GroupKind) (namespaced, known bool)
	// namespace is the namespace of objects that name none; empty means "default".
	namespace string
	// unnamed allows metadata.generateName in place of a name.
	unnamed bool
}

// add adds a document or, if it is a list, its items.
func (c *collector) add(value any, place Place, l lines) {
	content, ok := value.(map[string]any)
	if !ok {
		c.problems = append(c.problems, &Problem{Place: place, Fact: fmt.Sprintf("is %s, want an object", tree.TypeName(value))})
		return
	}
	if staysLocal(content) && !explains(content) {
		return
	}
	items, isList, problem := listItems(content, place, l)
	if problem != nil {
		c.problems = append(c.problems, problem)
		return
	}
	if !isList {
		mergeStringData(content)
		c.objects = append(c.objects, newObject(place, &unstructured.Unstructured{Object: content}, l))
		return
	}
	for i, item := range items {
		inside := l.item("items", i)
		c.add(item, inside.at(place, ""), inside)
	}
}

// finish checks all objects, sorts them into a Set, and returns the problems. Checks of single objects run
// concurrently, and are not repeated for objects with known results. When ctx ends, finish soon returns the cause.
func (c *collector) finish(ctx context.Context) (*Set, []*Problem, error) {
	if c.each(ctx, func(o *object) *step { return &o.found.identity }, func(o *object) { o.checkIdentity(c.unnamed) }); ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	scope := c.scopes()
	for _, o := range c.objects {
		if o.wrong {
			continue
		}
		namespaced, known := scope(o.gvk.GroupKind())
		if o.found.place.done && (o.found.namespaced != namespaced || o.found.known != known) {
			o.forget()
			o.take(&o.found.identity, func() { o.checkIdentity(c.unnamed) })
		}
		o.found.namespaced, o.found.known = namespaced, known
		o.take(&o.found.place, func() { o.place(namespaced, known, cmp.Or(c.namespace, "default")) })
		c.problems = append(c.problems, o.found.place.problems...)
	}
	c.checkUnique()
	if c.each(ctx, func(o *object) *step { return &o.found.content }, (*object).decode); ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	set := &Set{}
	for _, o := range c.objects {
		if !o.wrong {
			o.add(set)
			set.Notes = append(set.Notes, o.notes...)
			if !o.local {
				set.Manifests = append(set.Manifests, o.Object)
			}
		}
	}
	return set, c.problems, nil
}

// each runs a step for all objects without a problem, concurrently on all processors. Steps with a known result from
// the last call are skipped.
func (c *collector) each(ctx context.Context, of func(*object) *step, do func(*object)) {
	right := slices.DeleteFunc(slices.Clone(c.objects), func(o *object) bool { return o.wrong })
	concurrently(ctx, len(right), func(i int) {
		right[i].take(of(right[i]), func() { do(right[i]) })
	}, func(i int, err error) {
		right[i].report("", err.Error(), "")
		right[i].take(of(right[i]), func() {})
	})
	for _, o := range right {
		c.problems = append(c.problems, of(o).problems...)
	}
}

// checkUnique reports several objects with the same identity. None of them is used, because the intended one is not
// known.
func (c *collector) checkUnique() {
	first := make(map[Identity]*object, len(c.objects))
	for _, o := range c.objects {
		if o.gvk.Kind == "" || o.Content.GetName() == "" || (o.wrong && ours(o.gvk.Group)) {
			continue // The identity is not certain.
		}
		id := o.Identity()
		if other, ok := first[id]; ok {
			c.problems = append(c.problems, o.problem("", fmt.Sprintf("is there already, at %s", other.Place), ""))
			o.wrong, other.wrong = true, true
			continue
		}
		first[id] = o
	}
}

// scopes returns a function for the scope of a kind, if the scope is known: from Refract's kinds, the built-in kinds,
// the CustomResourceDefinitions of the input, and the caller.
func (c *collector) scopes() func(schema.GroupKind) (namespaced, known bool) {
	scopes := builtInScopes()
	for _, o := range c.objects {
		if o.wrong || !isDefinition(o.Content.Object) {
			continue
		}
		group, _, _ := unstructured.NestedString(o.Content.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Content.Object, "spec", "names", "kind")
		scope, _, _ := unstructured.NestedString(o.Content.Object, "spec", "scope")
		gk := schema.GroupKind{Group: group, Kind: kind}
		if _, builtIn := scopes[gk]; !builtIn && slices.Contains([]string{"Namespaced", "Cluster"}, scope) {
			scopes[gk] = scope == "Namespaced"
		}
	}
	return func(gk schema.GroupKind) (namespaced, known bool) {
		namespaced, known = scopes[gk]
		if !known && c.namespaced != nil {
			return c.namespaced(gk)
		}
		return namespaced, known
	}
}
