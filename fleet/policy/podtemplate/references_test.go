package podtemplate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestReferences(t *testing.T) {
	cases := map[string]struct {
		reason string
		kind   string // The form is apiVersion/kind; empty means v1/Pod.
		spec   string // The spec of the pod.
		want   string // The form is kind/name, separated by spaces.
	}{
		"Nothing":         {reason: "A pod may have no references.", spec: `{containers: [{name: c, image: i}], volumes: [{name: v, emptyDir: {}}]}`},
		"ConfigMapVolume": {reason: "A volume of a ConfigMap is a reference.", spec: `{volumes: [{name: v, configMap: {name: a}}]}`, want: "ConfigMap/a"},
		"SecretVolume":    {reason: "The name of a Secret has another key than that of a ConfigMap.", spec: `{volumes: [{name: v, secret: {secretName: a, name: b}}]}`, want: "Secret/a"},
		"Claim":           {reason: "A claim counts.", spec: `{volumes: [{name: v, persistentVolumeClaim: {claimName: a}}]}`, want: "PersistentVolumeClaim/a"},
		"EphemeralClaim":  {reason: "Pods get their own claim.", spec: `{volumes: [{name: v, ephemeral: {volumeClaimTemplate: {metadata: {name: a}, spec: {}}}}]}`},
		"Projected": {
			reason: "Each source counts, except tokens, which are created, and the root certificates, which exist everywhere.",
			spec: `{volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}, {configMap: {name: kube-root-ca.crt}},
				{configMap: {name: a}}, {secret: {name: b}}, {downwardAPI: {}}, {clusterTrustBundle: {name: c, path: p}}]}}]}`,
			want: "ConfigMap/a Secret/b",
		},
		"CSI": {reason: "The driver's Secret is a reference.", spec: `{volumes: [{name: v, csi: {driver: d, nodePublishSecretRef: {name: a}}}]}`, want: "Secret/a"},
		"OldVolumes": {
			reason: "Volume types that drivers have replaced are still served.",
			spec: `{volumes: [{azureFile: {secretName: a}}, {cephfs: {secretRef: {name: b}}}, {cinder: {secretRef: {name: c}}}, {flexVolume: {secretRef: {name: d}}},
				{iscsi: {secretRef: {name: e}}}, {rbd: {secretRef: {name: f}}}, {scaleIO: {secretRef: {name: g}}}, {storageos: {secretRef: {name: h}}}]}`,
			want: "Secret/a Secret/b Secret/c Secret/d Secret/e Secret/f Secret/g Secret/h",
		},
		"Env": {
			reason: "Variables with a value from a key count, even if they are optional.",
			spec: `{containers: [{env: [{name: A, value: a}, {name: B, valueFrom: {configMapKeyRef: {name: b, key: k}}},
				{name: C, valueFrom: {secretKeyRef: {name: c, key: k, optional: true}}}, {name: D, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]}`,
			want: "ConfigMap/b Secret/c",
		},
		"EnvFrom": {reason: "Variables from all keys are a reference.", spec: `{containers: [{envFrom: [{configMapRef: {name: a}}, {prefix: P, secretRef: {name: b}}]}]}`, want: "ConfigMap/a Secret/b"},
		"Containers": {
			reason: "Every type of container counts.",
			spec: `{initContainers: [{envFrom: [{secretRef: {name: a}}]}], containers: [{envFrom: [{secretRef: {name: b}}]}, {envFrom: [{secretRef: {name: c}}]}],
				ephemeralContainers: [{envFrom: [{secretRef: {name: d}}]}]}`,
			want: "Secret/a Secret/b Secret/c Secret/d",
		},
		"PullSecrets":    {reason: "The image pull Secrets are required, too.", spec: `{imagePullSecrets: [{name: b}, {name: a}]}`, want: "Secret/a Secret/b"},
		"ServiceAccount": {reason: "The ServiceAccount is a reference.", spec: `{serviceAccountName: a, serviceAccount: b}`, want: "ServiceAccount/a"},
		"OldAccount":     {reason: "The deprecated field counts if the new one is missing.", spec: `{serviceAccount: a}`, want: "ServiceAccount/a"},
		"DefaultAccount": {reason: "Every namespace has the default account.", spec: `{serviceAccountName: default}`},
		"SecretNamedAsDefaults": {
			reason: "The names of objects in every namespace are left out only for their own kinds.",
			spec:   `{imagePullSecrets: [{name: default}, {name: kube-root-ca.crt}], volumes: [{configMap: {name: default}}]}`,
			want:   "ConfigMap/default Secret/default Secret/kube-root-ca.crt",
		},
		"OnceInOrder": {
			reason: "A repeated name is one reference; references are ordered by kind, then by name.",
			spec: `{serviceAccountName: z, imagePullSecrets: [{name: a}], volumes: [{secret: {secretName: a}}, {configMap: {name: a}}],
				containers: [{envFrom: [{secretRef: {name: a}}]}]}`,
			want: "ConfigMap/a Secret/a ServiceAccount/z",
		},
		"NoNames": {
			reason: "An empty name is ignored.",
			spec:   `{serviceAccountName: "", imagePullSecrets: [{}, {name: ""}], volumes: [{secret: {}}, {secret: null}, {configMap: {name: ""}}]}`,
		},
		"NotWellFormed": {
			reason: "In a malformed template, the readable references count.",
			spec: `{serviceAccountName: 1, imagePullSecrets: {name: a}, volumes: [null, x, {secret: x}, {secret: {secretName: [a]}}, {projected: {sources: x}},
				{configMap: {name: b}}], initContainers: x, containers: [1, {env: x, envFrom: [y, {secretRef: [z]}, {secretRef: {name: c}}]}, {env: [{valueFrom: x}]}]}`,
			want: "ConfigMap/b Secret/c",
		},
		"NoSpec":      {reason: "A spec of the wrong type has no references.", spec: `x`},
		"Deployment":  {reason: "A Deployment has a pod template.", kind: "apps/v1/Deployment", spec: `{serviceAccountName: a}`, want: "ServiceAccount/a"},
		"ReplicaSet":  {reason: "A ReplicaSet has a pod template, although overriders do not support it.", kind: "apps/v1/ReplicaSet", spec: `{serviceAccountName: a}`, want: "ServiceAccount/a"},
		"StatefulSet": {reason: "A StatefulSet has a pod template.", kind: "apps/v1/StatefulSet", spec: `{serviceAccountName: a}`, want: "ServiceAccount/a"},
		"DaemonSet":   {reason: "A DaemonSet has a pod template.", kind: "apps/v1/DaemonSet", spec: `{serviceAccountName: a}`, want: "ServiceAccount/a"},
		"Job":         {reason: "A Job has a pod template.", kind: "batch/v1/Job", spec: `{serviceAccountName: a}`, want: "ServiceAccount/a"},
		"CronJob":     {reason: "A CronJob has a Job template.", kind: "batch/v1/CronJob", spec: `{serviceAccountName: a}`, want: "ServiceAccount/a"},
		"PodTemplate": {reason: "A PodTemplate consists of a pod template.", kind: "v1/PodTemplate", spec: `{serviceAccountName: a}`, want: "ServiceAccount/a"},
		"ReplicationController": {
			reason: "A ReplicationController has a pod template.", kind: "v1/ReplicationController", spec: `{serviceAccountName: a}`, want: "ServiceAccount/a",
		},
		"OtherVersion": {reason: "Kinds are known in every version.", kind: "apps/v2/Deployment", spec: `{serviceAccountName: a}`, want: "ServiceAccount/a"},
		"OtherGroup":   {reason: "A kind of another group has no known template.", kind: "example.com/v1/Deployment", spec: `{serviceAccountName: a}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := workload(t, cmp.Or(tc.kind, "v1/Pod"), tc.spec)
			before := obj.DeepCopy()
			var got []string
			for _, r := range References(obj) {
				got = append(got, r.Kind+"/"+r.Name)
				if r.Group != "" || r.Resource != strings.ToLower(r.Kind)+"s" {
					t.Errorf("%+v: the group or resource is wrong", r)
				}
			}
			if diff := gocmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("%s\nReferences(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := gocmp.Diff(before, obj); diff != "" {
				t.Errorf("References() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

// TestUses checks which parts of a Secret the pods see.
func TestUses(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   string // The spec of the pod.
		want   []string
	}{
		"Pull":    {"The pods do not see an image pull Secret.", `{imagePullSecrets: [{name: a}, {name: a}]}`, []string{"Secret/a pull"}},
		"Driver":  {"The pods do not see the Secret of a driver.", `{volumes: [{csi: {nodePublishSecretRef: {name: a}}}, {azureFile: {secretName: a}}, {rbd: {secretRef: {name: b}}}]}`, []string{"Secret/a driver", "Secret/b driver"}},
		"Files":   {"A volume has all keys.", `{volumes: [{secret: {secretName: a}}, {configMap: {name: b, items: []}}]}`, []string{"ConfigMap/b all", "Secret/a all"}},
		"Items":   {"A volume may have only the listed keys.", `{volumes: [{secret: {secretName: a, items: [{key: l}, {key: k}, {key: l}]}}]}`, []string{"Secret/a key k", "Secret/a key l"}},
		"BadList": {"An unreadable list counts as all keys.", `{volumes: [{secret: {secretName: a, items: [x]}}]}`, []string{"Secret/a all"}},
		"Projected": {
			"Projected sources count like volumes.", `{volumes: [{projected: {sources: [{secret: {name: a}}, {configMap: {name: b, items: [{key: k}]}}]}}]}`,
			[]string{"ConfigMap/b key k", "Secret/a all"},
		},
		"Variables": {
			"One value, or all.", `{containers: [{env: [{valueFrom: {secretKeyRef: {name: a, key: k}}}, {valueFrom: {configMapKeyRef: {name: b, key: k}}}], envFrom: [{secretRef: {name: a}}]}]}`,
			[]string{"ConfigMap/b key k", "Secret/a all", "Secret/a key k"},
		},
		"Others": {"The pods do not see claims and ServiceAccounts.", `{serviceAccountName: a, volumes: [{persistentVolumeClaim: {claimName: b}}]}`, []string{"PersistentVolumeClaim/b ", "ServiceAccount/a "}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, u := range Uses(workload(t, "v1/Pod", tc.spec)) {
				got = append(got, u.Kind+"/"+u.Name+" "+u.As)
			}
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nUses(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestReferencesOutsideTheTemplate: fields outside the template, such as the claims that a StatefulSet creates, are not
// references.
func TestReferencesOutsideTheTemplate(t *testing.T) {
	obj := &unstructured.Unstructured{}
	manifest := `{apiVersion: apps/v1, kind: StatefulSet, spec: {serviceAccountName: no, volumeClaimTemplates: [{metadata: {name: data}}],
		template: {metadata: {name: no}, spec: {volumes: [{name: v, secret: {secretName: yes-1}}]}}}}`
	if err := yaml.Unmarshal([]byte(manifest), &obj.Object); err != nil {
		t.Fatal(err)
	}
	want := []Reference{{Kind: "Secret", Resource: "secrets", Name: "yes-1"}}
	if diff := gocmp.Diff(want, References(obj)); diff != "" {
		t.Errorf("References(): -want, +got:\n%s", diff)
	}
	if got := References(&unstructured.Unstructured{}); got != nil {
		t.Errorf("an object without content: got %v", got)
	}
}

// workload returns an object of the kind with a pod spec at the place for this kind.
func workload(tb testing.TB, kind, spec string) *unstructured.Unstructured {
	tb.Helper()
	at := strings.LastIndexByte(kind, '/')
	place := map[string]string{
		"Pod": `{"spec":%s}`, "PodTemplate": `{"template":{"spec":%s}}`, "CronJob": `{"spec":{"jobTemplate":{"spec":{"template":{"spec":%s}}}}}`,
	}[kind[at+1:]]
	text, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		tb.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal(fmt.Appendf(nil, cmp.Or(place, `{"spec":{"template":{"spec":%s}}}`), text), &obj.Object); err != nil {
		tb.Fatal(err)
	}
	obj.Object["apiVersion"], obj.Object["kind"] = kind[:at], kind[at+1:]
	return obj
}

// FuzzReferences: for any object, the references have names, are unique and in order, and the object is not modified.
func FuzzReferences(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","spec":{"volumes":[{"secret":{"secretName":"a"}},{"projected":{"sources":[{"configMap":{"name":"b"}}]}}]}}`))
	f.Add([]byte(`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"template":{"spec":{"containers":[{"env":[{"valueFrom":{"secretKeyRef":{"name":"c"}}}]}]}}}}`))
	f.Add([]byte(`{"apiVersion":"batch/v1","kind":"CronJob","spec":{"jobTemplate":{"spec":{"template":{"spec":{"serviceAccountName":"d","imagePullSecrets":[1]}}}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		obj := &unstructured.Unstructured{}
		if json.Unmarshal(data, &obj.Object) != nil {
			return
		}
		before := obj.DeepCopy()
		got := References(obj)
		inOrder := func(a, b Reference) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) }
		for i, r := range got {
			if r.Kind == "" || r.Resource == "" || r.Name == "" {
				t.Errorf("%+v is incomplete", r)
			}
			if i > 0 && inOrder(got[i-1], r) >= 0 {
				t.Errorf("%+v comes after %+v", r, got[i-1])
			}
		}
		if again := References(obj); !slices.Equal(got, again) {
			t.Errorf("two answers: %v and %v", got, again)
		}
		if diff := gocmp.Diff(before, obj); diff != "" {
			t.Errorf("References() changed its input: -before, +after:\n%s", diff)
		}
	})
}

func BenchmarkReferences(b *testing.B) {
	for name, spec := range map[string]string{
		"None": `{containers: [{name: c, image: i, env: [{name: A, value: a}, {name: B, value: b}], volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, emptyDir: {}}]}`,
		"Some": `{serviceAccountName: web, imagePullSecrets: [{name: pull}], initContainers: [{name: i, image: i, envFrom: [{secretRef: {name: db}}]}],
			containers: [{name: c, image: i, env: [{name: A, value: a}, {name: B, valueFrom: {secretKeyRef: {name: db, key: k}}}], envFrom: [{configMapRef: {name: web}}]},
				{name: d, image: i}],
			volumes: [{name: v, emptyDir: {}}, {name: w, configMap: {name: web}}, {name: x, secret: {secretName: tls}}, {name: y, persistentVolumeClaim: {claimName: data}}]}`,
	} {
		obj := workload(b, "apps/v1/Deployment", spec)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				References(obj)
			}
		})
	}
}
