package checkup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestReport(t *testing.T) {
	r := &Report{Server: "https://hub", Installed: []string{"propagation"}, Results: []Result{
		{Check: "version", OK: true, Message: "Kubernetes v1.37.1"},
		{Check: "certificate", Message: "has expired", Do: "delete the secret"},
	}}
	if !r.Failed() || (&Report{Results: r.Results[:1]}).Failed() {
		t.Error("want one thing that is wrong to be enough, and none to be none")
	}
	var text, data strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	const want = "✔ version      Kubernetes v1.37.1\n✗ certificate  has expired\n               → delete the secret\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("text: -want, +got:\n%s", diff)
	}
	if err := r.WriteJSON(&data); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(data.String(), `"do": "delete the secret"`) || strings.Count(data.String(), `"do"`) != 1 {
		t.Errorf("JSON: got %s", &data)
	}
}

func TestRightsOf(t *testing.T) {
	rule := &rbacv1.PolicyRule{APIGroups: []string{"", "apps"}, Resources: []string{"pods/eviction", "*"}, ResourceNames: []string{"a", "b"}, Verbs: []string{"get"}}
	want := []authorizationv1.ResourceAttributes{
		{Namespace: "sys", Group: "", Resource: "pods", Subresource: "eviction", Verb: "get", Name: "a"},
		{Namespace: "sys", Group: "", Resource: "pods", Subresource: "eviction", Verb: "get", Name: "b"},
		{Namespace: "sys", Group: "apps", Resource: "pods", Subresource: "eviction", Verb: "get", Name: "a"},
		{Namespace: "sys", Group: "apps", Resource: "pods", Subresource: "eviction", Verb: "get", Name: "b"},
	}
	if diff := cmp.Diff(want, rightsOf(rule, "sys")); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if got := describeRight(&want[2]); got != "get pods/eviction.apps a in namespace sys" {
		t.Errorf("got %q", got)
	}
}

func TestSome(t *testing.T) {
	for want, texts := range map[string][]string{"a": {"a"}, "a; b; c": {"a", "b", "c"}, "a; b; c and 2 more": {"a", "b", "c", "d", "e"}} {
		if got := some(texts); got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	}
}
