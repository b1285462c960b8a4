package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/poll"
)

// stub is an API server with the types ConfigMap, Secret, ServiceAccount, Event and Namespace.
type stub struct {
	*httptest.Server

	mu       sync.Mutex
	objects  map[string][]metav1.PartialObjectMetadata // By resource.
	refuse   map[string]error                          // By "VERB RESOURCE", with the verbs of HTTP.
	requests []string
	paths    []string
	peers    map[string]bool
	patched  func() // Called during each patch.
	down     bool
	life     int // The identity of the data: another value means another cluster.
	revision int // The revision of the data.
}

func newStub(t *testing.T) *stub {
	t.Helper()
	s := &stub{revision: 40, objects: map[string][]metav1.PartialObjectMetadata{}, refuse: map[string]error{}, peers: map[string]bool{}}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *stub) config() *rest.Config {
	return &rest.Config{Host: s.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	down, life, revision := s.down, s.life, s.revision
	s.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler) // This closes the connection without an answer.
	}
	s.set(func() {
		s.paths = append(s.paths, r.Method+" "+r.URL.Path)
		s.peers[r.RemoteAddr] = true
	})
	switch r.URL.Path {
	case "/readyz":
		fmt.Fprint(w, "ok")
		return
	case "/api":
		answer(w, http.StatusOK, metav1.APIVersions{Versions: []string{"v1"}})
		return
	case "/apis":
		answer(w, http.StatusOK, metav1.APIGroupList{})
		return
	case "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
		review := authorizationv1.SelfSubjectAccessReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Spec.ResourceAttributes == nil {
			answer(w, http.StatusBadRequest, metav1.Status{Status: "Failure", Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest})
			return
		}
		s.mu.Lock()
		review.Status.Allowed = s.refuse["GET "+review.Spec.ResourceAttributes.Resource] == nil
		s.mu.Unlock()
		answer(w, http.StatusCreated, review)
		return
	case "/api/v1":
		list := metav1.APIResourceList{GroupVersion: "v1"}
		for resource, kind := range map[string]string{"configmaps": "ConfigMap", "secrets": "Secret", "serviceaccounts": "ServiceAccount", "events": "Event", "namespaces": "Namespace"} {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource, Kind: kind, Namespaced: resource != "namespaces", Verbs: []string{"list", "watch", "patch", "delete"}})
		}
		answer(w, http.StatusOK, list)
		return
	}
	if r.URL.Path == "/apis/example.com/v1" {
		answer(w, http.StatusNotFound, metav1.Status{Status: "Failure", Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
		return
	}
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/example.com/v1/"), "/api/v1/")
	parts := strings.Split(path, "/")
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	resource := parts[0]
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+resource)
	err, items, patched := s.refuse[r.Method+" "+resource], slices.Clone(s.objects[resource]), s.patched
	s.mu.Unlock()
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		w.Header().Set("Retry-After", "1")
		answer(w, int(status.Status().Code), status.Status())
	case r.URL.Query().Get("watch") != "":
		if r.URL.Query().Get("sendInitialEvents") != "" {
			answer(w, http.StatusUnprocessableEntity, metav1.Status{Status: "Failure", Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.Method == http.MethodPatch:
		if patched != nil {
			patched()
		}
		answer(w, http.StatusOK, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: parts[1], UID: firstUID, ResourceVersion: "50"}})
	case r.URL.Query().Get("fieldSelector") == "metadata.name=kube-system":
		answer(w, http.StatusOK, metav1.PartialObjectMetadataList{
			ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(revision)},
			Items:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: types.UID(fmt.Sprint(s.URL, life)), ResourceVersion: "1"}}},
		})
	case r.Method == http.MethodGet && len(parts) > 1:
		answer(w, http.StatusOK, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: parts[1], UID: "that", ResourceVersion: "1"}})
	case r.Method == http.MethodDelete:
		answer(w, http.StatusOK, metav1.Status{Status: "Success"})
	default:
		answer(w, http.StatusOK, metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(revision)}, Items: items})
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	meta := metav1.TypeMeta{APIVersion: "meta.k8s.io/v1"}
	switch b := body.(type) {
	case metav1.PartialObjectMetadata:
		meta.Kind = "PartialObjectMetadata"
		b.TypeMeta = meta
		body = b
	case metav1.PartialObjectMetadataList:
		meta.Kind = "PartialObjectMetadataList"
		b.TypeMeta = meta
		body = b
	case metav1.Status:
		b.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		body = b
	}
	raw, err := json.Marshal(body)
	if err != nil {
		code = http.StatusTeapot
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(raw)
}

func (s *stub) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *stub) count(request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if r == request {
			n++
		}
	}
	return n
}

func connect(t *testing.T, s *stub) *Member {
	t.Helper()
	m, err := newMember(t.Name(), s.config(), unobserved, nil, logr.Logger{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return m
}

func TestApplyIsRemembered(t *testing.T) {
	s := newStub(t)
	m := connect(t, s)
	<-m.Copies.Watch(configMaps)
	if err := m.Copies.Apply(t.Context(), configMaps, webName, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	c, found := m.Copies.Get(Key{configMaps.GroupResource(), webName})
	if found != Present || c.UID != firstUID || c.ResourceVersion() != "50" || c.Readiness != refractv1alpha1.ReadinessReady {
		t.Errorf("Get(): want the copy from the answer to the write, got %+v, %d", c, found)
	}
	if m.Copies.Count() != 1 || m.Copies.InNamespace("d") != 1 || m.Copies.InNamespace("e") != 0 {
		t.Errorf("want one copy in the namespace, got %d, %d, %d", m.Copies.Count(), m.Copies.InNamespace("d"), m.Copies.InNamespace("e"))
	}
}

func TestOverloadIsNotHidden(t *testing.T) {
	s := newStub(t)
	s.refuse["PATCH configmaps"] = serverError(http.StatusTooManyRequests, "later")
	m := connect(t, s)
	for range breakerTrips {
		if d := m.Pause(); d != 0 {
			t.Errorf("Pause(): got %v before enough writes failed", d)
		}
		if err := m.Copies.Apply(t.Context(), configMaps, webName, []byte("{}")); !apierrors.IsTooManyRequests(err) {
			t.Fatalf("Apply(): want the error of the API server, got %v", err)
		}
	}
	if n := s.count("PATCH configmaps"); n != breakerTrips {
		t.Errorf("want one request for each write, without the retries that the API server asks for: want %d, got %d", breakerTrips, n)
	}
	if m.Pause() == 0 {
		t.Error("Pause(): want a wait, as the API server refuses all writes")
	}
}

func TestMembersDoNotShareConnections(t *testing.T) {
	s := newStub(t)
	a, b := connect(t, s), connect(t, s)
	for _, m := range []*Member{a, b, a, b} {
		if _, err := m.Objects.Read(t.Context(), configMaps, webName); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.peers) != 2 {
		t.Errorf("want one connection for each of two members, got %d", len(s.peers))
	}
}

func TestCloseWaitsForWrites(t *testing.T) {
	s := newStub(t)
	begun, end := make(chan struct{}), make(chan struct{})
	s.patched = func() { close(begun); <-end }
	m := connect(t, s)
	m.Copies.Watch(configMaps)
	written := make(chan error, 1)
	go func() { written <- m.Copies.Apply(t.Context(), configMaps, webName, []byte("{}")) }()
	<-begun
	closed := make(chan struct{})
	go func() { m.close(); close(closed) }()
	<-m.api.lifetime.ctx.Done()
	select {
	case <-closed:
		t.Error("close() returned while a write was under way: another process may begin to write then")
	default:
	}
	close(end)
	if err := <-written; err != nil {
		t.Errorf("want the write under way to succeed: %v", err)
	}
	<-closed
	if err := m.Copies.Apply(t.Context(), configMaps, webName, []byte("{}")); !errors.Is(err, errLeft) {
		t.Errorf("Apply() after close(): want %v, got %v", errLeft, err)
	}
	if n := s.count("PATCH configmaps"); n != 1 {
		t.Errorf("want no request after close(): got %d", n-1)
	}
}

func TestSweep(t *testing.T) {
	s := newStub(t)
	s.objects["configmaps"] = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web", UID: firstUID, ResourceVersion: "7"}}}
	s.refuse["GET secrets"] = denied("list", "secrets")
	m := connect(t, s)
	secrets, accounts := configMaps, configMaps
	secrets.Resource, accounts.Resource = "secrets", "serviceaccounts"
	var listed sync.Map // For each type, whether its copies are known after the last call.
	m.Copies.watches.observer.listed = func(of schema.GroupResource, known bool) { listed.Store(of, known) }
	m.Copies.unwatched.askSweep()
	if _, found := m.Copies.Get(Key{accounts.GroupResource(), webName}); found != Unlisted || m.Copies.complete() {
		t.Errorf("Get(): want Unlisted before the search, got %d", found)
	}
	lookThrough(m)
	if m.Copies.unwatched.err != nil {
		t.Fatalf("sweep: want no error for a type that may not be listed, got %v", m.Copies.unwatched.err)
	}
	poll.Until(t, "the copy is found", func() bool {
		_, found := m.Copies.Get(Key{configMaps.GroupResource(), webName})
		return found == Present && m.Copies.complete()
	})
	for of, want := range map[schema.GroupResource]bool{
		configMaps.GroupResource(): true, secrets.GroupResource(): false, accounts.GroupResource(): true, AllTypes: true,
	} {
		poll.Until(t, "the result for each type and the end of the search are reported", func() bool {
			got, told := listed.Load(of)
			return told && got == want
		})
	}
	if _, found := m.Copies.Get(Key{accounts.GroupResource(), webName}); found != Unwatched {
		t.Errorf("Get(): want no watch of a type without copies, got %d", found)
	}
	if _, found := m.Copies.Get(Key{secrets.GroupResource(), webName}); found != Unlisted || !apierrors.IsForbidden(m.Copies.ListError(secrets.GroupResource())) {
		t.Errorf("Get(): want Unlisted for a type that may not be listed, got %d", found)
	}
	if got := m.api.rights.describe(); got != "" || s.count("GET secrets") != 1 {
		t.Errorf("want no report and no second request for a type without a needed copy, got %q", got)
	}
	m.Copies.Watch(secrets)
	poll.Until(t, "the missing right is reported", func() bool { return m.api.rights.describe() == "the credentials may not: list secrets" })
	s.set(func() { delete(s.refuse, "GET secrets") })
	m.Copies.watches.again(m.Copies.watches.store(secrets.GroupResource()))
	poll.Until(t, "the type is listed", func() bool {
		_, found := m.Copies.Get(Key{secrets.GroupResource(), webName})
		return found == Absent && m.api.rights.describe() == ""
	})
}

// TestSweepAfterRightIsGranted: a check whether a namespace is empty finds that the right to list a type is missing.
// After the right is granted, the next search for copies of the type does not wait for the usual interval.
func TestSweepAfterRightIsGranted(t *testing.T) {
	s := newStub(t)
	s.objects["secrets"] = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web", UID: firstUID, ResourceVersion: "7"}}}
	s.refuse["GET secrets"] = denied("list", "secrets")
	m := connect(t, s)
	awaited := 0
	m.Copies.unwatched.await = func() { awaited++ }
	m.Copies.unwatched.askSweep()
	lookThrough(m)
	if _, err := m.Namespaces.Empty(t.Context(), "d"); !apierrors.IsForbidden(err) {
		t.Fatalf("Empty(): want an error for the missing right, got %v", err)
	}
	m.Copies.reviewRights(t.Context())
	if got := m.api.rights.describe(); got != "the credentials may not: list secrets" || awaited != 0 {
		t.Fatalf("want the right missing, and no search before it is granted: got %q, %d", got, awaited)
	}
	s.set(func() { delete(s.refuse, "GET secrets") })
	m.Copies.reviewRights(t.Context())
	if got := m.api.rights.describe(); got != "" || awaited != 1 {
		t.Errorf("want no missing right, and a requested search: got %q, %d", got, awaited)
	}
	lookThrough(m)
	poll.Until(t, "the copy is found", func() bool {
		_, found := m.Copies.Get(Key{schema.GroupResource{Resource: "secrets"}, webName})
		return found == Present
	})
}

// TestSweepThatComesTooLate: the member became ready again during a search, and may be another cluster. The result of
// the search is not valid, and the member is searched again.
func TestSweepThatComesTooLate(t *testing.T) {
	m := connect(t, newStub(t))
	m.Copies.unwatched.askSweep()
	m.sweep.run(func(context.Context) error {
		if m.Copies.unwatched.sweepsAsked() == 1 {
			m.Copies.unwatched.askSweep()
		}
		return nil
	})
	if m.Copies.Swept() || !m.Copies.doubts() {
		t.Error("Swept(): want another search")
	}
	lookThrough(m)
	if !m.Copies.Swept() {
		t.Error("Swept(): want the search complete")
	}
}

// TestTypeThatIsNotServed: a type that the member does not serve is reported once. It is not requested again until
// discovery lists it, or the member accepts an object of it. The known copies stay.
func TestTypeThatIsNotServed(t *testing.T) {
	s := newStub(t)
	object := func(name string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: firstUID, ResourceVersion: "7"}}
	}
	s.objects["configmaps"] = []metav1.PartialObjectMetadata{object("web")}
	var mu sync.Mutex
	var said []string
	observed := unobserved
	var unknown, told atomic.Int32 // How often a list left the copies unknown, and how often a copy was reported.
	observed.changed = func(Key) { told.Add(1) }
	observed.listed = func(_ schema.GroupResource, known bool) {
		if !known {
			unknown.Add(1)
		}
	}
	m, err := newMember(t.Name(), s.config(), observed, nil, funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, line)
	}, funcr.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	sees := func(name string, want Lookup) bool {
		_, found := m.Copies.Get(Key{configMaps.GroupResource(), types.NamespacedName{Namespace: "d", Name: name}})
		return found == want
	}
	resting := func() bool {
		m.Copies.watches.mu.Lock()
		defer m.Copies.watches.mu.Unlock()
		return m.Copies.watches.all[configMaps.GroupResource()].resting
	}
	missed := func() bool {
		store := m.Copies.watches.store(configMaps.GroupResource())
		store.mu.Lock()
		defer store.mu.Unlock()
		return store.missed
	}
	gone := func() {
		t.Helper()
		s.set(func() { s.refuse["GET configmaps"] = serverError(http.StatusNotFound, "gone") })
		m.Copies.watches.again(m.Copies.watches.store(configMaps.GroupResource()))
		poll.Until(t, "the type is not requested any more", resting)
	}
	serves := func() { s.set(func() { delete(s.refuse, "GET configmaps") }) }
	lines := func(want int) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if len(said) != want || !strings.Contains(said[0], "does not serve the type") || !strings.Contains(said[0], `"type"="configmaps"`) {
			t.Errorf("want %d lines that name the type, got %q", want, said)
		}
	}
	m.Copies.Watch(configMaps)
	poll.Until(t, "the copy is known", func() bool { return sees("web", Present) })

	before := told.Load()
	gone()
	poll.Until(t, "the copy is reported", func() bool { return told.Load() > before })
	lines(1)
	if !sees("web", Present) || !apierrors.IsNotFound(m.Copies.ListError(configMaps.GroupResource())) || !m.Copies.doubts() {
		t.Error("want the copy kept, and another search")
	}
	if n := unknown.Load(); n > 0 {
		t.Errorf("want the copies known, as a type that is not served has none; got %d reports that they are unknown", n)
	}
	asked := s.count("GET configmaps")
	lookThrough(m) // The discovery still lists the type.
	poll.Until(t, "the type is requested again when discovery lists it", func() bool { return s.count("GET configmaps") > asked && resting() })
	lines(1)
	if m.Copies.doubts() {
		t.Error("want no further searches")
	}

	serves()
	s.set(func() { s.objects["configmaps"] = append(s.objects["configmaps"], object("more")) })
	lookThrough(m)
	poll.Until(t, "the copies are found again", func() bool { return sees("more", Present) && sees("web", Present) && !resting() })
	poll.Until(t, "the list ends", func() bool { return !missed() }) // A list shows objects before it ends.

	gone()
	lines(2)
	serves()
	if err := m.Copies.Apply(t.Context(), configMaps, webName, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if resting() {
		t.Error("want a watch of the type, as the member has accepted an object of it")
	}
}

// lookThrough searches the member at once.
func lookThrough(m *Member) { m.sweep.run(func(context.Context) error { return nil }) }

func TestSweepFails(t *testing.T) {
	s := newStub(t)
	m := connect(t, s)
	key := Key{configMaps.GroupResource(), webName}
	m.Copies.unwatched.askSweep()
	s.set(func() { s.down = true })
	lookThrough(m)
	if _, found := m.Copies.Get(key); found != Unlisted || m.Copies.ListError(key.GroupResource) == nil || !m.Copies.doubts() {
		t.Errorf("want the reason why the copies are unknown, and another search: got %d, %v", found, m.Copies.ListError(key.GroupResource))
	}
	s.set(func() { s.down = false })
	lookThrough(m)
	if _, found := m.Copies.Get(key); found != Unwatched || m.Copies.ListError(key.GroupResource) != nil || m.Copies.doubts() || !m.Copies.complete() {
		t.Errorf("want the copy known to be absent: got %d, %v", found, m.Copies.ListError(key.GroupResource))
	}
	asked := s.count("GET configmaps")
	m.Copies.unwatched.askSweep()
	if _, found := m.Copies.Get(key); found != Unlisted {
		t.Errorf("want Unlisted, as a member that became ready again may be another cluster: got %d", found)
	}
	lookThrough(m)
	if got := s.count("GET configmaps"); got != asked+1 {
		t.Errorf("want one more search, got %d requests after %d", got, asked)
	}
}

func TestSweeper(t *testing.T) {
	s := newStub(t)
	var sweeps sweeper
	var members []*Member
	for range concurrentSweeps + 3 {
		members = append(members, connect(t, s))
	}
	limit := &turnstile{pass: make(chan struct{}), came: make(chan struct{}, 1000)}
	sweeps.limit, sweeps.pending = limit, map[*sweep]bool{}
	for _, m := range members {
		m.Copies.unwatched.askSweep()
		sweeps.add(m.sweep, false)
		sweeps.add(m.sweep, false)
	}
	for range concurrentSweeps {
		<-limit.came
	}
	last := members[len(members)-1]
	sweeps.add(last.sweep, true)
	sweeps.mu.Lock()
	if len(sweeps.queue) != 3 || sweeps.queue[0] != last.sweep {
		t.Errorf("want the excess searches to wait, with the urgent one first: got %d", len(sweeps.queue))
	}
	sweeps.mu.Unlock()
	close(limit.pass)
	for _, m := range members {
		poll.Until(t, "all searches are complete", m.Copies.complete)
	}
	sweeps.close()
	sweeps.add(last.sweep, true)
	if len(sweeps.queue) != 0 || sweeps.workers != 0 {
		t.Errorf("want an empty queue and no workers: got %d members, %d workers", len(sweeps.queue), sweeps.workers)
	}
}

// turnstile is a rate limiter that blocks all callers until it is opened.
type turnstile struct {
	flowcontrol.RateLimiter

	came chan struct{}
	pass chan struct{}
}

func (l *turnstile) Wait(context.Context) error {
	l.came <- struct{}{}
	<-l.pass
	return nil
}

// TestFirstLook: a member is ready after two requests on one connection, regardless of its types.
func TestFirstLook(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	f.Set.sweeps.closed = true
	if fc := f.look(); !isTrue(&fc.Status, corev1alpha1.ClusterReady) {
		t.Fatalf("want the member ready: got %+v", fc.Status)
	}
	if diff := cmp.Diff([]string{"GET /readyz", "GET /api/v1/namespaces"}, s.paths); diff != "" {
		t.Errorf("requests: -want, +got:\n%s", diff)
	}
	m := f.Set.Get("m")
	if _, found := m.Copies.Get(Key{configMaps.GroupResource(), webName}); found != Unlisted {
		t.Errorf("Get(): want Unlisted, got %d", found)
	}
	lookThrough(m)
	if err := m.Copies.Apply(t.Context(), configMaps, webName, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if len(s.peers) != 1 {
		t.Errorf("want one connection for all clients of a member, got %d", len(s.peers))
	}
}

// TestTypeThatIsGoneLacksNoRight: an API server checks rights before it answers that it does not have a type.
func TestTypeThatIsGoneLacksNoRight(t *testing.T) {
	s := newStub(t)
	gone := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	s.refuse["GET widgets"] = denied("list", "widgets.example.com")
	s.refuse["PATCH widgets"] = denied("patch", "widgets.example.com")
	m := connect(t, s)
	<-m.Copies.Watch(gone)
	if err := m.Copies.Apply(t.Context(), gone, webName, []byte("{}")); !apierrors.IsNotFound(err) {
		t.Errorf("Apply(): want NotFound for the type, got %v", err)
	}
	if _, found := m.Copies.Get(Key{gone.GroupResource(), webName}); found != Absent || m.api.rights.describe() != "" {
		t.Errorf("want no copies and no missing right: got %d, %q", found, m.api.rights.describe())
	}
	m.api.rights.note(action{"delete", gone.GroupResource(), "d"}, denied("delete", "widgets.example.com"))
	m.Copies.reviewRights(t.Context())
	if got := m.api.rights.describe(); got != "" {
		t.Errorf("want no missing right for a type that is gone now: got %q", got)
	}
}

func TestNamespaceEmpty(t *testing.T) {
	object := func(name string, annotations ...string) metav1.PartialObjectMetadata {
		o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name}}
		if len(annotations) > 0 {
			o.Annotations = map[string]string{annotations[0]: annotations[1]}
		}
		return o
	}
	type objects = map[string][]metav1.PartialObjectMetadata
	cases := map[string]struct {
		reason  string
		objects objects
		refuse  map[string]error
		want    bool
		fails   bool
		lacking string
	}{
		"Natives": {
			reason: "Objects that Kubernetes creates in each namespace do not count, and neither do Events.",
			objects: objects{
				"serviceaccounts": {object("default")}, "configmaps": {object("kube-root-ca.crt")}, "events": {object("x")},
				"secrets": {object("default-token-abcde", "kubernetes.io/service-account.name", "default")},
			},
			want: true,
		},
		"Foreign":  {reason: "Deleting the namespace would delete a foreign object.", objects: objects{"configmaps": {object("kube-root-ca.crt"), object("x")}}},
		"SameName": {reason: "Another type may have an object of that name.", objects: objects{"secrets": {object("default")}}},
		"Unreadable": {
			reason: "A type that cannot be listed may have objects.", refuse: map[string]error{"GET secrets": denied("list", "secrets")},
			fails: true, lacking: "the credentials may not: list secrets",
		},
		"UnreadableButForeign": {
			reason: "One object is enough to know that the namespace is not empty.", refuse: map[string]error{"GET secrets": denied("list", "secrets")},
			objects: objects{"configmaps": {object("x")}, "serviceaccounts": {object("y")}},
		},
		"TypeIsGone": {reason: "A type that is not served has no objects.", refuse: map[string]error{"GET secrets": serverError(http.StatusNotFound, "gone")}, want: true},
		"Unreachable": {
			reason: "A type whose list fails may have objects.",
			refuse: map[string]error{"GET secrets": serverError(http.StatusInternalServerError, "broken")}, fails: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			maps.Copy(s.objects, tc.objects)
			maps.Copy(s.refuse, tc.refuse)
			m := connect(t, s)
			got, err := m.Namespaces.Empty(t.Context(), "d")
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("%s\nNamespaceEmpty(): want %t, error %t, got %t, %v", tc.reason, tc.want, tc.fails, got, err)
			}
			if lacking := m.api.rights.describe(); lacking != tc.lacking || apierrors.IsForbidden(err) != (lacking != "") {
				t.Errorf("%s\nwant the missing right %q, got %q, %v", tc.reason, tc.lacking, lacking, err)
			}
		})
	}
}

func TestNamespaceOf(t *testing.T) {
	manages := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: "Update", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{` + fields + `}}`)}
	}
	const enforce = "pod-security.kubernetes.io/enforce"
	ours := manages("refract", `"f:labels":{".":{},"f:`+enforce+`":{}},"f:annotations":{".":{},"f:refract.dev/created-by":{},"f:refract.dev/remove-after":{}}`)
	labels := map[string]string{"kubernetes.io/metadata.name": "d", enforce: "baseline"}
	annotations := map[string]string{"refract.dev/created-by": "h", "refract.dev/remove-after": "2026-01-02T03:04:05Z"}
	type want struct {
		Own, Shared, Marked bool
		RemoveAfter         string
	}
	marked := func(own, shared bool) want { return want{own, shared, true, "2026-01-02T03:04:05Z"} }
	cases := map[string]struct {
		reason      string
		labels      map[string]string // In addition to the other labels.
		annotations map[string]string
		owners      int
		managers    []metav1.ManagedFieldsEntry
		want        want
	}{
		"Ours":       {reason: "All metadata comes from Refract or the API server.", managers: []metav1.ManagedFieldsEntry{ours}, want: marked(true, false)},
		"Label":      {reason: "Another manager has set a label.", labels: map[string]string{"team": "a"}, managers: []metav1.ManagedFieldsEntry{ours, manages("kubectl", `"f:labels":{"f:team":{}}`)}, want: marked(true, true)},
		"Annotation": {reason: "Another manager has set an annotation.", annotations: map[string]string{"note": "mine"}, managers: []metav1.ManagedFieldsEntry{ours, manages("kubectl", `"f:annotations":{"f:note":{}}`)}, want: marked(true, true)},
		"Owner":      {reason: "Another manager has set an owner.", owners: 1, managers: []metav1.ManagedFieldsEntry{ours}, want: marked(true, true)},
		"Agreed":     {reason: "Another manager has set the same value, and needs it, too.", managers: []metav1.ManagedFieldsEntry{ours, manages("gitops", `"f:labels":{"f:`+enforce+`":{}}`)}, want: marked(false, true)},
		"Unknown":    {reason: "Without managedFields, the manager of the label is unknown.", want: marked(false, true)},
		"Unreadable": {reason: "With unreadable managedFields, the manager of the label is unknown.", managers: []metav1.ManagedFieldsEntry{ours, {Manager: "x", FieldsV1: metav1.NewFieldsV1("[")}}, want: marked(false, true)},
		"BadMark":    {reason: "An invalid time in the mark permits no deletion.", annotations: map[string]string{"refract.dev/remove-after": "now"}, managers: []metav1.ManagedFieldsEntry{ours}, want: want{Own: true, Marked: true, RemoveAfter: "0001-01-01T00:00:00Z"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name: "d", Labels: maps.Clone(labels), Annotations: maps.Clone(annotations), ManagedFields: tc.managers, OwnerReferences: make([]metav1.OwnerReference, tc.owners),
			}}
			maps.Copy(o.Labels, tc.labels)
			maps.Copy(o.Annotations, tc.annotations)
			n, err := (decoder{}).namespaceOf(o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, want{n.Own[enforce], n.Shared, n.Marked, n.RemoveAfter.Format(time.RFC3339)}); diff != "" {
				t.Errorf("%s\nnamespaceOf(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	s := newStub(t)
	m := connect(t, s)
	key := Key{configMaps.GroupResource(), webName}
	m.Copies.Watch(configMaps)
	for _, step := range []struct {
		reason string
		err    error
		found  bool
		fails  bool
	}{
		{"The copy exists.", nil, true, false},
		{"The copy is gone.", serverError(http.StatusNotFound, "gone"), false, false},
		{"Another object has the name, and stays.", serverError(http.StatusConflict, "uid"), false, false},
		{"The right to delete the copy is missing.", denied("delete", "configmaps"), false, true},
	} {
		s.set(func() { s.refuse["DELETE configmaps"] = step.err })
		found, err := m.Copies.Delete(t.Context(), key, firstUID)
		if found != step.found || (err != nil) != step.fails {
			t.Errorf("%s\nDelete(): want %t, error %t, got %t, %v", step.reason, step.found, step.fails, found, err)
		}
	}
	if got, want := m.api.rights.describe(), "the credentials may not: delete configmaps"; got != want {
		t.Errorf("rights: want %q, got %q", want, got)
	}
	if found, err := m.Namespaces.Delete(t.Context(), "d", firstUID, "1"); !found || err != nil {
		t.Errorf("DeleteNamespace(): got %t, %v", found, err)
	}
}

func TestHasStatus(t *testing.T) {
	for resource, want := range map[string]bool{
		"deployments.apps": true, "services": true, "configmaps": false, "secrets": false, "roles.rbac.authorization.k8s.io": false,
		"things.example.com": true, "gateways.gateway.networking.k8s.io": true, "namespaces": false,
	} {
		name, group, _ := strings.Cut(resource, ".")
		gr := configMaps.GroupResource()
		gr.Resource, gr.Group = name, group
		if got := hasStatus(gr); got != want {
			t.Errorf("hasStatus(%s): want %t, got %t", resource, want, got)
		}
	}
}

func TestSetOffersClustersToPlacement(t *testing.T) {
	var changes int
	s := &Set{OnChange: func(string) { changes++ }}
	names := func() string {
		var all []string
		for _, c := range s.Clusters() {
			all = append(all, fmt.Sprint(c.Name, " ", c.Ready))
		}
		return strings.Join(all, ", ")
	}
	fc := func(name string, change func(*corev1alpha1.FederatedCluster)) *corev1alpha1.FederatedCluster {
		c := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		change(c)
		return c
	}
	nothing := func(*corev1alpha1.FederatedCluster) {}
	joinedBefore := func(c *corev1alpha1.FederatedCluster) { c.Status.JoinPerformed = true }
	now := metav1.Now()
	steps := []struct {
		reason  string
		do      func()
		want    string
		changes int
	}{
		{"Clusters are known before they are examined.", func() { s.introduce(fc("b", joinedBefore)); s.introduce(fc("a", joinedBefore)) }, "a false, b false", 2},
		{"A cluster became ready.", func() { s.observe(fc("a", nothing), outlook{ready: true}) }, "a true, b false", 1},
		{"An unchanged cluster is not reported.", func() { s.observe(fc("a", nothing), outlook{ready: true}); s.introduce(fc("a", nothing)) }, "a true, b false", 0},
		{"A user approved deletions on the cluster.", func() {
			s.observe(fc("a", func(c *corev1alpha1.FederatedCluster) {
				c.Annotations = map[string]string{refractv1alpha1.ApproveAnnotation: "abc"}
			}), outlook{ready: true})
		}, "a true, b false", 1},
		{"No objects are placed on a leaving cluster.", func() {
			s.observe(fc("b", func(c *corev1alpha1.FederatedCluster) { c.DeletionTimestamp = &now }), outlook{ready: true})
		}, "a true", 1},
		{"The cluster has left.", func() { s.remove("b") }, "a true", 1},
	}
	for i, step := range steps {
		changes = 0
		step.do()
		if got := names(); got != step.want || changes != step.changes {
			t.Errorf("step %d: %s\nwant %q and %d changes, got %q and %d", i, step.reason, step.want, step.changes, got, changes)
		}
		if s.Leaving("b") != (i == 4) {
			t.Errorf("step %d: Leaving(): got %t", i, s.Leaving("b"))
		}
	}
	if diff := cmp.Diff("abc", s.Approved("a")); diff != "" {
		t.Errorf("Approved(): -want, +got:\n%s", diff)
	}
}

// TestSame: Same compares the clusters of the hub with their state at the last reconciliation, in all properties that
// matter to placement.
func TestSame(t *testing.T) {
	now := metav1.Now()
	fc := func(name string, change func(*metav1.ObjectMeta)) metav1.PartialObjectMetadata {
		o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u-" + types.UID(name), Generation: 1, Labels: map[string]string{"a": "b"}}}
		if change != nil {
			change(&o.ObjectMeta)
		}
		return o
	}
	for name, tc := range map[string]struct {
		reason string
		hub    []metav1.PartialObjectMetadata
		want   bool
	}{
		"Same":    {"The order does not matter.", []metav1.PartialObjectMetadata{fc("b", nil), fc("a", nil)}, true},
		"Left":    {"A cluster has left, and its event has not arrived yet.", []metav1.PartialObjectMetadata{fc("a", nil)}, false},
		"Joined":  {"A cluster has joined, and its event has not arrived yet.", []metav1.PartialObjectMetadata{fc("a", nil), fc("b", nil), fc("c", nil)}, false},
		"Another": {"One cluster has left, and another has joined.", []metav1.PartialObjectMetadata{fc("a", nil), fc("c", nil)}, false},
		"Again": {"A cluster has left and joined again.", []metav1.PartialObjectMetadata{
			fc("a", nil), fc("b", func(o *metav1.ObjectMeta) { o.UID = "u-c" }),
		}, false},
		"Edited": {"The edit may add a taint.", []metav1.PartialObjectMetadata{fc("a", nil), fc("b", func(o *metav1.ObjectMeta) { o.Generation = 2 })}, false},
		"Labelled": {
			"Other policies may select a cluster with changed labels.",
			[]metav1.PartialObjectMetadata{fc("a", nil), fc("b", func(o *metav1.ObjectMeta) { o.Labels = nil })}, false,
		},
		"Leaves": {"No objects are placed on a leaving cluster.", []metav1.PartialObjectMetadata{fc("a", nil), fc("b", func(o *metav1.ObjectMeta) { o.DeletionTimestamp = &now })}, false},
		"Renames": {"The cluster replaces another name.", []metav1.PartialObjectMetadata{fc("a", nil), fc("b", func(o *metav1.ObjectMeta) {
			o.Annotations = map[string]string{refractv1alpha1.ReplacesAnnotation: "a"}
		})}, false},
		"Reported": {"Its status, and other annotations, matter nothing.", []metav1.PartialObjectMetadata{fc("a", nil), fc("b", func(o *metav1.ObjectMeta) {
			o.ResourceVersion, o.Annotations = "8", map[string]string{"a": "b"}
		})}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Set{OnChange: func(string) {}}
			for _, name := range []string{"a", "b"} {
				is := &corev1alpha1.FederatedCluster{ObjectMeta: fc(name, nil).ObjectMeta}
				s.introduce(is)
				s.observe(is, outlook{ready: true})
			}
			if got := s.Same(tc.hub); got != tc.want {
				t.Errorf("%s\nSame(): want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
	s := &Set{OnChange: func(string) {}}
	edited := fc("a", func(o *metav1.ObjectMeta) { o.Generation = 2 })
	s.introduce(&corev1alpha1.FederatedCluster{ObjectMeta: fc("a", nil).ObjectMeta})
	s.introduce(&corev1alpha1.FederatedCluster{ObjectMeta: edited.ObjectMeta})
	if s.Same([]metav1.PartialObjectMetadata{edited}) {
		t.Error("Same(): want false for an edited cluster until it is reconciled")
	}
	s.observe(&corev1alpha1.FederatedCluster{ObjectMeta: edited.ObjectMeta}, outlook{})
	if !s.Same([]metav1.PartialObjectMetadata{edited}) {
		t.Error("Same(): want true afterwards")
	}
}
