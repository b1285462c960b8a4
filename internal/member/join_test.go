package member

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

func TestHeld(t *testing.T) {
	cases := map[string]struct {
		reason    string
		condition corev1alpha1.ClusterCondition
		want      string
	}{
		"Held": {
			reason: "The token is what an approval must name.",
			condition: corev1alpha1.ClusterCondition{
				Type: corev1alpha1.ClusterDeletionsHeld, Status: metav1.ConditionTrue, Message: "12 of 20 copies are to go; refract approve eu-1 lets them, token=0af3",
			},
			want: "0af3",
		},
		"NotHeld": {
			reason: "What a condition that is False says is of the past.",
			condition: corev1alpha1.ClusterCondition{
				Type: corev1alpha1.ClusterDeletionsHeld, Status: metav1.ConditionFalse, Message: "token=0af3",
			},
		},
		"AnotherCondition": {
			reason:    "Only the guard holds deletions.",
			condition: corev1alpha1.ClusterCondition{Type: corev1alpha1.ClusterReady, Status: metav1.ConditionTrue, Message: "token=0af3"},
		},
		"NoToken": {
			reason:    "Without a token there is nothing that could be approved.",
			condition: corev1alpha1.ClusterCondition{Type: corev1alpha1.ClusterDeletionsHeld, Status: metav1.ConditionTrue, Message: "broken=0af3"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := &corev1alpha1.FederatedCluster{}
			fc.Status.Conditions = []corev1alpha1.ClusterCondition{tc.condition}
			if got, _ := PendingApproval(fc); got != tc.want {
				t.Errorf("%s\nHeld(): want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}
