package convert

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"refract.dev/tree/raw"
)

var (
	errNoFunction  = errors.New("both functions are wanted")
	errNotAppended = errors.New("the conversion returned less than it was given to append to")
)

// The nodes that are in every plan.
const (
	nodeRoot = iota
	nodeAPIVersion
	nodeKind
	nodeMetadata
	nodeName
	nodeNamespace
	nodeGenerateName
	nodeAnnotations
	nodeComplement
	fixedNodes
)

// node is a key that is looked for in objects. What is no node is passed over.
type node struct {
	key string
	// quoted is the key as JSON with a colon.
	quoted   []byte
	path     string
	parent   int
	children []int
	// moves says that a conversion takes the value away from here.
	moves bool
	// stays says that the version that is wanted has conversions inside, too.
	stays bool
}

// plan says how objects of one version become objects of another. It is immutable.
type plan struct {
	from, to string
	// apiVersion is the one of to, as JSON.
	apiVersion []byte
	toHub      bool
	nodes      []node
	fields     []field
	// whole is the conversion of whole objects, nil if there are fields only.
	whole *field
}

// field is a conversion in a plan.
type field struct {
	id       int // In engine.conversions.
	from, to int // Nodes.
	// place and target are where the value is before and after.
	place, target string
}

func newPlan(group, from, to string, toHub bool) *plan {
	p := &plan{from: from, to: to, toHub: toHub, apiVersion: raw.AppendString(nil, group+"/"+to)}
	p.nodes = make([]node, 1, fixedNodes)
	p.add(nodeRoot, "apiVersion")
	p.add(nodeRoot, "kind")
	p.add(nodeRoot, "metadata")
	p.add(nodeMetadata, "name")
	p.add(nodeMetadata, "namespace")
	p.add(nodeMetadata, "generateName")
	p.add(nodeMetadata, "annotations")
	p.add(nodeAnnotations, Annotation)
	return p
}

func (p *plan) add(parent int, key string) int {
	n := len(p.nodes)
	p.nodes = append(p.nodes, node{key: key, quoted: append(raw.AppendString(nil, key), ':'), path: join(p.nodes[parent].path, key), parent: parent})
	p.nodes[parent].children = append(p.nodes[parent].children, n)
	return n
}

// path returns the node of a place, which it adds if it is not there.
func (p *plan) path(place string) int {
	n := nodeRoot
	for key := range strings.SplitSeq(place, ".") {
		child := p.child(n, []byte(key))
		if child < 0 {
			child = p.add(n, key)
		}
		n = child
	}
	return n
}

func (p *plan) child(n int, key []byte) int {
	for _, child := range p.nodes[n].children {
		if p.nodes[child].key == string(key) {
			return child
		}
	}
	return -1
}

func (p *plan) addField(id int, place, target string) {
	f := field{id: id, place: place, target: target}
	if place == "" {
		p.whole = &f
		return
	}
	f.from, f.to = p.path(place), p.path(target)
	p.nodes[f.from].moves = f.from != f.to
	for n := f.to; n != nodeRoot; n = p.nodes[n].parent {
		p.nodes[n].stays = true
	}
	p.fields = append(p.fields, f)
}

// kind is a resource, compiled.
type kind struct {
	group, name string
	versions    []string
	routes      map[[2]string][]*plan
}

// compile adds the conversions of a resource to the engine.
func (e *Engine) compile(r Resource) (*kind, error) {
	if r.Group == "" || r.Kind == "" || r.Hub == "" {
		return nil, fmt.Errorf("resource %s of group %q: group, kind and hub are required", r.Kind, r.Group)
	}
	if strings.Contains(r.Group+r.Hub, "/") {
		return nil, fmt.Errorf("resource %s.%s: hub %q: want a version without its group", r.Kind, r.Group, r.Hub)
	}
	k := &kind{group: r.Group, name: r.Kind, versions: []string{r.Hub}, routes: map[[2]string][]*plan{}}
	for _, s := range r.Spokes {
		if s.Version == "" || strings.Contains(s.Version, "/") || slices.Contains(k.versions, s.Version) {
			return nil, fmt.Errorf("resource %s.%s: version %q of a spoke is empty, there twice, or has a group", r.Kind, r.Group, s.Version)
		}
		if err := checkPlaces(s.Conversions); err != nil {
			return nil, fmt.Errorf("resource %s.%s: version %s: %w", r.Kind, r.Group, s.Version, err)
		}
		up, down := newPlan(r.Group, s.Version, r.Hub, true), newPlan(r.Group, r.Hub, s.Version, false)
		for _, c := range s.Conversions {
			up.addField(len(e.conversions), c.spoke, c.hub)
			down.addField(len(e.conversions), c.hub, c.spoke)
			e.conversions = append(e.conversions, c)
		}
		e.nodes = max(e.nodes, len(up.nodes), len(down.nodes))
		k.routes[[2]string{s.Version, r.Hub}] = []*plan{up}
		k.routes[[2]string{r.Hub, s.Version}] = []*plan{down}
		k.versions = append(k.versions, s.Version)
	}
	for _, from := range k.versions[1:] {
		for _, to := range k.versions[1:] {
			if from != to {
				k.routes[[2]string{from, to}] = []*plan{k.routes[[2]string{from, r.Hub}][0], k.routes[[2]string{r.Hub, to}][0]}
			}
		}
	}
	return k, nil
}

// checkPlaces returns an error if a conversion is not valid, or two are in each other's
// way.
func checkPlaces(conversions []Conversion) error {
	var places []string
	for i, c := range conversions {
		if c.worker == nil && c.whole == nil && c.err == nil {
			return fmt.Errorf("conversion %d is empty: use Field, RawField, Object or Unstructured", i)
		}
		if c.err != nil {
			return at(c.spoke, c.err)
		}
		if c.whole != nil {
			if len(conversions) > 1 {
				return errors.New("a conversion of whole objects must be the only one")
			}
			return nil
		}
		if err := cmp.Or(checkPlace(c.spoke), checkPlace(c.hub)); err != nil {
			return err
		}
		if slices.ContainsFunc(conversions[:i], func(o Conversion) bool { return o.spoke == c.spoke || o.hub == c.hub }) {
			return fmt.Errorf("%s and %s: two conversions of the same place", c.spoke, c.hub)
		}
		places = append(places, c.spoke, c.hub)
	}
	for _, a := range places {
		for _, b := range places {
			if strings.HasPrefix(b, a+".") {
				return fmt.Errorf("%s and %s: one of the places is inside the other; convert %s as one value", a, b, a)
			}
		}
	}
	return nil
}

func checkPlace(place string) error {
	keys := strings.Split(place, ".")
	if slices.Contains(keys, "") {
		return fmt.Errorf("place %q: want keys with dots between them", place)
	}
	if slices.Contains([]string{"apiVersion", "kind", "metadata"}, keys[0]) {
		return fmt.Errorf("place %q: %s is the same in all versions", place, keys[0])
	}
	return nil
}
