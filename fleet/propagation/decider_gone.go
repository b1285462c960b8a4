package propagation

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/fleet/policy/placement"
)

// lookAgain completes the knowledge about an object: if the object is missing from the caches, lookAgain asks the hub.
// found is the reason why the object does not ask for propagation. again is the delay before the next question if the
// hub cannot answer yet.
func (d *decider) lookAgain(ctx context.Context, key Key, src *source, seen bool) (found cause, again time.Duration, err error) {
	if src.object == nil {
		var live *unstructured.Unstructured
		if live, found, err = d.sources.look(ctx, key, *src); err != nil {
			return "", 0, err
		}
		if found == "" {
			src.object = live
		} else {
			src.withdrawn = live
		}
		if src.object == nil && found == "" {
			if !seen {
				// The object may stay unknown, for example if its type is not served any more.
				d.state.none(key)
			}
			return "", time.Second, nil
		}
	}
	if src.object != nil {
		found = asksNothing(src.object)
	}
	return found, 0, nil
}

// whyGone returns why the copies of an object that is missing or does not ask for propagation are to be deleted. found
// is the answer of the hub, and seen is whether this process has decided the key before. A cause holds until the object
// exists again, even if its namespace is recreated or its Propagation deleted.
func (d *decider) whyGone(
	ctx context.Context, key Key, obj *unstructured.Unstructured, found cause, told *deletion, was *previous, seen bool,
) (cause, error) {
	switch {
	case was.cause == causeDeleted && found == causeWithdrawn:
		// The object exists: a former version of Refract reported this cause for followers of deleted objects.
	case found == causeDeleted && (was.cause == causeWithdrawn || was.cause == causeLeader):
		// The object existed when this cause was recorded, and is being deleted now.
	case was.cause == causeDeleted, was.cause != "" && told == nil:
		return was.cause, nil
	}
	_, recorded := d.records.get(key)
	e := evidence{found: found, watched: told != nil, known: recorded || told != nil || was.uid != ""}
	e.owned = told != nil && told.owned || obj != nil && len(obj.GetOwnerReferences()) > 0
	var err error
	if found == causeWithdrawn {
		e.followed = d.state.deleted(was.follows)
	}
	if found == causeDeleted || found == causeMissing {
		if e.around, err = d.sources.around(ctx, key, told); err != nil {
			return "", err
		}
	}
	if found == causeMissing && told == nil && seen || placement.IsVolume(key.GroupResource) && found != causeWithdrawn && e.known {
		// The hub may have been restored from a backup while this process ran, so the process knows more than the hub.
		if e.known, err = d.records.exists(ctx, key); err != nil {
			return "", err
		}
	}
	return e.cause(), nil
}

// neverWas reports whether neither the hub nor the members know the key of a missing object. In that case, it forgets
// the key.
func (d *decider) neverWas(key Key) bool {
	if _, reported := d.records.get(key); reported || d.dispatcher.anywhere(key) {
		return false
	}
	d.state.none(key)
	d.unfollow(key)
	d.decideAgain(d.state.dismiss(key))
	return true
}
