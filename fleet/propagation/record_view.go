package propagation

import "sync/atomic"

// recordView is the store into which a reflector writes the Propagations, or the ClusterPropagations.
type recordView struct {
	records *records
	cluster bool // Whether it holds the ClusterPropagations.
	synced  atomic.Bool
}

func (v *recordView) hasSynced() bool { return v.synced.Load() }

// Add is called by the reflector.
func (v *recordView) Add(obj any) error {
	rec, ok := recordOf(obj)
	if !ok {
		return nil
	}
	if changed, steers := v.records.update(rec, told); changed {
		v.records.changed(rec.key(), steers)
	}
	return nil
}

// Update is called by the reflector.
func (v *recordView) Update(obj any) error { return v.Add(obj) }

// Delete is called by the reflector.
func (v *recordView) Delete(obj any) error {
	if rec, ok := recordOf(obj); ok && v.records.drop(rec) {
		v.records.deleted(rec.key())
	}
	return nil
}

// Replace is called by the reflector with the result of a list.
func (v *recordView) Replace(list []any, _ string) error {
	how := firstListed
	if v.synced.Load() {
		how = listed
	}
	there := make(map[Key]bool, len(list))
	for _, obj := range list {
		rec, ok := recordOf(obj)
		if !ok {
			continue
		}
		key := rec.key()
		there[key] = true
		switch changed, steers := v.records.update(rec, how); {
		case how == firstListed:
			v.records.found(key)
		case changed:
			v.records.changed(key, steers)
		}
	}
	for _, key := range v.records.retain(there, v.cluster) {
		v.records.deleted(key)
	}
	v.synced.Store(true)
	return nil
}

// Resync is called by the reflector, and does nothing.
func (v *recordView) Resync() error { return nil }
