package render

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"refract.dev/fleet/offline/manifest"
)

// TestBefore evaluates two states of a fleet, one after the other. The second result depends on facts of the first
// state, which the controllers would remember.
func TestBefore(t *testing.T) {
	const (
		eu   = "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: eu-1, labels: {tier: std}}}\n---\n"
		gold = "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: eu-1, labels: {tier: gold}}}\n---\n"
		us   = "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: us-1}}\n---\n"

		all = "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: ClusterPropagationPolicy, metadata: {name: all}, spec: {schedulingMode: Duplicate}}\n---\n"
		one = "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: ClusterPropagationPolicy, metadata: {name: all}, spec: {schedulingMode: Duplicate, maxClusters: 1}}\n---\n"

		tiers = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: tiers}
spec: {overrideRules: [{targetClusters: {clusterSelector: {tier: gold}}, overriders: {jsonpatch: [{path: /data/k, value: gold}]}}]}
---
`
		labels = "kubeadmiral.io/cluster-propagation-policy-name: all, kubeadmiral.io/override-policy-name: tiers"
		object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {" + labels + "}}, data: {k: v}}\n---\n"
		held   = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {` + labels + `}, annotations: {kubeadmiral.io/no-scheduling: "true"}}, data: {k: v}}` + "\n---\n"
		plain  = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}\n---\n"
		native = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, labels: {" + labels + "}}}\n---\n"

		nativePlain = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}\n---\n"

		onUS = `
apiVersion: refract.dev/v1alpha1
kind: Propagation
metadata: {name: a.configmaps}
spec: {source: {apiVersion: v1, kind: ConfigMap, resource: configmaps, name: a}}
status: {clusters: [{name: us-1, state: Synced}], overridePolicies: [{kind: OverridePolicy, namespace: default, name: tiers}]}
---
`
	)
	cases := map[string]struct {
		reason        string
		before, after string
		want          string
	}{
		"Sticky":          {reason: "An object stays on its clusters where the policy leaves a choice.", before: us + one + tiers + object, after: eu + us + one + tiers + object, want: "us-1 v"},
		"PolicyDeleted":   {reason: "The changes of a deleted override policy are rolled back.", before: gold + all + tiers + object, after: gold + all + object, want: "eu-1 v"},
		"NeverThere":      {reason: "An object waits for a policy that has never existed.", before: gold + all, after: gold + all + object, want: "error"},
		"PlacementGone":   {reason: "If its propagation policy is deleted, an object stays on its clusters, and is rendered for their present labels.", before: eu + all + tiers + object, after: gold + us + tiers + object, want: "eu-1 gold"},
		"ClusterGone":     {reason: "A cluster that left gets nothing.", before: eu + us + all + tiers + object, after: us + tiers + object, want: "us-1 v"},
		"AllClustersGone": {reason: "If all of its clusters have left, an object waits for its propagation policy.", before: eu + all + tiers + object, after: us + tiers + object, want: "error"},
		"ReportOfBefore":  {reason: "An object that could not be rendered before stays on the clusters that its Propagation reports.", before: eu + us + one + object + onUS, after: eu + us + one + tiers + object, want: "us-1 v"},
		"RolledBack":      {reason: "A policy that the Propagation reports has existed, so its changes are rolled back.", before: eu + us + one + object + onUS, after: eu + us + one + object, want: "us-1 v"},
		"Held":            {reason: "An annotation keeps the object on its clusters, whatever the policy would choose now.", before: eu + us + one + tiers + held + onUS, after: eu + us + one + tiers + object, want: "us-1 v"},
		"Unlabelled":      {reason: "An object that loses its propagation label is deleted.", before: eu + all + tiers + object, after: eu + all + tiers + plain, want: "gone"},
		"Native":          {reason: "Objects that each cluster creates itself are placed nowhere.", before: eu + all, after: eu + all + native, want: "error"},
		"NativePlain":     {reason: "Without a label, it is not shown, either.", before: eu + us + all, after: eu + us + all + nativePlain, want: "gone"},
		"AlwaysPlain":     {reason: "An object that never had a propagation label is shown for every cluster, before and after the change.", before: eu + us + plain, after: eu + us + plain, want: "eu-1 v us-1 v"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before, err := Evaluate(readText(t, tc.before), Options{})
			if err != nil {
				t.Fatal(err)
			}
			after, err := Evaluate(readText(t, tc.after), Options{Before: before})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, inShort(&after.Outcomes[0])); diff != "" {
				t.Errorf("%s\nEvaluate(): -want, +got:\n%s", tc.reason, diff)
			}
			after.Result() // Result must not refer to clusters that do not exist any more.
		})
	}
}

func readText(t *testing.T, text string) *manifest.Set {
	t.Helper()
	set, problems := manifest.ReadFS(fstest.MapFS{"a.yaml": {Data: []byte(text)}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return set
}

// inShort returns CLUSTER VALUE for each cluster. The value is that of /data/k.
func inShort(o *Outcome) string {
	if o.Gone != "" {
		return "gone"
	}
	if len(o.Errors()) > 0 {
		return "error"
	}
	var all []string
	for _, c := range o.byCluster() {
		data, _ := c.variant.Object.Object["data"].(map[string]any)
		all = append(all, fmt.Sprintf("%s %v", c.name, data["k"]))
	}
	return strings.Join(all, " ")
}
