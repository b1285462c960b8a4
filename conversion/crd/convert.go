package crd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/config"
	"refract.dev/conversion/convert"
	"refract.dev/conversion/policy"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/pipeline"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
)

// PolicyKind is the kind of ConversionPolicies.
const PolicyKind = "ConversionPolicy"

// IsPolicy reports whether a document is a ConversionPolicy of any version.
func IsPolicy(d *manifest.Document) bool {
	return d.Content["kind"] == PolicyKind && groupOf(d.Content) == refractv1alpha1.GroupVersion.Group
}

// converted returns the names of the definitions whose objects the ConversionPolicies among the documents convert.
// Policies in mode Shadow do not convert objects.
func converted(documents []manifest.Document) map[string]bool {
	names := map[string]bool{}
	for i := range documents {
		spec, _ := documents[i].Content["spec"].(map[string]any)
		name, _ := spec["crd"].(string)
		if IsPolicy(&documents[i]) && name != "" && spec["mode"] != string(refractv1alpha1.ConversionShadow) {
			names[name] = true
		}
	}
	return names
}

// Policy is a compiled ConversionPolicy of the input.
type Policy struct {
	*policy.Policy

	Document   manifest.Document
	Definition *Definition
}

// CompilePolicies compiles the ConversionPolicies among the documents against the definitions that they name. The
// report has the findings of the API server's validation and, for valid manifests, those of the compiler. The problems
// are about policies that cannot be compiled because their definition is missing or because an earlier policy names the
// same definition.
func CompilePolicies(documents []manifest.Document, definitions []Definition) ([]Policy, *Report, []*manifest.Problem) {
	r := &Report{Findings: []Finding{}, one: PolicyKind, many: "ConversionPolicies"}
	var policies []Policy
	var problems []*manifest.Problem
	at := map[string]manifest.Place{}
	for i := range documents {
		d := &documents[i]
		if !IsPolicy(d) {
			continue
		}
		spec, findings := specOf(d)
		if spec == nil {
			r.add(d, findings)
			continue
		}
		definition, wrong := definitionOf(d, spec.CRD, definitions)
		if first, ok := at[spec.CRD]; ok {
			wrong = problem(d, "spec.crd", fmt.Sprintf("there is another policy for %s, at %s", spec.CRD, first), "")
		}
		if wrong != nil {
			problems = append(problems, wrong)
			continue
		}
		at[spec.CRD] = d.Place
		compiled, more := policy.Compile(spec, definition.Definition)
		r.add(d, append(findings, more...))
		if compiled != nil {
			policies = append(policies, Policy{Policy: compiled, Document: *d, Definition: definition})
		}
	}
	return policies, r, problems
}

// definitionOf returns the definition that a policy names in spec.crd. If the input does not have it, definitionOf
// returns a problem.
func definitionOf(d *manifest.Document, name string, definitions []Definition) (*Definition, *manifest.Problem) {
	var names, plurals []string
	for i := range definitions {
		if definitions[i].Name() == name {
			return &definitions[i], nil
		}
		names, plurals = append(names, definitions[i].Name()), append(plurals, definitions[i].Plural())
	}
	hint := "--crd accepts a file with the definition"
	plural, _, _ := strings.Cut(name, ".") // Only plurals are compared. In one group, any two full names would look similar.
	if near := nearest.To(plural, plurals); near != "" {
		hint = fmt.Sprintf("did you mean %s?", names[slices.Index(plurals, near)])
	} else if len(names) == 1 {
		hint = fmt.Sprintf("there is %s; %s", names[0], hint)
	}
	return nil, problem(d, "spec.crd", fmt.Sprintf("no CustomResourceDefinition of the input is %q", name), hint)
}

// specOf returns the spec of a policy. If an API server would reject the manifest, it returns only the findings.
func specOf(d *manifest.Document) (*refractv1alpha1.ConversionPolicySpec, []structural.Finding) {
	version, err := policyVersion(d.Content)
	if err != nil {
		return nil, []structural.Finding{{Path: "apiVersion", Message: err.Error(), Severity: structural.Error, Rule: pipeline.RuleMalformed}}
	}
	decoded, err := version.Decode(d.Content)
	if err != nil {
		return nil, []structural.Finding{{Message: err.Error(), Severity: structural.Error, Rule: pipeline.RuleMalformed}}
	}
	findings := unknownKeys(decoded.Unknown, version)
	findings = append(findings, version.Validate(decoded.Object)...)
	if len(findings) > 1 { // The note about skipped rules has no path. Next to other findings it is not useful.
		findings = slices.DeleteFunc(findings, func(f structural.Finding) bool { return f.Path == "" })
	}
	if len(findings) > 0 {
		return nil, findings
	}
	text, err := json.Marshal(decoded.Object)
	if err == nil {
		typed := &refractv1alpha1.ConversionPolicy{}
		if err = utiljson.Unmarshal(text, typed); err == nil {
			return &typed.Spec, nil
		}
	}
	return nil, []structural.Finding{{Message: err.Error(), Severity: structural.Error, Rule: pipeline.RuleMalformed}}
}

// unknownKeys returns an error for each path that the version does not define. An API server would drop such fields,
// and the policy would convert differently than its manifest says.
func unknownKeys(paths []string, version *structural.Version) []structural.Finding {
	var findings []structural.Finding
	for _, path := range paths {
		key, known := keysAt(version.Structural(), path)
		message := fmt.Sprintf("unknown field %q", key)
		if near := nearest.To(key, known); near != "" {
			message += fmt.Sprintf("; did you mean %s?", near)
		}
		findings = append(findings, structural.Finding{Path: path, Message: message, Severity: structural.Error, Rule: pipeline.RuleUnknown})
	}
	return findings
}

// keysAt returns the last key of a path, and the sorted names of the properties that the schema defines at that level.
func keysAt(s *schema.Structural, path string) (key string, known []string) {
	steps := strings.Split(path, ".")
	key = steps[len(steps)-1]
	for _, step := range steps[:len(steps)-1] {
		name, indexes, _ := strings.Cut(step, "[")
		member, ok := s.Properties[name]
		if !ok {
			return key, nil
		}
		s = &member
		if indexes != "" {
			if s = s.Items; s == nil {
				return key, nil
			}
		}
	}
	return key, slices.Sorted(maps.Keys(s.Properties))
}

// policyVersion returns the schema of the version of ConversionPolicy that a policy has.
func policyVersion(content map[string]any) (*structural.Version, error) {
	text, err := fs.ReadFile(config.CRDs, "crd/refract.dev_conversionpolicies.yaml")
	if err != nil {
		return nil, fmt.Errorf("reading our own definition: %w", err)
	}
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, fmt.Errorf("reading our own definition: %w", err)
	}
	definition, err := structural.New(crd)
	if err != nil {
		return nil, fmt.Errorf("compiling our own definition: %w", err)
	}
	return definition.VersionOf(content)
}

// Engine returns a conversion engine for the policies.
func Engine(policies []Policy) (*convert.Engine, error) {
	resources := make([]convert.Resource, len(policies))
	for i := range policies {
		resources[i] = policies[i].Resource()
	}
	return convert.New(resources...)
}

// Strangers returns a problem for each document whose kind is not defined by any of the definitions.
func Strangers(foreign []manifest.Document, definitions []Definition) []*manifest.Problem {
	var problems []*manifest.Problem
	for i := range foreign {
		if _, wrong := find(&foreign[i], definitions); wrong != nil {
			problems = append(problems, wrong)
		}
	}
	return problems
}

// Convert converts objects to the version with the name in to. The engine converts objects whose definition has a
// policy; all other objects must already have that version. Objects that cannot be converted are in Refused. The result
// has no Lines.
func Convert(engine *convert.Engine, objects []Object, to string) *Transformed {
	t := &Transformed{Objects: []map[string]any{}}
	for i := range objects {
		o := &objects[i]
		converted, err := convertOne(engine, o, to)
		if err != nil {
			t.Refused = append(t.Refused, problem(&o.Document, "", err.Error(), ""))
			continue
		}
		t.Objects = append(t.Objects, converted)
	}
	return t
}

func convertOne(engine *convert.Engine, o *Object, to string) (map[string]any, error) {
	if o.Version.Name() == to {
		return o.Document.Content, nil
	}
	wanted, err := o.Definition.Version(to)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o.Document.Content)
	if err != nil {
		return nil, fmt.Errorf("encoding it: %w", err)
	}
	converted, err := engine.Convert(text, wanted.APIVersion())
	if wrong := (*convert.ObjectError)(nil); errors.As(err, &wrong) {
		return nil, fmt.Errorf("from %s to %s: %w", o.Version.Name(), to, wrong.Err)
	}
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := utiljson.Unmarshal(converted, &out); err != nil {
		return nil, fmt.Errorf("decoding the result: %w", err)
	}
	return out, nil
}
