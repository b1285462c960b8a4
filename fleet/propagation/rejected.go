package propagation

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// immutable are the phrases of API servers for a field that cannot change.
var immutable = []string{"immutable", "may not change", "updates to", "cannot be changed", "may not be changed"}

// listIndex is the index, or the key, of an element in the path of a field.
var listIndex = regexp.MustCompile(`\[[^\]]*\]`)

// nodePorts are the phrases of API servers for a node port that is not available.
var nodePorts = []string{"provided port is not in the valid range", "provided port is already allocated"}

// remedyFor returns the remedy for a rejection because a field of an existing copy cannot change, or because a node
// port is not available; "" for any other rejection.
//
// Some editors own a whole port of a Service after they have changed its number. This includes the node port that the
// hub assigned, which then counts as requested.
func remedyFor(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	for _, cause := range status.Status().Details.Causes {
		if slices.ContainsFunc(nodePorts, func(words string) bool { return strings.Contains(cause.Message, words) }) {
			const remedy = "; the hub requests this node port: remove it from the Service, or annotate the Service with %s: " +
				`'["/spec/ports/*/nodePort"]', so that each cluster chooses its own`
			return fmt.Sprintf(remedy, refractv1alpha1.LeftToMembersAnnotation)
		}
		for _, words := range immutable {
			if strings.Contains(cause.Message, words) {
				return fmt.Sprintf("; the copy exists, and its %s cannot change: restore the value on the hub, or create the object under another name%s",
					cause.Field, leavingRemedy(cause.Field))
			}
		}
	}
	return ""
}

// leavingRemedy returns the third remedy, for a field inside a spec; "" for a whole spec.
func leavingRemedy(field string) string {
	if !strings.Contains(field, ".") {
		return ""
	}
	var pointer strings.Builder
	for key := range strings.SplitSeq(listIndex.ReplaceAllString(field, ".*"), ".") {
		pointer.WriteString("/" + tree.Escape(key))
	}
	return fmt.Sprintf(`; if each cluster is to have its own value, annotate the object with %s: '["%s"]'`,
		refractv1alpha1.LeftToMembersAnnotation, pointer.String())
}
