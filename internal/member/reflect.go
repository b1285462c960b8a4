package member

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// reflected is a store as a reflector fills it, which has others told of what is different.
type reflected struct {
	life   context.Context //nolint:containedctx // Of the reflector, which does not pass one to its store.
	store  *store
	notify func(Key, difference)
	listed listed
	turn   turn
}

var _ cache.TransformingStore = (*reflected)(nil)

// event reads what a list or watch says of a copy; nil for what is no object.
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

// Delete is called by the reflector, also for a copy that lost its label.
func (r *reflected) Delete(obj any) error {
	if e := r.event(obj); e != nil && r.store.onDeleted(e) {
		r.tell(e, difference{content: true})
	}
	return nil
}

func (r *reflected) tell(e *copyEvent, d difference) { r.notify(r.store.records.key(e.name), d) }

// Replace is called by the reflector at the end of a list, with what was not shown to
// [reflected.list] or [reflected.Transformer] before.
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

// Transformer takes what a watch shows that begins with a list, while that is under way.
// Nothing of it is kept elsewhere.
func (r *reflected) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		r.store.onStreamed(r.life, r.event(obj))
		return shown{}, nil
	}
}

// shown stands for a copy that was shown.
type shown struct{}

// awaitWatch waits until a watch may be asked for. Lists is whether it begins with a list.
func (r *reflected) awaitWatch(ctx context.Context, next *resumption, lists bool) error {
	if err := next.pace(ctx, lists); err != nil || !lists {
		return err
	}
	return r.awaitList()
}

// awaitList waits until a list may be asked for. Its turn is to be given back if it fails; if it does not, [reflected.Replace] does.
func (r *reflected) awaitList() error {
	if err := r.turn.take(r.life); err != nil {
		return err
	}
	return r.store.beginList(r.life)
}

// list lists the copies. They are not in what it returns for the reflector: they are known
// by then.
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
