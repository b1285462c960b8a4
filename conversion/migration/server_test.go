package migration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	crdPath     = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.org"
	v2Path      = "/apis/example.org/v2"
	widgetsPath = v2Path + "/widgets"
)

// server is an API server for cluster-scoped widgets, with the versions v1 and v2. v2 is the storage version.
type server struct {
	*httptest.Server

	mu      sync.Mutex
	stored  map[string]*widget
	version int
	crd     map[string]any
	// before, if set, may answer a request in place of the server. The server calls it with mu locked.
	before func(w http.ResponseWriter, r *http.Request) (answered bool)
	// wrote, if set, gets the name of each rewritten object. The server calls it with mu locked.
	wrote func(name string)
	// log has the method and path of each request.
	log []string
}

type widget struct {
	name            string
	in              string // The stored version.
	resourceVersion int
}

func newServer(t *testing.T, widgets int) *server {
	t.Helper()
	s := &server{stored: map[string]*widget{}}
	for i := range widgets {
		s.put(fmt.Sprintf("w-%04d", i), "v1")
	}
	s.crd = map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.org", "uid": "the-definition", "generation": 2, "resourceVersion": "1", "annotations": map[string]any{}},
		"spec": map[string]any{
			"group": "example.org", "scope": "Cluster", "names": map[string]any{"kind": "Widget", "plural": "widgets"},
			"versions": []any{
				map[string]any{"name": "v1", "served": true, "storage": false},
				map[string]any{"name": "v2", "served": true, "storage": true},
			},
		},
		"status": map[string]any{
			"storedVersions": []any{"v1", "v2"},
			"conditions":     []any{map[string]any{"type": "Established", "status": "True"}},
		},
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// put stores an object. The caller has locked mu, or no other goroutine uses the server.
func (s *server) put(name, in string) {
	s.version++
	s.stored[name] = &widget{name: name, in: in, resourceVersion: s.version}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, r.Method+" "+r.URL.Path)
	if s.before != nil && s.before(w, r) {
		return
	}
	name, isWidget := strings.CutPrefix(r.URL.Path, widgetsPath+"/")
	switch {
	case strings.HasPrefix(r.URL.Path, crdPath):
		s.definition(w, r)
	case r.URL.Path == v2Path:
		reply(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "resources": []any{
			map[string]any{"name": "widgets", "storageVersionHash": storageVersionHash("example.org", "v2", "Widget")},
		}})
	case r.URL.Path == widgetsPath:
		s.list(w, r)
	case isWidget:
		s.widget(w, r, name)
	default:
		deny(w, http.StatusNotFound, metav1.StatusReasonNotFound, nil)
	}
}

func reply(w http.ResponseWriter, body any) { answer(w, http.StatusOK, body) }

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// deny answers with an error. If change is set, it may modify the Status first.
func deny(w http.ResponseWriter, code int, reason metav1.StatusReason, change func(*metav1.Status)) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: "it says " + string(reason),
	}
	if change != nil {
		change(&status)
	}
	answer(w, code, status)
}

// missing answers that the widget does not exist.
func missing(w http.ResponseWriter, name string) {
	deny(w, http.StatusNotFound, metav1.StatusReasonNotFound, func(s *metav1.Status) {
		s.Details = &metav1.StatusDetails{Group: "example.org", Kind: "widgets", Name: name}
	})
}

func (s *server) definition(w http.ResponseWriter, r *http.Request) {
	meta := s.crd["metadata"].(map[string]any)
	if r.Method == http.MethodPatch {
		patch := map[string]any{}
		if json.NewDecoder(r.Body).Decode(&patch) != nil {
			deny(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, nil)
			return
		}
		changed, _ := patch["metadata"].(map[string]any)
		if want, ok := changed["resourceVersion"]; ok && want != meta["resourceVersion"] {
			deny(w, http.StatusConflict, metav1.StatusReasonConflict, nil)
			return
		}
		for key, value := range sub(changed, "annotations") {
			if value == nil {
				delete(sub(meta, "annotations"), key)
				continue
			}
			sub(meta, "annotations")[key] = value
		}
		maps.Copy(sub(s.crd, "status"), sub(patch, "status"))
		s.version++
		meta["resourceVersion"] = strconv.Itoa(s.version)
	}
	reply(w, s.crd)
}

func sub(in map[string]any, name string) map[string]any {
	out, _ := in[name].(map[string]any)
	return out
}

// list answers with a page. Its continue token is the name of the last object of the previous page.
func (s *server) list(w http.ResponseWriter, r *http.Request) {
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil {
		deny(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, nil)
		return
	}
	var all []*widget
	for _, o := range s.stored {
		if o.name > r.URL.Query().Get("continue") {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *widget) int { return cmp.Compare(a.name, b.name) })
	meta := map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	if len(all) > limit {
		meta["continue"], meta["remainingItemCount"] = all[limit-1].name, len(all)-limit
		all = all[:limit]
	}
	items := []any{}
	for _, o := range all {
		items = append(items, o.metadata())
	}
	reply(w, map[string]any{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items})
}

func (o *widget) metadata() map[string]any {
	return map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{
		"name": o.name, "uid": "uid-of-" + o.name, "resourceVersion": strconv.Itoa(o.resourceVersion),
	}}
}

func (s *server) widget(w http.ResponseWriter, r *http.Request, name string) {
	o := s.stored[name]
	if o == nil {
		missing(w, name)
		return
	}
	if r.Method == http.MethodPatch {
		var patch metav1.PartialObjectMetadata
		if json.NewDecoder(r.Body).Decode(&patch) != nil || patch.APIVersion != "example.org/v2" || patch.Kind != "Widget" {
			deny(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, nil)
			return
		}
		if patch.ResourceVersion != "" && patch.ResourceVersion != strconv.Itoa(o.resourceVersion) {
			deny(w, http.StatusConflict, metav1.StatusReasonConflict, nil)
			return
		}
		if o.in != "v2" && r.URL.Query().Get("dryRun") == "" {
			s.put(name, "v2")
			o = s.stored[name]
			if s.wrote != nil {
				s.wrote(name)
			}
		}
	}
	reply(w, o.metadata())
}

// heal removes before. It locks mu, because requests of a migration may continue after the migration has ended.
func (s *server) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = nil
}

// storedIn returns the number of objects for each stored version.
func (s *server) storedIn() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	for _, o := range s.stored {
		counts[o.in]++
	}
	return counts
}

// known returns status.storedVersions and the annotation of the definition.
func (s *server) known() (storedVersions, annotation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	annotation, _ = sub(sub(s.crd, "metadata"), "annotations")[Annotation].(string)
	return fmt.Sprint(sub(s.crd, "status")["storedVersions"]), annotation
}

// requests counts the requests whose method and path have this prefix.
func (s *server) requests(prefix string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, line := range s.log {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// quick is a pace for tests, with short delays.
var quick = pace{
	first: time.Millisecond, longest: 2 * time.Millisecond, away: time.Minute, tries: 3,
	request: time.Minute, look: time.Millisecond, discover: 50 * time.Millisecond,
}

// migration returns a migration to v2 that has not begun.
func (s *server) migration(t *testing.T, change func(*Options)) *migration {
	t.Helper()
	o := Options{Config: &rest.Config{Host: s.URL, QPS: -1}, Name: "widgets.example.org", To: "v2"}
	if change != nil {
		change(&o)
	}
	m, err := begin(o, quick)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
