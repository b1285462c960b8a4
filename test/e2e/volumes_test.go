package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"refract.dev/test/harness"
)

// TestClaims: no change of a Deployment on the hub deletes a PersistentVolumeClaim on a cluster. The deletion of a
// claim waits for an approval, unless a user deletes the claim itself. After the deletion of a Deployment, Refract
// keeps the ConfigMap that follows it long enough for a recreation of the Deployment.
func TestClaims(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const manifest = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: NS}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: NS}
data: {color: blue}
---
`
	const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: NS
  labels: {kubeadmiral.io/propagation-policy-name: everywhere}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "nginx:1.25", envFrom: [{configMapRef: {name: settings}}]}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`
	uids := func(kind, name string) (all []string) {
		for i := range 3 {
			u := get(t, fmt.Sprintf("member-%d", i+1), kind, ns, name)
			switch {
			case u == nil:
				all = append(all, "absent")
			case u.GetDeletionTimestamp() != nil:
				all = append(all, "deleting")
			default:
				all = append(all, string(u.GetUID()))
			}
		}
		return all
	}
	path := []string{"metadata", "name"}
	apply(t, in(ns, placeEverywhere, manifest, deployment))
	for kind, name := range map[string]string{"deployment": "web", "persistentvolumeclaim": "data", "configmap": "settings"} {
		everywhere(t, "created", kind, ns, name, []string{name, name, name}, path...)
	}
	status(t, ns, "data.persistentvolumeclaims", "Synced")
	claims, settings, webs := uids("persistentvolumeclaim", "data"), uids("configmap", "settings"), uids("deployment", "web")
	same := func(when string) {
		t.Helper()
		if got := uids("persistentvolumeclaim", "data"); fmt.Sprint(got) != fmt.Sprint(claims) {
			t.Errorf("%s: claims: want %v, got %v", when, claims, got)
		}
		if got := uids("configmap", "settings"); fmt.Sprint(got) != fmt.Sprint(settings) {
			t.Errorf("%s: ConfigMaps: want %v, got %v", when, settings, got)
		}
	}

	do(t, in(ns, deployment), "replace", "--force", "-f", "-")
	eventually(t, "the Deployment is another one", "true", func() string {
		now := uids("deployment", "web")
		for i := range now {
			if now[i] == webs[i] || now[i] == "absent" {
				return fmt.Sprint(now)
			}
		}
		return "true"
	})
	status(t, ns, "web.deployments.apps", "Synced")
	status(t, ns, "data.persistentvolumeclaims", "Synced")
	same("after replace --force")

	do(t, "", "delete", "deployment", "web", "-n", ns)
	everywhere(t, "deleted", "deployment", ns, "web", []string{"absent", "absent", "absent"}, path...)
	for i := range 3 {
		rowSays(t, ns, "data.persistentvolumeclaims", fmt.Sprintf("member-%d", i+1), "AwaitingApproval",
			"the object that it travelled with was deleted on the hub; it is a volume", "--delete-volumes")
	}
	eventually(t, "refract get lists the waiting claims", "true", func() string {
		out, err := env.Refract("get", "persistentvolumeclaim/data", "-n", ns, "--kubeconfig", env.Kubeconfig("hub"))
		if strings.Contains(out, "AwaitingApproval") {
			return "true"
		}
		return fmt.Sprint(out, err)
	})
	eventually(t, "an event reports the waiting claims", "true", func() string {
		return fmt.Sprint(strings.Contains(do(t, "", "get", "events", "-n", ns), "AwaitingApproval"))
	})
	eventually(t, "the FederatedCluster reports the waiting claims", "true", func() string {
		return fmt.Sprint(strings.Contains(condition(get(t, "hub", "federatedcluster", "", "member-1"), "DeletionsHeld", "message"), "copies that hold data: "))
	})
	if out, _ := env.Refract("approve", "member-1", "--kubeconfig", env.Kubeconfig("hub")); !strings.Contains(out, "persistentvolumeclaim/"+ns+": data") {
		t.Errorf("refract approve: want the claim in the list, got %s", out)
	}
	harness.Consistently(t, "nothing is deleted", quiet, func(context.Context) error {
		return is(fmt.Sprint(claims, settings), fmt.Sprint(uids("persistentvolumeclaim", "data"), uids("configmap", "settings")))
	})
	same("after the deletion")

	do(t, "", "delete", "persistentvolumeclaim", "data", "-n", ns, "--wait=false")
	eventually(t, "the copies of the claim are deleted with the hub's claim", "true", func() string {
		for _, is := range uids("persistentvolumeclaim", "data") {
			if is != "absent" && is != "deleting" {
				return is
			}
		}
		return "true"
	})
}
