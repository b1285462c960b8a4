package implicit

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"refract.dev/injection/inject"
	"refract.dev/internal/fuzzed"
	"refract.dev/internal/rescue"
)

// FuzzStatus: whatever the status of a policy, it has exactly the items of the Service after a reconcile. Without a
// Service it has no such items.
func FuzzStatus(f *testing.F) {
	const spec = `"spec":{"service":"db","implicit":true,"selector":{"matchLabels":{"role":"frontend"}},"env":[{"name":"A","value":"1"}]}`
	for _, status := range []string{
		`{}`, `null`, `7`, `[]`, `{"fromService":{"env":[{"name":"DB","valueFrom":{"secretKeyRef":{"name":"theirs","key":"a"}}}]}}`,
		`{"fromService":{"volumes":[{"name":"v","secret":{"secretName":"theirs"}}],"volumeMounts":[{"name":"v","mountPath":"/v"}]},"effective":{"env":[{}]}}`,
		`{"fromService":{},"effective":{},"conditions":[{"type":"ServiceFound","status":"True","reason":"Found"},{"type":"ServiceFound"}]}`,
		`{"fromService":[],"effective":"x","conditions":{}}`, `{"conditions":[7,{"type":1},null]}`, `{"fromService":{"envFrom":[{"prefix":"$"}]}}`,
	} {
		f.Add([]byte(`{`+spec+`,"status":`+status+`}`), byte(0))
		f.Add([]byte(`{`+spec+`,"status":`+status+`}`), byte(1))
		f.Add([]byte(`{"spec":{"service":"db"},"status":`+status+`}`), byte(2))
	}
	services := []*corev1.Service{nil, {}, {}, {}}
	for i, env := range []string{`{"DB_HOST":"db"}`, `["DB"`, ``} {
		services[i+1] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Annotations: map[string]string{"refract.dev/env": env}}}
	}
	hub := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return nil
		},
	}).Build()
	f.Fuzz(func(t *testing.T, text []byte, which byte) {
		u := &unstructured.Unstructured{}
		if len(text) > fuzzed.MiB || json.Unmarshal(text, &u.Object) != nil || u.Object == nil {
			t.Skip("no object")
		}
		if _, ok := u.Object["metadata"].(map[string]any); !ok { // The API server ensures this.
			u.Object["metadata"] = map[string]any{}
		}
		u.SetGroupVersionKind(kind().GroupVersionKind())
		u.SetNamespace("shop")
		u.SetName("a")
		service := services[int(which)%len(services)]
		fuzzed.Run(t, func() int {
			policy, sound, err := read(u)
			if err != nil {
				return len(text)
			}
			is := complete(policy, service, metav1.NewTime(time.Unix(1, 0)))
			if service != nil && is.fromService != nil {
				says, errs := inject.FromService(service)
				if len(errs) == 0 && !equality.Semantic.DeepEqual(orNil(says), is.fromService) {
					t.Errorf("want what the Service says, got %v", is.fromService)
				}
			}
			if service == nil && is.fromService != nil || !policy.Spec.Implicit && (is != serviceStatus{}) {
				t.Errorf("nobody says that, and it is taken over: %v", is)
			}
			if c := is.condition; c != nil && len(c.Message) > longestMessage+500 {
				t.Errorf("want a short message, got %d bytes", len(c.Message))
			}
			if _, err := is.content(); err != nil {
				t.Errorf("content(): %v", err)
			}
			r := &reconciler{client: hub, recorder: events.NewFakeRecorder(10), now: metav1.Now}
			was := serviceStatusOf(policy)
			r.announce(policy, was.condition, is.condition)
			stored := u.DeepCopy()
			if err := r.purge(t.Context(), stored, is); err != nil {
				t.Errorf("purge(): %v", err)
			}
			after, clean, err := read(stored)
			if err != nil || !clean && sound {
				t.Errorf("what is stored then cannot be read: %v", err)
			}
			if s := serviceStatusOf(after); !equality.Semantic.DeepEqual(s.fromService, is.fromService) || !equality.Semantic.DeepEqual(s.effective, is.effective) {
				t.Errorf("want what others have written taken out, got %v and %v", s.fromService, s.effective)
			}
			return 4 * len(text) // The text is read and copied several times.
		}, rescue.Count)
	})
}
