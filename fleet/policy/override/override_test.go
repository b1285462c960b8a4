package override

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"refract.dev/fleet/policy/match"
	"refract.dev/tree"
)

// policyOf returns the policy OverridePolicy default/web with one rule that has these overriders, given as YAML in one
// line.
func policyOf(tb testing.TB, overriders string) (*Policy, field.ErrorList) {
	tb.Helper()
	policies, errs := parsePolicies(tb, "{kind: OverridePolicy, metadata: {name: web, namespace: default, generation: 4}, spec: {overrideRules: [{overriders: "+overriders+"}]}}")
	return policies[0], errs
}

// deployment returns a Deployment with this pod spec.
func deployment(podSpec string) string {
	return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: default, labels: {app: web}}, spec: {replicas: 1, template: {spec: " + podSpec + "}}}"
}

func TestApplyErrors(t *testing.T) {
	web := deployment(`{containers: [{name: web, image: "web:1", args: [a], env: [{name: A}]}]}`)
	configMap := "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: default}, data: {a: b}}"
	cases := map[string]struct {
		reason     string
		obj        string
		overriders string
		path       string // Path of the RuleError.
		err        error  // The wrapped error; nil if the error wraps none of the exported ones.
		text       string // After OverridePolicy default/web rule 0.
	}{
		"JSONPatchMissing": {
			reason: "This is the example of the design.",
			obj:    web, overriders: "{jsonpatch: [{path: /spec/replicas, value: 2}, {path: /spec/foo, operator: remove}]}",
			path: "/spec/foo", err: tree.ErrNotFound,
			text: " jsonpatch[1]: /spec/foo does not exist",
		},
		"JSONPatchIndex": {
			reason: "An index is an error for every operator.",
			obj:    web, overriders: "{jsonpatch: [{path: /spec/template/spec/containers/1/image, value: x}]}",
			path: "/spec/template/spec/containers/1", err: tree.ErrIndex,
			text: " jsonpatch[0]: /spec/template/spec/containers/1 is not an index of the array: it has 1 element",
		},
		"JSONPatchType": {
			reason: "A number has no members.",
			obj:    web, overriders: "{jsonpatch: [{path: /spec/replicas/x, operator: add, value: x}]}",
			path: "/spec/replicas", err: tree.ErrType,
			text: " jsonpatch[0]: /spec/replicas has the wrong type: want an object or an array, got a number",
		},
		"Protected": {
			reason: "The error of an invalid rule names the field of the policy and the place in the object.",
			obj:    web, overriders: "{jsonpatch: [{path: /metadata/name, value: x}]}",
			path: "/metadata/name", err: ErrProtected,
			text: " jsonpatch[0]: spec.overrideRules[0].overriders.jsonpatch[0].path: Forbidden: /metadata/name may not be overridden: it identifies the object",
		},
		"ProtectedParent": {
			reason: "A place that contains a protected place is protected.",
			obj:    web, overriders: "{jsonpatch: [{path: /metadata, operator: remove}]}",
			path: "/metadata", err: ErrProtected,
			text: " jsonpatch[0]: spec.overrideRules[0].overriders.jsonpatch[0].path: Forbidden: /metadata may not be overridden: it contains the identity of the object",
		},
		"ProtectedLabel": {
			reason: "The error of a label overrider names the place as an escaped JSON pointer.",
			obj:    web, overriders: "{labels: [{operator: delete, value: {kubeadmiral.io/managed: ''}}]}",
			path: "/metadata/labels/kubeadmiral.io~1managed", err: ErrProtected,
			text: " labels[0]: spec.overrideRules[0].overriders.labels[0].value[kubeadmiral.io/managed]: Forbidden: /metadata/labels/kubeadmiral.io~1managed may not be overridden: Refract sets it on every copy",
		},
		"Grants": {
			reason:     "A namespaced policy may not change granted permissions. Changes by earlier items do not count as its changes.",
			obj:        "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r, namespace: default}, subjects: []}",
			overriders: "{labels: [{operator: addIfAbsent, value: {a: b}}], jsonpatch: [{path: /metadata/annotations/a, value: b}, {path: /subjects/-, operator: add, value: {kind: User, name: me}}]}",
			path:       "/subjects/0", err: ErrProtected,
			text: " jsonpatch[1]: /subjects/0 may not be overridden by a namespaced policy: it grants permissions",
		},
		"Finalizers": {
			reason: "A namespaced policy may not add finalizers.",
			obj:    web, overriders: "{jsonpatch: [{path: /metadata/finalizers/-, operator: add, value: example.com/f}]}",
			path: "/metadata/finalizers/-", err: ErrProtected,
			text: " jsonpatch[0]: spec.overrideRules[0].overriders.jsonpatch[0].path: Forbidden: /metadata/finalizers/- may not be overridden by a namespaced policy: finalizers can block the deletion of a copy and of its cluster",
		},
		"AnotherGroup": {
			reason: "The group must be that of the object.",
			obj:    web, overriders: "{jsonpatch: [{path: /apiVersion, value: batch/v1}]}",
			path: "/apiVersion", err: ErrProtected,
			text: ` jsonpatch[0]: /apiVersion may not be overridden: only another version of the same group is allowed, and "batch/v1" is not in the group of "apps/v1"`,
		},
		"NoGroup": {
			reason: "A version without a group is in the core group.",
			obj:    web, overriders: "{jsonpatch: [{path: /apiVersion, value: v1}]}",
			path: "/apiVersion", err: ErrProtected,
			text: ` jsonpatch[0]: /apiVersion may not be overridden: only another version of the same group is allowed, and "v1" is not in the group of "apps/v1"`,
		},
		"NoVersion": {
			reason: "A group without a version is invalid.",
			obj:    web, overriders: "{jsonpatch: [{path: /apiVersion, value: apps/}]}",
			path: "/apiVersion", err: ErrProtected,
			text: ` jsonpatch[0]: /apiVersion may not be overridden: only another version of the same group is allowed, and "apps/" is not in the group of "apps/v1"`,
		},
		"BrokenVersion": {
			reason: "An object without a group and version cannot get another.",
			obj:    "{apiVersion: a/b/c, kind: Thing, metadata: {name: x}}", overriders: "{jsonpatch: [{path: /apiVersion, value: apps/v1}]}",
			path: "/apiVersion", err: ErrProtected,
			text: ` jsonpatch[0]: /apiVersion may not be overridden: only another version of the same group is allowed, and it is "a/b/c"`,
		},
		"Kind": {
			reason: "A kind without a pod template is an error, which names no place. The group is part of the kind.",
			obj:    strings.Replace(web, "apps/v1", "example.com/v1", 1), overriders: "{image: [{operations: [{imageComponent: Tag, value: x}]}]}",
			err:  ErrNoPodTemplate,
			text: " image[0]: kind Deployment.example.com has no known pod template (known are those of Pod, CronJob, Deployment, StatefulSet, DaemonSet, Job); set imagePath",
		},
		"KindForEnvs": {
			reason: "The error of other overriders does not mention imagePath, which they lack.",
			obj:    configMap, overriders: "{envs: [{containerName: web, value: [{name: A}]}]}",
			err:  ErrNoPodTemplate,
			text: " envs[0]: kind ConfigMap has no known pod template (known are those of Pod, CronJob, Deployment, StatefulSet, DaemonSet, Job)",
		},
		"NoImage": {
			reason: "A missing image is an error.",
			obj:    deployment("{containers: [{name: web}]}"), overriders: "{image: [{operations: [{imageComponent: Tag, value: x}]}]}",
			path: "/spec/template/spec/containers/0/image", err: tree.ErrNotFound,
			text: " image[0]: /spec/template/spec/containers/0/image does not exist",
		},
		"EmptyImage": {
			reason: "An empty image is an error.",
			obj:    deployment("{containers: [{name: web, image: ''}]}"), overriders: "{image: [{operations: [{imageComponent: Tag, value: x}]}]}",
			path: "/spec/template/spec/containers/0/image", err: ErrImage,
			text: ` image[0]: /spec/template/spec/containers/0/image is "", which is not a valid image reference: it is empty`,
		},
		"NumericImage": {
			reason: "A number as the image is an error.",
			obj:    deployment("{containers: [{name: web, image: 1}]}"), overriders: "{image: [{operations: [{imageComponent: Tag, value: x}]}]}",
			path: "/spec/template/spec/containers/0/image", err: tree.ErrType,
			text: " image[0]: /spec/template/spec/containers/0/image has the wrong type: want an image (a string), got a number",
		},
		"ImagePresent": {
			reason: "addIfAbsent names the image and the component.",
			obj:    web, overriders: "{image: [{operations: [{imageComponent: Tag, operator: addIfAbsent, value: x}]}]}",
			path: "/spec/template/spec/containers/0/image", err: ErrPresent,
			text: ` image[0]: /spec/template/spec/containers/0/image is "web:1", whose Tag is already there: addIfAbsent does not replace it`,
		},
		"ImagePathMissing": {
			reason: "The first missing place is named.",
			obj:    configMap, overriders: "{image: [{imagePath: /data/image/x, operations: [{imageComponent: Tag, value: x}]}]}",
			path: "/data/image", err: tree.ErrNotFound,
			text: " image[0]: /data/image does not exist",
		},
		"ImagePathLast": {
			reason: "An imagePath is a JSON pointer of RFC 6901.",
			obj:    web, overriders: "{image: [{imagePath: /spec/template/spec/containers/-1/image, operations: [{imageComponent: Tag, value: x}]}]}",
			path: "/spec/template/spec/containers/-1", err: tree.ErrIndex,
			text: " image[0]: /spec/template/spec/containers/-1 is not an index of the array: it has 1 element",
		},
		"RepositoryReadAsRegistry": {
			reason: "The components must not parse differently when combined.",
			obj:    web, overriders: "{image: [{operations: [{imageComponent: Repository, value: localhost/web}]}]}",
			path: "/spec/template/spec/containers/0/image", err: ErrImage,
			text: ` image[0]: /spec/template/spec/containers/0/image would become "localhost/web:1", which is not a valid image reference as intended: it reads as Registry "localhost" and Repository "web"`,
		},
		"ImageInASecret": {
			reason: "Readers of the error may lack the right to read the Secret.",
			obj:    "{apiVersion: v1, kind: Secret, metadata: {name: c}, data: {password: aHVudGVyMg==}}", overriders: "{image: [{imagePath: /data/password, operations: [{imageComponent: Tag, value: x}]}]}",
			path: "/data/password", err: ErrImage,
			text: " image[0]: /data/password has or would get a value that is not a valid image reference (the values of a Secret are not shown)",
		},
		"PresentInASecret": {
			reason: "The error of a present component does not show the value of a Secret either.",
			obj:    "{apiVersion: v1, kind: Secret, metadata: {name: c}, data: {image: 'hunter:2'}}", overriders: "{image: [{imagePath: /data/image, operations: [{imageComponent: Tag, operator: addIfAbsent, value: x}]}]}",
			path: "/data/image", err: ErrPresent,
			text: " image[0]: /data/image has a component that is already there: addIfAbsent does not replace it (the values of a Secret are not shown)",
		},
		"ContainersNotAList": {
			reason: "A value of the wrong type for the containers is not ignored.",
			obj:    deployment("{containers: {name: web}}"), overriders: "{args: [{containerName: web, value: [x]}]}",
			path: "/spec/template/spec/containers", err: tree.ErrType,
			text: " args[0]: /spec/template/spec/containers has the wrong type: want an array, got an object",
		},
		"ContainerNotAnObject": {
			reason: "An element of the wrong type is not ignored, even after the matching container.",
			obj:    deployment("{containers: [{name: web}, web]}"), overriders: "{args: [{containerName: web, value: [x]}]}",
			path: "/spec/template/spec/containers/1", err: tree.ErrType,
			text: " args[0]: /spec/template/spec/containers/1 has the wrong type: want an object, got a string",
		},
		"PodSpecNotAnObject": {
			reason: "A pod spec of the wrong type is not ignored.",
			obj:    deployment("[]"), overriders: "{args: [{containerName: web, value: [x]}]}",
			path: "/spec/template/spec", err: tree.ErrType,
			text: " args[0]: /spec/template/spec has the wrong type: want an object, got an array",
		},
		"TemplateNotAnObject": {
			reason: "A template of the wrong type is not ignored.",
			obj:    "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: none}}", overriders: "{args: [{containerName: web, value: [x]}]}",
			path: "/spec/template", err: tree.ErrType,
			text: " args[0]: /spec/template has the wrong type: want an object or an array, got a string",
		},
		"ArgsNotAList": {
			reason: "A value of the wrong type is not replaced silently.",
			obj:    deployment("{containers: [{name: web, args: a}]}"), overriders: "{args: [{containerName: web, value: [x]}]}",
			path: "/spec/template/spec/containers/0/args", err: tree.ErrType,
			text: " args[0]: /spec/template/spec/containers/0/args has the wrong type: want an array, got a string",
		},
		"EnvPresent": {
			reason: "The error names the variable.",
			obj:    web, overriders: "{envs: [{containerName: web, operator: addIfAbsent, value: [{name: B}, {name: A}]}]}",
			path: "/spec/template/spec/containers/0/env", err: ErrPresent,
			text: ` envs[0]: /spec/template/spec/containers/0/env has the variable "A", which is already there: addIfAbsent does not replace it`,
		},
		"LabelPresent": {
			reason: "The error names the label of the first item that fails.",
			obj:    web, overriders: "{labels: [{operator: addIfAbsent, value: {a: b}}, {operator: addIfAbsent, value: {a: b}}]}",
			path: "/metadata/labels/a", err: ErrPresent,
			text: " labels[1]: /metadata/labels/a is already there: addIfAbsent does not replace it",
		},
		"MetadataNotAnObject": {
			reason: "A label cannot be added to metadata of the wrong type.",
			obj:    "{apiVersion: v1, kind: ConfigMap, metadata: none}", overriders: "{labels: [{operator: addIfAbsent, value: {a: b}}]}",
			path: "/metadata", err: tree.ErrType,
			text: " labels[0]: /metadata has the wrong type: want an object or an array, got a string",
		},
		"Invalid": {
			reason: "An error that is not about a place in the object has no path.",
			obj:    web, overriders: "{jsonpatch: [{path: spec/replicas, value: 1}]}",
			text: ` jsonpatch[0]: spec.overrideRules[0].overriders.jsonpatch[0].path: Invalid value: "spec/replicas": must begin with a slash, as every JSON pointer does`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := parseObject(t, tc.obj)
			before := obj.DeepCopy()
			policy, _ := policyOf(t, tc.overriders)
			v := Apply(obj, match.Cluster{Name: "c1"}, policy)
			if diff := cmp.Diff(before, obj); diff != "" {
				t.Errorf("Apply() changed its input: -before, +after:\n%s", diff)
			}
			var failure *RuleError
			if !errors.As(v.Err, &failure) || v.Object != nil || v.Changes != nil {
				t.Fatalf("%s\nwant a RuleError and no object, got %+v", tc.reason, v)
			}
			if want := "OverridePolicy default/web rule 0" + tc.text; v.Err.Error() != want {
				t.Errorf("%s\nwant %s\ngot  %s", tc.reason, want, v.Err)
			}
			if failure.Path != tc.path {
				t.Errorf("%s\nPath: want %q, got %q", tc.reason, tc.path, failure.Path)
			}
			if tc.err != nil && !errors.Is(v.Err, tc.err) {
				t.Errorf("%s\nwant %v, got %#v", tc.reason, tc.err, failure.Err)
			}
			var invalid *field.Error
			if got, want := errors.As(v.Err, &invalid), strings.Contains(tc.text, "spec.overrideRules"); got != want {
				t.Errorf("%s\na field.Error: want %t, got %t", tc.reason, want, got)
			}
			author := tree.Author{Policy: tree.Policy{Kind: "OverridePolicy", Namespace: "default", Name: "web", Generation: 4}, Overrider: failure.Overrider, Item: failure.Item}
			if diff := cmp.Diff(author, failure.Author); diff != "" {
				t.Errorf("%s\nAuthor: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestApply(t *testing.T) {
	cases := map[string]struct {
		reason     string
		obj        string
		overriders string
		want       string
		changes    []string // The beginning of each change.
		warnings   []string
	}{
		"EmptyOverriders": {
			reason: "Overriders may be empty.",
			obj:    "{apiVersion: v1, kind: Thing, metadata: {name: a}}", overriders: "{}",
			want: "{apiVersion: v1, kind: Thing, metadata: {name: a}}",
		},
		"NoOverriders": {
			reason: "Overriders may be missing.",
			obj:    "{apiVersion: v1, kind: Thing, metadata: {name: a}}", overriders: "null",
			want: "{apiVersion: v1, kind: Thing, metadata: {name: a}}",
		},
		"NoOperations": {
			reason: "An item may have no operations; then the image is not parsed.",
			obj:    deployment("{containers: [{name: web, image: '?'}]}"), overriders: "{image: [{operations: []}]}",
			want: deployment("{containers: [{name: web, image: '?'}]}"),
		},
		"NoContainers": {
			reason: "Without containers, an image overrider for all containers has no effect.",
			obj:    "{apiVersion: v1, kind: Pod, metadata: {name: a}}", overriders: "{image: [{operations: [{imageComponent: Tag, value: x}]}], args: [{containerName: web, value: [x]}]}",
			want:     "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
			warnings: []string{"OverridePolicy default/web rule 0 image[0]: there are no containers", `OverridePolicy default/web rule 0 args[0]: no container or init container is named "web"`},
		},
		"NullContainers": {
			reason: "Null counts as missing, as for an API server.",
			obj:    deployment("{initContainers: null, containers: [{name: web, args: null}]}"), overriders: "{args: [{containerName: web, operator: append, value: [x]}]}",
			want:    deployment("{initContainers: null, containers: [{name: web, args: [x]}]}"),
			changes: []string{`replace /spec/template/spec/containers/0/args: null → ["x"]`},
		},
		"InitContainerFirst": {
			reason: "If a container and an init container have the same name, the init container gets the list.",
			obj:    deployment("{containers: [{name: a}], initContainers: [{name: b}, {name: a}]}"), overriders: "{command: [{containerName: a, value: [x]}]}",
			want:    deployment("{containers: [{name: a}], initContainers: [{name: b}, {name: a, command: [x]}]}"),
			changes: []string{`add /spec/template/spec/initContainers/1/command: ["x"]`},
		},
		"ImageOfBoth": {
			reason: "An image overrider applies to every container of the name; a missing name causes one warning.",
			obj:    deployment("{containers: [{name: a, image: x}], initContainers: [{name: a, image: z}]}"), overriders: "{image: [{containerNames: [a, ghost], operations: [{imageComponent: Tag, value: '1'}]}]}",
			want:     deployment("{containers: [{name: a, image: 'x:1'}], initContainers: [{name: a, image: 'z:1'}]}"),
			changes:  []string{`replace /spec/template/spec/initContainers/0/image: "z" → "z:1"`, `replace /spec/template/spec/containers/0/image: "x" → "x:1"`},
			warnings: []string{`OverridePolicy default/web rule 0 image[0]: no container or init container is named "ghost"`},
		},
		"ManyContainers": {
			reason: "Places of containers beyond the precomputed ones are computed on demand.",
			obj:    deployment("{containers: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}, {name: h}, {name: i}, {name: j}]}"), overriders: "{args: [{containerName: j, value: [x]}]}",
			want:    deployment("{containers: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}, {name: h}, {name: i}, {name: j, args: [x]}]}"),
			changes: []string{`add /spec/template/spec/containers/9/args: ["x"]`},
		},
		"SameImage": {
			reason: "An unchanged image is not recorded as a change.",
			obj:    deployment("{containers: [{name: web, image: 'web:1'}]}"), overriders: "{image: [{operations: [{imageComponent: Tag, value: '1'}, {imageComponent: Digest, operator: delete}]}]}",
			want: deployment("{containers: [{name: web, image: 'web:1'}]}"),
		},
		"SameEverything": {
			reason: "An overwrite with an equal value is not recorded as a change.",
			obj:    deployment("{containers: [{name: web, args: [a], env: [{name: A, value: b}]}]}"), overriders: "{args: [{containerName: web, value: [a]}], envs: [{containerName: web, value: [{name: A, value: b}]}], labels: [{value: {app: web}}], jsonpatch: [{path: /spec/replicas, value: 1.0}, {path: /spec/template/spec/containers, operator: add, value: [{name: web, args: [a], env: [{name: A, value: b}]}]}]}",
			want: deployment("{containers: [{name: web, args: [a], env: [{name: A, value: b}]}]}"),
		},
		"DeleteNothing": {
			reason: "Deleting a missing value has no effect.",
			obj:    deployment("{containers: [{name: web, args: [a]}]}"), overriders: "{args: [{containerName: web, operator: delete, value: [b]}], command: [{containerName: web, operator: delete, value: [b]}], envs: [{containerName: web, operator: delete, value: [{name: A}]}], annotations: [{operator: delete, value: {a: ''}}]}",
			want: deployment("{containers: [{name: web, args: [a]}]}"),
		},
		"EmptyStays": {
			reason: "An empty list from the object or from a jsonpatch is not removed.",
			obj:    deployment("{containers: [{name: web, args: []}]}"), overriders: "{args: [{containerName: web, value: []}], jsonpatch: [{path: /spec/template/spec/containers/0/command, operator: add, value: []}]}",
			want:    deployment("{containers: [{name: web, args: [], command: []}]}"),
			changes: []string{"add /spec/template/spec/containers/0/command: []"},
		},
		"EmptiedAndRenamed": {
			reason: "An emptied list is removed at the final place of its container.",
			obj:    deployment("{containers: [{name: a, args: [x]}, {name: b, args: [x]}, {name: c, args: [x]}]}"), overriders: "{args: [{containerName: c, value: []}, {containerName: b, value: []}], jsonpatch: [{path: /spec/template/spec/containers/0, operator: remove}, {path: /spec/template/spec/containers/0, operator: remove}]}",
			want:    deployment("{containers: [{name: c}]}"),
			changes: []string{"replace /spec/template/spec/containers/2/args", "replace /spec/template/spec/containers/1/args", "remove /spec/template/spec/containers/0", "remove /spec/template/spec/containers/0"},
		},
		"EmptiedAndBroken": {
			reason: "An emptied list is ignored if the containers no longer exist.",
			obj:    deployment("{containers: [{name: a, args: [x]}]}"), overriders: "{args: [{containerName: a, value: []}], jsonpatch: [{path: /spec/template/spec/containers, value: gone}]}",
			want:    deployment("{containers: gone}"),
			changes: []string{"replace /spec/template/spec/containers/0/args", "replace /spec/template/spec/containers: "},
		},
		"EnvLastWins": {
			reason: "If a variable has several values, the last one counts.",
			obj:    deployment("{containers: [{name: a, env: [{name: A, value: x}]}]}"), overriders: "{envs: [{containerName: a, value: [{name: A, value: b}, {name: A, value: c}, {name: B}]}, {containerName: a, operator: delete, value: [{name: B}, {name: B}]}]}",
			want:     deployment("{containers: [{name: a, env: [{name: A, value: c}]}]}"),
			changes:  []string{"replace /spec/template/spec/containers/0/env"},
			warnings: []string{`OverridePolicy default/web rule 0 envs[0]: /spec/template/spec/containers/0/env has no variable "B", and overwrite adds nothing`},
		},
		"Version": {
			reason: "Another version of the core group is allowed.",
			obj:    "{apiVersion: v1, kind: Thing, metadata: {name: a}}", overriders: "{jsonpatch: [{path: /apiVersion, operator: add, value: v2}]}",
			want:    "{apiVersion: v2, kind: Thing, metadata: {name: a}}",
			changes: []string{`replace /apiVersion: "v1" → "v2"`},
		},
		"HubKeys": {
			reason: "A rule may set labels and annotations that are not propagated from the hub, except those that Refract writes.",
			obj:    "{apiVersion: v1, kind: Thing, metadata: {name: a, labels: {kubeadmiral.io/x: hub}, annotations: {refract.dev/x: hub}}}", overriders: "{labels: [{operator: addIfAbsent, value: {kubeadmiral.io/x: copy}}], annotations: [{operator: addIfAbsent, value: {refract.dev/x: 'false'}}]}",
			want:    "{apiVersion: v1, kind: Thing, metadata: {name: a, labels: {kubeadmiral.io/x: copy}, annotations: {refract.dev/x: 'false'}}}",
			changes: []string{"add /metadata/annotations/refract.dev~1x", "add /metadata/labels/kubeadmiral.io~1x"},
		},
		"NoMetadata": {
			reason: "For rules, labels exist even if the object has no metadata.",
			obj:    "{apiVersion: v1, kind: Thing}", overriders: "{jsonpatch: [{path: /metadata/labels/a, operator: add, value: b}]}",
			want:    "{apiVersion: v1, kind: Thing, metadata: {labels: {a: b}}}",
			changes: []string{`add /metadata/labels/a: "b"`},
		},
		"LargeIntegers": {
			reason: "Integers beyond 2^53 stay exact, in the object and in the policy.",
			obj:    "{apiVersion: v1, kind: Thing, metadata: {name: a}, a: 9007199254740993}", overriders: "{jsonpatch: [{path: /b, operator: add, value: [9007199254740995, 9223372036854775807]}]}",
			want:    "{apiVersion: v1, kind: Thing, metadata: {name: a}, a: 9007199254740993, b: [9007199254740995, 9223372036854775807]}",
			changes: []string{"add /b: [9007199254740995,9223372036854775807]"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := parseObject(t, tc.obj)
			before := obj.DeepCopy()
			policy, errs := policyOf(t, tc.overriders)
			if len(errs) > 0 {
				t.Fatalf("%s\n%v", tc.reason, errs.ToAggregate())
			}
			v := Apply(obj, match.Cluster{Name: "c1"}, policy)
			if diff := cmp.Diff(before, obj); diff != "" {
				t.Errorf("Apply() changed its input: -before, +after:\n%s", diff)
			}
			if v.Err != nil {
				t.Fatalf("%s\n%v", tc.reason, v.Err)
			}
			if diff := cmp.Diff(parseObject(t, tc.want), v.Object); diff != "" {
				t.Errorf("%s\nObject: -want, +got:\n%s", tc.reason, diff)
			}
			for i := range max(len(tc.changes), len(v.Changes)) {
				if i >= len(tc.changes) || i >= len(v.Changes) || !strings.HasPrefix(describe(&v.Changes[i]), tc.changes[i]) {
					t.Fatalf("%s\nChanges: want %q, got %+v", tc.reason, tc.changes, v.Changes)
				}
			}
			var warnings []string
			for _, w := range v.Warnings {
				warnings = append(warnings, w.String())
			}
			if diff := cmp.Diff(tc.warnings, warnings); diff != "" {
				t.Errorf("%s\nWarnings: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRender verifies that variants are in the order of their first cluster, and name the policies with a rule for
// them.
func TestRender(t *testing.T) {
	policies, errs := parsePolicies(t, `
{kind: OverridePolicy, metadata: {name: op, namespace: default}, spec: {overrideRules: [
  {targetClusters: {clusters: [b, d]}, overriders: {labels: [{operator: addIfAbsent, value: {x: "1"}}]}},
  {targetClusters: {clusters: [nobody]}, overriders: {labels: [{operator: addIfAbsent, value: {x: "2"}}]}}]}}
---
{kind: ClusterOverridePolicy, metadata: {name: cop}, spec: {overrideRules: [
  {targetClusters: {clusters: [b, c, d]}, overriders: {labels: [{operator: addIfAbsent, value: {z: "1"}}]}}]}}
`)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	obj := parseObject(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")
	type summary struct {
		Clusters []int
		Policies []int
		Labels   map[string]string
	}
	var got []summary
	for _, v := range Render(obj, []match.Cluster{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "a2"}}, policies...) {
		got = append(got, summary{v.Clusters, v.Policies, v.Object.GetLabels()})
	}
	want := []summary{
		{Clusters: []int{0, 4}},
		{Clusters: []int{1, 3}, Policies: []int{0, 1}, Labels: map[string]string{"x": "1", "z": "1"}},
		{Clusters: []int{2}, Policies: []int{0}, Labels: map[string]string{"z": "1"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if v := Render(obj, nil, policies...); len(v) != 0 {
		t.Errorf("no clusters: want no variants, got %+v", v)
	}
}

// TestRenderManyRules renders more rules and more variants than fit into a machine word or a short list.
func TestRenderManyRules(t *testing.T) {
	const n = 100
	var rules []string
	clusters := make([]match.Cluster, n)
	for i := range clusters {
		clusters[i].Name = fmt.Sprintf("c%d", i)
		rules = append(rules, fmt.Sprintf("{targetClusters: {clusters: [c%d, c%d]}, overriders: {jsonpatch: [{path: /rules/-, operator: add, value: %d}]}}", i, (i+1)%n, i))
	}
	policies, errs := parsePolicies(t, "{kind: OverridePolicy, metadata: {name: op}, spec: {overrideRules: ["+strings.Join(rules, ", ")+"]}}")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	obj := parseObject(t, "{apiVersion: v1, kind: Thing, rules: []}")
	variants := Render(obj, slices.Concat(clusters, clusters), policies...)
	if len(variants) != n {
		t.Fatalf("want %d variants, got %d", n, len(variants))
	}
	for i, v := range variants {
		want := []any{int64(i - 1), int64(i)}
		if i == 0 {
			want = []any{int64(0), int64(n - 1)}
		}
		if diff := cmp.Diff(want, v.Object.Object["rules"]); diff != "" || !slices.Equal(v.Clusters, []int{i, i + n}) {
			t.Errorf("variant %d, clusters %v: -want, +got:\n%s", i, v.Clusters, diff)
		}
	}
}

// TestRenderShares verifies that a variant and the input share the parts that no policy changes.
func TestRenderShares(t *testing.T) {
	obj := parseObject(t, deployment("{containers: [{name: web, image: 'web:1', ports: [{containerPort: 80}]}, {name: side, image: side}], volumes: [{name: v}]}"))
	policy, _ := policyOf(t, "{image: [{containerNames: [web], operations: [{imageComponent: Tag, value: '2'}]}]}")
	out := Apply(obj, match.Cluster{}, policy).Object
	for path, want := range map[string]bool{
		"/spec/template/spec/volumes":            true,
		"/spec/template/spec/containers/1":       true,
		"/spec/template/spec/containers/0/ports": true,
		"/spec/template/spec/containers/0":       false,
		"/spec/template/spec/containers":         false,
		"/spec":                                  false,
		"/metadata":                              false,
	} {
		in, errIn := tree.Lookup(obj.Object, tree.MustParse(path))
		got, errGot := tree.Lookup(out.Object, tree.MustParse(path))
		if errIn != nil || errGot != nil {
			t.Fatal(errIn, errGot)
		}
		if shared := reflect.ValueOf(in).Pointer() == reflect.ValueOf(got).Pointer(); shared != want {
			t.Errorf("%s shared: want %t, got %t", path, want, shared)
		}
	}
}

// TestRenderConcurrently shares policies and the object between goroutines, so that the race detector finds writes.
func TestRenderConcurrently(t *testing.T) {
	obj := parseObject(t, readFile(t, "testdata/bench/deployment.yaml"))
	policies, _ := parsePolicies(t, readFile(t, "testdata/bench/policy.yaml"))
	want := Apply(obj, match.Cluster{Name: "c"}, policies...)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				if got := Apply(obj, match.Cluster{Name: "c"}, policies...); !reflect.DeepEqual(want, got) {
					t.Errorf("-want, +got:\n%s", cmp.Diff(want, got))
				}
			}
		})
	}
	group.Wait()
}

func TestTemplate(t *testing.T) {
	cases := map[string]struct{ reason, in, want string }{
		"Hub":           {"Members that concern only the hub are left out.", "{kind: A, metadata: {name: a, uid: u, finalizers: [f], ownerReferences: [], labels: {a: b, kubeadmiral.io/x: y}, annotations: {x.kubeadmiral.io/y: z}}, status: {}}", "{kind: A, metadata: {name: a, labels: {a: b}}}"},
		"LastApplied":   {"kubectl's annotation concerns the hub; a label with that key belongs to the user.", "{kind: A, metadata: {labels: {kubectl.kubernetes.io/last-applied-configuration: x}, annotations: {kubectl.kubernetes.io/last-applied-configuration: x}}}", "{kind: A, metadata: {labels: {kubectl.kubernetes.io/last-applied-configuration: x}}}"},
		"LooksLikeHub":  {"Labels of other domains stay.", "{kind: A, metadata: {labels: {notkubeadmiral.io/x: y, kubeadmiral.io: y, kubeadmiral.io.example.com/x: y, refract.dev: y}}}", "{kind: A, metadata: {labels: {notkubeadmiral.io/x: y, kubeadmiral.io: y, kubeadmiral.io.example.com/x: y, refract.dev: y}}}"},
		"GenerateName":  {"Fields that identify the object stay.", "{kind: A, metadata: {name: a, namespace: b, generateName: c}}", "{kind: A, metadata: {name: a, namespace: b, generateName: c}}"},
		"EmptyLabels":   {"Empty maps are left out.", "{kind: A, metadata: {name: a, labels: {}, annotations: null}}", "{kind: A, metadata: {name: a}}"},
		"NoMetadata":    {"Missing metadata is not added.", "{kind: A}", "{kind: A}"},
		"WrongMetadata": {"A value of the wrong type stays, so that the API server rejects it.", "{kind: A, metadata: x}", "{kind: A, metadata: x}"},
		"WrongLabels": {
			"Labels and annotations of the wrong type stay.",
			"{kind: A, metadata: {labels: [a], annotations: x}}", "{kind: A, metadata: {labels: [a], annotations: x}}",
		},
		"LabelValues": {"A label value of the wrong type stays.", "{kind: A, metadata: {labels: {a: 1}}}", "{kind: A, metadata: {labels: {a: 1}}}"},
		"Empty":       {"An object may be empty.", "{}", "{}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := parseObject(t, tc.in)
			before := in.DeepCopy()
			got := Template(in)
			if diff := cmp.Diff(parseObject(t, tc.want), got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, in); diff != "" {
				t.Errorf("Template() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
	if got := Template(&unstructured.Unstructured{}); len(got.Object) != 0 {
		t.Errorf("no object at all: got %v", got)
	}
}

// TestCompile compiles policies that are valid in unusual ways.
func TestCompile(t *testing.T) {
	for reason, overriders := range map[string]string{
		"An annotation key may have upper-case letters in its domain, as for an API server.": "{annotations: [{operator: addIfAbsent, value: {Example.com/a: any value at all}}]}",
		"Delete ignores values.": "{labels: [{operator: delete, value: {a: not a label value}}], image: [{operations: [{imageComponent: Tag, operator: delete, value: not a tag}]}]}",
		"A jsonpatch may replace an annotation whose key an API server would reject.": "{jsonpatch: [{path: /metadata/annotations/foo~1bar~0, value: baz}]}",
		"Containers are ignored when an imagePath is set.":                            "{image: [{containerNames: [''], imagePath: /a, operations: []}]}",
		"Remove needs no value and ignores one.":                                      "{jsonpatch: [{path: /a, operator: remove, value: 1}]}",
	} {
		if _, errs := policyOf(t, overriders); len(errs) > 0 {
			t.Errorf("%s\n%v", reason, errs.ToAggregate())
		}
	}
	for text, overriders := range map[string]string{
		`spec.overrideRules[0].overriders.labels[0].value[a]: Invalid value: "b c": a valid label must be`:    "{labels: [{operator: overwrite, value: {a: b c}}]}",
		`spec.overrideRules[0].overriders.labels[0].value[a b]: Invalid value: "a b": name part must`:         "{labels: [{operator: addIfAbsent, value: {a b: c}}]}",
		`spec.overrideRules[0].overriders.annotations[0].value[a b]: Invalid value: "a b": name part must`:    "{annotations: [{operator: addIfAbsent, value: {a b: c}}]}",
		`spec.overrideRules[0].overriders.annotations[0].value: Required value: must not be empty`:            "{annotations: [{operator: addIfAbsent}]}",
		`spec.overrideRules[0].overriders.jsonpatch[0].value: Invalid value: "an object": must be a string`:   "{jsonpatch: [{path: /metadata/labels/a, value: {}}]}",
		`spec.overrideRules[0].overriders.jsonpatch[0].value: Invalid value: 1.5: must be a string`:           "{jsonpatch: [{path: /metadata/labels/a, value: 1.5}]}",
		`spec.overrideRules[0].overriders.jsonpatch[0].value[a]: Invalid value: null: must be a string`:       "{jsonpatch: [{path: /metadata/labels, value: {a: null}}]}",
		`spec.overrideRules[0].overriders.envs[0].operator: Unsupported value: "append"`:                      "{envs: [{containerName: a, operator: append, value: [{name: A}]}]}",
		`spec.overrideRules[0].overriders.command[0].containerName: Required value: must name a container`:    "{command: [{value: []}]}",
		`spec.overrideRules[0].overriders.image[0].imagePath: Invalid value: "/a~": must have ~0 for ~`:       "{image: [{imagePath: /a~, operations: []}]}",
		`spec.overrideRules[0].overriders.image[0].operations[0].value: Invalid value: "A": is not a valid R`: "{image: [{operations: [{imageComponent: Repository, value: A}]}]}",
	} {
		_, errs := policyOf(t, overriders)
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), text) {
			t.Errorf("%s\nwant %s…\ngot  %v", overriders, text, errs)
		}
	}
}

// TestCompileReturnsUsablePolicy verifies that Compile reports every mistake of an invalid policy, and that its valid
// rules work.
func TestCompileReturnsUsablePolicy(t *testing.T) {
	policies, errs := parsePolicies(t, `{kind: OverridePolicy, metadata: {name: p, namespace: ns}, spec: {overrideRules: [
  {overriders: {labels: [{operator: addIfAbsent, value: {fine: "1"}}]}},
  {targetClusters: {clusters: [b]}, overriders: {labels: [{operator: nope}, {operator: nope}], jsonpatch: [{path: x}]}}]}}`)
	if len(errs) != 4 {
		t.Errorf("want 4 mistakes, got %v", errs)
	}
	obj := parseObject(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")
	if v := Apply(obj, match.Cluster{Name: "a"}, policies...); v.Err != nil || v.Object.GetLabels()["fine"] != "1" {
		t.Errorf("the cluster without the invalid rule: %+v", v)
	}
	v := Apply(obj, match.Cluster{Name: "b"}, policies...)
	want := `OverridePolicy ns/p rule 1 labels[0]: spec.overrideRules[1].overriders.labels[0].operator: Unsupported value: "nope": supported values: "addIfAbsent", "overwrite", "delete"`
	if v.Err == nil || v.Err.Error() != want {
		t.Errorf("want %s\ngot  %v", want, v.Err)
	}
	if !slices.Equal(v.Policies, []int{0}) {
		t.Errorf("Policies: want [0], got %v", v.Policies)
	}
}

func TestOrder(t *testing.T) {
	op := &Policy{Ref: tree.Policy{Kind: "OverridePolicy", Name: "a"}}
	cop := &Policy{Ref: tree.Policy{Kind: "ClusterOverridePolicy", Name: "b"}}
	if Order(cop, op) >= 0 || Order(op, cop) <= 0 || Order(op, op) != 0 || Order(cop, cop) != 0 {
		t.Error("want a ClusterOverridePolicy before an OverridePolicy")
	}
}
