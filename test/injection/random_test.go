package injection

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dice generates pods and policies with few different names, so that policies often conflict.
type dice struct {
	*rand.Rand

	// wild adds rare values that are invalid, or valid only in some pods.
	wild bool
}

func (d dice) of(choices ...string) string { return choices[d.IntN(len(choices))] }

// or returns the text, or rarely one of the wild texts if wild is set.
func (d dice) or(text string, wild ...string) string {
	if d.wild && d.IntN(6) == 0 {
		return d.of(wild...)
	}
	return text
}

// some returns a list of up to n items with different keys.
func (d dice) some(n int, item func() (key, text string)) string {
	seen := map[string]bool{}
	var all []string
	for range d.IntN(n + 1) {
		if key, text := item(); !seen[key] {
			seen[key] = true
			all = append(all, text)
		}
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func (d dice) env() string {
	return d.some(3, func() (string, string) {
		name := d.of("A", "B", "C", "D")
		return name, fmt.Sprintf("{name: %s, %s}", name, d.or(
			d.of(`value: "1"`, `value: "2"`, `value: ""`, "valueFrom: {fieldRef: {fieldPath: metadata.name}}",
				"valueFrom: {secretKeyRef: {name: s, key: k}}", "valueFrom: {resourceFieldRef: {resource: limits.cpu}}"),
			"valueFrom: {fileKeyRef: {volumeName: v1, path: p, key: K}}", "valueFrom: {fileKeyRef: {volumeName: v2, path: p, key: K, optional: true}}",
			"valueFrom: {fileKeyRef: {volumeName: nobodys, path: p, key: K}}", `valueFrom: {secretKeyRef: {name: "", key: k}}`,
			`valueFrom: {configMapKeyRef: {name: c, key: "a b"}}`, "valueFrom: {fieldRef: {fieldPath: spec.nobody}}", "valueFrom: {fieldRef: {fieldPath: \"metadata.labels['a']\"}}",
			"valueFrom: {resourceFieldRef: {resource: limits.nothing}}", "valueFrom: {resourceFieldRef: {containerName: nobody, resource: limits.cpu}}",
			`valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "3"}}`, "valueFrom: {}",
		))
	})
}

func (d dice) envFrom() string {
	return d.some(2, func() (string, string) {
		source := d.of("configMapRef: {name: c}", "configMapRef: {name: c, optional: true}", "secretRef: {name: s}", "secretRef: {name: s, optional: false}")
		return source, fmt.Sprintf("{%s%s}", d.or(d.of("", "prefix: P_, "), `prefix: "=", `), d.or(source, "configMapRef: {name: c}, secretRef: {name: s}", "secretRef: {name: Not_A_Name}"))
	})
}

func (d dice) volumes() string {
	return d.some(3, func() (string, string) {
		name := d.of("v1", "v2", "v3")
		return name, fmt.Sprintf("{name: %s, %s}", name, d.or(d.of("emptyDir: {}", "emptyDir: {medium: Memory}", "secret: {secretName: s}", "secret: {secretName: s, defaultMode: 420}",
			"configMap: {name: c, items: [{key: k, path: p}]}", "projected: {sources: [{secret: {name: s}}, {serviceAccountToken: {path: t}}]}", "persistentVolumeClaim: {claimName: c}",
			"downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}]}", "hostPath: {path: /dev}", "ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}"),
			"emptyDir: {sizeLimit: -1Gi}", "hostPath: {path: /a/../b}", "emptyDir: {}, secret: {secretName: s}", "projected: {sources: [{serviceAccountToken: {path: t}}, {serviceAccountToken: {path: t}}]}",
			"projected: {sources: [{secret: {name: s, items: [{key: k, path: ../p}]}}]}", "configMap: {name: c, defaultMode: 1000}", "image: {reference: i}", "csi: {driver: d.example}",
			"downwardAPI: {items: [{path: l, resourceFieldRef: {resource: limits.cpu}}]}", "downwardAPI: {items: [{path: l, resourceFieldRef: {containerName: nobody, resource: limits.cpu}}]}",
			"persistentVolumeClaim: {claimName: Not_A_Name}", "iscsi: {targetPortal: p, iqn: iqn.2001-04.com.example:a, lun: 0}", "nfs: {server: s, path: relative}",
		))
	})
}

func (d dice) mounts() string {
	return d.some(3, func() (string, string) {
		path := d.or(d.of("/a", "/a/", "/b", "/b/./c", "/b/c", "relative"), `"/a:b"`, "/", "C:/a", "/b/../a", "/var/run/secrets/kubernetes.io/serviceaccount")
		return path, fmt.Sprintf("{name: %s, mountPath: %s%s}", d.of("v1", "v2", "v3"), path,
			d.or(d.of("", "", ", readOnly: true", ", subPath: s", ", subPathExpr: $(A)", ", mountPropagation: None", ", readOnly: true, recursiveReadOnly: IfPossible"),
				", mountPropagation: Bidirectional", ", mountPropagation: HostToContainer", ", recursiveReadOnly: Enabled", ", readOnly: true, recursiveReadOnly: Enabled",
				", readOnly: true, recursiveReadOnly: Enabled, mountPropagation: HostToContainer", ", subPath: ../s", ", subPath: /s", ", subPath: s, subPathExpr: s"))
	})
}

func (d dice) container(name string) string {
	fields := []string{"name: " + name, "image: i"}
	for _, f := range []struct{ name, text string }{
		{"env", d.env()}, {"envFrom", d.envFrom()}, {"volumeMounts", d.mounts()},
		{"volumeDevices", d.of("[]", "[]", "[{name: v3, devicePath: /b}]", "[{name: v2, devicePath: /a}]")},
	} {
		if d.IntN(3) > 0 {
			fields = append(fields, f.name+": "+d.of(f.text, f.text, f.text, "null"))
		}
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

func (d dice) pod() string {
	containers, init := d.container("c1"), ""
	if d.IntN(2) == 0 {
		containers += ", " + d.container("c2")
	}
	if d.IntN(3) == 0 {
		init = "initContainers: [" + strings.Replace(d.container("i1"), "{", "{"+d.of("", "restartPolicy: Always, "), 1) + "], "
	}
	return fmt.Sprintf("{%svolumes: %s, containers: [%s]}", init, d.volumes(), containers)
}

func (d dice) policy() string {
	selector := d.of("{}", "{matchLabels: {a: b}}", "{matchExpressions: [{key: a, operator: Exists}]}", "{matchExpressions: [{key: c, operator: NotIn, values: [d]}]}")
	scope := d.of("", "", "containers: {exclude: [c2]}, ", "containers: {include: [c1], initContainers: false}, ")
	return fmt.Sprintf("{selector: %s, %s%senv: %s, envFrom: %s, volumes: %s, volumeMounts: %s}", selector, scope, d.of("", "service: db, ", "envPosition: Prepend, "),
		d.env(), d.envFrom(), d.volumes(), d.mounts())
}

var randomSeed = flag.Uint64("random-seed", 1, "of the pods and policies of TestRandomPods")

// TestRandomPods: a pod that the API server accepts without policies is also accepted with any policies. The resulting
// pod can be created again, and the injection then adds nothing.
func TestRandomPods(t *testing.T) {
	t.Parallel()
	d := dice{Rand: rand.New(rand.NewPCG(*randomSeed, 0))}
	without := begin(t)
	with := beginOn(t, member, without.ns+"-policies")
	var names []string
	wild := dice{d.Rand, true}
	for i := 0; len(names) < 15; i++ {
		p := with.read(sip(fmt.Sprint("policy-", i), wild.policy()))[0]
		if err := with.api.Create(t.Context(), p); err == nil { // Some policies are wrong.
			names = append(names, p.GetName())
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
			t.Fatalf("A pod is rejected because of the policies: %v\n%s\nthe policies are\n%s", err, inJSON(pod.Object), policiesOf(with))
		}
		again := like(t, got)
		if err := with.api.Create(t.Context(), again, client.DryRunAll); err != nil {
			t.Fatalf("A pod is rejected the second time: %v\n%s\nthe policies are\n%s", err, inJSON(got.Object), policiesOf(with))
		}
		if diff := cmp.Diff(got.Object["spec"], again.Object["spec"]); diff != "" {
			t.Fatalf("The second injection has changed the pod: -before, +after:\n%s\nto\n%s\nthe policies are\n%s", diff, inJSON(got.Object), policiesOf(with))
		}
		if !cmp.Equal(plain.Object["spec"], got.Object["spec"]) {
			injected++
		}
	}
	t.Logf("%d policies and %d pods were accepted, and %d pods were injected", len(names), taken, injected)
	if taken < 50 || injected < 25 {
		t.Error("These are too few for a meaningful test")
	}
}

// like returns a new pod with the labels, annotations and spec of the created one.
func like(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	again := u.DeepCopy()
	again.Object["metadata"] = map[string]any{
		"name": u.GetName(), "namespace": u.GetNamespace(), "labels": u.Object["metadata"].(map[string]any)["labels"],
		"annotations": u.Object["metadata"].(map[string]any)["annotations"],
	}
	delete(again.Object, "status")
	return again
}

func policiesOf(s *scene) string {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("refract.dev/v1beta1")
	list.SetKind("ServiceInjectionPolicyList")
	s.must(s.api.List(s.Context(), list, client.InNamespace(s.ns)))
	var all []string
	for i := range list.Items {
		all = append(all, inJSON(map[string]any{"name": list.Items[i].GetName(), "spec": list.Items[i].Object["spec"]}))
	}
	return strings.Join(all, "\n")
}
