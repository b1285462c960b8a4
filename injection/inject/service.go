package inject

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// FromService returns the items that the annotations of a Service define for its consumers. The annotations are:
//
//   - refract.dev/env, a JSON object of names and values of variables. A number
//     stands for its text. The variables keep the order of the object, so that one
//     can refer to an earlier one as $(NAME).
//   - refract.dev/env-from, secret/NAME and configmap/NAME joined by commas.
//   - refract.dev/mount, secret/NAME:PATH and configmap/NAME:PATH joined by commas;
//     the suffix :ro makes a mount read-only. The volumes are named
//     svc-secret-NAME and svc-configmap-NAME, or svc-HASH-NAME if that name is
//     invalid. The same object has the same volume in all policies, so that a
//     pod can consume two services that share one object.
//   - refract.dev/derive, one or both of host and port. host defines the variable
//     HOST, NAME.NAMESPACE.svc. port defines, like the variables that a kubelet
//     makes for a Service, PORT with the first port and NAME_PORT for each named
//     port, in capitals and with _ instead of -.
//   - refract.dev/prefix, the prefix of the names of derived variables.
//
// Derived variables come first. A derived variable that refract.dev/env also names has the value from there.
//
// FromService returns every error at its annotation, together with the items of the valid annotations, so the result is
// never nil. [Compile] accepts each item by itself; only Compile checks the limits for all items together. The Service
// is not modified.
func FromService(svc *corev1.Service) (*refractv1beta1.InjectedItems, field.ErrorList) {
	s := service{Service: svc, items: &refractv1beta1.InjectedItems{}}
	s.readEnv()
	s.derive()
	s.readEnvFrom()
	s.readMounts()
	return s.items, s.errs
}

// service is a Service and the items that its annotations define.
type service struct {
	*corev1.Service

	items *refractv1beta1.InjectedItems
	errs  field.ErrorList
}

// annotation returns the value of an annotation without surrounding space.
func (s *service) annotation(key string) string { return strings.TrimSpace(s.Annotations[key]) }

func annotationPath(key string) *field.Path { return field.NewPath("metadata", "annotations").Key(key) }

func (s *service) failf(key, value, format string, args ...any) {
	s.errs = append(s.errs, field.Invalid(annotationPath(key), value, fmt.Sprintf(format, args...)))
}

func (s *service) readEnv() {
	const key = refractv1beta1.EnvAnnotation
	text := s.annotation(key)
	if text == "" {
		return
	}
	vars, err := readVariables(text)
	if err != nil {
		s.failf(key, text, "%v; want a JSON object such as {\"DB_NAME\":\"orders\"}", err)
		return
	}
	seen := make(map[string]bool, len(vars))
	for _, v := range vars {
		if msgs := validateVariable(v.Name, string(v.Value)); len(msgs) > 0 {
			s.failf(key, v.Name, "%s", strings.Join(msgs, ", "))
			continue
		}
		if seen[v.Name] {
			s.failf(key, v.Name, "is a duplicate: remove one of them")
			continue
		}
		seen[v.Name] = true
		s.items.Env = append(s.items.Env, v)
	}
}

// readVariables reads the variables in the order of the JSON object. A Go map would lose this order.
func readVariables(text string) ([]refractv1beta1.EnvVar, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := expect(d, json.Delim('{')); err != nil {
		return nil, err
	}
	var vars []refractv1beta1.EnvVar
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, incomplete(err)
		}
		value, err := d.Token()
		if err != nil {
			return nil, incomplete(err)
		}
		v := refractv1beta1.EnvVar{Name: fmt.Sprint(name)}
		switch value := value.(type) {
		case string:
			v.Value = refractv1beta1.EnvValue(value)
		case json.Number:
			v.Value = refractv1beta1.EnvValue(value)
		default:
			return nil, fmt.Errorf("the value of %q must be a string or a number", v.Name)
		}
		vars = append(vars, v)
	}
	if err := expect(d, json.Delim('}')); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the object")
	}
	return vars, nil
}

func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err != nil {
		return incomplete(err)
	}
	if got != want {
		return fmt.Errorf("want %v, got %v", want, got)
	}
	return nil
}

// incomplete replaces io.EOF by io.ErrUnexpectedEOF, whose text is clearer to users.
func incomplete(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// derive adds the variables that are derived from the Service itself. They come before those of refract.dev/env.
func (s *service) derive() {
	wanted := s.derivations()
	if len(wanted) == 0 {
		return
	}
	prefix := s.annotation(refractv1beta1.PrefixAnnotation)
	if prefix != "" {
		if msgs := validation.IsRelaxedEnvVarName(prefix); len(msgs) > 0 {
			s.failf(refractv1beta1.PrefixAnnotation, prefix, "%s", strings.Join(msgs, ", "))
			return
		}
	}
	given := make(map[string]bool, len(s.items.Env))
	for i := range s.items.Env {
		given[s.items.Env[i].Name] = true
	}
	var derived []refractv1beta1.EnvVar
	add := func(name, value string) {
		if name = prefix + name; !given[name] {
			given[name] = true
			derived = append(derived, refractv1beta1.EnvVar{Name: name, Value: refractv1beta1.EnvValue(value)})
		}
	}
	if wanted["host"] {
		add("HOST", s.host())
	}
	if wanted["port"] {
		s.derivePorts(add)
	}
	s.items.Env = append(derived, s.items.Env...)
}

// derivations returns the elements of the annotation refract.dev/derive.
func (s *service) derivations() map[string]bool {
	const key = refractv1beta1.DeriveAnnotation
	wanted := map[string]bool{}
	for _, word := range listed(s.annotation(key)) {
		switch word {
		case "host":
			wanted[word] = true
		case "port":
			if len(s.Spec.Ports) == 0 {
				s.failf(key, word, "the Service has no port")
				continue
			}
			wanted[word] = true
		default:
			s.errs = append(s.errs, field.NotSupported(annotationPath(key), word, []string{"host", "port"}))
		}
	}
	return wanted
}

// host returns the DNS name of the Service, which resolves in its own and in other namespaces.
func (s *service) host() string {
	if s.Namespace == "" {
		return s.Name
	}
	return s.Name + "." + s.Namespace + ".svc"
}

func (s *service) derivePorts(add func(name, value string)) {
	add("PORT", strconv.Itoa(int(s.Spec.Ports[0].Port)))
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if port.Name == "" {
			continue
		}
		if msgs := validation.IsDNS1123Label(port.Name); len(msgs) > 0 {
			s.errs = append(s.errs, invalid(field.NewPath("spec", "ports").Index(i).Child("name"), port.Name, msgs)...)
			continue
		}
		name := strings.ReplaceAll(strings.ToUpper(port.Name), "-", "_")
		add(name+"_PORT", strconv.Itoa(int(port.Port)))
	}
}

func (s *service) readEnvFrom() {
	const key = refractv1beta1.EnvFromAnnotation
	seen := map[string]bool{}
	for _, entry := range listed(s.annotation(key)) {
		kind, name, err := readObject(entry)
		if err != nil {
			s.failf(key, entry, "%v", err)
			continue
		}
		var source corev1.EnvFromSource
		object := corev1.LocalObjectReference{Name: name}
		if kind == secretKind {
			source.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: object}
		} else {
			source.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: object}
		}
		id := envFromID(&source)
		if seen[id] {
			s.failf(key, entry, "is a duplicate: remove one of them")
			continue
		}
		seen[id] = true
		s.items.EnvFrom = append(s.items.EnvFrom, source)
	}
}

func (s *service) readMounts() {
	const key = refractv1beta1.MountAnnotation
	volumes, paths := map[string]bool{}, map[string]bool{}
	for _, entry := range listed(s.annotation(key)) {
		kind, name, mount, err := readMount(entry)
		if err != nil {
			s.failf(key, entry, "%v", err)
			continue
		}
		if paths[MountID(mount)] {
			s.failf(key, entry, "something else is mounted there already: choose another path")
			continue
		}
		paths[MountID(mount)] = true
		s.items.VolumeMounts = append(s.items.VolumeMounts, *mount)
		if !volumes[mount.Name] {
			volumes[mount.Name] = true
			s.items.Volumes = append(s.items.Volumes, volumeOf(kind, name))
		}
	}
}

// readMount reads KIND/NAME:PATH, optionally with the suffix :ro.
func readMount(entry string) (kind, name string, mount *corev1.VolumeMount, err error) {
	object, place, found := strings.Cut(entry, ":")
	if !found {
		return "", "", nil, errors.New("want secret/NAME:PATH or configmap/NAME:PATH, with :ro after it for a read-only mount")
	}
	if kind, name, err = readObject(object); err != nil {
		return "", "", nil, err
	}
	place, mode, limited := strings.Cut(place, ":")
	if limited && mode != "ro" {
		return "", "", nil, fmt.Errorf("want ro or nothing after the path, got %q", mode)
	}
	if !path.IsAbs(place) {
		return "", "", nil, fmt.Errorf("the path %q must begin with /", place)
	}
	if msgs := validateMountPath(place); len(msgs) > 0 {
		return "", "", nil, fmt.Errorf("the path %q: %s", place, strings.Join(msgs, ", "))
	}
	return kind, name, &corev1.VolumeMount{Name: volumeName(kind, name), MountPath: place, ReadOnly: limited}, nil
}

// readObject reads secret/NAME or configmap/NAME.
func readObject(entry string) (kind, name string, err error) {
	word, name, _ := strings.Cut(entry, "/")
	switch word {
	case "secret":
		kind = secretKind
	case "configmap":
		kind = configMapKind
	default:
		return "", "", fmt.Errorf("want secret/NAME or configmap/NAME, got %q", entry)
	}
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return "", "", fmt.Errorf("%q is not the name of a %s: %s", name, kind, strings.Join(msgs, ", "))
	}
	return kind, name, nil
}

// volumeName returns the name of the volume for an object. The same object always gets the same name, and different
// objects get different names. If svc-KIND-NAME is not valid, the name has a hash of svc-KIND-NAME instead of the kind.
func volumeName(kind, name string) string {
	kind = strings.ToLower(kind)
	full := "svc-" + kind + "-" + name
	if len(validation.IsDNS1123Label(full)) == 0 {
		return full
	}
	sum := sha256.Sum256([]byte(full))
	short := "svc-" + hex.EncodeToString(sum[:5]) + "-" + strings.ReplaceAll(name, ".", "-")
	return strings.TrimRight(short[:min(len(short), validation.DNS1123LabelMaxLength)], "-")
}

func volumeOf(kind, name string) corev1.Volume {
	v := corev1.Volume{Name: volumeName(kind, name)}
	if kind == secretKind {
		v.Secret = &corev1.SecretVolumeSource{SecretName: name}
	} else {
		v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	}
	return v
}

// listed returns the non-empty elements of a comma-separated list, without surrounding space.
func listed(text string) []string {
	var out []string
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			out = append(out, entry)
		}
	}
	return out
}
