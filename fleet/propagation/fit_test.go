package propagation

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestFit: the status of an object that fails on thousands of clusters, with a different message on each, is small
// enough to be stored. It contains the rollout and the placement; messages are cut first.
func TestFit(t *testing.T) {
	for _, n := range []int{50, 1000, 3000, 5000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := &refractv1alpha1.PropagationStatus{Rollout: &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutHalted}}
			for i := range n {
				name := fmt.Sprintf("cluster-%05d", i)
				s.Rollout.Failed = append(s.Rollout.Failed, refractv1alpha1.FailedCluster{Name: name})
				s.Clusters = append(s.Clusters, refractv1alpha1.ClusterStatus{
					Name: name, State: refractv1alpha1.StateFailed, Reason: reasonRejected, Hash: strings.Repeat("a", hashLength), Fields: strings.Repeat("b", hashLength),
					Generation: int64(i), Message: fmt.Sprintf("%05d", i) + strings.Repeat("<é", maxMessage/3), ReadinessMessage: strings.Repeat("x", maxReadiness),
					Policies: []refractv1alpha1.PolicyReference{{Kind: "OverridePolicy", Namespace: "shop", Name: "web", Generation: 1}},
				})
			}
			first := s.Clusters[0]
			fit(s)
			text, err := json.Marshal(s)
			const most = mostStatus + mostStatus/4 // For five thousand clusters whose rows all differ.
			if err != nil || len(text) > most {
				t.Fatalf("want at most %d bytes, got %d, %v", most, len(text), err)
			}
			if first.Message == "" || len(first.Policies) == 0 {
				t.Error("want the input unchanged")
			}
			s.Expand()
			if len(s.Clusters) != n || len(s.Rollout.Failed) != n || s.Rollout.Phase != refractv1alpha1.RolloutHalted {
				t.Fatalf("want all %d clusters, got %d, and %d that failed", n, len(s.Clusters), len(s.Rollout.Failed))
			}
			for i := range s.Clusters {
				if row := &s.Clusters[i]; row.State != refractv1alpha1.StateFailed || row.Reason != reasonRejected || row.Hash == "" || row.Fields == "" && n < 5000 {
					t.Fatalf("want the fields that are read back, got %+v", row)
				}
			}
			if full := s.Clusters[0].Message == first.Message; full != (n == 50) {
				t.Errorf("want the complete message: %t, got %d bytes", n == 50, len(s.Clusters[0].Message))
			}
		})
	}
}

// TestFitsEtcd: the status for a revert on the largest fleets, with long names and a ConfigMap of a thousand workloads,
// can be stored.
func TestFitsEtcd(t *testing.T) {
	const most = 1536 << 10 // The maximum size of a request to etcd.
	s := &refractv1alpha1.PropagationStatus{Rollout: &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutReverting}}
	for i := range 3000 {
		name := fmt.Sprintf("prod-eu-central-1-customer-tenant-%05d.k8s.example.com", i)
		s.Rollout.Failed = append(s.Rollout.Failed, refractv1alpha1.FailedCluster{Name: name})
		s.Rollout.Reverting = append(s.Rollout.Reverting, name)
		s.Clusters = append(s.Clusters, refractv1alpha1.ClusterStatus{
			Name: name, State: refractv1alpha1.StateFailed, Reason: reasonRejected, Hash: fmt.Sprintf("%032x", i), Fields: fmt.Sprintf("%032x", i),
			Generation: int64(i), Message: fmt.Sprintf("%05d", i) + strings.Repeat("x", maxMessage-5), Revision: "refract-" + strings.Repeat("a", 40),
			Readiness: refractv1alpha1.ReadinessInProgress,
		})
	}
	var p desiredState
	for i := range 20_000 {
		p.follows = append(p.follows, keyOf("deployments", fmt.Sprintf("customer-tenant-workload-of-some-length-%05d", i)))
	}
	s.Follows = p.followed()
	fit(s)
	if text, err := json.Marshal(s); err != nil || len(text) > most {
		t.Errorf("want at most %d bytes, got %d, %v", most, len(text), err)
	}
}

// TestFitsEtcdAtOnce: the status can be stored while the largest fleet with long names changes at once.
func TestFitsEtcdAtOnce(t *testing.T) {
	const most = 1536 << 10 // The maximum size of a request to etcd.
	now := microTime(time.Date(2026, 1, 1, 0, 0, 0, 123_456_000, time.UTC))
	s := &refractv1alpha1.PropagationStatus{Rollout: &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutProgressing}}
	for i := range 3000 {
		name := fmt.Sprintf("prod-eu-central-1-customer-tenant-%05d.k8s.example.com", i)
		s.Rollout.Current = append(s.Rollout.Current, refractv1alpha1.ReleasedCluster{
			Name: name, Since: now, Ready: now, Copy: fmt.Sprintf("00000000-0000-4000-8000-%012d@1772600767", i),
		})
		s.Clusters = append(s.Clusters, refractv1alpha1.ClusterStatus{
			Name: name, State: refractv1alpha1.StateSynced, Hash: fmt.Sprintf("%032x", i), Fields: fmt.Sprintf("%032x", i), Generation: int64(i),
			Revision: "refract-" + strings.Repeat("a", 40), Readiness: refractv1alpha1.ReadinessReady, ReadySince: now,
		})
	}
	fit(s)
	if text, err := json.Marshal(s); err != nil || len(text) > most {
		t.Errorf("want at most %d bytes, got %d, %v", most, len(text), err)
	}
}
