package propagation

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/member"
)

// TestMissingAtTheStart is judged together, also if much of it is not asked about again
// when the first is: none of it goes before all is approved.
func TestMissingAtTheStart(t *testing.T) {
	s := &shop{}
	a := shopkeeper(t, s, 0, onHub(nil))
	now := time.Now()
	a.guard = newGuard(DefaultGuard, func() time.Time { return now })
	a.state.complete.Store(false)
	remove := func(i int) {
		t.Helper()
		key := keyOf("secrets", strconv.Itoa(i))
		p := &desiredState{gone: true, cause: causeMissing}
		a.state.setDesired(key, p, previous{statuses: []refractv1alpha1.ClusterStatus{{Name: a.member.Name, State: refractv1alpha1.StateSynced}}}, nil)
		have := member.Copy{UID: types.UID(key.Name), Source: sourceOf(theHub, "u", key.GroupResource, key.Namespace, key.Name)}
		if _, err := a.remove(t.Context(), key, p, false, have, member.Present); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		now = now.Add(guardSettles)
		remove(i)
	}
	a.state.complete.Store(true)
	for range 3 {
		remove(0)
		now = now.Add(guardSettles)
	}
	if message, _ := a.guard.show("m"); !strings.HasPrefix(message, "40 of 40 copies are to go at once") || len(s.requests) > 0 {
		t.Errorf("want all of them held and none gone, got %q and requests %v", message, s.requests)
	}
}
