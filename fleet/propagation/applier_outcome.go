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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/internal/output"
)

// stripped reports whether the object is the copy that Refract wrote, and another client has removed its marks.
func (r *clusterStatus) stripped(have member.Copy) bool {
	return have.Source == "" && r.uid != "" && have.UID == r.uid
}

// adopts reports whether the object on the hub asks to adopt the object on the member. A copy from another hub is never
// adopted.
func (a *applier) adopts(p *desiredState, have member.Copy) bool {
	return have.Source == "" && p.keeping.Adopt.Includes(a.member.Name)
}

// exists records that a copy cannot be written because a foreign object has its name. The foreign object stays
// unchanged.
func (a *applier) exists(key Key, r clusterStatus, have member.Copy) (reconcile.Result, error) {
	r.state, r.reason = refractv1alpha1.StateFailed, reasonAlreadyExists
	r.message = fmt.Sprintf("the cluster has an object of this name that is not from this hub; it stays unchanged. "+
		"Annotations %s: adopt and %s take it over",
		corev1alpha1.ConflictResolutionAnnotation, corev1alpha1.ClustersToAdoptAnnotation)
	if have.Source != "" {
		r.message = "the cluster has an object of this name that is a copy from another hub, or of another object; it stays unchanged"
	}
	return a.failed(key, r)
}

// native records that a copy cannot be written because the cluster itself created an object of this name. That object
// stays unchanged.
func (a *applier) native(key Key, r clusterStatus) (reconcile.Result, error) {
	r.state, r.reason = refractv1alpha1.StateFailed, reasonMadeByEachCluster
	r.message = "the cluster has an object of this name that it created itself; it stays unchanged and cannot be adopted"
	return a.failed(key, r)
}

// paused records that a copy waits because the cluster does not answer. left is the delay before the next attempt.
func (a *applier) paused(key Key, r clusterStatus, left time.Duration) (reconcile.Result, error) {
	if r.state != refractv1alpha1.StateFailed {
		r.state, r.reason, r.message = refractv1alpha1.StatePending, reasonBackingOff,
			"the cluster has failed to answer several times; requests are less frequent until it answers"
	}
	return a.done(key, r, left)
}

func (a *applier) synced(key Key, p *desiredState, r clusterStatus, t *target) (reconcile.Result, error) {
	r.state, r.reason = refractv1alpha1.StateSynced, ""
	if !strings.HasPrefix(r.message, replicasLeft) {
		r.message = ""
	}
	if r.hash != t.variant.hash {
		r.readySince = time.Time{} // The readiness was that of other content.
	}
	r.generation, r.hash = t.generation, t.variant.hash
	if have, found := a.member.Copies.Get(key); found == member.Present {
		r.owned, r.fields, r.uid = have.Owned, "", have.UID
		if key.GroupResource == member.Jobs {
			r.run = runOf(p.uid, have.Ended)
		}
	}
	return a.done(key, r, 0)
}

// waits reports whether a copy must not be written yet, and records the reason. An existing copy with other content
// waits for the followers of its object. Every copy waits for the end of a failure that it shares with other copies,
// and while the cluster does not answer.
func (a *applier) waits(
	key Key, p *desiredState, r clusterStatus, t *target, have member.Copy, found member.Lookup,
) (result reconcile.Result, waits bool, err error) {
	if found == member.Present && have.Hash != t.variant.hash {
		if first := a.state.awaited(key, p, a.member.Name); first != nil {
			r.state, r.reason = refractv1alpha1.StatePending, reasonWaitsForFollower
			r.message = called(*first) + ", which travels with it, is written first"
			result, err = a.done(key, r, followerDelay)
			return result, true, err
		}
	}
	if n := a.gate(key, t, found); n != nil {
		result, err = a.waitsAt(key, r, n)
		return result, true, err
	}
	left := a.held.pause(key, a.member.Pause)
	if left <= 0 {
		return reconcile.Result{}, false, nil
	}
	result, err = a.paused(key, r, left)
	return result, true, err
}

// judged records a correct copy as synced. If the rollout policy requires a health check whose result is unknown,
// judged makes the check first.
func (a *applier) judged(ctx context.Context, key Key, p *desiredState, r clusterStatus, t *target, have member.Copy) (reconcile.Result, error) {
	if !unjudged(p.governed.healthOn(a.member.Name), &have) {
		return a.synced(key, p, r, t)
	}
	if left := a.held.pause(key, a.member.Pause); left > 0 {
		return a.paused(key, r, left)
	}
	if err := a.member.Copies.Judge(ctx, key); err != nil {
		r.state, r.reason = refractv1alpha1.StateFailed, reasonUnreadable
		r.message = fmt.Sprintf("reading the copy for health.cel of its rollout policy: %v", err)
		return a.failed(key, r)
	}
	return a.synced(key, p, r, t)
}

// statusFor returns the recorded status of the copy on the member, as the basis of a new one.
func (a *applier) statusFor(key Key, p *desiredState) clusterStatus {
	r, _ := a.state.clusterStatus(key, a.member.Name)
	r.seq = p.seq
	return r
}

// failed records a status and retries the key. The delay grows with each failure.
func (a *applier) failed(key Key, r clusterStatus) (reconcile.Result, error) {
	failures.WithLabelValues(a.member.Name, r.reason).Inc()
	after := a.retries.When(key)
	switch r.reason {
	case reasonUnreachable:
		// The failure may end at any time. When many copies fail, the breaker spaces requests out.
		after = min(after, soonRetry)
	case reasonWriteFailed:
		after = a.failing.again(min(after, soonRetry))
	case reasonRejected:
		after = a.failing.again(after)
	}
	return a.done(key, r, after)
}

// done records the status, and retries the key after the given delay. A zero delay means no retry.
func (a *applier) done(key Key, r clusterStatus, after time.Duration) (reconcile.Result, error) {
	r.message = output.Cut(r.message, maxMessage)
	before, reported := a.state.clusterStatus(key, a.member.Name)
	same := reported && before.state == r.state && before.reason == r.reason
	if same && before.seq == r.seq && r.state != refractv1alpha1.StateSynced {
		// The messages of one failure may differ, for example in a port or a pointer.
		r.message = before.message
	}
	settled, due, ok := a.stations.record(a, key, r)
	if !ok {
		return reconcile.Result{}, nil // The member has left, or has a new connection.
	}
	switch {
	case r.drift != before.drift && same:
		a.stations.reportAfter(key, driftDelay)
	case settled:
		a.stations.reportAfter(key, settledDelay)
	// A scheduled report covers all clusters of the object.
	case !due:
		a.stations.reportLater(key)
	}
	if after == 0 {
		a.retries.Forget(key)
		a.held.forget(key)
	}
	if r.absent {
		a.unanswered.note(key, nil) // The copy needs no further write.
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// namespaceMissing distinguishes a missing namespace from a missing object or type.
func namespaceMissing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Kind == "namespaces" && d.Group == ""
}

// uidRefused reports whether an API server rejected the UID in an apply request.
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

// refusal returns the reason in the status of a copy after a failed write.
func refusal(err error) string {
	var status apierrors.APIStatus
	switch {
	case errors.As(err, new(*member.LimitError)):
		return reasonUnreadable
	case member.IsTooLarge(err):
		return reasonRejected
	case !errors.As(err, &status):
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
