package render

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"refract.dev/fleet/offline/manifest"
)

// TestBefore evaluates two states of a fleet, one after the other. The facts that controllers would remember from the
// first state determine the result of the second.
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
		"Sticky":          {reason: "Where there is a choice an object stays.", before: us + one + tiers + object, after: eu + us + one + tiers + object, want: "us-1 v"},
		"PolicyDeleted":   {reason: "The overrides of a deleted policy are taken back.", before: gold + all + tiers + object, after: gold + all + object, want: "eu-1 v"},
		"NeverThere":      {reason: "A policy that never was there is waited for.", before: gold + all, after: gold + all + object, want: "error"},
		"PlacementGone":   {reason: "Without its placement an object stays where it is, on clusters as they are now.", before: eu + all + tiers + object, after: gold + us + tiers + object, want: "eu-1 gold"},
		"ClusterGone":     {reason: "A cluster that left has nothing.", before: eu + us + all + tiers + object, after: us + tiers + object, want: "us-1 v"},
		"AllClustersGone": {reason: "Where nothing is left, the placement is waited for.", before: eu + all + tiers + object, after: us + tiers + object, want: "error"},
		"ReportOfBefore":  {reason: "What failed before still is where it was reported to be.", before: eu + us + one + object + onUS, after: eu + us + one + tiers + object, want: "us-1 v"},
		"RolledBack":      {reason: "Reported policies are known to have been there.", before: eu + us + one + object + onUS, after: eu + us + one + object, want: "us-1 v"},
		"Held":            {reason: "What is held stays where it is, whatever would be chosen now.", before: eu + us + one + tiers + held + onUS, after: eu + us + one + tiers + object, want: "us-1 v"},
		"Unlabelled":      {reason: "An object that asks for nothing any more goes.", before: eu + all + tiers + object, after: eu + all + tiers + plain, want: "gone"},
		"Native":          {reason: "What each cluster makes for itself is placed nowhere.", before: eu + all, after: eu + all + native, want: "error"},
		"NativePlain":     {reason: "Nor is it shown for any cluster.", before: eu + us + all, after: eu + us + all + nativePlain, want: "gone"},
		"AlwaysPlain":     {reason: "One that never asked is shown for every cluster, both times.", before: eu + us + plain, after: eu + us + plain, want: "eu-1 v us-1 v"},
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
