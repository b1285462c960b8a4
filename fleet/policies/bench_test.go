package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/kit/webhook/admission"
)

// BenchmarkHandle answers a review of a changed policy that 20 of 1,000 Deployments name, and a review of a changed
// label of one of 1,000 clusters.
func BenchmarkHandle(b *testing.B) {
	const count, policies = 1000, 50
	var fleet []*unstructured.Unstructured
	add := func(format string, args ...any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(fmt.Appendf(nil, format, args...)); err != nil {
			b.Fatal(err)
		}
		fleet = append(fleet, u)
		return u
	}
	const ours = `{"apiVersion":"core.kubeadmiral.io/v1alpha1","kind":`
	cluster := add(ours + `"FederatedCluster","metadata":{"name":"c-0","uid":"0","labels":{"region":"eu"}},"spec":{"apiEndpoint":"https://a.example","secretRef":{"name":"a"}},` +
		`"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	for i := 1; i < count; i++ {
		c := cluster.DeepCopy()
		c.SetName(fmt.Sprintf("c-%d", i))
		c.SetLabels(map[string]string{"region": []string{"eu", "us", "asia"}[i%3]})
		fleet = append(fleet, c)
	}
	add(ours + `"PropagationPolicy","metadata":{"name":"all","namespace":"shop"},"spec":{"schedulingMode":"Duplicate"}}`)
	rules := ours + `"OverridePolicy","metadata":{"name":"p-%d","namespace":"shop"},"spec":{"overrideRules":[` +
		`{"targetClusters":{"clusterSelector":{"region":"eu"}},"overriders":{"envs":[{"containerName":"web","value":[{"name":"REGION","value":"%s"}]}]}},` +
		`{"targetClusters":{"clusterSelector":{"region":"us"}},"overriders":{"jsonpatch":[{"path":"/spec/replicas","value":3}]}}]}}`
	var policy *unstructured.Unstructured
	for i := range policies {
		policy = add(rules, i, "eu")
	}
	for i := range count {
		add(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web-%d","namespace":"shop","labels":{`+
			`"kubeadmiral.io/propagation-policy-name":"all","kubeadmiral.io/override-policy-name":"p-%d"}},"spec":{"replicas":2,`+
			`"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[`+
			`{"name":"web","image":"registry.example/web:1.0","env":[{"name":"REGION","value":"none"}]}]}}}}`, i, i%policies)
	}
	changed := &unstructured.Unstructured{}
	if err := changed.UnmarshalJSON(fmt.Appendf(nil, rules, policies-1, "europe")); err != nil {
		b.Fatal(err)
	}
	moved := cluster.DeepCopy()
	moved.SetLabels(map[string]string{"region": "us"})
	v := newValidator(Options{
		Fleet: &hub{objects: fleet}, Patience: time.Minute, Log: logr.Discard(),
		Allowed: func(context.Context, *authenticationv1.UserInfo, *authorizationv1.ResourceAttributes) (bool, error) {
			return true, nil
		},
	})
	v.advice.Most = math.MaxInt64 // The benchmark includes all advice.
	for _, bm := range []struct {
		name     string
		was, now *unstructured.Unstructured
		want     string
	}{
		{"policy", policy, changed, "changes 20 Deployments on 334 clusters, all of which will roll"},
		{"cluster", cluster, moved, "changes 1,000 Deployments on cluster c-0, all of which will roll, all of which will scale up"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			was, err := json.Marshal(bm.was)
			if err != nil {
				b.Fatal(err)
			}
			now, err := json.Marshal(bm.now)
			if err != nil {
				b.Fatal(err)
			}
			req := &admission.Request{Operation: admission.Update, Object: now, OldObject: was}
			b.ReportAllocs()
			for b.Loop() {
				if got, err := v.handle(b.Context(), req); err != nil || got.Err != nil || len(got.Warnings) == 0 || got.Warnings[0] != bm.want {
					b.Fatalf("handle(): got %v, %v, want %q", got, err, bm.want)
				}
			}
		})
	}
}
