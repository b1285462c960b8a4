package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"refract.dev/tree"
)

// maxSize is the largest object, as JSON, that can be stored.
//
// Source: https://etcd.io/docs/v3.6/dev-guide/limit/ (request size limit).
const maxSize = 1536 * 1024

// object is a manifest on its way into the Set.
type object struct {
	Object

	gvk   schema.GroupVersionKind
	lines lines
	// wrong is whether a problem was found, which keeps it out of the Set.
	wrong bool
	// reported are the fields that a problem was found with.
	reported map[string]bool
}

// identity is what no two objects of an API server share.
type identity struct {
	schema.GroupKind

	namespace, name string
}

type collector struct {
	set      *Set
	objects  []*object
	problems []*Problem
}

func newCollector() *collector { return &collector{set: &Set{}} }

// add takes the documents of a file, and the items of lists.
func (c *collector) add(documents []document) {
	for i := range documents {
		d := &documents[i]
		c.addValue(d.value, d.place, d.lines)
	}
}

func (c *collector) addValue(value any, place Place, l lines) {
	content, ok := value.(map[string]any)
	if !ok {
		c.problems = append(c.problems, &Problem{Place: place, Fact: fmt.Sprintf("is %s, want an object", tree.TypeName(value))})
		return
	}
	o := &object{Object: Object{Place: place, Content: &unstructured.Unstructured{Object: content}}, lines: l, reported: map[string]bool{}}
	kind, _ := content["kind"].(string)
	items, isList := content["items"].([]any)
	if !isList || !strings.HasSuffix(kind, "List") {
		c.objects = append(c.objects, o)
		return
	}
	for i, item := range items {
		// An API server leaves out in a typed list what all items have in common.
		if m, ok := item.(map[string]any); ok && kind != "List" && m["kind"] == nil && m["apiVersion"] == nil {
			m["kind"], m["apiVersion"] = strings.TrimSuffix(kind, "List"), content["apiVersion"]
		}
		inside := l.item("items", i)
		at := place
		if inside.root != nil {
			at.Line = inside.line(inside.root)
		}
		c.addValue(item, at, inside)
	}
}

// report notes a problem with an object, at one of its fields or, if that is
// empty, with the object as a whole.
func (c *collector) report(o *object, at, fact, hint string) {
	o.wrong, o.reported[at] = true, true
	place := o.Place
	if at != "" {
		place.Line = o.lines.of(at, place.Line)
	}
	kind, _ := o.Content.Object["kind"].(string)
	name, _, _ := unstructured.NestedString(o.Content.Object, "metadata", "name")
	namespace, _, _ := unstructured.NestedString(o.Content.Object, "metadata", "namespace")
	c.problems = append(c.problems, &Problem{Place: place, Kind: kind, Namespace: namespace, Name: name, Field: at, Fact: fact, Hint: hint})
}

// reportAll notes problems, but for those at fields that have one already: what is
// missing is also not valid. Those at one field are sorted: the validations of
// Kubernetes go through labels in the order of a map.
func (c *collector) reportAll(o *object, errs field.ErrorList) {
	before := maps.Clone(o.reported)
	errs = slices.Clone(errs)
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		if a.Field != b.Field {
			return 0
		}
		return strings.Compare(a.ErrorBody(), b.ErrorBody())
	})
	for _, err := range errs {
		if !before[err.Field] {
			c.report(o, err.Field, err.ErrorBody(), "")
		}
	}
}

// finish checks all objects and sorts them into the Set.
func (c *collector) finish() []*Problem {
	for _, o := range c.objects {
		c.checkIdentity(o)
	}
	scopes := c.scopes()
	for _, o := range c.objects {
		if !o.wrong {
			c.place(o, scopes)
		}
	}
	c.checkUnique()
	for _, o := range c.objects {
		if !o.wrong {
			c.sort(o)
		}
	}
	return c.problems
}

// place puts an object into its namespace.
func (c *collector) place(o *object, scopes map[schema.GroupKind]bool) {
	namespaced, known := scopes[o.gvk.GroupKind()]
	o.Namespaced = namespaced || !known
	switch {
	case o.Namespaced && o.Content.GetNamespace() == "":
		o.Content.SetNamespace("default")
	case !o.Namespaced && ours(o.gvk.Group) && o.Content.GetNamespace() != "":
		c.report(o, "metadata.namespace", fmt.Sprintf("must be absent: a %s belongs to no namespace", o.gvk.Kind), "")
	case !o.Namespaced:
		o.Content.SetNamespace("") // As an API server does.
	}
}

// checkUnique reports objects of which there is one already. Which of them is
// meant nobody can say, so none is left.
func (c *collector) checkUnique() {
	first := make(map[identity]*object, len(c.objects))
	for _, o := range c.objects {
		if o.gvk.Kind == "" || o.Content.GetName() == "" || (o.wrong && ours(o.gvk.Group)) {
			continue // What it is, or which, is not certain.
		}
		id := identity{o.gvk.GroupKind(), o.Content.GetNamespace(), o.Content.GetName()}
		if other, ok := first[id]; ok {
			c.report(o, "", fmt.Sprintf("is there already, at %s", other.Place), "")
			other.wrong = true
			continue
		}
		first[id] = o
	}
}

// sort puts a valid object into its list.
func (c *collector) sort(o *object) {
	data, err := json.Marshal(o.Content.Object)
	if err != nil {
		c.report(o, "", fmt.Sprintf("cannot be written as JSON: %v", err), "")
		return
	}
	if len(data) > maxSize {
		c.report(o, "", fmt.Sprintf("has %d bytes; more than %d cannot be stored", len(data), maxSize), "")
		return
	}
	if ours(o.gvk.Group) {
		c.sortOurs(o, data)
	} else {
		c.set.Objects = append(c.set.Objects, o.Object)
	}
	if !o.wrong {
		c.set.Manifests = append(c.set.Manifests, o.Object)
	}
}

// scopes says of the kinds whose scope is known whether they are namespaced:
// ours, those built in, and those of CustomResourceDefinitions of the input.
func (c *collector) scopes() map[schema.GroupKind]bool {
	known := builtInScopes()
	for _, o := range c.objects {
		if o.wrong || o.gvk.GroupKind() != (schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}) {
			continue
		}
		group, _, _ := unstructured.NestedString(o.Content.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Content.Object, "spec", "names", "kind")
		scope, _, _ := unstructured.NestedString(o.Content.Object, "spec", "scope")
		gk := schema.GroupKind{Group: group, Kind: kind}
		if _, builtIn := known[gk]; !builtIn && slices.Contains([]string{"Namespaced", "Cluster"}, scope) {
			known[gk] = scope == "Namespaced"
		}
	}
	return known
}
