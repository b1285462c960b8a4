package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/golden"
)

// TestLaws checks the laws for random pods and policies, with fixed seeds.
func TestLaws(t *testing.T) {
	const pairs = 1000
	applied, skipped, rejected, nothing := 0, 0, 0, 0
	for seed := range uint64(pairs) {
		random := rand.New(rand.NewPCG(seed, 5))
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		c := &choices{rest: data}
		set, pod := c.set(t), c.pod(t)
		checkLaws(t, set, pod)
		checkAgain(t, c, set, pod)
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, pod)
		}
		result, err := set.Inject(pod)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case result.Rejected != nil:
			rejected++
		case len(result.Applied) > 0:
			applied++
		case len(result.Skipped) > 0:
			skipped++
		default:
			nothing++
		}
	}
	t.Logf("of %d pods %d were injected, %d left out, %d refused; %d were not selected", pairs, applied, skipped, rejected, nothing)
	if min(applied, skipped, rejected, nothing) < pairs/50 {
		t.Error("the pods and policies are not varied enough")
	}
}

// FuzzLaws searches for pods and policies that violate a law.
func FuzzLaws(f *testing.F) {
	f.Add([]byte{})
	for i := range byte(20) {
		f.Add(bytes.Repeat([]byte{i, 3, i + 1, 7, 0, 2 * i}, 40))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &choices{rest: data}
		set, pod := c.set(t), c.pod(t)
		checkLaws(t, set, pod)
		checkAgain(t, c, set, pod)
	})
}

// checkAgain checks the laws for an injected pod after a change by another webhook or a user. It then checks them for
// ephemeral containers.
func checkAgain(t *testing.T, c *choices, set *Set, pod []byte) {
	t.Helper()
	after := apply(t, pod, mustInject(t, set, pod).Patch)
	object, ok := decode(after).(map[string]any)
	if !ok {
		t.Fatalf("%s is no object", after)
	}
	spec := member(object, "spec")
	containers, _ := spec["containers"].([]any)
	switch c.below(3) {
	case 0:
		spec["containers"] = slices.Concat(containers, []any{c.container("sidecar")})
	case 1:
		spec["containers"] = slices.Concat([]any{c.container("sidecar")}, containers)
	default:
		if len(containers) > 0 {
			containers[0] = c.container("changed")
		}
	}
	checkLaws(t, set, encoded(t, object))

	earlier := c.container("earlier")
	spec["ephemeralContainers"] = []any{earlier}
	old := encoded(t, object)
	spec["ephemeralContainers"] = []any{earlier, c.container("debugger")}
	pod = encoded(t, object)
	result, err := set.InjectEphemeral(pod, old)
	if err != nil {
		t.Fatal(err)
	}
	again := apply(t, pod, result.Patch)
	checkAdditions(t, pod, again, result)
	if bytes.Contains(result.Patch, []byte(`"/metadata`)) || bytes.Contains(result.Patch, []byte(`"/spec/volumes`)) {
		t.Errorf("a pod that runs cannot get %s", result.Patch)
	}
	if second, err := set.InjectEphemeral(again, old); err != nil || second.Patch != nil {
		t.Errorf("the second time: %v, %s", err, second.Patch)
	}
	if none, err := set.InjectEphemeral(again, again); err != nil || none.Patch != nil {
		t.Errorf("nothing is new: %v, %s", err, none.Patch)
	}
}

func mustInject(t *testing.T, set *Set, pod []byte) *Result {
	t.Helper()
	result, err := set.Inject(pod)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzPod injects a set of policies into any text instead of a pod; its seeds are the pods of the golden files. The
// injection must not panic, and each patch must apply.
func FuzzPod(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		pod, err := yaml.YAMLToJSON([]byte(golden.Texts(golden.Inputs(archive))["pod.yaml"]))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(pod)
	}
	for _, text := range malformed {
		f.Add([]byte(text))
	}
	everything := `{env: [{name: A, value: "1"}], envFrom: [{secretRef: {name: s}}],
		volumes: [{name: v, emptyDir: {}}], volumeMounts: [{name: v, mountPath: /v}], containers: {ephemeralContainers: true}, selector: {}}`
	policy := &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := yaml.Unmarshal([]byte(everything), &policy.Spec); err != nil {
		f.Fatal(err)
	}
	compiled, errs := Compile(policy)
	if len(errs) > 0 {
		f.Fatal(errs)
	}
	set := NewSet(compiled)
	f.Fuzz(func(t *testing.T, pod []byte) {
		before := bytes.Clone(pod)
		result, err := set.Inject(pod)
		if err == nil && result.Patch != nil {
			after := apply(t, pod, result.Patch)
			if second, err := set.Inject(after); err != nil || second.Patch != nil {
				t.Errorf("the second time: %v, %s", err, second.Patch)
			}
		}
		if _, err := set.Examine(pod); err == nil && !json.Valid(pod) && result != nil && len(result.Applied) > 0 {
			t.Error("this is no JSON")
		}
		if result, err := set.InjectEphemeral(pod, []byte(`{"spec":{}}`)); err == nil {
			apply(t, pod, result.Patch)
		}
		if !bytes.Equal(before, pod) {
			t.Error("the pod was modified")
		}
	})
}

// choices turns bytes into decisions. After the last byte all decisions are 0.
type choices struct{ rest []byte }

// below returns a number from 0 to n-1.
func (c *choices) below(n int) int {
	if len(c.rest) == 0 {
		return 0
	}
	first := c.rest[0]
	c.rest = c.rest[1:]
	return int(first) % n
}

// one returns true in one of n cases.
func (c *choices) one(n int) bool { return c.below(n) == n-1 }

func pick[T any](c *choices, from ...T) T { return from[c.below(len(from))] }

// parsed maps the text of each item below to its decoded value. No test modifies these values.
var parsed = func() map[string]any {
	out := map[string]any{}
	for _, text := range slices.Concat(someEnv, someEnvFrom, someVolumes, someMounts) {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err == nil {
			out[text] = v
		}
	}
	return out
}()

// Items that are compatible, equal in different notations, or in conflict.
var (
	someEnv = []string{
		`{name: A, value: "1"}`, `{name: A, value: "2"}`, `{name: A}`, `{name: A, value: ""}`, `{name: B, value: "secret value"}`, `{name: "C.d/e~f", value: $(A)}`,
		`{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}`, `{name: POD, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}`,
		`{name: KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}`, `{name: KEY, valueFrom: {secretKeyRef: {name: s, key: k, optional: false}}}`,
		`{name: KEY, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}`,
		`{name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}`, `{name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "1"}}}`,
	}
	someEnvFrom = []string{
		`{secretRef: {name: s}}`, `{secretRef: {name: s, optional: false}}`, `{secretRef: {name: s, optional: true}}`,
		`{configMapRef: {name: s}}`, `{prefix: P_, configMapRef: {name: s}}`, `{prefix: "", secretRef: {name: other}}`,
	}
	someVolumes = []string{
		`{name: v, emptyDir: {}}`, `{name: v, emptyDir: {sizeLimit: 1Gi}}`, `{name: v, emptyDir: {sizeLimit: 1024Mi, medium: ""}}`,
		`{name: w, secret: {secretName: x}}`, `{name: w, secret: {secretName: x, defaultMode: 420}}`, `{name: w, secret: {secretName: x, defaultMode: 256}}`,
		`{name: x, configMap: {name: x, items: [{key: k, path: p}]}}`, `{name: x, persistentVolumeClaim: {claimName: c}}`,
		`{name: z, downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.labels}}]}}`,
	}
	someMounts = []string{
		`{name: v, mountPath: /v}`, `{name: v, mountPath: /v/, readOnly: false}`, `{name: v, mountPath: /other}`, `{name: w, mountPath: /v}`,
		`{name: w, mountPath: "/w//inner", readOnly: true}`, `{name: x, mountPath: /x, subPath: s}`, `{name: nowhere, mountPath: /n}`,
		`{name: v, mountPath: /v, mountPropagation: None}`,
	}
	someNames = []string{"app", "web-1", "web-2", "sidecar"}
)

// some returns up to three elements of from.
func (c *choices) some(from []string) []any {
	var out []any
	for range c.below(4) {
		out = append(out, parsed[pick(c, from...)])
	}
	return out
}

// set returns up to six policies, without the invalid ones.
func (c *choices) set(t *testing.T) *Set {
	t.Helper()
	var policies []*Policy
	for i := range c.below(7) {
		volumes, mounts := distinct(c.some(someVolumes), "name"), distinct(c.some(someMounts), "mountPath")
		if !c.one(4) {
			mounts = slices.DeleteFunc(mounts, func(m any) bool {
				return !slices.ContainsFunc(volumes, func(v any) bool { return v.(map[string]any)["name"] == m.(map[string]any)["name"] })
			})
		}
		object := map[string]any{
			"metadata": map[string]any{"name": fmt.Sprintf("p%d", i), "namespace": "ns", "generation": int64(c.below(3))},
			"spec": map[string]any{
				"selector": decode([]byte(pick(c, `{}`, `{"matchLabels":{"role":"a"}}`, `{"matchLabels":{"role":"a","tier":"b"}}`,
					`{"matchExpressions":[{"key":"tier","operator":"Exists"}]}`, `{"matchExpressions":[{"key":"role","operator":"In","values":["a","b"]}]}`,
					`{"matchExpressions":[{"key":"role","operator":"NotIn","values":["b"]}]}`))),
				"env": distinct(c.some(someEnv), "name"), "envFrom": c.some(someEnvFrom),
				"volumes": volumes, "volumeMounts": mounts,
				"service":     pick(c, "db", "", "cache"),
				"envPosition": pick(c, "Append", "Prepend"),
				"onConflict":  pick(c, "Skip", "Skip", "Skip", "Skip", "Reject"),
				"mode":        pick(c, "Enforce", "Enforce", "Enforce", "Audit"),
				"containers": map[string]any{
					"include": pick(c, nil, []any{"web*"}, []any{"app", "sidecar"}), "exclude": pick(c, nil, nil, []any{"*-c1"}),
					"initContainers": pick(c, true, false), "ephemeralContainers": pick(c, true, false),
				},
			},
		}
		policy := &refractv1beta1.ServiceInjectionPolicy{}
		if err := json.Unmarshal(encoded(t, object), policy); err != nil {
			t.Fatal(err)
		}
		if c.one(3) {
			policy.CreationTimestamp = metav1.Unix(int64(c.below(3)), 0)
		}
		if compiled, errs := Compile(policy); len(errs) == 0 {
			policies = append(policies, compiled)
		}
	}
	return NewSet(policies...)
}

// distinct removes items with a duplicate key.
func distinct(items []any, key string) []any {
	seen := map[any]bool{}
	var out []any
	for _, v := range items {
		object, ok := v.(map[string]any)
		if ok && !seen[object[key]] {
			seen[object[key]] = true
			out = append(out, v)
		}
	}
	return out
}

// pod returns a pod; most of its lists may be absent, null or empty.
func (c *choices) pod(t *testing.T) []byte {
	t.Helper()
	object := map[string]any{"apiVersion": "v1", "kind": "Pod", "future": map[string]any{"number": json.Number("12345678901234567890.10")}}
	metadata := map[string]any{"name": "pod"}
	switch c.below(4) {
	case 0:
		metadata["labels"] = map[string]any{"role": "a"}
	case 1:
		metadata["labels"] = map[string]any{"role": "a", "tier": "b", "quo\"te": "\u00e9\n"}
	case 2:
		metadata["labels"] = map[string]any{"role": "b", "tier": nil}
	}
	switch c.below(8) {
	case 0:
		metadata["annotations"] = map[string]any{"a/b~c": "d\"e"}
	case 1:
		metadata["annotations"] = nil
	case 2:
		metadata["annotations"] = map[string]any{"refract.dev/inject": "false"}
	case 3:
		metadata["annotations"] = map[string]any{"serviceinjectionpolicy.k8s.io/~old": "gone", "serviceinjectionpolicy.k8s.io/db": "p1,p2"}
	case 4:
		metadata["annotations"] = map[string]any{"refract.dev/injection": pick(c, "", "[]", `{"v":2}`, `{"v":1,"hash":"x","skipped":[{"p":"p0"}]}`)}
	}
	if c.one(50) {
		metadata["annotations"] = map[string]any{"long": strings.Repeat("x", apivalidation.TotalAnnotationSizeLimitB-c.below(200)-c.below(2)*600)}
	}
	if !c.one(9) {
		object["metadata"] = metadata
	} else if c.one(2) {
		object["metadata"] = nil
	}
	spec := map[string]any{"future": []any{nil, 1.5}}
	for _, part := range []string{"initContainers", "containers"} {
		var containers []any
		for i := range c.below(4) {
			containers = append(containers, c.container(fmt.Sprintf("%s-%c%d", pick(c, someNames...), part[0], i)))
		}
		c.put(spec, part, containers)
	}
	c.put(spec, "volumes", distinct(c.some(someVolumes), "name"))
	object["spec"] = spec
	return encoded(t, object)
}

// put sets a member to a list. An empty list may become absent, null or [].
func (c *choices) put(object map[string]any, key string, list []any) {
	switch {
	case len(list) > 0:
		object[key] = list
	case c.one(3):
		object[key] = nil
	case c.one(2):
		object[key] = []any{}
	}
}

func (c *choices) container(name string) map[string]any {
	out := map[string]any{"name": name, "image": "i", "future": map[string]any{"x": []any{true}}}
	for _, list := range []struct {
		key  string
		from []string
	}{{"env", someEnv}, {"envFrom", someEnvFrom}, {"volumeMounts", someMounts}} {
		if !c.one(2) {
			c.put(out, list.key, c.some(list.from))
		}
	}
	if c.one(8) {
		out["volumeDevices"] = []any{map[string]any{"name": "d", "devicePath": "/other"}}
	}
	return out
}
