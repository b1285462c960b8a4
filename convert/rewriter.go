package convert

import "refract.dev/tree/raw"

// rewriter takes objects, or elements, from one version to another, one after the other: it
// reads one, plans what becomes of its values, and writes that as edits of the text. Its
// parts are made once and keep their memory, since a review may have 100,000 objects. It is
// not safe for concurrent use.
type rewriter struct {
	source     source
	changes    changes
	complement complement
	marks      marks // Of objects, not of elements.
	planner    planner
	comparer   comparer
	arena      arena
}

// newRewriter returns one for plans of at most so many nodes.
func newRewriter(nodes int, w *workers) *rewriter {
	r := &rewriter{
		source:  source{nodes: make([]nodeState, nodes)},
		changes: changes{puts: make([][]byte, nodes)},
	}
	r.changes.source = &r.source
	r.complement.comparer = &r.comparer
	r.planner = planner{
		source: &r.source, changes: &r.changes, complement: &r.complement, comparer: &r.comparer, arena: &r.arena, workers: w,
		parents:  parents{source: &r.source, changes: &r.changes, complement: &r.complement, comparer: &r.comparer},
		elements: elements{names: names{comparer: &r.comparer}},
	}
	return r
}

// read reads the object or element that comes next, as a plan wants it. Nothing is planned
// for it then.
func (r *rewriter) read(s *raw.Scanner, p *plan) {
	r.source.read(s, p)
	r.changes.reset()
}

// element reads the element that comes next, plans what becomes of it and writes that. The
// entries are those that belong to it.
func (r *rewriter) element(s *raw.Scanner, p *plan, restorable []entry) error {
	r.read(s, p)
	if s.Err() != nil {
		return s.Err()
	}
	r.complement.reset(restorable)
	if err := r.planner.plan(); err != nil {
		return err
	}
	return r.write()
}

// write makes edits of what is planned.
func (r *rewriter) write() error {
	return writer{source: &r.source, changes: &r.changes, arena: &r.arena}.write()
}

// render returns the object or element as the edits make it.
func (r *rewriter) render() []byte {
	root := &r.source.nodes[nodeRoot]
	return r.changes.edits.render(r.source.text, root.start, root.end)
}

// release makes the rewriter, and those of elements in it, forget what they worked on.
func (r *rewriter) release() {
	r.arena = arena{} // Somebody may still have what is in it.
	r.source.release()
	r.changes.release()
	r.complement.release()
	r.comparer.release()
	r.planner.elements.release()
}

// workers are what converts values, by the conversions of the engine. Each is made when the
// first value comes, and serves objects and elements at any depth.
type workers struct {
	conversions []Conversion
	made        []worker
}

// of returns the worker of a conversion.
func (w *workers) of(id int) worker {
	if w.made[id] == nil {
		w.made[id] = w.conversions[id].worker()
	}
	return w.made[id]
}

// passing returns what converts the values of a conversion that nobody has validated. A worker
// that one of them makes panic is not used again.
func (w *workers) passing(id int, toHub bool) passing {
	return func(value []byte) ([]byte, error) {
		worker := w.of(id)
		w.made[id] = nil
		out, err := worker.convert(nil, value, toHub)
		w.made[id] = worker
		return out, err
	}
}

// discard has every worker made anew: one of them panicked.
func (w *workers) discard() { clear(w.made) }

// release makes the workers forget the values.
func (w *workers) release() {
	for _, worker := range w.made {
		if worker != nil {
			worker.release()
		}
	}
}
