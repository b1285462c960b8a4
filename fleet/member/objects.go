package member

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Objects reads and changes any objects of a member, not only copies. Each call makes at least one request, and no
// result is remembered.
type Objects struct {
	api    *connection
	decode decoder
}

// Patch changes an object by a JSON merge patch.
func (o *Objects) Patch(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, mergePatch []byte) error {
	_, err := o.api.patch(ctx, gvr, name, types.MergePatchType, mergePatch, metav1.PatchOptions{FieldManager: FieldManager})
	return err
}

// Read reads the metadata of an object.
func (o *Objects) Read(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName) (Copy, error) {
	got, err := o.api.get(ctx, gvr, name)
	if err != nil {
		return Copy{}, err
	}
	return o.decode.copyOf(got, gvr.GroupResource()), nil
}

// ReadWritten is [Objects.Read] for an object whose last write had no answer. The next write waits for this read or is
// not necessary after it. So if the member does not answer, [Member.Pause] counts a failed write.
func (o *Objects) ReadWritten(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName) (Copy, error) {
	have, err := o.Read(ctx, gvr, name)
	if ConcernsAll(err) || ConcernsType(err) {
		o.api.breaker.note(writeScope{name.Namespace, gvr.GroupResource()}, err)
	}
	return have, err
}

// ReadWhole reads a whole object.
func (o *Objects) ReadWhole(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName) (*unstructured.Unstructured, error) {
	got, err := o.api.getWhole(ctx, gvr, name)
	if err != nil {
		return nil, err
	}
	defer o.decode.account.decoding(got)()
	whole, err := got.whole()
	return whole, masked(gvr.GroupResource(), nil, err)
}

// Any reports whether the member has any object of the type, not only copies, in any served version.
func (o *Objects) Any(ctx context.Context, resource schema.GroupResource) (bool, error) {
	group := &metav1.APIGroup{}
	err := o.api.read(ctx, action{"get", resource, ""}, func(ctx context.Context) error {
		return o.api.rest.Get().AbsPath("/apis", resource.Group).Do(ctx).Into(group)
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if len(group.Versions) > mostOfGroup {
		return false, o.api.limits.excess.over("versions of an API group", mostOfGroup)
	}
	for _, version := range group.Versions {
		list, err := o.api.list(ctx, resource.WithVersion(version.Version), metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			continue
		}
		return err == nil && len(list.Items) > 0, err
	}
	return false, nil
}
