package inject

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// FuzzCompile: the compilation of any stored object results in a policy or in errors, returns the same result twice,
// and does not modify the object. An accepted policy can be serialized and compiled again.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"a"},"spec":{"selector":{},"env":[{"name":"A","value":1},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['a']"}}}]}}`,
		`{"metadata":{"name":"a"},"spec":{"service":"db","implicit":true,"selector":{"matchExpressions":[{"key":"a","operator":"NotIn","values":["b"]}]}},` +
			`"status":{"fromService":{"env":[{"name":"A"}],"volumes":[{"name":"v","emptyDir":{}}],"volumeMounts":[{"name":"v","mountPath":"/a"}]}}}`,
		`{"metadata":{"name":"a"},"spec":{"selector":{},"containers":{"include":["a*b"],"exclude":["*"]},"volumes":[{"name":"v","projected":{"sources":[{}]}},` +
			`{"name":"w","ephemeral":{"volumeClaimTemplate":{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}}}],` +
			`"volumeMounts":[{"name":"v","mountPath":"a","subPath":".."}],"envFrom":[{"prefix":"=","secretRef":{}}]}}`,
		`{"spec":{"selector":{"matchLabels":{"a":"b"}},"envFrom":[{}],"env":[{"valueFrom":{}}],"volumes":[{}],"volumeMounts":[{}],"containers":{},"rollout":{}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &refractv1beta1.ServiceInjectionPolicy{}
		if err := json.Unmarshal(data, p); err != nil {
			return
		}
		before := p.DeepCopy()
		policy, errs := Compile(p)
		if (policy == nil) != (len(errs) > 0) {
			t.Fatalf("a policy or errors: got %v and %v", policy, errs)
		}
		again, errsAgain := Compile(p)
		if diff := cmp.Diff(spelled(errs), spelled(errsAgain)); diff != "" {
			t.Errorf("twice: %s", diff)
		}
		if diff := cmp.Diff(before, p); diff != "" {
			t.Errorf("the object was modified: -before, +after:\n%s", diff)
		}
		if policy == nil {
			return
		}
		if policy.Hash() != again.Hash() || len(policy.Hash()) != 16 {
			t.Errorf("hashes %q and %q", policy.Hash(), again.Hash())
		}
		explicit := p.DeepCopy()
		effective := Effective(p)
		explicit.Spec.Env, explicit.Spec.EnvFrom = effective.Env, effective.EnvFrom
		explicit.Spec.Volumes, explicit.Spec.VolumeMounts = effective.Volumes, effective.VolumeMounts
		written, err := json.Marshal(explicit)
		if err != nil {
			t.Fatal(err)
		}
		read := &refractv1beta1.ServiceInjectionPolicy{}
		if err := json.Unmarshal(written, read); err != nil {
			t.Fatal(err)
		}
		stored, errs := Compile(read)
		if errs != nil {
			t.Fatalf("written out: %v", errs.ToAggregate())
		}
		if stored.Hash() != policy.Hash() {
			t.Error("written out it has another hash")
		}
		if got := FindOverlap(policy, stored); got != nil {
			t.Errorf("it overlaps with itself: %v", got)
		}
	})
}

// FuzzFromService: the items read from any annotations never make a policy invalid.
func FuzzFromService(f *testing.F) {
	f.Add(`{"A":"b","B":1}`, "secret/a,configmap/b", "secret/a.b:/x:ro,configmap/c:/y", "P_", "host,port", "web", int32(80))
	f.Add(`{"A":`, "secret/", "secret/a", "=", "x", "a b", int32(-1))
	f.Add(`[]`, ",", "configmap/a:/..", "", "port", "", int32(0))
	f.Fuzz(func(t *testing.T, env, envFrom, mount, prefix, derive, portName string, port int32) {
		svc := serviceOf(map[string]string{
			refractv1beta1.EnvAnnotation: env, refractv1beta1.EnvFromAnnotation: envFrom, refractv1beta1.MountAnnotation: mount,
			refractv1beta1.PrefixAnnotation: prefix, refractv1beta1.DeriveAnnotation: derive,
		}, corev1.ServicePort{Name: portName, Port: port}, corev1.ServicePort{Name: "other", Port: 1})
		before := svc.DeepCopy()
		items, errs := FromService(svc)
		again, errsAgain := FromService(svc)
		if diff := cmp.Diff(items, again); diff != "" {
			t.Errorf("twice: %s", diff)
		}
		if diff := cmp.Diff(spelled(errs), spelled(errsAgain)); diff != "" {
			t.Errorf("twice: %s", diff)
		}
		if diff := cmp.Diff(before, svc); diff != "" {
			t.Errorf("the Service was modified: -before, +after:\n%s", diff)
		}
		p := policyOf(t, `{selector: {}, service: db, implicit: true}`)
		p.Status.FromService = items
		policy, compileErrs := Compile(p)
		if compileErrs != nil {
			t.Fatal(compileErrs.ToAggregate())
		}
		for _, w := range policy.Warnings() {
			if w.Path != "spec.selector" && w.Message != "API servers before Kubernetes 1.32 refuse pods with a variable of this name" {
				t.Errorf("unexpected: %v", w)
			}
		}
	})
}
