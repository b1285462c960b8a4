package member

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// records are the copies of one type, with the managers that changed them. Their room in the account of the member is
// reserved, and released when they are forgotten. Records have no lock; the store that owns them has one.
type records struct {
	resource schema.GroupResource
	limits   limits

	items map[string]map[string]*record // By namespace and name.
	count int
	bytes int // Reserved in the account.
	// conflictingManagers are the managers that changed copies which are not corrected yet.
	conflictingManagers map[types.NamespacedName]string
}

func newRecords(resource schema.GroupResource, bounds limits) records {
	return records{
		resource:            resource,
		limits:              bounds,
		items:               map[string]map[string]*record{},
		conflictingManagers: map[types.NamespacedName]string{},
	}
}

// get returns the record of a copy, or nil.
func (r *records) get(name types.NamespacedName) *record { return r.items[name.Namespace][name.Name] }

// each calls f for every record, in no order. F may remove the record that it is called for.
func (r *records) each(f func(types.NamespacedName, *record)) {
	for ns, items := range r.items {
		for name, one := range items {
			f(types.NamespacedName{Namespace: ns, Name: name}, one)
		}
	}
}

func (r *records) key(name types.NamespacedName) Key {
	return Key{GroupResource: r.resource, NamespacedName: name}
}

// put stores an item, in place of the previous record if there is one, and returns the difference. Round is the number
// of the list. It returns an error if there is no room.
func (r *records) put(name types.NamespacedName, item *Copy, before *record, round uint32) (difference, error) {
	after := recordOf(r.key(name), item)
	after.round = round
	if after.ended == 0 && before != nil && before.uid == after.uid {
		after.ended = before.ended // A Job that has ended stays ended, and metadata does not contain its end.
	}
	if item.Readiness == "" {
		if before != nil && before.uid == after.uid && before.generation == after.generation {
			after.readiness, after.message = before.readiness, before.message
			if before.hash == after.hash {
				after.judged = before.judged
			}
		} else {
			after.ready(refractv1alpha1.ReadinessInProgress, notSeenYet, 0)
		}
	}
	if err := r.replace(name, after, before); err != nil {
		return difference{}, err
	}
	return after.differs(before), nil
}

func (r *records) replace(name types.NamespacedName, after, before *record) error {
	items := r.items[name.Namespace]
	more, bytes := 0, after.bytes()
	if before != nil {
		bytes -= before.bytes()
	} else {
		more, bytes = 1, bytes+len(name.Name)
	}
	if items == nil {
		bytes += namespaceBytes + len(name.Namespace)
	}
	if err := r.keep(more, bytes); err != nil {
		return err
	}
	if items == nil {
		items = map[string]*record{}
		r.items[name.Namespace] = items
	}
	items[name.Name] = after
	return nil
}

// setReadiness records the readiness of a copy, and reports whether it has changed. It returns an error if there is no
// room.
func (r *records) setReadiness(of *record, c *Copy) (changed bool, err error) {
	size := of.bytes()
	ends := c.Ended != 0 && c.Ended != of.ended
	if ends {
		of.ended = c.Ended
	}
	if !of.ready(c.Readiness, c.ReadinessMessage, c.Judged) {
		return ends, nil
	}
	return true, r.keep(0, of.bytes()-size)
}

// remove forgets an existing copy.
func (r *records) remove(name types.NamespacedName) {
	items := r.items[name.Namespace]
	bytes := items[name.Name].bytes() + len(name.Name)
	delete(items, name.Name)
	if len(items) == 0 {
		delete(r.items, name.Namespace)
		bytes += namespaceBytes + len(name.Namespace)
	}
	r.clearConflictingManager(name)
	_ = r.keep(-1, -bytes) // Releasing room does not fail.
}

// clear forgets all copies.
func (r *records) clear() {
	_ = r.keep(-r.count, -r.bytes) // Releasing room does not fail.
	clear(r.items)
	clear(r.conflictingManagers)
}

// setConflictingManager records the manager that changed a copy, if there is room.
func (r *records) setConflictingManager(name types.NamespacedName, who string) {
	r.clearConflictingManager(name)
	size := bytesOfManager(who)
	if what, _ := r.limits.account.keep(0, size); what == "" {
		r.bytes += size
		r.conflictingManagers[name] = who
	}
}

// clearConflictingManager forgets the manager that changed a copy.
func (r *records) clearConflictingManager(name types.NamespacedName) {
	if who, is := r.conflictingManagers[name]; is {
		delete(r.conflictingManagers, name)
		_ = r.keep(0, -bytesOfManager(who)) // Releasing room does not fail.
	}
}

func bytesOfManager(who string) int { return 100 + len(who) }

// keep reserves or releases room in the account of the member. It returns an error if there is no room.
func (r *records) keep(copies, bytes int) error {
	if what, most := r.limits.account.keep(copies, bytes); what != "" {
		return r.limits.excess.over(what, most)
	}
	r.count += copies
	r.bytes += bytes
	return nil
}
