package apiserver

import (
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
)

// Client writes and reads as one user, without HTTP. It returns copies. Its errors are those of an API server.
type Client struct {
	s             *Server
	user, manager string
}

// As returns the client of a user. Its field manager has the same name.
func (s *Server) As(user string) Client { return Client{s: s, user: user, manager: user} }

// By returns the client with another field manager.
func (c Client) By(manager string) Client {
	c.manager = manager
	return c
}

// Peek returns a stored object, or nil. The object is shared, and must not be modified.
func (s *Server) Peek(gvr schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	m := s.types[gvr]
	if m == nil {
		return nil
	}
	e := s.stores[gvr.GroupResource()].objects[keyOf(namespace, name)]
	if e == nil {
		return nil
	}
	return m.object(e)
}

// All returns the stored objects of a type, sorted by namespace and name. They are shared, and must not be modified.
func (s *Server) All(gvr schema.GroupVersionResource) []*unstructured.Unstructured {
	m := s.types[gvr]
	if m == nil {
		return nil
	}
	st := s.stores[gvr.GroupResource()]
	all := make([]*unstructured.Unstructured, 0, len(st.keys))
	for _, key := range st.keys {
		all = append(all, m.object(st.objects[key]))
	}
	return all
}

func (c Client) machine(gvr schema.GroupVersionResource) (*machinery, error) {
	if m := c.s.types[gvr]; m != nil {
		return m, nil
	}
	return nil, apierrors.NewGenericServerResponse(404, "get", gvr.GroupResource(), "", "404 page not found", 0, true)
}

func (c Client) of(gvk schema.GroupVersionKind) (*machinery, error) {
	for _, m := range c.s.order {
		if m.gvk == gvk {
			return m, nil
		}
	}
	return nil, apierrors.NewGenericServerResponse(404, "post", schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, "", "404 page not found", 0, true)
}

func copied(m *machinery, e *entry) *unstructured.Unstructured { return m.object(e).DeepCopy() }

// Get returns an object.
func (c Client) Get(gvr schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	if _, err := c.machine(gvr); err != nil {
		return nil, err
	}
	if u := c.s.Peek(gvr, namespace, name); u != nil {
		return u.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
}

// List returns the objects of a namespace; "" selects all namespaces.
func (c Client) List(gvr schema.GroupVersionResource, namespace string) ([]*unstructured.Unstructured, error) {
	m, err := c.machine(gvr)
	if err != nil {
		return nil, err
	}
	choice, err := m.choose(url.Values{}, namespace)
	if err != nil {
		return nil, err
	}
	l, err := c.s.page(m, choice, url.Values{})
	if err != nil {
		return nil, err
	}
	all := make([]*unstructured.Unstructured, 0, len(l.entries))
	for _, e := range l.entries {
		all = append(all, copied(m, e))
	}
	return all, nil
}

// Create stores a new object.
func (c Client) Create(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return c.send("create", "", o)
}

// Update changes an object.
func (c Client) Update(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return c.send("update", "", o)
}

// UpdateStatus changes the status of an object.
func (c Client) UpdateStatus(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return c.send("update", "status", o)
}

func (c Client) send(verb, subresource string, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	m, err := c.of(o.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(o.Object)
	if err != nil {
		return nil, err
	}
	w := &writing{
		m: m, verb: verb, namespace: o.GetNamespace(), name: o.GetName(), subresource: subresource, user: c.user, manager: c.manager, body: body,
	}
	if w.object, err = m.decodeJSON(body); err != nil {
		return nil, statusOf(err)
	}
	e, _, err := c.s.store(w)
	if err != nil {
		return nil, statusOf(err)
	}
	return copied(m, e), nil
}

// Patch changes an object or a subresource.
func (c Client) Patch(
	gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, body []byte, subresource string,
) (*unstructured.Unstructured, error) {
	m, err := c.machine(gvr)
	if err != nil {
		return nil, err
	}
	w := &writing{
		m: m, verb: "patch", namespace: namespace, name: name, subresource: subresource, user: c.user, manager: c.manager, patch: kind, body: body,
	}
	if kind == types.ApplyYAMLPatchType {
		w.verb = "apply"
	}
	var e *entry
	if subresource == "scale" {
		e, err = c.s.scaled(w, "")
	} else {
		e, _, err = c.s.store(w)
	}
	if err != nil {
		return nil, statusOf(err)
	}
	return copied(m, e), nil
}

// Apply sends a server-side apply.
func (c Client) Apply(o *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	m, err := c.of(o.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(o.Object)
	if err != nil {
		return nil, err
	}
	w := &writing{
		m: m, verb: "apply", namespace: o.GetNamespace(), name: o.GetName(), user: c.user, manager: c.manager,
		patch: types.ApplyYAMLPatchType, force: force, body: body,
	}
	e, _, err := c.s.store(w)
	if err != nil {
		return nil, statusOf(err)
	}
	return copied(m, e), nil
}

// Delete deletes an object, or marks it if finalizers keep it.
func (c Client) Delete(gvr schema.GroupVersionResource, namespace, name string, o metav1.DeleteOptions) error {
	m, err := c.machine(gvr)
	if err != nil {
		return err
	}
	w := &writing{m: m, verb: "delete", namespace: namespace, name: name, user: c.user, manager: c.manager, dryRun: len(o.DryRun) > 0}
	_, _, err = c.s.remove(w, &o)
	return statusOf(err)
}

// statusOf converts the error to an APIStatus error.
func statusOf(err error) error {
	switch err := err.(type) { //nolint:errorlint // They are made here, and not wrapped.
	case nil:
		return nil
	case *apierrors.StatusError:
		return err
	case apierrors.APIStatus:
		return &apierrors.StatusError{ErrStatus: err.Status()}
	}
	return apierrors.NewInternalError(err)
}
