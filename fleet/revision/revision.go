// Package revision stores the inputs of the content of an object at one time: the object, and the override policies
// that apply. Each part is stored separately, under the hash of its content, so that objects with the same policy share
// the policy's part.
package revision

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/override"
	"refract.dev/tree"
)

const (
	// plain is the maximum size of an uncompressed part, in bytes.
	plain = 512 << 10
	// Most is the maximum size of a stored part, in bytes. An API server stores 1.5 MiB.
	Most = 1 << 20
	// mostRead is the maximum size of a decompressed part: more than an API server accepts for an object or a policy.
	mostRead = 8 << 20
	// hashLength is the length of the hash in a name: 160 bits, in hexadecimal. It must resist collisions, because the
	// author of an object controls the hashed text, and two texts with the same hash would be one revision.
	hashLength = 40
	// prefix is the prefix of the names of parts.
	prefix = "refract-"
)

// ErrTooLarge is wrapped by the error for a part that is too large to be stored.
var ErrTooLarge = errors.New("it is too large to be stored")

// Part is the separately stored content of an object or a policy.
type Part struct {
	// Name contains the hash of the content, and is valid as the name of a Kubernetes object.
	Name string
	text []byte // JSON.
}

// ObjectPart returns the part of an object, without the fields that are not propagated.
func ObjectPart(obj *unstructured.Unstructured) (Part, error) {
	return part(override.Requested(obj).Object)
}

// storedPolicy is the stored content of a policy.
type storedPolicy struct {
	Kind      string                          `json:"kind"`
	Namespace string                          `json:"namespace,omitempty"`
	Name      string                          `json:"name"`
	Spec      corev1alpha1.OverridePolicySpec `json:"spec"`
}

// PolicyPart returns the part of an override policy: its spec.
func PolicyPart(policy client.Object) (Part, error) {
	p := storedPolicy{Namespace: policy.GetNamespace(), Name: policy.GetName()}
	switch o := policy.(type) {
	case *corev1alpha1.OverridePolicy:
		p.Kind, p.Spec = corev1alpha1.KindOverridePolicy, o.Spec
	case *corev1alpha1.ClusterOverridePolicy:
		p.Kind, p.Spec = corev1alpha1.KindClusterOverridePolicy, o.Spec
	default:
		return Part{}, fmt.Errorf("%T is no override policy", policy)
	}
	return part(p)
}

func part(what any) (Part, error) {
	text, err := json.Marshal(what)
	if err != nil {
		return Part{}, fmt.Errorf("encoding a revision: %w", err)
	}
	if text, err = canonical(text); err != nil {
		return Part{}, fmt.Errorf("encoding a revision: %w", err)
	}
	return Part{Name: prefix + hash(text), text: text}, nil
}

// canonical returns the unique form of a JSON text. An API server may change the order of members and the escapes of
// characters.
func canonical(text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:hashLength]
}

// Of returns the revision of these parts, with the policies in their order of effect.
func Of(object string, generation int64, policies []refractv1alpha1.PolicyRevision, followers ...refractv1alpha1.FollowerRevision) refractv1alpha1.Revision {
	names := append([]string{object}, revisions(policies)...)
	for i := range followers {
		f := &followers[i]
		names = append(names, "with "+f.Resource+"/"+f.Name, f.Object)
		names = append(names, revisions(f.Policies)...)
	}
	name := hash([]byte(strings.Join(names, "\n")))
	if slices.ContainsFunc(names, IsSealed) {
		name = (keyed + name)[:hashLength]
	}
	return refractv1alpha1.Revision{Name: name, Generation: generation, Object: object, Policies: policies, Followers: followers}
}

func revisions(policies []refractv1alpha1.PolicyRevision) []string {
	names := make([]string, len(policies))
	for i := range policies {
		names[i] = policies[i].Revision
	}
	return names
}

// Same reports whether an object and its policies have the same content as others, regardless of their generations.
func Same(object string, policies []refractv1alpha1.PolicyRevision, other string, others []refractv1alpha1.PolicyRevision) bool {
	return object == other && slices.Equal(revisions(policies), revisions(others))
}

// stored is the data of a ControllerRevision. Exactly one of the two fields is set.
type stored struct {
	Content json.RawMessage `json:"content,omitempty"`
	Gzip    []byte          `json:"gzip,omitempty"`
}

// Encode returns the stored form of a part, a JSON object. Content of more than 512 KiB is compressed. If the result
// has more than 1 MiB, the error is [ErrTooLarge].
func (p *Part) Encode() ([]byte, error) {
	s := stored{Content: p.text}
	if len(p.text) > plain {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(p.text); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		s = stored{Gzip: b.Bytes()}
	}
	text, err := json.Marshal(&s)
	if err != nil {
		return nil, err
	}
	if len(text) > Most {
		return nil, fmt.Errorf("%w: %d bytes when compressed, want at most %d", ErrTooLarge, len(text), Most)
	}
	return text, nil
}

// decode returns the text of a part. It fails if the name does not match the text.
func decode(data []byte, name string, key []byte) ([]byte, error) {
	text, err := textOf(data)
	if err != nil {
		return nil, err
	}
	is := prefix + hash(text)
	if IsSealed(name) {
		is = SealedName(key, is)
	}
	if is != name {
		return nil, errors.New("its content has changed") // The error must not contain the hash of the changed content.
	}
	return text, nil
}

// textOf returns the text of a stored part.
func textOf(data []byte) ([]byte, error) {
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	text := []byte(s.Content)
	if len(s.Gzip) > 0 {
		r, err := gzip.NewReader(bytes.NewReader(s.Gzip))
		if err != nil {
			return nil, err
		}
		if text, err = io.ReadAll(io.LimitReader(r, mostRead+1)); err != nil {
			return nil, err
		}
		if len(text) > mostRead {
			return nil, ErrTooLarge
		}
	}
	return canonical(text)
}

// NameOf returns the name of a stored part in the form of [Part.Encode].
func NameOf(data []byte) (string, error) {
	text, err := textOf(data)
	if err != nil {
		return "", fmt.Errorf("reading a revision: %w", err)
	}
	return prefix + hash(text), nil
}

// Check returns an error if the name does not match the content of the stored part. A name of [SealedName] needs the
// key.
func Check(data []byte, name string, key []byte) error {
	if _, err := decode(data, name, key); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}

// DecodeObject returns the object of a stored part. It fails if the name does not match the content. A name of
// [SealedName] needs the key.
func DecodeObject(data []byte, name string, key []byte) (*unstructured.Unstructured, error) {
	text, err := decode(data, name, key)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return obj, nil
}

// DecodePolicy compiles the policy of a stored part, with a generation. It fails if the name does not match the
// content.
func DecodePolicy(data []byte, name string, generation int64) (*override.Policy, error) {
	text, err := decode(data, name, nil)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	var s storedPolicy
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	meta := metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Generation: generation}
	if s.Kind == corev1alpha1.KindClusterOverridePolicy {
		p, _ := override.CompileCluster(&corev1alpha1.ClusterOverridePolicy{ObjectMeta: meta, Spec: s.Spec})
		return p, nil // An error in the policy makes its objects fail, as before the policy was stored.
	}
	p, _ := override.Compile(&corev1alpha1.OverridePolicy{ObjectMeta: meta, Spec: s.Spec})
	return p, nil
}

// Refer returns the reference to a policy that is stored under the name of a part.
func Refer(policy tree.Policy, name string) refractv1alpha1.PolicyRevision {
	return refractv1alpha1.PolicyRevision{
		PolicyReference: refractv1alpha1.PolicyReference{Kind: policy.Kind, Namespace: policy.Namespace, Name: policy.Name, Generation: policy.Generation},
		Revision:        name,
	}
}
