package inject

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/tree"
)

// maxInjected is the maximum size of all items of one policy together, in bytes of JSON. etcd stores at most about 1.5
// MB for an object, and each container gets its own copy of the items.
const maxInjected = 256 << 10

// The maximum lengths of the lists of a policy. The schema has the same limits.
const (
	mostEnv   = 1000
	mostItems = 100
)

// mostRequirements is the maximum size of a selector: the number of its labels, its expressions, and their values.
const mostRequirements = 1000

// maxItems is the maximum number of items that fit into maxInjected. The smallest item is {"name":"A"}. Only a policy
// that takes items from its Service can have more. Such a policy is rejected without a check of each item, because each
// item could have several errors.
const maxItems = maxInjected / 12

// mostMistakes is the number of errors after which validation stops.
const mostMistakes = 100

// The default of spec.rollout.maxConcurrent.
const defaultMaxConcurrent = 2

// Compile checks a policy and compiles the items that it injects: the items of its spec and, with spec.implicit, the
// items of status.fromService (see [Effective]).
//
// If the policy is invalid, Compile returns no policy and all errors, each at its field path. There are two exceptions.
// Validation stops after many errors. And if lists are too long (see [Bounded]), Compile returns only their errors.
//
// Compile checks the items like an API server of Kubernetes 1.37 checks the items of a pod, see
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/apis/core/validation/validation.go
// So the items of an accepted policy do not make a valid pod invalid, except for errors that depend on the pod.
//
// Compile does not rely on an earlier check by the schema or a webhook, because a stored object may have bypassed both.
//
// Compile retains nothing of p.
func Compile(p *refractv1beta1.ServiceInjectionPolicy) (*Policy, field.ErrorList) {
	if errs := Bounded(p); len(errs) > 0 {
		return nil, errs
	}
	spec := field.NewPath("spec")
	if n := itemsIn(p); n > maxItems {
		return nil, field.ErrorList{field.TooMany(spec, n, maxItems)}
	}
	c := compiler{
		spec:   &p.Spec,
		path:   spec,
		merged: merge(p),
		policy: &Policy{
			object: tree.Policy{
				Kind: kind, Namespace: p.Namespace, Name: p.Name, Generation: p.Generation,
			},
			created: p.CreationTimestamp,
			service: p.Spec.Service,
		},
	}
	c.compileName(&p.ObjectMeta)
	c.compileService()
	c.compileSelector()
	c.compileScope()
	c.compileChoices()
	c.compileRollout()
	c.errs = append(c.errs, c.merged.validate()...)
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	c.compileItems()
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	c.policy.references = c.merged.references()
	c.policy.warnings = c.warnings()
	return c.policy, nil
}

// Bounded returns an error for each list of the spec that is too long. Callers check a policy with Bounded before they
// copy it, so that they never copy a list that is too long. [Compile] makes the same check. Bounded retains nothing of
// p.
func Bounded(p *refractv1beta1.ServiceInjectionPolicy) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name      string
		has, most int
	}{
		{"env", len(p.Spec.Env), mostEnv},
		{"envFrom", len(p.Spec.EnvFrom), mostItems},
		{"volumes", len(p.Spec.Volumes), mostItems},
		{"volumeMounts", len(p.Spec.VolumeMounts), mostItems},
	} {
		if list.has > list.most {
			errs = append(errs, field.TooMany(field.NewPath("spec", list.name), list.has, list.most))
		}
	}
	return errs
}

// itemsIn returns the number of items of a policy, including the items that it takes from its Service.
func itemsIn(p *refractv1beta1.ServiceInjectionPolicy) int {
	n := len(p.Spec.Env) + len(p.Spec.EnvFrom) + len(p.Spec.Volumes) + len(p.Spec.VolumeMounts)
	if from := p.Status.FromService; p.Spec.Implicit && from != nil {
		n += len(from.Env) + len(from.EnvFrom) + len(from.Volumes) + len(from.VolumeMounts)
	}
	return n
}

// compiler compiles one policy.
type compiler struct {
	spec   *refractv1beta1.ServiceInjectionPolicySpec
	path   *field.Path
	merged contents
	policy *Policy
	errs   field.ErrorList
}

func (c *compiler) fail(err *field.Error) { c.errs = append(c.errs, err) }

// compileName checks the name of the policy. A comma is not allowed, because an annotation of the pod lists the names
// of policies, separated by commas.
func (c *compiler) compileName(meta *metav1.ObjectMeta) {
	at := field.NewPath("metadata", "name")
	if meta.Name == "" {
		if meta.GenerateName == "" {
			c.fail(field.Required(at, "must name the policy"))
		}
		return
	}
	c.errs = append(c.errs, invalid(at, meta.Name, apivalidation.NameIsDNSSubdomain(meta.Name, false))...)
}

func (c *compiler) compileService() {
	at := c.path.Child("service")
	switch {
	case c.spec.Service != "":
		c.errs = append(c.errs, invalid(at, c.spec.Service, validation.IsDNS1035Label(c.spec.Service))...)
	case c.spec.Implicit:
		c.fail(field.Required(at, "implicit: true needs a service, whose annotations say what to inject"))
	}
	if !c.spec.Implicit && c.merged.empty() {
		c.fail(field.Required(c.path, "nothing to inject: there must be at least one of env, envFrom, volumes and volumeMounts, "+
			"or a service with implicit: true"))
	}
}

func (c *compiler) compileSelector() {
	at := c.path.Child("selector")
	c.policy.selector = labels.Nothing()
	if c.spec.Selector == nil {
		c.fail(field.Required(at, "must choose pods by their labels; {} chooses every pod of the namespace"))
		return
	}
	if errs := validateSelector(c.spec.Selector, at); len(errs) > 0 {
		c.errs = append(c.errs, errs...)
		return
	}
	selector, err := metav1.LabelSelectorAsSelector(c.spec.Selector)
	if err != nil {
		c.fail(field.Invalid(at, field.OmitValueType{}, err.Error()))
		return
	}
	c.policy.selector = selector
}

// validateSelector returns the errors of a selector. If the selector is too long, this is the only error, because each
// requirement could have several errors.
func validateSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	n := len(s.MatchLabels) + len(s.MatchExpressions)
	for i := range s.MatchExpressions {
		n += len(s.MatchExpressions[i].Values)
	}
	if n > mostRequirements {
		return field.ErrorList{field.TooMany(at, n, mostRequirements)}
	}
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
}

func (c *compiler) compileScope() {
	c.policy.scope.init = true
	from := c.spec.Containers
	if from == nil {
		return
	}
	at := c.path.Child("containers")
	c.errs = append(c.errs, validateGlobs(from.Include, at.Child("include"))...)
	c.errs = append(c.errs, validateGlobs(from.Exclude, at.Child("exclude"))...)
	c.policy.scope = scope{
		include:   sortedSet(from.Include),
		exclude:   sortedSet(from.Exclude),
		init:      from.InitContainers == nil || *from.InitContainers,
		ephemeral: from.EphemeralContainers,
	}
	if slices.Contains(c.policy.scope.include, "*") {
		c.policy.scope.include = nil
	}
}

func sortedSet(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *compiler) compileChoices() {
	c.policy.position = choose(c, c.spec.EnvPosition, "envPosition", refractv1beta1.EnvAppend, refractv1beta1.EnvPrepend)
	c.policy.onConflict = choose(c, c.spec.OnConflict, "onConflict", refractv1beta1.ConflictSkip, refractv1beta1.ConflictReject)
	c.policy.mode = choose(c, c.spec.Mode, "mode", refractv1beta1.ModeEnforce, refractv1beta1.ModeAudit)
}

// choose returns the value of a field of the spec, or the first supported value if the field is empty. It reports an
// unsupported value as an error.
func choose[T ~string](c *compiler, value T, name string, supported ...T) T {
	if value == "" {
		return supported[0]
	}
	if !slices.Contains(supported, value) {
		c.fail(field.NotSupported(c.path.Child(name), value, supported))
	}
	return value
}

func (c *compiler) compileRollout() {
	out := refractv1beta1.Rollout{Strategy: refractv1beta1.RolloutRolling, MaxConcurrent: defaultMaxConcurrent}
	if from := c.spec.Rollout; from != nil {
		inner := compiler{path: c.path.Child("rollout")}
		out.Strategy = choose(&inner, from.Strategy, "strategy",
			refractv1beta1.RolloutRolling, refractv1beta1.RolloutManual, refractv1beta1.RolloutNone)
		if from.MaxConcurrent != 0 {
			out.MaxConcurrent = from.MaxConcurrent
		}
		out.MinReadySeconds = from.MinReadySeconds
		inner.inRange("maxConcurrent", out.MaxConcurrent, 1, 1000)
		inner.inRange("minReadySeconds", out.MinReadySeconds, 0, 86400)
		c.errs = append(c.errs, inner.errs...)
	}
	c.policy.rollout = out
}

func (c *compiler) inRange(name string, value int32, least, most int) {
	if int(value) < least || int(value) > most {
		c.fail(field.Invalid(c.path.Child(name), value, validation.InclusiveRangeError(least, most)))
	}
}

// compileItems compiles the validated items.
func (c *compiler) compileItems() {
	size := 0
	c.policy.env = compileList(c, envItem, c.merged.env, &size, func(v *refractv1beta1.EnvVar) item {
		return item{id: v.Name}
	})
	c.policy.envFrom = compileList(c, envFromItem, c.merged.envFrom, &size, func(v *corev1.EnvFromSource) item {
		return item{id: envFromID(v)}
	})
	c.policy.volumes = compileList(c, volumeItem, c.merged.volumes, &size, func(v *corev1.Volume) item {
		return item{id: v.Name}
	})
	c.policy.mounts = compileList(c, mountItem, c.merged.mounts, &size, func(v *corev1.VolumeMount) item {
		return item{id: MountID(v), volume: v.Name}
	})
	c.policy.needs = c.policy.findNeeds()
	if size > maxInjected {
		err := field.TooLong(c.path, "", maxInjected)
		err.Detail = fmt.Sprintf("env, envFrom, volumes and volumeMounts are %d bytes together, and may not be more than %d: "+
			"move large values to a ConfigMap or a Secret", size, maxInjected)
		c.fail(err)
		return
	}
	hash, err := c.policy.digest()
	if err != nil {
		c.fail(field.InternalError(c.path, err))
	}
	c.policy.hash = hash
}

// findNeeds returns the first mount of each volume that the policy mounts but does not define.
func (p *Policy) findNeeds() []*item {
	known := make(map[string]bool, len(p.volumes))
	for i := range p.volumes {
		known[p.volumes[i].id] = true
	}
	var out []*item
	for i := range p.mounts {
		if it := &p.mounts[i]; !known[it.volume] {
			known[it.volume] = true
			out = append(out, it)
		}
	}
	return out
}

// compileList compiles the items of a list. identify returns an item that has only its identity. compileList adds the
// bytes of all items to size.
func compileList[T any](c *compiler, of itemKind, list []placed[T], size *int, identify func(*T) item) []item {
	items := make([]item, 0, len(list))
	for _, from := range list {
		out := identify(from.value)
		var err error
		if out.raw, err = encode(from.value); err != nil {
			c.fail(field.Invalid(from.at, field.OmitValueType{}, err.Error()))
			continue
		}
		out.normal, out.hash = normalize(of, decode(out.raw)), hashOfID(out.id)
		*size += len(out.raw)
		items = append(items, out)
	}
	return items
}

// encode returns v as compact JSON, without escapes for <, > and &.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// The functions below return the identity of an item. Within one list, identities are unique.

func envFromID(v *corev1.EnvFromSource) string {
	switch {
	case v.SecretRef != nil:
		return v.Prefix + ":" + secretKind + "/" + v.SecretRef.Name
	case v.ConfigMapRef != nil:
		return v.Prefix + ":" + configMapKind + "/" + v.ConfigMapRef.Name
	default:
		return v.Prefix + ":"
	}
}

// MountID returns the identity of a mount in a container: the canonical form of its path. A [Record] names the mount by
// its identity.
func MountID(v *corev1.VolumeMount) string { return cleanMount(v.MountPath) }

// cleanMount returns the canonical form of a path in a container. Like a kubelet, it takes a relative path as relative
// to the root of the container. A Windows path with a drive letter is not relative.
func cleanMount(at string) string {
	if at == "" || at[0] == '/' || len(at) >= 2 && at[1] == ':' && isLetter(at[0]) {
		return path.Clean(at) // Clean does not allocate for a clean path.
	}
	return path.Join("/", at)
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// digest returns the hash of the items and of the fields that determine their places in a pod. Defaults are filled in
// first, so an explicit default does not change the hash.
func (p *Policy) digest() (string, error) {
	normals := func(items []item) []any {
		out := make([]any, len(items))
		for i := range items {
			out[i] = items[i].normal
		}
		return out
	}
	data, err := json.Marshal(struct {
		Position       refractv1beta1.EnvPosition `json:"Position"`
		Include        []string                   `json:"Include,omitempty"`
		Exclude        []string                   `json:"Exclude,omitempty"`
		InitContainers bool                       `json:"InitContainers"`
		Ephemeral      bool                       `json:"Ephemeral"`
		Env            []any                      `json:"Env"`
		EnvFrom        []any                      `json:"EnvFrom"`
		Volumes        []any                      `json:"Volumes"`
		Mounts         []any                      `json:"Mounts"`
	}{
		Position: p.position,
		Include:  p.scope.include, Exclude: p.scope.exclude, InitContainers: p.scope.init, Ephemeral: p.scope.ephemeral,
		Env: normals(p.env), EnvFrom: normals(p.envFrom), Volumes: normals(p.volumes), Mounts: normals(p.mounts),
	})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}
