package schema

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// parse decodes YAML like a manifest.
func parse(tb testing.TB, text string) map[string]any {
	tb.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(data, &object); err != nil {
		tb.Fatal(err)
	}
	return object
}

// newSchemas returns the Schemas of valid definitions in YAML.
func newSchemas(tb testing.TB, crds ...string) *Schemas {
	tb.Helper()
	objects := make([]*unstructured.Unstructured, len(crds))
	for i, crd := range crds {
		objects[i] = &unstructured.Unstructured{Object: parse(tb, crd)}
	}
	s, problems := New(objects)
	if err := errors.Join(problems...); err != nil {
		tb.Fatal(err)
	}
	return s
}

// pod returns a Pod with one container that has the given additional members.
func pod(container string) string {
	return "{apiVersion: v1, kind: Pod, spec: {containers: [{name: web" + container + "}]}}"
}

func TestCheckBuiltin(t *testing.T) {
	cases := map[string]struct {
		reason string
		object string
		want   []Mismatch
	}{
		"Right": {
			reason: "A right object has no mismatch.",
			object: pod(`, image: nginx, ports: [{containerPort: 80}], resources: {limits: {cpu: 1.5, memory: 1Gi}}`),
		},
		"StringForInteger": {
			reason: "What is quoted is a string.",
			object: `{apiVersion: apps/v1, kind: Deployment, spec: {replicas: "3", selector: {}, template: {spec: {containers: []}}}}`,
			want:   []Mismatch{{Path: "/spec/replicas", Message: `is "3" (a string), want an integer`, Hint: "write it without quotes"}},
		},
		"IntegerForString": {
			reason: "The commonest mistake in a container's environment.",
			object: pod(`, env: [{name: A, value: 1}, {name: B, value: true}]`),
			want: []Mismatch{
				{Path: "/spec/containers/0/env/0/value", Message: "is 1 (a number), want a string", Hint: "quote the value"},
				{Path: "/spec/containers/0/env/1/value", Message: "is true (a boolean), want a string", Hint: "quote the value"},
			},
		},
		"TextForObject": {
			reason: "A quoted object is a string.",
			object: `{apiVersion: v1, kind: Pod, spec: '{"containers": []}'}`,
			want:   []Mismatch{{Path: "/spec", Message: `is "{\"containers\": []}" (a string), want an object`, Hint: "write it without quotes"}},
		},
		"TextForInt32": {
			reason: "Without quotes, this number would be too large.",
			object: `{apiVersion: apps/v1, kind: Deployment, spec: {replicas: "2147483648", selector: {}, template: {spec: {containers: []}}}}`,
			want:   []Mismatch{{Path: "/spec/replicas", Message: `is "2147483648" (a string), want an integer`}},
		},
		"StringForBoolean": {
			reason: "A boolean is not quoted either.",
			object: pod(`, tty: "true", stdin: "on"`),
			want: []Mismatch{
				{Path: "/spec/containers/0/stdin", Message: `is "on" (a string), want a boolean`},
				{Path: "/spec/containers/0/tty", Message: `is "true" (a string), want a boolean`, Hint: "write it without quotes"},
			},
		},
		"ObjectForArray": {
			reason: "Containers are a list.",
			object: `{apiVersion: v1, kind: Pod, spec: {containers: {name: web}}}`,
			want:   []Mismatch{{Path: "/spec/containers", Message: "is an object, want an array"}},
		},
		"ScalarForObject": {
			reason: "A spec has members.",
			object: `{apiVersion: v1, kind: Pod, spec: [1]}`,
			want:   []Mismatch{{Path: "/spec", Message: "is an array, want an object"}},
		},
		"UnknownField": {
			reason: "A field that is nearly one is a slip of the pen.",
			object: pod(`, imagepullPolicy: Always, "a/b~c": 1`),
			want: []Mismatch{
				{Path: "/spec/containers/0/a~1b~0c", Message: "there is no such field"},
				{Path: "/spec/containers/0/imagepullPolicy", Message: "there is no such field", Hint: "did you mean imagePullPolicy?"},
			},
		},
		"UnknownRootField": {
			reason: "A ConfigMap has no spec, and no status.",
			object: `{apiVersion: v1, kind: ConfigMap, spec: {}, status: {}}`,
			want:   []Mismatch{{Path: "/spec", Message: "there is no such field"}, {Path: "/status", Message: "there is no such field"}},
		},
		"Int32": {
			reason: "An int32 ends at 2147483647.",
			object: `{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 2147483648, selector: {}, template: {spec: {containers: []}}}}`,
			want:   []Mismatch{{Path: "/spec/replicas", Message: "is 2147483648 (a number), want an integer from -2147483648 to 2147483647"}},
		},
		"Int64": {
			reason: "An int64 holds more, but no fraction.",
			object: `{apiVersion: v1, kind: Pod, spec: {activeDeadlineSeconds: 2147483648, terminationGracePeriodSeconds: 1.5, containers: []}}`,
			want:   []Mismatch{{Path: "/spec/terminationGracePeriodSeconds", Message: "is 1.5 (a number), want an integer"}},
		},
		"TooLargeForInt64": {
			reason: "A number that no int64 holds is decoded as a float64.",
			object: `{apiVersion: v1, kind: Pod, spec: {activeDeadlineSeconds: 9223372036854775808, containers: []}}`,
			want:   []Mismatch{{Path: "/spec/activeDeadlineSeconds", Message: "is 9223372036854776000 (a number), want an integer from -9223372036854775808 to 9223372036854775807"}},
		},
		"IntOrString": {
			reason: "A port has a number or a name; a rolling update a number or a percentage.",
			object: `{apiVersion: v1, kind: Service, spec: {ports: [
				{port: 80, targetPort: 8080}, {port: 81, targetPort: http}, {port: 82, targetPort: true}, {port: 83, targetPort: 2147483648}]}}`,
			want: []Mismatch{
				{Path: "/spec/ports/2/targetPort", Message: "is true (a boolean), want an integer or a string"},
				{Path: "/spec/ports/3/targetPort", Message: "is 2147483648 (a number), want an integer or a string from -2147483648 to 2147483647"},
			},
		},
		"Quantity": {
			reason: "A quantity has one of the suffixes that Kubernetes knows, and no blank.",
			object: pod(`, resources: {limits: {a: 1, b: 0.5, c: 100m, d: 1 GB, e: true, f: "", g: 1Gb, h: [1]}}`),
			want: []Mismatch{
				{Path: "/spec/containers/0/resources/limits/d", Message: `is "1 GB" (a string), want a quantity like 500m, 1.5 or 2Gi`},
				{Path: "/spec/containers/0/resources/limits/e", Message: `is true (a boolean), want a quantity like 500m, 1.5 or 2Gi`},
				{Path: "/spec/containers/0/resources/limits/f", Message: `is "" (a string), want a quantity like 500m, 1.5 or 2Gi`},
				{Path: "/spec/containers/0/resources/limits/g", Message: `is "1Gb" (a string), want a quantity like 500m, 1.5 or 2Gi`},
				{Path: "/spec/containers/0/resources/limits/h", Message: `is an array, want a quantity like 500m, 1.5 or 2Gi`},
			},
		},
		"Enum": {
			reason: "An enumeration lists what is right, and letters count in both cases.",
			object: pod(`, imagePullPolicy: Sometimes, terminationMessagePolicy: file`),
			want: []Mismatch{
				{Path: "/spec/containers/0/imagePullPolicy", Message: `is "Sometimes", want one of "Always", "IfNotPresent", "Never"`},
				{Path: "/spec/containers/0/terminationMessagePolicy", Message: `is "file", want one of "FallbackToLogsOnError", "File"`, Hint: "did you mean File?"},
			},
		},
		"EnumEmpty": {
			reason: "An empty string is the default: charts render it.",
			object: pod(`, imagePullPolicy: ""`),
		},
		"EnumInList": {
			reason: "The elements of a list can be enumerated.",
			object: `{apiVersion: v1, kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce, RWX]}}`,
			want: []Mismatch{{
				Path:    "/spec/accessModes/1",
				Message: `is "RWX", want one of "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`,
			}},
		},
		"Missing": {
			reason: "What is required must be there, at each depth; null is not enough.",
			object: `{apiVersion: apps/v1, kind: Deployment, spec: {selector: null, template: {spec: {containers: [{image: a}]}}}}`,
			want: []Mismatch{
				{Path: "/spec/selector", Message: "is missing"},
				{Path: "/spec/template/spec/containers/0/name", Message: "is missing"},
			},
		},
		"NotRequired": {
			reason: "An API server takes these as zero, whatever OpenAPI says.",
			object: pod(`, livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: a}]}}, lifecycle: {preStop: {sleep: {}}}`),
		},
		"Null": {
			reason: "Null is as good as absent in the types of Kubernetes.",
			object: `{apiVersion: v1, kind: Pod, metadata: {creationTimestamp: null, labels: {a: null}},
				spec: {nodeSelector: null, containers: [{name: a, image: null, args: [null]}, null]}, status: null}`,
		},
		"Status": {
			reason: "Only a server writes the status.",
			object: `{apiVersion: v1, kind: Pod, spec: {containers: []}, status: {phase: 1, nonsense: true}}`,
		},
		"Metadata": {
			reason: "Metadata is checked in every kind.",
			object: `{apiVersion: v1, kind: ConfigMap, metadata: {nam: a, labels: {a: 1}, annotations: [], ownerReferences: [{kind: A, name: a, apiVersion: v1}], creationTimestamp: today}}`,
			want: []Mismatch{
				{Path: "/metadata/annotations", Message: "is an array, want an object"},
				{Path: "/metadata/creationTimestamp", Message: `is "today" (a string), want a time like 2006-01-02T15:04:05Z`},
				{Path: "/metadata/labels/a", Message: "is 1 (a number), want a string", Hint: "quote the value"},
				{Path: "/metadata/nam", Message: "there is no such field", Hint: "did you mean name?"},
				{Path: "/metadata/ownerReferences/0/uid", Message: "is missing"},
			},
		},
		"Live": {
			reason: "An object read from an API server is right.",
			object: `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: a, uid: b, resourceVersion: "1", creationTimestamp: "2026-01-02T03:04:05Z",
				managedFields: [{manager: m, operation: Update, apiVersion: v1, time: "2026-01-02T03:04:05Z", fieldsType: FieldsV1, fieldsV1: {"f:spec": {}}}]},
				spec: {acquireTime: "2026-01-02T03:04:05.000000Z", leaseDurationSeconds: 15}}`,
		},
		"MicroTime": {
			reason: "A time with microseconds has all six digits.",
			object: `{apiVersion: coordination.k8s.io/v1, kind: Lease, spec: {renewTime: "2026-01-02 03:04"}}`,
			want:   []Mismatch{{Path: "/spec/renewTime", Message: `is "2026-01-02 03:04" (a string), want a time like 2006-01-02T15:04:05.000000Z`}},
		},
		"SecretIsNotShown": {
			reason: "A message must not tell a secret.",
			object: `{apiVersion: v1, kind: Secret, type: 1, data: {a: "hunter2!", b: aGk=, c: 12}, stringData: {d: 34}}`,
			want: []Mismatch{
				{Path: "/data/a", Message: "is a string, want base64", Hint: "stringData takes plain text"},
				{Path: "/data/c", Message: "is a number, want a string", Hint: "quote the value"},
				{Path: "/stringData/d", Message: "is a number, want a string", Hint: "quote the value"},
				{Path: "/type", Message: "is 1 (a number), want a string", Hint: "quote the value"},
			},
		},
		"Long": {
			reason: "A long value is shortened.",
			object: pod(`, tty: "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"`),
			want: []Mismatch{{
				Path:    "/spec/containers/0/tty",
				Message: `is "0123456789012345678901234567890123456789012345678901234567890123456789012345678… (a string), want a boolean`,
			}},
		},
		"SameName": {
			reason: "Server-side apply refuses two elements with one key.",
			object: pod(`, env: [{name: A, value: a}, {name: B}, {name: A, value: b}]`),
			want:   []Mismatch{{Path: "/spec/containers/0/env/2", Message: "has the same name as element 0"}},
		},
		"SamePort": {
			reason: "A key has defaults: no protocol is TCP.",
			object: pod(`, ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}, {containerPort: 80, protocol: TCP}]`),
			want:   []Mismatch{{Path: "/spec/containers/0/ports/2", Message: "has the same containerPort and protocol as element 0"}},
		},
		"SameSet": {
			reason: "The elements of a set differ.",
			object: `{apiVersion: v1, kind: PersistentVolume, metadata: {finalizers: [a, b, a]}}`,
			want:   []Mismatch{{Path: "/metadata/finalizers/2", Message: "is the same as element 0"}},
		},
		"MissingKey": {
			reason: "An element without its key is reported once, and is the same as none.",
			object: `{apiVersion: v1, kind: Pod, spec: {containers: [{image: a}, {image: b}]}}`,
			want: []Mismatch{
				{Path: "/spec/containers/0/name", Message: "is missing"},
				{Path: "/spec/containers/1/name", Message: "is missing"},
			},
		},
		"Anything": {
			reason: "A RawExtension is whatever its user makes of it.",
			object: `{apiVersion: apps/v1, kind: ControllerRevision, revision: 1, data: {a: [1, {b: null}]}}`,
		},
		"NothingAllowed": {
			reason: "An empty struct has no member.",
			object: `{apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, spec: {schedulingPolicy: {basic: {a: 1}}}}`,
			want:   []Mismatch{{Path: "/spec/schedulingPolicy/basic/a", Message: "there is no such field"}},
		},
		"Definition": {
			reason: "Types that contain themselves are checked all the way down.",
			object: `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {group: a, scope: Cluster, names: {plural: a, kind: A},
				versions: [{name: v1, schema: {openAPIV3Schema: {properties: {a: {properties: {b: {typ: string}}}}}}}]}}`,
			want: []Mismatch{{
				Path:    "/spec/versions/0/schema/openAPIV3Schema/properties/a/properties/b/typ",
				Message: "there is no such field", Hint: "did you mean type?",
			}},
		},
		"OldVersion": {
			reason: "A version that is no longer served is the one mistake that matters.",
			object: `{apiVersion: apps/v1beta1, kind: Deployment, spec: 1}`,
			want:   []Mismatch{{Path: "/apiVersion", Message: `is "apps/v1beta1", which has no Deployment`, Hint: "Kubernetes 1.37 serves it as apps/v1"}},
		},
		"OldGroup": {
			reason: "Kinds have moved out of extensions.",
			object: `{apiVersion: extensions/v1beta1, kind: Ingress}`,
			want: []Mismatch{{
				Path: "/apiVersion", Message: `is "extensions/v1beta1", which has no Ingress`, Hint: "Kubernetes 1.37 serves it as networking.k8s.io/v1",
			}},
		},
		"GroupForgotten": {
			reason: "v1 alone is the core group.",
			object: `{apiVersion: v1, kind: Deployment}`,
			want:   []Mismatch{{Path: "/apiVersion", Message: `is "v1", which has no Deployment`, Hint: "Kubernetes 1.37 serves it as apps/v1"}},
		},
		"KindMistyped": {
			reason: "A kind that is nearly one is a slip of the pen.",
			object: `{apiVersion: apps/v1, kind: Deploymnt}`,
			want:   []Mismatch{{Path: "/kind", Message: `is "Deploymnt", and there is no such kind in apps/v1`, Hint: "did you mean Deployment?"}},
		},
		"UnknownType":   {reason: "Nothing is known of others' types.", object: `{apiVersion: example.com/v1, kind: Deployment, spec: 1}`},
		"UnknownKind":   {reason: "A kind that is far from all may be new.", object: `{apiVersion: v1, kind: Quux}`},
		"List":          {reason: "Lists are taken apart before.", object: `{apiVersion: v1, kind: PodList, items: 1}`},
		"Kubeconfig":    {reason: "A kubeconfig is no ConfigMap.", object: `{apiVersion: v1, kind: Config}`},
		"NoType":        {reason: "Without a type there is nothing to say.", object: `{spec: 1}`},
		"KindIsNoText":  {reason: "Neither is there here.", object: `{apiVersion: v1, kind: 1}`},
		"BadAPIVersion": {reason: "Nor here.", object: `{apiVersion: a/b/c, kind: Pod}`},
	}
	s := newSchemas(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := parse(t, tc.object)
			before := runtime.DeepCopyJSON(object)
			if diff := cmp.Diff(tc.want, s.Check(object)); diff != "" {
				t.Errorf("%s\nCheck(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, object); diff != "" {
				t.Errorf("Check() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

// TestKubernetes compiles every type of kubernetes.txt.
func TestKubernetes(t *testing.T) {
	k := readKubernetes()
	if len(k.kinds) < 90 || len(k.types) < 500 || k.version == "" {
		t.Fatalf("kubernetes.txt has %d kinds, %d types and version %q", len(k.kinds), len(k.types), k.version)
	}
	for gvk, name := range k.kinds {
		if k.types[name] == "" {
			t.Errorf("%s has no type %s", gvk, name)
		}
	}
	for name := range k.types {
		k.shape(name)
	}
}
