package injection

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dice makes pods and policies out of few names, so that they often speak of the
// same thing.
// policies, whatever they are; and once more with what became of it, to which
// nothing is added.
func TestZZRandom(t *testing.T) {
	for n := range 40 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {zzRandom(t, fmt.Sprint("zz-", n))})
	}
}

func zzRandom(t *testing.T, nsname string) {
	
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	d := dice{rand.New(rand.NewPCG(seed, 0))}
	without, with := begin(t), beginOn(t, member, nsname)
	var names []string
	for i := range 60 {
		p := with.read(sip(fmt.Sprint("policy-", i), d.policy()))[0]
		if err := with.api.Create(t.Context(), p); err == nil { // Some policies are wrong.
			names = append(names, p.GetName())
		}
		if len(names) == 12 {
			break
		}
	}
	with.inEffect("a: b", names...)
	taken, injected := 0, 0
	for i := range 300 {
		pod := with.read(podOf(fmt.Sprint("pod-", i), d.of("a: b", "c: d", "a: b, c: e"), d.pod()))[0]
		plain := pod.DeepCopy()
		plain.SetNamespace(without.ns)
		if without.api.Create(t.Context(), plain, client.DryRunAll) != nil {
			continue
		}
		taken++
		got := pod.DeepCopy()
		if err := with.api.Create(t.Context(), got, client.DryRunAll); err != nil {
			t.Fatalf("A pod is refused for the sake of policies: %v\n%s\nthe policies are\n%s", err, inJSON(pod.Object), policiesOf(with))
		}
		again := like(t, got)
		if err := with.api.Create(t.Context(), again, client.DryRunAll); err != nil {
			t.Fatalf("A pod is refused the second time: %v\n%s\nthe policies are\n%s", err, inJSON(got.Object), policiesOf(with))
		}
		if diff := cmp.Diff(got.Object["spec"], again.Object["spec"]); diff != "" {
			t.Fatalf("The second time something was added: -before, +after:\n%s\nto\n%s\nthe policies are\n%s", diff, inJSON(got.Object), policiesOf(with))
		}
		if !cmp.Equal(plain.Object["spec"], got.Object["spec"]) {
			injected++
		}
	}
	t.Logf("%d policies and %d pods were taken, and something was injected into %d", len(names), taken, injected)
	if taken < 50 || injected < 25 {
		t.Error("That is too few to say anything")
	}
}

// like returns a pod to be created with what the other has become.
