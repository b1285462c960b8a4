package render

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/fleet/offline/manifest"
)

// TestFollow evaluates two states of a fleet, one after the other. It verifies the clusters of the ConfigMap "settings"
// in the second state. The leader of the ConfigMap, the object that it travels with, is usually a Pod.
func TestFollow(t *testing.T) {
	const (
		fleet = `
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: eu-1}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: us-1}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: PropagationPolicy, metadata: {name: all}, spec: {schedulingMode: Duplicate}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: PropagationPolicy, metadata: {name: eu}, spec: {schedulingMode: Duplicate, placement: [{cluster: eu-1}]}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: PropagationPolicy, metadata: {name: us}, spec: {schedulingMode: Duplicate, placement: [{cluster: us-1}]}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: PropagationPolicy, metadata: {name: alone}, spec: {schedulingMode: Duplicate, disableFollowerScheduling: true}}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: fails}
spec: {overrideRules: [{targetClusters: {clusters: [us-1]}, overriders: {jsonpatch: [{path: /no, operator: remove}]}}]}
---
`
		settings = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}\n---\n"
	)
	pod := func(name, labels, annotations, settings string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {%s}, annotations: {%s}}
spec: {containers: [{name: a, image: a}], volumes: [{name: a, configMap: {name: %s}}]}
---
`, name, labels, annotations, settings)
	}
	const (
		all   = "kubeadmiral.io/propagation-policy-name: all"
		eu    = "kubeadmiral.io/propagation-policy-name: eu"
		us    = "kubeadmiral.io/propagation-policy-name: us"
		fails = ", kubeadmiral.io/override-policy-name: fails"
		gone  = ", kubeadmiral.io/override-policy-name: gone"
		dry   = `kubeadmiral.io/dry-run: "true"`
	)
	cases := map[string]struct {
		reason        string
		before, after string
		want          string
	}{
		"Goes":       {reason: "A follower goes where its leader is placed.", after: pod("web", eu, "", "settings") + settings, want: "eu-1 follows pods web"},
		"Two":        {reason: "A follower with two leaders goes to the clusters of both.", after: pod("a", eu, "", "settings") + settings + pod("b", us, "", "settings"), want: "eu-1 us-1 follows pods a, pods b"},
		"NoLabel":    {reason: "A leader without a propagation policy has no clusters, so its follower has none.", before: pod("web", eu, "", "settings") + settings, after: pod("web", "", "", "settings") + settings, want: "gone"},
		"NotNamed":   {reason: "An object that the leader no longer refers to does not follow it any more.", before: pod("web", eu, "", "settings") + settings, after: pod("web", eu, "", "others") + settings, want: "gone"},
		"Moves":      {reason: "A follower leaves a cluster together with its leader.", before: pod("web", all, "", "settings") + settings, after: pod("web", us, "", "settings") + settings, want: "us-1 follows pods web"},
		"Alone":      {reason: "The propagation policy of a leader can disable following.", after: pod("web", "kubeadmiral.io/propagation-policy-name: alone", "", "settings") + settings, want: "eu-1 us-1"},
		"Disabled":   {reason: "An annotation of the leader can disable it, too.", after: pod("web", eu, `kubeadmiral.io/disable-following: "true"`, "settings") + settings, want: "eu-1 us-1"},
		"Fails":      {reason: "Where a leader cannot be rendered and keeps its content, its followers stay.", before: pod("web", all, "", "settings") + settings, after: pod("web", all+fails, "", "settings") + settings, want: "eu-1 us-1 follows pods web"},
		"FailsAnew":  {reason: "An object does not follow a leader to a cluster where the leader cannot be rendered.", after: pod("web", all+fails, "", "settings") + settings, want: "eu-1 follows pods web"},
		"FailsWhole": {reason: "The followers of a leader that waits for a policy stay on their clusters.", before: pod("web", eu, "", "settings") + settings, after: pod("web", us+gone, "", "settings") + settings, want: "eu-1 follows pods web"},
		"DryRun":     {reason: "The followers of a leader with annotation dry-run stay on their clusters.", before: pod("web", eu, "", "settings") + settings, after: pod("web", us, dry, "settings") + settings, want: "eu-1 follows pods web"},
		"DryRunAnew": {reason: "A leader with annotation dry-run gets no new followers.", after: pod("web", us, dry, "settings") + settings, want: "eu-1 us-1"},
		"Label":      {reason: "A follower with a label of its own also goes to the clusters of its own policy.", after: pod("web", eu, "", "settings") + "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, labels: {" + us + "}}}", want: "eu-1 us-1 follows pods web"},
		"NamedByOne": {reason: "A follower is the leader of another object only on the clusters of its own policy.", after: pod("web", eu, "", "others") +
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: others, labels: {" + us + `}, annotations: {kubeadmiral.io/followers: '[{"kind":"ConfigMap","name":"settings"}]'}}}` + "\n---\n" + settings, want: "us-1 follows configmaps others"},
		"NamesItself": {reason: "An object is not its own follower.", after: "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, labels: {" + us +
			`}, annotations: {kubeadmiral.io/followers: '[{"kind":"ConfigMap","name":"settings"}]'}}}`, want: "us-1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var options Options
			if tc.before != "" {
				before, err := Evaluate(readText(t, fleet+tc.before), Options{})
				if err != nil {
					t.Fatal(err)
				}
				options.Before = before
			}
			for _, chosen := range []func(*manifest.Object) bool{nil, func(o *manifest.Object) bool { return o.Content.GetName() == "settings" }} {
				options.Select = chosen
				e, err := Evaluate(readText(t, fleet+tc.after), options)
				if err != nil {
					t.Fatal(err)
				}
				var got string
				for i := range e.Outcomes {
					if o := &e.Outcomes[i]; o.ID.Name == "settings" {
						got = where(o)
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s\nEvaluate(), all objects %t: -want, +got:\n%s", tc.reason, chosen == nil, diff)
				}
			}
		})
	}
}

// where returns the clusters and leaders of an object.
func where(o *Outcome) string {
	if o.Gone != "" {
		return "gone"
	}
	var names []string
	for i := range o.Clusters {
		names = append(names, o.Clusters[i].Name)
	}
	text := strings.Join(names, " ")
	if len(o.Follows) > 0 {
		text += " follows " + FollowsText(o.Follows)
	}
	return text
}
