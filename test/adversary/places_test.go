package adversary

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/fleet/policy/podtemplate"
)

// place is a path in the spec of a pod that can name a ConfigMap or a Secret. "[]" stands for a list, which gets one
// item.
type place struct {
	path []string
	kind string
}

// places finds all paths to such names in the Go type PodSpec, so the test covers fields that Kubernetes adds later.
func places(t reflect.Type, path []string) []place {
	switch t.Kind() {
	case reflect.Pointer:
		return places(t.Elem(), path)
	case reflect.Slice:
		return places(t.Elem(), append(slices.Clone(path), "[]"))
	case reflect.Struct:
	default:
		return nil
	}
	if t == reflect.TypeFor[corev1.PersistentVolumeClaimTemplate]() {
		return nil // It is part of a claim that is created for the pod.
	}
	var found []place
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := append(slices.Clone(path), name)
		if name == "" {
			at = path
		}
		kind := "Secret"
		if strings.Contains(t.Name(), "ConfigMap") {
			kind = "ConfigMap"
		}
		switch {
		case f.Type == reflect.TypeFor[corev1.LocalObjectReference](), f.Type == reflect.TypeFor[*corev1.LocalObjectReference](),
			f.Type == reflect.TypeFor[corev1.SecretReference](), f.Type == reflect.TypeFor[*corev1.SecretReference]():
			found = append(found, place{append(slices.Clone(at), "name"), kind})
		case f.Type == reflect.TypeFor[[]corev1.LocalObjectReference]():
			found = append(found, place{append(slices.Clone(at), "[]", "name"), kind})
		case f.Type.Kind() == reflect.String && strings.EqualFold(name, "secretName"):
			found = append(found, place{at, kind})
		default:
			found = append(found, places(f.Type, at)...)
		}
	}
	return found
}

// demanded has other required fields of the object with the reference, by volume or variable source.
var demanded = map[string]string{
	"azureFile": `{"shareName":"s"}`, "cephfs": `{"monitors":["m"]}`, "cinder": `{"volumeID":"v"}`, "csi": `{"driver":"d.example.com"}`,
	"flexVolume": `{"driver":"example.com/d"}`, "iscsi": `{"targetPortal":"10.0.0.1:3260","iqn":"iqn.2001-04.com.example:a","lun":0,"chapAuthSession":true}`,
	"rbd": `{"monitors":["m"],"image":"i"}`, "scaleIO": `{"gateway":"g","system":"s","volumeName":"v"}`, "storageos": `{"volumeName":"v"}`,
	"secretKeyRef": `{"key":"k"}`, "configMapKeyRef": `{"key":"k"}`,
}

// with returns a value in which the path leads to the text.
func with(path []string, text string) any {
	if len(path) == 0 {
		return text
	}
	inner := with(path[1:], text)
	if path[0] == "[]" {
		return []any{inner}
	}
	if list, ok := inner.([]any); ok && (path[0] == "volumes" || path[0] == "env") {
		item, _ := list[0].(map[string]any)
		item["name"] = "n"
	}
	if in, ok := inner.(map[string]any); ok && demanded[path[0]] != "" {
		extra := map[string]any{}
		if err := json.Unmarshal([]byte(demanded[path[0]]), &extra); err != nil {
			panic(err)
		}
		maps.Copy(in, extra)
	}
	return map[string]any{path[0]: inner}
}

// pod returns a pod whose spec has text at the path.
func pod(path []string, text string) *unstructured.Unstructured {
	spec, _ := with(path, text).(map[string]any)
	for _, key := range []string{"initContainers", "containers", "ephemeralContainers"} {
		if list, ok := spec[key].([]any); ok {
			container, _ := list[0].(map[string]any)
			container["name"], container["image"] = "c", "i"
			// A pod with an init container needs a normal container with another name.
			if key != "containers" {
				container["name"] = "d"
				spec["containers"] = []any{map[string]any{"name": "c", "image": "i"}}
			}
		}
	}
	if spec["containers"] == nil {
		spec["containers"] = []any{map[string]any{"name": "c", "image": "i"}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "p", "labels": map[string]any{"kubeadmiral.io/propagation-policy-name": "everywhere"}},
		"spec":     spec,
	}}
}

// TestEveryPlaceIsFollowedAndAskedFor: podtemplate.References and the admission policy on the hub find the same
// references in a pod, and both cover all fields that Kubernetes has.
func TestEveryPlaceIsFollowedAndAskedFor(t *testing.T) {
	t.Parallel()
	ns, user := namespace(t)
	pods := nobody(t, ns)
	all := places(reflect.TypeFor[corev1.PodSpec](), nil)
	const atLeast = 3*4 + 1 + 2*2 + 8 // The terms are containers, pull secrets, current volume types and old volume types.
	if len(all) < atLeast {
		t.Fatalf("%d places were found: %v", len(all), all)
	}
	for _, p := range all {
		t.Run(strings.Join(p.path, "."), func(t *testing.T) {
			obj := pod(p.path, "theirs")
			want := []podtemplate.Reference{{Kind: p.kind, Resource: strings.ToLower(p.kind) + "s", Name: "theirs"}}
			if got := podtemplate.References(obj); !slices.Equal(got, want) {
				t.Errorf("References(): want %v, got %v", want, got)
			}
			who := user
			if p.kind == "ConfigMap" {
				who = pods // user may get all ConfigMaps, so this case needs another user.
			}
			refusedFor(t, ns, who, obj, p.kind+"/theirs")
		})
	}
}

// nobody returns the name of a user who may write pods but not get ConfigMaps.
func nobody(t *testing.T, ns string) string {
	t.Helper()
	const role = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: pods}
rules: [{apiGroups: [""], resources: [pods, pods/ephemeralcontainers], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: pods}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: pods}
subjects: [{kind: User, name: USER}]
`
	user := "nobody-in-" + ns
	given(t, "hub", ns, strings.ReplaceAll(role, "USER", user))
	allowed(t, "hub", user, true, "create", "pods", ns)
	return user
}

// refusedFor wants the API server to accept the pod from an administrator, and to reject it from the user because of
// the reference.
func refusedFor(t *testing.T, ns, user string, obj *unstructured.Unstructured, reference string) {
	t.Helper()
	write := func(c client.Client) error { return create(t, c, ns, encode(t, obj), client.DryRunAll) }
	if containers, ok, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "ephemeralContainers"); ok {
		// Ephemeral containers can only be added to an existing pod.
		given(t, "hub", ns, encode(t, pod([]string{"serviceAccountName"}, "default")))
		defer remove(t, "hub", "pod", ns, "p")
		there := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: ns}}
		patch := encode(t, &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"ephemeralContainers": containers}}})
		write = func(c client.Client) error {
			return c.SubResource("ephemeralcontainers").Patch(t.Context(), there.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.DryRunAll)
		}
	}
	expect(t, "An administrator may get the object.", "", write(clients["hub"]))
	expect(t, "As "+user, reference+" would follow", write(as(t, user)))
}

func encode(t *testing.T, obj *unstructured.Unstructured) string {
	t.Helper()
	text, err := json.Marshal(obj.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
