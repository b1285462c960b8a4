package preview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "sigs.k8s.io/json"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/injection/inject"
	"refract.dev/tree"
)

// Pod is a pod, or the pod that a workload would create.
type Pod struct {
	// Object is the pod, or the workload.
	Object *manifest.Object
	// At is the place of the pod template in the object; for a pod, it is the root.
	At tree.Pointer
	// Before is the created pod without the defaults of an API server; nil if the workload has no pod template. It
	// shares parts with the object and must not be modified.
	Before map[string]any
	// After is the resulting pod. It may be Before itself, and shares parts with it. It is nil if the pod is rejected
	// or cannot be created.
	After map[string]any
	// Result has the additions of each policy; nil if the pod cannot be created.
	Result *inject.Result
	// Err is the reason for which the pod cannot be created.
	Err error

	data []byte // Before as JSON.
}

// inject computes the result for the pod.
func (p *Pod) inject(policies *inject.Set) {
	if p.data, p.Err = json.Marshal(p.Before); p.Err != nil {
		return
	}
	if p.Result, p.Err = policies.Explain(p.data); p.Err != nil {
		p.Result = nil
		return
	}
	if p.Result.Rejected == nil {
		p.After, p.Err = apply(p.Before, p.Result.Patch)
	}
}

// apply returns the object with the additions of a JSON patch.
func apply(object map[string]any, patch []byte) (map[string]any, error) {
	if patch == nil {
		return object, nil
	}
	var operations []struct {
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(patch, &operations); err != nil {
		return nil, fmt.Errorf("reading the patch: %w", err)
	}
	doc := tree.Edit(object)
	for i := range operations {
		at, err := tree.Parse(operations[i].Path)
		if err != nil {
			return nil, fmt.Errorf("reading the patch: %w", err)
		}
		if _, err := doc.Add(at, operations[i].Value); err != nil {
			return nil, fmt.Errorf("applying the patch: %w", err)
		}
	}
	return doc.Root(), nil
}

// Changed reports whether the pod is changed, even if the only addition is the annotation that records omitted
// policies.
func (p *Pod) Changed() bool { return p.Result != nil && p.Result.Patch != nil }

// Labels returns the labels of the pod.
func (p *Pod) Labels() map[string]string {
	return (&unstructured.Unstructured{Object: p.Before}).GetLabels()
}

// String returns KIND/NAMESPACE/NAME of the pod or its workload. Without a name it uses generateName.
func (p *Pod) String() string {
	c := p.Object.Content
	return strings.Join([]string{c.GetKind(), c.GetNamespace(), cmp.Or(c.GetName(), c.GetGenerateName())}, "/")
}

// Conflicts reports whether an omitted policy would also be omitted without the other policies, because it conflicts
// with the pod itself.
func (p *Pod) Conflicts(policy *inject.Policy) bool {
	alone, err := inject.NewSet(policy).Inject(p.data)
	return err == nil && (alone.Rejected != nil || len(alone.Skipped) > 0)
}

// Pointer returns the place of a conflict in the object of the pod; empty if it is not known.
func (p *Pod) Pointer(s *inject.Skipped) string {
	if s.Path == "" {
		return ""
	}
	return p.At.String() + s.Path
}

// Place returns the place of a conflict in the input.
func (p *Pod) Place(s *inject.Skipped) manifest.Place {
	pointer := p.Pointer(s)
	if pointer == "" {
		return p.Object.Place
	}
	return p.Object.At(manifest.FieldOf(p.Object.Content.Object, pointer))
}

// Deliberate reports whether the policy was omitted because a setting of the policy or of the pod requests that.
func Deliberate(s *inject.Skipped) bool {
	switch s.Reason {
	case inject.ReasonAudit, inject.ReasonOptedOut, inject.ReasonMirrorPod:
		return true
	default:
		return false
	}
}
