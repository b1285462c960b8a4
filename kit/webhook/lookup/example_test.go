package lookup_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/kit/webhook/admission"
	"refract.dev/kit/webhook/lookup"
)

// A validation that rejects a claim whose owner is not a namespace. It returns unavailable lookups as their error,
// which is not a denial.
func Example() {
	var (
		informers cache.Cache   // For instance the GetCache of a manager,
		reader    client.Reader // and its GetAPIReader.
	)
	namespaces := lookup.New[corev1.Namespace](informers, reader)
	handler := admission.Validating(admission.Validate("v1", "PersistentVolumeClaim",
		func(ctx context.Context, _ *admission.Request, claim, _ *corev1.PersistentVolumeClaim) (warnings []string, err error) {
			if claim.Labels["owner"] == "" {
				return []string{"metadata.labels: nobody owns this claim"}, nil
			}
			_, err = namespaces.Get(ctx, "", claim.Labels["owner"])
			if apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("namespace %q not known", claim.Labels["owner"])
			}
			return nil, err
		}))
	fmt.Println(handler != nil)
	// Output: true
}
