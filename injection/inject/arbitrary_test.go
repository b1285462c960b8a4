package inject

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// arbitrary generates values of any type. Most of their strings are valid.
type arbitrary struct{ *rand.Rand }

// hints are valid values, and some slightly invalid ones, for fields with these names.
var hints = map[string][]string{
	"APIVersion": {"v1", ""}, "FieldPath": {"metadata.name", "metadata.labels", "metadata.labels['a']", "spec.host"},
	"Resource": {"limits.cpu", "requests.memory", "limits.hugepages-2Mi"}, "MountPath": {"/a", "/a/", "/b", "c", "/", "/a:b", `C:\a`, "/a/../.."},
	"SubPath": {"", "", "a/b", "../a"}, "SubPathExpr": {"", "", "$(A)", "/a"}, "Path": {"a", "b", "a/b", "/a", "..a"},
	"MountPropagation": {"None", "HostToContainer", "Bidirectional"}, "RecursiveReadOnly": {"Disabled", "Enabled", "IfPossible"},
	"BindMountOptions": {"noexec", "nodev"}, "AccessModes": {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"}, "VolumeMode": {"Filesystem", "Block"},
	"IQN": {"iqn.2026-01.com.example:a", "eui.0123456789abcdef", "naa.0"}, "InitiatorName": {"iqn.2026-01.com.example:a", "x"},
	"Type": {"", "Directory", "File"}, "Kind": {"PersistentVolumeClaim", "Managed", "Shared"}, "CachingMode": {"None", "ReadOnly"},
	"DataDiskURI": {"https://a", "/subscriptions/a"}, "Registry": {"a:1", "a:1,b:2", "a"}, "SignerName": {"example.com/a", "kubernetes.io/a", "a/b"},
	"Reference": {"example.com/a", "a:latest", "a:1", "A"}, "KeyType": {"RSA3072", "ED25519"}, "PullPolicy": {"Always", "Never", ""}, "Operator": {"In", "NotIn", "Exists", "DoesNotExist"},
	"Prefix": {"", "P_", "a b", "="}, "Value": {"", "", "x", "\x00"}, "EnvPosition": {"", "Append", "Prepend"}, "OnConflict": {"", "Skip", "Reject"},
	"Mode": {"", "Enforce", "Audit"}, "Strategy": {"", "Rolling", "None"}, "Medium": {"", "Memory"}, "Service": {"", "db", "1db"},
	"ReadOnly": {}, "Include": {"a", "*", "a*"}, "Exclude": {"a", "*-a"}, "StorageMedium": {""}, "CredentialBundlePath": {"", "c"}, "KeyPath": {"", "k"},
	"CertificateChainPath": {"", "l"}, "Directory": {"", "a", ".."}, "DatasetName": {"", "a"}, "DatasetUUID": {"", "a"}, "VolumeNamespace": {"", "a"},
	"Namespace": {"", "a"}, "Tenant": {""},
}

var anyTexts = []string{"a", "b", "a", "b", "a-b", "a.b", "", "A", "=", "/", ".."}

// policy returns a policy with some items.
func (a arbitrary) policy() *refractv1beta1.ServiceInjectionPolicy {
	p := &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "myns", Name: "example"}}
	a.fill(reflect.ValueOf(&p.Spec).Elem(), "")
	if a.IntN(10) > 0 {
		p.Spec.Selector = &metav1.LabelSelector{}
		p.Spec.Service, p.Spec.Rollout, p.Spec.Containers = "db", nil, nil
	}
	if a.IntN(2) == 0 {
		p.Status.FromService = &refractv1beta1.InjectedItems{}
		a.fill(reflect.ValueOf(p.Status.FromService).Elem(), "")
	}
	return p
}

func (a arbitrary) fill(v reflect.Value, name string) {
	switch v.Type() {
	case reflect.TypeFor[resource.Quantity]():
		texts := []string{"0", "1", "1m", "1Gi", "1Mi", "-1"}
		v.Set(reflect.ValueOf(resource.MustParse(texts[a.IntN(len(texts))])))
		return
	case reflect.TypeFor[corev1.VolumeSource]():
		a.oneOf(v, 20)
		return
	case reflect.TypeFor[corev1.VolumeProjection](), reflect.TypeFor[corev1.EnvVarSource]():
		a.oneOf(v, 10)
		return
	case reflect.TypeFor[metav1.ObjectMeta]():
		a.fill(v.FieldByName("Labels"), "")
		if a.IntN(20) == 0 {
			v.FieldByName("Name").SetString("a")
		}
		return
	case reflect.TypeFor[corev1.ResourceList]():
		storage := reflect.New(reflect.TypeFor[resource.Quantity]()).Elem()
		a.fill(storage, "")
		v.Set(reflect.ValueOf(corev1.ResourceList{corev1.ResourceStorage: storage.Interface().(resource.Quantity)}))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				a.fill(v.Field(i), v.Type().Field(i).Name)
			}
		}
	case reflect.Pointer:
		if a.IntN(3) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			a.fill(v.Elem(), name)
		}
	case reflect.Slice:
		n := a.IntN(3)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			a.fill(v.Index(i), name)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		if a.IntN(3) == 0 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			a.fill(key, "")
			a.fill(value, "")
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		texts := hints[name]
		if len(texts) == 0 || a.IntN(30) == 0 {
			texts = anyTexts
		}
		v.SetString(texts[a.IntN(len(texts))])
	case reflect.Int32, reflect.Int64:
		numbers := []int64{0, 1, 1, 255, 256, 420, 511, 3600, 3600, -1, 1 << 20}
		v.SetInt(numbers[a.IntN(len(numbers))])
	case reflect.Bool:
		v.SetBool(a.IntN(2) == 0)
	default: // No field of a policy has another kind.
	}
}

// oneOf sets one field of a struct of pointers. With the probability 1/seldom it sets two fields or none instead.
func (a arbitrary) oneOf(v reflect.Value, seldom int) {
	n := 1
	if a.IntN(seldom) == 0 {
		n = 2 * a.IntN(2)
	}
	for range n {
		i := a.IntN(v.NumField())
		v.Field(i).Set(reflect.New(v.Field(i).Type().Elem()))
		a.fill(v.Field(i).Elem(), v.Type().Field(i).Name)
	}
}

// TestCompileArbitrary: every object results in a policy or in errors at fields, and remains unmodified.
func TestCompileArbitrary(t *testing.T) {
	a := arbitrary{rand.New(rand.NewPCG(1, 2))}
	valid := 0
	const all = 5000
	for range all {
		p := a.policy()
		before := p.DeepCopy()
		policy, errs := Compile(p)
		if diff := cmp.Diff(before, p); diff != "" {
			t.Fatalf("the object was modified: -before, +after:\n%s", diff)
		}
		for _, err := range errs {
			if err.Field == "" || err.Detail == "" && err.Type != "FieldValueDuplicate" {
				t.Fatalf("says neither where nor what: %v", err)
			}
		}
		if (policy == nil) != (len(errs) > 0) {
			t.Fatalf("a policy or errors: got %v and %v", policy, errs)
		}
		if policy == nil {
			continue
		}
		valid++
		if effective := Effective(p); len(policy.env) != len(effective.Env) || len(policy.volumes) != len(effective.Volumes) {
			t.Fatalf("want %v, got %d variables and %d volumes", effective, len(policy.env), len(policy.volumes))
		}
		for _, ref := range policy.References() {
			if ref.Name == "" || ref.Path == "" || ref.Optional && len(ref.Keys) > 0 {
				t.Fatalf("reference %+v", ref)
			}
		}
	}
	if valid < all/100 || valid > all*9/10 {
		t.Errorf("objects must be of both sorts; %d of %d are valid", valid, all)
	}
}
