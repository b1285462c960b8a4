package bench

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// floorCopies is the approximate number of objects that the floor applies, enough for an exact mean.
const floorCopies = 20_000

// floor reports the costs of a client that applies objects to the members: the processor time of this process, which
// does nothing else meanwhile.
func (s *simulated) floor(b *testing.B) {
	b.Helper()
	var members []dynamic.ResourceInterface
	for _, m := range s.access[:s.members] {
		c, err := dynamic.NewForConfig(&rest.Config{
			Host: m.Endpoint, BearerToken: m.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: m.CA},
		})
		if err != nil {
			b.Fatal(err)
		}
		members = append(members, c.Resource(deployments).Namespace("default"))
	}
	each := min(s.objects, max(1, floorCopies/s.members))
	for i, phase := range []string{"warm-up", "floor"} {
		n := []int{1, each}[i]
		before, began := ownCPU(b), time.Now()
		if err := s.system.each(n*s.members, func(i int) error {
			o := s.system.object(phase, i/s.members, nil)
			body, err := json.Marshal(o.Object)
			if err != nil {
				return err
			}
			force := true
			_, err = members[i%s.members].Patch(b.Context(), o.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "bench", Force: &force})
			return err
		}); err != nil {
			b.Fatal(err)
		}
		took, cpu := time.Since(began), ownCPU(b)-before
		if i > 0 {
			s.report(b, 1000*took.Seconds()/float64(n*s.members), "floor-ms/copy")
			s.report(b, 1000*cpu/float64(n*s.members), "floor-cpu-ms/copy")
		}
	}
	if err := s.system.each((each+1)*s.members, func(i int) error {
		one := name("floor", i/s.members)
		if i/s.members == each {
			one = name("warm-up", 0)
		}
		return members[i%s.members].Delete(b.Context(), one, metav1.DeleteOptions{})
	}); err != nil {
		b.Fatal(err)
	}
}

// ownCPU returns the processor time of this process, in seconds.
func ownCPU(b *testing.B) float64 {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
