package override_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default, labels: {kubeadmiral.io/override-policy-name: web}}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - {name: web, image: "team/web:v1"}
`

const policy = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: web, namespace: default}
spec:
  overrideRules:
  - targetClusters: {clusterSelector: {region: eu}}
    overriders:
      image:
      - operations: [{imageComponent: Registry, operator: addIfAbsent, value: eu.registry.example}]
      jsonpatch:
      - {path: /spec/replicas, operator: replace, value: 5}
  - targetClusters: {clusters: [edge]}
    overriders:
      jsonpatch:
      - {path: /spec/paused, operator: remove}
`

// Clusters with the same rules share a variant. Every change names the policy item that made it. A rule that fails
// makes the variant of its clusters fail.
func ExampleRender() {
	obj := &unstructured.Unstructured{}
	op := &corev1alpha1.OverridePolicy{}
	if err := yaml.Unmarshal([]byte(deployment), &obj.Object); err != nil {
		panic(err)
	}
	if err := yaml.UnmarshalStrict([]byte(policy), op); err != nil {
		panic(err)
	}
	compiled, errs := override.Compile(op)
	if len(errs) > 0 {
		panic(errs.ToAggregate())
	}
	eu := map[string]string{"region": "eu"}
	clusters := []match.Cluster{{Name: "paris", Labels: eu}, {Name: "tokyo"}, {Name: "berlin", Labels: eu}, {Name: "edge"}}

	for _, v := range override.Render(obj, clusters, compiled) {
		for _, i := range v.Clusters {
			fmt.Print(clusters[i].Name, " ")
		}
		fmt.Println("get:")
		if v.Err != nil {
			fmt.Println(v.Err)
			continue
		}
		for _, c := range v.Changes {
			fmt.Printf("# %s %s: %v → %v, by %s\n", c.Op, c.Path, c.Before, c.After, c.By)
		}
		text, err := yaml.Marshal(v.Object.Object)
		if err != nil {
			panic(err)
		}
		fmt.Print(string(text))
	}
	// Output:
	// paris berlin get:
	// # replace /spec/template/spec/containers/0/image: team/web:v1 → eu.registry.example/team/web:v1, by OverridePolicy default/web rule 0 image[0]
	// # replace /spec/replicas: 3 → 5, by OverridePolicy default/web rule 0 jsonpatch[0]
	// apiVersion: apps/v1
	// kind: Deployment
	// metadata:
	//   name: web
	//   namespace: default
	// spec:
	//   replicas: 5
	//   template:
	//     spec:
	//       containers:
	//       - image: eu.registry.example/team/web:v1
	//         name: web
	// tokyo get:
	// apiVersion: apps/v1
	// kind: Deployment
	// metadata:
	//   name: web
	//   namespace: default
	// spec:
	//   replicas: 3
	//   template:
	//     spec:
	//       containers:
	//       - image: team/web:v1
	//         name: web
	// edge get:
	// OverridePolicy default/web rule 1 jsonpatch[0]: /spec/paused does not exist
}
