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

// field returns the name of the list in a policy, which is also its name in a container or pod.
func (k itemKind) field() string { return [...]string{"env", "envFrom", "volumes", "volumeMounts"}[k] }

// goType returns the Go type of the list's elements.
func (k itemKind) goType() reflect.Type {
	return [...]reflect.Type{
		reflect.TypeFor[corev1.EnvVar](), reflect.TypeFor[corev1.EnvFromSource](),
		reflect.TypeFor[corev1.Volume](), reflect.TypeFor[corev1.VolumeMount](),
	}[k]
}

// normalize returns a copy of an element of such a list in its normal form. An item of a policy and the item that the
// API server makes of it in a pod have the same normal form. In the normal form, defaults are filled in, redundant
// members are removed, and quantities and paths are canonical. Members that are unknown to this version of the API
// remain unchanged.
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
	default: // An element of envFrom has no defaults.
	}
	return object
}

// equal reports whether two normalized items have the same meaning.
func equal(a, b any) bool { return tree.Equal(a, b) }

// reduceStruct returns a copy of object, a value of the given type, without its redundant members. These are null, zero
// values of non-pointer fields (the API server drops them, too), and false (every boolean of an item defaults to
// false). Other zero values of pointer fields remain: a defaultMode of 0 is a mode, and a storageClassName of "" is a
// class.
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

// fieldOf returns the type of the field with this JSON name. It also searches embedded structs.
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

// reduceField returns a copy of the value of a field, and whether to keep it.
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

// isZero reports whether a value is the zero value of a non-pointer field.
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

// reduce returns a reduced copy of a value of this type.
func reduce(value any, of reflect.Type) any {
	if of == reflect.TypeFor[resource.Quantity]() {
		return canonical(value, false)
	}
	if reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return value // A time, a number or a text has only one form.
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
	return maps.Clone(object) // In a map of strings, an empty string is a value like any other.
}

// canonical returns a quantity in canonical form, and any other value unchanged. If rounded is true, it rounds up to
// thousandths, as SetDefaults_ResourceList in
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/apis/core/v1/defaults.go does for the resources of a
// container. If rounded is false, zero becomes the empty string.
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

// The functions below fill in the defaults that the API server gives to the items of a pod, in SetObjectDefaults_Pod
// and the functions that it calls:
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/apis/core/v1/zz_generated.defaults.go and defaults.go in
// the same directory. Some fields have a default only in the documentation of the API, and the API server does not fill
// it in. Such a field is removed if its value is the default.

// fallback sets a member to its default if it has no value.
func fallback(object map[string]any, key string, value any) {
	if object != nil && object[key] == nil {
		object[key] = value
	}
}

// absent removes a member whose value is its documented default.
func absent(object map[string]any, key string, value any) {
	if object[key] == value {
		delete(object, key)
	}
}

// member returns a member that is an object; nil for any other member. Reading from nil is safe.
func member(object map[string]any, key string) map[string]any {
	inner, _ := object[key].(map[string]any)
	return inner
}

// elements returns the objects in a member that is an array.
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

// defaultFieldRef follows SetDefaults_ObjectFieldSelector.
func defaultFieldRef(from map[string]any) {
	if ref := member(from, "fieldRef"); ref != nil && ref["apiVersion"] == nil {
		ref["apiVersion"] = "v1"
	}
}

// defaultDivisor follows ResourceFieldSelector: "divisor ... defaults to 1".
func defaultDivisor(from map[string]any) { absent(member(from, "resourceFieldRef"), "divisor", "1") }

// defaultMount follows VolumeMount: "When not set, MountPropagationNone is used" and "If this field is not specified,
// it is treated as an equivalent of Disabled".
func defaultMount(mount map[string]any) {
	absent(mount, "mountPropagation", string(corev1.MountPropagationNone))
	absent(mount, "recursiveReadOnly", string(corev1.RecursiveReadOnlyDisabled))
	if at, ok := mount["mountPath"].(string); ok {
		mount["mountPath"] = cleanMount(at)
	}
}

// defaultMode is the value of SecretVolumeSourceDefaultMode and of the corresponding constants of other volumes.
const defaultMode = int64(0o644)

// defaultVolume fills in the defaults of all types of volumes that have any.
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

// defaultDownwardAPI fills in the defaults of the files of a downward API volume. A source of a projected volume has no
// mode: mode is nil.
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

// defaultImage follows SetDefaults_Volume: an image with the tag latest, or with neither tag nor digest, is always
// pulled.
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

// decode returns the value of JSON that is known to be valid.
func decode(raw []byte) any {
	var value any
	if err := utiljson.Unmarshal(raw, &value); err != nil {
		return nil
	}
	return value
}
