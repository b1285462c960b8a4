package member

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// reflected is a store that a reflector fills. It reports the differences.
type reflected struct {
	life   context.Context //nolint:containedctx // The context of the reflector, which passes none to its store.
	store  *store
	notify func(Key, difference)
	listed listed
	turn   turn
}

var _ cache.TransformingStore = (*reflected)(nil)

// event reads a copy from a list or watch; nil for anything else.
func (r *reflected) event(obj any) *copyEvent {
	return r.store.decode.copyEventOf(obj, r.store.gvr.GroupResource())
}

// Add is called by the reflector.
func (r *reflected) Add(obj any) error {
	if e := r.event(obj); e != nil {
		r.tell(e, r.store.onEvent(e))
	}
	return nil
}

// Update is called by the reflector.
func (r *reflected) Update(obj any) error { return r.Add(obj) }

// Delete is called by the reflector, also for a copy that has lost its label.
func (r *reflected) Delete(obj any) error {
	if e := r.event(obj); e != nil && r.store.onDeleted(e) {
		r.tell(e, difference{content: true})
	}
	return nil
}

func (r *reflected) tell(e *copyEvent, d difference) { r.notify(r.store.records.key(e.name), d) }

// Replace is called by the reflector at the end of a list, with the items that [reflected.list] and
// [reflected.Transformer] have not stored.
func (r *reflected) Replace(list []any, version string) error {
	defer r.turn.give()
	var last []*copyEvent
	for _, obj := range list {
		if e := r.event(obj); e != nil {
			last = append(last, e)
		}
	}
	told, err := r.store.endList(r.life, last, number(version))
	if err != nil {
		return err
	}
	r.listed(r.store.gvr.GroupResource(), true)
	for name, d := range told {
		r.notify(r.store.records.key(name), d)
	}
	return nil
}

// Resync is called by the reflector; there is nothing to do.
func (r *reflected) Resync() error { return nil }

// Transformer stores the listed items of a watch that begins with a list, so that the reflector need not keep them
// until the end of the list.
func (r *reflected) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		r.store.onStreamed(r.life, r.event(obj))
		return shown{}, nil
	}
}

// shown stands for an item that is stored.
type shown struct{}

// awaitWatch waits until a watch may be requested. Lists is whether the watch begins with a list.
func (r *reflected) awaitWatch(ctx context.Context, next *resumption, lists bool) error {
	if err := next.pace(ctx, lists); err != nil || !lists {
		return err
	}
	return r.awaitList()
}

// awaitList waits until a list may be requested. If the list fails, the caller must release the turn; otherwise
// [reflected.Replace] does.
func (r *reflected) awaitList() error {
	if err := r.turn.take(r.life); err != nil {
		return err
	}
	return r.store.beginList(r.life)
}

// list lists the copies and stores them. The returned list, which is for the reflector, has no items.
func (r *reflected) list(ctx context.Context, next page) (_ *metav1.PartialObjectMetadataList, err error) {
	defer r.turn.giveOn(&err)
	if err := r.awaitList(); err != nil {
		return nil, err
	}
	of := r.store.gvr.GroupResource()
	o := metav1.ListOptions{LabelSelector: managed, Limit: pageSize}
	version, err := r.store.records.limits.pages(ctx, of, o, next, func(page runtime.Object) error {
		list, err := meta.ListAccessor(page)
		if err != nil {
			return fmt.Errorf("listing %s: %w", of, err)
		}
		var shown []*copyEvent
		if err := meta.EachListItem(page, func(obj runtime.Object) error {
			if e := r.event(obj); e != nil {
				shown = append(shown, e)
			}
			return nil
		}); err != nil {
			return fmt.Errorf("listing %s: %w", of, err)
		}
		return r.store.onPage(r.life, shown, number(list.GetResourceVersion()))
	})
	if err != nil {
		return nil, err
	}
	return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: version}}, nil
}
