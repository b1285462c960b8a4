package rollout

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
)

// BenchmarkNext calls Next for a rollout to 1,000 clusters, in the middle of its largest wave: 100 clusters have the
// target and are not done.
func BenchmarkNext(b *testing.B) {
	most := intstr.FromInt32(100)
	spec := refractv1alpha1.RolloutPolicySpec{
		Waves: []refractv1alpha1.RolloutWave{
			{Name: "canary", TargetClusters: &corev1alpha1.TargetClusters{Clusters: []string{"c-0000"}}},
			{Name: "europe", TargetClusters: &corev1alpha1.TargetClusters{ClusterSelector: map[string]string{"region": "eu"}}},
			{Name: "rest", MaxConcurrent: &most},
		},
		Budgets: []refractv1alpha1.RolloutBudget{{Label: "zone", MaxUnavailable: 50}},
	}
	p, errs := Compile(&refractv1alpha1.RolloutPolicy{Spec: spec})
	if len(errs) > 0 {
		b.Fatal(errs)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	in := &Input{Policy: p, Target: refractv1alpha1.Revision{Name: "new"}, Now: now}
	s := &refractv1alpha1.RolloutStatus{
		Phase: refractv1alpha1.RolloutProgressing, Target: in.Target, LastGood: refractv1alpha1.Revision{Name: "old"}, Opened: 3, Attempt: 1,
	}
	for i := range 1000 {
		c := Cluster{
			Cluster: match.Cluster{Name: fmt.Sprintf("c-%04d", i), Labels: map[string]string{"region": []string{"eu", "us", "ap"}[i%3], "zone": fmt.Sprint(i % 20)}},
			Changes: true, Differs: i >= 500, Holds: true, Ready: i < 400 || i >= 500,
		}
		switch {
		case i < 400:
			s.Done = append(s.Done, c.Name)
		case i < 500:
			s.Current = append(s.Current, refractv1alpha1.ReleasedCluster{Name: c.Name, Since: at(now)})
		}
		in.Clusters = append(in.Clusters, c)
	}
	b.ReportAllocs()
	for b.Loop() {
		if is, _ := Next(s, in); is.Phase != refractv1alpha1.RolloutProgressing {
			b.Fatal(is.Phase, is.Message)
		}
	}
}
