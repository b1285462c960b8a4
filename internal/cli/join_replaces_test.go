package cli

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/hub"
)

// TestFinish: if an interrupted rename is repeated, the former name may already be deleted, and the rename has
// succeeded. A former name is not deleted if it still exists and no other name has replaced it.
func TestFinish(t *testing.T) {
	scheme, err := hub.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	old := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "old", UID: "1"}}
	again := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "old", UID: "2"}}
	for name, tc := range map[string]struct {
		reason    string
		there     *corev1alpha1.FederatedCluster
		want, err string
	}{
		"Gone":      {reason: "The former name was already deleted.", want: "cluster old is gone; its copies belong to new\n"},
		"UsedAgain": {reason: "The former name already belongs to another cluster.", there: again, want: "cluster old is gone; its copies belong to new\n"},
		"There":     {reason: "A former name without a successor would lose its copies.", there: old, err: `cluster "old" is not served as "new"`},
	} {
		t.Run(name, func(t *testing.T) {
			b := fake.NewClientBuilder().WithScheme(scheme)
			if tc.there != nil {
				b = b.WithObjects(tc.there.DeepCopy())
			}
			var said bytes.Buffer
			err := (&joinOptions{}).finish(t.Context(), newStreams(strings.NewReader(""), &said, &said), b.Build(), "new", old)
			if message := errorText(err); message != tc.err || said.String() != tc.want {
				t.Errorf("%s\nfinish(): want %q and %q, got %q and %q", tc.reason, tc.want, tc.err, said.String(), message)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
