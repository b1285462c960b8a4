package restart

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/fuzzed"
	"refract.dev/internal/rescue"
)

// FuzzStatus: decide works for any policy and status, and the status that it returns is valid.
func FuzzStatus(f *testing.F) {
	const spec = `"metadata":{"generation":3,"annotations":{"refract.dev/resume-rollout":"x","refract.dev/rollout-paused":"false"}},` +
		`"spec":{"service":"db","implicit":true,"selector":{"matchLabels":{"role":"frontend"}},"rollout":{"strategy":"Rolling","maxConcurrent":2},` +
		`"env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"secretKeyRef":{"name":"db","key":"b"}}}]}`
	for _, status := range []string{
		`{}`, `null`, `7`, `{"rollout":null,"workloads":[{}]}`,
		`{"hash":"x","rollout":{"hash":"x","phase":"Halted","done":-1,"workloads":2147483647,"current":["Deployment/web","Deployment/web","/","CloneSet/x"],"message":"x"}}`,
		`{"rollout":{"hash":"","phase":"Rolling","done":7,"current":["Deployment/web"]},"workloads":[{"kind":"Deployment","name":"web","reason":"OwnerReverts","message":"x"}]}`,
		`{"matched":-1,"conditions":[{"type":"Accepted","status":"True"},{"type":"Accepted","status":"False"},{"type":"RolledOut","lastTransitionTime":null}]}`,
		`{"fromService":{"env":[{"name":"A","value":1},{"name":"C","value":"$(A)"},{}],"envFrom":[{}],"volumes":[{},{"name":"v"}],"volumeMounts":[{"name":"v","mountPath":"/"},{}]}}`,
		`{"fromService":{"env":"x"},"effective":7}`, `{"rollout":{"current":"x"}}`, `{"rollout":{"done":1e99}}`,
	} {
		f.Add([]byte(`{` + spec + `,"status":` + status + `}`))
	}
	f.Add([]byte(`{"spec":{"selector":7},"status":{"rollout":{"phase":"Halted","current":["Deployment/web"]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > fuzzed.MiB {
			t.Skip("more than a MiB")
		}
		decided(t, text)
	})
}

// TestHostileStatuses tests the most expensive statuses.
func TestHostileStatuses(t *testing.T) {
	const spec = `{"spec":{"service":"db","implicit":true,"selector":{},"rollout":{"strategy":"Rolling"}},"status":{`
	for name, part := range map[string][3]string{
		"Current":   {`"rollout":{"hash":"x","current":[`, `"Deployment/web",`, `""]}}}`},
		"Workloads": {`"workloads":[`, `{"kind":"Deployment","name":"web","reason":"OwnerReverts"},`, `{}]}}`},
		"Env":       {`"fromService":{"env":[`, `{"name":"A"},`, `{}]}}}`},
		"Volumes":   {`"fromService":{"volumes":[`, `{"name":"v","emptyDir":{}},`, `{}]}}}`},
		"Mounts":    {`"fromService":{"volumeMounts":[`, `{"name":"v","mountPath":"/v"},`, `{}]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			decided(t, []byte(spec+part[0]+strings.Repeat(part[1], (fuzzed.MiB-500)/len(part[1]))+part[2]))
		})
	}
}

// decided runs a decision for a namespace with one policy.
func decided(t *testing.T, text []byte) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if utiljson.Unmarshal(text, &u.Object) != nil || u.Object == nil {
		t.Skip("no object")
	}
	// The API server sets these fields in every object.
	u.SetAPIVersion(refractv1beta1.GroupVersion.String())
	u.SetKind(refractv1beta1.KindServiceInjectionPolicy)
	if metadata, ok := u.Object["metadata"].(map[string]any); !ok {
		u.Object["metadata"] = map[string]any{}
	} else {
		delete(metadata, "deletionTimestamp")
	}
	u.SetNamespace("shop")
	u.SetName("a")
	u.SetUID("policy-a")
	fuzzed.Run(t, func() int {
		s := newStore(logr.Discard(), func(string) {}, readAuthored)
		if err := s.Add(u); err != nil {
			t.Errorf("Add(): %v", err)
		}
		r, ns := &gatherer{log: logr.Discard()}, newNamespaceState("shop")
		ns.policies = ns.policies.compile(r.log, s.all("shop"))
		var policies []*policy
		for _, of := range ns.policies.compiled {
			policies = append(policies, r.policy(ns, of))
		}
		var stale, injected []string
		if len(policies) == 1 && policies[0].problem == "" { // Only a policy that is in effect has states of pods.
			stale, injected = []string{"a Stale"}, []string{"a Injected"}
		}
		p := decide(scene(policies,
			owner("Deployment/web", pods(2, stale...)), owner("Deployment/done", pods(1, injected...), annotated),
			owner("CloneSet/x", pods(1, stale...)), owner("ReplicaSet/r", pods(1, stale...), incomplete), owner("Job/j", pods(1, stale...)),
		))
		status := p.statuses["a"]
		if len(policies) != 1 || status == nil {
			t.Fatalf("want one policy with a status, got %d and %v", len(policies), status)
		}
		if len(status.Workloads) > mostWorkloads || len(status.Conditions) != 3 {
			t.Errorf("want at most %d workloads and 3 conditions, got %d and %d", mostWorkloads, len(status.Workloads), len(status.Conditions))
		}
		for i := range status.Conditions {
			if c := &status.Conditions[i]; len(c.Message) > mostMessage+len("…") || c.Reason == "" {
				t.Errorf("want a reason and a short message, got %q and %d bytes", c.Reason, len(c.Message))
			}
		}
		if r := status.Rollout; r != nil && policies[0].hash != "" && r.Hash != policies[0].hash {
			t.Errorf("the rollout is about %q, want %q", r.Hash, policies[0].hash)
		}
		if _, err := json.Marshal(ours(policies[0].status)); err != nil {
			t.Errorf("what was written is not to be compared: %v", err)
		}
		return len(text)
	}, rescue.Count)
}
