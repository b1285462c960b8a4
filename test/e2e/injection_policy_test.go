package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
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

// TestInjectionPolicyTravels propagates an injection policy like any other object: with overrides, and as soon as a
// member serves the kind. Each member writes its own status, and the Secret of the policy is not propagated.
func TestInjectionPolicyTravels(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	crd, err := os.ReadFile("../../config/crd/refract.dev_serviceinjectionpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	apply(t, in(ns, placeEverywhere, portOfMember2, allowDatabase))
	apply(t, in(ns, "apiVersion: v1\nkind: Secret\nmetadata: {name: db, namespace: NS}\nstringData: {password: x}\n"))
	const record = "db.serviceinjectionpolicies.refract.dev"
	rowSays(t, ns, record, "member-1", "TypeNotServed")
	for _, m := range env.Members {
		define(t, m, string(crd), "serviceinjectionpolicies.refract.dev")
	}
	env := func(values ...string) {
		t.Helper()
		eventually(t, "values", strings.Join(values, " "), func() string {
			var got []string
			for i := range values {
				text := harness.Field(get(t, fmt.Sprintf("member-%d", i+1), "serviceinjectionpolicies", ns, "db"), "spec", "env")
				_, value, _ := strings.Cut(text, "name:DB_PORT value:")
				value, _, _ = strings.Cut(value, "]")
				got = append(got, value)
			}
			return strings.Join(got, " ")
		})
	}
	env("6379", "7000", "6379")
	status(t, ns, record, "Synced")
	annotations := there(t, "member-1", "serviceinjectionpolicies", ns, "db").GetAnnotations()
	if annotations["refract.dev/rollout-paused"] != "true" || annotations["refract.dev/resume-rollout"] != "" {
		t.Errorf("annotations: a pause applies to all members, a resumption to one; got %v", annotations)
	}

	// A member writes its own status, so a difference is no drift.
	says := client.RawPatch(types.MergePatchType, []byte(`{"status":{"matched":3,"stale":1}}`))
	if err := clients["member-1"].Status().Patch(t.Context(), there(t, "member-1", "serviceinjectionpolicies", ns, "db"), says); err != nil {
		t.Fatal(err)
	}
	change(t, "member-1", "serviceinjectionpolicies", ns, "db", `{"metadata":{"annotations":{"refract.dev/resume-rollout":"0af4"}}}`)
	change(t, "member-1", "serviceinjectionpolicies", ns, "db", `[{"op":"replace","path":"/spec/env/0/value","value":"1"}]`, somebody)
	rowSays(t, ns, record, "member-1", "state:Synced", "count:1", "manager:somebody")
	env("6379", "7000", "6379")
	u := there(t, "member-1", "serviceinjectionpolicies", ns, "db")
	if got := harness.Field(u, "status", "matched") + " " + u.GetAnnotations()["refract.dev/resume-rollout"]; got != "3 0af4" {
		t.Errorf("want the member's own status to stay, got %q", got)
	}

	if s := get(t, "member-1", "secret", ns, "db"); s != nil {
		t.Error("the Secret that the policy names travelled with it")
	}
	remove(t, "hub", "serviceinjectionpolicy", ns, "db")
	everywhere(t, "deleted", "serviceinjectionpolicies", ns, "db", []string{"absent", "absent", "absent"})
}
