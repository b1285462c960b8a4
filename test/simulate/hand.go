package simulate

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/test/apiserver"
)

// atOnce answers the requests of a user's command immediately.
type atOnce struct {
	target *Target
	user   string
}

var _ http.RoundTripper = atOnce{}

// RoundTrip serves a request.
func (a atOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, fmt.Errorf("reading a request: %w", err)
		}
	}
	if a.target.Down {
		return nil, errRefused
	}
	r = r.Clone(r.Context())
	r.Header.Set("X-Remote-User", a.user)
	got := a.target.Server.Serve(r, body) //nolint:contextcheck // A server in memory waits for nothing.
	return &http.Response{
		Status: fmt.Sprintf("%d %s", got.Code, http.StatusText(got.Code)), StatusCode: got.Code, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: got.Header, Body: io.NopCloser(bytes.NewReader(got.Body)), ContentLength: int64(len(got.Body)), Request: r,
	}, nil
}

// hand is a client of an API server, for a user or a simulated controller. Its requests are answered immediately.
type hand struct {
	target *Target
	client apiserver.Client
}

func (w *World) hand(t *Target, user string) hand { return hand{t, t.Server.As(user)} }

// must panics on an error, for operations that cannot fail.
func (hand) must(err error) {
	if err != nil {
		panic(err)
	}
}

// get returns a copy of an object, or nil.
func (h hand) get(k kind, namespace, name string) *unstructured.Unstructured {
	o, err := h.client.Get(k.GroupVersionResource, namespace, name)
	if err != nil {
		return nil
	}
	return o
}

// all returns the objects of a kind, sorted by namespace and name; only those of one namespace if it is not empty. The
// objects are shared, so the caller must not change them.
func (h hand) all(k kind, namespace string) (objects []*unstructured.Unstructured) {
	for _, o := range h.target.Server.All(k.GroupVersionResource) {
		if namespace == "" || o.GetNamespace() == namespace {
			objects = append(objects, o)
		}
	}
	return objects
}

func (h hand) create(o *unstructured.Unstructured) error {
	if h.target.Down {
		return errRefused
	}
	_, err := h.client.Create(o)
	return err
}

// edit changes an object like kubectl edit.
func (h hand) edit(k kind, namespace, name string, change func(*unstructured.Unstructured)) error {
	return h.write(k, namespace, name, "", change)
}

// changed edits an object, and returns the changed fields; empty if the edit failed.
func (h hand) changed(k kind, namespace, name string, change func(*unstructured.Unstructured) bool) string {
	var was, is *unstructured.Unstructured
	done := false
	if h.edit(k, namespace, name, func(o *unstructured.Unstructured) { was, is = o.DeepCopy(), o; done = change(o) }) != nil || !done {
		return ""
	}
	return cmp.Or(difference(was, is), "all fields stay as they are")
}

// editStatus changes the status of an object.
func (h hand) editStatus(k kind, namespace, name string, change func(*unstructured.Unstructured)) error {
	return h.write(k, namespace, name, "status", change)
}

func (h hand) write(k kind, namespace, name, subresource string, change func(*unstructured.Unstructured)) error {
	if h.target.Down {
		return errRefused
	}
	o, err := h.client.Get(k.GroupVersionResource, namespace, name)
	if err != nil {
		return err
	}
	change(o)
	if subresource != "" {
		_, err = h.client.UpdateStatus(o)
	} else {
		_, err = h.client.Update(o)
	}
	return err
}

// patch applies a merge patch.
func (h hand) patch(k kind, namespace, name, subresource string, fields map[string]any) error {
	if h.target.Down {
		return errRefused
	}
	_, err := h.client.Patch(k.GroupVersionResource, namespace, name, types.MergePatchType, encoded(fields), subresource)
	return err
}

func (h hand) delete(k kind, namespace, name string, o metav1.DeleteOptions) error {
	if h.target.Down {
		return errRefused
	}
	return h.client.Delete(k.GroupVersionResource, namespace, name, o)
}

// named returns the name of an object for stories.
func named(k kind, namespace, name string) string {
	if !k.namespaced {
		return k.name + " " + name
	}
	return k.name + " " + namespace + "/" + name
}

func list(texts []string) string { return strings.Join(texts, ", ") }
