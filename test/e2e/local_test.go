package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

// assignedObjects are objects with fields that the API server of the hub assigns.
const assignedObjects = `
apiVersion: v1
kind: Service
metadata: {name: front, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: web}, ports: [{name: http, port: 80}, {name: https, port: 443}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: pi, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: pi, image: perl}]}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// appliedFields are the fields that Refract applied to a copy, as one text.
func appliedFields(t *testing.T, cluster, kind, ns, name string) string {
	t.Helper()
	u := get(t, cluster, kind, ns, name)
	if u == nil {
		return "absent"
	}
	for _, m := range u.GetManagedFields() {
		if m.Manager == "refract" && m.Subresource == "" && m.FieldsV1 != nil {
			return string(m.FieldsV1.GetRawBytes())
		}
	}
	return "nothing"
}

// TestAssignedFieldsStayLocal: each cluster assigns its own addresses, ports and selectors.
func TestAssignedFieldsStayLocal(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, assignedObjects))
	for kind, name := range map[string]string{"service": "front", "job": "pi", "persistentvolumeclaim": "data"} {
		for _, member := range []string{"member-1", "member-2", "member-3"} {
			eventually(t, kind+" on "+member, "sent without assigned fields", func() string {
				fields := appliedFields(t, member, kind, ns, name)
				for _, field := range []string{
					"f:clusterIP", "f:nodePort", "f:healthCheckNodePort", "f:ipFamil", "f:selector\":{\"f:matchLabels", "controller-uid",
					"f:volumeName",
				} {
					if strings.Contains(fields, field) {
						return field
					}
				}
				if !strings.Contains(fields, "f:spec") {
					return fields
				}
				return "sent without assigned fields"
			})
		}
	}
	everywhere(t, "a headless Service", "service", ns, "headless", []string{"None", "None", "None"}, "spec", "clusterIP")
	for _, record := range []string{"front.services", "headless.services", "data.persistentvolumeclaims"} {
		status(t, ns, record, "Synced")
	}
	// The Service is created again on the hub, which assigns another address. The copies keep their addresses.
	before := harness.Field(there(t, "member-2", "service", ns, "front"), "spec", "clusterIP")
	remove(t, "hub", "service", ns, "front")
	apply(t, in(ns, assignedObjects))
	eventually(t, "the Service of the new UID", "Synced", func() string {
		uid := string(there(t, "hub", "service", ns, "front").GetUID())
		service := get(t, "member-2", "service", ns, "front")
		if service == nil {
			return "deleted with the Service of the former UID"
		}
		if source := service.GetAnnotations()["refract.dev/source"]; !strings.Contains(source, uid) {
			return source
		}
		return "Synced"
	})
	rowSays(t, ns, "front.services", "member-2", "Synced")
	if after := harness.Field(there(t, "member-2", "service", ns, "front"), "spec", "clusterIP"); after == "" || before == "" {
		t.Errorf("clusterIP before and after: %q, %q", before, after)
	}
}

// TestTokenStaysOnTheHub: the Secret with the token of a ServiceAccount is not propagated.
func TestTokenStaysOnTheHub(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const token = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: sa, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata: {name: sa-token, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}, annotations: {kubernetes.io/service-account.name: sa}}
`
	apply(t, in(ns, placeEverywhere, token))
	everywhere(t, "the ServiceAccount", "serviceaccount", ns, "sa", []string{"sa", "sa", "sa"}, "metadata", "name")
	eventually(t, "the record of the token", "MadeByEachCluster", func() string {
		p := get(t, "hub", "propagations.refract.dev", ns, "sa-token.secrets")
		if p != nil && strings.Contains(fmt.Sprint(p.Object["status"]), "MadeByEachCluster") {
			return "MadeByEachCluster"
		}
		return "other"
	})
	everywhere(t, "the token", "secret", ns, "sa-token", []string{"absent", "absent", "absent"}, "metadata", "name")
}

// TestLeftToMembers: Refract sends a field that is left to the members only when it creates the copy.
func TestLeftToMembers(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const config = `
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: NS
  labels: {kubeadmiral.io/propagation-policy-name: everywhere}
  annotations: {refract.dev/left-to-members: '["/data/level"]'}
data: {level: info, size: small}
`
	apply(t, in(ns, placeEverywhere, config))
	everywhere(t, "sent at first", "configmap", ns, "settings", []string{"info", "info", "info"}, "data", "level")
	change(t, "member-2", "configmap", ns, "settings", `{"data":{"level":"debug"}}`)
	change(t, "hub", "configmap", ns, "settings", `{"data":{"level":"warn","size":"large"}}`)
	everywhere(t, "another field changes", "configmap", ns, "settings", []string{"large", "large", "large"}, "data", "size")
	everywhere(t, "the field stays", "configmap", ns, "settings", []string{"info", "debug", "info"}, "data", "level")
	rowSays(t, ns, "settings.configmaps", "member-2", "Synced")
	change(t, "hub", "configmap", ns, "settings", `{"data":{"size":"huge"}}`)
	everywhere(t, "another field changes once more", "configmap", ns, "settings", []string{"huge", "huge", "huge"}, "data", "size")
	everywhere(t, "the field still stays", "configmap", ns, "settings", []string{"info", "debug", "info"}, "data", "level")
	annotate(t, "configmap", ns, "settings", `"refract.dev/left-to-members":null`)
	everywhere(t, "taken back", "configmap", ns, "settings", []string{"warn", "warn", "warn"}, "data", "level")
}

// TestAssignedFieldsAreReturned: in copies of the previous version, Refract owns fields that the hub assigned. Refract
// gives up these fields, and the copies keep the values.
func TestAssignedFieldsAreReturned(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, assignedObjects))
	const member = "member-2"
	rowSays(t, ns, "front.services", member, "Synced")
	rowSays(t, ns, "data.persistentvolumeclaims", member, "Synced")
	// The previous version sent these fields: they have the member's values and Refract as their manager.
	adopt := func(kind, name string, spec map[string]any) {
		u := there(t, member, kind, ns, name)
		annotations := u.GetAnnotations()
		body, err := json.Marshal(map[string]any{
			"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(),
			"metadata": map[string]any{
				"name": name, "namespace": ns, "uid": u.GetUID(), "labels": map[string]any{"kubeadmiral.io/managed": "true"},
				"annotations": map[string]any{"refract.dev/source": annotations["refract.dev/source"], "refract.dev/applied": "00000000000000000000000000000000"},
			},
			"spec": spec,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := clients[member].Patch(context.Background(), u, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner("refract"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	service := there(t, member, "service", ns, "front").Object["spec"].(map[string]any)
	adopt("service", "front", service)
	claim := there(t, member, "persistentvolumeclaim", ns, "data").Object["spec"].(map[string]any)
	claim["volumeName"] = "pv-of-" + ns
	adopt("persistentvolumeclaim", "data", claim)
	for kind, name := range map[string]string{"service": "front", "persistentvolumeclaim": "data"} {
		eventually(t, kind+" is written anew", "written", func() string {
			if there(t, member, kind, ns, name).GetAnnotations()["refract.dev/applied"] == "00000000000000000000000000000000" {
				return "as before"
			}
			return "written"
		})
	}
	rowSays(t, ns, "front.services", member, "Synced")
	rowSays(t, ns, "data.persistentvolumeclaims", member, "Synced")
	now := there(t, member, "service", ns, "front").Object["spec"].(map[string]any)
	for _, field := range []string{"clusterIP", "clusterIPs", "ports", "healthCheckNodePort", "ipFamilies"} {
		if was, is := fmt.Sprint(service[field]), fmt.Sprint(now[field]); was != is {
			t.Errorf("spec.%s: was %s, is %s", field, was, is)
		}
	}
	if is := harness.Field(there(t, member, "persistentvolumeclaim", ns, "data"), "spec", "volumeName"); is != "pv-of-"+ns {
		t.Errorf("spec.volumeName: want it kept, got %q", is)
	}
}
