package converter

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	ctrl "sigs.k8s.io/controller-runtime"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/conversion/policy"
	"refract.dev/conversion/structural"
	"refract.dev/internal/rescue"
)

const (
	// mostDefinition is the maximum size in bytes of a definition in a status. An API server accepts definitions of up
	// to 3 MiB, and the one in the status has no descriptions.
	mostDefinition = 4 << 20
	// mostDefined is the maximum number of values in a definition. A small gzip text can contain very many values.
	mostDefined = 150_000
)

// program is a spec that was compiled against a definition. It can convert objects.
type program struct {
	policy     *policy.Policy
	engine     *convert.Engine
	definition *structural.Definition
}

// errFindings is the error for a spec that does not fit a definition.
var errFindings = errors.New("the policy does not fit the definition")

// compile returns the program of a spec. The findings may be warnings. If the error wraps errFindings, at least one
// finding is an error. compile returns a panic as an error, because one policy must not stop the conversion of all
// other definitions.
func compile(spec *refractv1alpha1.ConversionPolicySpec, crd map[string]any) (of *program, findings []structural.Finding, err error) {
	defer rescue.To(&err, ctrl.Log.WithName("conversion"), "compiling a conversion policy")
	definition, err := structural.New(crd)
	if err != nil {
		return nil, nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", spec.CRD, err)
	}
	p, findings := policy.Compile(spec, definition)
	if p == nil {
		return nil, findings, errFindings
	}
	engine, err := convert.New(p.Resource())
	if err != nil {
		return nil, findings, fmt.Errorf("building the conversion: %w", err)
	}
	return &program{policy: p, engine: engine, definition: definition}, findings, nil
}

// compiler compiles policies against the current definitions. It remembers the last result for each policy, because
// every change of a status causes another compilation. It does not remember the programs: schemas are large, and the
// registry already has the programs in use.
type compiler struct {
	mu    sync.Mutex
	known map[types.UID]compilation
}

// compilation is the result of a compilation.
type compilation struct {
	about      string
	definition map[string]any
	program    *program // Nil after an error, and in a remembered result.
	findings   []structural.Finding
	err        error
	// spec is the compiled spec if it has additional entries. kept are the places of these entries.
	spec *refractv1alpha1.ConversionPolicySpec
	kept []refractv1alpha1.KeptField
}

// mostKnown is the maximum number of remembered policies.
const mostKnown = 1024

func newCompiler() *compiler { return &compiler{known: map[types.UID]compilation{}} }

func (c *compiler) compile(p *refractv1alpha1.ConversionPolicy, definition map[string]any) compilation {
	return c.remembered(p, definition, func() compilation {
		built, findings, err := compile(&p.Spec, definition)
		return compilation{program: built, findings: findings, err: err}
	})
}

// complete compiles a policy with additional entries: one for each place that only one version has and that no entry
// names. It does not remember the program either.
func (c *compiler) complete(p *refractv1alpha1.ConversionPolicy, definition map[string]any) compilation {
	return c.remembered(p, definition, func() compilation {
		spec, kept, err := completed(&p.Spec, definition)
		if err != nil {
			return compilation{err: err}
		}
		built, findings, err := compile(spec, definition)
		return compilation{program: built, findings: findings, err: err, spec: spec, kept: kept}
	})
}

// remembered returns the remembered result for the spec and the definition of a policy. Without one, it calls build.
func (c *compiler) remembered(p *refractv1alpha1.ConversionPolicy, definition map[string]any, build func() compilation) compilation {
	about, err := fingerprint(p, definition)
	if err != nil {
		return compilation{err: err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.known[p.UID]; ok && known.about == about {
		known.definition = definition
		return known
	}
	out := build()
	out.about = about
	if len(c.known) >= mostKnown {
		clear(c.known)
	}
	known := out
	known.program = nil
	c.known[p.UID] = known
	out.definition = definition
	return out
}

// fingerprint returns a hash of a spec and a definition.
func fingerprint(p *refractv1alpha1.ConversionPolicy, definition map[string]any) (string, error) {
	text, err := json.Marshal([]any{definition, p.Spec})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%d/%s", p.Generation, hex.EncodeToString(sum[:])), nil
}

// reduced returns the parts of a CustomResourceDefinition that affect conversion: names, versions and schemas. The
// result shares no memory with crd.
func reduced(crd *unstructured.Unstructured) map[string]any {
	spec, _ := crd.Object["spec"].(map[string]any)
	var versions []any
	list, _ := spec["versions"].([]any)
	for _, v := range list {
		version, ok := v.(map[string]any)
		if !ok {
			continue
		}
		out := map[string]any{}
		for _, key := range []string{"name", "served", "storage", "subresources"} {
			if value, ok := version[key]; ok {
				out[key] = value
			}
		}
		if s, ok := version["schema"].(map[string]any); ok {
			out["schema"] = map[string]any{"openAPIV3Schema": undescribed(s["openAPIV3Schema"])}
		}
		versions = append(versions, out)
	}
	names, _ := spec["names"].(map[string]any)
	kept := maps.Clone(names)
	maps.DeleteFunc(kept, func(key string, _ any) bool {
		return !slices.Contains([]string{"kind", "listKind", "plural", "singular"}, key)
	})
	out := map[string]any{
		"apiVersion": crd.GetAPIVersion(), "kind": crd.GetKind(), "metadata": map[string]any{"name": crd.GetName()},
		"spec": map[string]any{"group": spec["group"], "scope": spec["scope"], "names": kept, "versions": versions},
	}
	if stored, ok := storedVersions(crd); ok {
		out["status"] = map[string]any{"storedVersions": stored}
	}
	return (&unstructured.Unstructured{Object: out}).DeepCopy().Object
}

// storedVersions returns the versions that stored objects may have.
func storedVersions(crd *unstructured.Unstructured) ([]any, bool) {
	stored, ok, err := unstructured.NestedSlice(crd.Object, "status", "storedVersions")
	return stored, ok && err == nil
}

// undescribed returns a schema without its descriptions. They are most of its text.
func undescribed(schema any) any {
	fields, ok := schema.(map[string]any)
	if !ok {
		return schema
	}
	out := map[string]any{}
	for key, value := range fields {
		switch key {
		case "description", "example", "externalDocs", "title":
		case "properties", "patternProperties", "definitions":
			out[key] = undescribedEach(value)
		case "allOf", "anyOf", "oneOf":
			out[key] = undescribedEach(value)
		case "items", "additionalProperties", "additionalItems", "not":
			out[key] = undescribed(value)
		default:
			out[key] = value
		}
	}
	return out
}

// undescribedEach removes the descriptions from each schema of an object or a list.
func undescribedEach(schemas any) any {
	switch all := schemas.(type) {
	case map[string]any:
		out := make(map[string]any, len(all))
		for name, s := range all {
			out[name] = undescribed(s)
		}
		return out
	case []any:
		out := make([]any, len(all))
		for i, s := range all {
			out[i] = undescribed(s)
		}
		return out
	default:
		return schemas
	}
}

// pack returns a definition in the format for a status: JSON in gzip.
func pack(definition map[string]any) ([]byte, error) {
	text, err := json.Marshal(definition)
	if err != nil {
		return nil, fmt.Errorf("writing the definition: %w", err)
	}
	if err := packable(text); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// packable returns an error if a definition is too large for a status.
func packable(text []byte) error {
	if len(text) > mostDefinition {
		return fmt.Errorf("the definition has more than %d bytes", mostDefinition)
	}
	values, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b == '\\':
			i++ // Skips the escaped byte.
		case b == '"':
			quoted = !quoted
		case !quoted && (b == '{' || b == '[' || b == ','):
			values++
		}
	}
	if values > mostDefined {
		return fmt.Errorf("the definition has more than %d values", mostDefined)
	}
	return nil
}

// unpack returns the definition in a status, and its JSON.
func unpack(packed []byte) (map[string]any, []byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the definition in the status: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(r, mostDefinition+1))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the definition in the status: %w", err)
	}
	if err := packable(text); err != nil {
		return nil, nil, fmt.Errorf("reading the definition in the status: %w", err)
	}
	var definition map[string]any
	if err := json.Unmarshal(text, &definition); err != nil {
		return nil, nil, fmt.Errorf("reading the definition in the status: %w", err)
	}
	return definition, text, nil
}

// samePacked reports whether the definition in a status equals this one. It compares the JSON, because gzip can encode
// the same text in different ways.
func samePacked(packed []byte, definition map[string]any) bool {
	_, was, err := unpack(packed)
	if err != nil {
		return false
	}
	is, err := json.Marshal(definition)
	return err == nil && bytes.Equal(was, is)
}
