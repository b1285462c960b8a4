package local_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"refract.dev/fleet/policy/local"
	"refract.dev/tree"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var obj map[string]any
	if err := utiljson.Unmarshal(data, &obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// service has the values that an API server assigns to a Service of type LoadBalancer.
const service = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop%s}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  clusterIP: 10.96.1.2
  clusterIPs: [10.96.1.2]
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  healthCheckNodePort: 31000
  ports:
  - {port: 80, protocol: TCP, nodePort: 30080}
  - {port: 443, protocol: TCP, nodePort: 30443}
`

func TestAssigned(t *testing.T) {
	of := func(metadata string) string { return fmt.Sprintf(service, metadata) }
	cases := map[string]struct {
		reason string
		object string
		want   []string
	}{
		"Manifest": {
			reason: "A manifest without a UID keeps all fields, because its author has written them.",
			object: of(""),
		},
		"Exported": {
			reason: "An exported object has no managedFields: the table decides.",
			object: of(", uid: u"),
			want: []string{
				"/spec/ports/1/nodePort", "/spec/ports/0/nodePort", "/spec/ipFamilyPolicy", "/spec/ipFamilies",
				"/spec/healthCheckNodePort", "/spec/clusterIPs", "/spec/clusterIP",
			},
		},
		"NoOwner": {
			reason: "A field without an owner was allocated. A field of the user's manager is requested.",
			object: of(`, uid: u, managedFields: [{manager: kubectl, operation: Update, fieldsV1: {"f:spec": {"f:type": {}, "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:nodePort": {}}, 'k:{"port":443,"protocol":"TCP"}': {".": {}, "f:port": {}}}}}}]`),
			want: []string{
				"/spec/ports/1/nodePort", "/spec/ipFamilyPolicy", "/spec/ipFamilies", "/spec/healthCheckNodePort", "/spec/clusterIPs", "/spec/clusterIP",
			},
		},
		"Recorded": {
			reason: "The annotation with the assigned fields replaces managedFields.",
			object: of(`, uid: u, annotations: {refract.dev/assigned: '["/spec/clusterIP","/metadata/name","/kind","/spec/missing"]'}`),
			want:   []string{"/spec/clusterIP"},
		},
		"RecordOfNone": {
			reason: "All fields are requested.",
			object: of(`, uid: u, annotations: {refract.dev/assigned: '[]'}`),
		},
		"Headless": {
			reason: "A headless Service requests no address.",
			object: `{apiVersion: v1, kind: Service, metadata: {name: db, uid: u}, spec: {clusterIP: None, clusterIPs: [None]}}`,
		},
		"DualStack": {
			reason: "An API server chooses one IP family. Two families are a request, regardless of the owner.",
			object: `{apiVersion: v1, kind: Service, metadata: {name: db, uid: u}, spec: {ipFamilies: [IPv6, IPv4], ipFamilyPolicy: PreferDualStack}}`,
		},
		"Job": {
			reason: "The API server generates the selector of a Job, and the selected labels.",
			object: `{apiVersion: batch/v1, kind: Job, metadata: {name: pi}, spec: {selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}}, template: {metadata: {labels: {app: pi, batch.kubernetes.io/controller-uid: u, batch.kubernetes.io/job-name: pi, controller-uid: u, job-name: pi}}}}}`,
			want: []string{
				"/spec/template/metadata/labels/job-name", "/spec/template/metadata/labels/controller-uid",
				"/spec/template/metadata/labels/batch.kubernetes.io~1job-name", "/spec/template/metadata/labels/batch.kubernetes.io~1controller-uid", "/spec/selector",
			},
		},
		"JobWithSelector": {
			reason: "With manualSelector the author has written the selector.",
			object: `{apiVersion: batch/v1, kind: Job, metadata: {name: pi}, spec: {manualSelector: true, selector: {matchLabels: {app: pi}}, template: {metadata: {labels: {app: pi, job-name: x}}}}}`,
		},
		"Pod": {
			reason: "Admission and the scheduler complete a Pod.",
			object: `
apiVersion: v1
kind: Pod
metadata: {name: once, uid: u, managedFields: [{manager: kubectl, operation: Update, fieldsV1: {"f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}}}}}}]}
spec:
  nodeName: node-1
  priority: 0
  preemptionPolicy: PreemptLowerPriority
  containers:
  - name: c
    volumeMounts: [{name: data, mountPath: /data}, {name: kube-api-access-x7k2p, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]
  tolerations:
  - {key: dedicated, operator: Exists}
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  volumes: [{name: data}, {name: kube-api-access-x7k2p}]
`,
			want: []string{
				"/spec/volumes/1", "/spec/tolerations/2", "/spec/tolerations/1", "/spec/priority", "/spec/preemptionPolicy", "/spec/nodeName",
				"/spec/containers/0/volumeMounts/1",
			},
		},
		"Claim": {
			reason: "The volume and the default class belong to the hub.",
			object: `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, uid: u, annotations: {note: x, pv.kubernetes.io/bind-completed: "yes", volume.kubernetes.io/selected-node: n}, managedFields: [{manager: kubectl, operation: Update, fieldsV1: {"f:spec": {"f:accessModes": {}}}}, {manager: kube-controller-manager, operation: Update, fieldsV1: {"f:spec": {"f:volumeName": {}}}}]}, spec: {accessModes: [ReadWriteOnce], storageClassName: standard, volumeName: pv-1}}`,
			want: []string{
				"/spec/volumeName", "/spec/storageClassName", "/metadata/annotations/volume.kubernetes.io~1selected-node", "/metadata/annotations/pv.kubernetes.io~1bind-completed",
			},
		},
		"ClaimExported": {
			reason: "A class is usually requested, so without a known owner it is kept.",
			object: `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, uid: u}, spec: {storageClassName: fast, volumeName: pv-1}}`,
			want:   []string{"/spec/volumeName"},
		},
		"Deployment": {
			reason: "The Deployment controller numbers revisions on each cluster.",
			object: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, annotations: {deployment.kubernetes.io/revision: "3", note: x}}, spec: {replicas: 2}}`,
			want:   []string{"/metadata/annotations/deployment.kubernetes.io~1revision"},
		},
		"Namespace": {
			reason: "The API server adds the label with the name, and the finalizer.",
			object: `{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {kubernetes.io/metadata.name: shop, team: a}}, spec: {finalizers: [kubernetes]}}`,
			want:   []string{"/spec/finalizers", "/metadata/labels/kubernetes.io~1metadata.name"},
		},
		"InjectedAuthority": {
			reason: "An injector owns only the caBundles of webhooks; its name does not matter.",
			object: `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: w, uid: u, managedFields: [{manager: kubectl, operation: Apply, fieldsV1: {"f:webhooks": {'k:{"name":"a"}': {".": {}, "f:name": {}}}}}, {manager: some-injector, operation: Update, fieldsV1: {"f:webhooks": {'k:{"name":"a"}': {"f:clientConfig": {"f:caBundle": {}}}}}}]}, webhooks: [{name: a, clientConfig: {caBundle: x}}]}`,
			want:   []string{"/webhooks/0/clientConfig/caBundle"},
		},
		"OwnAuthority": {
			reason: "A caBundle that the user has applied is requested.",
			object: `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: w, uid: u, managedFields: [{manager: kubectl, operation: Apply, fieldsV1: {"f:webhooks": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:clientConfig": {"f:caBundle": {}}}}}}]}, webhooks: [{name: a, clientConfig: {caBundle: x}}]}`,
		},
		"ExportedAuthority": {
			reason: "The annotation shows that the caBundle is injected.",
			object: `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: w, uid: u, annotations: {cert-manager.io/inject-ca-from: a/b}}, spec: {caBundle: x}}`,
			want:   []string{"/spec/caBundle"},
		},
		"Aggregated": {
			reason: "Each cluster generates the rules of an aggregated ClusterRole.",
			object: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: view-all}, aggregationRule: {clusterRoleSelectors: []}, rules: [{verbs: [get]}]}`,
			want:   []string{"/rules"},
		},
		"Controllers": {
			reason: "In objects of any kind, fields that only controllers of the hub have set are not requested; a status does not count.",
			object: `{apiVersion: example.com/v1, kind: Thing, metadata: {name: t, uid: u, annotations: {a: b, note: x}, managedFields: [{manager: kubectl, operation: Update, fieldsV1: {"f:metadata": {"f:annotations": {"f:note": {}}}}}, {manager: kube-controller-manager, operation: Update, subresource: status, fieldsV1: {"f:metadata": {"f:annotations": {"f:a": {}, "f:note": {}}}, "f:status": {"f:x": {}}}}]}, status: {x: 1}}`,
			want:   []string{"/metadata/annotations/a"},
		},
		"MadeByController": {
			reason: "In an object that a controller created, all fields are requested except those that the cluster assigned.",
			object: `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-db-0, uid: u, managedFields: [{manager: kube-controller-manager, operation: Update, fieldsV1: {"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:accessModes": {}, "f:storageClassName": {}, "f:volumeName": {}}}}]}, spec: {accessModes: [ReadWriteOnce], storageClassName: fast, volumeName: pv-1}}`,
			want:   []string{"/spec/volumeName"},
		},
		"BeforeFirstApply": {
			reason: "The manager before-first-apply, which an API server invents, does not identify the owner.",
			object: of(`, uid: u, managedFields: [{manager: before-first-apply, operation: Update, fieldsV1: {"f:spec": {"f:clusterIP": {}, "f:type": {}}}}]`),
			want: []string{
				"/spec/ports/1/nodePort", "/spec/ports/0/nodePort", "/spec/ipFamilyPolicy", "/spec/ipFamilies",
				"/spec/healthCheckNodePort", "/spec/clusterIPs", "/spec/clusterIP",
			},
		},
		"Malformed": {
			reason: "Values of any type are read without a panic.",
			object: `{apiVersion: 1, kind: [Service], metadata: {uid: 3, managedFields: {a: b}, annotations: [x]}, spec: x}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj, before := object(t, tc.object), object(t, tc.object)
			slices.SortFunc(tc.want, byKeys)
			if diff := cmp.Diff(tc.want, texts(local.Assigned(obj))); diff != "" {
				t.Errorf("%s\nAssigned(): -want, +got:\n%s", tc.reason, diff)
			}
			reduced := local.WithoutManagers(obj)
			if diff := cmp.Diff(tc.want, texts(local.Assigned(reduced))); diff != "" && !strings.Contains(tc.object, "refract.dev/assigned") {
				t.Errorf("Assigned(WithoutManagers()): -want, +got:\n%s", diff)
			}
			if metadata, ok := reduced["metadata"].(map[string]any); ok && metadata["managedFields"] != nil {
				t.Error("WithoutManagers() keeps managedFields")
			}
			if diff := cmp.Diff(before, obj); diff != "" {
				t.Errorf("the object has changed: -want, +got:\n%s", diff)
			}
		})
	}
}

// byKeys orders pointers like [local.Assigned]: later elements of a list come first.
func byKeys(a, b string) int {
	if x, y := strings.Split(a, "/"), strings.Split(b, "/"); len(x) > 3 && len(y) > 3 && x[2] == y[2] && x[3] != y[3] && x[3] < "9" && y[3] < "9" {
		return strings.Compare(y[3], x[3])
	}
	return strings.Compare(a, b)
}

func texts(places []tree.Pointer) []string {
	var all []string
	for _, p := range places {
		all = append(all, p.String())
	}
	return all
}

// TestAssignedIsLinear: the author of an object determines the number of list elements, and the number of elements in
// managedFields. The work grows linearly with these numbers, not quadratically.
func TestAssignedIsLinear(t *testing.T) {
	work := func(n int) float64 {
		ports, fields := make([]any, n), map[string]any{}
		for i := range ports {
			ports[i] = map[string]any{"port": int64(i), "protocol": "TCP", "nodePort": int64(i)}
			fields[fmt.Sprintf(`k:{"port":%d,"protocol":"TCP"}`, i)] = map[string]any{".": map[string]any{}, "f:port": map[string]any{}}
		}
		entry := func(name string) map[string]any {
			return map[string]any{"manager": name, "operation": "Update", "fieldsV1": map[string]any{"f:spec": map[string]any{"f:ports": fields}}}
		}
		object := map[string]any{
			"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"ports": ports},
			"metadata": map[string]any{"uid": "u", "managedFields": []any{entry("kubectl"), entry("kube-controller-manager")}},
		}
		return testing.AllocsPerRun(1, func() {
			if got := len(local.Assigned(object)); got != n {
				t.Errorf("want %d node ports assigned, got %d fields", n, got)
			}
		})
	}
	if few, many := work(200), work(1600); many > 12*few {
		t.Errorf("8 times as many elements take %.0f allocations instead of %.0f", many, few)
	}
}

// TestSpellings: if fieldsV1 spells the name of a list element in two ways, the result is always the same.
func TestSpellings(t *testing.T) {
	object := map[string]any{
		"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"ports": []any{map[string]any{"port": int64(80), "protocol": "TCP", "nodePort": int64(30080)}}},
		"metadata": map[string]any{"uid": "u", "managedFields": []any{map[string]any{
			"manager": "kubectl", "operation": "Apply", "fieldsV1": map[string]any{"f:spec": map[string]any{"f:ports": map[string]any{
				`k:{"port":80,"protocol":"TCP"}`: map[string]any{".": map[string]any{}, "f:nodePort": map[string]any{}},
				`k:{"protocol":"TCP","port":80}`: map[string]any{".": map[string]any{}},
			}}},
		}}},
	}
	for range 50 {
		if got := texts(local.Assigned(object)); len(got) > 0 {
			t.Fatalf("want the node port requested, got %v assigned", got)
		}
	}
}

// TestTooManyManagers: managedFields with too many entries count as unknown.
func TestTooManyManagers(t *testing.T) {
	var entries []any
	for i := range 101 {
		entries = append(entries, map[string]any{
			"manager": fmt.Sprint(i), "operation": "Apply", "fieldsV1": map[string]any{"f:spec": map[string]any{"f:clusterIP": map[string]any{}}},
		})
	}
	object := func(n int) map[string]any {
		return map[string]any{
			"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"clusterIP": "10.0.0.1"},
			"metadata": map[string]any{"uid": "u", "managedFields": entries[:n]},
		}
	}
	if got := local.Assigned(object(100)); len(got) > 0 {
		t.Errorf("at the bound: want the owner to count, got %v", texts(got))
	}
	if diff := cmp.Diff([]string{"/spec/clusterIP"}, texts(local.Assigned(object(101)))); diff != "" {
		t.Errorf("above the bound: want the result of the table: -want, +got:\n%s", diff)
	}
}

func TestCarry(t *testing.T) {
	const have = `{kind: Deployment, metadata: {name: web, managedFields: [{manager: refract, operation: Apply, fieldsV1: {"f:spec": {"f:replicas": {}, "f:hooks": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:ca": {}}, 'k:{"name":"b"}': {".": {}, "f:name": {}, "f:ca": {}}}}}}, {manager: other, operation: Update, fieldsV1: {"f:spec": {"f:size": {}}}}]}, spec: {replicas: 5, size: 1, hooks: [{name: a, ca: x}, {name: b, ca: y}]}}`
	cases := map[string]struct {
		reason, body string
		left         []string
		want         string
	}{
		"Owned": {
			"The API server would remove a field that its only owner stops sending.", `{spec: {paused: true}}`,
			[]string{"/spec/replicas"},
			`{spec: {paused: true, replicas: 5}}`,
		},
		"Others": {"A field of another manager stays without being sent.", `{spec: {}}`, []string{"/spec/size"}, `{}`},
		"Sent":   {"A field that is sent is requested.", `{spec: {replicas: 2}}`, []string{"/spec/replicas"}, `{}`},
		"Elements": {
			"Elements of lists are found by their key fields; an element that the hub no longer has is removed.", `{spec: {hooks: [{name: c}, {name: b}]}}`,
			[]string{"/spec/hooks/*/ca"},
			`{spec: {hooks: [{name: c}, {name: b, ca: y}]}}`,
		},
		"Gone": {"A field is not carried if the body lacks its parent object.", `{}`, []string{"/spec/replicas"}, `{}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var left []tree.Pattern
			for _, f := range tc.left {
				left = append(left, tree.MustParsePattern(f))
			}
			body := object(t, tc.body)
			got, carries, err := local.Carry(body, object(t, have), "refract", left)
			if err != nil {
				t.Fatal(err)
			}
			if !carries {
				got = map[string]any{}
			}
			if diff := cmp.Diff(object(t, tc.want), got); diff != "" {
				t.Errorf("%s\nCarry(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(object(t, tc.body), body); diff != "" {
				t.Errorf("the body has changed: -want, +got:\n%s", diff)
			}
		})
	}
}

func TestFields(t *testing.T) {
	changes := []tree.Change{
		{Path: "/spec/ports/1/nodePort", Op: tree.OpRemove, By: local.ByHub},
		{Path: "/spec/ports/0/nodePort", Op: tree.OpRemove, By: local.ByHub},
		{Path: "/spec/clusterIP", Op: tree.OpRemove, By: local.ByHub},
		{Path: "/spec/type", Op: tree.OpReplace, By: &tree.Author{Policy: tree.Policy{Kind: "OverridePolicy", Name: "p"}}},
	}
	var got []string
	for _, f := range local.Fields(changes) {
		got = append(got, f.String())
	}
	if diff := cmp.Diff([]string{"/spec/ports/*/nodePort", "/spec/clusterIP"}, got); diff != "" {
		t.Errorf("Fields(): want each assigned field once for all elements: -want, +got:\n%s", diff)
	}
	if got := local.ByHub.String(); got != "left to the cluster: assigned by the hub" {
		t.Errorf("ByHub is %q", got)
	}
}

// FuzzAssigned: no object causes a panic or is modified, and all returned fields can be removed.
func FuzzAssigned(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"Service","metadata":{"uid":"u","managedFields":[{"manager":"m","fieldsV1":{"f:spec":{"f:ports":{"k:{\"port\":80}":{"f:port":{}}}}}}]},"spec":{"clusterIP":"a","ports":[{"port":80,"nodePort":3}]}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"refract.dev/assigned":"[\"/spec/volumes/0\",\"/spec/volumes\"]"}},"spec":{"volumes":[{"name":"kube-api-access-a"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var obj, before map[string]any
		if utiljson.Unmarshal(data, &obj) != nil || obj == nil {
			return
		}
		before = maps.Clone(obj)
		doc := tree.Edit(obj)
		for _, place := range local.Assigned(obj) {
			if _, err := doc.Remove(place); err != nil {
				t.Errorf("removing %s: %v", place, err)
			}
		}
		local.WithoutManagers(obj)
		if diff := cmp.Diff(before, obj); diff != "" {
			t.Errorf("the object has changed: -want, +got:\n%s", diff)
		}
	})
}
