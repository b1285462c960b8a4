package inject

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"refract.dev/tree"
)

// itemKind is one of the four lists of a policy.
type itemKind int

// The lists of a policy.
const (
	envItem itemKind = iota
	envFromItem
	volumeItem
	mountItem
)

// field is the name of the list in a policy; in a container and in a pod, too.
func (k itemKind) field() string { return [...]string{"env", "envFrom", "volumes", "volumeMounts"}[k] }

// goType is the type of the list's elements.
func (k itemKind) goType() reflect.Type {
	return [...]reflect.Type{
		reflect.TypeFor[corev1.EnvVar](), reflect.TypeFor[corev1.EnvFromSource](),
		reflect.TypeFor[corev1.Volume](), reflect.TypeFor[corev1.VolumeMount](),
	}[k]
}

// normalize returns a copy of an element of such a list in a form that is the same
// for all ways to write the same thing: what a policy says, and what the API server
// made of it in a pod. It has the defaults filled in, members left out that mean the
// same as none, quantities and paths in one spelling. Members that our version of the
// API does not know stay as they are.
func normalize(of itemKind, value any) any {
	object, ok := value.(map[string]any)
	if !ok {
		return value
	}
	object = reduceStruct(object, of.goType())
	switch of {
	case envItem:
		defaultEnv(object)
	case volumeItem:
		defaultVolume(object)
	case mountItem:
		defaultMount(object)
	default: // A source of variables has none.
	}
	return object
}

// equal reports whether two normalized items mean the same.
func equal(a, b any) bool { return tree.Equal(a, b) }

// reduceStruct returns a copy of object, which is of this type, without the members
// that say the same as if they were not there: null; zero values of fields that are no
// pointers, for the API server loses them too; and false, which is what every boolean
// of an item is without a value. Nil and zero are not the same for other pointers:
// a defaultMode of 0 is a mode, a storageClassName of "" is a class.
//
// Source: k8s.io/apimachinery/pkg/api/equality, and the types of k8s.io/api/core/v1.
func reduceStruct(object map[string]any, of reflect.Type) map[string]any {
	out := make(map[string]any, len(object))
	for key, value := range object {
		field, known := fieldOf(of, key)
		if !known {
			out[key] = value
			continue
		}
		if reduced, stays := reduceField(value, field); stays {
			out[key] = reduced
		}
	}
	return out
}

// fieldOf returns the type of the field that JSON calls by this name, also that of an
// embedded struct.
func fieldOf(of reflect.Type, name string) (reflect.Type, bool) {
	for field := range of.Fields() {
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case tag == name && name != "":
			return field.Type, true
		case tag == "" && field.Anonymous:
			if inner, ok := fieldOf(field.Type, name); ok {
				return inner, true
			}
		}
	}
	return nil, false
}

// reduceField returns the copy of the value of a field, and whether it says anything.
func reduceField(value any, of reflect.Type) (any, bool) {
	if value == nil || value == false {
		return nil, false
	}
	if of.Kind() == reflect.Pointer {
		return reduce(value, of.Elem()), true
	}
	value = reduce(value, of)
	return value, !isZero(value)
}

// isZero reports whether a value is what a field that is no pointer holds without one.
func isZero(value any) bool {
	switch v := value.(type) {
	case string:
		return v == ""
	case int64:
		return v == 0
	case float64:
		return v == 0
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	default:
		return false
	}
}

// reduce returns a copy of a value of this type.
func reduce(value any, of reflect.Type) any {
	if of == reflect.TypeFor[resource.Quantity]() {
		return canonical(value, false)
	}
	if reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return value // A time, or a number or text: it has one spelling.
	}
	object, isObject := value.(map[string]any)
	array, isArray := value.([]any)
	switch {
	case isObject && of.Kind() == reflect.Struct:
		return reduceStruct(object, of)
	case isObject && of.Kind() == reflect.Map:
		return reduceMap(object, of)
	case isArray && of.Kind() == reflect.Slice:
		out := make([]any, len(array))
		for i := range array {
			out[i] = reduce(array[i], of.Elem())
		}
		return out
	default:
		return value
	}
}

func reduceMap(object map[string]any, of reflect.Type) map[string]any {
	if of == reflect.TypeFor[corev1.ResourceList]() {
		out := make(map[string]any, len(object))
		for name, quantity := range object {
			out[name] = canonical(quantity, true)
		}
		return out
	}
	return maps.Clone(object) // Of strings: an empty one is a value.
}

// canonical returns a quantity in the one spelling that all of its value have, and the
// empty text for zero; anything else as it is. The quantities of a list of resources
// are rounded up to thousandths, as SetDefaults_ResourceList does in
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/apis/core/v1/defaults.go
func canonical(value any, rounded bool) any {
	var text string
	switch v := value.(type) {
	case string:
		text = v
	case int64, float64:
		encoded, err := json.Marshal(v)
		if err != nil {
			return value
		}
		text = string(encoded)
	default:
		return value
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return value
	}
	if rounded {
		q.RoundUp(resource.Milli)
	}
	if q.IsZero() && !rounded {
		return ""
	}
	text = q.AsDec().String()
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// The defaults below are those that the API server gives to the items of a pod, in
// SetObjectDefaults_Pod and what it calls:
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/apis/core/v1/zz_generated.defaults.go
// and defaults.go beside it. Some fields have no default there, but the text of the
// API says what it means that they are absent; they are left out then.

// fallback gives a member a value if it has none.
func fallback(object map[string]any, key string, value any) {
	if object != nil && object[key] == nil {
		object[key] = value
	}
}

// absent removes a member that says what is true without it.
func absent(object map[string]any, key string, value any) {
	if object[key] == value {
		delete(object, key)
	}
}

// member returns a member that is an object; nil if it is not, from which one can read
// further.
func member(object map[string]any, key string) map[string]any {
	inner, _ := object[key].(map[string]any)
	return inner
}

// elements returns those of a member that is an array of objects.
func elements(object map[string]any, key string) []map[string]any {
	list, _ := object[key].([]any)
	var out []map[string]any
	for _, v := range list {
		if inner, ok := v.(map[string]any); ok {
			out = append(out, inner)
		}
	}
	return out
}

func defaultEnv(env map[string]any) {
	from := member(env, "valueFrom")
	defaultFieldRef(from)
	defaultDivisor(from)
}

// defaultFieldRef: SetDefaults_ObjectFieldSelector.
func defaultFieldRef(from map[string]any) {
	if ref := member(from, "fieldRef"); ref != nil && ref["apiVersion"] == nil {
		ref["apiVersion"] = "v1"
	}
}

// defaultDivisor: "divisor ... defaults to 1", ResourceFieldSelector.
func defaultDivisor(from map[string]any) { absent(member(from, "resourceFieldRef"), "divisor", "1") }

// defaultMount: "When not set, MountPropagationNone is used" and "If this field is not
// specified, it is treated as an equivalent of Disabled", VolumeMount.
func defaultMount(mount map[string]any) {
	absent(mount, "mountPropagation", string(corev1.MountPropagationNone))
	absent(mount, "recursiveReadOnly", string(corev1.RecursiveReadOnlyDisabled))
	if at, ok := mount["mountPath"].(string); ok {
		mount["mountPath"] = cleanMount(at)
	}
}

// defaultMode is SecretVolumeSourceDefaultMode and its like.
const defaultMode = int64(0o644)

// defaultVolume fills in the defaults of every type of volume that has any.
func defaultVolume(volume map[string]any) {
	if _, named := volume["name"]; len(volume) == 0 || len(volume) == 1 && named { // SetDefaults_Volume.
		volume["emptyDir"] = map[string]any{}
	}
	defaultImage(member(volume, "image"))
	absent(member(volume, "hostPath"), "type", "") // SetDefaults_HostPathVolumeSource.
	fallback(member(volume, "secret"), "defaultMode", defaultMode)
	fallback(member(volume, "configMap"), "defaultMode", defaultMode)
	defaultDownwardAPI(member(volume, "downwardAPI"), defaultMode)
	defaultProjected(member(volume, "projected"))
	fallback(member(volume, "iscsi"), "iscsiInterface", "default")
	rbd := member(volume, "rbd")
	fallback(rbd, "pool", "rbd")
	fallback(rbd, "user", "admin")
	fallback(rbd, "keyring", "/etc/ceph/keyring")
	azure := member(volume, "azureDisk")
	fallback(azure, "cachingMode", string(corev1.AzureDataDiskCachingReadWrite))
	fallback(azure, "fsType", "ext4")
	fallback(azure, "kind", string(corev1.AzureSharedBlobDisk))
	scale := member(volume, "scaleIO")
	fallback(scale, "storageMode", "ThinProvisioned")
	fallback(scale, "fsType", "xfs")
	template := member(member(volume, "ephemeral"), "volumeClaimTemplate")
	fallback(template, "spec", map[string]any{})
	fallback(member(template, "spec"), "volumeMode", string(corev1.PersistentVolumeFilesystem))
}

// defaultDownwardAPI fills in the files of a volume or, without a mode, of a part of
// a projected one.
func defaultDownwardAPI(source map[string]any, mode any) {
	if mode != nil {
		fallback(source, "defaultMode", mode)
	}
	for _, file := range elements(source, "items") {
		defaultFieldRef(file)
		defaultDivisor(file)
	}
}

func defaultProjected(source map[string]any) {
	fallback(source, "defaultMode", defaultMode)
	for _, part := range elements(source, "sources") {
		defaultDownwardAPI(member(part, "downwardAPI"), nil)
		const hour = int64(3600) // SetDefaults_ServiceAccountTokenProjection.
		fallback(member(part, "serviceAccountToken"), "expirationSeconds", hour)
	}
}

// defaultImage: SetDefaults_Volume pulls what is tagged latest each time, and so what
// has neither tag nor digest.
func defaultImage(image map[string]any) {
	if image == nil || image["pullPolicy"] != nil {
		return
	}
	image["pullPolicy"] = string(corev1.PullIfNotPresent)
	reference, _ := image["reference"].(string)
	name, _, digested := strings.Cut(reference, "@")
	_, tag, tagged := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], ":")
	if tag == "latest" || !tagged && !digested && reference != "" {
		image["pullPolicy"] = string(corev1.PullAlways)
	}
}

// decode returns the value of JSON that was scanned before.
func decode(raw []byte) any {
	var value any
	if err := utiljson.Unmarshal(raw, &value); err != nil {
		return nil
	}
	return value
}
