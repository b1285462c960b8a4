package simulation

import (
	"encoding/json"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestWorkloads: kstatus derives the intended state from the simulated status of a Deployment.
func TestWorkloads(t *testing.T) {
	for is, want := range map[Workloads]status.Status{ReadyWorkloads: status.CurrentStatus, UnreadyWorkloads: status.InProgressStatus} {
		u := &unstructured.Unstructured{}
		const text = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":5}}`
		if err := json.Unmarshal([]byte(text), &u.Object); err != nil { // The server decodes stored objects in the same way.
			t.Fatal(err)
		}
		u.SetGeneration(2)
		u.Object["status"] = statusOf(u, is)
		whole, err := json.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		u = &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(whole); err != nil {
			t.Fatal(err)
		}
		got, err := status.Compute(u)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status != want {
			t.Errorf("%s: want %s, got %s: %s", is, want, got.Status, got.Message)
		}
	}
}
