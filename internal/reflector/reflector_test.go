package reflector

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// TestRun: Run ends when the API server no longer serves the type, and continues after all other errors.
func TestRun(t *testing.T) {
	resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	gone, refused := apierrors.NewGenericServerResponse(404, "list", resource, "", "404 page not found", 0, true), apierrors.NewForbidden(resource, "", nil)
	cases := map[string]struct {
		reason  string
		answers []error // The responses to the lists, in order. Then the context ends.
		want    bool
		lists   int
	}{
		"Gone":     {reason: "A list with the answer 404 means that the type is not served.", answers: []error{gone}, want: true, lists: 1},
		"GoneLate": {reason: "Requests may fail for other reasons before.", answers: []error{refused, refused, gone}, want: true, lists: 3},
		"Ended":    {reason: "The end of the context ends Run.", answers: []error{refused, refused}, lists: 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
			defer stop()
			lists := 0
			from := &cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					lists++
					if lists > len(tc.answers) {
						stop()
						return nil, refused
					}
					return nil, tc.answers[lists-1]
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, refused }, // A list follows.
			}
			pauses := wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 1}
			r := cache.NewReflectorWithOptions(from, &corev1.ConfigMap{}, cache.NewStore(cache.MetaNamespaceKeyFunc), cache.ReflectorOptions{Backoff: &pauses})
			if diff := cmp.Diff(tc.want, Run(ctx, "", r, pauses, pauses)); diff != "" {
				t.Errorf("%s\nRun(): -want, +got:\n%s", tc.reason, diff)
			}
			if lists != tc.lists {
				t.Errorf("%s\nRun(): want %d lists, got %d", tc.reason, tc.lists, lists)
			}
		})
	}
}
