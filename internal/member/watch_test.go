package member

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lossy is a stub whose watches of ConfigMaps are cut: the first in the middle, the second before it is answered.
type lossy struct {
	*stub

	cut chan struct{} // Is closed to cut the first.

	mu       sync.Mutex
	lists    int
	versions []string // From which a watch was asked for.
}

func (l *lossy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if r.URL.Path != "/api/v1/configmaps" || q.Get("sendInitialEvents") != "" {
		l.stub.ServeHTTP(w, r)
		return
	}
	l.mu.Lock()
	n := len(l.versions)
	if q.Get("watch") == "" {
		l.lists++
	} else {
		l.versions = append(l.versions, q.Get("resourceVersion"))
	}
	l.mu.Unlock()
	switch {
	case q.Get("watch") == "":
		answer(w, http.StatusOK, metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}})
	case n == 0:
		l.tell(w, "first", "11")
		<-l.cut
		panic(http.ErrAbortHandler)
	case n == 1:
		panic(http.ErrAbortHandler)
	default:
		l.tell(w, "second", "12")
		<-r.Context().Done()
	}
}

// tell answers with an event.
func (l *lossy) tell(w http.ResponseWriter, name, version string) {
	w.Header().Set("Content-Type", "application/json")
	text := fmt.Sprintf(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"namespace":"d","name":%q,"uid":%q,"resourceVersion":%q}}`, name, firstUID, version)
	fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, text)
	w.(http.Flusher).Flush()
}

// TestWatchGoesOn from where it was when it is lost, or cannot be begun again at once: nothing is listed once more.
func TestWatchGoesOn(t *testing.T) {
	l := &lossy{stub: newStub(t), cut: make(chan struct{})}
	l.Server.Close()
	l.Server = httptest.NewUnstartedServer(l)
	l.EnableHTTP2 = true // As API servers have it: what is cut is a stream.
	l.Config.ErrorLog = log.New(io.Discard, "", 0)
	l.StartTLS()
	m := connect(t, l.stub)
	<-m.Copies.Watch(configMaps)
	has := func(name string) func() bool {
		return func() bool {
			_, found := m.Copies.Get(Key{configMaps.GroupResource(), types.NamespacedName{Namespace: "d", Name: name}})
			return found == Present
		}
	}
	eventually(t, "the first event", has("first"))
	close(l.cut)
	eventually(t, "the event of the watch that goes on", has("second"))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lists != 1 {
		t.Errorf("want one list, got %d", l.lists)
	}
	if diff := cmp.Diff([]string{"10", "11", "11"}, l.versions); diff != "" {
		t.Errorf("watches by resourceVersion: -want, +got:\n%s", diff)
	}
	if !has("first")() {
		t.Error("want what was known before")
	}
}
