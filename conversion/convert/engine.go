package convert

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"refract.dev/tree/raw"
)

// Engine converts the objects of its resources. It is immutable, and safe for concurrent use.
type Engine struct {
	kinds       map[string]map[string]*kind // By group and name.
	conversions []Conversion
	nodes       int // The largest number of nodes of a plan.
	pool        sync.Pool
}

// New returns an engine for resources of different kinds. An error names the resource, the version and the invalid
// place.
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
			return nil, fmt.Errorf("resource %s.%s is declared twice", r.Kind, r.Group)
		}
		e.kinds[r.Group][r.Kind] = k
	}
	return e, nil
}

// Convert returns an object, one JSON document, in the given API version, GROUP/VERSION. It returns the same slice if
// the object already has that version. It does not modify its argument. Its errors are of type [*ObjectError], with
// index -1.
func (e *Engine) Convert(object []byte, apiVersion string) ([]byte, error) {
	w := e.acquire()
	defer e.recycle(w)
	s := &w.outer
	s.Reset(object)
	var out []byte
	same, done := func(_, _ int) { out = object }, func(_ []byte, _, _ int) { out = w.rewriter.render() }
	o, err := w.object(s, apiVersion, same, done)
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

// acquire returns a converter for exclusive use. If possible, it reuses the memory of an earlier request.
func (e *Engine) acquire() *converter {
	if w, ok := e.pool.Get().(*converter); ok {
		return w
	}
	return e.newConverter()
}

// recycle makes the converter available to another request, unless a panic left it in an undefined state.
func (e *Engine) recycle(w *converter) {
	if w.broken {
		return
	}
	w.release()
	e.pool.Put(w)
}

// route returns the plans from one API version to another, in order; none if the versions are equal.
func (e *Engine) route(kindName, from, to string) (*kind, []*plan, error) {
	group, version, _ := strings.Cut(from, "/")
	wantGroup, want, _ := strings.Cut(to, "/")
	k := e.kinds[group][kindName]
	unknown := func(version string) error {
		return fmt.Errorf("version %q of %s is unknown: want one of %s", version, kindName, strings.Join(k.versions, ", "))
	}
	switch {
	case k == nil:
		return nil, nil, fmt.Errorf("kind %s of %s is not converted here", kindName, from)
	case group != wantGroup:
		return nil, nil, fmt.Errorf("%s is of another group", to)
	case !slices.Contains(k.versions, version):
		return nil, nil, unknown(version)
	case !slices.Contains(k.versions, want):
		return nil, nil, unknown(want)
	default:
		return k, k.routes[[2]string{version, want}], nil
	}
}
