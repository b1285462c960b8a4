package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Options configure a server.
type Options struct {
	// Name of the server in messages.
	Name string
	// Now returns the time for objects. The default is the time of the machine.
	Now func() time.Time
	// UID returns the UID of a new object. The default is a counter.
	UID func() types.UID
	// Token returns a token for a ServiceAccount with about this lifetime, and the time of its expiration. If Token is
	// nil, TokenRequests are not served.
	Token func(namespace, account string, life time.Duration) (token string, until time.Time)
	// Types are the served types.
	Types []Type
	// Services is the prefix of the cluster IPs of Services, instead of a CIDR. The default is 10.96.0.
	Services string
	// NodePorts is the first node port of Services. The default is 30000.
	NodePorts int
}

// Server is an API server. Only one goroutine at a time may call its methods.
type Server struct {
	o       Options
	types   map[schema.GroupVersionResource]*machinery
	order   []*machinery
	stores  map[schema.GroupResource]*store
	version uint64 // The last assigned resourceVersion.
	compact uint64 // Changes up to this version are forgotten.
	uids    int
	names   int // Number of generated names.
	// addresses and ports count the addresses and node ports that were assigned to Services.
	addresses, ports int
	writes           []func(Write)
	admits           []func(Write) *apierrors.StatusError
	mutates          []func(Write)
	watches          []*Watch
	found            map[string]*foundTypes
}

// store contains the objects of a resource.
type store struct {
	resource schema.GroupResource
	objects  map[string]*entry
	keys     []string // Sorted.
	log      []change // Since the last compaction.
}

// entry is a stored object in the storage version. It is never modified.
type entry struct {
	object  *unstructured.Unstructured
	version uint64
	labels  map[string]string
	shown   map[shape][]byte // Cache of encodings.
	// unsettled is true if the stored object differs from the object that a read returns. Then the next write stores
	// the object even without a change.
	unsettled bool
}

// change is a change of an object: before is nil for a creation, after is nil for a removal.
type change struct {
	key           string
	before, after *entry
	version       uint64
}

// Write is a change of an object.
type Write struct {
	// Verb is create, update, patch, apply, delete or removed. The verb delete means that finalizers or a grace period
	// keep the object.
	Verb string
	GVR  schema.GroupVersionResource
	// Namespace and Name are those of the object. Subresource is status, scale or empty.
	Namespace, Name, Subresource string
	// User is the name of the writer, from the header X-Remote-User. Manager is the field manager.
	User, Manager string
	// Before and After are the object before and after the change; nil if it does not exist. They are shared, and must
	// not be modified.
	Before, After *unstructured.Unstructured
	// DryRun is true for dry runs, which are not stored. Only the functions of Admit and Mutate are called for dry
	// runs.
	DryRun bool
}

// New returns a server without objects.
func New(o Options) *Server {
	s := &Server{o: o, stores: map[schema.GroupResource]*store{}, version: 1}
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	if s.o.UID == nil {
		s.o.UID = func() types.UID {
			s.uids++
			return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.uids))
		}
	}
	if s.o.Services == "" {
		s.o.Services = "10.96.0"
	}
	if s.o.NodePorts == 0 {
		s.o.NodePorts = 30000
	}
	s.SetTypes(o.Types)
	return s
}

// SetTypes replaces the served types. Objects of other types are removed, and their watches end.
func (s *Server) SetTypes(all []Type) {
	s.types, s.order, s.found = map[schema.GroupVersionResource]*machinery{}, nil, nil
	kept := map[schema.GroupResource]bool{}
	for _, t := range all {
		m := t.machine()
		m2 := m
		if !slices.Equal(m.typ.Verbs, t.Verbs) {
			c := *m
			c.typ.Verbs = t.Verbs
			m2 = &c
		}
		s.types[t.GVR] = m2
		s.order = append(s.order, m2)
		gr := t.GVR.GroupResource()
		kept[gr] = true
		if s.stores[gr] == nil {
			s.stores[gr] = &store{resource: gr, objects: map[string]*entry{}}
		}
	}
	var gone []string
	for gr := range s.stores {
		if !kept[gr] {
			gone = append(gone, gr.String())
		}
	}
	sort.Strings(gone)
	for _, name := range gone {
		gr := schema.ParseGroupResource(name)
		st := s.stores[gr]
		for _, key := range slices.Clone(st.keys) {
			s.put(st, key, nil)
		}
		delete(s.stores, gr)
	}
	for _, w := range s.watches {
		if s.types[w.m.typ.GVR] == nil {
			w.end()
		}
	}
	s.sweep()
}

// OnWrite registers a function that is called after each stored change.
func (s *Server) OnWrite(do func(Write)) { s.writes = append(s.writes, do) }

// Admit registers a function that is called before a change is stored. Its error rejects the change.
func (s *Server) Admit(ask func(Write) *apierrors.StatusError) { s.admits = append(s.admits, ask) }

// Mutate registers a function that is called before a change is validated, like a mutating webhook: After is a copy
// that the function may modify.
func (s *Server) Mutate(change func(Write)) { s.mutates = append(s.mutates, change) }

// Version returns the last assigned resourceVersion.
func (s *Server) Version() uint64 { return s.version }

// keyOf returns the key of an object in a store.
func keyOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// put stores an object, or removes the stored one if o is nil, and notifies the watches.
func (s *Server) put(st *store, key string, o *unstructured.Unstructured) *entry {
	s.version++
	before := st.objects[key]
	c := change{key: key, before: before, version: s.version}
	at, found := slices.BinarySearch(st.keys, key)
	if o == nil {
		delete(st.objects, key)
		if found {
			st.keys = slices.Delete(st.keys, at, at+1)
		}
	} else {
		o.SetResourceVersion(fmt.Sprint(s.version))
		c.after = &entry{object: o, version: s.version, labels: o.GetLabels()}
		st.objects[key] = c.after
		if !found {
			st.keys = slices.Insert(st.keys, at, key)
		}
	}
	st.log = append(st.log, c)
	for _, w := range s.watches {
		if w.store == st {
			w.learn(c)
		}
	}
	return c.after
}

// Compact drops old changes. Watches and list pages that need them fail as Expired.
func (s *Server) Compact() {
	s.compact = s.version
	for _, st := range s.stores {
		st.log = nil
	}
}

// sweep drops watches that have ended.
func (s *Server) sweep() {
	s.watches = slices.DeleteFunc(s.watches, func(w *Watch) bool { return w.ended })
}

// Snapshot is the state of a server at one time.
type Snapshot struct {
	version, compact uint64
	stores           map[schema.GroupResource]*store
}

func (s *Server) copied(stores map[schema.GroupResource]*store) map[schema.GroupResource]*store {
	c := map[schema.GroupResource]*store{}
	for gr, st := range stores {
		c[gr] = &store{resource: gr, objects: maps.Clone(st.objects), keys: slices.Clone(st.keys)}
	}
	return c
}

// Snapshot returns the present state, like a backup.
func (s *Server) Snapshot() *Snapshot {
	return &Snapshot{version: s.version, compact: s.compact, stores: s.copied(s.stores)}
}

// Restore resets the server to a snapshot, including the resourceVersions, like an etcd that is restored from a backup.
// All watches end. Objects of types that are no longer served are lost.
func (s *Server) Restore(from *Snapshot) {
	s.endWatches()
	s.version, s.compact = from.version, from.version
	s.stores = s.copied(from.stores)
	all := make([]Type, 0, len(s.order))
	for _, m := range s.order {
		all = append(all, m.typ)
	}
	kept := map[schema.GroupResource]bool{}
	for _, t := range all {
		kept[t.GVR.GroupResource()] = true
	}
	for gr := range s.stores {
		if !kept[gr] {
			delete(s.stores, gr)
		}
	}
	s.SetTypes(all)
}

// Wipe resets the server to a new cluster: it has only the namespaces default and kube-system, with new UIDs, and the
// resourceVersions start again. All watches end.
func (s *Server) Wipe() {
	s.endWatches()
	s.version, s.compact = 1, 0
	for gr := range s.stores {
		s.stores[gr] = &store{resource: gr, objects: map[string]*entry{}}
	}
	for _, name := range []string{"default", "kube-system"} {
		ns := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
		}}
		if _, err := s.As("kube-apiserver").Create(ns); err != nil && s.types[namespaces] != nil {
			panic(err) // The namespace is valid.
		}
	}
}

func (s *Server) endWatches() {
	for _, w := range s.watches {
		w.end()
	}
	s.sweep()
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Serve answers any request except a watch.
func (s *Server) Serve(r *http.Request, body []byte) *Answer {
	switch r.URL.Path {
	case "/readyz", "/livez", "/healthz":
		return &Answer{Code: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: []byte("ok")}
	case "/version":
		return encoded(http.StatusOK, serverVersion)
	}
	if a := s.discover(r); a != nil {
		return a
	}
	q, err := s.parse(r)
	if err == nil {
		if q == nil {
			if group, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/"), "/"); strings.HasPrefix(r.URL.Path, "/api/") || s.hasBuiltIn(group) {
				status := metav1.Status{
					Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{},
					Message: "the server could not find the requested resource",
				}
				return refused(r, &statusError{status})
			}
			return &Answer{Code: http.StatusNotFound, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: []byte("404 page not found\n")}
		}
		q.body = body
		var a *Answer
		if a, err = s.serve(q); err == nil {
			return a
		}
	}
	return refused(r, err)
}

// hasBuiltIn reports whether a group has built-in types. Another part of kube-apiserver answers for other groups.
func (s *Server) hasBuiltIn(group string) bool {
	return slices.ContainsFunc(s.order, func(m *machinery) bool { return m.typ.GVR.Group == group && m.builtin != nil })
}

// request is a request in progress.
type request struct {
	http                         *http.Request
	m                            *machinery
	verb                         string
	namespace, name, subresource string
	user                         string
	body                         []byte
	shape                        shape
}

// locate parses the path of a request. It returns nil if the path is not served.
func (s *Server) locate(r *http.Request) *request {
	at := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(at) > 2 && at[0] == "api":
		gv, at = schema.GroupVersion{Version: at[1]}, at[2:]
	case len(at) > 3 && at[0] == "apis":
		gv, at = schema.GroupVersion{Group: at[1], Version: at[2]}, at[3:]
	default:
		return nil
	}
	q := &request{http: r, user: r.Header.Get("X-Remote-User")}
	ofNamespace := len(at) == 3 && (at[2] == "status" || at[2] == "finalize")
	if len(at) > 2 && at[0] == "namespaces" && !ofNamespace {
		q.namespace, at = at[1], at[2:]
	}
	if q.m = s.types[gv.WithResource(at[0])]; q.m == nil || len(at) > 3 {
		return nil
	}
	at = append(at[1:len(at):len(at)], "", "")
	q.name, q.subresource = at[0], at[1]
	t := &q.m.typ
	if q.namespace != "" && !t.Namespaced || q.name != "" && t.Namespaced && q.namespace == "" || !t.has(q.subresource, r.Method) ||
		q.subresource == "token" && s.o.Token == nil {
		return nil
	}
	return q
}

// has reports whether the type has a subresource.
func (t *Type) has(subresource, method string) bool {
	switch subresource {
	case "":
		return true
	case "status":
		return t.Status
	case "scale":
		return t.Scale
	case "finalize":
		return t.GVR == namespaces
	case "eviction":
		return t.GVR == pods && method == http.MethodPost
	case "token":
		return t.GVR == accounts && method == http.MethodPost
	}
	return false
}

// parse parses a request. It returns nil if the path is not served.
func (s *Server) parse(r *http.Request) (*request, error) {
	q := s.locate(r)
	if q == nil {
		return nil, nil //nolint:nilnil // See above.
	}
	t := &q.m.typ
	q.verb = verbOf(r, q.name)
	if q.verb == "" || !t.can(q.verb) || t.Namespaced && q.namespace == "" && q.verb == "create" {
		return nil, apierrors.NewMethodNotSupported(t.GVR.GroupResource(), strings.ToLower(r.Method))
	}
	if q.verb == "patch" { // kube-apiserver checks this before the format of the answer.
		if err := checkOptions(q.m, q.verb, url.Values{"fieldManager": {"x"}, "force": nil}, r); err != nil {
			return nil, err
		}
	}
	var err error
	q.shape, err = accepted(r, q.m, q.verb)
	return q, err
}

func verbOf(r *http.Request, name string) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		switch {
		case IsWatch(r):
			return "watch"
		case name == "":
			return "list"
		}
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		if name != "" {
			return "update"
		}
	case http.MethodPatch:
		if name != "" {
			return "patch"
		}
	case http.MethodDelete:
		if name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	return ""
}

func (s *Server) serve(q *request) (*Answer, error) {
	switch q.verb {
	case "list":
		return s.list(q)
	case "get":
		return s.get(q)
	case "watch":
		return nil, apierrors.NewInternalError(errors.New("a watch is begun by Watch"))
	}
	return s.write(q)
}
