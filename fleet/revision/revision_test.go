package revision

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
)

const web = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  uid: "1"
  resourceVersion: "7"
  generation: 3
  labels: {app: web, kubeadmiral.io/override-policy-name: europe, refract.dev/rollout-policy-name: careful}
  annotations: {note: "a < b & c", kubeadmiral.io/dry-run: "false"}
spec: {replicas: 3, template: {spec: {containers: [{name: web, image: "web:1"}]}}, ratio: 0.25, most: 9007199254740993}
status: {replicas: 3}
`

const europe = `
metadata: {name: europe, namespace: shop, generation: 4}
spec:
  overrideRules:
  - targetClusters: {clusterSelector: {region: eu}}
    overriders: {jsonpatch: [{path: /spec/replicas, operator: replace, value: 5}, {path: /spec/ratio, operator: remove}]}
`

func read(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	json, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := obj.UnmarshalJSON(json); err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestRoundTrip checks that stored parts render to the same result as the original ones.
func TestRoundTrip(t *testing.T) {
	obj, policy := object(t, web), &corev1alpha1.OverridePolicy{}
	read(t, europe, policy)
	objectPart, err := ObjectPart(obj)
	if err != nil {
		t.Fatal(err)
	}
	policyPart, err := PolicyPart(policy)
	if err != nil {
		t.Fatal(err)
	}
	storedObject, err := objectPart.Encode()
	if err != nil {
		t.Fatal(err)
	}
	storedPolicy, err := policyPart.Encode()
	if err != nil {
		t.Fatal(err)
	}
	// An API server may change the encoding.
	rewritten := strings.ReplaceAll(string(storedObject), `\u003c`, "<")
	again, err := DecodeObject([]byte(rewritten), objectPart.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := DecodePolicy(storedPolicy, policyPart.Name, 4)
	if err != nil {
		t.Fatal(err)
	}
	own, errs := override.Compile(policy)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	clusters := []match.Cluster{{Name: "a", Labels: map[string]string{"region": "eu"}}, {Name: "b"}}
	want, got := override.Render(obj, clusters, own), override.Render(again, clusters, compiled)
	for i := range want {
		if diff := cmp.Diff(want[i].Object.Object, got[i].Object.Object); diff != "" {
			t.Errorf("-from the object, +from the stored parts:\n%s", diff)
		}
	}
	if compiled.Ref.String() != own.Ref.String() {
		t.Errorf("want policy %s, got %s", own.Ref, compiled.Ref)
	}
}

// TestName checks that fields for the hub alone do not change the name of a revision, and that all others do.
func TestName(t *testing.T) {
	first, err := ObjectPart(object(t, web))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, old, new string
		same             bool
	}{
		"Labels of ours":  {"Refract's labels concern only the placement and the rollout.", "rollout-policy-name: careful", "rollout-policy-name: other", true},
		"Status":          {"Each cluster has its own status.", "status: {replicas: 3}", "status: {replicas: 2}", true},
		"ResourceVersion": {"The API server sets the resourceVersion.", `"7"`, `"8"`, true},
		"Image":           {"The image is propagated.", "web:1", "web:2", false},
		"Label":           {"Labels are propagated.", "app: web", "app: shop", false},
		"A digit":         {"Numbers are not rounded.", "9007199254740993", "9007199254740992", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			is, err := ObjectPart(object(t, strings.Replace(web, tc.old, tc.new, 1)))
			if err != nil {
				t.Fatal(err)
			}
			if same := is.Name == first.Name; same != tc.same {
				t.Errorf("%s\nwant the same name: %t, got %s and %s", tc.reason, tc.same, first.Name, is.Name)
			}
		})
	}
}

// TestLarge checks that a large part is compressed, and that a part that stays too large is rejected.
func TestLarge(t *testing.T) {
	of := func(text string) Part {
		p, err := ObjectPart(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": text}}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	long := of(strings.Repeat("abcdefgh", 200_000))
	data, err := long.Encode()
	if err != nil || len(data) > 100_000 {
		t.Fatalf("want the part compressed, got %d bytes, %v", len(data), err)
	}
	if _, err := DecodeObject(data, long.Name, nil); err != nil {
		t.Error(err)
	}
	random := make([]byte, 2<<20)
	source := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"[source.IntN(64)]
	}
	noise := of(string(random))
	if _, err := noise.Encode(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("want ErrTooLarge, got %v", err)
	}
}

// TestOther checks that content under the name of another part is rejected.
func TestOther(t *testing.T) {
	p, err := ObjectPart(object(t, web))
	if err != nil {
		t.Fatal(err)
	}
	other, err := ObjectPart(object(t, strings.Replace(web, "web:1", "web:2", 1)))
	if err != nil {
		t.Fatal(err)
	}
	data, err := other.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeObject(data, p.Name, nil); err == nil || !strings.Contains(err.Error(), "its content has changed") {
		t.Errorf("want an error, got %v", err)
	}
}

// FuzzDecode checks that decoding ends for every stored content, and that a decoded object matches its name.
func FuzzDecode(f *testing.F) {
	p, err := PolicyPart(&corev1alpha1.ClusterOverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if err != nil {
		f.Fatal(err)
	}
	data, err := p.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"gzip":"H4sIAAAAAAAA/wEAAP//AAAAAAAAAAA="}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if obj, err := DecodeObject(data, p.Name, nil); err == nil {
			again, err := part(obj.Object)
			if err != nil || again.Name != p.Name {
				t.Errorf("want the object of the name %s, got %s, %v", p.Name, again.Name, err)
			}
		}
		_, _ = DecodePolicy(data, p.Name, 1)
	})
}
