package inject_test

import (
	"fmt"

	"sigs.k8s.io/yaml"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

func ExampleFindOverlap() {
	database := compile(`
metadata: {name: allow-database, namespace: myns}
spec:
  service: db
  selector: {matchLabels: {role: frontend}}
  env: [{name: PORT, value: 6379}]
`)
	queue := compile(`
metadata: {name: allow-queue, namespace: myns}
spec:
  service: queue
  selector: {matchExpressions: [{key: tier, operator: In, values: [web, batch]}]}
  env: [{name: PORT, value: 5672}]
`)
	overlap := inject.FindOverlap(database, queue)
	fmt.Println(overlap.Reason, overlap.Witness)
	fmt.Println(overlap.Message)
	// Output:
	// EnvConflict map[role:frontend tier:batch]
	// a pod with the labels role=frontend,tier=batch is selected by both allow-database and allow-queue, which differ in variable PORT: the former is applied and the latter is left out for it
}

func compile(manifest string) *inject.Policy {
	p := &refractv1beta1.ServiceInjectionPolicy{}
	if err := yaml.UnmarshalStrict([]byte(manifest), p); err != nil {
		panic(err)
	}
	policy, errs := inject.Compile(p)
	if errs != nil {
		panic(errs.ToAggregate())
	}
	return policy
}
