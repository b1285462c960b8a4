package propagation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// TestRenderSaysWhatIsDecided covers all combinations of possible problems of an object: the result of refract render
// for a hub equals the decision of the controllers there.
func TestRenderSaysWhatIsDecided(t *testing.T) {
	var (
		propagation = []string{"", "kubeadmiral.io/propagation-policy-name: everywhere", "kubeadmiral.io/propagation-policy-name: one", "kubeadmiral.io/propagation-policy-name: gone", `kubeadmiral.io/propagation-policy-name: ""`}
		overriding  = []string{"", "kubeadmiral.io/override-policy-name: web", "kubeadmiral.io/override-policy-name: fails", "kubeadmiral.io/override-policy-name: gone"}
		annotations = []string{"", `kubeadmiral.io/no-scheduling: "true"`, `kubeadmiral.io/dry-run: "true"`}
		metadata    = []string{"", `, deletionTimestamp: "2026-01-01T00:00:00Z"`}
		before      = []string{"", "{name: us-1, state: Synced}", "{name: eu-1, state: Deleting}, {name: us-1, state: Synced}", "{name: eu-1, state: Synced}, {name: left, state: Synced}", "{name: left, state: Synced}"}
		rendered    = []string{"", "{kind: OverridePolicy, namespace: shop, name: gone}"}
		uids        = []string{"u-1", "u-0"}
		statuses    = []string{"True", "False", ""}
	)
	for _, p := range propagation {
		for _, o := range overriding {
			for _, a := range annotations {
				for _, m := range metadata {
					for _, b := range before {
						for _, r := range rendered {
							for _, u := range uids {
								for _, s := range statuses {
									labels := strings.Trim(p+", "+o, ", ")
									compareAnswers(t, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap,
 metadata: {name: web, namespace: shop, uid: u-1, labels: {%s}, annotations: {%s}%s}}`, labels, a, m), b, r, u, s)
								}
							}
						}
					}
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	compareAnswers(t, `{apiVersion: coordination.k8s.io/v1, kind: Lease,
 metadata: {name: web, namespace: shop, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}}`, "", "", "u-1", "True")
	for _, labels := range []string{"", "kubeadmiral.io/propagation-policy-name: everywhere"} {
		compareAnswers(t, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap,
 metadata: {name: kube-root-ca.crt, namespace: shop, uid: u-1, labels: {%s}}}`, labels), "", "", "u-1", "True")
	}
}

const inputsYAML = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere, namespace: shop}
spec: {schedulingMode: Duplicate}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: one, namespace: shop}
spec: {schedulingMode: Duplicate, maxClusters: 1}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: web, namespace: shop}
spec: {overrideRules: [{targetClusters: {clusters: [us-1]}, overriders: {labels: [{operator: addIfAbsent, value: {a: b}}]}}]}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: fails, namespace: shop}
spec: {overrideRules: [{targetClusters: {clusters: [us-1]}, overriders: {jsonpatch: [{path: /no, operator: remove}]}}]}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: FederatedCluster
metadata: {name: eu-1, uid: c-1}
status: {conditions: [{type: Ready, status: "True", lastProbeTime: null, lastTransitionTime: null, reason: Up, message: up}]}
`

func compareAnswers(t *testing.T, object, placed, rendered, uid, status string) {
	t.Helper()
	fleet := inputsYAML + "---\n" + object + fmt.Sprintf(`
---
apiVersion: refract.dev/v1alpha1
kind: Propagation
metadata: {name: web, namespace: shop}
spec: {source: {apiVersion: v1, kind: ConfigMap, resource: configmaps, name: web, uid: %s}}
status: {clusters: [%s], deletedPolicies: [%s]}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: FederatedCluster
metadata: {name: us-1, uid: c-2}
`, uid, placed, rendered)
	if status != "" {
		fleet += fmt.Sprintf("status: {conditions: [{type: Ready, status: %q, lastProbeTime: null, lastTransitionTime: null, reason: Up, message: up}]}\n", status)
	}
	set, problems := manifest.ReadFS(fstest.MapFS{"fleet.yaml": {Data: []byte(fleet)}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	set.Live = true
	e, err := render.Evaluate(set, render.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := said(t, &e.Outcomes[0]), decided(set, status); got != want {
		t.Errorf("refract render says:\n%s\nand the controllers do:\n%s\nin\n%s", got, want, fleet)
	}
}

// said summarizes an outcome of render.
func said(t *testing.T, o *render.Outcome) string {
	t.Helper()
	switch {
	case o.Gone != "":
		return "gone"
	case o.Held != "":
		return "held"
	case len(o.Variants) == 0 && len(o.Errors()) > 0:
		return "held"
	}
	copies := map[string]string{}
	for _, v := range o.Variants {
		for _, c := range v.Clusters {
			copies[o.Clusters[c].Name] = "fails"
			if v.Err == nil {
				copies[o.Clusters[c].Name] = hash(t, v.Object)
			}
		}
	}
	return list(copies)
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// hash returns the content hash of the copy that the controllers would write for an object.
func hash(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	c, err := encode(object, configMaps, sourceOf("hub", "u-1", configMaps.GroupResource(), "shop", "web"), &placement.Keeping{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.hash
}

// decided summarizes the decision of the controllers. Their sources are the labeled objects of kinds that travel.
func decided(set *manifest.Set, status string) string {
	o := set.Objects[0]
	if !placement.Travels(o.Content.GroupVersionKind().GroupKind()) {
		return "gone"
	}
	s := &inputs{
		hub: "hub",
		clusters: []placement.Cluster{
			{Cluster: match.Cluster{Name: "eu-1"}, Ready: true},
			{Cluster: match.Cluster{Name: "us-1"}, Ready: status == "True"},
		},
		propagation: func(ref tree.Policy) *placement.Policy {
			for _, p := range set.PropagationPolicies {
				if p.Policy.Name == ref.Name && ref.Kind == corev1alpha1.KindPropagationPolicy {
					return p.Compiled
				}
			}
			return nil
		},
		override: func(ref tree.Policy) *override.Policy {
			for _, p := range set.OverridePolicies {
				if p.Policy.Name == ref.Name && ref.Kind == corev1alpha1.KindOverridePolicy {
					return p.Compiled
				}
			}
			return nil
		},
	}
	report := set.Propagations[0]
	was := previous{uid: report.UID, rendered: report.Rendered}
	for _, name := range report.Clusters {
		if name != "left" { // Not a member any more.
			was.placed = append(was.placed, placement.Target{Cluster: name})
		}
	}
	p := decide(source{gvr: configMaps, kind: "ConfigMap", object: o.Content}, was, s)
	switch {
	case p.gone:
		return "gone"
	case p.blocked != "", p.dryRun:
		return "held"
	}
	copies := map[string]string{}
	for name, target := range p.targets {
		copies[name] = "fails"
		if target.err == nil {
			copies[name] = target.variant.hash
		}
	}
	return list(copies)
}

func list(copies map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(copies)) {
		fmt.Fprintf(&b, "%s: %s\n", name, copies[name])
	}
	return b.String()
}
