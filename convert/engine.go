package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"refract.dev/tree/raw"
)

// Engine converts the objects of its resources. It is immutable, and safe for concurrent
// use.
type Engine struct {
	kinds       map[string]map[string]*kind // By group and name.
	conversions []Conversion
	nodes       int // Of the plan that has most.
	pool        sync.Pool
}

// New returns an engine for resources of different kinds. Its errors name the resource,
// the version and the place that is not as it must be.
func New(resources ...Resource) (*Engine, error) {
	e := &Engine{kinds: map[string]map[string]*kind{}, nodes: fixedNodes}
	for _, r := range resources {
		k, err := e.compile(r)
		if err != nil {
			return nil, err
		}
		if e.kinds[r.Group] == nil {
			e.kinds[r.Group] = map[string]*kind{}
		}
		if e.kinds[r.Group][r.Kind] != nil {
			return nil, fmt.Errorf("resource %s.%s is there twice", r.Kind, r.Group)
		}
		e.kinds[r.Group][r.Kind] = k
	}
	return e, nil
}

// Convert returns an object, one JSON document, in the version of its kind that has this
// API version, GROUP/VERSION: the same slice if it has it already. It does not modify the
// object. Its errors are of type [*ObjectError], with index -1.
func (e *Engine) Convert(object []byte, apiVersion string) ([]byte, error) {
	w := e.acquire()
	defer e.recycle(w)
	s := &w.outer
	s.Reset(object)
	var out []byte
	o, err := w.object(s, apiVersion, func(_, _ int) { out = object }, func(_ []byte, start, end int) {
		out = w.render(make([]byte, 0, w.rendered(start, end)), start, end)
	})
	if err == nil {
		err = s.End()
	}
	if err == nil && !utf8.Valid(object) {
		err = errUTF8
	}
	if err != nil {
		return nil, &ObjectError{Index: -1, Namespace: o.namespace, Name: o.name, From: o.from, To: apiVersion, Err: err}
	}
	return out, nil
}

var errUTF8 = fmt.Errorf("%w: not UTF-8", raw.ErrSyntax)

func (e *Engine) acquire() *converter {
	if w, ok := e.pool.Get().(*converter); ok {
		return w
	}
	return e.newConverter()
}

// recycle keeps the work for another request, unless it is in a state that nobody knows.
func (e *Engine) recycle(w *converter) {
	if w.broken {
		return
	}
	w.release()
	e.pool.Put(w)
}

// route returns the plans that lead from one API version to another, in their order; none
// if they are the same.
func (e *Engine) route(kindName, from, to string) (*kind, []*plan, error) {
	group, version, _ := strings.Cut(from, "/")
	wantGroup, want, _ := strings.Cut(to, "/")
	k := e.kinds[group][kindName]
	switch {
	case k == nil:
		return nil, nil, fmt.Errorf("kind %s of %s is not one of those that are converted here", kindName, from)
	case group != wantGroup:
		return nil, nil, fmt.Errorf("%s is of another group", to)
	case !slices.Contains(k.versions, version):
		return nil, nil, fmt.Errorf("version %q of %s is unknown: want one of %s", version, kindName, strings.Join(k.versions, ", "))
	case !slices.Contains(k.versions, want):
		return nil, nil, fmt.Errorf("version %q of %s is unknown: want one of %s", want, kindName, strings.Join(k.versions, ", "))
	default:
		return k, k.routes[[2]string{version, want}], nil
	}
}

// outcome is what is known of an object that was converted, or not.
type outcome struct {
	namespace, name, from string
	kind                  *kind
}

var (
	errNoAPIVersion = errors.New("apiVersion: want a string")
	errNoKind       = errors.New("kind: want a string")
)

// object converts the object that comes next in s, which is behind it afterwards unless
// there is an error of s. It calls same if there is nothing to do, and otherwise done when
// the edits are planned: with the document that they are for, which is another than that
// of s if there was a version between.
func (w *converter) object(s *raw.Scanner, apiVersion string, same func(start, end int), done func(src []byte, start, end int)) (o outcome, err error) {
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
		plans = []*plan{identity} // For the names.
	}
	w.src = s.Document()
	w.scan(s, plans[0])
	switch {
	case s.Err() != nil:
		err = s.Err()
	case err == nil:
		err = w.route(plans, done)
	}
	if err != nil {
		o.namespace, o.name = w.text(nodeNamespace), w.text(nodeName)
		if generate := w.text(nodeGenerateName); o.name == "" && generate != "" {
			o.name = generate + "*"
		}
	}
	return o, err
}

// identity is a plan that reads what all objects have.
var identity = newPlan("", "", "", false)

// lastRoute is how the last object was converted. The next one is usually like it.
type lastRoute struct {
	from, kind, to string
	of             *kind
	plans          []*plan
}

func (w *converter) known(from, kindName []byte, to string) bool {
	return w.last.of != nil && w.last.from == string(from) && w.last.kind == string(kindName) && w.last.to == to
}

// route converts the object that was scanned, through all plans.
func (w *converter) route(plans []*plan, done func(src []byte, start, end int)) (err error) {
	defer func() {
		if r := recover(); r != nil {
			w.broken = true
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	for i, p := range plans {
		if i > 0 {
			root := &w.nodes[nodeRoot]
			w.src = w.render(make([]byte, 0, w.rendered(root.start, root.end)), root.start, root.end)
			w.scanner.Reset(w.src)
			w.scan(&w.scanner, p)
			if err := w.scanner.End(); err != nil {
				return err
			}
		}
		if err := w.convert(p); err != nil {
			return err
		}
	}
	root := &w.nodes[nodeRoot]
	done(w.src, root.start, root.end)
	return nil
}

// typeMeta returns apiVersion and kind of the object that comes next, nil for what is
// missing or no string.
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
