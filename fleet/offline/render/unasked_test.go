package render

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"refract.dev/fleet/offline/manifest"
)

// TestUnasked verifies the warnings about references that an override policy adds. A recorded authorization prevents
// them.
func TestUnasked(t *testing.T) {
	const (
		rest = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere, namespace: shop}
spec: {schedulingMode: Duplicate}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: eu-1}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: us-1}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {kubeadmiral.io/propagation-policy-name: everywhere, kubeadmiral.io/override-policy-name: pull}}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web, envFrom: [{secretRef: {name: own}}]}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: shop, labels: {kubeadmiral.io/propagation-policy-name: everywhere, kubeadmiral.io/override-policy-name: pull}}
spec: {selector: {matchLabels: {app: api}}, template: {metadata: {labels: {app: api}}, spec: {containers: [{name: api, image: api}]}}}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
`
		spec = `
spec: {overrideRules: [{targetClusters: {clusters: [us-1]}, overriders: {jsonpatch: [{path: /spec/template/spec/imagePullSecrets, operator: add, value: [{name: key}]}]}}]}
`
		may = `status: {references: {observedGeneration: 2, items: [{kind: Secret, name: key}]}}`
	)
	const unknown, refused = "which is unknown here", "but it is not"
	cases := map[string]struct {
		reason   string
		metadata string
		status   string
		live     bool
		only     []string
		want     string // A part of the message; empty without a warning.
	}{
		"Manifest":   {reason: "A manifest does not record whether its references were authorized.", metadata: "{name: pull, namespace: shop}", want: unknown},
		"Elsewhere":  {reason: "On the shown clusters, the policy adds no references.", metadata: "{name: pull, namespace: shop}", only: []string{"eu-1"}},
		"Snapshot":   {reason: "A snapshot has the status of the policy.", metadata: "{name: pull, namespace: shop, uid: u, generation: 2}", status: may},
		"Older":      {reason: "The authorization is for an earlier generation of the policy.", metadata: "{name: pull, namespace: shop, uid: u, generation: 3}", status: may, want: unknown},
		"Other":      {reason: "The authorization is for another Secret.", metadata: "{name: pull, namespace: shop, uid: u, generation: 2}", status: strings.Replace(may, "name: key", "name: other", 1), want: refused},
		"Hub":        {reason: "On a hub, the references of a policy without an authorization in its status are not authorized.", metadata: "{name: pull, namespace: shop, uid: u, generation: 2}", live: true, want: refused},
		"HubSays":    {reason: "The status has the authorization.", metadata: "{name: pull, namespace: shop, uid: u, generation: 2}", status: may, live: true},
		"HubWasOnce": {reason: "On a hub, the authorization in the status is for an earlier generation.", metadata: "{name: pull, namespace: shop, uid: u, generation: 3}", status: may, live: true, want: refused},
		"OverAHub":   {reason: "The references of a manifest that changes a policy on a hub have not been checked yet.", metadata: "{name: pull, namespace: shop}", live: true, want: unknown},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set, problems := manifest.ReadFS(fstest.MapFS{"fleet.yaml": {Data: []byte(rest + "metadata: " + tc.metadata + spec + tc.status)}})
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			set.Live = tc.live
			e, err := Evaluate(set, Options{Clusters: tc.only})
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			if tc.want != "" {
				want = []string{"OverridePolicy shop/pull: makes objects refer to Secret shop/key: shown as if allowed, " + tc.want}
			}
			for _, f := range e.Unasked() {
				text, _, _ := strings.Cut(f.String(), ";")
				got = append(got, text)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s\nUnasked(): -want, +got:\n%s", tc.reason, diff)
			}
			if _, warnings := e.Findings(); len(warnings) != len(want) {
				t.Errorf("%s\nFindings(): want it among the warnings, got %v", tc.reason, warnings)
			}
		})
	}
}
