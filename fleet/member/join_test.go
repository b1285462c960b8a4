package member

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestApprove: the token in the fields of the status decides about an approval. Messages are ignored, because users
// control parts of them, such as the name of a namespace.
func TestApprove(t *testing.T) {
	held := &corev1alpha1.DeletionsHeld{Token: "0af3-ALL", OthersToken: "0af4-OTHERS", Copies: 3, Of: 4, HoldData: 1}
	text := corev1alpha1.ClusterCondition{
		Type: corev1alpha1.ClusterDeletionsHeld, Status: metav1.ConditionTrue, Reason: "AwaitingApproval", Message: "3 of 4 copies are to go at once; token=0af5",
	}
	cases := map[string]struct {
		reason string
		held   *corev1alpha1.DeletionsHeld
		token  string
		want   error
	}{
		"All":     {"The token of all deletions is accepted.", held, "0af3-ALL", nil},
		"Others":  {"The token of the deletions without data is accepted.", held, "0af4-OTHERS", nil},
		"Another": {"The token of earlier deletions is rejected.", held, "0af2-ALL", ErrPendingChanged},
		"OfText":  {"A token in the message is ignored.", held, "0af5", ErrPendingChanged},
		"Nothing": {"An empty token is rejected.", &corev1alpha1.DeletionsHeld{Token: "0af3-ALL"}, "", ErrPendingChanged},
		"NotHeld": {"Without waiting deletions, a token in the message is ignored.", nil, "0af5", ErrNotPending},
	}
	scheme := runtime.NewScheme()
	if err := corev1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1"}}
			fc.Status.DeletionsHeld, fc.Status.Conditions = tc.held, []corev1alpha1.ClusterCondition{text}
			hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(fc).Build()
			if err := Approve(t.Context(), hub, "eu-1", tc.token); !errors.Is(err, tc.want) {
				t.Fatalf("%s\nApprove(): want %v, got %v", tc.reason, tc.want, err)
			}
			is, err := Find(t.Context(), hub, "eu-1")
			if err != nil {
				t.Fatal(err)
			}
			want := tc.token
			if tc.want != nil {
				want = ""
			}
			if got := is.Annotations[refractv1alpha1.ApproveAnnotation]; got != want {
				t.Errorf("%s\nannotation: want %q, got %q", tc.reason, want, got)
			}
		})
	}
}
