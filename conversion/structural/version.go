package structural

import (
	"errors"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"refract.dev/tree"
)

// Version is one version of a [Definition]. It is immutable, and safe for concurrent use.
type Version struct {
	crd *apiextensionsv1.CustomResourceDefinition
	v1  *apiextensionsv1.CustomResourceDefinitionVersion

	schema     *apiextensions.JSONSchemaProps
	structural *schema.Structural // With pruned defaults.
	validator  validation.SchemaValidator
	rules      func() *cel.Validator // Compiles the CEL rules in the first call. Returns nil without rules.
	author     *tree.Author
}

var errNoSchema = errors.New("has no schema")

// compile does the same as crdHandler.getOrCreateServingInfoFor of the API server.
func compile(crd *apiextensionsv1.CustomResourceDefinition, v1 *apiextensionsv1.CustomResourceDefinitionVersion) (*Version, error) {
	internal, err := internalSchema(v1)
	if err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(internal)
	if err != nil {
		return nil, fmt.Errorf("reading the structural schema: %w", err)
	}
	structural = structural.DeepCopy() // A copy, because pruning must not modify the defaults of the schema.
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, fmt.Errorf("pruning defaults: %w", err)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil, fmt.Errorf("compiling the schema: %w", err)
	}
	return &Version{
		crd:        crd,
		v1:         v1,
		schema:     internal,
		structural: structural,
		validator:  validator,
		rules: sync.OnceValue(func() *cel.Validator {
			return cel.NewValidator(structural, true, celconfig.PerCallLimit)
		}),
		author: &tree.Author{Policy: tree.Policy{Kind: definitionKind, Name: crd.Name}, Rule: tree.NoRule},
	}, nil
}

// internalSchema returns the schema of a version in the internal form of the API server.
func internalSchema(v1 *apiextensionsv1.CustomResourceDefinitionVersion) (*apiextensions.JSONSchemaProps, error) {
	if schemaOf(v1) == nil {
		return nil, errNoSchema
	}
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(v1.Schema.DeepCopy(), internal, nil); err != nil {
		return nil, fmt.Errorf("converting the schema: %w", err)
	}
	return internal.OpenAPIV3Schema, nil
}

// Name returns the name of the version, such as v1beta1.
func (v *Version) Name() string { return v.v1.Name }

// APIVersion returns GROUP/NAME.
func (v *Version) APIVersion() string { return v.crd.Spec.Group + "/" + v.v1.Name }

// Kind returns the kind of the objects.
func (v *Version) Kind() string { return v.crd.Spec.Names.Kind }

// Served reports whether clients may use the version.
func (v *Version) Served() bool { return v.v1.Served }

// StatusSubresource reports whether the version has the status subresource. With it, the API server ignores the status
// in creates and updates, except in requests for the subresource. The methods of Version do not remove the status.
func (v *Version) StatusSubresource() bool {
	return v.v1.Subresources != nil && v.v1.Subresources.Status != nil
}

// Schema returns the schema in the internal form of the API server. Callers must not modify it.
func (v *Version) Schema() *apiextensions.JSONSchemaProps { return v.schema }

// Structural returns the structural schema for pruning and defaulting. The defaults in it are pruned. Callers must not
// modify it.
func (v *Version) Structural() *schema.Structural { return v.structural }
