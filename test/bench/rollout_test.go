package bench

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/test/simulation"
)

// BenchmarkRollout changes an OverridePolicy of all objects of a simulated fleet. With the change, the workloads on 5%
// of the members do not become ready; none of these members is a canary. The benchmark runs without a rollout policy,
// and with a policy of three waves: 1%, 10% and the remaining members. It reports the number of members that an object
// reached before the change was reverted, the durations of the change and of the revert, and the writes to the hub per
// object.
//
// Run it with -benchtime 1x. $REFRACT_BENCH_FLEETS lists the fleets (members x objects).
func BenchmarkRollout(b *testing.B) {
	sizes := os.Getenv(sizesVariable)
	if sizes == "" {
		sizes = defaultSizes
	}
	for size := range strings.SplitSeq(sizes, ",") {
		b.Run(size, func(b *testing.B) {
			s := &simulated{}
			if _, err := fmt.Sscanf(size, "%dx%d", &s.members, &s.objects); err != nil {
				b.Fatalf("%s: want MEMBERSxOBJECTS, got %q", sizesVariable, size)
			}
			if s.members < 60 {
				b.Skipf("of %d members, too few fail for a revert of the rollout", s.members)
			}
			s.release(b)
		})
	}
}

func (s *simulated) release(b *testing.B) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // The metric ns/op would cover all phases.
	s.start(b)
	for b.Loop() {
		s.join(b, []string{samePod, patientLease})
		s.waves(b)
		s.workloads(b, "", simulation.ReadyWorkloads)
		labels := map[string]string{"kubeadmiral.io/propagation-policy-name": "pp", "kubeadmiral.io/override-policy-name": "op"}
		s.phase(b, "first", func() { s.put(b, labels) }, ours+",hello=world", s.copies())
		s.phase(b, "without", func() { apply(b, s.client, "testdata/policies-changed.yaml") }, ours+",hello=earth", s.copies())
		s.phase(b, "back", func() { apply(b, s.client, "testdata/policies.yaml") }, ours+",hello=world", s.copies())

		apply(b, s.client, "testdata/rollout.yaml")
		labels[refractv1alpha1.RolloutPolicyLabel] = "careful"
		s.put(b, labels)
		s.until(b, func() bool { return s.phases(b)[refractv1alpha1.RolloutComplete] == s.objects })
		s.settle(b)
		for i := 11; i <= s.members; i += 20 {
			s.workloads(b, fmt.Sprintf("m-%04d", i), simulation.UnreadyWorkloads)
		}
		s.changeAndRevert(b)
	}
}

// changeAndRevert changes the policy, and waits until the rollout has reverted the change everywhere.
func (s *simulated) changeAndRevert(b *testing.B) {
	b.Helper()
	before, reports, cpu := s.requests(b), s.reports(b), s.cpu()
	began := time.Now()
	apply(b, s.client, "testdata/policies-changed.yaml")
	most := 0
	var written, reverting, back time.Time
	s.until(b, func() bool {
		n := s.count(b, ours+",hello=earth")
		switch now := time.Now(); {
		case n > most:
			most, written = n, now
		case n < most && reverting.IsZero():
			reverting = now
		}
		if n > 0 || most == 0 {
			return false
		}
		if back.IsZero() {
			back = time.Now()
		}
		return s.phases(b)[refractv1alpha1.RolloutReverted] == s.objects
	})
	settled := s.settle(b)
	after := s.requests(b)
	objects := float64(s.objects)
	b.ReportMetric(float64(most)/objects, "touched-members")
	b.ReportMetric(written.Sub(began).Seconds(), "write-s")
	b.ReportMetric(back.Sub(reverting).Seconds(), "revert-s")
	b.ReportMetric((s.reports(b)-reports)/objects, "rollout-hub-writes/object")
	b.ReportMetric(float64(after.writes()-before.writes())/float64(2*most), "rollout-writes/change")
	b.ReportMetric(s.cpu()-cpu, "rollout-cpu-s")
	b.Logf("rollout: %d copies of %d got the change; written after %.1f s, reverted %.1f s after the revert began, idle after %.1f s",
		most, s.copies(), written.Sub(began).Seconds(), back.Sub(reverting).Seconds(), settled.Sub(began).Seconds())
}

// waves labels 1 % of the members as canaries, and 10 % for the second wave.
func (s *simulated) waves(b *testing.B) {
	b.Helper()
	first, last := max(1, s.members/100), max(1, s.members/100)+s.members/10
	for i := 1; i <= last; i++ {
		wave := "canary"
		if i > first {
			wave = "tenth"
		}
		fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%04d", i)}}
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{"wave":%q}}}`, wave))
		if err := s.client.Patch(b.Context(), fc, patch); err != nil {
			b.Fatal(err)
		}
	}
}

// workloads sets the readiness of Deployments on a member, or on all members if the name is empty.
func (s *simulated) workloads(b *testing.B, member string, are simulation.Workloads) {
	b.Helper()
	query := url.Values{"member": {member}, "are": {string(are)}}
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPut, s.control+"/workloads?"+query.Encode(), nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	resp.Body.Close()
}

// put applies all objects with these labels.
func (s *simulated) put(b *testing.B, labels map[string]string) {
	b.Helper()
	if err := s.system.each(s.objects, func(i int) error {
		object := s.system.object("fleet", i, labels)
		_, err := s.system.hub.Resource(deployments).Namespace("default").
			Apply(b.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "bench", Force: true})
		return err
	}); err != nil {
		b.Fatal(err)
	}
}

// phases counts the rollouts by phase.
func (s *simulated) phases(b *testing.B) map[refractv1alpha1.RolloutPhase]int {
	b.Helper()
	var list refractv1alpha1.PropagationList
	if err := s.client.List(b.Context(), &list); err != nil {
		b.Fatal(err)
	}
	by := map[refractv1alpha1.RolloutPhase]int{}
	for i := range list.Items {
		if r := list.Items[i].Status.Rollout; r != nil {
			by[r.Phase]++
		}
	}
	return by
}

func (s *simulated) count(b *testing.B, selector string) (n int) {
	b.Helper()
	s.get(b, "/count?selector="+url.QueryEscape(selector), &n)
	return n
}
