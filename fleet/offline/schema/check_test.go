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
			reason: "A valid object has no mismatch.",
			object: pod(`, image: nginx, ports: [{containerPort: 80}], resources: {limits: {cpu: 1.5, memory: 1Gi}}`),
		},
		"StringForInteger": {
			reason: "A quoted number is a string.",
			object: `{apiVersion: apps/v1, kind: Deployment, spec: {replicas: "3", selector: {}, template: {spec: {containers: []}}}}`,
			want:   []Mismatch{{Path: "/spec/replicas", Message: `is "3" (a string), want an integer`, Hint: "write it without quotes"}},
		},
		"IntegerForString": {
			reason: "Unquoted values of environment variables are the most frequent mistake.",
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
			reason: "Without quotes, the number would be too large, so the message has no hint.",
			object: `{apiVersion: apps/v1, kind: Deployment, spec: {replicas: "2147483648", selector: {}, template: {spec: {containers: []}}}}`,
			want:   []Mismatch{{Path: "/spec/replicas", Message: `is "2147483648" (a string), want an integer`}},
		},
		"StringForBoolean": {
			reason: "A quoted boolean is a string.",
			object: pod(`, tty: "true", stdin: "on"`),
			want: []Mismatch{
				{Path: "/spec/containers/0/stdin", Message: `is "on" (a string), want a boolean`},
				{Path: "/spec/containers/0/tty", Message: `is "true" (a string), want a boolean`, Hint: "write it without quotes"},
			},
		},
		"ObjectForArray": {
			reason: "Containers are an array.",
			object: `{apiVersion: v1, kind: Pod, spec: {containers: {name: web}}}`,
			want:   []Mismatch{{Path: "/spec/containers", Message: "is an object, want an array"}},
		},
		"ScalarForObject": {
			reason: "A spec is an object.",
			object: `{apiVersion: v1, kind: Pod, spec: [1]}`,
			want:   []Mismatch{{Path: "/spec", Message: "is an array, want an object"}},
		},
		"UnknownField": {
			reason: "A name that is similar to that of a field is probably a typo.",
			object: pod(`, imagepullPolicy: Always, "a/b~c": 1`),
			want: []Mismatch{
				{Path: "/spec/containers/0/a~1b~0c", Message: "there is no such field"},
				{Path: "/spec/containers/0/imagepullPolicy", Message: "there is no such field", Hint: "did you mean imagePullPolicy?"},
			},
		},
		"UnknownRootField": {
			reason: "A ConfigMap has neither spec nor status.",
			object: `{apiVersion: v1, kind: ConfigMap, spec: {}, status: {}}`,
			want:   []Mismatch{{Path: "/spec", Message: "there is no such field"}, {Path: "/status", Message: "there is no such field"}},
		},
		"Int32": {
			reason: "An int32 ends at 2147483647.",
			object: `{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 2147483648, selector: {}, template: {spec: {containers: []}}}}`,
			want:   []Mismatch{{Path: "/spec/replicas", Message: "is 2147483648 (a number), want an integer from -2147483648 to 2147483647"}},
		},
		"Int64": {
			reason: "An int64 can be larger than an int32, but has no fraction.",
			object: `{apiVersion: v1, kind: Pod, spec: {activeDeadlineSeconds: 2147483648, terminationGracePeriodSeconds: 1.5, containers: []}}`,
			want:   []Mismatch{{Path: "/spec/terminationGracePeriodSeconds", Message: "is 1.5 (a number), want an integer"}},
		},
		"TooLargeForInt64": {
			reason: "A number that is too large for an int64 is decoded as a float64.",
			object: `{apiVersion: v1, kind: Pod, spec: {activeDeadlineSeconds: 9223372036854775808, containers: []}}`,
			want:   []Mismatch{{Path: "/spec/activeDeadlineSeconds", Message: "is 9223372036854776000 (a number), want an integer from -9223372036854775808 to 9223372036854775807"}},
		},
		"IntOrString": {
			reason: "A port is a number or a name; a rolling update has numbers or percentages.",
			object: `{apiVersion: v1, kind: Service, spec: {ports: [
				{port: 80, targetPort: 8080}, {port: 81, targetPort: http}, {port: 82, targetPort: true}, {port: 83, targetPort: 2147483648}]}}`,
			want: []Mismatch{
				{Path: "/spec/ports/2/targetPort", Message: "is true (a boolean), want an integer or a string"},
				{Path: "/spec/ports/3/targetPort", Message: "is 2147483648 (a number), want an integer or a string from -2147483648 to 2147483647"},
			},
		},
		"Quantity": {
			reason: "A quantity has a suffix that Kubernetes knows, and no blank.",
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
			reason: "An enumeration lists the valid values, which are case-sensitive.",
			object: pod(`, imagePullPolicy: Sometimes, terminationMessagePolicy: file`),
			want: []Mismatch{
				{Path: "/spec/containers/0/imagePullPolicy", Message: `is "Sometimes", want one of "Always", "IfNotPresent", "Never"`},
				{Path: "/spec/containers/0/terminationMessagePolicy", Message: `is "file", want one of "FallbackToLogsOnError", "File"`, Hint: "did you mean File?"},
			},
		},
		"EnumEmpty": {
			reason: "An empty string means the default of an enumeration, and charts render it.",
			object: pod(`, imagePullPolicy: ""`),
		},
		"EnumInList": {
			reason: "The elements of a list can have an enumeration.",
			object: `{apiVersion: v1, kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce, RWX]}}`,
			want: []Mismatch{{
				Path:    "/spec/accessModes/1",
				Message: `is "RWX", want one of "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`,
			}},
		},
		"Missing": {
			reason: "Required fields must exist at each depth, and null does not count.",
			object: `{apiVersion: apps/v1, kind: Deployment, spec: {selector: null, template: {spec: {containers: [{image: a}]}}}}`,
			want: []Mismatch{
				{Path: "/spec/selector", Message: "is missing"},
				{Path: "/spec/template/spec/containers/0/name", Message: "is missing"},
			},
		},
		"NotRequired": {
			reason: "An API server reads these missing fields as zero, although OpenAPI requires them.",
			object: pod(`, livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: a}]}}, lifecycle: {preStop: {sleep: {}}}`),
		},
		"Null": {
			reason: "For built-in types, null is equivalent to an absent value.",
			object: `{apiVersion: v1, kind: Pod, metadata: {creationTimestamp: null, labels: {a: null}},
				spec: {nodeSelector: null, containers: [{name: a, image: null, args: [null]}, null]}, status: null}`,
		},
		"Status": {
			reason: "The status is not checked: only a server writes it.",
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
			reason: "An object read from an API server is valid.",
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
			reason: "A message does not contain the values of a Secret.",
			object: `{apiVersion: v1, kind: Secret, type: 1, data: {a: "hunter2!", b: aGk=, c: 12}, stringData: {d: 34}}`,
			want: []Mismatch{
				{Path: "/data/a", Message: "is a string, want base64", Hint: "stringData takes plain text"},
				{Path: "/data/c", Message: "is a number, want a string", Hint: "quote the value"},
				{Path: "/stringData/d", Message: "is a number, want a string", Hint: "quote the value"},
				{Path: "/type", Message: "is 1 (a number), want a string", Hint: "quote the value"},
			},
		},
		"Long": {
			reason: "A long value is cut.",
			object: pod(`, tty: "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"`),
			want: []Mismatch{{
				Path:    "/spec/containers/0/tty",
				Message: `is "0123456789012345678901234567890123456789012345678901234567890123456789012345678… (a string), want a boolean`,
			}},
		},
		"SameName": {
			reason: "Server-side apply rejects two elements with the same key.",
			object: pod(`, env: [{name: A, value: a}, {name: B}, {name: A, value: b}]`),
			want:   []Mismatch{{Path: "/spec/containers/0/env/2", Message: "has the same name as element 0"}},
		},
		"SamePort": {
			reason: "A missing key has its default: no protocol means TCP.",
			object: pod(`, ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}, {containerPort: 80, protocol: TCP}]`),
			want:   []Mismatch{{Path: "/spec/containers/0/ports/2", Message: "has the same containerPort and protocol as element 0"}},
		},
		"SameSet": {
			reason: "The elements of a set must differ.",
			object: `{apiVersion: v1, kind: PersistentVolume, metadata: {finalizers: [a, b, a]}}`,
			want:   []Mismatch{{Path: "/metadata/finalizers/2", Message: "is the same as element 0"}},
		},
		"MissingKey": {
			reason: "An element without its key is reported once, and is not compared with others.",
			object: `{apiVersion: v1, kind: Pod, spec: {containers: [{image: a}, {image: b}]}}`,
			want: []Mismatch{
				{Path: "/spec/containers/0/name", Message: "is missing"},
				{Path: "/spec/containers/1/name", Message: "is missing"},
			},
		},
		"Anything": {
			reason: "A RawExtension allows any content.",
			object: `{apiVersion: apps/v1, kind: ControllerRevision, revision: 1, data: {a: [1, {b: null}]}}`,
		},
		"NothingAllowed": {
			reason: "An empty struct has no fields.",
			object: `{apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, spec: {schedulingPolicy: {basic: {a: 1}}}}`,
			want:   []Mismatch{{Path: "/spec/schedulingPolicy/basic/a", Message: "there is no such field"}},
		},
		"Definition": {
			reason: "Types that contain themselves are checked at every depth.",
			object: `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {group: a, scope: Cluster, names: {plural: a, kind: A},
				versions: [{name: v1, schema: {openAPIV3Schema: {properties: {a: {properties: {b: {typ: string}}}}}}}]}}`,
			want: []Mismatch{{
				Path:    "/spec/versions/0/schema/openAPIV3Schema/properties/a/properties/b/typ",
				Message: "there is no such field", Hint: "did you mean type?",
			}},
		},
		"OldVersion": {
			reason: "If the version is no longer served, nothing else is reported.",
			object: `{apiVersion: apps/v1beta1, kind: Deployment, spec: 1}`,
			want:   []Mismatch{{Path: "/apiVersion", Message: `is "apps/v1beta1", which has no Deployment`, Hint: "Kubernetes 1.37 serves it as apps/v1"}},
		},
		"OldGroup": {
			reason: "Kinds of the group extensions are now in other groups.",
			object: `{apiVersion: extensions/v1beta1, kind: Ingress}`,
			want: []Mismatch{{
				Path: "/apiVersion", Message: `is "extensions/v1beta1", which has no Ingress`, Hint: "Kubernetes 1.37 serves it as networking.k8s.io/v1",
			}},
		},
		"GroupForgotten": {
			reason: "v1 without a group is the core group.",
			object: `{apiVersion: v1, kind: Deployment}`,
			want:   []Mismatch{{Path: "/apiVersion", Message: `is "v1", which has no Deployment`, Hint: "Kubernetes 1.37 serves it as apps/v1"}},
		},
		"KindMistyped": {
			reason: "A name that is similar to that of a kind is probably a typo.",
			object: `{apiVersion: apps/v1, kind: Deploymnt}`,
			want:   []Mismatch{{Path: "/kind", Message: `is "Deploymnt", and there is no such kind in apps/v1`, Hint: "did you mean Deployment?"}},
		},
		"UnknownType":   {reason: "Types of other groups are not known.", object: `{apiVersion: example.com/v1, kind: Deployment, spec: 1}`},
		"UnknownKind":   {reason: "A kind that is similar to no known kind may be new.", object: `{apiVersion: v1, kind: Quux}`},
		"List":          {reason: "Lists are divided into their items before the check.", object: `{apiVersion: v1, kind: PodList, items: 1}`},
		"Kubeconfig":    {reason: "A kubeconfig is not mistaken for a ConfigMap.", object: `{apiVersion: v1, kind: Config}`},
		"NoType":        {reason: "Without apiVersion and kind, the type is not known.", object: `{spec: 1}`},
		"KindIsNoText":  {reason: "A kind that is not a string is not a known type.", object: `{apiVersion: v1, kind: 1}`},
		"BadAPIVersion": {reason: "The same applies to an invalid apiVersion.", object: `{apiVersion: a/b/c, kind: Pod}`},
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
