package convert

import "refract.dev/tree/raw"

// rewriter converts objects, or elements of lists and tables, from one version to another, one after the other. For
// each of them, it reads the text, plans the conversion of the values, and writes the changes as edits of the text. It
// reuses its memory, because a review may have any number of objects. It is not safe for concurrent use.
type rewriter struct {
	source     source
	changes    changes
	complement complement
	marks      marks // Unused for elements.
	planner    planner
	comparer   comparer
	arena      arena
}

// newRewriter returns a rewriter for plans with up to this number of nodes.
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

// read reads the next object or element for a plan, and clears the planned changes.
func (r *rewriter) read(s *raw.Scanner, p *plan) {
	r.source.read(s, p)
	r.changes.reset()
}

// element reads the next element, plans its conversion and writes the edits. restorable has the kept values of the
// element.
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

// write converts the planned changes to edits.
func (r *rewriter) write() error {
	return writer{source: &r.source, changes: &r.changes, arena: &r.arena}.write()
}

// render returns the object or element with its edits applied.
func (r *rewriter) render() []byte {
	root := &r.source.nodes[nodeRoot]
	return r.changes.edits.render(r.source.text, root.start, root.end)
}

// release drops the references to all objects and elements of the request, also those of the rewriter for elements.
func (r *rewriter) release() {
	r.arena = arena{} // The answer may still use this memory.
	r.source.release()
	r.changes.release()
	r.complement.release()
	r.comparer.release()
	r.planner.elements.release()
}

// workers has one worker for each conversion of the engine. A worker is created for the first value of the conversion.
// It converts values of objects and of elements at any depth.
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

// passing returns a function that converts values that no schema has validated. If the conversion function panics, its
// worker is dropped.
func (w *workers) passing(id int, toHub bool) passing {
	return func(value []byte) ([]byte, error) {
		worker := w.of(id)
		w.made[id] = nil
		out, err := worker.convert(nil, value, toHub)
		w.made[id] = worker
		return out, err
	}
}

// discard drops all workers after a panic of one of them. New ones are created on demand.
func (w *workers) discard() { clear(w.made) }

// release drops the references of the workers to values.
func (w *workers) release() {
	for _, worker := range w.made {
		if worker != nil {
			worker.release()
		}
	}
}
