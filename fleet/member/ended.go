package member

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Jobs is the type of Jobs, the only objects that end.
var Jobs = schema.GroupResource{Group: batchv1.GroupName, Resource: "jobs"}

// Ended is the time at which a Job ended, in seconds since 1970; negative for a failed Job. It is zero for an object
// that has not ended, or that never ends.
type Ended int64

// Outcome returns Complete or Failed, the type of the Job's condition; "" if the Job has not ended.
func (e Ended) Outcome() string {
	switch {
	case e > 0:
		return string(batchv1.JobComplete)
	case e < 0:
		return string(batchv1.JobFailed)
	default:
		return ""
	}
}

// Time returns the time of the end of the Job, in UTC.
func (e Ended) Time() time.Time { return time.Unix(int64(max(e, -e)), 0).UTC() }

// String returns for example "Complete at 2026-01-02T03:04:05Z".
func (e Ended) String() string { return e.Outcome() + " at " + e.Time().Format(time.RFC3339) }

// jobEnded returns the outcome and the end time in the status of a Job. If the condition has no readable time, the time
// is 1970-01-01T00:00:01Z, because the outcome matters more than the time.
func jobEnded(job map[string]any) Ended {
	conditions, _, err := unstructured.NestedSlice(job, "status", "conditions")
	if err != nil {
		return 0
	}
	for _, item := range conditions {
		c, ok := item.(map[string]any)
		if !ok || c["status"] != string(corev1.ConditionTrue) {
			continue
		}
		text, _ := c["lastTransitionTime"].(string)
		at := Ended(1)
		if t, err := time.Parse(time.RFC3339, text); err == nil {
			at = max(at, Ended(t.Unix()))
		}
		switch c["type"] {
		case string(batchv1.JobComplete):
			return at
		case string(batchv1.JobFailed):
			return -at
		}
	}
	return 0
}

// endOf returns the outcome and the end time of a Job. An unreadable Job counts as not ended.
func (d decoder) endOf(r *received, resource schema.GroupResource) Ended {
	if resource != Jobs {
		return 0
	}
	u, err := r.withStatus()
	if err != nil {
		return 0
	}
	return jobEnded(u.Object)
}

// Vanished is the last known state of a copy of a Job that does not exist any more.
type Vanished struct {
	// Source is the annotation that names the hub and the object there.
	Source string
	// Ended is the outcome and the end time of the Job; zero if its end was not seen.
	Ended Ended
	// Seen is whether the deletion of the copy was seen. If not, a list has shown that the copy is gone, and the Job
	// may have ended before the deletion.
	Seen bool
}

// vanishedJob is the stored form of a Vanished.
type vanishedJob struct {
	uid    uid
	source origin
	ended  Ended
	seen   bool
}

// mostVanished is the maximum number of vanished Jobs that are remembered for a member.
const mostVanished = 10_000

// vanished are the Jobs that vanished. The zero value has none. The lock of the store must be held.
type vanished map[types.NamespacedName]vanishedJob

// note remembers a copy if it is a Job. When the bound is reached, note first forgets all earlier ones.
func (v *vanished) note(of schema.GroupResource, name types.NamespacedName, last vanishedJob) {
	if of != Jobs {
		return
	}
	if *v == nil || len(*v) >= mostVanished {
		*v = vanished{}
	}
	(*v)[name] = last
}

// vanishedJob returns the part of a record that is kept after its removal.
func (r *record) vanishedJob() vanishedJob {
	return vanishedJob{uid: r.uid, source: r.source, ended: r.ended}
}

// Vanished returns the last known state of a copy of a Job that does not exist any more, until another copy has the
// name, or [Copies.ForgetVanished] is called. This state is lost when a watch of Jobs begins with a new store.
func (c *Copies) Vanished(key Key) (last Vanished, known bool) {
	s := c.watches.store(key.GroupResource)
	if s == nil {
		return Vanished{}, false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	job, known := s.vanished[key.NamespacedName]
	return Vanished{Source: job.source.of(key), Ended: job.ended, Seen: job.seen}, known
}

// ForgetVanished forgets that a copy of a Job vanished.
func (c *Copies) ForgetVanished(key Key) {
	if s := c.watches.store(key.GroupResource); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.vanished, key.NamespacedName)
	}
}

// jobReadiness corrects the readiness of a Job that kstatus returns. kstatus calls a running Job ready; here a Job is
// ready when it is complete.
func jobReadiness(job map[string]any, ready refractv1alpha1.Readiness, message string) (refractv1alpha1.Readiness, string) {
	switch ended := jobEnded(job); {
	case ended != 0 && ready == refractv1alpha1.ReadinessReady:
		return ready, ended.String()
	case ended != 0 && ready == refractv1alpha1.ReadinessFailed:
		return ready, ended.String() + ": " + message
	case ready == refractv1alpha1.ReadinessReady:
		return refractv1alpha1.ReadinessInProgress, message
	default:
		return ready, message
	}
}
