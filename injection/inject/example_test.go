package inject_test

import (
	"fmt"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"sigs.k8s.io/yaml"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

// databasePolicy defines the items for consumers of a database.
const databasePolicy = `
apiVersion: refract.dev/v1beta1
kind: ServiceInjectionPolicy
metadata: {name: allow-database, namespace: myns}
spec:
  service: db
  selector: {matchLabels: {role: frontend}}
  env: [{name: DB_PORT, value: 6379}]
  volumes: [{name: cache-volume, emptyDir: {}}]
  volumeMounts: [{name: cache-volume, mountPath: /cache}]
`

// setOf returns the set of one policy.
func setOf(text string) (*inject.Set, error) {
	object := &refractv1beta1.ServiceInjectionPolicy{}
	if err := yaml.Unmarshal([]byte(text), object); err != nil {
		return nil, err
	}
	policy, errs := inject.Compile(object)
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return inject.NewSet(policy), nil
}

// The result for a pod is a patch of additions. All other fields of the pod remain unchanged, including fields that
// this package does not know.
func ExampleSet_Inject() {
	set, err := setOf(databasePolicy)
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := []byte(`{"metadata":{"name":"website","labels":{"role":"frontend"},"annotations":{}},
		"spec":{"containers":[{"name":"website","image":"ecorp/website","fieldToCome":{"x":1}}]}}`)
	result, err := set.Inject(pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range result.Applied {
		fmt.Println(a.Policy.Name(), "added", a.Env, a.Volumes, a.Mounts)
	}
	patch, err := jsonpatch.DecodePatch(result.Patch)
	if err != nil {
		fmt.Println(err)
		return
	}
	pod, err = patch.Apply(pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, spec, _ := strings.Cut(string(pod), `"spec":`)
	fmt.Println(spec)

	again, err := set.Inject(pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the second time:", len(again.Patch), "bytes")
	// Output:
	// allow-database added [DB_PORT] [cache-volume] [/cache]
	// {"containers":[{"name":"website","image":"ecorp/website","fieldToCome":{"x":1},"env":[{"name":"DB_PORT","value":"6379"}],"volumeMounts":[{"name":"cache-volume","mountPath":"/cache"}]}],"volumes":[{"name":"cache-volume","emptyDir":{}}]}}
	// the second time: 0 bytes
}

// A policy that conflicts with a pod is skipped as a whole. The result has the place and the reason.
func ExampleSet_Inject_conflict() {
	set, err := setOf(databasePolicy)
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := set.Inject([]byte(`{"metadata":{"labels":{"role":"frontend"}},
		"spec":{"containers":[{"name":"website"},{"name":"proxy","env":[{"name":"DB_PORT","value":"7000"}]}]}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range result.Skipped {
		fmt.Printf("%s: %s at %s: %s\n", s.Policy.Name(), s.Reason, s.Path, s.Message)
	}
	// Output:
	// allow-database: EnvConflict at /spec/containers/1/env/0: container "proxy" has another variable DB_PORT
}

// A pod that was created before the policy is stale: it would get other items if it were created now.
func ExampleSet_Examine() {
	set, err := setOf(databasePolicy)
	if err != nil {
		fmt.Println(err)
		return
	}
	x, err := set.Examine([]byte(`{"metadata":{"labels":{"role":"frontend"}},"spec":{"containers":[{"name":"website"}]}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range x.Statuses {
		fmt.Println(s.Policy.Name(), s.State)
	}
	// Output:
	// allow-database Stale
}
