package e2e

import (
	"fmt"
	"strings"
	"testing"
)

const allowDatabase = `
apiVersion: refract.dev/v1beta1
kind: ServiceInjectionPolicy
metadata:
  name: db
  namespace: NS
  labels:
    kubeadmiral.io/propagation-policy-name: everywhere
    kubeadmiral.io/override-policy-name: port
  annotations: {refract.dev/rollout-paused: "true", refract.dev/resume-rollout: 0af3}
spec:
  service: db
  selector: {matchLabels: {role: frontend}}
  env:
  - {name: DB_PORT, value: 6379}
  - {name: DB_PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}
`

const portOfMember2 = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: port, namespace: NS}
spec:
  overrideRules:
  - targetClusters: {clusters: [member-2]}
    overriders: {jsonpatch: [{path: /spec/env/0/value, operator: replace, value: "7000"}]}
`

// TestInjectionPolicyTravels has a policy for pods placed like any other object:
// with overrides, as soon as a member knows its kind, and without the status, which
// each member says itself. No Secret travels for it.
func TestInjectionPolicyTravels(t *testing.T) {
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, portOfMember2, allowDatabase))
	do(t, "", "create", "secret", "generic", "-n", ns, "db", "--from-literal=password=x")
	const record = "db.serviceinjectionpolicies.refract.dev"
	rowSays(t, ns, record, "member-1", "TypeNotServed")
	for i := range members {
		name := fmt.Sprintf("member-%d", i+1)
		member(t, name, "apply", "--server-side", "-f", "../../config/crd/refract.dev_serviceinjectionpolicies.yaml")
		member(t, name, "wait", "--for=condition=Established", "crd/serviceinjectionpolicies.refract.dev", "--timeout=30s")
	}
	env := func(values ...string) {
		t.Helper()
		eventually(t, "values", strings.Join(values, " "), func() string {
			var got []string
			for i := range values {
				text := field(get(t, fmt.Sprintf("member-%d", i+1), "serviceinjectionpolicies", ns, "db"), "spec", "env")
				_, value, _ := strings.Cut(text, "name:DB_PORT value:")
				value, _, _ = strings.Cut(value, "]")
				got = append(got, value)
			}
			return strings.Join(got, " ")
		})
	}
	env("6379", "7000", "6379")
	status(t, ns, record, "Synced")
	annotations := get(t, "member-1", "serviceinjectionpolicies", ns, "db").GetAnnotations()
	if annotations["refract.dev/rollout-paused"] != "true" || annotations["refract.dev/resume-rollout"] != "" {
		t.Errorf("annotations: a pause is for all members, and to resume is for one; got %v", annotations)
	}

	// What a member reports is its own, and no drift.
	member(t, "member-1", "patch", "serviceinjectionpolicies", "-n", ns, "db", "--subresource=status", "--type=merge", "-p", `{"status":{"matched":3,"stale":1}}`)
	member(t, "member-1", "annotate", "serviceinjectionpolicies", "-n", ns, "db", "refract.dev/resume-rollout=0af4")
	member(t, "member-1", "patch", "serviceinjectionpolicies", "-n", ns, "db", "--field-manager=somebody", "--type=json",
		"-p", `[{"op":"replace","path":"/spec/env/0/value","value":"1"}]`)
	rowSays(t, ns, record, "member-1", "state:Synced", "count:1", "manager:somebody")
	env("6379", "7000", "6379")
	u := get(t, "member-1", "serviceinjectionpolicies", ns, "db")
	if got := field(u, "status", "matched") + " " + u.GetAnnotations()["refract.dev/resume-rollout"]; got != "3 0af4" {
		t.Errorf("what the member says itself: want it to stay, got %q", got)
	}

	if s := get(t, "member-1", "secret", ns, "db"); s != nil {
		t.Error("the Secret that the policy names travelled with it")
	}
	do(t, "", "delete", "serviceinjectionpolicy", "-n", ns, "db")
	everywhere(t, "deleted", "serviceinjectionpolicies", ns, "db", []string{"absent", "absent", "absent"})
}
