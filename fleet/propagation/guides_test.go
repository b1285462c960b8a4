package propagation

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestGuides: a replica that does not lead decides again when its inputs in a Propagation have changed, but not when
// another replica writes the rows of its members.
func TestGuides(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*known)
		want   bool
	}{
		"Rows": {"How the copies are is for people.", func(k *known) { k.version, k.digest, k.bound = "8", [32]byte{1}, true }, false},
		"Ready": {"So are conditions.", func(k *known) {
			k.conditions = []metav1.Condition{{Type: "Ready", Status: "True", LastTransitionTime: metav1.Time{Time: time.Unix(1, 0)}}}
		}, false},
		"Placed":   {"Another cluster is one more to write to.", func(k *known) { k.placed = on("eu-1", "us-1") }, true},
		"Ground":   {"It was placed on another ground.", func(k *known) { k.hash = "2" }, true},
		"Source":   {"The object was made anew.", func(k *known) { k.source = "2" }, true},
		"Record":   {"So was the record.", func(k *known) { k.uid = "2" }, true},
		"Deleting": {"The record is to go.", func(k *known) { k.deleting = true }, true},
		"Rollout":  {"A change has come further.", func(k *known) { k.rollout = &refractv1alpha1.RolloutStatus{} }, true},
		"Steered":  {"Somebody stops it.", func(k *known) { k.steering.paused = true }, true},
		"WhyItGoes": {"Somebody deleted the object.", func(k *known) {
			k.conditions = []metav1.Condition{{Type: refractv1alpha1.ConditionSourceGone, Status: "True", Reason: string(causeDeleted)}}
		}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := known{uid: "1", version: "7", source: "1", hash: "1", placed: on("eu-1")}
			now := before
			tc.change(&now)
			if got := !now.guidesAs(&before); got != tc.want {
				t.Errorf("%s\nwant it decided again: %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}
