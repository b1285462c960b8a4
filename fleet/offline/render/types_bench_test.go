package render

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"refract.dev/fleet/offline/manifest"
)

// BenchmarkCheckTypes measures the time that render spends on the types of 1,000 Deployments with 20 variants each. The
// floor is the same evaluation without types.
func BenchmarkCheckTypes(b *testing.B) {
	const objects, clusters = 1000, 20
	var text, rules strings.Builder
	for i := range clusters {
		fmt.Fprintf(&text, "---\napiVersion: core.kubeadmiral.io/v1alpha1\nkind: FederatedCluster\nmetadata: {name: c%d}\n", i)
		fmt.Fprintf(&rules, "  - targetClusters: {clusters: [c%d]}\n    overriders:\n      jsonpatch:\n"+
			"      - {path: /spec/replicas, operator: replace, value: %d}\n", i, i+2)
	}
	fmt.Fprintf(&text, "---\napiVersion: core.kubeadmiral.io/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: all, namespace: app}\n"+
		"spec: {schedulingMode: Duplicate}\n---\napiVersion: core.kubeadmiral.io/v1alpha1\nkind: OverridePolicy\n"+
		"metadata: {name: p, namespace: app}\nspec:\n  overrideRules:\n%s", &rules)
	for i := range objects {
		fmt.Fprintf(&text, `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d%d, namespace: app, labels: {kubeadmiral.io/propagation-policy-name: all, kubeadmiral.io/override-policy-name: p}}
spec:
  replicas: 1
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
      - {name: c, image: i, env: [{name: A, value: "1"}], ports: [{containerPort: 80}], resources: {requests: {cpu: 1}, limits: {cpu: 2}}}
      - {name: s, image: i, volumeMounts: [{name: v, mountPath: /v}]}
      volumes: [{name: v, emptyDir: {}}]
`, i)
	}
	set, problems := manifest.ReadFS(fstest.MapFS{"all.yaml": {Data: []byte(text.String())}})
	if len(problems) > 0 {
		b.Fatal(problems[0])
	}
	for name, check := range map[string]bool{"Floor": false, "Types": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				evaluation, err := Evaluate(set, Options{})
				if err != nil {
					b.Fatal(err)
				}
				if check {
					evaluation.CheckTypes(set.Objects)
				}
			}
		})
	}
}
