package propagation

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/google/go-cmp/cmp"
)

func TestRemedyFor(t *testing.T) {
	invalid := func(errs ...*field.Error) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "web", errs)
	}
	cases := map[string]struct {
		reason string
		err    error
		want   string
	}{
		"Immutable": {
			reason: "The message names the immutable field and the remedy.",
			err:    invalid(field.Invalid(field.NewPath("spec", "clusterIPs").Index(0), "10.0.0.1", "may not change once set")),
			want: "; the copy exists, and its spec.clusterIPs[0] cannot change: restore the value on the hub, or create the object under another name; " +
				`if each cluster is to have its own value, annotate the object with refract.dev/left-to-members: '["/spec/clusterIPs/*"]'`,
		},
		"Whole": {
			reason: "A whole spec cannot be left to the members.",
			err:    invalid(field.Forbidden(field.NewPath("spec"), "updates to statefulset spec for fields other than 'replicas' are forbidden")),
			want:   "; the copy exists, and its spec cannot change: restore the value on the hub, or create the object under another name",
		},
		"NodePort": {
			reason: "A node port of the hub is not available on every cluster.",
			err:    invalid(field.Invalid(field.NewPath("spec", "ports").Index(0).Child("nodePort"), 30080, "provided port is not in the valid range. The range of valid ports is 31000-31999")),
			want: `; the hub requests this node port: remove it from the Service, or annotate the Service with refract.dev/left-to-members: '["/spec/ports/*/nodePort"]', ` +
				"so that each cluster chooses its own",
		},
		"Wrong": {
			reason: "An invalid value is to be corrected.",
			err:    invalid(field.Required(field.NewPath("spec", "ports"), "")),
		},
		"Other": {reason: "Another error has another remedy.", err: errors.New("the field is immutable")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, remedyFor(tc.err)); diff != "" {
				t.Errorf("%s\nremedyFor(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
