package propagation

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/revision"
)

// pinned returns a Secret with a PIN.
func pinned(pin string) *unstructured.Unstructured {
	obj := sourceObject("v1", "Secret", "door", "pp")
	obj.Object["data"] = map[string]any{"pin": base64.StdEncoding.EncodeToString([]byte(pin))}
	return obj
}

// contentOf returns the content hash of the copies of an object.
func contentOf(t *testing.T, obj *unstructured.Unstructured) string {
	t.Helper()
	s := around(t, "", false, nil)
	s.hub = theHub
	p := decide(source{gvr: secrets, kind: "Secret", object: obj}, previous{uid: "1"}, s)
	if len(p.variants) != 1 {
		t.Fatalf("want one content, got %s", summary(p))
	}
	return p.variants[0].hash
}

// reportedOn lets a replica report on an object whose copy on eu-1 has this hash, and returns the Propagation on the
// hub.
func reportedOn(t *testing.T, c *Controller, key Key, hash string) *refractv1alpha1.Propagation {
	t.Helper()
	if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
		t.Fatal(err)
	}
	p := c.state.desired(key)
	c.state.report(key, "eu-1", clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced, hash: hash})
	if _, err := c.reporter.reportOne(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	return recordFor(t, c, key)
}

func recordFor(t *testing.T, c *Controller, key Key) *refractv1alpha1.Propagation {
	t.Helper()
	r := &refractv1alpha1.Propagation{}
	if err := c.reporter.live.Get(t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: recordName(key)}, r); err != nil {
		t.Fatal(err)
	}
	r.Status.Expand()
	return r
}

// TestGuesses: a reader of Propagations cannot find the PIN in a Secret by trying all PINs.
func TestGuesses(t *testing.T) {
	key := keyOf("secrets", "door")
	s, _ := hubOf(t, pinned("4711"))
	c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
	duplicated(c)
	c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
	hash := contentOf(t, pinned("4711"))
	r := reportedOn(t, c, key, hash)
	if p := c.state.desired(key); p.variants[0].hash != hash {
		t.Fatalf("the guesses do not yield the hashes of contents: want %s, got %s", hash, p.variants[0].hash)
	}
	if len(r.Status.Variants) != 1 || !revision.IsDigest(r.Status.Variants[0].Hash) {
		t.Errorf("want one variant with a digest, got %+v", r.Status.Variants)
	}
	if i := r.Status.Clusters; len(i) != 2 || i[0].State != refractv1alpha1.StateSynced || i[0].Hash != r.Status.Variants[0].Hash {
		t.Errorf("want eu-1 to hold the content, got %+v", i)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	const shortest = 12 // Shorter texts may occur by chance.
	for pin := range 10000 {
		guess := pinned(fmt.Sprintf("%04d", pin))
		part, err := revision.ObjectPart(guess)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(part.Name, "refract-")
		for _, digest := range []string{contentOf(t, guess), name, revision.Of(part.Name, 0, nil).Name} {
			if strings.Contains(string(text), digest[:shortest]) {
				t.Fatalf("the report reveals that the PIN is %04d: %s", pin, text)
			}
		}
	}
}

// TestDigestsAfterRestart: reported digests are recognized after a restart. So are the digests of an earlier version,
// which used no key. A digest with a lost key proves nothing about the content of a cluster.
func TestDigestsAfterRestart(t *testing.T) {
	key := keyOf("secrets", "door")
	hash := contentOf(t, pinned("4711"))
	sealing := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: revision.KeySecret},
		Data:       map[string][]byte{revision.KeyName: revision.NewKey()},
	}
	digest := revision.Digest(sealing.Data[revision.KeyName], hash)
	lost := revision.Digest(revision.NewKey(), hash)
	for name, tc := range map[string]struct {
		reason         string
		reported       string
		known, foreign string // The hash in the state, and the hash in the report.
	}{
		"Same":    {"The digest was made with the same key.", digest, hash, digest},
		"Earlier": {"An earlier version reported the plain hash, which is replaced.", hash, hash, digest},
		"Lost":    {"The key was replaced, so only the copy shows its content.", lost, lost, lost},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := hubOf(t, pinned("4711"))
			row := func(name string) refractv1alpha1.ClusterStatus {
				return refractv1alpha1.ClusterStatus{Name: name, State: refractv1alpha1.StateSynced, Hash: tc.reported}
			}
			r := recordOn("1", row("eu-1"), row("us-1"))
			r.Name = recordName(key)
			r.Spec.Source.Kind, r.Spec.Source.Resource, r.Spec.Source.Name = "Secret", "secrets", "door"
			c := station(t, s, &replica{leads: true}, interceptor.Funcs{}, r, sealing.DeepCopy())
			duplicated(c)
			c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
			first := newRecord(true)
			if err := c.reporter.live.Get(t.Context(), client.ObjectKeyFromObject(r), first.Object); err != nil {
				t.Fatal(err)
			}
			c.reporter.records.update(first, firstListed)
			if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
				t.Fatal(err)
			}
			own, _ := c.state.clusterStatus(key, "eu-1")
			if own.hash != tc.known {
				t.Errorf("%s\nwant %s in the state, got %s", tc.reason, tc.known, own.hash)
			}
			if _, err := c.reporter.reportOne(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			for _, row := range recordFor(t, c, key).Status.Clusters {
				if synced := row.State == refractv1alpha1.StateSynced; row.Hash != tc.foreign || row.Name == "us-1" && synced != (tc.reported != lost) {
					t.Errorf("%s\nwant %s reported for %s, got %s %s", tc.reason, tc.foreign, row.Name, row.State, row.Hash)
				}
			}
		})
	}
}

// TestKeyIsReplaced: a replica notices within a minute that the key was replaced, and all objects are decided and
// reported again with the present key.
func TestKeyIsReplaced(t *testing.T) {
	key := keyOf("secrets", "door")
	hash := contentOf(t, pinned("4711"))
	s, _ := hubOf(t, pinned("4711"))
	c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
	duplicated(c)
	c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
	reportedOn(t, c, key, hash)
	sealing := &corev1.Secret{}
	if err := c.reporter.live.Get(t.Context(), types.NamespacedName{Namespace: "sys", Name: revision.KeySecret}, sealing); err != nil {
		t.Fatal(err)
	}
	sealing.Data[revision.KeyName] = revision.NewKey()
	if err := c.reporter.client.Update(t.Context(), sealing); err != nil {
		t.Fatal(err)
	}
	other := revision.Digest(sealing.Data[revision.KeyName], hash)
	c.decider.everything.queue = queue[struct{}]{}
	for range 2 { // The second time, the key is the same.
		again, err := c.revisions.readKeyAgain(t.Context(), struct{}{})
		if err != nil || again.RequeueAfter != time.Minute {
			t.Fatalf("want the key to be read again within a minute, got %+v, %v", again, err)
		}
	}
	if n := c.decider.everything.size(); n != 1 {
		t.Error("want all objects decided again")
	}
	if _, err := c.decider.decideOne(t.Context(), key, priorityResync); err != nil {
		t.Fatal(err)
	}
	if _, err := c.reporter.reportOne(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	for _, row := range recordFor(t, c, key).Status.Clusters {
		if row.Name == "eu-1" && (row.State != refractv1alpha1.StateSynced || row.Hash != other) {
			t.Errorf("want %s to hold %s, got %s %s", row.Name, other, row.State, row.Hash)
		}
	}
}

// TestReadKeyAgain: a new key replaces the known one. If the Secret is missing, the known key still decrypts sealed
// content.
func TestReadKeyAgain(t *testing.T) {
	first, second := revision.NewKey(), revision.NewKey()
	type want struct {
		Asked, Replaced, Failed bool
		Known                   []byte
	}
	cases := map[string]struct {
		reason string
		known  []byte
		stored []byte // Nil if the Secret is missing.
		forget bool   // Whether the key is forgotten while it is read.
		want   want
	}{
		"Never":   {"No object has needed the key yet.", nil, first, false, want{}},
		"Same":    {"The key has not been replaced.", first, first, false, want{Asked: true, Known: first}},
		"Another": {"The key has been replaced.", first, second, false, want{Asked: true, Replaced: true, Known: second}},
		"Gone":    {"The Secret is created only when content is sealed.", first, nil, false, want{Asked: true, Known: first}},
		"Broken":  {"The Secret contains no valid key.", first, []byte("a"), false, want{Asked: true, Failed: true, Known: first}},
		"Late":    {"The key may have changed since, and is read when it is needed.", first, second, true, want{Asked: true, Known: first}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got want
			k := sealingKey{key: tc.known, last: tc.known}
			hub := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, at client.ObjectKey, obj client.Object, o ...client.GetOption) error {
					got.Asked = true
					if tc.forget {
						k.forget()
					}
					return c.Get(ctx, at, obj, o...)
				},
			})
			if tc.stored != nil {
				hub.WithObjects(&corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: revision.KeySecret}, Data: map[string][]byte{revision.KeyName: tc.stored},
				})
			}
			got.Failed = k.readAgain(t.Context(), hub.Build(), "sys") != nil
			got.Replaced, got.Known = k.replaced(), k.known()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nreadAgain(): -want, +got:\n%s", tc.reason, diff)
			}
			if k.replaced() {
				t.Error("want replaced() to return true once")
			}
		})
	}
}

// TestNoKeyNoReport: while the key cannot be read, objects that need it are neither decided nor reported. Other objects
// continue.
func TestNoKeyNoReport(t *testing.T) {
	denied := errors.New("denied")
	s, _ := hubOf(t, pinned("4711"), sourceObject("v1", "ConfigMap", "web", "pp"))
	c := station(t, s, &replica{leads: true}, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, at client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			if at.Name == revision.KeySecret {
				return denied
			}
			return c.Get(ctx, at, obj, o...)
		},
	})
	duplicated(c)
	c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
	for resource, want := range map[Key]error{keyOf("secrets", "door"): denied, keyOf("configmaps", "web"): nil} {
		if _, err := c.decider.decideOne(t.Context(), resource, priorityChanged); !errors.Is(err, want) {
			t.Errorf("want %v of %s, got %v", want, resource, err)
		}
		if decided := c.state.desired(resource) != nil; decided != (want == nil) {
			t.Errorf("want %s decided: %t, got %t", resource, want == nil, decided)
		}
	}
}
