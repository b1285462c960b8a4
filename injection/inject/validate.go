package inject

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// The functions of this file validate items as an API server validates the items of a pod after it has filled in
// defaults. So a missing field is valid if it has a default.

// validate returns the errors of the policy's items.
func (c *contents) validate() field.ErrorList {
	var errs field.ErrorList
	enough := func() bool { return len(errs) >= mostMistakes }
	volumes := make(map[string]*corev1.Volume, len(c.volumes))
	for _, v := range c.volumes {
		volumes[v.value.Name] = v.value
	}
	for _, v := range c.env {
		if enough() {
			return errs
		}
		errs = append(errs, validateEnvVar(v.value, v.at)...)
		errs = append(errs, validateFileVolume(v.value, volumes, v.at)...)
	}
	for _, v := range c.envFrom {
		if enough() {
			return errs
		}
		errs = append(errs, validateEnvFrom(v.value, v.at)...)
	}
	for _, v := range c.volumes {
		if enough() {
			return errs
		}
		errs = append(errs, validateVolume(v.value, v.at)...)
	}
	for _, v := range c.mounts {
		if enough() {
			return errs
		}
		errs = append(errs, validateMount(v.value, volumes[v.value.Name], v.at)...)
	}
	errs = append(errs, duplicates(c.env, "name", func(v *refractv1beta1.EnvVar) string { return v.Name })...)
	errs = append(errs, duplicates(c.envFrom, "", envFromID)...)
	errs = append(errs, duplicates(c.volumes, "name", func(v *corev1.Volume) string { return v.Name })...)
	errs = append(errs, duplicates(c.mounts, "mountPath", MountID)...)
	return errs
}

// duplicates returns an error for each item with the same identity as an earlier item. name is the field that has the
// identity; if name is empty, the error refers to the whole item.
func duplicates[T any](list []placed[T], name string, id func(*T) string) field.ErrorList {
	var errs field.ErrorList
	first := make(map[string]*field.Path, len(list))
	for _, v := range list {
		key := id(v.value)
		if before, twice := first[key]; twice {
			at := v.at
			if name != "" {
				at = at.Child(name)
			}
			err := field.Duplicate(at, key)
			err.Detail = fmt.Sprintf("is already at %s: remove one of them", before)
			errs = append(errs, err)
			continue
		}
		first[key] = v.at
	}
	return errs
}

// invalid returns an error for each message about value.
func invalid(at *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(at, value, m))
	}
	return errs
}

// validateName checks the name of an object that the item requires.
func validateName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "must name an object")}
	}
	return invalid(at, name, validation.IsDNS1123Subdomain(name))
}

// present is a field that must not be empty.
type present struct{ name, value string }

func required(at *field.Path, fields ...present) field.ErrorList {
	var errs field.ErrorList
	for _, f := range fields {
		if f.value == "" {
			errs = append(errs, field.Required(at.Child(f.name), "must not be empty"))
		}
	}
	return errs
}

// oneOf checks that the value is nil or one of the supported values.
func oneOf[T ~string](value *T, at *field.Path, supported ...T) field.ErrorList {
	if value == nil || slices.Contains(supported, *value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, *value, supported)}
}

func inRange[T int32 | int64](value *T, at *field.Path, least, most T) field.ErrorList {
	if value == nil || *value >= least && *value <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(at, *value, fmt.Sprintf("must be between %d and %d", least, most))}
}

// validateGlobs checks names of containers; * in a name stands for any characters.
func validateGlobs(patterns []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, pattern := range patterns {
		literal := strings.ReplaceAll(pattern, "*", "")
		switch {
		case pattern == "":
			errs = append(errs, field.Required(at.Index(i), "must be the name of a container, in which * may stand for any characters"))
		case literal == "":
			continue
		case !globCharacters.MatchString(literal) || len(literal) > validation.DNS1123LabelMaxLength ||
			strings.HasPrefix(pattern, "-") || strings.HasSuffix(pattern, "-"):
			errs = append(errs, field.Invalid(at.Index(i), pattern, "no container can have this name: "+
				"want lower case letters, digits and -, and * for any of them"))
		}
	}
	return errs
}

var globCharacters = regexp.MustCompile(`^[-a-z0-9]+$`)

// validateVariable returns the errors of a variable with a value.
func validateVariable(name, value string) []string {
	msgs := validation.IsRelaxedEnvVarName(name)
	if strings.ContainsRune(value, 0) || strings.ContainsRune(name, 0) {
		msgs = append(msgs, "a process cannot be given a NUL character")
	}
	return msgs
}

func validateEnvVar(v *refractv1beta1.EnvVar, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if v.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "must name the variable"))
	} else {
		errs = append(errs, invalid(at.Child("name"), v.Name, validation.IsRelaxedEnvVarName(v.Name))...)
	}
	if strings.ContainsRune(string(v.Value), 0) {
		errs = append(errs, field.Invalid(at.Child("value"), string(v.Value), "a process cannot be given a NUL character"))
	}
	if v.ValueFrom == nil {
		return errs
	}
	at = at.Child("valueFrom")
	sources, from := 0, v.ValueFrom
	if from.FieldRef != nil {
		sources++
		errs = append(errs, validateFieldRef(from.FieldRef, envFields, at.Child("fieldRef"))...)
	}
	if from.ResourceFieldRef != nil {
		sources++
		errs = append(errs, validateResourceRef(from.ResourceFieldRef, at.Child("resourceFieldRef"))...)
	}
	if from.ConfigMapKeyRef != nil {
		sources++
		errs = append(errs, validateKeyRef(from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key, at.Child("configMapKeyRef"))...)
	}
	if from.SecretKeyRef != nil {
		sources++
		errs = append(errs, validateKeyRef(from.SecretKeyRef.Name, from.SecretKeyRef.Key, at.Child("secretKeyRef"))...)
	}
	if from.FileKeyRef != nil {
		sources++
		errs = append(errs, validateFileRef(from.FileKeyRef, at.Child("fileKeyRef"))...)
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Required(at, "must have one of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef and fileKeyRef"))
	case sources > 1:
		errs = append(errs, field.Forbidden(at, "may not have more than one source: keep one of them"))
	case v.Value != "":
		errs = append(errs, field.Forbidden(at, "value and valueFrom exclude each other: keep one of them"))
	}
	return errs
}

func validateKeyRef(name, key string, at *field.Path) field.ErrorList {
	errs := validateName(name, at.Child("name"))
	if key == "" {
		return append(errs, field.Required(at.Child("key"), "must name a key of the object"))
	}
	return append(errs, invalid(at.Child("key"), key, validation.IsConfigMapKey(key))...)
}

func validateFileRef(ref *corev1.FileKeySelector, at *field.Path) field.ErrorList {
	errs := required(at, present{"key", ref.Key}, present{"volumeName", ref.VolumeName}, present{"path", ref.Path})
	if ref.Key != "" {
		errs = append(errs, invalid(at.Child("key"), ref.Key, validation.IsRelaxedEnvVarName(ref.Key))...)
	}
	if ref.VolumeName != "" {
		errs = append(errs, invalid(at.Child("volumeName"), ref.VolumeName, validation.IsDNS1123Label(ref.VolumeName))...)
	}
	return append(errs, noBacksteps(ref.Path, at.Child("path"))...)
}

// validateFileVolume checks the volume of a variable that is read from a file: an API server rejects the pod if the
// volume is missing or is not an emptyDir. The policy itself must have the volume, because the volumes of the pod are
// not known here.
func validateFileVolume(v *refractv1beta1.EnvVar, volumes map[string]*corev1.Volume, at *field.Path) field.ErrorList {
	if v.ValueFrom == nil || v.ValueFrom.FileKeyRef == nil {
		return nil
	}
	name := v.ValueFrom.FileKeyRef.VolumeName
	if volume := volumes[name]; volume != nil && volume.EmptyDir != nil {
		return nil
	}
	at = at.Child("valueFrom", "fileKeyRef", "volumeName")
	return field.ErrorList{field.Invalid(at, name, "must name an emptyDir among the volumes of the policy")}
}

// Fields of a pod that can be the value of a variable or of a file. Both lists also include metadata.labels['KEY'] and
// metadata.annotations['KEY'].
var (
	envFields = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	fileFields = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
)

func validateFieldRef(ref *corev1.ObjectFieldSelector, supported []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		errs = append(errs, field.NotSupported(at.Child("apiVersion"), ref.APIVersion, []string{"v1"}))
	}
	at = at.Child("fieldPath")
	if ref.FieldPath == "" {
		return append(errs, field.Required(at, "must name a field of the pod"))
	}
	list, rest, keyed := strings.Cut(ref.FieldPath, "['")
	key, closed := strings.CutSuffix(rest, "']")
	switch {
	case !keyed || !closed || list == "":
		if !slices.Contains(supported, ref.FieldPath) {
			errs = append(errs, field.NotSupported(at, ref.FieldPath, supported))
		}
		return errs
	case list == "metadata.labels":
		return append(errs, invalid(at, key, validation.IsQualifiedName(key))...)
	case list == "metadata.annotations":
		return append(errs, invalid(at, key, validation.IsQualifiedName(strings.ToLower(key)))...)
	default:
		return append(errs, field.Invalid(at, ref.FieldPath, "only metadata.labels and metadata.annotations have keys"))
	}
}

var resourceFields = []string{
	"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory",
}

var byteDivisors = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}

func validateResourceRef(ref *corev1.ResourceFieldSelector, at *field.Path) field.ErrorList {
	huge := strings.HasPrefix(ref.Resource, "limits.hugepages-") || strings.HasPrefix(ref.Resource, "requests.hugepages-")
	switch {
	case ref.Resource == "":
		return field.ErrorList{field.Required(at.Child("resource"), "must name a resource of a container, such as limits.memory")}
	case !huge && !slices.Contains(resourceFields, ref.Resource):
		return field.ErrorList{field.NotSupported(at.Child("resource"), ref.Resource, resourceFields)}
	case ref.Divisor.Cmp(resource.Quantity{}) == 0:
		return nil
	}
	divisors := byteDivisors
	if strings.HasSuffix(ref.Resource, ".cpu") {
		divisors = []string{"1m", "1"}
	}
	if divisor := ref.Divisor.String(); !slices.Contains(divisors, divisor) {
		return field.ErrorList{field.NotSupported(at.Child("divisor"), divisor, divisors)}
	}
	return nil
}

func validateEnvFrom(v *corev1.EnvFromSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if v.Prefix != "" {
		errs = append(errs, invalid(at.Child("prefix"), v.Prefix, validation.IsRelaxedEnvVarName(v.Prefix))...)
	}
	if v.ConfigMapRef != nil {
		errs = append(errs, validateName(v.ConfigMapRef.Name, at.Child("configMapRef", "name"))...)
	}
	if v.SecretRef != nil {
		errs = append(errs, validateName(v.SecretRef.Name, at.Child("secretRef", "name"))...)
	}
	switch {
	case v.ConfigMapRef == nil && v.SecretRef == nil:
		errs = append(errs, field.Required(at, "must have one of configMapRef and secretRef"))
	case v.ConfigMapRef != nil && v.SecretRef != nil:
		errs = append(errs, field.Forbidden(at, "may not have both configMapRef and secretRef: make two items of it"))
	}
	return errs
}

// validateMount checks a mount. volume is the mount's volume, nil if the policy does not have it.
func validateMount(v *corev1.VolumeMount, volume *corev1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if v.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "must name a volume of the policy or of the pods"))
	} else {
		errs = append(errs, invalid(at.Child("name"), v.Name, validation.IsDNS1123Label(v.Name))...)
	}
	if v.MountPath == "" {
		errs = append(errs, field.Required(at.Child("mountPath"), "must specify a path in the container"))
	} else {
		errs = append(errs, invalid(at.Child("mountPath"), v.MountPath, validateMountPath(v.MountPath))...)
	}
	errs = append(errs, descending(v.SubPath, at.Child("subPath"))...)
	errs = append(errs, descending(v.SubPathExpr, at.Child("subPathExpr"))...)
	if v.SubPath != "" && v.SubPathExpr != "" {
		errs = append(errs, field.Forbidden(at.Child("subPathExpr"), "subPath and subPathExpr exclude each other: keep one of them"))
	}
	errs = append(errs, validatePropagation(v, at)...)
	return append(errs, validateBindOptions(v, volume, at.Child("bindMountOptions"))...)
}

// driveLetter matches the start of a Windows path, the only path that may contain a colon.
var driveLetter = regexp.MustCompile(`^[a-zA-Z]:([\\/]|$)`)

// validateMountPath returns the errors of a non-empty path.
func validateMountPath(mountPath string) []string {
	var msgs []string
	if strings.Contains(driveLetter.ReplaceAllString(mountPath, ""), ":") {
		msgs = append(msgs, "must not contain ':'")
	}
	if strings.ContainsRune(mountPath, 0) {
		msgs = append(msgs, "must not contain a NUL character")
	}
	if path.Join("/", mountPath) == "/" {
		msgs = append(msgs, "nothing can be mounted in place of a container's root: choose a directory in it")
	}
	return msgs
}

func validatePropagation(v *corev1.VolumeMount, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	mode := corev1.MountPropagationNone
	if v.MountPropagation != nil {
		mode = *v.MountPropagation
	}
	if mode == corev1.MountPropagationBidirectional {
		errs = append(errs, field.Forbidden(at.Child("mountPropagation"),
			"Bidirectional is only for privileged containers: use HostToContainer, or None"))
	} else {
		errs = append(errs, oneOf(v.MountPropagation, at.Child("mountPropagation"), corev1.MountPropagationNone, corev1.MountPropagationHostToContainer)...)
	}
	if v.RecursiveReadOnly == nil || *v.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return errs
	}
	at = at.Child("recursiveReadOnly")
	errs = append(errs, oneOf(v.RecursiveReadOnly, at,
		corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled)...)
	if !v.ReadOnly {
		errs = append(errs, field.Forbidden(at, "needs readOnly: true"))
	}
	if mode != corev1.MountPropagationNone {
		errs = append(errs, field.Forbidden(at, "needs mountPropagation None or no mountPropagation"))
	}
	return errs
}

var bindOptions = []string{string(corev1.BindMountOptionNoDev), string(corev1.BindMountOptionNoExec), string(corev1.BindMountOptionNoSUID)}

// validateBindOptions allows mount options only if the policy has the volume. A volume of the pod is not known here,
// and might be an image, which allows no options.
func validateBindOptions(v *corev1.VolumeMount, volume *corev1.Volume, at *field.Path) field.ErrorList {
	if len(v.BindMountOptions) == 0 {
		return nil
	}
	var errs field.ErrorList
	for i, option := range v.BindMountOptions {
		errs = append(errs, oneOf(&option, at.Index(i), bindOptions...)...)
		if slices.Contains(v.BindMountOptions[:i], option) {
			errs = append(errs, field.Duplicate(at.Index(i), option))
		}
	}
	if volume == nil || volume.Image != nil {
		errs = append(errs, field.Forbidden(at, "needs a volume of the policy other than an image"))
	}
	return errs
}

// descending checks a path below a directory; the empty path is the directory itself.
func descending(p string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if path.IsAbs(p) {
		errs = append(errs, field.Invalid(at, p, "must be a relative path"))
	}
	return append(errs, noBacksteps(p, at)...)
}

func noBacksteps(p string, at *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(p, "/"), "..") {
		return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
	}
	return nil
}

// descendingFile checks the path of a file that a kubelet writes. A kubelet reserves names that begin with two dots for
// itself.
func descendingFile(p string, at *field.Path) field.ErrorList {
	errs := descending(p, at)
	if len(errs) == 0 && strings.HasPrefix(p, "..") {
		errs = append(errs, field.Invalid(at, p, "must not start with '..'"))
	}
	return errs
}
