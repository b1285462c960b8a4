package inject

import (
	"fmt"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// patched returns the pod with the patch of the set.
func patched(tb testing.TB, set *Set, pod []byte) []byte {
	tb.Helper()
	result, err := set.Inject(pod)
	if err != nil {
		tb.Fatal(err)
	}
	return apply(tb, pod, result.Patch)
}

// apply returns the pod that an API server makes of a pod and a patch. Without a patch it returns the pod unchanged.
func apply(tb testing.TB, pod, patch []byte) []byte {
	tb.Helper()
	if patch == nil {
		return pod
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		tb.Fatalf("%v in %s", err, patch)
	}
	out, err := decoded.Apply(pod)
	if err != nil {
		tb.Fatalf("%v: applying %s to %s", err, patch, pod)
	}
	return out
}

// testSet returns a set of policies p0, p1 and so on with these specs.
func testSet(tb testing.TB, specs ...string) *Set {
	tb.Helper()
	policies := make([]*Policy, len(specs))
	for i, spec := range specs {
		policies[i] = testPolicy(tb, fmt.Sprintf("p%d", i), spec)
	}
	return NewSet(policies...)
}

// testPolicy returns a policy with this spec.
func testPolicy(tb testing.TB, name, spec string) *Policy {
	tb.Helper()
	object := &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "myns", Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &object.Spec); err != nil {
		tb.Fatal(err)
	}
	policy, errs := Compile(object)
	if len(errs) > 0 {
		tb.Fatal(errs.ToAggregate())
	}
	return policy
}
