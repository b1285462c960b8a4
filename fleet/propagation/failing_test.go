package propagation

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/fleet/member"
)

// TestLargeCopiesHoldNobody: copies that are too large fail alone, whether they are sent or not. Other copies are
// written meanwhile.
func TestLargeCopiesHoldNobody(t *testing.T) {
	cases := map[string]struct {
		value string
		code  int32
		said  string
		sent  int // The number of large copies that are sent.
		want  string
	}{
		"NotSent": {strings.Repeat("x", 2<<20), 0, "", 0, "bytes as JSON, and a cluster stores at most 1572864"},
		"Etcd":    {"y", 500, "etcdserver: request is too large", 20, "request is too large"},
		"Server":  {"y", 413, "Request entity too large: limit is 3145728", 20, "limit is 3145728"},
		"Client": {
			"y", 500, "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097300 vs. 2097152)", 20, "larger than max",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := newDepot()
			a, _ := applierOf(t, d, 0)
			for i := range 20 {
				large, other := keyOf("configmaps", fmt.Sprint("large-", i)), keyOf("configmaps", fmt.Sprint("other-", i))
				if tc.code != 0 {
					d.change(func() { d.refuse = map[string]metav1.Status{http.MethodPatch: {Code: tc.code, Message: tc.said}} })
				}
				a.state.setDesired(large, wantedWith(t, large.Name, tc.value, "m"), previous{}, nil)
				if _, err := a.applyOne(t.Context(), large); err != nil {
					t.Fatal(err)
				}
				if i < 10 {
					continue // Ten copies fail in a row.
				}
				d.change(func() { d.refuse = nil })
				a.state.setDesired(other, wanted(t, other.Name, "m"), previous{}, nil)
				if _, err := a.applyOne(t.Context(), other); err != nil {
					t.Fatal(err)
				}
				if got := statusOf(a.state, other); got != "Synced" {
					t.Fatalf("after %d large copies: want other copies written, got %s", i+1, got)
				}
				r, _ := a.state.clusterStatus(large, "m")
				if r.reason != reasonRejected || !strings.Contains(r.message, tc.want) {
					t.Errorf("want %q, got %s: %q", tc.want, r.reason, r.message)
				}
			}
			sent := 0
			for _, request := range d.sent() {
				if strings.Contains(request, "large") {
					sent++
				}
			}
			if sent != tc.sent {
				t.Errorf("want %d large copies sent, got %d", tc.sent, sent)
			}
		})
	}
}

// TestLargeCopiesWait: after a member has rejected a large copy for its size, one large copy of the type and namespace
// is sent at a time, even if they are edited. Small copies do not wait, and a copy that is too large for every member
// is never encoded.
func TestLargeCopiesWait(t *testing.T) {
	d := newDepot()
	a := shopkeeper(t, &sated{depot: d}, 0, onHub(nil))
	<-a.member.Copies.Watch(configMaps)
	e := &neighbours{state: a.state}
	a.stations, a.cluster = e, e
	now := time.Now()
	a.gates.now = func() time.Time { return now }
	value := strings.Repeat("x", 1<<20)
	write := func(name, value string) string {
		key := keyOf("configmaps", name)
		a.state.setDesired(key, wantedWith(t, name, value, "m"), previous{}, nil)
		if _, err := a.applyOne(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		r, _ := a.state.clusterStatus(key, "m")
		return fmt.Sprintf("%s %s: %s", r.state, r.reason, r.message)
	}
	sent := func() (n int) {
		for _, request := range d.sent() {
			if strings.Contains(request, "large") {
				n++
			}
		}
		return n
	}
	for i := range 20 {
		got := write(fmt.Sprint("large-", i), value)
		if !strings.HasPrefix(got, "Failed Rejected: the cluster does not store 1048") || !strings.Contains(got, "request is too large") || !strings.Contains(got, "one at a time") {
			t.Fatalf("want the problem and the remedy, got %s", got)
		}
		if got := write(fmt.Sprint("other-", i), "y"); got != "Synced : " {
			t.Fatalf("want a small copy written, got %s", got)
		}
	}
	for i := range 20 {
		write(fmt.Sprint("large-", i), value+fmt.Sprint(i))
	}
	if n := sent(); n != 1 {
		t.Errorf("want one large copy sent, got %d", n)
	}
	for range 3 {
		now = now.Add(2 * firstProbe)
		for i := range 20 {
			write(fmt.Sprint("large-", i), value+fmt.Sprint(now.Unix(), i))
		}
		if n := sent(); n != 1 {
			t.Errorf("a second later: want one large copy tried, got %d", n)
		}
	}
	p := wantedWith(t, "huge", strings.Repeat("x", 2<<20), "m")
	if err := p.targets["m"].err; err == nil || len(p.variants) > 0 || reasonOf(err) != reasonRejected {
		t.Errorf("want an error, because no cluster stores the copy, got %v", err)
	}
}

// TestUnavailableTypeHoldsItself: copies of a type whose API server is down wait at a gate, and the breaker of the
// member stays closed.
func TestUnavailableTypeHoldsItself(t *testing.T) {
	for _, code := range []int32{http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusInternalServerError} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			d := newDepot()
			d.refuse = map[string]metav1.Status{http.MethodPatch: {Code: code, Message: "later"}}
			a, _ := applierOf(t, d, 0)
			var key Key
			for i := range 20 {
				key = keyOf("configmaps", fmt.Sprint(i))
				a.state.setDesired(key, wanted(t, key.Name, "m"), previous{}, nil)
				if _, err := a.applyOne(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			r, _ := a.state.clusterStatus(key, "m")
			if n := len(d.sent()); n != failTogether || r.reason != reasonWriteFailed || !strings.Contains(r.message, "one at a time") {
				t.Errorf("want %d writes and the other copies at a gate, got %d, %s: %s", failTogether, n, r.reason, r.message)
			}
			if left := a.member.Pause(); left != 0 || a.pace != (pace{}) {
				t.Errorf("want other types not delayed, got %s, %+v", left, a.pace)
			}
		})
	}
}

// TestAgain: however many copies fail by themselves, few are retried in each second, and the first copies that fail are
// retried without an additional delay.
func TestAgain(t *testing.T) {
	f, at := newFailing(), time.Now()
	began := at
	f.now = func() time.Time { return at }
	const copies = 2000
	due := make([]time.Time, copies)
	tries := make([]int, 600) // Attempts in each second.
	for ; at.Before(began.Add(time.Duration(len(tries)) * time.Second)); at = at.Add(100 * time.Millisecond) {
		for i := range due {
			if at.Before(due[i]) {
				continue
			}
			tries[at.Sub(began)/time.Second]++
			due[i] = at.Add(f.again(soonRetry))
			if i < againPerSecond && tries[0] <= againPerSecond && due[i].Sub(at) != soonRetry {
				t.Errorf("few copies have failed: want the copy tried again after %s, got %s", soonRetry, due[i].Sub(at))
			}
		}
	}
	all := 0
	for second, n := range tries[1:] {
		if all += n; n > 3*againPerSecond && second > int(mostAgain/time.Second) {
			t.Errorf("want at most %d tries in second %d, got %d", 3*againPerSecond, second+1, n)
		}
	}
	if most := (againPerSecond + 5) * len(tries); all > most || all < most/2 {
		t.Errorf("want at most %d tries in ten minutes, got %d", most, all)
	}
}

// TestFailing: copies that share a failure wait together, and no others wait.
func TestFailing(t *testing.T) {
	down := apierrors.NewServiceUnavailable("db-1 is down")
	key := func(namespace string, i int) Key {
		return Key{GroupResource: configMaps.GroupResource(), NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}}
	}
	f, at := newFailing(), time.Now()
	f.now = func() time.Time { return at }
	for i := range 10 {
		if got := f.note(key("shop", 1), configMaps, down); got != nil {
			t.Fatalf("one copy that fails again and again: want no gate, got %+v after %d", got, i)
		}
	}
	f.note(key("shop", 2), configMaps, down)
	got := f.note(key("shop", 3), configMaps, down)
	if got == nil || got.gateScope != (gateScope{resource: key("shop", 1).WithVersion(""), namespace: "shop"}) || !strings.Contains(got.what, "db-1") {
		t.Errorf("want the gate of the type in the namespace, got %+v", got)
	}
	for i := range failEverywhere - 2 {
		if got := f.note(key(fmt.Sprint("other-", i), 1), configMaps, down); got != nil {
			t.Errorf("want no gate for the first in another namespace, got %+v", got)
		}
	}
	got = f.note(key("last", 1), configMaps, down)
	if got == nil || got.gateScope != (gateScope{resource: configMaps}) || strings.Contains(got.what, "db-1") {
		t.Errorf("want the gate of the type, whose message names no object, got %+v", got)
	}
	f.passed(key("last", 1))
	if got := f.note(key("last", 2), configMaps, down); got != nil {
		t.Errorf("after a success: want no gate, got %+v", got)
	}
	for i := range 2 * failEverywhere {
		if got := f.note(key(fmt.Sprint("tenant-", i), 1), configMaps, down); got != nil {
			t.Errorf("shortly after a success: want no gate of the type, however many namespaces of a tenant fail, got %+v", got)
		}
	}
	at = at.Add(takenFor + time.Second)
	if got := f.note(key("tenant-0", 1), configMaps, down); got == nil || got.gateScope != (gateScope{resource: configMaps}) {
		t.Errorf("long after the last success: want the gate of the type, got %+v", got)
	}
	f.passed(key("last", 1))
	if got := f.note(key("shop", 4), configMaps, down); got == nil || got.namespace != "shop" {
		t.Errorf("without a success in this namespace: want its gate, got %+v", got)
	}
	if f.note(key("shop", 4), configMaps, apierrors.NewBadRequest("no")); len(f.copies[gateScope{resource: key("shop", 1).WithVersion(""), namespace: "shop"}]) != 0 {
		t.Error("after a rejection for a reason of the copy itself: want the other failures forgotten")
	}
	for i := range 2 * mostFailing {
		f.note(key(fmt.Sprint("n", i), 1), configMaps, down)
	}
	if len(f.copies) > mostFailing || len(f.namespaces[configMaps.GroupResource()]) > failEverywhere {
		t.Errorf("want a bounded number of namespaces, got %d", len(f.copies))
	}
	if member.ConcernsAll(down) {
		t.Error("want an error that does not concern the whole member")
	}
}
