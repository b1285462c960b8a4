package simulation

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
)

// Member is the simulated API server of one member.
type Member struct {
	Access

	store     *store
	fault     atomic.Pointer[Fault]
	workloads atomic.Pointer[Workloads]
	counts    [verbs]atomic.Int64
}

// Access is the address and the credentials of a member.
type Access struct {
	// Name is m-0001, m-0002, and so on.
	Name string `json:"name"`
	// Endpoint is its URL.
	Endpoint string `json:"endpoint"`
	// CA is the self-signed certificate of the server, as PEM.
	CA []byte `json:"ca"`
	// Token is the required bearer token.
	Token string `json:"token"`
}

// Fault describes faulty behavior of a member. The zero value is no fault.
type Fault struct {
	// Delay is the additional time of each response. Jitter is the maximum of a further, random time.
	Delay  time.Duration `json:"delay,omitempty"`
	Jitter time.Duration `json:"jitter,omitempty"`
	// Code, if not 0, is the status of every answer: 429, 500, 503, …
	Code int `json:"code,omitempty"`
	// Hang leaves every request without an answer.
	Hang bool `json:"hang,omitempty"`
}

// Workloads is the state of Deployments that the simulated controllers of a member report.
type Workloads string

// States of workloads. With NoWorkloads, a Deployment has no status.
const (
	NoWorkloads      Workloads = ""
	ReadyWorkloads   Workloads = "Ready"
	UnreadyWorkloads Workloads = "Unready" // Their pods do not become ready.
)

// verb is the kind of a request in the counters.
type verb int

const (
	verbProbe verb = iota // /readyz and similar paths.
	verbDiscover
	verbGet
	verbList
	verbWatch
	verbApply
	verbPatch
	verbCreate
	verbDelete
	verbs
)

var verbNames = [verbs]string{"probe", "discover", "get", "list", "watch", "apply", "patch", "create", "delete"}

// maxBody is the maximum size of a request body.
const maxBody = 3 << 20

// ServeHTTP answers like an API server.
func (m *Member) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, formErr := accepted(r.Header.Get("Accept"))
	if err := m.misbehave(r.Context()); err != nil {
		refuse(w, err)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+m.Token {
		refuse(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	switch r.URL.Path {
	case "/readyz", "/livez", "/healthz":
		m.counts[verbProbe].Add(1)
		_, _ = io.WriteString(w, "ok") // A client that has disconnected needs no answer.
		return
	case "/version":
		m.counts[verbProbe].Add(1)
		answer(w, http.StatusOK, form{}, version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.0+simulation"})
		return
	case "/api", "/apis":
		m.counts[verbDiscover].Add(1)
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		encode(w, discovered(r.URL.Path == "/api"))
		return
	}
	at, ok := locate(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	if formErr != nil {
		refuse(w, formErr)
		return
	}
	if err := m.serve(w, r, at, f); err != nil {
		refuse(w, err)
	}
}

// misbehave applies the fault of the member, and returns the error for the client, if any.
func (m *Member) misbehave(ctx context.Context) error {
	f := m.fault.Load()
	if f == nil {
		return nil
	}
	if f.Hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if wait := f.Delay + rand.N(f.Jitter+1); wait > 0 { //nolint:gosec // No secret depends on it.
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	switch f.Code {
	case 0:
		return nil
	case http.StatusTooManyRequests:
		return apierrors.NewTooManyRequests("simulated", 1)
	default:
		return apierrors.NewGenericServerResponse(f.Code, "", schema.GroupResource{}, "", "simulated", 0, true)
	}
}

// locate parses a path: /api/VERSION/… or /apis/GROUP/VERSION/…, then [namespaces/NAMESPACE/]RESOURCE[/NAME].
func locate(path string) (place, bool) {
	at := strings.Split(strings.Trim(path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(at) > 2 && at[0] == "api":
		gv, at = schema.GroupVersion{Version: at[1]}, at[2:]
	case len(at) > 3 && at[0] == "apis":
		gv, at = schema.GroupVersion{Group: at[1], Version: at[2]}, at[3:]
	default:
		return place{}, false
	}
	var p place
	if len(at) > 2 && at[0] == "namespaces" {
		p.namespace, at = at[1], at[2:]
	}
	if len(at) > 2 {
		return place{}, false
	}
	p.resource = byName[gv.WithResource(at[0])]
	if len(at) == 2 {
		p.name = at[1]
	}
	if p.resource == nil || p.namespace != "" && !p.namespaced || p.name != "" && p.namespaced != (p.namespace != "") {
		return place{}, false
	}
	return p, true
}

func (m *Member) serve(w http.ResponseWriter, r *http.Request, at place, f form) error {
	asked := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && at.name == "" && (asked.Get("watch") == "true" || asked.Get("watch") == "1"):
		m.counts[verbWatch].Add(1)
		return m.watch(w, r, at, f)
	case r.Method == http.MethodGet && at.name == "":
		m.counts[verbList].Add(1)
		return m.list(w, asked, at, f)
	case r.Method == http.MethodGet:
		m.counts[verbGet].Add(1)
		o, err := m.store.get(at)
		return m.shown(w, http.StatusOK, f, o, err)
	case r.Method == http.MethodDelete && at.name != "":
		m.counts[verbDelete].Add(1)
		return m.delete(w, r, at, f)
	case r.Method == http.MethodPatch && at.name != "", r.Method == http.MethodPost && at.name == "":
		return m.write(w, r, at, f)
	default:
		return apierrors.NewMethodNotSupported(at.GroupResource(), strings.ToLower(r.Method))
	}
}

// shown answers with an object.
func (m *Member) shown(w http.ResponseWriter, code int, f form, o *object, err error) error {
	if err != nil {
		return err
	}
	what, err := m.show(o, f)
	if err != nil {
		return err
	}
	answer(w, code, f, what)
	return nil
}

// write handles applies, merge patches and creations.
func (m *Member) write(w http.ResponseWriter, r *http.Request, at place, f form) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	asked := r.URL.Query()
	what := written{body: body, by: manager{name: asked.Get("fieldManager"), operation: metav1.ManagedFieldsOperationUpdate}}
	if what.by.name == "" {
		what.by.name, _, _ = strings.Cut(r.UserAgent(), "/")
	}
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch {
	case r.Method == http.MethodPost:
		m.counts[verbCreate].Add(1)
		what.create = true
		var head struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(body, &head); err != nil || head.Metadata.Name == "" {
			return apierrors.NewBadRequest("the body is not a JSON object with a name")
		}
		at.name = head.Metadata.Name
	case media == string(types.ApplyPatchType):
		m.counts[verbApply].Add(1)
		what.by.operation = metav1.ManagedFieldsOperationApply
		if asked.Get("force") != "true" || asked.Get("fieldManager") == "" {
			return apierrors.NewBadRequest("an apply is only simulated with fieldManager and force=true")
		}
	case media == string(types.MergePatchType):
		m.counts[verbPatch].Add(1)
		what.merge = true
	default:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: fmt.Sprintf("the body of the request was in an unknown format %q", media),
		}}
	}
	if runs := m.workloads.Load(); runs != nil {
		what.workloads = *runs
	}
	o, made, err := m.store.write(at, what)
	code := http.StatusOK
	if made {
		code = http.StatusCreated
	}
	return m.shown(w, code, f, o, err)
}

func (m *Member) delete(w http.ResponseWriter, r *http.Request, at place, f form) error {
	var o metav1.DeleteOptions
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&o); err != nil && !errors.Is(err, io.EOF) {
		return apierrors.NewBadRequest(err.Error())
	}
	var only types.UID
	if o.Preconditions != nil && o.Preconditions.UID != nil {
		only = *o.Preconditions.UID
	}
	was, err := m.store.delete(at, only)
	if err != nil {
		return err
	}
	if len(was.finalizers) > 0 {
		return m.shown(w, http.StatusOK, f, was, nil)
	}
	answer(w, http.StatusOK, form{}, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: at.name, Group: at.Group, Kind: at.Resource, UID: m.store.uid(was)},
	})
	return nil
}

// queryOf returns which objects a list or watch selects.
func queryOf(asked url.Values, at place) (query, error) {
	q := query{resource: at.resource, namespace: at.namespace}
	var err error
	if q.labels, err = labels.Parse(asked.Get("labelSelector")); err != nil {
		return q, apierrors.NewBadRequest(err.Error())
	}
	chosen, err := fields.ParseSelector(asked.Get("fieldSelector"))
	if err != nil {
		return q, apierrors.NewBadRequest(err.Error())
	}
	q.name, _ = chosen.RequiresExactMatch("metadata.name")
	return q, nil
}

// list answers with all objects or, with a limit, with a page.
func (m *Member) list(w http.ResponseWriter, asked url.Values, at place, f form) error {
	q, err := queryOf(asked, at)
	if err != nil {
		return err
	}
	found, newest := m.store.list(q)
	if after := asked.Get("continue"); after != "" {
		last, err := base64.RawURLEncoding.DecodeString(after)
		if err != nil {
			return apierrors.NewBadRequest("continue key is not valid")
		}
		for len(found) > 0 && found[0].namespace+"/"+found[0].name <= string(last) {
			found = found[1:]
		}
	}
	meta := metav1.ListMeta{ResourceVersion: fmt.Sprint(newest)}
	if limit, _ := strconv.Atoi(asked.Get("limit")); limit > 0 && limit < len(found) {
		rest := int64(len(found) - limit)
		found = found[:limit]
		last := found[limit-1]
		meta.Continue = base64.RawURLEncoding.EncodeToString([]byte(last.namespace + "/" + last.name))
		if q.labels.Empty() && q.name == "" {
			meta.RemainingItemCount = &rest
		}
	}
	list, err := m.showList(at.resource, found, f, meta)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, f, list)
	return nil
}

// watch answers with the changes as they occur.
func (m *Member) watch(w http.ResponseWriter, r *http.Request, at place, f form) error {
	asked := r.URL.Query()
	q, err := queryOf(asked, at)
	if err != nil {
		return err
	}
	ctx := r.Context()
	if seconds, _ := strconv.Atoi(asked.Get("timeoutSeconds")); seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		defer cancel()
	}
	seen, _ := strconv.ParseUint(asked.Get("resourceVersion"), 10, 64) // A missing version is 0.
	initial := asked.Get("sendInitialEvents") == "true"
	var first []change
	if seen == 0 || initial {
		var found []*object
		found, seen = m.store.list(q)
		for _, o := range found {
			first = append(first, change{kind: watch.Added, object: o})
		}
		if initial && asked.Get("allowWatchBookmarks") == "true" {
			first = append(first, change{kind: watch.Bookmark, version: seen})
		}
	}
	// No event has been sent yet, so an error because of an old version can be the response itself.
	changes, newest, more, err := m.store.since(q, seen)
	if err != nil {
		return err
	}
	s := m.stream(w, at.resource, f)
	for changes = append(first, changes...); ; {
		for _, c := range changes {
			if s.send(c) != nil {
				return nil // The client has disconnected.
			}
		}
		s.flush()
		select {
		case <-ctx.Done():
			return nil
		case <-more:
		}
		if changes, newest, more, err = m.store.since(q, newest); err != nil {
			s.end(err)
			return nil
		}
	}
}

// stream is the open response of a watch.
type stream struct {
	member   *Member
	resource *resource
	form     form
	writer   http.ResponseWriter
	encoder  *restwatch.Encoder
}

func (m *Member) stream(w http.ResponseWriter, r *resource, f form) *stream {
	media := f.info.MediaType
	if media != runtime.ContentTypeJSON {
		media += ";stream=watch"
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(http.StatusOK)
	frames := f.info.StreamSerializer.NewFrameWriter(w)
	return &stream{
		member: m, resource: r, form: f, writer: w,
		encoder: restwatch.NewEncoder(streaming.NewEncoder(frames, f.info.StreamSerializer.Serializer), f.info.Serializer),
	}
}

func (s *stream) flush() {
	if f, ok := s.writer.(http.Flusher); ok {
		f.Flush()
	}
}

func (s *stream) send(c change) error {
	if c.kind == watch.Bookmark {
		return s.encoder.Encode(&watch.Event{Type: c.kind, Object: s.mark(c.version)})
	}
	o := *c.object
	if c.kind == watch.Deleted {
		o.version = c.version
	}
	what, err := s.member.show(&o, s.form)
	if err != nil {
		return err
	}
	return s.encoder.Encode(&watch.Event{Type: c.kind, Object: what})
}

// mark returns the object of the bookmark that ends the initial events.
func (s *stream) mark(newest uint64) runtime.Object {
	meta := metav1.ObjectMeta{
		ResourceVersion: fmt.Sprint(newest),
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}
	o := &metav1.PartialObjectMetadata{TypeMeta: metaType("PartialObjectMetadata"), ObjectMeta: meta}
	if !s.form.metadata {
		o.TypeMeta = metav1.TypeMeta{Kind: s.resource.kind, APIVersion: s.resource.GroupVersion().String()}
	}
	return o
}

// end sends the reason for the end of the watch.
func (s *stream) end(err error) {
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		status := known.Status()
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		_ = s.encoder.Encode(&watch.Event{Type: watch.Error, Object: &status}) // A client that has disconnected needs no reason.
	}
}
