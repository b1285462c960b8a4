package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"refract.dev/test/harness"
)

// cluster returns a FederatedCluster with a Secret for its endpoint, with these data.
func cluster(name, endpoint, data string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: kube-admiral-system, annotations: {refract.dev/endpoint: %q}}
stringData: {%s}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: FederatedCluster
metadata: {name: %s, labels: {broken: "true"}}
spec: {apiEndpoint: %q, secretRef: {name: %s}, taints: [{key: broken, effect: NoExecute}]}
`, name, endpoint, data, name, endpoint, name)
}

func TestClusterThatCannotBeReached(t *testing.T) {
	t.Parallel()
	to, err := env.Access("member-1")
	if err != nil {
		t.Fatal(err)
	}
	hub, err := env.Access("hub")
	if err != nil {
		t.Fatal(err)
	}
	keys := fmt.Sprintf("client-certificate-data: %q, client-key-data: %q", to.Cert, to.Key)
	cases := map[string]struct{ reason, endpoint, data, want, message string }{
		"refused":  {"The port is closed.", "https://127.0.0.1:1", keys, "Unreachable", "connection refused"},
		"wrong-ca": {"The certificate was not made by the authority in the Secret.", to.Endpoint, keys + fmt.Sprintf(", certificate-authority-data: %q", hub.CA), "CertificateInvalid", "certificate"},
		"no-keys":  {"The Secret has no keys.", to.Endpoint, "", "InvalidCredentials", "key client-certificate-data is missing"},
		"no-token": {
			"The API server rejects the token.",
			to.Endpoint, fmt.Sprintf("service-account-token-data: wrong, certificate-authority-data: %q", to.CA), "Unauthorized", "does not accept the credentials",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			name := "broken-" + name
			apply(t, cluster(name, tc.endpoint, tc.data))
			t.Cleanup(func() { remove(t, "hub", "federatedcluster", "", name) })
			eventually(t, tc.reason, tc.want, func() string {
				return condition(get(t, "hub", "federatedcluster", "", name), "Ready", "reason")
			})
			if got := condition(get(t, "hub", "federatedcluster", "", name), "Ready", "message"); !strings.Contains(got, tc.message) {
				t.Errorf("%s\nmessage: want %q in it, got %q", tc.reason, tc.message, got)
			}
		})
	}
}

func TestBrokenClusterDelaysNoOther(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	manifest := cluster("broken-delay", "https://127.0.0.1:1", `client-certificate-data: "", service-account-token-data: t`)
	apply(t, strings.ReplaceAll(manifest, "key: broken", "key: delay"))
	t.Cleanup(func() { remove(t, "hub", "federatedcluster", "", "broken-delay") })
	// Other tests need the taint; this one tolerates it.
	tolerant := strings.ReplaceAll(placeEverywhere, "schedulingMode: Duplicate", "schedulingMode: Duplicate, tolerations: [{key: delay, operator: Exists}]")
	apply(t, in(ns, tolerant, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
}

func TestJoinAndUnjoin(t *testing.T) {
	t.Parallel()
	hub := env.Kubeconfig("hub")
	fails := func(want string, args ...string) {
		t.Helper()
		_, err := env.Refract(args...)
		if err == nil || !strings.Contains(err.Error(), "exit status 2") || !strings.Contains(err.Error(), want) {
			t.Errorf("refract %s: want exit status 2 and %q, got %v", strings.Join(args, " "), want, err)
		}
	}
	join := func(name, member string) []string {
		return []string{"join", name, "--kubeconfig", hub, "--member-kubeconfig", member}
	}
	fails(`cluster "member-1" is joined already`, join("member-1", env.Kubeconfig("member-2"))...)
	fails("no such file", join("new", "nowhere.yaml")...)
	fails(`cluster name "Not_A_Name"`, join("Not_A_Name", env.Kubeconfig("member-2"))...)
	fails(`cluster "nobody" is not joined`, "unjoin", "nobody", "--kubeconfig", hub)

	closed := filepath.Join(t.TempDir(), "closed.yaml")
	text, err := os.ReadFile(env.Kubeconfig("member-2"))
	if err != nil {
		t.Fatal(err)
	}
	to, err := env.Access("member-2")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(closed, []byte(strings.ReplaceAll(string(text), to.Endpoint, "https://127.0.0.1:1")), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(`reaching cluster "new" at https://127.0.0.1:1`, join("new", closed)...)

	fails("refract join second-name --replaces member-2 renames it", join("second-name", env.Kubeconfig("member-2"))...)

	// A user creates a FederatedCluster with the same Secret.
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	uid := get(t, "member-2", "deployment", ns, "web").GetUID()
	apply(t, fmt.Sprintf(`
apiVersion: core.kubeadmiral.io/v1alpha1
kind: FederatedCluster
metadata: {name: second-name, labels: {region: moon}}
spec: {apiEndpoint: %q, secretRef: {name: member-2}}
`, there(t, "hub", "federatedcluster", "", "member-2").Object["spec"].(map[string]any)["apiEndpoint"]))
	eventually(t, "one cluster under two names", "DuplicateCluster", func() string {
		return condition(get(t, "hub", "federatedcluster", "", "second-name"), "Ready", "reason")
	})
	if got := there(t, "hub", "federatedcluster", "", "second-name").GetLabels()["region"]; got != "moon" {
		t.Errorf("label region: want moon, got %q", got)
	}
	fails(`cluster "second-name" is another name of "member-2"`, "unjoin", "second-name", "--yes", "--kubeconfig", hub)
	fails(`cluster "member-2" has another name, or may have one, "second-name"`, "unjoin", "member-2", "--yes", "--kubeconfig", hub)
	if _, err := env.Refract("unjoin", "second-name", "--force", "--kubeconfig", hub); err != nil {
		t.Fatal(err)
	}
	if u := get(t, "hub", "secret", "kube-admiral-system", "member-2"); u == nil {
		t.Error("want the Secret to stay, because another cluster refers to it")
	}
	if u := get(t, "member-2", "deployment", ns, "web"); u == nil || u.GetUID() != uid || u.GetDeletionTimestamp() != nil {
		t.Errorf("want the copy unchanged, got %v", u)
	}
}

func TestInvalidPolicyIsRefusedOrReported(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const policy = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: web, namespace: NS}
spec: {overrideRules: [{overriders: {%s}}]}
`
	refused := map[string]struct{ overriders, want string }{
		"UnknownEnum":   {`labels: [{operator: upsert, value: {a: b}}]`, `Unsupported value: "upsert"`},
		"UnknownField":  {`label: []`, `unknown field "spec.overrideRules[0].overriders.label"`},
		"EmptyImage":    {`image: [{operations: [{imageComponent: Tag}]}]`, "to take the component away use operator delete"},
		"PathNoSlash":   {`jsonpatch: [{path: spec/replicas, value: 1}]`, "spec.overrideRules[0].overriders.jsonpatch[0].path"},
		"AppendNothing": {`args: [{containerName: web, operator: append, value: []}]`, "value must not be empty with operator append"},
	}
	for name, tc := range refused {
		t.Run(name, func(t *testing.T) {
			_, err := env.Kubectl("hub", in(ns, fmt.Sprintf(policy, tc.overriders)), "apply", "-f", "-")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want a rejection with %q, got %v", tc.want, err)
			}
		})
	}
	// The schema cannot find some mistakes. The controllers find them when they read the policy.
	apply(t, in(ns, placeEverywhere, web, fmt.Sprintf(policy, `jsonpatch: [{path: /metadata/name, value: other}]`)))
	p := status(t, ns, "web.deployments.apps", "OverrideFailed")
	if got := condition(p, "Synced", "message"); !strings.Contains(got, "OverridePolicy "+ns+"/web rule 0 jsonpatch[0]") || !strings.Contains(got, "may not be overridden") {
		t.Errorf("message: want the policy, the rule and the reason, got %q", got)
	}
	eventually(t, "the status of the policy has the error", "False", func() string {
		return condition(get(t, "hub", "overridepolicy", ns, "web"), "Accepted", "status")
	})
	everywhere(t, "nothing is propagated", "deployment", ns, "web", []string{"absent", "absent", "absent"}, replicas...)
}

// TestTooLargeForTheMember: an override makes an object larger than an API server accepts.
func TestTooLargeForTheMember(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const objects = `
apiVersion: v1
kind: ConfigMap
metadata:
  name: large
  namespace: NS
  labels: {kubeadmiral.io/propagation-policy-name: everywhere, kubeadmiral.io/override-policy-name: large}
data: {a: A}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: large, namespace: NS}
spec: {overrideRules: [{targetClusters: {clusters: [member-2]}, overriders: {jsonpatch: [{path: /data/b, operator: add, value: B}]}}]}
`
	const size = 700 << 10
	large := strings.NewReplacer("A}", strings.Repeat("a", size)+"}", "value: B", "value: "+strings.Repeat("b", size)).Replace(in(ns, objects))
	do(t, large, "create", "-f", "-")
	apply(t, in(ns, placeEverywhere))
	p := status(t, ns, "large.configmaps", "Rejected")
	if got := condition(p, "Synced", "message"); !strings.HasPrefix(got, "member-2: ") || strings.Contains(got, "member-1") {
		t.Errorf("message: want only member-2 named, got %q", got)
	}
	everywhere(t, "the others", "configmap", ns, "large", []string{"large", "absent", "large"}, "metadata", "name")
}

// quiet is the time for which a test checks that an event does not happen: many times the delay at which it would
// usually happen, even on a busy machine.
const quiet = 2 * time.Second

func TestNothingIsWrittenWithoutCause(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	status(t, ns, "web.deployments.apps", "Synced")
	version := func() string {
		return harness.Field(get(t, "member-1", "deployment", ns, "web"), "metadata", "resourceVersion")
	}
	before := version()
	// The first change affects another cluster, and the second one changes nothing in the copies.
	change(t, "hub", "overridepolicy", ns, "web", `[{"op":"add","path":"/spec/overrideRules/-","value":{"targetClusters":{"clusters":["nobody"]}}}]`)
	annotate(t, "deployment", ns, "web", `"kubeadmiral.io/anything":"else"`)
	eventually(t, "the report knows the new policy", "2", func() string {
		p := get(t, "hub", "propagations.refract.dev", ns, "web.deployments.apps")
		if got := harness.Field(p, "status", "overridePolicies"); strings.Contains(got, "generation:2") {
			return "2"
		}
		return "1"
	})
	harness.Consistently(t, "the resourceVersion of the unaffected copy", quiet, func(context.Context) error {
		return is(before, version())
	})
}
