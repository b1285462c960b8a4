package propagation

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/fleet/revision"
)

// logins are custom resources that the role view does not read.
var logins = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "logins"}

var loginKey = Key{GroupResource: logins.GroupResource(), NamespacedName: types.NamespacedName{Namespace: "shop", Name: "door"}}

// login is a custom resource with a PIN.
func login(pin string) *unstructured.Unstructured {
	obj := sourceObject("example.com/v1", "Login", "door", "pp")
	obj.Object["spec"] = map[string]any{"pin": pin}
	return obj
}

// careful returns the nth version of the object, governed by the RolloutPolicy careful.
func careful(n int, obj *unstructured.Unstructured) *unstructured.Unstructured {
	labels := obj.GetLabels()
	labels[refractv1alpha1.RolloutPolicyLabel] = "careful"
	obj.SetLabels(labels)
	obj.SetResourceVersion(fmt.Sprint(100 + n))
	return obj
}

// governedStation returns stations for these objects. Their rollout policy changes eu-1 first.
func governedStation(t *testing.T, objects ...*unstructured.Unstructured) *Controller {
	t.Helper()
	s, _ := hubOf(t)
	typed := &sourceType{gvr: logins, kind: "Login", namespaced: true, others: s.viewOf(logins.GroupResource())}
	for range viewLabels {
		typed.views = append(typed.views, s.viewOf(logins.GroupResource()))
	}
	for _, v := range append(slices.Clone(typed.views), typed.others) {
		v.synced = true
	}
	s.types[logins.GroupResource()] = typed
	c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
	duplicated(c)
	canaryOn(c)
	c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
	for _, obj := range objects {
		edit(c, obj)
	}
	return c
}

// edit puts an object into the caches.
func edit(c *Controller, obj *unstructured.Unstructured) {
	gvr := map[string]schema.GroupVersionResource{"Secret": secrets, "Login": logins, "Deployment": deployments}[obj.GetKind()]
	typed := c.decider.sources.types[gvr.GroupResource()]
	if len(obj.GetLabels()) > 0 {
		typed.views[0].fetched(obj)
	} else {
		typed.others.fetched(obj)
	}
}

// lookAt decides the objects, simulates the writes on their clusters, and writes the reports. held has the content of
// each object on the clusters.
func lookAt(t *testing.T, c *Controller, held map[Key]map[string]string, keys ...Key) {
	t.Helper()
	for _, key := range keys {
		if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
			t.Fatal(err)
		}
		p := c.state.desired(key)
		for cluster, target := range p.targets {
			r := clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced, hash: held[key][cluster]}
			newest := target.variant != nil && target.variant.hash == r.hash
			switch {
			case p.governed.keeps(cluster) && newest:
				r.state, r.reason = refractv1alpha1.StatePending, reasonAwaitsRollout
			case p.governed.keeps(cluster) && r.hash != "":
				r.state, r.reason = refractv1alpha1.StatePending, reasonKeepsContent
			case p.governed.keeps(cluster):
				r.state, r.reason = refractv1alpha1.StatePending, reasonAwaitsRollout
			case target.err != nil:
				r.state, r.reason, r.message = refractv1alpha1.StateFailed, reasonOverrideFailed, target.err.Error()
			default:
				r.hash = target.variant.hash
				if held[key] == nil {
					held[key] = map[string]string{}
				}
				held[key][cluster] = r.hash
			}
			c.state.report(key, cluster, r)
		}
	}
	for _, key := range keys {
		if _, err := c.reporter.reportOne(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		see(t, c, key)
	}
}

// readableTexts returns the texts that the role view reads: the report on an object, and the readable parts of the
// ControllerRevisions.
func readableTexts(t *testing.T, c *Controller, key Key) string {
	t.Helper()
	kept := &appsv1.ControllerRevisionList{}
	if err := c.reporter.live.List(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	all := []any{recordFor(t, c, key)}
	for i := range kept.Items {
		all = append(all, kept.Items[i].ObjectMeta, string(kept.Items[i].Data.Raw))
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// guessed tries all possible PINs, and returns those that a text reveals. of makes the object with a PIN.
func guessed(t *testing.T, text string, of func(pin string) *unstructured.Unstructured) (found []string) {
	t.Helper()
	const shortest = 12 // A shorter text may occur by chance.
	for n := range 10000 {
		pin := fmt.Sprintf("%04d", n)
		obj := of(pin)
		part, err := revision.ObjectPart(obj)
		if err != nil {
			t.Fatal(err)
		}
		data, err := part.Encode()
		if err != nil {
			t.Fatal(err)
		}
		digests := []string{strings.TrimPrefix(part.Name, "refract-"), revision.Of(part.Name, 0, nil).Name}
		for _, plain := range []string{pin, base64.StdEncoding.EncodeToString([]byte(pin)), string(data), part.Name} {
			sum := sha256.Sum256([]byte(plain))
			digests = append(digests, hex.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(sum[:]))
		}
		if slices.ContainsFunc(digests, func(digest string) bool { return strings.Contains(text, digest[:shortest]) }) {
			found = append(found, pin)
		}
	}
	return found
}

// TestGovernedGuesses: a reader of a rollout, of the stored revisions or of events cannot find a present or former
// PIN by trying all possible ones.
func TestGovernedGuesses(t *testing.T) {
	web := keyOf("deployments", "web")
	web.Group = "apps"
	secretDoor := func(pin string) *unstructured.Unstructured {
		obj := pinned(pin)
		obj.SetLabels(nil)
		obj.SetName("db")
		return obj
	}
	for name, tc := range map[string]struct {
		key      Key
		with     []*unstructured.Unstructured
		of       func(n int, pin string) *unstructured.Unstructured
		follower Key
	}{
		"Secret":         {keyOf("secrets", "door"), nil, func(n int, pin string) *unstructured.Unstructured { return careful(n, pinned(pin)) }, Key{}},
		"CustomResource": {loginKey, nil, func(n int, pin string) *unstructured.Unstructured { return careful(n, login(pin)) }, Key{}},
		"Follower": {web, []*unstructured.Unstructured{careful(0, mounting())}, func(n int, pin string) *unstructured.Unstructured {
			obj := secretDoor(pin)
			obj.SetResourceVersion(fmt.Sprint(100 + n))
			return obj
		}, keyOf("secrets", "db")},
	} {
		t.Run(name, func(t *testing.T) {
			c := governedStation(t, tc.with...)
			recorded := &events.FakeRecorder{Events: make(chan string, 1000)}
			c.reporter.recorder = recorded
			keys := []Key{tc.key}
			if tc.follower.Name != "" {
				keys = append(keys, tc.follower)
			}
			held := map[Key]map[string]string{}
			pins := []string{"4711", "0815", "1234"} // The last good, the superseded and the target content.
			for n, pin := range pins {
				if n == 2 { // A paused rollout leaves the superseded content on its clusters.
					r := recordFor(t, c, tc.key)
					r.Annotations = map[string]string{refractv1alpha1.PausedAnnotation: "true"}
					if err := c.reporter.client.Update(t.Context(), r); err != nil {
						t.Fatal(err)
					}
					see(t, c, tc.key)
				}
				edit(c, tc.of(n, pin))
				for range 6 {
					lookAt(t, c, held, keys...)
				}
			}
			is := recordFor(t, c, tc.key).Status.Rollout
			if is == nil || is.Superseded == nil || is.Phase == refractv1alpha1.RolloutComplete {
				t.Fatalf("want three recorded revisions, got %+v", is)
			}
			if tc.follower.Name != "" && len(is.Target.Followers) != 1 {
				t.Fatalf("want the Secret in the rollout of its leader, got %+v", is.Target)
			}
			all := []string{readableTexts(t, c, tc.key)}
			for len(recorded.Events) > 0 {
				all = append(all, <-recorded.Events)
			}
			text := strings.Join(all, "\n")
			if !strings.Contains(text, "RolloutBegan") {
				t.Fatalf("want events on the rollout, got %s", text)
			}
			if found := guessed(t, text, func(pin string) *unstructured.Unstructured { return tc.of(0, pin) }); len(found) > 0 {
				t.Errorf("of the PINs %v, a search through all PINs finds %v", pins, found)
			}
		})
	}
}

// TestPlainRecord: a rollout from an earlier version, which named revisions by plain hashes, continues at the same
// point under today's names. No cluster gets other content, the last good content is still available for a revert,
// and approvals stay valid.
func TestPlainRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		key    Key
		of     func(pin string) *unstructured.Unstructured
		hidden bool // Whether the earlier version sealed the parts.
	}{
		"Secret":         {keyOf("secrets", "door"), pinned, true},
		"CustomResource": {loginKey, login, true},
		"InPlainText":    {loginKey, login, false},
	} {
		t.Run(name, func(t *testing.T) {
			part := func(pin string) (name string, data []byte, hash string) {
				obj := careful(0, tc.of(pin))
				p, err := revision.ObjectPart(obj)
				if err != nil {
					t.Fatal(err)
				}
				if data, err = p.Encode(); err != nil {
					t.Fatal(err)
				}
				s := around(t, "", false, nil)
				s.hub = theHub
				gvr := map[string]schema.GroupVersionResource{"Secret": secrets, "Login": logins}[obj.GetKind()]
				return p.Name, data, decide(source{gvr: gvr, kind: obj.GetKind(), object: obj}, previous{uid: "1"}, s).variants[0].hash
			}
			c := governedStation(t, careful(0, tc.of("0815")))
			v := c.reporter.revisions
			var was [2]refractv1alpha1.Revision
			var hashes [2]string
			places := []types.NamespacedName{}
			for i, pin := range []string{"4711", "0815"} {
				name, data, hash := part(pin)
				at := objectPlace(tc.key, name, v.system)
				if !tc.hidden {
					at = plainPlace(tc.key, name, v.system)
				}
				if err := v.put(t.Context(), at, data, tc.hidden); err != nil {
					t.Fatal(err)
				}
				was[i], hashes[i], places = revision.Of(name, 0, nil), hash, append(places, at)
			}
			v.cache = &parts{} // The cache of another process.
			token := was[1].Name + "/2/1/nonce"
			kind := tc.of("").GetKind()
			record := recordOn("1",
				refractv1alpha1.ClusterStatus{Name: "eu-1", State: refractv1alpha1.StateFailed, Revision: was[1].Name, Message: "revision " + was[1].Name},
				refractv1alpha1.ClusterStatus{Name: "us-1", State: refractv1alpha1.StateSynced})
			record.Name = recordName(tc.key)
			record.Spec.Source.APIVersion, record.Spec.Source.Kind = tc.of("").GetAPIVersion(), kind
			record.Spec.Source.Resource, record.Spec.Source.Name = tc.key.Resource, tc.key.Name
			record.Annotations = map[string]string{
				refractv1alpha1.ApproveRolloutAnnotation: token, refractv1alpha1.ResumeAnnotation: was[0].Name + "/1/retry/before",
			}
			record.Status.Rollout = &refractv1alpha1.RolloutStatus{
				UID: "1", Attempt: 2, Nonce: "nonce", Phase: refractv1alpha1.RolloutWaiting, Opened: 1, Target: was[1], LastGood: was[0],
				Current: []refractv1alpha1.ReleasedCluster{{Name: "eu-1", Since: microTime(time.Now())}}, Awaits: token, Message: "revision " + was[1].Name,
				Policies: []refractv1alpha1.ObeyedPolicy{{
					PolicyReference: refractv1alpha1.PolicyReference{Kind: refractv1alpha1.KindRolloutPolicy, Namespace: "shop", Name: "careful", Generation: 1}, UID: "c",
				}},
			}
			status := record.Status.DeepCopy()
			if err := c.reporter.client.Create(t.Context(), record); err != nil {
				t.Fatal(err)
			}
			record.Status = *status
			if err := c.reporter.client.Status().Update(t.Context(), record); err != nil {
				t.Fatal(err)
			}
			see(t, c, tc.key)
			held := map[Key]map[string]string{tc.key: {"eu-1": hashes[1], "us-1": hashes[0]}}
			if found := guessed(t, readableTexts(t, c, tc.key), func(pin string) *unstructured.Unstructured { return careful(0, tc.of(pin)) }); len(found) != 2 {
				t.Fatalf("want both PINs in the Propagation of the earlier version, got %v", found)
			}
			for range 4 {
				lookAt(t, c, held, tc.key)
				if held[tc.key]["eu-1"] != hashes[1] || held[tc.key]["us-1"] != hashes[0] {
					t.Fatalf("want eu-1 to have the newest content and us-1 the good one, %s and %s, got %v", hashes[1], hashes[0], held[tc.key])
				}
			}
			r := recordFor(t, c, tc.key)
			is := r.Status.Rollout
			if is.Attempt != 2 || is.Nonce != "nonce" || rollout.Stopped(is) || len(is.Current) != 1 || is.Current[0].Name != "eu-1" {
				t.Errorf("want the rollout unchanged, got %+v", is)
			}
			if want := is.Target.Name + "/2/1/nonce"; r.Annotations[refractv1alpha1.ApproveRolloutAnnotation] != want || len(r.Annotations) != 1 {
				t.Errorf("want the approval %s, and no other text left, got %v", want, r.Annotations)
			}
			v.rollouts = func() map[Key]*refractv1alpha1.RolloutStatus {
				return map[Key]*refractv1alpha1.RolloutStatus{tc.key: is}
			}
			for _, at := range places {
				for _, later := range []time.Duration{time.Hour, time.Hour + leastAge} {
					v.now = func() time.Time { return time.Now().Add(later) }
					if _, err := v.sweep(t.Context(), at.Namespace); err != nil {
						t.Fatal(err)
					}
				}
				if err := v.live.Get(t.Context(), at, &appsv1.ControllerRevision{}); !apierrors.IsNotFound(err) {
					t.Errorf("want %s deleted, got %v", at, err)
				}
			}
			if found := guessed(t, readableTexts(t, c, tc.key), func(pin string) *unstructured.Unstructured { return careful(0, tc.of(pin)) }); len(found) > 0 {
				t.Errorf("a search through all PINs finds %v in %s", found, readableTexts(t, c, tc.key))
			}
			other := &revisions{client: v.client, live: v.live, system: v.system, cache: &parts{}, now: time.Now}
			for i, r := range []*refractv1alpha1.Revision{&is.LastGood, &is.Target} {
				m, err := other.read(t.Context(), tc.key, r)
				if err != nil || m.err != nil || !strings.Contains(fmt.Sprint(m.object), []string{"NDcxMQ==", "MDgxNQ=="}[i]) && !strings.Contains(fmt.Sprint(m.object), []string{"4711", "0815"}[i]) {
					t.Errorf("want the content readable for another replica, got %+v, %v", m, err)
				}
			}
		})
	}
}

// TestKeyIsLost: with another key, the newest revision cannot be compared with the recorded ones. The content of the
// clusters then counts as good, and a stopped rollout stays stopped. A process that has read the stored parts before
// continues unchanged.
func TestKeyIsLost(t *testing.T) {
	key := keyOf("secrets", "door")
	before, after := contentOf(t, careful(0, pinned("4711"))), contentOf(t, careful(0, pinned("0815")))
	released := func(s *refractv1alpha1.RolloutStatus) { s.Current = []refractv1alpha1.ReleasedCluster{{Name: "eu-1"}} }
	for name, tc := range map[string]struct {
		reason string
		phase  refractv1alpha1.RolloutPhase
		more   func(*refractv1alpha1.RolloutStatus)
		held   [2]string // By eu-1 and us-1.
		known  bool      // Whether this process has read the parts.
		want   refractv1alpha1.RolloutPhase
		good   string
	}{
		"Complete":    {"All have the content.", refractv1alpha1.RolloutComplete, nil, [2]string{after, after}, false, refractv1alpha1.RolloutComplete, "target"},
		"Edited":      {"The edit has not been tried anywhere.", refractv1alpha1.RolloutComplete, nil, [2]string{before, before}, false, refractv1alpha1.RolloutProgressing, rollout.Found},
		"Progressing": {"The rollout begins again with the first wave.", refractv1alpha1.RolloutProgressing, released, [2]string{after, before}, false, refractv1alpha1.RolloutProgressing, rollout.Found},
		"Reverted":    {"The failed content is not tried again.", refractv1alpha1.RolloutReverted, nil, [2]string{before, before}, false, refractv1alpha1.RolloutHalted, rollout.Found},
		"Halted":      {"No other cluster gets the content.", refractv1alpha1.RolloutHalted, released, [2]string{after, before}, false, refractv1alpha1.RolloutHalted, rollout.Found},
		"Known":       {"This process stores the parts that it has read with the new key.", refractv1alpha1.RolloutProgressing, released, [2]string{after, before}, true, refractv1alpha1.RolloutProgressing, "kept"},
		"KnownHalted": {"Nothing changes.", refractv1alpha1.RolloutHalted, released, [2]string{after, before}, true, refractv1alpha1.RolloutHalted, "kept"},
	} {
		t.Run(name, func(t *testing.T) {
			c := governedStation(t, careful(0, pinned("0815")))
			v := c.reporter.revisions
			lost := revision.NewKey()
			var was [2]refractv1alpha1.Revision
			for i, pin := range []string{"4711", "0815"} {
				p, err := revision.ObjectPart(careful(0, pinned(pin)))
				if err != nil {
					t.Fatal(err)
				}
				was[i] = revision.Of(revision.SealedName(lost, p.Name), 0, nil)
				if data, err := p.Encode(); err != nil {
					t.Fatal(err)
				} else if tc.known {
					v.cache.add(objectPlace(key, was[i].Object, v.system), data)
				}
			}
			record := recordOn("1")
			record.Name = recordName(key)
			record.Spec.Source.Kind, record.Spec.Source.Resource, record.Spec.Source.Name = "Secret", "secrets", "door"
			record.Status.Rollout = &refractv1alpha1.RolloutStatus{UID: "1", Attempt: 2, Opened: 1, Nonce: "nonce", Phase: tc.phase, Target: was[1], LastGood: was[0]}
			if tc.phase == refractv1alpha1.RolloutComplete {
				record.Status.Rollout.LastGood = was[1]
			}
			if tc.more != nil {
				tc.more(record.Status.Rollout)
			}
			status := record.Status.DeepCopy()
			if err := c.reporter.client.Create(t.Context(), record); err != nil {
				t.Fatal(err)
			}
			record.Status = *status
			if err := c.reporter.client.Status().Update(t.Context(), record); err != nil {
				t.Fatal(err)
			}
			see(t, c, key)
			held := map[Key]map[string]string{key: {"eu-1": tc.held[0], "us-1": tc.held[1]}}
			for range 6 {
				lookAt(t, c, held, key)
				if held[key]["us-1"] != tc.held[1] {
					t.Fatalf("%s\nwant us-1 to keep %s, got %s", tc.reason, tc.held[1], held[key]["us-1"])
				}
			}
			if first := held[key]["eu-1"]; first != tc.held[0] && tc.want != refractv1alpha1.RolloutProgressing {
				t.Errorf("%s\nwant eu-1 to keep %s, got %s", tc.reason, tc.held[0], first)
			}
			is := recordFor(t, c, key).Status.Rollout
			if is.Phase != tc.want || !v.current(key, &is.Target) {
				t.Errorf("%s\nwant phase %s, and a name from the key, got %s, %+v", tc.reason, tc.want, is.Phase, is.Target)
			}
			switch {
			case tc.good == "target" && is.LastGood.Name != is.Target.Name, tc.good == rollout.Found && is.LastGood.Name != rollout.Found:
				t.Errorf("%s\nwant the good revision %s, got %s", tc.reason, tc.good, is.LastGood.Name)
			case tc.good == "kept":
				other := &revisions{client: v.client, live: v.live, system: v.system, cache: &parts{}, now: time.Now}
				if m, err := other.read(t.Context(), key, &is.LastGood); err != nil || m.err != nil {
					t.Errorf("%s\nwant the good revision readable for another replica, got %+v, %v", tc.reason, m, err)
				}
			}
			if rollout.Stopped(is) && (is.Awaits == "" || is.Message == "") {
				t.Errorf("%s\nwant a message about the continuation, got %+v", tc.reason, is)
			}
		})
	}
}

// TestKeyIsAnother: another sealing key replaces the one that a replica knows, and then the replica begins to lead. It
// mistakes no recorded content for other content.
func TestKeyIsAnother(t *testing.T) {
	key := keyOf("secrets", "door")
	c := governedStation(t, careful(0, pinned("4711")))
	held := map[Key]map[string]string{}
	for range 3 {
		lookAt(t, c, held, key)
	}
	was := recordFor(t, c, key).Status.Rollout
	if was.Phase != refractv1alpha1.RolloutComplete {
		t.Fatalf("want a complete rollout, got %+v", was)
	}
	c.reporter.revisions.key.last = revision.NewKey()
	for range 3 {
		lookAt(t, c, held, key)
	}
	if is := recordFor(t, c, key).Status.Rollout; is.Phase != was.Phase || is.Attempt != was.Attempt || is.Target.Name != was.Target.Name {
		t.Errorf("want the rollout unchanged, got %+v", is)
	}
}

// TestSealedNames: the key determines the name of a part, and a name made with another key does not match.
func TestSealedNames(t *testing.T) {
	part, err := revision.ObjectPart(pinned("4711"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := part.Encode()
	if err != nil {
		t.Fatal(err)
	}
	sealing := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: revision.KeySecret}, Data: map[string][]byte{revision.KeyName: revision.NewKey()}}
	other := revision.NewKey()
	c := governedStation(t)
	if err := c.reporter.client.Create(t.Context(), sealing); err != nil {
		t.Fatal(err)
	}
	v := c.reporter.revisions
	name, err := v.nameOf(t.Context(), keyOf("secrets", "door"), &part)
	if err != nil || name != revision.SealedName(sealing.Data[revision.KeyName], part.Name) || name == revision.SealedName(other, part.Name) {
		t.Fatalf("the part is kept as %s, %v", name, err)
	}
	if err := revision.Check(data, name, sealing.Data[revision.KeyName]); err != nil {
		t.Error(err)
	}
	for reason, err := range map[string]error{
		"another key":     revision.Check(data, name, other),
		"no key":          revision.Check(data, name, nil),
		"another content": revision.Check(bytes.Replace(data, []byte("door"), []byte("gate"), 1), name, sealing.Data[revision.KeyName]),
	} {
		if err == nil {
			t.Errorf("with %s the name still matches", reason)
		}
	}
}
