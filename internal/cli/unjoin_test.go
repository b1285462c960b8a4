package cli

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/status"
)

// TestRemaining checks the description of what delays a departure.
func TestRemaining(t *testing.T) {
	condition := func(reason, message string) *corev1alpha1.FederatedCluster {
		return &corev1alpha1.FederatedCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "eu-1", UID: "of-eu-1"},
			Status:     corev1alpha1.FederatedClusterStatus{Conditions: []corev1alpha1.ClusterCondition{{Type: corev1alpha1.ClusterJoined, Reason: reason, Message: message}}},
		}
	}
	for name, tc := range map[string]struct {
		reason string
		seen   []*corev1alpha1.FederatedCluster
		want   string
	}{
		"Leaving": {
			"A finalizer on the cluster keeps a copy without an object on the hub.",
			[]*corev1alpha1.FederatedCluster{condition("Leaving", "copies on it that are still to be removed: 1; kept by finalizers: configmaps shop/a")},
			"copies on it that are still to be removed: 1; kept by finalizers: configmaps shop/a",
		},
		"NotYet": {"Refract does not run, so it has not reported a reason.", []*corev1alpha1.FederatedCluster{condition("Joined", "")}, "0 copies are left"},
		"Over": {
			"The earlier reason is outdated.",
			[]*corev1alpha1.FederatedCluster{condition("Leaving", "copies: 1"), condition("Unknown", "unreachable")},
			"0 copies are left",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &departure{s: &streams{}, cluster: tc.seen[0]}
			for _, fc := range tc.seen {
				if _, err := d.see([]status.Event{{Object: fc}}); err != nil {
					t.Fatal(err)
				}
			}
			if got := d.remaining(); got != tc.want {
				t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}
