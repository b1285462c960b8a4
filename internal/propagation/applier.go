package propagation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/member"
)

// A write that failed is tried again after these times, doubling from the first
// to the last.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
)

// maxMessage bounds what a row says, in bytes.
const maxMessage = 1000

// applier makes true on one member what the plans say.
type applier struct {
	*Controller

	member  *member.Member
	work    *work[Key]
	stop    context.CancelFunc
	retries workqueue.TypedRateLimiter[Key]
}

func newApplier(c *Controller, m *member.Member) (*applier, error) {
	a := &applier{
		Controller: c,
		member:     m,
		retries:    workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstRetry, lastRetry),
	}
	var err error
	a.work, err = newWork("apply-"+m.Name, appliersByMember, c.log.WithValues("cluster", m.Name), a.applyOne)
	return a, err
}

// applyOne makes the plan of one object true on the member.
func (a *applier) applyOne(ctx context.Context, key Key) (reconcile.Result, error) {
	p := a.ledger.plan(key)
	if p == nil {
		a.decide.add(key)
		return reconcile.Result{}, nil
	}
	if p.held != "" {
		a.Controller.report.addAfter(key, settledDelay)
		return reconcile.Result{}, nil
	}
	t := p.targets[a.member.Name]
	if !a.member.Ready() {
		if t == nil && !a.ledger.concerns(key, a.member.Name) {
			return reconcile.Result{}, nil
		}
		// When it is ready again, everything is decided anew.
		r := a.rowFor(key, p, t)
		r.State, r.Reason, r.Message = refractv1alpha1.StateOffline, reasonNotReady, "the cluster is not ready; see its FederatedCluster"
		return a.done(key, r, true)
	}
	if t != nil && t.variant != nil {
		a.member.Watch(t.variant.gvr) //nolint:contextcheck // The watch lives as long as the member.
	}
	have, sight := a.member.Copy(key)
	switch {
	case sight == member.Unlisted:
		err := a.member.ListError(key.GroupResource)
		if err == nil {
			return reconcile.Result{RequeueAfter: 20 * time.Millisecond}, nil
		}
		if t == nil && !a.ledger.concerns(key, a.member.Name) {
			return reconcile.Result{RequeueAfter: a.retries.When(key)}, nil
		}
		r := a.rowFor(key, p, t)
		r.State, r.Reason, r.Message = refractv1alpha1.StateFailed, reasonUnreadable, fmt.Sprintf("listing %s on the cluster: %v", key.GroupResource, err)
		return a.done(key, r, false)
	case t == nil:
		return a.remove(ctx, key, p, have, sight)
	case t.err != nil:
		r := a.rowFor(key, p, t)
		r.State, r.Reason, r.Message = refractv1alpha1.StateFailed, reasonOverrideFailed, t.err.Error()
		r.Hash = have.Hash
		return a.done(key, r, true)
	default:
		return a.apply(ctx, key, p, t, have, sight)
	}
}

// apply writes the copy unless it is there as it should be.
func (a *applier) apply(ctx context.Context, key Key, p *plan, t *target, have member.Copy, sight member.Sight) (reconcile.Result, error) {
	r := a.rowFor(key, p, t)
	var body []byte
	switch {
	case sight == member.Present && !a.ours(key, have):
		r.State, r.Reason = refractv1alpha1.StateFailed, reasonAlreadyExists
		r.Message = "an object with the label of a copy is there that did not come from this hub; it is left as it is"
		return a.done(key, r, false)
	case sight == member.Present && have.Deleting:
		r.State, r.Reason = refractv1alpha1.StatePending, reasonBeingDeleted
		r.Message = "the copy that is there is being deleted; it is written anew when it is gone"
		return a.done(key, r, true) // Its going is an event.
	case sight == member.Present && have.Hash == t.variant.hash && have.Source == sourceOf(a.hub, p.uid, key.GroupResource, key.Namespace, key.Name):
		return a.synced(key, r, p, t)
	case sight == member.Present:
		body = t.variant.forKnown(have.UID)
	default:
		body = t.variant.forNew()
	}
	err := a.member.Apply(ctx, t.variant.gvr, key.NamespacedName, body)
	switch {
	case err == nil:
		return a.synced(key, r, p, t)
	case namespaceMissing(err):
		if err := a.member.CreateNamespace(ctx, key.Namespace, a.hub); err != nil {
			r.Message = fmt.Sprintf("creating namespace %s: %v", key.Namespace, err)
			break
		}
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	case apierrors.IsConflict(err) || uidRefused(err):
		return a.lookAgain(ctx, key, r, t)
	}
	r.State, r.Reason = refractv1alpha1.StateFailed, refusal(err)
	switch {
	case r.Message != "":
	case key.GroupResource == schema.GroupResource{Resource: "secrets"} && r.Reason == reasonRejected:
		r.Message = "the API server refused the Secret; its answer is not shown, as it may hold values"
	default:
		r.Message = err.Error()
	}
	return a.done(key, r, false)
}

// lookAgain is for when something else is there than was known: a copy that the
// watch has not shown yet, a copy without its label, or somebody's object.
func (a *applier) lookAgain(ctx context.Context, key Key, r row, t *target) (reconcile.Result, error) {
	have, err := a.member.Read(ctx, t.variant.gvr, key.NamespacedName)
	switch {
	case apierrors.IsNotFound(err):
		a.member.Forget(key)
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	case err != nil:
		r.State, r.Reason, r.Message = refractv1alpha1.StateFailed, refusal(err), err.Error()
		return a.done(key, r, false)
	case have.MadeFor == a.hub && have.Source == "":
		// A namespace that copies needed before its own copy came.
		if err := a.member.Apply(ctx, t.variant.gvr, key.NamespacedName, t.variant.forKnown(have.UID)); err != nil {
			r.State, r.Reason, r.Message = refractv1alpha1.StateFailed, refusal(err), err.Error()
			return a.done(key, r, false)
		}
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	case !a.ours(key, have):
		r.State, r.Reason = refractv1alpha1.StateFailed, reasonAlreadyExists
		r.Message = "the cluster has an object of this name that did not come from this hub; it is left as it is"
		return a.done(key, r, false)
	}
	have.Hash = "" // Whatever it was applied with, it is not as it should be.
	a.member.Remember(key, have)
	return reconcile.Result{RequeueAfter: time.Millisecond}, nil
}

// remove deletes the copy if there is one.
func (a *applier) remove(ctx context.Context, key Key, p *plan, have member.Copy, sight member.Sight) (reconcile.Result, error) {
	r := a.rowFor(key, p, nil)
	if sight != member.Present || !a.ours(key, have) {
		r.absent = true
		return a.done(key, r, true)
	}
	r.State, r.Reason, r.Message = refractv1alpha1.StateDeleting, reasonNoLongerPlaced, "the object is not placed here any more"
	if p.gone {
		r.Reason, r.Message = reasonSourceGone, "the object is gone from the hub, or does not ask to be propagated any more"
	}
	if have.Deleting {
		r.Message = "the copy is being deleted and still has finalizers on the cluster"
		return a.done(key, r, true) // Its going is an event.
	}
	found, err := a.member.Delete(ctx, key, have.UID)
	if err != nil {
		r.Reason, r.Message = reasonDeletionBlocked, err.Error()
		return a.done(key, r, false)
	}
	if !found {
		a.member.Forget(key)
		r.absent = true
	}
	return a.done(key, r, true)
}

func (a *applier) synced(key Key, r row, p *plan, t *target) (reconcile.Result, error) {
	r.State, r.Reason, r.Message = refractv1alpha1.StateSynced, "", ""
	r.Generation, r.Hash = p.generation, t.variant.hash
	return a.done(key, r, true)
}

// rowFor begins the row of the member with what it is known to hold.
func (a *applier) rowFor(key Key, p *plan, t *target) row {
	r := row{seq: p.seq}
	r.Name = a.member.Name
	if before, ok := a.ledger.row(key, a.member.Name); ok {
		r.Generation, r.Hash = before.Generation, before.Hash
	}
	if t != nil {
		r.Policies, r.Warnings = t.policies, t.warnings
	}
	return r
}

// done records the row. Unless that is final, the key comes again.
func (a *applier) done(key Key, r row, final bool) (reconcile.Result, error) {
	r.Message = cut(r.Message, maxMessage)
	if before, ok := a.ledger.row(key, a.member.Name); ok && before.seq == r.seq && before.State == r.State && before.Reason == r.Reason {
		r.Message = before.Message // A port or a pointer in it may be another each time.
	}
	a.mu.Lock()
	if a.appliers[a.member.Name] != a {
		a.mu.Unlock()
		return reconcile.Result{}, nil // The member left, or is reached in another way.
	}
	settled := a.ledger.report(key, a.member.Name, r)
	a.mu.Unlock()
	if settled {
		a.Controller.report.addAfter(key, settledDelay)
	} else {
		a.Controller.report.addAfter(key, unsettledDelay)
	}
	if final {
		a.retries.Forget(key)
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: a.retries.When(key)}, nil
}

// ours reports whether the object is a copy that came from this hub.
func (a *applier) ours(key Key, c member.Copy) bool {
	return strings.HasPrefix(c.Source, a.hub+"/") && strings.HasSuffix(c.Source, copyName(key.GroupResource, key.Namespace, key.Name))
}

// namespaceMissing tells a namespace that is not there from an object or a type
// that is not.
func namespaceMissing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Kind == "namespaces" && d.Group == ""
}

// uidRefused reports whether an API server refused the UID that an apply named.
func uidRefused(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata.uid" {
			return true
		}
	}
	return false
}

// refusal sorts the errors of a write.
func refusal(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return reasonUnreachable
	}
	switch s := status.Status(); {
	case s.Code == http.StatusNotFound:
		return reasonTypeNotServed
	case s.Reason == metav1.StatusReasonInvalid, s.Code == http.StatusBadRequest, s.Code == http.StatusForbidden, s.Code == http.StatusRequestEntityTooLarge:
		return reasonRejected
	default:
		return reasonWriteFailed
	}
}
