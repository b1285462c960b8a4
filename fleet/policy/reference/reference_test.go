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
		"Pod":            {"All references of a pod spec count, except objects in every namespace.", "", pod, []string{"Secret/db", "Secret/pull"}},
		"Nothing":        {"An unchanged object adds no references.", pod, pod, nil},
		"ServiceAccount": {"ServiceAccounts and claims have no content to read.", "", `{apiVersion: v1, kind: Pod, spec: {serviceAccountName: a, volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]}}`, nil},
		"OfAnAccount": {
			"A ServiceAccount itself names Secrets.", "", `{apiVersion: v1, kind: ServiceAccount, secrets: [{name: token}], imagePullSecrets: [{name: pull}]}`,
			[]string{"Secret/pull", "Secret/token"},
		},
		"Ingress": {
			"An Ingress names Secrets with certificates.", `{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {tls: [{secretName: a}]}}`,
			`{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {tls: [{secretName: a}, {secretName: b}, {hosts: [c]}]}}`, []string{"Secret/b"},
		},
		"Service": {
			"Injection policies give out the Secrets of a Service.", `{apiVersion: v1, kind: Service, metadata: {annotations: {refract.dev/env-from: secret/a}}}`,
			`{apiVersion: v1, kind: Service, metadata: {annotations: {refract.dev/env-from: "secret/a,configmap/b", refract.dev/mount: "secret/c:/c"}}}`,
			[]string{"ConfigMap/b", "Secret/c"},
		},
		"PullShown": {
			"An image pull Secret is not shown to pods; a file of it is.", pod,
			`{apiVersion: v1, kind: Pod, spec: {imagePullSecrets: [{name: pull}], volumes: [{name: v, secret: {secretName: pull}}]}}`, []string{"Secret/pull"},
		},
		"FilesPull":  {"A pull Secret shows pods no more than the whole Secret.", pod, `{apiVersion: v1, kind: Pod, spec: {imagePullSecrets: [{name: db}]}}`, nil},
		"KeyOfFiles": {"One key shows less than all keys.", pod, `{apiVersion: v1, kind: Pod, spec: {containers: [{env: [{name: A, valueFrom: {secretKeyRef: {name: db, key: a}}}]}]}}`, nil},
		"KeyToAll":   {"All keys show more than one key.", one, `{apiVersion: v1, kind: Pod, spec: {containers: [{envFrom: [{secretRef: {name: db}}]}]}}`, []string{"Secret/db"}},
		"AnotherKey": {"Another key shows another value.", one, `{apiVersion: v1, kind: Pod, spec: {volumes: [{name: v, secret: {secretName: db, items: [{key: b}]}}]}}`, []string{"Secret/db"}},
		"KeyAsFile": {
			"The same key as a file shows the same value.",
			one, `{apiVersion: v1, kind: Pod, spec: {volumes: [{name: v, secret: {secretName: db, items: [{key: a}]}}]}}`, nil,
		},
		"DriverShown": {
			"The volume does not show the Secret of its driver.", `{apiVersion: v1, kind: Pod, spec: {volumes: [{name: v, csi: {nodePublishSecretRef: {name: a}}}]}}`,
			`{apiVersion: v1, kind: Pod, spec: {volumes: [{name: v, projected: {sources: [{secret: {name: a}}]}}]}}`, []string{"Secret/a"},
		},
		"PullByDriver": {
			"The use as a pull Secret does not give the Secret to a driver.", pod,
			`{apiVersion: v1, kind: Pod, spec: {volumes: [{name: v, csi: {nodePublishSecretRef: {name: pull}}}]}}`, []string{"Secret/pull"},
		},
		"MountToEnvFrom": {
			"Variables instead of files, and another path, are other uses.", `{apiVersion: v1, kind: Service, metadata: {annotations: {refract.dev/mount: "secret/a:/a, secret/b:/b,secret/c:/c"}}}`,
			`{apiVersion: v1, kind: Service, metadata: {annotations: {refract.dev/env-from: secret/a, refract.dev/mount: "secret/b:/b,secret/c:/d"}}}`, []string{"Secret/a", "Secret/c"},
		},
		"OtherService":  {"A Service of another group does not count.", "", `{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {annotations: {refract.dev/env-from: secret/a}}}`, nil},
		"Injected":      {"A ServiceInjectionPolicy names objects.", "", injected + `}}`, []string{"Secret/db"}},
		"InjectedSame":  {"The change does not affect which pods get the Secret.", injected + `}}`, injected + `, onConflict: Reject}}`, nil},
		"InjectedOther": {"Other pods get the Secret now.", injected + `}}`, injected + `, containers: {init: true}}}`, []string{"Secret/db"}},
		"Implicit":      {"The policy gives out the Service's objects, now and later.", injected + `}}`, injected + `, implicit: true}}`, []string{"Service/db"}},
		"ImplicitSame":  {"The policy already gave out the objects of the Service.", injected + `, implicit: true}}`, injected + `, implicit: true}}`, nil},
		"Unreadable": {
			"Another version of Refract may be able to read the policy.", "",
			`{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, spec: {implicit: maybe, envFrom: [{secretRef: {name: db}}]}}`, []string{"Secret/db"},
		},
		"Invalid": {"Another version of Refract may accept the policy.", "", injected + `, mode: Later, volumes: [{name: v, configMap: {name: c}}]}}`, []string{"ConfigMap/c", "Secret/db"}},
		"NowAPolicy": {
			"The earlier policy could not be read, so all references count.",
			`{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, spec: {implicit: maybe}}`, injected + `}}`, []string{"Secret/db"},
		},
		"Malformed": {"The readable references count.", "", `{apiVersion: v1, kind: ServiceAccount, secrets: [a, {name: 1}, {name: b}], imagePullSecrets: {}}`, []string{"Secret/b"}},
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
