package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"

	"refract.dev/internal/poll"
)

// lossy is a stub that interrupts watches of ConfigMaps: the first one after an event, the second one before the
// answer. It also interrupts the first two watches that begin with a list, in the middle of the list.
type lossy struct {
	*stub

	streams bool          // Whether watches may begin with a list.
	cut     chan struct{} // Closed to interrupt the first watch.

	mu       sync.Mutex
	lists    int
	streamed int
	versions []string // The start versions of the requested watches.
}

func (l *lossy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if streams := q.Get("sendInitialEvents") != ""; r.URL.Path != "/api/v1/configmaps" || streams && !l.streams {
		l.stub.ServeHTTP(w, r)
		return
	} else if streams {
		l.mu.Lock()
		l.streamed++
		l.mu.Unlock()
		l.tell(w, "first", "9")
		panic(http.ErrAbortHandler)
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

// serve makes the stub serve HTTP/2, like API servers, so that an interruption ends a stream.
func (l *lossy) serve(t *testing.T) *Member {
	t.Helper()
	l.Server.Close()
	l.Server = httptest.NewUnstartedServer(l)
	l.EnableHTTP2 = true
	l.Config.ErrorLog = log.New(io.Discard, "", 0)
	l.StartTLS()
	return connect(t, l.stub)
}

// tell answers with an event.
func (l *lossy) tell(w http.ResponseWriter, name, version string) {
	w.Header().Set("Content-Type", "application/json")
	text := fmt.Sprintf(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"namespace":"d","name":%q,"uid":%q,"resourceVersion":%q}}`, name, firstUID, version)
	fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, text)
	w.(http.Flusher).Flush()
}

// TestWatchGoesOn: an interrupted watch continues from its last version without another list, even if it cannot begin
// again at once.
func TestWatchGoesOn(t *testing.T) {
	l := &lossy{stub: newStub(t), cut: make(chan struct{})}
	m := l.serve(t)
	<-m.Copies.Watch(configMaps)
	has := func(name string) func() bool {
		return func() bool {
			_, found := m.Copies.Get(Key{configMaps.GroupResource(), types.NamespacedName{Namespace: "d", Name: name}})
			return found == Present
		}
	}
	poll.Until(t, "the first event", has("first"))
	close(l.cut)
	poll.Until(t, "the event of the continued watch", has("second"))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lists != 1 {
		t.Errorf("want one list, got %d", l.lists)
	}
	if diff := cmp.Diff([]string{"10", "11", "11"}, l.versions); diff != "" {
		t.Errorf("watches by resourceVersion: -want, +got:\n%s", diff)
	}
	if !has("first")() {
		t.Error("want the copies from before the interruption")
	}
}

// TestListThatIsCut: a watch that is interrupted in the middle of its list does not continue there. The type is listed
// in pages, as if the API server did not support watches that begin with a list.
func TestListThatIsCut(t *testing.T) {
	l := &lossy{stub: newStub(t), streams: true, cut: make(chan struct{})}
	m := l.serve(t)
	<-m.Copies.Watch(configMaps)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streamed != 1 || l.lists != 1 {
		t.Errorf("want one interrupted list, and one in pages, got %d and %d", l.streamed, l.lists)
	}
}

// TestExpiredLists: a member answers each watch that begins with a list with the error of an expired version. The
// requests are not repeated without a pause.
func TestExpiredLists(t *testing.T) {
	e := &expired{stub: newStub(t), asked: make(chan time.Time)}
	e.Server.Close()
	e.Server = httptest.NewTLSServer(e)
	t.Cleanup(e.Server.Close)
	m := connect(t, e.stub)
	m.Copies.Watch(configMaps)
	first := <-e.asked
	if apart := (<-e.asked).Sub(first); apart < watchSpacing/2 {
		t.Errorf("want the next request after %s, got %s", watchSpacing, apart)
	}
}

// expired is a stub that answers watches that begin with a list with the error of an expired version. It sends the time
// of each request to asked, and answers when the test has received it.
type expired struct {
	*stub

	asked chan time.Time
}

func (e *expired) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("sendInitialEvents") == "" {
		e.stub.ServeHTTP(w, r)
		return
	}
	select {
	case e.asked <- time.Now():
	case <-r.Context().Done():
	}
	answer(w, http.StatusGone, apierrors.NewResourceExpired("too old").Status())
}

// TestResumption: watches begin at least a second apart. They continue after requests without an answer, unless the
// outage was so long that the cluster may be in another state.
func TestResumption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := &url.Error{Op: "Get", URL: "https://m", Err: errors.New("http2: client connection lost")}
		refused, elsewhere, excess := apierrors.NewUnauthorized("no"), &url.Error{Err: &redirected{}}, &url.Error{Err: &LimitError{}}
		var r resumption
		paceOf := func(lists bool, want time.Duration) {
			t.Helper()
			began := time.Now()
			if err := r.pace(t.Context(), lists); err != nil || time.Since(began) != want {
				t.Errorf("pace(): want a wait of %s, got %s, %v", want, time.Since(began), err)
			}
		}
		pace := func(want time.Duration) {
			t.Helper()
			paceOf(false, want)
		}
		begins := func(err error, refused bool, want error) {
			t.Helper()
			w := watch.NewFake()
			events, got := r.begun(w, err, err)
			if (events == nil) != (want != nil) || !errors.Is(got, want) || utilnet.IsConnectionRefused(got) != refused {
				t.Errorf("begun(%v): want %v, as if refused: %t, got %v", err, want, refused, got)
			}
		}
		pace(0)
		begins(nil, false, nil)
		pace(watchSpacing)
		begins(lost, true, lost)
		pace(0)
		<-time.After(longAway)
		begins(lost, true, lost)
		begins(refused, false, refused)
		<-time.After(time.Second)
		begins(nil, false, errLongAway)
		begins(nil, false, nil)
		pace(watchSpacing)
		begins(elsewhere, false, elsewhere)
		begins(excess, false, excess)
		begins(lost, true, lost)
		<-time.After(longAway - time.Second)
		begins(nil, false, nil)
		<-time.After(watchSpacing)
		paceOf(true, 0)
		paceOf(true, watchSpacing)
		pace(0) // Watches that begin with a list do not delay a watch that continues.
		<-time.After(watchSpacing / 2)
		paceOf(true, watchSpacing/2)
		begins(nil, false, nil)
		ended, end := context.WithCancel(t.Context())
		end()
		if err := r.pace(ended, false); !errors.Is(err, context.Canceled) {
			t.Errorf("pace(): want the wait to end with its context, got %v", err)
		}
	})
}
