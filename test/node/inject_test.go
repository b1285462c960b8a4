package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
	"refract.dev/test/node/cluster"
)

// A Secret and an application of users, and the policy of the owner of the service, as in the source document.
const (
	shop = `
apiVersion: v1
kind: Namespace
metadata: {name: NS}
---
apiVersion: v1
kind: Secret
metadata: {name: db, namespace: NS}
stringData: {password: hunter2, ca.crt: an authority}
`
	allowDatabase = `
apiVersion: refract.dev/v1beta1
kind: ServiceInjectionPolicy
metadata: {name: allow-database, namespace: NS}
spec:
  service: db
  selector: {matchLabels: {role: frontend}}
  env:
  - {name: DB_PORT, value: VALUE}
  - {name: DB_PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}
  volumes:
  - name: db
    secret: {secretName: db}
  volumeMounts:
  - {name: db, mountPath: /etc/db, readOnly: true}
`
	website = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: website, namespace: NS}
spec:
  replicas: 2
  selector: {matchLabels: {app: website}}
  template:
    metadata: {labels: {app: website, role: frontend}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - {name: website, image: IMAGE, args: [report, /etc/db/ca.crt, /etc/db/password], env: [{name: OWN, value: "1"}]}
`
)

// seen is the environment and the files that a container reports.
type seen struct {
	Env   map[string]string `json:"env"`
	Files map[string]string `json:"files"`
}

// inject tests that containers have the items of a policy, and that existing pods are recreated after a change.
func inject(t *testing.T) {
	t.Helper()
	ns := harness.NameOf(t)
	apply(t, ns, shop)
	policy := func(port string) { apply(t, ns, strings.ReplaceAll(allowDatabase, "VALUE", port)) }
	policy("6379")
	apply(t, ns, strings.ReplaceAll(website, "IMAGE", cluster.PodImage))
	first := reports(t, ns, "6379")
	policy("7000")
	for pod := range reports(t, ns, "7000") {
		if first[pod] {
			t.Errorf("pod %s is older than the change of the policy", pod)
		}
	}
	kubectl(t, "", "delete", "namespace", ns, "--wait=false")
}

// reports waits until all pods of the website report a port, and returns their UIDs.
func reports(t *testing.T, ns, port string) map[string]bool {
	t.Helper()
	var all map[string]bool
	harness.Eventually(t, "the containers see port "+port, func(ctx context.Context) error {
		if err := complete(ctx, ns, "website"); err != nil {
			return err
		}
		list := &corev1.PodList{}
		if err := api.List(ctx, list, client.InNamespace(ns)); err != nil {
			return err
		}
		all = map[string]bool{}
		for i := range list.Items {
			p := &list.Items[i]
			if p.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s is being deleted", p.Name)
			}
			text, err := typed.CoreV1().Pods(ns).GetLogs(p.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			if err != nil {
				return err
			}
			if err := sees(text, port); err != nil {
				return fmt.Errorf("pod %s: %w", p.Name, err)
			}
			all[string(p.UID)] = true
		}
		return nil
	})
	return all
}

// sees returns an error unless a container has reported all items of the policy.
func sees(text []byte, port string) error {
	var s seen
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("reading its report, %q: %w", text, err)
	}
	got := map[string]string{"DB_PORT": s.Env["DB_PORT"], "DB_PASSWORD": s.Env["DB_PASSWORD"], "OWN": s.Env["OWN"]}
	want := map[string]string{"DB_PORT": port, "DB_PASSWORD": "hunter2", "OWN": "1"}
	files := map[string]string{"/etc/db/ca.crt": "an authority", "/etc/db/password": "hunter2"}
	if diff := cmp.Diff(want, got) + cmp.Diff(files, s.Files); diff != "" {
		return fmt.Errorf("environment and files: -want, +got:\n%s", diff)
	}
	return nil
}
