package member

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// page asks for objects of a type, at most as many as the options say.
type page func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)

// sightings are what is kept of the copies in a list.
type sightings struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []*sighting
}

// DeepCopyObject implements [runtime.Object] for the reflector, which hands a list on as it
// is: it returns the same.
func (l *sightings) DeepCopyObject() runtime.Object { return l }

// DeepCopyObject implements [runtime.Object], as that of sightings does.
func (s *sighting) DeepCopyObject() runtime.Object { return s }

// GetObjectKind implements [runtime.Object]: what is kept of a copy does not say its kind.
func (*sighting) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// list lists the copies, page by page, of which it keeps little each: how large an answer
// is does not depend on how many copies there are. It asks for the newest version, as an
// API server that is asked for any may disregard how many objects are wanted.
func (c *copies) list(ctx context.Context, next page) (*sightings, error) {
	out := &sightings{}
	o := metav1.ListOptions{LabelSelector: managed, Limit: pageSize}
	for range mostPages {
		got, err := turn(ctx, next, o)
		if isLimit(err) && o.Limit > 1 {
			o.Limit = max(1, o.Limit/10) // Large objects are no reason to list none.
			continue
		}
		if err != nil {
			return nil, err
		}
		token, err := c.add(out, got)
		switch {
		case err != nil:
			return nil, err
		case token == "":
			return out, nil
		case token == o.Continue:
			return nil, fmt.Errorf("listing %s: the API server says to continue where the page before began, which has no end", c.gvr.GroupResource())
		case len(token) > mostToken:
			return nil, c.excess("bytes of a token to continue with", mostToken)
		}
		o.Continue = token
	}
	return nil, c.excess("pages of a list", mostPages)
}

// turn asks for one page.
func turn(ctx context.Context, next page, o metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return next(ctx, o)
}

// add adds a page to the list, and returns what the next is asked for with; "" if it is the
// last.
func (c *copies) add(to *sightings, page runtime.Object) (token string, err error) {
	list, err := meta.ListAccessor(page)
	if err != nil {
		return "", fmt.Errorf("listing %s: %w", c.gvr.GroupResource(), err)
	}
	err = meta.EachListItem(page, func(obj runtime.Object) error {
		if s := c.condense(obj); s != nil {
			to.Items = append(to.Items, s)
		}
		return nil
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("listing %s: %w", c.gvr.GroupResource(), err)
	case len(to.Items) > mostCopies:
		return "", c.excess("copies of one type", mostCopies)
	}
	to.ResourceVersion = list.GetResourceVersion()
	return list.GetContinue(), nil
}
