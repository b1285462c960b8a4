package propagation

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestSteers: a change of a Propagation by another client causes work soon only if it steers the rollout or the
// placement.
func TestSteers(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*known)
		want   bool
	}{
		"Rows": {"The rows only inform users.", func(k *known) { k.version, k.digest, k.bound = "8", [32]byte{1}, true }, false},
		"Ready": {"The conditions only inform users, too.", func(k *known) {
			k.conditions = []metav1.Condition{{Type: "Ready", Status: "True", LastTransitionTime: metav1.Time{Time: time.Unix(1, 0)}}}
		}, false},
		"Source":   {"The Propagation names another object.", func(k *known) { k.source = "2" }, true},
		"Record":   {"The Propagation was created again.", func(k *known) { k.uid = "2" }, true},
		"Deleting": {"The Propagation is being deleted.", func(k *known) { k.deleting = true }, true},
		"Rollout":  {"The rollout has another state.", func(k *known) { k.rollout = &refractv1alpha1.RolloutStatus{} }, true},
		"Steered":  {"A user pauses the rollout.", func(k *known) { k.steering.paused = true }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := known{uid: "1", version: "7", source: "1"}
			now := before
			tc.change(&now)
			if got := !now.steersAs(&before); got != tc.want {
				t.Errorf("%s\nwant the change to steer: %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}
