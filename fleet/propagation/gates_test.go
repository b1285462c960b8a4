package propagation

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// crowd are copies that are written to a member, with a clock of their own. It notes each request.
type crowd struct {
	*gates
	at    time.Time
	due   map[Key]time.Time
	fails func(Key) *failure // The failure of a write of the copy; nil if the write succeeds.
	gone  map[Key]bool       // Copies that are no longer written.
	sent  []string           // The requests, with their times.
	done  map[Key]bool
	said  map[Key]string
}

func newCrowd(fails func(Key) *failure) *crowd {
	c := &crowd{at: time.Unix(0, 0), due: map[Key]time.Time{}, fails: fails, gone: map[Key]bool{}, done: map[Key]bool{}, said: map[Key]string{}}
	c.gates = newGates(func(key Key, after time.Duration) {
		if at, waits := c.due[key]; !waits || c.at.Add(after).Before(at) {
			c.due[key] = c.at.Add(after)
		}
	})
	c.now = func() time.Time { return c.at }
	return c
}

// come enqueues copies now.
func (c *crowd) come(keys ...Key) {
	for _, key := range keys {
		c.call(key, 0)
	}
}

// run lets the time pass, and tries the copies when they are due.
func (c *crowd) run(d time.Duration) {
	end := c.at.Add(d)
	for {
		var next Key
		for key, at := range c.due {
			if first, some := c.due[next]; !some || at.Before(first) || at.Equal(first) && compareKeys(key, next) < 0 {
				next = key
			}
		}
		at, some := c.due[next]
		if !some || at.After(end) {
			c.at = end
			return
		}
		c.at = at
		delete(c.due, next)
		c.look(next)
	}
}

func (c *crowd) look(key Key) {
	defer c.leave(key)
	if c.gone[key] {
		return
	}
	if n := c.enter(key, "v1", true, "h", 0); n != nil {
		c.said[key] = n.reason
		return
	}
	c.sent = append(c.sent, fmt.Sprintf("%s %s", c.at.Sub(time.Unix(0, 0)), key.Name))
	f := c.fails(key)
	if f == nil {
		c.done[key] = true
		c.passed(key, "h")
		return
	}
	c.said[key] = f.reason
	if f.reason == reasonRejected && f.gateScope == (gateScope{}) {
		c.refused(key)
		return
	}
	c.failed(key, "h", f)
}

func keysOf(resource, namespace string, n int) (keys []Key) {
	for i := range n {
		keys = append(keys, Key{
			GroupResource:  schema.GroupResource{Group: "example.com", Resource: resource},
			NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("w%02d", i)},
		})
	}
	return keys
}

func hookFailure(namespace string) *failure {
	return &failure{
		gateID{reason: reasonWebhookFailed, gateScope: gateScope{resource: widgets.GroupResource().WithVersion(""), namespace: namespace}, name: "hook"}, "fails", "",
	}
}

// TestGateOfAType: one copy at a time is tried, after longer and longer delays, and all are written when one succeeds.
func TestGateOfAType(t *testing.T) {
	served := false
	c := newCrowd(func(key Key) *failure {
		if served || key.Resource != "widgets" {
			return nil
		}
		return unservedFailure(widgets)
	})
	waiting, others := keysOf("widgets", "shop", 5), keysOf("gadgets", "shop", 2)
	c.come(waiting...)
	c.come(others...)
	c.run(20 * time.Second)
	want := []string{"0s w00", "0s w00", "0s w01", "1s w00", "3s w01", "7s w02", "15s w03"}
	slices.Sort(c.sent[:3])
	if diff := cmp.Diff(want, c.sent); diff != "" {
		t.Errorf("requests of a type that is not served, and of another: -want, +got:\n%s", diff)
	}
	served, c.sent = true, nil
	c.run(25 * time.Second)
	if diff := cmp.Diff([]string{"31s w04", "31s w00", "31s w01", "31s w02", "31s w03"}, c.sent); diff != "" {
		t.Errorf("requests when it is served: -want, +got:\n%s", diff)
	}
	if c.count+len(c.waiting)+len(c.probing)+len(c.hooks) != 0 {
		t.Errorf("want nothing kept of an open gate, got %+v", c.gates)
	}
}

// TestGateProbes: the requests at a gate after its probe was deleted or failed for another reason, and after the
// failure is known to be over.
func TestGateProbes(t *testing.T) {
	refusal := &failure{gateID: gateID{reason: reasonRejected}}
	cases := map[string]struct {
		reason string
		fails  func(Key, time.Duration) *failure
		then   func(*crowd, []Key)
		want   []string
	}{
		"Deleted": {
			reason: "Another copy becomes the probe when the next probe is deleted.",
			fails:  func(Key, time.Duration) *failure { return unservedFailure(widgets) },
			then:   func(c *crowd, keys []Key) { c.gone[keys[0]] = true },
			want:   []string{"0s w00", "1s w01"},
		},
		"RefusedEarly": {
			reason: "An object that is rejected for its content proves that the type is served: all are tried.",
			fails: func(_ Key, at time.Duration) *failure {
				if at > 0 {
					return refusal
				}
				return unservedFailure(widgets)
			},
			want: []string{"0s w00", "1s w00", "1s w01", "1s w02"},
		},
		"RefusedLate": {
			reason: "A rejected object proves nothing about a webhook that is called later: another copy is tried after a second.",
			fails: func(_ Key, at time.Duration) *failure {
				if at == time.Second {
					return refusal
				}
				return hookFailure("shop")
			},
			want: []string{"0s w00", "1s w00", "2s w01"},
		},
		"Over": {
			reason: "By discovery, the type is served.",
			fails:  func(Key, time.Duration) *failure { return unservedFailure(widgets) },
			then: func(c *crowd, _ []Key) {
				c.fails = func(Key) *failure { return nil }
				c.over(func(id *gateID) bool { return id.resource == widgets })
			},
			want: []string{"0s w00", "500ms w00", "500ms w01", "500ms w02"},
		},
		"Hurried": {
			reason: "The type has just been defined: the next copy is tried at once.",
			fails:  func(Key, time.Duration) *failure { return unservedFailure(widgets) },
			then:   func(c *crowd, _ []Key) { c.hurry(func(id *gateID) bool { return id.resource == widgets }) },
			want:   []string{"0s w00", "500ms w00", "2.5s w01"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var c *crowd
			c = newCrowd(func(key Key) *failure { return tc.fails(key, c.at.Sub(time.Unix(0, 0))) })
			keys := keysOf("widgets", "shop", 3)
			c.come(keys...)
			c.run(500 * time.Millisecond)
			if tc.then != nil {
				tc.then(c, keys)
			}
			c.run(2 * time.Second)
			if diff := cmp.Diff(tc.want, c.sent); diff != "" {
				t.Errorf("%s\nrequests: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestGateOfAWebhook: a webhook that fails for some objects of one namespace delays the other objects only briefly, and
// other namespaces not at all.
func TestGateOfAWebhook(t *testing.T) {
	failing := map[string]bool{"w00": true, "w01": true}
	c := newCrowd(func(key Key) *failure {
		if key.Namespace == "shop" && failing[key.Name] {
			return hookFailure("shop")
		}
		return nil
	})
	shop, other := keysOf("widgets", "shop", 8), keysOf("widgets", "other", 8)
	c.come(shop...)
	c.come(other...)
	c.run(5 * time.Second)
	for _, key := range slices.Concat(other, shop[2:]) {
		if !c.done[key] {
			t.Errorf("%s, which the webhook does not select, waits at %s", key, c.said[key])
		}
	}
	before := len(c.sent)
	c.run(10 * time.Minute)
	if n := len(c.sent) - before; n > 25 {
		t.Errorf("two copies that fail made %d requests in ten minutes: want one in 30 s in the end", n)
	}
	clear(failing)
	c.run(lastProbe)
	if !c.done[shop[0]] || !c.done[shop[1]] || c.count != 0 {
		t.Errorf("want all written when the webhook answers again, got %v", c.sent)
	}
}

// TestGatesAreBounded: copies beyond the maximum number of gates are retried one by one.
func TestGatesAreBounded(t *testing.T) {
	g := newGates(func(Key, time.Duration) {})
	for i := range mostGates + 10 {
		key := keysOf("widgets", fmt.Sprint(i), 1)[0]
		if n := g.failed(key, "h", hookFailure(key.Namespace)); (n != nil) != (i < mostGates) {
			t.Fatalf("gate %d: got %v", i, n)
		}
	}
	if len(g.waiting) != mostGates {
		t.Errorf("want %d copies that wait, got %d", mostGates, len(g.waiting))
	}
}

// TestSharedFailure: the failures that several copies share, and the scope of each.
func TestSharedFailure(t *testing.T) {
	key := keysOf("widgets", "shop", 1)[0]
	status := func(code int32, message string, causes ...metav1.StatusCause) error {
		reason := metav1.StatusReason("")
		if code == http.StatusForbidden {
			reason = metav1.StatusReasonForbidden
		}
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{Causes: causes}}}
	}
	ofType := gateScope{resource: widgets.GroupResource().WithVersion(""), namespace: "shop"}
	cases := map[string]struct {
		reason  string
		err     error
		changes bool // The copy exists.
		want    *gateID
	}{
		"NotServed": {reason: "The failure concerns all namespaces, and this version.", err: status(404, "404 page not found"), want: &gateID{reason: reasonTypeNotServed, gateScope: gateScope{resource: widgets}}},
		"DeniedAsNotFound": {
			reason: "A webhook may deny an object with any code.", err: status(404, `admission webhook "x" denied the request: no`),
		},
		"Webhook": {
			reason: "The failure concerns the namespace and the type.", err: status(500, `Internal error occurred: failed calling webhook "a.b": failed to call webhook: Post "https://x": context deadline exceeded`),
			want: &gateID{reason: reasonWebhookFailed, gateScope: ofType, name: "a.b"},
		},
		"QuotedWebhook": {
			reason: "A value in the object that resembles the message of a webhook is no such failure.", err: status(422, `spec.x: Invalid value: "Internal error occurred: failed calling webhook \"a\""`),
		},
		"Denied":     {reason: "A webhook that answers has judged this object.", err: status(403, `admission webhook "a" denied the request: no`)},
		"Conversion": {reason: "The conversion webhook of the type fails.", err: status(500, "conversion webhook for example.com/v1, Kind=Widget failed: Post x"), want: &gateID{reason: reasonWebhookFailed, gateScope: ofType, name: "conversion of widgets.example.com"}},
		"Terminating": {
			reason: "No object of any type can be created in the namespace.", err: status(403, "no", metav1.StatusCause{Type: corev1.NamespaceTerminatingCause}),
			want: &gateID{reason: reasonBeingDeleted, gateScope: gateScope{namespace: "shop"}, creations: true},
		},
		"NoRight": {
			reason: "The failure concerns all objects of the type in the namespace.", err: status(403, `widgets.example.com "w" is forbidden: User "r" cannot patch resource "widgets" in API group "example.com" in the namespace "shop"`),
			want: &gateID{reason: reasonRejected, gateScope: ofType},
		},
		"MayNotCreate": {
			reason: "Existing objects may still be changed.", err: status(403, `widgets.example.com "w" is forbidden: User "r" cannot create resource "widgets" in API group "example.com"`),
			want: &gateID{reason: reasonRejected, gateScope: ofType, creations: true},
		},
		"NoMoreObjects": {
			reason: "The quota limits the number of objects.", err: status(403, `widgets.example.com "w" is forbidden: exceeded quota: q, requested: count/widgets.example.com=1, used: count/widgets.example.com=5, limited: count/widgets.example.com=5`),
			want: &gateID{reason: reasonRejected, gateScope: ofType, name: "quota q", creations: true},
		},
		"TooLarge":    {reason: "A smaller object may pass.", err: status(403, `pods "w" is forbidden: exceeded quota: q, requested: cpu=4, used: cpu=5, limited: cpu=6`)},
		"PodSecurity": {reason: "The rejection concerns the content.", err: status(403, `pods "w" is forbidden: violates PodSecurity "restricted:latest"`)},
		"Overloaded":  {reason: "The failure concerns the member.", err: status(429, "later")},
		"Internal":    {reason: "The failure concerns the member, too.", err: status(500, "Internal error occurred: etcdserver: no leader")},
		"NoAnswer":    {reason: "That too.", err: context.DeadlineExceeded},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := sharedFailure(key, widgets, !tc.changes, tc.err)
			var got *gateID
			if f != nil {
				got = &f.gateID
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(gateID{}, gateScope{})); diff != "" {
				t.Errorf("%s\nsharedFailure(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// unserving is a member that does not serve widgets until served is set. It counts the requests for widgets and the
// writes of ConfigMaps.
type unserving struct {
	*depot
	served         atomic.Bool
	asked, written atomic.Int64
}

func (c *unserving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !strings.HasPrefix(r.URL.Path, "/apis/example.com/"):
		if r.Method == http.MethodPatch {
			c.written.Add(1)
		}
		c.depot.ServeHTTP(w, r)
	case r.URL.Path == "/apis/example.com/v1":
		http.NotFound(w, r)
	case c.served.Load() && r.Method == http.MethodPatch:
		made := c.copyOf(path.Base(r.URL.Path), "")
		made.TypeMeta, made.ResourceVersion = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, "20"
		c.reply(w, http.StatusOK, made)
	case c.served.Load() && r.URL.Query().Get("watch") == "":
		c.reply(w, http.StatusOK, metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, ListMeta: metav1.ListMeta{ResourceVersion: "19"},
		})
	case c.served.Load() && r.URL.Query().Get("sendInitialEvents") != "":
		c.fail(w, metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
	case c.served.Load():
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		c.asked.Add(1)
		http.NotFound(w, r)
	}
}

// listeners take the calls of an applier from many goroutines, and count the statuses that it records.
type listeners struct {
	neighbours

	recorded, synced atomic.Int64
}

func (l *listeners) decide(Key, priority)           {}
func (l *listeners) reportAfter(Key, time.Duration) {}
func (l *listeners) reportLater(Key)                {}
func (l *listeners) pend(string)                    {}
func (l *listeners) record(a *applier, key Key, s clusterStatus) (settled, due, ok bool) {
	l.recorded.Add(1)
	if s.state == refractv1alpha1.StateSynced {
		l.synced.Add(1)
	}
	settled, due = l.state.report(key, a.member.Name, s)
	return settled, due, true
}

// await waits until done returns true.
func (*listeners) await(tb testing.TB, done func() bool) {
	tb.Helper()
	if err := wait.PollUntilContextTimeout(tb.Context(), time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		return done(), nil
	}); err != nil {
		tb.Fatal(err)
	}
}

// hubWith returns the sources of a hub that has these Widgets.
func hubWith(names ...string) *sources {
	v := &view{synced: true, items: map[types.NamespacedName]*unstructured.Unstructured{}}
	for _, name := range names {
		v.items[types.NamespacedName{Namespace: "shop", Name: name}] = sourceObject("example.com/v1", "Widget", name, "pp")
	}
	s := newSources(nil, nil, logr.Discard())
	s.types[widgets.GroupResource()] = &sourceType{gvr: widgets, kind: "Widget", views: []*view{v}}
	return s
}

// wantedWidget returns the desired state of an object of a type that the member may not serve.
func wantedWidget(tb testing.TB, name string) *desiredState {
	tb.Helper()
	s := &inputs{
		hub: theHub, clusters: []placement.Cluster{{Cluster: match.Cluster{Name: "m"}, Ready: true}},
		propagation: func(tree.Policy) *placement.Policy { return nil },
		resource:    func(schema.GroupKind) (schema.GroupResource, bool) { return schema.GroupResource{}, false },
	}
	obj := sourceObject("example.com/v1", "Widget", name, "pp")
	return decide(source{gvr: widgets, kind: "Widget", object: obj}, previous{uid: "1", placed: on("m")}, s)
}

// TestManyOfATypeThatIsNotServed: 10,000 copies of a type that a member does not serve cause at most one request a
// second, and their statuses are written once. Copies of other types are written meanwhile.
func TestManyOfATypeThatIsNotServed(t *testing.T) {
	const many, others = 10_000, 200
	d := &unserving{depot: newDepot()}
	a := shopkeeper(t, d, 0, onHub(nil))
	<-a.member.Copies.Watch(configMaps)
	<-a.member.Copies.Watch(widgets)
	l := &listeners{neighbours: neighbours{state: a.state}}
	a.stations, a.cluster = l, l
	var keys []Key
	var names []string
	for i := range many {
		key := Key{GroupResource: widgets.GroupResource(), NamespacedName: types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("w%05d", i)}}
		a.state.setDesired(key, wantedWidget(t, key.Name), previous{}, nil)
		keys, names = append(keys, key), append(names, key.Name)
	}
	// The body of a copy with a reported failure is not kept: it is rendered again.
	a.renderer.sources = hubWith(names...)
	for i := range others {
		key := keyOf("configmaps", fmt.Sprintf("c%03d", i))
		a.state.setDesired(key, wanted(t, key.Name, "m"), previous{}, nil)
		keys = append(keys, key)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		a.run(ctx)
	}()
	defer func() { stop(); <-ended }()
	for _, key := range keys {
		a.queue.add(key, priorityResync)
	}
	l.await(t, func() bool {
		return l.recorded.Load() >= many+others && d.written.Load() >= others && time.Since(began) >= 4*time.Second
	})
	const lists = 2 // One list at the start of a watch, and one more list.
	if asked, most := d.asked.Load(), int64(time.Since(began)/time.Second)+1+lists; asked > most || asked <= lists {
		t.Errorf("%d copies of a type that is not served made %d requests in %s: want some, and %d at most", many, asked, time.Since(began), most)
	}
	if n := l.recorded.Load(); n != many+others {
		t.Errorf("%d statuses were recorded: want one for each of the %d copies", n, many+others)
	}
	for _, key := range keys[:many] {
		if got := statusOf(a.state, key); got != "Failed TypeNotServed" {
			t.Fatalf("%s: want the reason for the wait, got %s", key, got)
		}
	}
	r, _ := a.state.clusterStatus(keys[0], "m")
	const want = "the cluster does not serve widgets.example.com in version v1."
	if !strings.HasPrefix(r.message, want) || !strings.Contains(r.message, " Since 20") || r.state != refractv1alpha1.StateFailed {
		t.Errorf("want a message with the failure and the time, got %q", r.message)
	}
	d.served.Store(true)
	a.gates.hurry(func(id *gateID) bool { return id.reason == reasonTypeNotServed })
	l.await(t, func() bool { return l.synced.Load() >= others+500 }) // The others follow as fast as the limits of a member permit.
}

// TestGatesAreNoPace: failures that many copies share do not affect the pace of the member, however fast the answers
// are.
func TestGatesAreNoPace(t *testing.T) {
	d := &unserving{depot: newDepot()}
	a, _ := applierOf(t, d.depot, 0)
	for i := range 3 * appliersByMember {
		key := keyOf("configmaps", fmt.Sprint(i))
		a.state.setDesired(key, wanted(t, key.Name, "m"), previous{}, nil)
		d.change(func() {
			d.refuse = map[string]metav1.Status{http.MethodPatch: {Code: 500, Reason: metav1.StatusReasonInternalError, Message: fmt.Sprintf("Internal error occurred: failed calling webhook \"%d\": no", i)}}
		})
		a.gates.over(func(*gateID) bool { return true })
		if _, err := a.applyOne(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if got := statusOf(a.state, key); got != "Failed WebhookFailed" {
			t.Fatalf("want the webhook named, got %s", got)
		}
	}
	if n := len(d.sent()); n != 3*appliersByMember || a.pace != (pace{}) {
		t.Errorf("want %d writes that the pace does not count, got %d: %+v", 3*appliersByMember, n, a.pace)
	}
}

// BenchmarkBesideAGate writes 1,000 copies to a member, alone and beside 10,000 waiting copies of a type that the
// member does not serve.
func BenchmarkBesideAGate(b *testing.B) {
	const others = 1000
	for name, many := range map[string]int{"alone": 0, "10000 wait": 10_000} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				d := &unserving{depot: newDepot()}
				a := shopkeeper(b, d, 0, onHub(nil))
				<-a.member.Copies.Watch(configMaps)
				<-a.member.Copies.Watch(widgets)
				l := &listeners{neighbours: neighbours{state: a.state}}
				a.stations, a.cluster = l, l
				p := wantedWidget(b, "w")
				var names []string
				for i := range many {
					names = append(names, fmt.Sprint(i))
					key := Key{GroupResource: widgets.GroupResource(), NamespacedName: types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(i)}}
					its := *p
					a.state.setDesired(key, &its, previous{}, nil)
					a.queue.add(key, priorityResync)
				}
				a.renderer.sources = hubWith(names...)
				ctx, stop := context.WithCancel(b.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					a.run(ctx)
				}()
				until := func(n int) {
					l.await(b, func() bool { return l.recorded.Load() >= int64(n) })
				}
				until(many)
				var keys []Key
				for i := range others {
					key := keyOf("configmaps", fmt.Sprint(i))
					a.state.setDesired(key, wanted(b, key.Name, "m"), previous{}, nil)
					keys = append(keys, key)
				}
				b.StartTimer()
				for _, key := range keys {
					a.queue.add(key, priorityResync)
				}
				until(many + others)
				b.StopTimer()
				stop()
				<-ended
				b.StartTimer()
			}
		})
	}
}
