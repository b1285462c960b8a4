package member

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"refract.dev/internal/poll"
)

// secretServer is an API server with Secrets of the namespace sys, and an account that may read some of them. Like a
// real API server, it takes the name for RBAC from the field selector.
type secretServer struct {
	*httptest.Server

	mu       sync.Mutex
	may      map[string]bool
	secrets  map[string]*corev1.Secret
	requests []string
	watches  map[string]chan []byte
}

func newSecretServer(t *testing.T) *secretServer {
	t.Helper()
	s := &secretServer{may: map[string]bool{}, secrets: map[string]*corev1.Secret{}, watches: map[string]chan []byte{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *secretServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	name, _ := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	verb := "list"
	if q.Get("watch") != "" {
		verb = "watch"
	}
	s.mu.Lock()
	s.requests = append(s.requests, verb+" "+r.URL.Path+" "+name)
	may, secret := s.may[name], s.secrets[name]
	s.mu.Unlock()
	switch {
	case !may:
		answer(w, http.StatusForbidden, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, name, nil).Status())
	case verb == "watch" && q.Get("sendInitialEvents") != "": // This server does not stream lists.
		answer(w, http.StatusUnprocessableEntity, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil).Status())
	case verb == "watch":
		s.watch(w, r, name)
	default:
		list := &corev1.SecretList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		if secret != nil {
			list.Items = append(list.Items, *secret)
		}
		answer(w, http.StatusOK, list)
	}
}

func (s *secretServer) watch(w http.ResponseWriter, r *http.Request, name string) {
	events := make(chan []byte)
	s.mu.Lock()
	s.watches[name] = events
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case text := <-events:
			if _, err := w.Write(text); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
}

// put stores a Secret with a token, and sends an event to its watch, if there is one.
func (s *secretServer) put(t *testing.T, name, token string) {
	t.Helper()
	s.mu.Lock()
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: name, ResourceVersion: fmt.Sprint(10 + len(s.requests))},
		Data:       map[string][]byte{"token": []byte(token)},
	}
	s.secrets[name] = secret
	events := s.watches[name]
	s.mu.Unlock()
	if events == nil {
		return
	}
	text, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	events <- fmt.Appendf(nil, `{"type":"ADDED","object":%s}`, text)
}

func (s *secretServer) permit(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.may[name] = true
}

// TestSecretsAreReadByName: each Secret is read by its name alone, and only when it is requested. Changes are reported,
// a new right takes effect, and Secrets that are not read any more are not watched.
func TestSecretsAreReadByName(t *testing.T) {
	server := newSecretServer(t)
	core, err := corev1client.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	secrets := NewSecrets(core.RESTClient(), "sys")
	now := time.Now()
	secrets.now = func() time.Time { return now }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- secrets.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	read := func(name string) string {
		secret, err := secrets.Read(t.Context(), name)
		switch {
		case apierrors.IsForbidden(err):
			return "forbidden"
		case apierrors.IsNotFound(err):
			return "missing"
		case err != nil:
			return err.Error()
		default:
			return string(secret.Data["token"])
		}
	}
	want := func(name, want string) {
		t.Helper()
		if got := read(name); got != want {
			t.Errorf("%s: want %q, got %q", name, want, got)
		}
	}
	told := func(name string) {
		t.Helper()
		if got := (<-secrets.Changes()).Object.GetName(); got != name {
			t.Errorf("want a change of %s, got %s", name, got)
		}
	}
	server.permit("a")
	server.permit("b")
	server.put(t, "a", "1")
	want("a", "1")
	want("b", "missing")
	want("c", "forbidden")
	want("", "missing")

	poll.Until(t, "both are watched", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return server.watches["a"] != nil && server.watches["b"] != nil
	})
	server.put(t, "a", "2")
	told("a")
	want("a", "2")
	server.put(t, "b", "3")
	told("b")
	want("b", "3")

	server.put(t, "c", "4")
	server.permit("c")
	told("c")
	want("c", "4")

	now = now.Add(unaskedAfter + time.Second)
	want("b", "3")
	secrets.forget()
	secrets.mu.Lock()
	if len(secrets.names) != 1 || secrets.names["b"] == nil {
		t.Errorf("want a watch of b alone, got %v", secrets.names)
	}
	secrets.mu.Unlock()
	server.mu.Lock()
	defer server.mu.Unlock()
	for _, r := range server.requests {
		if !strings.HasPrefix(r, "list /api/v1/namespaces/sys/secrets ") && !strings.HasPrefix(r, "watch /api/v1/namespaces/sys/secrets ") || strings.HasSuffix(r, " ") {
			t.Errorf("want requests for one name each, got %q", r)
		}
	}
}

// TestSecretForbidden: if refract join has not created a FederatedCluster, its status has the command that lets Refract
// read its Secret.
func TestSecretForbidden(t *testing.T) {
	f := newFleet(t, "https://127.0.0.1:1")
	f.Secrets = refusing{direct{f.Client}}
	const want = `False SecretUnreadable: reading secret sys/m: secrets "m" is forbidden: <nil>; to permit it: ` +
		"kubectl create role refract-hub-clusters-m -n sys --verb=list,watch,patch --resource=secrets --resource-name=m && " +
		"kubectl create rolebinding refract-hub-clusters-m -n sys --role=refract-hub-clusters-m --serviceaccount=sys:refract"
	if got := messageOf(f.look(), "Ready"); got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}

// refusing fails each read of a Secret with Forbidden.
type refusing struct{ direct }

func (refusing) Read(_ context.Context, name string) (*corev1.Secret, error) {
	return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, name, nil)
}
