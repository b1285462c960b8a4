package convert

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"refract.dev/tree/raw"
)

// nodeState is what is known of a node of the object at work. Offsets are in work.src.
type nodeState struct {
	present bool
	kind    byte // The first byte of the value.
	// key is where the key begins, start and end where the value does and ends.
	key, start, end int
	// before is where the value of the member before it ends, next where the key of the one
	// behind it begins; -1 if there is none.
	before, next int
	// last is where the last member of an object ends, or behind its bracket if there is none.
	last, members int
}

// edit replaces a part of an object.
type edit struct {
	start, end int
	text       []byte
}

// converter converts objects, one after the other. It is not safe for concurrent use.
type converter struct {
	engine  *Engine
	scanner raw.Scanner // Of what is between two versions.
	outer   raw.Scanner // Of what was given.
	workers []worker    // By conversion; nil until they are needed.
	arena   arena

	src      []byte
	nodes    []nodeState
	keys     [][]byte
	trouble  error // What is wrong with the object although it is JSON.
	edits    []edit
	puts     [][]byte // By node: what is to be put there.
	deleted  []int    // Nodes.
	gone     []int    // Nodes whose values the wanted version has none for, and which are kept.
	inserted []int    // Nodes.

	last       lastRoute
	comparer   comparer
	complement complement
	scratch    []byte
	// lists reads the elements of a list, which inner converts; nil until it is needed.
	lists raw.Scanner
	inner *converter
	// broken says that a function panicked, and left the workers in any state.
	broken bool
}

func (e *Engine) newConverter() *converter {
	return &converter{
		engine: e, nodes: make([]nodeState, e.nodes), puts: make([][]byte, e.nodes),
		workers: make([]worker, len(e.conversions)),
	}
}

func (w *converter) worker(id int) worker {
	if w.workers[id] == nil {
		w.workers[id] = w.engine.conversions[id].worker()
	}
	return w.workers[id]
}

// release makes the work forget what it worked on.
func (w *converter) release() {
	for _, worker := range w.workers {
		if worker != nil {
			worker.release()
		}
	}
	for ; w != nil; w = w.inner {
		w.forget()
	}
}

// forget is release, but for what the work shares with those inside it.
func (w *converter) forget() {
	w.arena = arena{}
	w.lists.Reset(nil)
	w.scanner.Reset(nil)
	w.outer.Reset(nil)
	w.src, w.trouble = nil, nil
	const many = 1 << 10
	if cap(w.keys) > many {
		w.keys = nil
	}
	clear(w.keys[:cap(w.keys)])
	clear(w.edits[:cap(w.edits)])
	clear(w.puts)
	clear(w.complement.kept[:cap(w.complement.kept)])
	clear(w.complement.versions[:cap(w.complement.versions)])
	w.complement.restorable = nil
	w.comparer.release()
	trim(&w.scratch, &w.complement.text, &w.complement.entries)
}

// scan reads the object that comes next as the plan wants it.
func (w *converter) scan(s *raw.Scanner, p *plan) {
	clear(w.nodes[:len(p.nodes)])
	clear(w.puts[:len(p.nodes)])
	w.keys, w.edits, w.deleted, w.gone, w.inserted = w.keys[:0], w.edits[:0], w.deleted[:0], w.gone[:0], w.inserted[:0]
	w.trouble = nil
	w.nodes[nodeRoot].present = true
	w.scanNode(s, p, nodeRoot)
}

func (w *converter) scanNode(s *raw.Scanner, p *plan, n int) {
	f := &w.nodes[n]
	f.start, f.kind = s.Offset(), s.Next()
	if len(p.nodes[n].children) == 0 || f.kind != '{' {
		s.Value()
		f.end = s.Position()
		return
	}
	s.OpenObject()
	f.last = s.Position()
	all := p.apiVersion != nil && (n == nodeRoot || n == nodeMetadata) // Where all keys are looked at.
	base := len(w.keys)
	var seen map[string]struct{}
	previous, before := -1, -1
	for first := true; ; first = false {
		key, start, ok := s.NextKey(first)
		if !ok {
			break
		}
		if previous >= 0 {
			w.nodes[previous].next = start
		}
		if all {
			seen = w.once(p, n, base, key, seen)
		}
		previous = p.child(n, key)
		switch {
		case previous < 0:
			s.Value()
		case w.nodes[previous].present:
			w.fail(at(join(p.nodes[n].path, string(key)), errTwice))
			s.Value()
		default:
			w.nodes[previous] = nodeState{present: true, key: start, before: before, next: -1}
			w.scanNode(s, p, previous)
		}
		if s.Err() != nil {
			return
		}
		before = s.Position()
		f.last = before
		f.members++
	}
	f.end = s.Position()
	w.keys = w.keys[:base]
}

var errTwice = errors.New("the key is there twice")

// once remembers a key of an object, whose keys begin at base, and notes if it is there
// twice. Seen has them all when there are many.
func (w *converter) once(p *plan, n, base int, key []byte, seen map[string]struct{}) map[string]struct{} {
	const few = 32
	known := w.keys[base:]
	var twice bool
	switch {
	case seen != nil:
		_, twice = seen[string(key)]
		seen[string(key)] = struct{}{}
	case len(known) < few:
		twice = slices.ContainsFunc(known, func(k []byte) bool { return bytes.Equal(k, key) })
	default:
		seen = map[string]struct{}{}
		for _, k := range known {
			seen[string(k)] = struct{}{}
		}
		return w.once(p, n, base, key, seen)
	}
	if twice {
		w.fail(at(join(p.nodes[n].path, string(key)), errTwice))
	}
	w.keys = append(w.keys, key)
	return seen
}

func (w *converter) fail(err error) {
	if w.trouble == nil {
		w.trouble = err
	}
}

// text returns the string at a node, "" if there is none.
func (w *converter) text(n int) string {
	f := &w.nodes[n]
	if !f.present || f.kind != '"' {
		return ""
	}
	text, err := raw.String(w.src[f.start:f.end])
	if err != nil {
		return ""
	}
	return text
}

func (w *converter) hasText(n int) bool {
	f := &w.nodes[n]
	return f.present && f.kind == '"' && f.end-f.start > 2
}

// convert plans what is to be changed in the object that was scanned.
func (w *converter) convert(p *plan) error {
	if w.trouble != nil {
		return w.trouble
	}
	w.replace(nodeAPIVersion, p.apiVersion)
	if err := w.metadata(p); err != nil {
		return err
	}
	// Server-side apply converts what one manager has applied, which has no name: what is
	// written into it would become the manager's.
	partial := !w.hasText(nodeName) && !w.hasText(nodeGenerateName)
	w.readComplement(p)
	if p.whole != nil {
		return w.convertObject(p, partial)
	}
	if err := w.convertFields(p, partial); err != nil {
		return err
	}
	if err := w.annotate(p); err != nil {
		return err
	}
	return w.restructure(p, partial)
}

var emptyObject = []byte("{}")

// isEmptyObject reports whether a value is an object without members: of a group nothing is
// there then.
func isEmptyObject(value []byte) bool {
	var s raw.Scanner
	s.Reset(value)
	if s.Next() != '{' || !s.OpenObject() {
		return false
	}
	_, _, some := s.NextKey(true)
	return !some
}

// metadata sees to it that there is metadata, as API servers demand.
func (w *converter) metadata(p *plan) error {
	switch f := &w.nodes[nodeMetadata]; {
	case !f.present:
		w.put(p, nodeMetadata, emptyObject)
	case f.kind == 'n':
		w.replace(nodeMetadata, emptyObject)
	case f.kind != '{':
		return at("metadata", fmt.Errorf("want an object, got %s", describe(f.kind)))
	}
	return nil
}

func (w *converter) convertFields(p *plan, partial bool) error {
	w.returnParents(p)
	for i := range p.fields {
		if err := w.convertField(p, &p.fields[i], partial); err != nil {
			return err
		}
	}
	if len(w.complement.restorable) > 0 {
		for i := range p.fields { // When the others have moved, which may have made their parents.
			w.restoreAbsent(p, &p.fields[i])
		}
	}
	for i := range p.fills {
		w.fillIn(p, &p.fills[i], partial)
	}
	w.returnNulls(p)
	w.leaveParents(p, partial)
	if !partial {
		w.keepEmpty(p)
	}
	return nil
}

func (w *converter) convertField(p *plan, f *field, partial bool) error {
	for _, n := range f.to {
		if w.nodes[n].present && !p.nodes[n].moves && !slices.Contains(f.from, n) {
			return at(p.nodes[n].path, fmt.Errorf("there is a value already where %s has %s of %s", p.to, f.place, p.from))
		}
	}
	value := w.value(p, f)
	switch {
	case value == nil:
		return nil
	case len(f.to) == 0:
		w.takeAway(f, value, partial)
		return nil
	case f.elements != nil && value[0] == f.open:
		return w.convertElements(p, f, value, partial)
	case f.passes || value[0] == 'n' && !f.toGroup || f.elements != nil:
		return w.give(p, f, value, value)
	}
	converted, err := w.convertValue(p, f, value, partial)
	if err != nil {
		return at(f.place, err)
	}
	return w.give(p, f, value, converted)
}

// value returns the value of a field, nil if it is absent. That of a group is an object of
// the members that are there.
func (w *converter) value(p *plan, f *field) []byte {
	if !f.fromGroup {
		from := &w.nodes[f.from[0]]
		if !from.present {
			return nil
		}
		return w.src[from.start:from.end:from.end]
	}
	object := append(w.arena.room(), '{')
	for _, n := range f.from {
		if m := &w.nodes[n]; m.present {
			if len(object) > 1 {
				object = append(object, ',')
			}
			object = append(append(object, p.nodes[n].quoted...), w.src[m.start:m.end]...)
		}
	}
	if len(object) == 1 {
		return nil
	}
	return w.arena.keep(append(object, '}'))
}

// give plans that the value of a field is another one now: null for a value that is not
// null means that the other version has none.
func (w *converter) give(p *plan, f *field, value, converted []byte) error {
	none := value[0] != 'n' && string(converted) == "null"
	if none && f.from[0] == nodeRoot {
		return errNoElement
	}
	if !none && !f.fromGroup && !f.toGroup && f.from[0] == f.to[0] {
		if len(converted) != len(value) || &converted[0] != &value[0] {
			w.replace(f.from[0], converted)
		}
		return nil
	}
	for _, n := range f.from {
		if w.nodes[n].present && !slices.Contains(f.to, n) {
			w.deleted = append(w.deleted, n)
		}
	}
	return w.giveTo(p, f, converted, none)
}

var errNoElement = errors.New("an element cannot become none: convert the list as one value")

// giveTo puts a value where the wanted version has it, or none.
func (w *converter) giveTo(p *plan, f *field, converted []byte, absent bool) error {
	if !f.toGroup {
		w.set(p, f, f.to[0], converted, absent)
		return nil
	}
	values, err := p.split(f, converted)
	if err != nil {
		return at(f.place, err)
	}
	for i, n := range f.to {
		w.set(p, f, n, values[i], values[i] == nil)
	}
	return nil
}

// split returns the values of the fields of the group that a field goes to, nil for those
// that are absent.
func (p *plan) split(f *field, converted []byte) ([][]byte, error) {
	values := make([][]byte, len(f.to))
	switch first := bytes.TrimLeft(converted, " \t\r\n")[0]; first {
	case 'n':
		return values, nil
	case '{':
	default:
		return nil, fmt.Errorf("want an object of the fields of %s, the conversion made %s", f.target, describe(first))
	}
	var wrong error
	err := raw.Members(converted, func(key, value []byte) bool {
		i := slices.IndexFunc(f.to, func(n int) bool { return p.nodes[n].key == string(key) })
		switch {
		case i < 0:
			wrong = fmt.Errorf("the conversion made a field %q, which is none of %s", key, f.target)
		case values[i] != nil:
			wrong = at(string(key), errTwice)
		default:
			values[i] = value
		}
		return wrong == nil
	})
	return values, cmp.Or(wrong, err)
}

// fits returns what was kept, nil if it is no value of the group that the field goes to. One
// without fields is none: the value that the object has would go with it.
func (p *plan) fits(f *field, kept []byte) []byte {
	if kept == nil || !f.toGroup {
		return kept
	}
	if _, err := p.split(f, kept); err != nil || isEmptyObject(kept) {
		return nil
	}
	return kept
}

// set plans what is at one of the nodes that a field goes to.
func (w *converter) set(p *plan, f *field, n int, value []byte, absent bool) {
	own := w.nodes[n].present && slices.Contains(f.from, n)
	switch {
	case absent && own:
		w.deleted = append(w.deleted, n)
	case absent:
	case own:
		w.replace(n, value)
	default:
		w.put(p, n, value)
	}
}

func (w *converter) convertValue(p *plan, f *field, value []byte, partial bool) ([]byte, error) {
	if value[0] == 'n' { // Of a group nothing is there then.
		if !partial {
			w.keep(f.place, value, null)
		}
		return value, nil
	}
	var e *entry
	if len(w.complement.restorable) > 0 {
		e = w.entry(f.target)
		if kept := p.fits(f, w.keptValue(e, value, w.passing(f, !p.toHub))); kept != nil {
			return kept, nil
		}
	}
	worker := w.worker(f.id)
	out, err := worker.convert(w.arena.room(), value, p.toHub)
	if err != nil {
		return nil, err
	}
	out = w.arena.keep(out)
	lost := !partial && (f.toGroup && isEmptyObject(out) || !worker.returns(value, out, p.toHub))
	if e != nil && !raw.IsNull(out) {
		if restored := p.fits(f, w.restored(e, out, f.toKeys, w.passing(f, p.toHub), w.passing(f, !p.toHub))); restored != nil {
			out = restored
		}
	}
	if lost {
		w.keep(f.place, value, out)
		if raw.IsNull(out) || f.toGroup && isEmptyObject(out) {
			w.gone = append(w.gone, f.from...)
		}
	}
	return out, nil
}

// restoreAbsent puts back what the version that is wanted had and the other one had no
// value for, provided that it still has none and there is something to put it into.
func (w *converter) restoreAbsent(p *plan, f *field) {
	there := func(n int) bool { return w.nodes[n].present }
	if len(f.to) == 0 || f.passes || f.elements != nil || slices.ContainsFunc(f.from, there) || !w.hasParent(p, f.to[0]) {
		return
	}
	if kept := p.fits(f, w.keptAbsent(p, f)); kept != nil {
		_ = w.giveTo(p, f, kept, false) // It fits.
	}
}

// keptAbsent returns what is kept of a value that the version of the object has none for.
func (w *converter) keptAbsent(p *plan, f *field) []byte {
	e := w.entry(f.target)
	if !f.fromGroup {
		return w.keptValue(e, null, w.passing(f, !p.toHub))
	}
	if e := w.entryOf(f.target); e != nil && raw.IsNull(e.value) && e.of == absent {
		return null
	}
	if kept := w.keptValue(e, emptyObject, w.passing(f, !p.toHub)); kept != nil {
		return kept
	}
	return w.keptValue(e, null, w.passing(f, !p.toHub))
}

// takeAway plans that a value which only the version of the object has goes.
func (w *converter) takeAway(f *field, value []byte, partial bool) {
	w.deleted = append(w.deleted, f.from[0])
	if partial || f.fill != nil && w.comparer.equal(value, f.fill) {
		return
	}
	w.complement.kept = append(w.complement.kept, entry{place: f.place, value: value, of: absent})
}

// fillIn puts a value that only the wanted version has where it was, or its default.
func (w *converter) fillIn(p *plan, f *field, partial bool) {
	n := f.to[0]
	if w.nodes[n].present && !p.nodes[n].moves || w.puts[n] != nil || !w.hasParent(p, n) {
		return
	}
	switch e := w.entryOf(f.target); {
	case e != nil && e.value != nil && e.of == absent:
		w.put(p, n, e.value)
	case f.fill != nil && !partial:
		w.put(p, n, f.fill)
	}
}

// hasParent reports whether there is an object, as far as it is planned, to put something
// into.
func (w *converter) hasParent(p *plan, n int) bool {
	parent := p.nodes[n].parent
	return w.puts[parent] != nil || w.nodes[parent].present && w.nodes[parent].kind == '{'
}

var null = []byte("null")

// passing returns what converts the values of a field that nobody has validated. A worker
// that one of them makes panic is not used again.
func (w *converter) passing(f *field, toHub bool) passing {
	return func(value []byte) ([]byte, error) {
		worker := w.worker(f.id)
		w.workers[f.id] = nil
		out, err := worker.convert(nil, value, toHub)
		w.workers[f.id] = worker
		return out, err
	}
}

// replace plans another value for a node that is there.
func (w *converter) replace(n int, text []byte) {
	w.edits = append(w.edits, edit{start: w.nodes[n].start, end: w.nodes[n].end, text: text})
}

// put plans a value for a node that is not there.
func (w *converter) put(p *plan, n int, text []byte) {
	w.puts[n] = text
	w.inserted = append(w.inserted, n)
	for n = p.nodes[n].parent; n != nodeRoot; n = p.nodes[n].parent {
		if w.puts[n] == nil {
			w.puts[n] = below
		}
	}
}

// below stands for an object in which something is put.
var below = []byte("{")

func isBelow(text []byte) bool { return len(text) == 1 && text[0] == '{' }

// restructure turns what is put and deleted into edits, and orders them.
func (w *converter) restructure(p *plan, partial bool) error {
	w.remove(p, partial)
	if len(w.inserted) > 0 {
		if err := w.insert(p, nodeRoot); err != nil {
			return err
		}
	}
	slices.SortStableFunc(w.edits, func(a, b edit) int { return cmp.Compare(a.start, b.start) })
	return nil
}

// remove plans the edits that take members away, each with one comma.
func (w *converter) remove(p *plan, partial bool) {
	w.prune(p, partial)
	slices.SortFunc(w.deleted, func(a, b int) int { return cmp.Compare(w.nodes[a].key, w.nodes[b].key) })
	for i, n := range w.deleted {
		f := &w.nodes[n]
		if !w.leads(p, i) {
			w.edits = append(w.edits, edit{start: f.before, end: f.end})
			continue
		}
		end := f.next
		if end < 0 {
			end = f.end
		}
		w.edits = append(w.edits, edit{start: f.key, end: end})
	}
}

// prune deletes the objects that nothing is left in, and that only the version that the
// object had has values in: they were made for these. Where a value comes back to from the
// annotation alone, nothing else would make them. A partial object has what its manager
// has applied, whatever the version requires.
func (w *converter) prune(p *plan, partial bool) {
	if len(w.deleted) == 0 {
		return
	}
	for n := len(p.nodes) - 1; n >= p.fixed; n-- { // Children come behind their parents.
		f := &w.nodes[n]
		if f.members == 0 || f.members != w.deletedIn(p, n) || p.nodes[n].required && !partial || w.wasEmpty(p, n) ||
			p.nodes[n].stays && !w.movedAway(p, n) || slices.ContainsFunc(w.gone, func(g int) bool { return p.isIn(g, n) }) {
			continue
		}
		w.deleted = slices.DeleteFunc(w.deleted, func(d int) bool { return p.nodes[d].parent == n })
		w.deleted = append(w.deleted, n)
	}
}

// leads reports whether all members before a deleted one are deleted, too.
func (w *converter) leads(p *plan, i int) bool {
	for {
		f := &w.nodes[w.deleted[i]]
		if f.before < 0 {
			return true
		}
		j := i - 1
		for j >= 0 && w.nodes[w.deleted[j]].end != f.before {
			j--
		}
		if j < 0 || p.nodes[w.deleted[j]].parent != p.nodes[w.deleted[i]].parent {
			return false
		}
		i = j
	}
}

// insert plans the edits that add members to the object at a node, which is there.
func (w *converter) insert(p *plan, n int) error {
	f := &w.nodes[n]
	comma := f.members > w.deletedIn(p, n)
	for _, child := range p.nodes[n].children {
		text := w.puts[child]
		if text == nil {
			continue
		}
		c := &w.nodes[child]
		switch {
		case !c.present || slices.Contains(w.deleted, child):
			member := w.arena.room()
			if comma {
				member = append(member, ',')
			}
			member = w.arena.keep(w.build(append(member, p.nodes[child].quoted...), p, child))
			w.edits = append(w.edits, edit{start: f.last, end: f.last, text: member})
			comma = true
		case c.kind == '{':
			if err := w.insert(p, child); err != nil {
				return err
			}
		case c.kind == 'n':
			w.edits = append(w.edits, edit{start: c.start, end: c.end, text: w.arena.keep(w.build(w.arena.room(), p, child))})
		default:
			return at(p.nodes[child].path, fmt.Errorf("want an object to put a value of %s into, got %s", p.from, describe(c.kind)))
		}
	}
	return nil
}

func (w *converter) deletedIn(p *plan, n int) int {
	total := 0
	for _, d := range w.deleted {
		if p.nodes[d].parent == n {
			total++
		}
	}
	return total
}

// build appends what is put at a node that is not there.
func (w *converter) build(dst []byte, p *plan, n int) []byte {
	if !isBelow(w.puts[n]) {
		return append(dst, w.puts[n]...)
	}
	dst = append(dst, '{')
	comma := false
	for _, child := range p.nodes[n].children {
		if w.puts[child] == nil {
			continue
		}
		if comma {
			dst = append(dst, ',')
		}
		comma = true
		dst = w.build(append(dst, p.nodes[child].quoted...), p, child)
	}
	return append(dst, '}')
}

// render appends a part of the object as the edits make it.
func (w *converter) render(dst []byte, start, end int) []byte {
	return rendered(dst, w.src, w.edits, start, end)
}

// rendered appends a part of a document as the edits that are in it make it.
func rendered(dst, src []byte, edits []edit, start, end int) []byte {
	for _, e := range edits {
		if e.start < start || e.end > end {
			continue
		}
		dst = append(append(dst, src[start:e.start]...), e.text...)
		start = e.end
	}
	return append(dst, src[start:end]...)
}

// rendered returns how long what render appends is.
func (w *converter) rendered(start, end int) int {
	n := end - start
	for _, e := range w.edits {
		if e.start >= start && e.end <= end {
			n += len(e.text) - (e.end - e.start)
		}
	}
	return n
}

// arena is memory for many small texts, which stay as long as anybody needs them.
type arena struct {
	free []byte // Has no length, but a capacity.
	next int
}

// room returns memory to append to, with no length. It is the same until keep is called.
func (a *arena) room() []byte {
	const least, first, most = 256, 1 << 10, 64 << 10
	if cap(a.free) < least {
		a.next = min(max(a.next*2, first), most)
		a.free = make([]byte, 0, a.next)
	}
	return a.free
}

// keep keeps what was appended to the memory that room returned, and returns it.
func (a *arena) keep(text []byte) []byte {
	if n := len(text); n > 0 && n <= cap(a.free) && &text[0] == &a.free[:1][0] {
		a.free = a.free[n:n]
		return text[:n:n]
	}
	return text
}
