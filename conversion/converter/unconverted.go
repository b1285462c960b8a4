package converter

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/internal/output"
)

const (
	// mostUnconverted is the maximum number of objects in a status.
	mostUnconverted = 20
	// forgotten is the time after which an object without further reads is removed from the status.
	forgotten = 24 * time.Hour
	// renewed is the minimum time between two updates of the read time of an object in a status.
	renewed = time.Hour
	// mostLacking is the maximum size of a message, in bytes.
	mostLacking = 512
)

// reporter lists the objects that are not converted completely, in the statuses of their policies. Every replica adds
// the objects that it has converted.
type reporter struct {
	log  logr.Logger
	logs flowcontrol.RateLimiter
	now  func() time.Time

	mu       sync.Mutex
	policies map[types.UID]*unconverted
}

// unconverted has the objects of one policy that are not converted completely.
type unconverted struct {
	name string

	mu sync.Mutex
	// named are the objects in the last known status, with the times of their last reads.
	named map[unconvertedKey]metav1.Time
	// seen are the objects that were read since the last write of the status. An object that was converted completely
	// has the value nil.
	seen map[unconvertedKey]*refractv1alpha1.UnconvertedObject
}

// unconvertedKey identifies an object, and the version to which it is not converted completely.
type unconvertedKey struct{ namespace, name, to string }

func keyOf(o *refractv1alpha1.UnconvertedObject) unconvertedKey {
	return unconvertedKey{o.Namespace, o.Name, o.To}
}

func newReporter(log logr.Logger) *reporter {
	return &reporter{log: log, logs: flowcontrol.NewTokenBucketRateLimiter(1, 10), now: time.Now, policies: map[types.UID]*unconverted{}}
}

// policy returns the objects of a policy. For a new policy it creates an empty list.
func (r *reporter) policy(p *refractv1alpha1.ConversionPolicy) *unconverted {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.policies[p.UID]
	if u == nil {
		u = &unconverted{name: p.Name, seen: map[unconvertedKey]*refractv1alpha1.UnconvertedObject{}}
		r.policies[p.UID] = u
	}
	return u
}

// know replaces the named objects by those in the status of a policy.
func (r *reporter) know(p *refractv1alpha1.ConversionPolicy) {
	named := make(map[unconvertedKey]metav1.Time, len(p.Status.Unconverted))
	for i := range p.Status.Unconverted {
		named[keyOf(&p.Status.Unconverted[i])] = p.Status.Unconverted[i].Read
	}
	u := r.policy(p)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.named = named
}

// of returns the function to call with each answer for objects of a policy.
func (r *reporter) of(p *refractv1alpha1.ConversionPolicy) func(*convert.Answer) {
	u := r.policy(p)
	return func(a *convert.Answer) { u.answered(a, r.now()) }
}

// answered records the objects in an answer that were not converted completely. It also records known objects that were
// converted completely.
func (u *unconverted) answered(a *convert.Answer, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	kept, count := a.Unconverted()
	if a.Err() != nil || count == 0 && len(u.named) == 0 && len(u.seen) == 0 {
		return
	}
	lacking := map[int]bool{}
	for _, o := range kept {
		lacking[o.Index] = true
		_, from, _ := strings.Cut(o.From, "/")
		_, to, _ := strings.Cut(o.To, "/")
		is := &refractv1alpha1.UnconvertedObject{
			Namespace: o.Namespace, Name: o.Name, From: from, To: to,
			Message: output.Cut(o.Err.Error(), mostLacking), Read: metav1.NewTime(now).Rfc3339Copy(),
		}
		key := keyOf(is)
		if _, known := u.seen[key]; known || len(u.seen) < 2*mostUnconverted {
			u.seen[key] = is
		}
	}
	for i := 0; ; i++ {
		namespace, name, ok := a.Name(i)
		if !ok {
			return
		}
		key := unconvertedKey{namespace, name, a.To()}
		if _, named := u.named[key]; (named || u.seen[key] != nil) && !lacking[i] {
			u.seen[key] = nil
		}
	}
}

// runnable returns a function that adds the seen objects to the statuses of policies until ctx ends. Every replica runs
// it.
func (r *reporter) runnable(to client.Client) everywhere {
	return func(ctx context.Context) error {
		tick := time.NewTicker(flushed)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				r.flush(ctx, to)
			}
		}
	}
}

// flush adds the seen objects to the statuses. After an error, the objects wait for the next call.
func (r *reporter) flush(ctx context.Context, to client.Client) {
	r.mu.Lock()
	all := maps.Clone(r.policies)
	r.mu.Unlock()
	for uid, u := range all {
		if !u.due(r.now()) {
			continue
		}
		gone, err := u.flush(ctx, to, uid, r.now())
		if gone {
			r.mu.Lock()
			delete(r.policies, uid)
			r.mu.Unlock()
			continue
		}
		if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil && r.logs.TryAccept() {
			r.log.Error(err, "Cannot report the objects that cannot be converted", "policy", u.name)
		}
	}
}

// due reports whether the status needs a write: an object was seen, or a named object is too old.
func (u *unconverted) due(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, read := range u.named {
		if now.Sub(read.Time) > forgotten {
			return true
		}
	}
	return len(u.seen) > 0
}

// flush adds the seen objects to the status. gone is true if the policy was deleted.
func (u *unconverted) flush(ctx context.Context, to client.Client, uid types.UID, now time.Time) (gone bool, err error) {
	p := &refractv1alpha1.ConversionPolicy{}
	if err := to.Get(ctx, types.NamespacedName{Name: u.name}, p); err != nil {
		return apierrors.IsNotFound(err), err
	}
	if p.UID != uid {
		return true, nil
	}
	old := p.DeepCopy()
	u.mu.Lock()
	seen := u.seen
	u.seen = map[unconvertedKey]*refractv1alpha1.UnconvertedObject{}
	u.mu.Unlock()
	p.Status.Unconverted = withSeen(p.Status.Unconverted, seen, now)
	if equality.Semantic.DeepEqual(old.Status.Unconverted, p.Status.Unconverted) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := to.Status().Patch(ctx, p, patch, client.FieldOwner(FieldManager)); err != nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		for key, o := range seen {
			if _, again := u.seen[key]; !again {
				u.seen[key] = o
			}
		}
		return false, err
	}
	return false, nil
}

// withSeen returns the new list of objects for a status. It begins with the present objects, except those that are now
// converted completely or are too old. New objects follow, in the order of namespace, name and version. The list has at
// most mostUnconverted objects.
func withSeen(
	was []refractv1alpha1.UnconvertedObject, seen map[unconvertedKey]*refractv1alpha1.UnconvertedObject, now time.Time,
) []refractv1alpha1.UnconvertedObject {
	var out []refractv1alpha1.UnconvertedObject
	named := map[unconvertedKey]bool{}
	for i := range was {
		o := was[i]
		is, read := seen[keyOf(&o)]
		switch {
		case read && is == nil, !read && now.Sub(o.Read.Time) > forgotten:
			continue
		case read && (is.Message != o.Message || is.Read.Sub(o.Read.Time) > renewed):
			o = *is
		}
		named[keyOf(&o)] = true
		out = append(out, o)
	}
	var more []refractv1alpha1.UnconvertedObject
	for key, o := range seen {
		if o != nil && !named[key] {
			more = append(more, *o)
		}
	}
	slices.SortFunc(more, func(a, b refractv1alpha1.UnconvertedObject) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.To, b.To))
	})
	out = append(out, more...)
	return out[:min(len(out), mostUnconverted)]
}
