package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// requestTimeout bounds every request to a member but watches. It is more than
// the 10 s that API servers give a webhook by default, so that a webhook that
// hangs is told from a member that does.
const requestTimeout = 15 * time.Second

// errLeft is the answer to requests to a member that is not this process's any more.
var errLeft = errors.New("the cluster has left, or is reached in another way by now")

// action is what a request does, in the words of RBAC.
type action struct {
	verb      string
	resource  schema.GroupResource
	namespace string
}

// read makes a request that changes nothing.
func (m *Member) read(ctx context.Context, a action, do func(context.Context) error) error {
	return m.request(ctx, func(ctx context.Context) error {
		err := do(ctx)
		m.rights.note(a, err)
		return err
	})
}

// write makes a request that changes something: the breaker looks on.
func (m *Member) write(ctx context.Context, a action, do func(context.Context) error) error {
	return m.request(ctx, func(ctx context.Context) error {
		began := time.Now()
		err := do(ctx)
		m.rights.note(a, err)
		m.breaker.note(err)
		m.meter.wrote(a.verb, err, time.Since(began))
		return err
	})
}

// request makes a request unless the member is closed, which waits for it. What do returns
// as an error is cut to a bound.
func (m *Member) request(ctx context.Context, do func(context.Context) error) error {
	m.requests.RLock()
	defer m.requests.RUnlock()
	if m.ctx.Err() != nil {
		return errLeft
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ctx, end := m.hooks.account.begin(ctx)
	defer end()
	return brief(do(ctx))
}

// Pause returns how long to wait before the next write; zero to go on. After some
// writes in a row that failed for reasons which concern the whole member, it makes
// all writers wait, longer and longer, and lets one of them try.
func (m *Member) Pause() time.Duration { return m.breaker.pause() }

// Apply writes the body by server-side apply and forces the fields in it. It is
// one request. The answer is remembered for [Member.Copy].
func (m *Member) Apply(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, body []byte) error {
	got, err := m.patch(ctx, gvr, name, types.ApplyPatchType, body, FieldManager, true)
	if err != nil {
		return err
	}
	m.resume(gvr) //nolint:contextcheck // The watch lives as long as the member.
	m.storeCopy(Key{gvr.GroupResource(), name}, m.hooks.copyOf(got, gvr.GroupResource()), true)
	return nil
}

// ApplyAs writes the body by server-side apply under the name of another field
// manager. Without force a field that somebody else manages makes a conflict.
func (m *Member) ApplyAs(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, body []byte, manager string, force bool) error {
	_, err := m.patch(ctx, gvr, name, types.ApplyPatchType, body, manager, force)
	return err
}

// Patch changes an object by a JSON merge patch.
func (m *Member) Patch(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, mergePatch []byte) error {
	_, err := m.patch(ctx, gvr, name, types.MergePatchType, mergePatch, FieldManager, false)
	return err
}

func (m *Member) patch(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, kind types.PatchType,
	body []byte, manager string, force bool,
) (got *metav1.PartialObjectMetadata, err error) {
	options := metav1.PatchOptions{FieldManager: manager}
	if kind == types.ApplyPatchType {
		options.Force = &force
	}
	err = m.write(ctx, action{"patch", gvr.GroupResource(), name.Namespace}, func(ctx context.Context) error {
		got, err = m.client.Resource(gvr).Namespace(name.Namespace).Patch(ctx, name.Name, kind, body, options)
		return m.unserved(ctx, gvr, err)
	})
	return got, err
}

// Read reads the metadata of an object, whether it is a copy or not.
func (m *Member) Read(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName) (Copy, error) {
	var got *metav1.PartialObjectMetadata
	err := m.read(ctx, action{"get", gvr.GroupResource(), name.Namespace}, func(ctx context.Context) (err error) {
		got, err = m.client.Resource(gvr).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return Copy{}, err
	}
	return m.hooks.copyOf(got, gvr.GroupResource()), nil
}

// ReadObject reads a whole object, whether it is a copy or not.
func (m *Member) ReadObject(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName) (*unstructured.Unstructured, error) {
	var got *unstructured.Unstructured
	err := m.read(ctx, action{"get", gvr.GroupResource(), name.Namespace}, func(ctx context.Context) (err error) {
		got, err = m.objects.Resource(gvr).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		return err
	})
	return got, err
}

// Delete begins the deletion of the copy with this UID. Found is false, and there
// is no error, if the copy is not there, or another object in its place.
func (m *Member) Delete(ctx context.Context, key Key, uid types.UID) (found bool, err error) {
	t := m.typed(key.GroupResource)
	if t == nil {
		return false, nil
	}
	return m.delete(ctx, t.gvr, key.NamespacedName, metav1.Preconditions{UID: &uid})
}

// DeleteNamespace begins the deletion of a namespace if it is still as it was at
// this version. Found is false, and there is no error, if it is not.
func (m *Member) DeleteNamespace(ctx context.Context, name string, uid types.UID, resourceVersion string) (found bool, err error) {
	return m.delete(ctx, namespaces, types.NamespacedName{Name: name}, metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion})
}

func (m *Member) delete(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, only metav1.Preconditions) (found bool, err error) {
	background := metav1.DeletePropagationBackground
	err = m.write(ctx, action{"delete", gvr.GroupResource(), name.Namespace}, func(ctx context.Context) error {
		err := m.client.Resource(gvr).Namespace(name.Namespace).Delete(ctx, name.Name,
			metav1.DeleteOptions{Preconditions: &only, PropagationPolicy: &background})
		return m.unserved(ctx, gvr, err)
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// CreateNamespace creates a namespace that copies need, with the labels; hub marks it
// as made for them. One that is there already is left as it is.
func (m *Member) CreateNamespace(ctx context.Context, name, hub string, labels map[string]string) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "Namespace",
		"metadata": map[string]any{
			"name":        name,
			"labels":      labels,
			"annotations": map[string]string{refractv1alpha1.NamespaceAnnotation: hub},
		},
	})
	if err != nil {
		return err
	}
	err = m.write(ctx, action{"create", namespaces.GroupResource(), ""}, func(ctx context.Context) error {
		return m.rest.Post().AbsPath("/api/v1/namespaces").Param("fieldManager", FieldManager).
			SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// clusterIdentity is which cluster answers, and how far its data has got.
type clusterIdentity struct {
	uid types.UID // That of its namespace kube-system.
	// revision grows with each write; 0 if it is not known. It is of the storage that
	// namespaces are in, which need not be that of all types.
	revision uint64
}

// readIdentity reads who answers at the address of the member. A list that asks for no
// resourceVersion says what is stored, and not what an API server remembers.
func (m *Member) readIdentity(ctx context.Context) (clusterIdentity, error) {
	var list *metav1.PartialObjectMetadataList
	err := m.read(ctx, action{"list", namespaces.GroupResource(), ""}, func(ctx context.Context) (err error) {
		list, err = m.client.Resource(namespaces).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + metav1.NamespaceSystem})
		return err
	})
	if err != nil {
		return clusterIdentity{}, err
	}
	for i := range list.Items {
		switch ns := &list.Items[i]; {
		case ns.Name != metav1.NamespaceSystem:
		case len(ns.UID) > mostMark:
			return clusterIdentity{}, m.hooks.excess("bytes of a UID", mostMark)
		default:
			return clusterIdentity{ns.UID, number(list.ResourceVersion)}, nil
		}
	}
	return clusterIdentity{}, apierrors.NewNotFound(namespaces.GroupResource(), metav1.NamespaceSystem)
}

// replaced returns why what is known of the member does not hold any more; "" if it does.
// Watches do not notice: they go on from a version that the cluster has not reached yet,
// and hear nothing until it has. Away says that it may have happened since the last time
// that somebody asked.
func (m *Member) replaced(ctx context.Context, away bool) (why string, err error) {
	was := m.lastIdentity()
	if was.uid == "" {
		return "", nil
	}
	newest := was.revision
	if away {
		newest = max(newest, m.newest())
	}
	now, err := m.readIdentity(ctx) // Afterwards: watches go on.
	if err != nil {
		return "", err
	}
	switch {
	case was.uid != now.uid:
		return "another cluster, or this one without its data, answers in its place; it is taken up anew", nil
	case now.revision != 0 && now.revision < newest:
		return "its data is older than it was, as from a backup; it is taken up anew", nil
	}
	m.recognize(now)
	return "", nil
}

// newest is the newest version that a list or watch of any type told of. If a type is
// stored elsewhere than the others, its versions have nothing to do with theirs: then
// the member is taken up anew without need, which does no harm if it was away.
func (m *Member) newest() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var newest uint64
	for _, t := range m.types {
		newest = max(newest, t.seen())
	}
	return newest
}

// Identify reads which cluster this is, whatever its name.
func (m *Member) Identify(ctx context.Context) error {
	now, err := m.readIdentity(ctx)
	if err != nil {
		return fmt.Errorf("identifying the cluster: %w", err)
	}
	m.recognize(now)
	return nil
}

func (m *Member) recognize(now clusterIdentity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answering = now
}

func (m *Member) lastIdentity() clusterIdentity {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answering
}
