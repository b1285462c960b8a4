package policies

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/tree"
)

func TestWrittenIn(t *testing.T) {
	cases := map[string]struct {
		reason   string
		was, now string // The override rules.
		want     []string
	}{
		"Variables": {
			reason: "Variables are the most common references.",
			now: `- overriders: {envs: [{containerName: web, value: [
  {name: A, valueFrom: {secretKeyRef: {name: db, key: a}}}, {name: B, valueFrom: {configMapKeyRef: {name: settings, key: b}}}, {name: C, value: secretName}]}]}`,
			want: []string{"ConfigMap shop/settings", "Secret shop/db"},
		},
		"WholeVolume": {
			reason: "The value has the whole reference.",
			now:    `- overriders: {jsonpatch: [{path: /spec/template/spec/volumes/-, operator: add, value: {name: v, secret: {secretName: db}}}]}`,
			want:   []string{"Secret shop/db"},
		},
		"NameOnly": {
			reason: "The path shows that the value is the name of a Secret.",
			now:    `- overriders: {jsonpatch: [{path: /spec/template/spec/volumes/0/secret/secretName, value: db}]}`,
			want:   []string{"Secret shop/db"},
		},
		"WholeSpec": {
			reason: "The value may be a whole spec with references inside.",
			now: `- overriders: {jsonpatch: [{path: /spec, value: {template: {spec: {
  imagePullSecrets: [{name: pull}], containers: [{envFrom: [{secretRef: {name: all}}, {configMapRef: {name: settings}}]}],
  volumes: [{projected: {sources: [{secret: {name: p}}, {configMap: {name: q}}]}}, {csi: {nodePublishSecretRef: {name: csi}}},
    {azureFile: {secretName: azure}}, {flexVolume: {secretRef: {name: flex}}}, {configMap: {name: files}}]}}}}]}`,
			want: []string{
				"ConfigMap shop/files", "ConfigMap shop/q", "ConfigMap shop/settings", "Secret shop/all", "Secret shop/azure",
				"Secret shop/csi", "Secret shop/flex", "Secret shop/p", "Secret shop/pull",
			},
		},
		"ServiceAnnotations": {
			reason: "An injection policy on a cluster gives pods the objects that the Service's annotations name.",
			now: `- overriders: {annotations: [{value: {refract.dev/env-from: "secret/all, configmap/settings", refract.dev/mount: "secret/tls:/tls:ro", a: secret/b,
  refract.dev/env: '{"A":"secret/c"}'}}]}`,
			want: []string{"ConfigMap shop/settings", "Secret shop/all", "Secret shop/tls"},
		},
		"ServiceAnnotationsByPatch": {
			reason: "The path of a patch may end at any level above the annotation.",
			now: `- overriders: {jsonpatch: [{path: /metadata/annotations/refract.dev~1env-from, value: secret/one},
  {path: /metadata/annotations/refract.dev~1mount, operator: add, value: "secret/two:/two"},
  {path: /metadata/annotations, value: {refract.dev/env-from: secret/three}}, {path: /metadata, value: {annotations: {refract.dev/mount: "configmap/four:/four"}}},
  {path: "", value: {metadata: {annotations: {refract.dev/env-from: secret/five}}}}]}`,
			want: []string{"ConfigMap shop/four", "Secret shop/five", "Secret shop/one", "Secret shop/three", "Secret shop/two"},
		},
		"UnreadableAnnotation": {
			reason: "An unreadable annotation has no references.",
			now:    `- overriders: {annotations: [{value: {refract.dev/env-from: "Secret/all,all", refract.dev/mount: secret/tls}}]}`,
		},
		"PullSecretByIndex": {
			reason: "Indexes of lists do not matter.",
			now:    `- overriders: {jsonpatch: [{path: /spec/template/spec/imagePullSecrets/0/name, value: pull}]}`,
			want:   []string{"Secret shop/pull"},
		},
		"CronJob": {
			reason: "The pod spec may be at a deeper level.",
			now:    `- overriders: {jsonpatch: [{path: /spec/jobTemplate/spec/template/spec/containers/0/env/0/valueFrom, value: {secretKeyRef: {name: db, key: a}}}]}`,
			want:   []string{"Secret shop/db"},
		},
		"IngressAndServiceAccount": {
			reason: "Other kinds have references in other fields.",
			now: `- overriders: {jsonpatch: [{path: /spec/tls/0/secretName, value: web-tls}, {path: /imagePullSecrets, value: [{name: pull}]},
  {path: /secrets/0/name, value: token}, {path: /metadata/name, value: a}], labels: [{value: {name: a}}]}`,
			want: []string{"Secret shop/pull", "Secret shop/token", "Secret shop/web-tls"},
		},
		"InjectionPolicy": {
			reason: "The references of an injection policy are given to pods of the cluster.",
			now: `- overriders: {jsonpatch: [{path: /spec/envFrom, operator: add, value: [{secretRef: {name: all}}]},
  {path: /spec/env/0/valueFrom/secretKeyRef/name, value: db}]}`,
			want: []string{"Secret shop/all", "Secret shop/db"},
		},
		"SameRuleElsewhere": {
			reason: "The author of a change is responsible for the whole policy, as with Roles: the effect of a rule depends on the other rules.",
			was:    `- overriders: {envs: [{containerName: web, value: [{name: A, valueFrom: {secretKeyRef: {name: db, key: a}}}]}]}`,
			now: `- overriders: {labels: [{value: {a: b}}]}
- overriders: {envs: [{containerName: web, value: [{name: A, valueFrom: {secretKeyRef: {name: db, key: a}}}]}]}`,
			want: []string{"Secret shop/db"},
		},
		"RootCA": {
			reason: "Every pod has this ConfigMap.",
			now:    `- overriders: {jsonpatch: [{path: /spec/template/spec/volumes/-, operator: add, value: {name: v, configMap: {name: kube-root-ca.crt}}}]}`,
		},
		"Withdrawn": {
			reason: "The removal of a rule adds no references.",
			was:    `- overriders: {envs: [{containerName: web, value: [{name: A, valueFrom: {secretKeyRef: {name: db, key: a}}}]}]}`,
			now:    `[]`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := &write{ref: tree.Policy{Kind: corev1alpha1.KindOverridePolicy, Namespace: "shop", Name: "web"}, now: withRules(t, tc.now)}
			if tc.was != "" {
				w.was = withRules(t, tc.was)
			}
			var got []string
			for _, ref := range writtenIn(w) {
				got = append(got, ref.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nwrittenIn(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func withRules(t *testing.T, rules string) *unstructured.Unstructured {
	t.Helper()
	var list []any
	if err := yaml.Unmarshal([]byte(rules), &list); err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"overrideRules": list}}}
}
