package convert

import (
	"errors"
	"fmt"

	"refract.dev/tree/raw"
)

// converter converts objects one after the other. It selects the plans for each object, and converts the parts that all
// objects have: apiVersion, metadata and the annotations. It is not safe for concurrent use.
type converter struct {
	engine   *Engine
	outer    raw.Scanner // Of the input.
	between  raw.Scanner // Reads the hub version of an object during a conversion between two spokes.
	workers  workers
	rewriter *rewriter
	last     lastRoute
	failures []error // Failures of the last converted object.
	// broken is true after a panic of a conversion function, because the state of the workers is then undefined.
	broken bool
}

func (e *Engine) newConverter() *converter {
	w := &converter{engine: e, workers: workers{conversions: e.conversions, made: make([]worker, len(e.conversions))}}
	w.rewriter = newRewriter(e.nodes, &w.workers)
	return w
}

// release drops all references to the objects of the request.
func (w *converter) release() {
	w.workers.release()
	w.outer.Reset(nil)
	w.between.Reset(nil)
	w.rewriter.release()
}

// outcome describes an object and the failures of its conversion.
type outcome struct {
	namespace, name, from string
	kind                  *kind
	failures              []error // The reasons why parts of the object could not be converted and are kept.
}

var (
	errNoAPIVersion = errors.New("apiVersion: want a string")
	errNoKind       = errors.New("kind: want a string")
)

// object converts the next object of s. Afterwards s is positioned behind the object, unless s has an error. If the
// object already has the target version, object calls same. Otherwise it calls done after all edits are planned. src is
// the document that the edits belong to. It is not the document of s if the object was converted through the hub.
func (w *converter) object(
	s *raw.Scanner, apiVersion string, same func(start, end int), done func(src []byte, start, end int),
) (o outcome, err error) {
	w.failures = w.failures[:0]
	start := s.Offset()
	if first := s.Next(); first != '{' {
		if s.Value(); s.Err() != nil {
			return o, s.Err()
		}
		return o, fmt.Errorf("want an object, got %s", describe(first))
	}
	from, kindName := typeMeta(*s)
	var plans []*plan
	switch {
	case from == nil:
		err = errNoAPIVersion
	case kindName == nil:
		err = errNoKind
	case w.known(from, kindName, apiVersion):
		o.from, o.kind, plans = w.last.from, w.last.of, w.last.plans
	default:
		o.from = string(from)
		if o.kind, plans, err = w.engine.route(string(kindName), o.from, apiVersion); err == nil {
			w.last = lastRoute{from: o.from, kind: string(kindName), to: apiVersion, of: o.kind, plans: plans}
		}
	}
	if err == nil && len(plans) == 0 {
		if s.Value(); s.Err() == nil {
			same(start, s.Position())
		}
		return o, s.Err()
	}
	if err != nil {
		plans = []*plan{identity} // Only to read namespace and name for the error.
	}
	w.rewriter.read(s, plans[0])
	switch {
	case s.Err() != nil:
		err = s.Err()
	case err == nil:
		err = w.route(plans, done)
	}
	o.failures = w.failures
	if err != nil || len(o.failures) > 0 {
		source := &w.rewriter.source
		o.namespace, o.name = source.textAt(nodeNamespace), source.textAt(nodeName)
		if generate := source.textAt(nodeGenerateName); o.name == "" && generate != "" {
			o.name = generate + "*"
		}
	}
	return o, err
}

// identity is a plan without conversions. It only reads apiVersion, kind and metadata.
var identity = newPlan("", "", "", false)

// lastRoute is the route of the last object. Nearly all objects of a review have the same route.
type lastRoute struct {
	from, kind, to string
	of             *kind
	plans          []*plan
}

// known reports whether the last object had this route. The comparison allocates no strings.
func (w *converter) known(from, kindName []byte, to string) bool {
	return w.last.of != nil && w.last.from == string(from) && w.last.kind == string(kindName) && w.last.to == to
}

// route converts the object that was read, with all plans. For a conversion between two spokes, the second plan reads
// the hub version of the object. After a panic of a conversion function, the converter is broken, because the state of
// the workers is undefined.
func (w *converter) route(plans []*plan, done func(src []byte, start, end int)) (err error) {
	defer func() {
		if r := recover(); r != nil {
			w.broken = true
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	r := w.rewriter
	for i, p := range plans {
		if i > 0 {
			w.between.Reset(r.render())
			r.read(&w.between, p)
			if err := w.between.End(); err != nil {
				return err
			}
		}
		if err := w.convert(p); err != nil {
			return err
		}
	}
	root := &r.source.nodes[nodeRoot]
	done(r.source.text, root.start, root.end)
	return nil
}

// typeMeta returns apiVersion and kind of the next object. The result is nil for a missing value, and for a value that
// is not a string.
func typeMeta(s raw.Scanner) (apiVersion, kindName []byte) {
	s.OpenObject()
	for first := true; ; first = false {
		key, _, ok := s.NextKey(first)
		switch {
		case !ok || apiVersion != nil && kindName != nil:
			return apiVersion, kindName
		case string(key) == "apiVersion" && apiVersion == nil && s.Next() == '"':
			apiVersion = s.Text()
		case string(key) == "kind" && kindName == nil && s.Next() == '"':
			kindName = s.Text()
		default:
			s.Value()
		}
	}
}

// convert plans the conversion of the object that was read, and writes it as edits.
func (w *converter) convert(p *plan) error {
	r := w.rewriter
	if r.source.trouble != nil {
		return r.source.trouble
	}
	// Server-side apply converts objects that have only the applied fields of one field manager. Such an object has no
	// name. An annotation in it would become a field of the manager.
	r.source.partial = !r.source.hasText(nodeName) && !r.source.hasText(nodeGenerateName)
	if err := w.begin(p); err != nil {
		return err
	}
	err := w.attempt(p)
	if err != nil && p.keeps {
		err = w.keepWhole(p, err)
	}
	w.failures = append(w.failures, r.complement.failures...)
	return err
}

// begin reads the annotations of the object, and plans the changes that every conversion makes.
func (w *converter) begin(p *plan) error {
	r := w.rewriter
	r.complement.read(r.source.textAt(nodeComplement), p.to)
	named := r.marks.read(r.source.textAt(nodeUnconverted), p.to)
	r.complement.believes, r.complement.anyBelieved = named && p.keeps, len(r.marks.versions) > 0 && p.keeps
	r.complement.unserved = unserved{}
	if r.complement.hollow(p.to) {
		r.complement.unserved = unserved{from: true, to: true}
	}
	r.changes.replace(nodeAPIVersion, p.apiVersion)
	return w.metadata()
}

// pass plans the conversion of the object, and writes it as edits.
func (w *converter) pass(p *plan) error {
	r := w.rewriter
	if made := w.wasWhole(); made != nil {
		return w.replaceRest(p, made)
	}
	if p.whole != nil {
		return w.convertObject(p)
	}
	if err := r.planner.plan(); err != nil {
		return err
	}
	if err := w.annotate(p); err != nil {
		return err
	}
	return r.write()
}

// metadata plans the metadata that API servers require, if it is absent or null.
func (w *converter) metadata() error {
	c := &w.rewriter.changes
	switch f := &w.rewriter.source.nodes[nodeMetadata]; {
	case !f.present:
		c.put(nodeMetadata, emptyObject)
	case f.kind == 'n':
		c.replace(nodeMetadata, emptyObject)
	case f.kind != '{':
		return at("metadata", fmt.Errorf("want an object, got %s", describe(f.kind)))
	}
	return nil
}

// annotate plans the changes of the annotations. If no annotation remains, it removes metadata.annotations: an empty
// object has no meaning.
func (w *converter) annotate(p *plan) error {
	r := w.rewriter
	text, changed := r.complement.write(p.from, p.to)
	mark, marked := r.marks.write(p.from, p.to, r.complement.unserved, r.complement.failures)
	leaving := 0
	if changed && text == nil {
		leaving++
	}
	if marked && mark == nil {
		leaving++
	}
	if leaving > 0 && leaving == r.source.nodes[nodeAnnotations].members {
		r.changes.remove(nodeAnnotations)
		return nil
	}
	size := w.otherAnnotations() + len(Annotation) + len(text)
	switch {
	case marked && mark != nil:
		size += len(Unconverted) + len(mark)
	case !marked && r.source.nodes[nodeUnconverted].present:
		size += len(Unconverted) + len(r.source.textAt(nodeUnconverted))
	}
	if len(r.complement.kept) > 0 && size > maxAnnotations {
		return at(r.complement.largest(), fmt.Errorf(
			"%s cannot hold this value: to keep it in the annotation %s takes %d bytes, "+
				"with which the annotations have %d, more than %d",
			p.to, Annotation, len(text), size, maxAnnotations))
	}
	if changed {
		w.putAnnotation(nodeComplement, text)
	}
	if marked {
		w.putAnnotation(nodeUnconverted, mark)
	}
	return nil
}

// putAnnotation plans a new text for an annotation of the engine. If text is nil, it plans the removal of the
// annotation.
func (w *converter) putAnnotation(n int, text []byte) {
	r := w.rewriter
	if text == nil {
		r.changes.remove(n)
		return
	}
	quoted := r.arena.keep(raw.AppendString(r.arena.room(), text))
	if r.source.nodes[n].present {
		r.changes.replace(n, quoted)
		return
	}
	r.changes.put(n, quoted)
}

// otherAnnotations returns the size in bytes of all annotations except those of the engine.
func (w *converter) otherAnnotations() int {
	source := &w.rewriter.source
	if f := &source.nodes[nodeAnnotations]; !f.present || f.kind != '{' {
		return 0
	}
	total := 0
	var s raw.Scanner
	s.Reset(source.value(nodeAnnotations))
	s.Object(func(key []byte) {
		if string(key) == Annotation || string(key) == Unconverted {
			return
		}
		total += len(key)
		if s.Next() == '"' {
			total += len(s.Text())
		}
	})
	return total
}
