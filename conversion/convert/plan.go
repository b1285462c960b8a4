package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"refract.dev/tree/raw"
)

var (
	errNoFunction  = errors.New("want both functions")
	errNotAppended = errors.New("the conversion returned less than it was given to append to")
)

// Nodes that every plan of objects has.
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
	nodeUnconverted
	fixedNodes
)

// node is a key that a plan looks up in objects. Keys without a node are skipped.
type node struct {
	key string
	// quoted is the key as JSON, followed by a colon.
	quoted   []byte
	path     string
	parent   int
	children []int
	// moves is true if a conversion moves the value to another place or removes it.
	moves bool
	// stays is true if the target version also has converted values inside the node.
	stays bool
	// returns is true if the node is a parent that exists in the target version, and not in the source version.
	returns bool
	// required is true if the target version requires the object. comesBack is true if the source version requires it.
	required, comesBack bool
}

// plan describes the conversion of objects, or of elements of a list or table, from one version to another. It is
// immutable.
type plan struct {
	from, to string
	// apiVersion is the target API version as JSON; nil in a plan of elements.
	apiVersion []byte
	toHub      bool
	keeps      bool // Parts that cannot be converted are kept.
	nodes      []node
	// fixed is the number of nodes that are not places of conversions. They come first.
	fixed  int
	fields []field
	// fills are the values that only the target version has.
	fills []field
	// leaving are the parents that only the source version has. returning are the parents that only the target version
	// has. Outer parents come first.
	leaving, returning []field
	// whole is the conversion of whole objects; nil for conversions of fields.
	whole *field
}

// field is a conversion in a plan.
type field struct {
	id       int // Index in engine.conversions.
	from, to end
	// passes is true if the value stays unchanged.
	passes bool
	// fill is the default; nil for none.
	fill []byte
	// elements is the plan for the elements of a list or table. open is the first byte of the list or table.
	elements *plan
	open     byte
}

// end is the place of a value in one of the two versions.
type end struct {
	place string
	// nodes has one node for a value, several for a group, and none if the version does not have the value.
	nodes []int
	group bool
	// keys identify elements.
	keys [][]string
}

// newPlan returns a plan of objects with the nodes that every such plan has.
func newPlan(group, from, to string, toHub bool) *plan {
	p := &plan{from: from, to: to, toHub: toHub, apiVersion: raw.AppendString(nil, group+"/"+to), fixed: fixedNodes}
	p.nodes = make([]node, 1, fixedNodes)
	p.add(nodeRoot, "apiVersion")
	p.add(nodeRoot, "kind")
	p.add(nodeRoot, "metadata")
	p.add(nodeMetadata, "name")
	p.add(nodeMetadata, "namespace")
	p.add(nodeMetadata, "generateName")
	p.add(nodeMetadata, "annotations")
	p.add(nodeAnnotations, Annotation)
	p.add(nodeAnnotations, Unconverted)
	return p
}

// newElements returns a plan for the elements of a list or table in objects of this plan.
func (p *plan) newElements() *plan {
	return &plan{from: p.from, to: p.to, toHub: p.toHub, keeps: p.keeps, nodes: make([]node, 1), fixed: 1}
}

// add adds a node. Its index is higher than the index of its parent.
func (p *plan) add(parent int, key string) int {
	n := len(p.nodes)
	p.nodes = append(p.nodes, node{
		key: key, quoted: append(raw.AppendString(nil, key), ':'), path: placeIn(p.nodes[parent].path, key), parent: parent,
	})
	p.nodes[parent].children = append(p.nodes[parent].children, n)
	return n
}

// leaves returns the nodes of a place. It adds missing nodes.
func (p *plan) leaves(where place) []int {
	var all []int
	for _, path := range where.paths() {
		n := nodeRoot
		for _, key := range path {
			child := p.child(n, []byte(key))
			if child < 0 {
				child = p.add(n, key)
			}
			n = child
		}
		all = append(all, n)
	}
	return all
}

// child returns the node for a key in an object, or -1. A node has few children, so a linear search is faster than a
// map.
func (p *plan) child(n int, key []byte) int {
	for _, child := range p.nodes[n].children {
		if p.nodes[child].key == string(key) {
			return child
		}
	}
	return -1
}

// addField adds a conversion whose places have been checked. If only one version has the value, one direction removes
// the value, and the other direction adds it.
func (p *plan) addField(id int, c *Conversion, elements *plan) {
	f := field{id: id, passes: c.moves, fill: c.options.fill, elements: elements, open: c.elements}
	f.from = end{place: c.hub, keys: keyPaths(c.options.hubKeys)}
	f.to = end{place: c.spoke, keys: keyPaths(c.options.spokeKeys)}
	before, after := hubSide, spokeSide
	if p.toHub {
		f.from, f.to, before, after = f.to, f.from, after, before
	}
	if c.whole != nil {
		p.whole = &f
		return
	}
	if c.required {
		where, _ := parsePlace(c.spoke)
		n := &p.nodes[p.leaves(where)[0]]
		n.required, n.comesBack = n.required || c.side == after, n.comesBack || c.side == before
		return
	}
	if c.side != after {
		p.locate(&f.from)
	}
	if c.side != before {
		p.locate(&f.to)
	}
	if c.parent {
		p.addParent(&f)
		return
	}
	for _, n := range f.from.nodes {
		p.nodes[n].moves = p.nodes[n].moves || !slices.Contains(f.to.nodes, n)
		if c.side == before {
			p.stay(p.nodes[n].parent)
		}
	}
	for _, n := range f.to.nodes {
		p.stay(n)
	}
	if c.side == after {
		p.fills = append(p.fills, f)
		return
	}
	p.fields = append(p.fields, f)
}

// locate sets the nodes of a value in a version that has it.
func (p *plan) locate(e *end) {
	where, _ := parsePlace(e.place)
	e.nodes, e.group = p.leaves(where), where.members != nil
}

// stay marks a node and its parents. A marked object is not removed after its values of the source version have moved
// out, because it has values of the target version.
func (p *plan) stay(n int) {
	for ; n != nodeRoot; n = p.nodes[n].parent {
		p.nodes[n].stays = true
	}
}

// keyPaths returns the paths of the key fields, relative to the element.
func keyPaths(keys []string) [][]string {
	var paths [][]string
	for _, key := range keys {
		where, _ := parsePlace(key)
		paths = append(paths, where.keys)
	}
	return paths
}

// kind is a compiled resource. The keys of routes are pairs of the source version and the target version.
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
	// Each direction is planned once, so that a request only looks up its plans.
	for _, s := range r.Spokes {
		if s.Version == "" || strings.Contains(s.Version, "/") || slices.Contains(k.versions, s.Version) {
			return nil, fmt.Errorf("resource %s.%s: version %q of a spoke is empty, is a duplicate, or has a group", r.Kind, r.Group, s.Version)
		}
		if err := checkPlaces(s.Conversions, false); err != nil {
			return nil, fmt.Errorf("resource %s.%s: version %s: %w", r.Kind, r.Group, s.Version, err)
		}
		up, down := newPlan(r.Group, s.Version, r.Hub, true), newPlan(r.Group, r.Hub, s.Version, false)
		up.keeps, down.keeps = r.OnError == Keep, r.OnError == Keep
		e.addConversions(up, down, s.Conversions)
		k.routes[[2]string{s.Version, r.Hub}] = []*plan{up}
		k.routes[[2]string{r.Hub, s.Version}] = []*plan{down}
		k.versions = append(k.versions, s.Version)
	}
	for _, from := range k.versions[1:] { // A conversion between two spokes goes through the hub.
		for _, to := range k.versions[1:] {
			if from != to {
				k.routes[[2]string{from, to}] = []*plan{k.routes[[2]string{from, r.Hub}][0], k.routes[[2]string{r.Hub, to}][0]}
			}
		}
	}
	return k, nil
}

// addConversions adds conversions to the plans of both directions. It adds the conversions of elements to nested plans.
// Each conversion gets a number, which identifies its worker in the whole engine.
func (e *Engine) addConversions(up, down *plan, conversions []Conversion) {
	for i := range conversions {
		c := &conversions[i]
		id := len(e.conversions)
		e.conversions = append(e.conversions, *c)
		var upwards, downwards *plan
		if c.elements != 0 {
			upwards, downwards = up.newElements(), down.newElements()
			e.addConversions(upwards, downwards, c.inside)
		}
		up.addField(id, c, upwards)
		down.addField(id, c, downwards)
	}
	e.nodes = max(e.nodes, len(up.nodes), len(down.nodes))
}

// claim is a path that a conversion uses in one of the versions or in both.
type claim struct {
	side   side
	path   []string
	parent bool
}

// checkPlaces returns an error if a conversion is invalid, or if two conversions conflict. If elements is true, a
// conversion may be for the element itself.
func checkPlaces(conversions []Conversion, elements bool) error {
	var claims []claim
	for i := range conversions {
		c := &conversions[i]
		switch {
		case c.isZero():
			return fmt.Errorf("conversion %d is empty: use Field, RawField, Object or Unstructured", i)
		case c.err != nil:
			return at(c.spoke, c.err)
		case c.whole != nil && (len(conversions) > 1 || elements):
			return errors.New("a conversion of whole objects must be the only one")
		case c.whole != nil:
			return nil
		}
		places, err := c.claims(elements)
		switch {
		case err != nil:
			return err
		case c.spoke == "" && len(conversions) > 1:
			return errors.New(`place "": the element itself is converted by another conversion already`)
		case slices.ContainsFunc(places, func(p claim) bool { return slices.ContainsFunc(claims, p.same) }):
			return fmt.Errorf("%s and %s: two conversions of the same place", c.spoke, c.hub)
		}
		claims = append(claims, places...)
	}
	return checkInside(claims)
}

// checkInside returns an error if the place of one conversion is inside the place of another one, in either version.
func checkInside(claims []claim) error {
	for _, a := range claims {
		for _, b := range claims {
			if !a.parent && isInside(b.path, a.path) {
				return fmt.Errorf("%s and %s: one of the places is inside the other; convert %s as one value",
					textOf(a.path), textOf(b.path), textOf(a.path))
			}
		}
	}
	return nil
}

func (c claim) same(o claim) bool { return c.side == o.side && slices.Equal(c.path, o.path) }

func (c *Conversion) isZero() bool {
	return c.worker == nil && c.whole == nil && c.err == nil && !c.moves && c.side == bothSides && c.elements == 0
}

// claims returns the paths of a conversion. It checks the places, keys and inner conversions.
func (c *Conversion) claims(elements bool) ([]claim, error) {
	if elements && (c.spoke == "") != (c.hub == "") {
		return nil, errors.New(`place "": an element itself stays where it is`)
	}
	var claims []claim
	for _, s := range []struct {
		side side
		text string
	}{{spokeSide, c.spoke}, {hubSide, c.hub}} {
		where, err := checkPlace(s.text, elements, elements && c.side == bothSides && !c.moves)
		switch {
		case err != nil:
			return nil, err
		case where.members != nil && c.worker == nil:
			return nil, fmt.Errorf("place %q: only Field and RawField convert several fields as one value", s.text)
		case c.side != bothSides && c.side != s.side:
			continue
		}
		for _, path := range where.paths() {
			claims = append(claims, claim{side: s.side, path: path, parent: c.parent || c.required})
		}
	}
	if c.elements != 0 {
		if err := checkPlaces(c.inside, true); err != nil {
			return nil, at(c.spoke+"[*]", err)
		}
	}
	for _, key := range slices.Concat(c.options.spokeKeys, c.options.hubKeys) {
		where, err := parsePlace(key)
		if err != nil || where.members != nil || where.keys == nil {
			return nil, at(c.spoke, fmt.Errorf("key %q: want the place of one field of an element", key))
		}
	}
	return claims, nil
}

// checkPlace parses a place of an object or, if elements is true, of an element. If itself is true, the place may be
// the element itself.
func checkPlace(text string, elements, itself bool) (place, error) {
	where, err := parsePlace(text)
	if err != nil {
		return where, err
	}
	for _, path := range where.paths() {
		switch {
		case len(path) == 0 && !itself:
			return where, placeProblem(text)
		case !elements && slices.Contains([]string{"apiVersion", "kind", "metadata"}, path[0]):
			return where, fmt.Errorf("place %q: %s is the same in all versions", text, path[0])
		}
	}
	return where, nil
}
