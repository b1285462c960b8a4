package override

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/local"
	"refract.dev/fleet/policy/match"
	"refract.dev/internal/golden"
	"refract.dev/tree"
)

// FuzzRender renders policies and objects that are composed of fragments, most of which match each other.
func FuzzRender(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("the quick brown fox jumps over the lazy dog, and over and over it again"))
	for i := range byte(12) {
		f.Add(slices.Repeat([]byte{3, 1, i, 0, 2, i + 1, 5}, 9))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &choices{rest: data}
		obj := &unstructured.Unstructured{Object: decode[map[string]any](t, objects[c.below(len(objects))])}
		op := &corev1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "op", Generation: 2}, Spec: c.spec()}
		cop := &corev1alpha1.ClusterOverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: "cop"}, Spec: c.spec()}
		checkLaws(t, obj, cop, op)
	})
}

// FuzzRenderJSON renders any object with any rules. The golden files are the first inputs.
func FuzzRenderJSON(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		in := golden.Texts(golden.Inputs(archive))
		obj, err := yaml.YAMLToJSON([]byte(in["object.yaml"]))
		if err != nil {
			f.Fatal(err)
		}
		for document := range strings.SplitSeq(in["policies.yaml"], "---\n") {
			if policy, err := yaml.YAMLToJSON([]byte(document)); err == nil {
				f.Add(obj, policy)
			}
		}
	}
	f.Fuzz(func(t *testing.T, object, policy []byte) {
		obj := &unstructured.Unstructured{}
		op := &corev1alpha1.OverridePolicy{}
		if utiljson.Unmarshal(object, &obj.Object) != nil || utiljson.Unmarshal(policy, op) != nil {
			t.Skip()
		}
		checkLaws(t, obj, &corev1alpha1.ClusterOverridePolicy{}, op)
	})
}

// checkLaws checks the properties that hold for every object and every policy.
func checkLaws(t *testing.T, obj *unstructured.Unstructured, cop *corev1alpha1.ClusterOverridePolicy, op *corev1alpha1.OverridePolicy) {
	t.Helper()
	clusters := []match.Cluster{
		{Name: "c1", Labels: map[string]string{"region": "a"}},
		{Name: "c2"},
		{Name: "c3", Labels: map[string]string{"region": "b", "nodes": "5"}},
		{Name: "c4", Labels: map[string]string{"region": "a"}},
		{Name: "c5", Labels: map[string]string{"region": "b", "nodes": "50"}},
	}
	inputs := func() []any {
		return []any{runtime.DeepCopyJSON(obj.Object), op.DeepCopy(), cop.DeepCopy()}
	}
	before := inputs()
	first, copErrs := CompileCluster(cop)
	second, opErrs := Compile(op)
	policies := []*Policy{first, second}
	variants := Render(obj, clusters, policies...)
	checkGrouping(t, obj, clusters, policies, variants)
	for _, v := range variants {
		checkVariant(t, obj, policies, v)
		var invalid *RuleError
		if errors.As(v.Err, &invalid) && len(copErrs)+len(opErrs) == 0 && strings.Contains(invalid.Err.Error(), "spec.overrideRules") {
			t.Errorf("no rule was reported as invalid, but %v", v.Err)
		}
	}
	if diff := cmp.Diff(before, inputs()); diff != "" {
		t.Errorf("an input changed: -before, +after:\n%s", diff)
	}
}

// checkGrouping verifies that every cluster is in exactly one variant, and that rendering for that cluster alone gives
// the same result.
func checkGrouping(t *testing.T, obj *unstructured.Unstructured, clusters []match.Cluster, policies []*Policy, variants []Variant) {
	t.Helper()
	of := make([]int, len(clusters))
	firsts := make([]int, len(variants))
	for i, v := range variants {
		if !slices.IsSorted(v.Clusters) || len(v.Clusters) == 0 {
			t.Fatalf("clusters %v are not ascending", v.Clusters)
		}
		firsts[i] = v.Clusters[0]
		for _, c := range v.Clusters {
			of[c] = i + 1
		}
	}
	if slices.Contains(of, 0) || !slices.IsSorted(firsts) {
		t.Fatalf("variants of the clusters are %v", of)
	}
	for i, c := range clusters {
		alone := Apply(obj, c, policies...)
		together := variants[of[i]-1]
		together.Clusters = []int{0}
		equalErrors := cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
		if diff := cmp.Diff(together, alone, equalErrors); diff != "" {
			t.Fatalf("%s: -together, +alone:\n%s", c.Name, diff)
		}
	}
}

// checkVariant verifies that the variant has either an object or an error. The object must be JSON, have the same
// identity, and equal the template with the changes of the variant.
func checkVariant(t *testing.T, obj *unstructured.Unstructured, policies []*Policy, v Variant) {
	t.Helper()
	if (v.Object == nil) != (v.Err != nil) {
		t.Fatalf("object %v and error %v", v.Object, v.Err)
	}
	if !slices.IsSorted(v.Policies) || slices.ContainsFunc(v.Policies, func(i int) bool { return i >= len(policies) }) {
		t.Fatalf("policies %v", v.Policies)
	}
	if v.Err != nil {
		var failure *RuleError
		if !errors.As(v.Err, &failure) || failure.Policy.Kind == "" || failure.Err == nil || strings.Contains(v.Err.Error(), "\n") {
			t.Fatalf("error %#v", v.Err)
		}
		return
	}
	_ = runtime.DeepCopyJSON(v.Object.Object) // Panics if the value is not JSON.
	if was, is := identity(obj.Object), identity(v.Object.Object); was != is {
		t.Errorf("%s became %s", was, is)
	}
	for i, c := range v.Changes {
		if c.By != local.ByHub && !slices.ContainsFunc(v.Policies, func(p int) bool { return policies[p].Ref == c.By.Policy }) {
			t.Errorf("change %d is by %v", i, c.By)
		}
		if c.By != nil && c.By.Policy.Kind == corev1alpha1.KindOverridePolicy && strings.HasPrefix(c.Path, "/metadata/finalizers") {
			t.Errorf("change %d is to finalizers, by %v", i, c.By)
		}
		if slices.ContainsFunc(c.Shadows, func(j int) bool { return j >= i }) || !slices.IsSorted(c.Shadows) {
			t.Errorf("change %d: invalid Shadows %v", i, c.Shadows)
		}
		if c.Op == tree.OpReplace && tree.Equal(c.Before, c.After) {
			t.Errorf("change %d changes nothing: %+v", i, c)
		}
	}
	want := replay(t, Template(obj).Object, v.Changes)
	if diff := cmp.Diff(want, dropEmpty(runtime.DeepCopyJSON(v.Object.Object)), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the changes do not result in the object: -want, +got:\n%s", diff)
	}
}

func identity(obj map[string]any) string {
	version, _ := obj["apiVersion"].(string)
	gv, _ := schema.ParseGroupVersion(version)
	metadata, _ := obj["metadata"].(map[string]any)
	return compact([]any{gv.Group, obj["kind"], metadata["name"], metadata["namespace"], metadata["generateName"]})
}

// replay applies the changes by the rules of RFC 6902.
func replay(t *testing.T, template map[string]any, changes []tree.Change) map[string]any {
	t.Helper()
	doc := tree.Edit(template)
	for _, place := range []string{"/metadata", "/metadata/labels", "/metadata/annotations", "/metadata/finalizers"} {
		p := tree.MustParse(place)
		if _, err := doc.Lookup(p); !errors.Is(err, tree.ErrNotFound) {
			continue
		}
		var empty any = map[string]any{}
		if place == "/metadata/finalizers" {
			empty = []any{}
		}
		if _, err := doc.Add(p, empty); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range changes {
		p, err := tree.Parse(c.Path)
		if err != nil {
			t.Fatal(err)
		}
		switch c.Op {
		case tree.OpAdd:
			_, err = doc.Add(p, c.After)
		case tree.OpRemove:
			_, err = doc.Remove(p)
		case tree.OpReplace:
			_, err = doc.Replace(p, c.After)
		}
		if err != nil {
			t.Fatalf("%s: %v", describe(&c), err)
		}
	}
	return dropEmpty(runtime.DeepCopyJSON(doc.Root()))
}

// dropEmpty removes the empty members that a rendering omits.
func dropEmpty(obj map[string]any) map[string]any {
	dropEmptyMembers(obj, "metadata")
	if metadata, ok := obj["metadata"].(map[string]any); ok {
		dropEmptyMembers(metadata, "labels", "annotations", "finalizers")
		dropEmptyMembers(obj, "metadata")
	}
	dropEmptyLists(obj)
	return obj
}

func dropEmptyMembers(m map[string]any, keys ...string) {
	for _, key := range keys {
		if tree.Equal(m[key], map[string]any{}) || tree.Equal(m[key], []any{}) {
			delete(m, key)
		}
	}
}

func dropEmptyLists(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range []string{"command", "args", "env"} {
			if tree.Equal(v[key], []any{}) {
				delete(v, key)
			}
		}
		for _, inner := range v {
			dropEmptyLists(inner)
		}
	case []any:
		for _, inner := range v {
			dropEmptyLists(inner)
		}
	}
}

// objects have kinds with and without a pod template. Some are broken.
var objects = []string{
	`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: default, uid: u, labels: {a: b, kubeadmiral.io/x: y}, annotations: {img: "a.b/c:1"}},
	  spec: {replicas: 3, template: {spec: {initContainers: [{name: init, image: "i:1", args: []}],
	  containers: [{name: web, image: "r.io/web:1", args: [x, y, x], env: [{name: A, value: "1"}, {name: A}]}, {name: side, image: side}]}}}}`,
	`{apiVersion: v1, kind: Pod, metadata: {name: p, finalizers: [f]}, spec: {containers: [{name: web, image: "web@sha256:aaaaf56b44807c64d294e6c8059b479f35350b454492398225034174808d1726", command: [c]}]}}`,
	`{apiVersion: batch/v1, kind: CronJob, metadata: {name: c}, spec: {jobTemplate: {spec: {template: {spec: {containers: []}}}}}}`,
	`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: default}, data: {image: "x:1"}}`,
	`{apiVersion: apps/v1, kind: Deployment, metadata: {labels: [], annotations: "x"}, spec: {template: {spec: {containers: {name: web}}}}}`,
	`{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {initContainers: null, containers: [web, null, {name: web, args: web}]}}}}`,
	`{apiVersion: apps/v1, kind: DaemonSet, metadata: [], spec: []}`,
	`{apiVersion: a/b/c, kind: Pod, metadata: null, spec: {containers: [{name: web}]}}`,
	`{}`,
	`null`,
}

// choices turns the bytes of a fuzzer into decisions.
type choices struct{ rest []byte }

// below returns a number below n, and 0 when no bytes are left.
func (c *choices) below(n int) int {
	if len(c.rest) == 0 {
		return 0
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return int(b) % n
}

func (c *choices) word(words string) string {
	all := strings.Fields(words)
	w := all[c.below(len(all))]
	return strings.TrimPrefix(w, "EMPTY")
}

// seldom returns one of the words, or in 1 of 16 cases one of the others.
func (c *choices) seldom(words, others string) string {
	if c.below(16) == 15 {
		return c.word(others)
	}
	return c.word(words)
}

func (c *choices) operator(words string) corev1alpha1.Operator {
	return corev1alpha1.Operator(c.seldom(words, "addIfAbsent append other"))
}

func (c *choices) spec() corev1alpha1.OverridePolicySpec {
	var spec corev1alpha1.OverridePolicySpec
	for range c.below(4) {
		spec.OverrideRules = append(spec.OverrideRules, corev1alpha1.OverrideRule{TargetClusters: c.target(), Overriders: c.overriders()})
	}
	return spec
}

func (c *choices) target() *corev1alpha1.TargetClusters {
	requirement := corev1alpha1.ClusterSelectorRequirement{
		Key:      c.seldom("region nodes metadata.name", "bad!"),
		Operator: corev1alpha1.ClusterSelectorOperator(c.seldom("In NotIn", "Exists DoesNotExist Gt Lt Other")),
		Values:   strings.Fields(c.seldom("a 10 c1", "EMPTY")),
	}
	switch c.below(8) {
	case 0:
		return &corev1alpha1.TargetClusters{Clusters: []string{c.word("c1 c2 c3"), c.word("c1 c4")}}
	case 1:
		return &corev1alpha1.TargetClusters{ClusterSelector: map[string]string{"region": c.word("a b c")}}
	case 2:
		return &corev1alpha1.TargetClusters{ClusterAffinity: []corev1alpha1.ClusterSelectorTerm{{}, {MatchExpressions: []corev1alpha1.ClusterSelectorRequirement{requirement}}}}
	case 3:
		return &corev1alpha1.TargetClusters{ClusterAffinity: []corev1alpha1.ClusterSelectorTerm{{MatchFields: []corev1alpha1.ClusterSelectorRequirement{requirement}}}}
	default:
		return nil
	}
}

func (c *choices) overriders() *corev1alpha1.Overriders {
	o := &corev1alpha1.Overriders{}
	for range c.below(5) {
		switch c.below(9) {
		case 0:
			o.Image = append(o.Image, c.image())
		case 1:
			o.Command = append(o.Command, c.entrypoint())
		case 2:
			o.Args = append(o.Args, c.entrypoint())
		case 3:
			o.Envs = append(o.Envs, corev1alpha1.EnvOverrider{ContainerName: c.seldom("web side init", "ghost EMPTY"), Operator: c.operator("EMPTY overwrite delete addIfAbsent"), Value: c.variables()})
		case 4:
			o.Annotations = append(o.Annotations, c.stringMap())
		case 5:
			o.Labels = append(o.Labels, c.stringMap())
		case 6:
			lists := reflect.ValueOf(o).Elem()
			list := lists.Field(c.below(lists.NumField()))
			item := reflect.New(list.Type().Elem()).Elem()
			c.fill(item)
			list.Set(reflect.Append(list, item))
		default:
			o.JSONPatch = append(o.JSONPatch, c.patch())
		}
	}
	return o
}

// fill sets the fields of an item of any overrider to words, even of an overrider that is new to this file.
func (c *choices) fill(v reflect.Value) {
	const words = "EMPTY web side add replace delete overwrite a b 1 /spec/replicas /data/image x/y"
	switch v.Kind() { //nolint:exhaustive // Items have no other kinds.
	case reflect.String:
		v.SetString(c.seldom(words, "bad! ~2"))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				c.fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), c.below(3), 2))
		for i := range v.Len() {
			c.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range c.below(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			c.fill(key)
			c.fill(value)
			v.SetMapIndex(key, value)
		}
	}
}

func (c *choices) image() corev1alpha1.ImageOverrider {
	o := corev1alpha1.ImageOverrider{ContainerNames: strings.Fields(c.word("EMPTY web side ghost"))}
	switch c.below(8) {
	case 0:
		o.ImagePath = c.path()
	case 1:
		o.ImagePath = c.word("/data/image /metadata/annotations/img /spec/template/spec/containers/0/image")
	}
	for range 1 + c.below(2) {
		component := c.word("Registry Repository Tag Digest")
		values := map[string]string{"Registry": "r.io localhost:5000", "Repository": "team/app x a.b/c", "Tag": "v2 v3", "Digest": "sha256:aaaaf56b44807c64d294e6c8059b479f35350b454492398225034174808d1726"}
		o.Operations = append(o.Operations, corev1alpha1.ImageOperation{
			ImageComponent: corev1alpha1.ImageComponent(c.seldom(component, "Other")),
			Operator:       c.operator("EMPTY overwrite delete"),
			Value:          c.seldom(values[component], "EMPTY 1@0 team/app"),
		})
	}
	return o
}

func (c *choices) entrypoint() corev1alpha1.EntrypointOverrider {
	return corev1alpha1.EntrypointOverrider{ContainerName: c.seldom("web side init", "ghost EMPTY"), Operator: c.operator("EMPTY overwrite append delete"), Value: strings.Fields(c.word("x y z") + " " + c.seldom("x y", "EMPTY"))}
}

func (c *choices) variables() []corev1.EnvVar {
	var out []corev1.EnvVar
	for range c.below(3) {
		out = append(out, corev1.EnvVar{Name: c.seldom("A B C", "EMPTY"), Value: c.word("EMPTY 1 2")})
	}
	return out
}

func (c *choices) stringMap() corev1alpha1.StringMapOverrider {
	o := corev1alpha1.StringMapOverrider{Operator: c.operator("EMPTY overwrite delete"), Value: map[string]string{}}
	for range c.below(3) {
		o.Value[c.seldom("a b img x/y", "kubeadmiral.io/managed refract.dev/source bad!")] = c.seldom("EMPTY b c", "bad!")
	}
	return o
}

func (c *choices) path() string {
	return c.seldom(`/spec/replicas /spec/new /spec/template/spec/containers /spec/template/spec/containers/- /spec/template/spec/containers/0
		/spec/template/spec/containers/-1 /spec/template/spec/containers/0/args /spec/template/spec/containers/0/args/- /spec/template/spec/containers/0/args/0
		/spec/template/spec/containers/-1/image /spec/template/spec/containers/0/env /spec/template/spec/containers/0/name /spec/template/spec/initContainers
		/spec/template/spec /spec/template /spec /metadata/labels /metadata/labels/a /metadata/annotations /metadata/annotations/img
		/metadata/finalizers /metadata/finalizers/- /metadata/finalizers/0 /data/image /new /-`,
		`/metadata /metadata/name /metadata/uid /metadata/labels/a/b /metadata/annotations/refract.dev~1source /kind /apiVersion /apiVersion/x EMPTY x /a~2 /`)
}

func (c *choices) patch() corev1alpha1.JSONPatchOverrider {
	o := corev1alpha1.JSONPatchOverrider{Operator: c.operator("add remove replace EMPTY"), Path: c.path()}
	raw := c.seldom(`1 "s" {} [] {"name":"web","image":"x:1"} ["a"] {"a":"b"} [{"name":"web"},{"name":"side","args":[]}] "reg.io/x:1" true`, `null EMPTY { "apps/v1beta1"`)
	switch {
	case strings.HasPrefix(o.Path, "/metadata/labels/"), strings.HasPrefix(o.Path, "/metadata/annotations/"), strings.HasPrefix(o.Path, "/metadata/finalizers/"):
		raw = c.seldom(`"s" "x:1"`, `1 {}`)
	case o.Path == "/metadata/finalizers":
		raw = c.seldom(`[] ["a"]`, `{} [1]`)
	case strings.HasPrefix(o.Path, "/metadata"):
		raw = c.seldom(`{} {"a":"b"}`, `[] {"a":1}`)
	case o.Path == "/apiVersion":
		raw = c.seldom(`"apps/v1beta1" "v2"`, `1`)
	}
	if raw != "" {
		o.Value = &apiextensionsv1.JSON{Raw: []byte(raw)}
	}
	return o
}
