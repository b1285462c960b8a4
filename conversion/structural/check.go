package structural

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Check returns all problems of a CustomResourceDefinition. These are the errors of the API server for a new
// definition, including violations of the rules for structural schemas; unknown fields, also those that the API server
// does not report (inside items and additionalProperties); and the findings of lints. The findings are sorted by path,
// with indexes compared as numbers, and then by message. There are no duplicates. nil means no findings.
//
// Paths and texts are those of the API server, with two exceptions. A text that contains versions has only their names.
// Errors of the API server about its internal form of a definition are translated to the manifest. For example, if all
// versions have the same schema, or there is only one version, the internal form has it in
// spec.validation.openAPIV3Schema. The finding then has the path spec.versions[0].schema.openAPIV3Schema, and there is
// a finding for each version.
//
// A manifest in apiextensions.k8s.io/v1beta1 has a single finding, with advice. The error is for an object that is not
// a CustomResourceDefinition ([ErrNotDefinition]) or cannot be decoded as one.
func Check(crd map[string]any) ([]Finding, error) {
	m, err := decode(crd)
	if errors.Is(err, errRemoved) {
		return []Finding{removed}, nil
	}
	if err != nil {
		return nil, err
	}
	return check(crd, m, m.create()), nil
}

// CheckUpdate is Check for a definition that replaces old. The API server validates the update: problems that old
// already has are allowed, names and scope are immutable, and the versions in status.storedVersions of old must remain.
// If old has no status, it counts as established, with objects in its storage version.
//
// CheckUpdate also warns about changes that the API server accepts and that break existing objects or clients. It
// compares each version that both definitions have with the same version of old. There are no findings about additions.
func CheckUpdate(crd, old map[string]any) ([]Finding, error) {
	m, err := decode(crd)
	if errors.Is(err, errRemoved) {
		return []Finding{removed}, nil
	}
	if err != nil {
		return nil, err
	}
	before, err := decode(old)
	if err != nil {
		return nil, fmt.Errorf("the definition before: %w", err)
	}
	return check(crd, m, slices.Concat(m.update(before), compatibility(m.v1, before.v1))), nil
}

// check adds findings about unknown fields and of lints to the errors of the API server.
func check(crd map[string]any, m manifest, server []Finding) []Finding {
	all := slices.Concat(server, unknownFields(crd), lint(m))
	if len(all) == 0 {
		return nil
	}
	return Sort(all)
}

// create returns the errors of the API server for a new definition.
func (m manifest) create() []Finding {
	m.asCreated()
	return m.findings(validation.ValidateCustomResourceDefinition(context.Background(), m.internal))
}

// update returns the errors of the API server for a definition that replaces another one.
func (m manifest) update(old manifest) []Finding {
	m.asUpdated(old)
	return m.findings(validation.ValidateCustomResourceDefinitionUpdate(context.Background(), m.internal, old.internal))
}

// findings converts errors about the internal form of the API server to findings about the manifest.
func (m manifest) findings(errs field.ErrorList) []Finding {
	var all []Finding
	for _, f := range findings(m.told(errs)) {
		all = append(all, m.place(f)...)
	}
	return Sort(all)
}

// told returns the errors to report. In their texts it replaces versions by the names of the versions. If there is not
// exactly one storage version, it omits the resulting errors about status.storedVersions.
func (m manifest) told(errs field.ErrorList) field.ErrorList {
	stored := 0
	for _, v := range m.internal.Spec.Versions {
		if v.Storage {
			stored++
		}
	}
	var all field.ErrorList
	for _, err := range errs {
		if stored != 1 && err.Field == "status.storedVersions" {
			continue
		}
		if versions, ok := err.BadValue.([]apiextensions.CustomResourceDefinitionVersion); ok {
			brief := *err
			brief.BadValue = namesOf(versions)
			err = &brief
		}
		all = append(all, err)
	}
	return all
}

// namesOf lists versions by name, and marks the storage version.
func namesOf(versions []apiextensions.CustomResourceDefinitionVersion) string {
	names := make([]string, len(versions))
	for i, v := range versions {
		names[i] = v.Name
		if v.Storage {
			names[i] += " (storage)"
		}
	}
	return strings.Join(names, ", ")
}

// hoisted are the fields that the internal form has only once if they are equal in all versions, with the name of the
// field inside a version.
//
// Source: Convert_v1_CustomResourceDefinitionSpec_To_apiextensions_CustomResourceDefinitionSpec.
var hoisted = []struct{ internal, version string }{
	{"spec.validation", "schema"},
	{"spec.subresources", "subresources"},
	{"spec.additionalPrinterColumns", "additionalPrinterColumns"},
	{"spec.selectableFields", "selectableFields"},
}

// renamed replaces field names of the internal form by those of the manifest.
var renamed = strings.NewReplacer(
	"spec.conversion.webhookClientConfig", "spec.conversion.webhook.clientConfig",
	"spec.conversion.conversionReviewVersions", "spec.conversion.webhook.conversionReviewVersions",
)

// place returns the finding with its path in the manifest. If the internal form has the field only once, place returns
// a finding for each version.
func (m manifest) place(f Finding) []Finding {
	for _, h := range hoisted {
		rest, ok := strings.CutPrefix(f.Path, h.internal)
		if !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
			continue
		}
		placed := make([]Finding, len(m.v1.Spec.Versions))
		for i := range placed {
			in := fmt.Sprintf("spec.versions[%d].%s", i, h.version)
			placed[i] = f
			placed[i].Path = in + rest
			// Some messages contain another path.
			placed[i].Message = strings.ReplaceAll(f.Message, h.internal+".", in+".")
		}
		return placed
	}
	f.Path = renamed.Replace(f.Path)
	return []Finding{f}
}

// schemaPath returns the path of the schema of a version.
func schemaPath(version int) string {
	return fmt.Sprintf("spec.versions[%d].schema.openAPIV3Schema", version)
}

// schemaOf returns the schema of a version; nil if it has none.
func schemaOf(v *apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.JSONSchemaProps {
	if v.Schema == nil {
		return nil
	}
	return v.Schema.OpenAPIV3Schema
}
