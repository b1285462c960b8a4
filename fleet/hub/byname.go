package hub

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ByName returns a client that reads a single object with a list request whose field selector is the object's name. On
// a hub, the account of Refract may list the objects of users, above all Secrets, but not get them. The client returns
// the same errors as for a get.
func ByName(c client.WithWatch) client.WithWatch { return byName{c} }

type byName struct{ client.WithWatch }

// Get reads an object with a list request for its name.
func (c byName) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	kind, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	list, err := c.listOf(obj, kind)
	if err != nil {
		return err
	}
	if err := c.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name}); err != nil {
		return err
	}
	resource := schema.GroupResource{Group: kind.Group, Resource: strings.ToLower(kind.Kind)}
	// A server may ignore the selector, so the list is searched for the object. An incomplete list does not prove that
	// the object is missing.
	found := false
	err = meta.EachListItem(list, func(item runtime.Object) error {
		o, ok := item.(client.Object)
		if !ok || o.GetName() != key.Name {
			return nil
		}
		found = true
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(o).Elem())
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("reading a list of %s: %w", resource, err)
	case found:
		return nil
	case list.GetContinue() != "":
		return fmt.Errorf("listing %s by the name %s: want a whole list, got a part without it", resource, key.Name)
	default:
		return apierrors.NewNotFound(resource, key.Name)
	}
}

// listOf returns an empty list for objects like obj.
func (c byName) listOf(obj client.Object, kind schema.GroupVersionKind) (client.ObjectList, error) {
	kind.Kind += "List"
	if _, ok := obj.(*metav1.PartialObjectMetadata); ok {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	}
	made, err := c.Scheme().New(kind)
	if err != nil {
		return nil, err
	}
	list, ok := made.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%s is no list", kind)
	}
	return list, nil
}
