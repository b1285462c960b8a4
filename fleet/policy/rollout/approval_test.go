package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
)

// manual is a rollout over two clusters, each in a wave that needs an approval.
type manual struct {
	policy *Policy
	status *refractv1alpha1.RolloutStatus
	looks  int
	ready  map[string]bool
}

func newManual(t *testing.T) *manual {
	t.Helper()
	policy := &refractv1alpha1.RolloutPolicy{}
	for _, name := range []string{"a", "b"} {
		policy.Spec.Waves = append(policy.Spec.Waves, refractv1alpha1.RolloutWave{
			Name: name, Strategy: refractv1alpha1.WaveManual, TargetClusters: &corev1alpha1.TargetClusters{Clusters: []string{name}},
		})
	}
	compiled, errs := Compile(policy)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	good := refractv1alpha1.Revision{Name: "good"}
	return &manual{
		policy: compiled, ready: map[string]bool{},
		status: &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutComplete, Target: good, LastGood: good},
	}
}

// look calls Next with a value of the approval annotation, and returns the clusters that have the target.
func (m *manual) look(approved string) string {
	m.looks++
	in := &Input{
		Policy: m.policy, Target: refractv1alpha1.Revision{Name: "target"}, Approved: approved, Nonce: fmt.Sprintf("nonce-%d", m.looks),
		Now: time.Date(2026, 1, 1, 0, 0, m.looks, 0, time.UTC),
	}
	for _, name := range []string{"a", "b"} {
		has := m.status.Target.Name == "target" && Assigned(m.status, name).Name == "target"
		in.Clusters = append(in.Clusters, Cluster{
			Cluster: match.Cluster{Name: name}, Changes: true, Differs: !has, Holds: has, Ready: true, ReadySince: in.Now,
		})
	}
	m.status, _ = Next(m.status, in)
	var have []string
	for i := range in.Clusters {
		if name := in.Clusters[i].Name; m.status.Target.Name == "target" && Assigned(m.status, name).Name == "target" {
			have = append(have, name)
		}
	}
	return strings.Join(have, " ")
}

// TestApprovedBeforehand verifies that no annotation approves a rollout before it begins, or a wave before it waits.
func TestApprovedBeforehand(t *testing.T) {
	for _, guess := range []string{"target/1/0", "target/1/0/", "target/1/0/nonce-2"} {
		m := newManual(t)
		for range 5 {
			if have := m.look(guess); have != "" {
				t.Errorf("annotation %q before the rollout: want no cluster with the target, got %s", guess, have)
			}
		}
	}
}

// TestApprovedOnce verifies that an approval applies to one wave, and that the status shows the same token until the
// approval, even if several replicas call Next.
func TestApprovedOnce(t *testing.T) {
	m := newManual(t)
	m.look("")
	first := m.status.Awaits
	for range 3 {
		if m.look(""); m.status.Awaits != first || first == "" {
			t.Fatalf("want the same awaited token %q in each call, got %q", first, m.status.Awaits)
		}
	}
	second := strings.Replace(first, "/0/", "/1/", 1) // A guess derived from the first token.
	if have := m.look(first); have != "a" {
		t.Fatalf("the first wave is approved: want a to have the target, got %q", have)
	}
	for _, said := range []string{first, second} {
		for range 5 {
			if have := m.look(said); have != "a" {
				t.Fatalf("annotation %q after the approval of the first wave by %q: want only a to have the target, got %q", said, first, have)
			}
		}
	}
	if have := m.look(m.status.Awaits); have != "a b" {
		t.Errorf("the second wave is approved: want a and b to have the target, got %q", have)
	}
}

// TestApprovedBeforeTheUpgrade verifies that a rollout which began to wait in a version with guessable tokens gets a
// new token.
func TestApprovedBeforeTheUpgrade(t *testing.T) {
	m := newManual(t)
	m.look("")
	m.status.Nonce, m.status.Awaits = "", "target/1/0"
	for _, said := range []string{"target/1/0", "target/1/0/"} {
		if have := m.look(said); have != "" {
			t.Errorf("annotation %q: want no cluster with the target, got %q", said, have)
		}
	}
	if have := m.look(m.status.Awaits); have != "a" {
		t.Errorf("the annotation has the token of the status: want a to have the target, got %q", have)
	}
}
