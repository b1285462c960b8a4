package reference

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func read(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func shown(refs []Reference) []string {
	var out []string
	for _, r := range refs {
		out = append(out, r.Kind+"/"+r.Name)
	}
	return out
}

func TestAdded(t *testing.T) {
	const (
		pod      = `{apiVersion: v1, kind: Pod, spec: {imagePullSecrets: [{name: pull}], volumes: [{name: v, secret: {secretName: db}}, {name: w, configMap: {name: kube-root-ca.crt}}]}}`
		one      = `{apiVersion: v1, kind: Pod, spec: {containers: [{env: [{name: A, valueFrom: {secretKeyRef: {name: db, key: a}}}]}]}}`
		injected = `{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {name: p}, spec: {service: db, selector: {}, env: [{name: A, valueFrom: {secretKeyRef: {name: db, key: a}}}]`
	)
	cases := map[string]struct {
		reason        string
		before, after string
		want          []string
	}{
		"Pod":            {"All that a pod spec names; what everybody has is not among it.", "", pod, []string{"Secret/db", "Secret/pull"}},
		"Nothing":        {"It referred to the same before.", pod, pod, nil},
		"ServiceAccount": {"An account without rights is nothing to be read.", "", `{apiVersion: v1, kind: Pod, spec: {serviceAccountName: a, volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]}}`, nil},
		"OfAnAccount": {
			"An account names Secrets itself.", "", `{apiVersion: v1, kind: ServiceAccount, secrets: [{name: token}], imagePullSecrets: [{name: pull}]}`,
			[]string{"Secret/pull", "Secret/token"},
		},
		"Ingress": {
			"A certificate.", `{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {tls: [{secretName: a}]}}`,
			`{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {tls: [{secretName: a}, {secretName: b}, {hosts: [c]}]}}`, []string{"Secret/b"},
		},
		"Service": {
			"Policies hand it out.", `{apiVersion: v1, kind: Service, metadata: {annotations: {refract.dev/env-from: secret/a}}}`,
			`{apiVersion: v1, kind: Service, metadata: {annotations: {refract.dev/env-from: "secret/a,configmap/b", refract.dev/mount: "secret/c:/c"}}}`,
			[]string{"ConfigMap/b", "Secret/c"},
		},
		"PullShown": {
			"To pull images with it shows it to nobody; a file of it does.", pod,
			`{apiVersion: v1, kind: Pod, spec: {imagePullSecrets: [{name: pull}], volumes: [{name: v, secret: {secretName: pull}}]}}`, []string{"Secret/pull"},
		},
		"FilesPull":  {"Pods that see all of it see no more.", pod, `{apiVersion: v1, kind: Pod, spec: {imagePullSecrets: [{name: db}]}}`, nil},
		"KeyOfFiles": {"One key is less than all.", pod, `{apiVersion: v1, kind: Pod, spec: {containers: [{env: [{name: A, valueFrom: {secretKeyRef: {name: db, key: a}}}]}]}}`, nil},
		"KeyToAll":   {"All is more than one key.", one, `{apiVersion: v1, kind: Pod, spec: {containers: [{envFrom: [{secretRef: {name: db}}]}]}}`, []string{"Secret/db"}},
		"AnotherKey": {"Another key is another text.", one, `{apiVersion: v1, kind: Pod, spec: {volumes: [{name: v, secret: {secretName: db, items: [{key: b}]}}]}}`, []string{"Secret/db"}},
		"KeyAsFile":  {"It is the same text.", one, `{apiVersion: v1, kind: Pod, spec: {volumes: [{name: v, secret: {secretName: db, items: [{key: a}]}}]}}`, nil},
		"DriverShown": {
			"What its driver is given is not in the volume.", `{apiVersion: v1, kind: Pod, spec: {volumes: [{name: v, csi: {nodePublishSecretRef: {name: a}}}]}}`,
			`{apiVersion: v1, kind: Pod, spec: {volumes: [{name: v, projected: {sources: [{secret: {name: a}}]}}]}}`, []string{"Secret/a"},
		},
		"PullByDriver": {
			"Nor does who pulls images give it to a driver.", pod,
			`{apiVersion: v1, kind: Pod, spec: {volumes: [{name: v, csi: {nodePublishSecretRef: {name: pull}}}]}}`, []string{"Secret/pull"},
		},
		"MountToEnvFrom": {
			"Variables in place of files are another use, and another path is.", `{apiVersion: v1, kind: Service, metadata: {annotations: {refract.dev/mount: "secret/a:/a, secret/b:/b,secret/c:/c"}}}`,
			`{apiVersion: v1, kind: Service, metadata: {annotations: {refract.dev/env-from: secret/a, refract.dev/mount: "secret/b:/b,secret/c:/d"}}}`, []string{"Secret/a", "Secret/c"},
		},
		"OtherService":  {"A Service of another group is none.", "", `{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {annotations: {refract.dev/env-from: secret/a}}}`, nil},
		"Injected":      {"What it names.", "", injected + `}}`, []string{"Secret/db"}},
		"InjectedSame":  {"It does nothing else.", injected + `}}`, injected + `, onConflict: Reject}}`, nil},
		"InjectedOther": {"Other pods have it now.", injected + `}}`, injected + `, containers: {init: true}}}`, []string{"Secret/db"}},
		"Implicit":      {"It takes over what the Service names, now and later.", injected + `}}`, injected + `, implicit: true}}`, []string{"Service/db"}},
		"ImplicitSame":  {"It did before.", injected + `, implicit: true}}`, injected + `, implicit: true}}`, nil},
		"Unreadable": {
			"Another version may be able to read it.", "",
			`{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, spec: {implicit: maybe, envFrom: [{secretRef: {name: db}}]}}`, []string{"Secret/db"},
		},
		"Invalid": {"Another version may take it.", "", injected + `, mode: Later, volumes: [{name: v, configMap: {name: c}}]}}`, []string{"ConfigMap/c", "Secret/db"}},
		"NowAPolicy": {
			"Before nobody could.", `{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, spec: {implicit: maybe}}`, injected + `}}`, []string{"Secret/db"},
		},
		"Malformed": {"What can be read is.", "", `{apiVersion: v1, kind: ServiceAccount, secrets: [a, {name: 1}, {name: b}], imagePullSecrets: {}}`, []string{"Secret/b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before, after := read(t, tc.before), read(t, tc.after)
			is := after.DeepCopy()
			if diff := cmp.Diff(tc.want, shown(Added(before, after))); diff != "" {
				t.Errorf("%s\nAdded(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(is, after); diff != "" {
				t.Errorf("Added() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}
