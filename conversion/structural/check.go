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

// Check returns all problems of a CustomResourceDefinition: the errors of the server for a new definition, including
// violations of the rules for structural schemas; unknown fields of the manifest, also where the server does not look
// (inside items and additionalProperties); and lints. The findings are sorted by path, with indexes compared as
// numbers, then by message, without duplicates. nil means no findings.
//
// Paths and texts are those of the server, with two exceptions. A text that contains versions has only their names.
// Errors about the server's internal form (spec.validation.openAPIV3Schema, if all versions have the same schema, or
// there is only one) refer to the manifest (spec.versions[0].schema.openAPIV3Schema, and likewise for every other
// version).
//
// A manifest in apiextensions.k8s.io/v1beta1 has one finding, which says what to do. The error is for an object that is
// not a CustomResourceDefinition ([ErrNotDefinition]) or cannot be decoded as one.
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

// CheckUpdate is Check for a definition that replaces old. The server validates the changes: it tolerates problems that
// old already has, names and scope are immutable, and stored versions (status.storedVersions of old) must stay. If old
// has no status, it counts as served, with objects in its storage version.
//
// CheckUpdate also warns about changes that the server accepts and that break old objects or clients. It compares each
// version that both definitions have with itself. Additions have no finding.
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

// check adds unknown fields and lints to the errors of the server.
func check(crd map[string]any, m manifest, server []Finding) []Finding {
	all := slices.Concat(server, unknownFields(crd), lint(m))
	if len(all) == 0 {
		return nil
	}
	return Sort(all)
}

// create returns the errors of the server for a new definition.
func (m manifest) create() []Finding {
	m.asCreated()
	return m.findings(validation.ValidateCustomResourceDefinition(context.Background(), m.internal))
}

// update returns the errors of the server for a definition that replaces another one.
func (m manifest) update(old manifest) []Finding {
	m.asUpdated(old)
	return m.findings(validation.ValidateCustomResourceDefinitionUpdate(context.Background(), m.internal, old.internal))
}

// findings converts errors about the server's internal form to findings about the manifest.
func (m manifest) findings(errs field.ErrorList) []Finding {
	var all []Finding
	for _, f := range findings(m.told(errs)) {
		all = append(all, m.place(f)...)
	}
	return Sort(all)
}

// told returns the errors to report. It reduces versions to their names. If the number of storage versions is not one,
// it omits the errors about the status that follow from this.
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

// hoisted are the fields that the internal form has once if they are the same in all versions, with the name of the
// field inside a version.
//
// Source: Convert_v1_CustomResourceDefinitionSpec_To_apiextensions_CustomResourceDefinitionSpec.
var hoisted = []struct{ internal, version string }{
	{"spec.validation", "schema"},
	{"spec.subresources", "subresources"},
	{"spec.additionalPrinterColumns", "additionalPrinterColumns"},
	{"spec.selectableFields", "selectableFields"},
}

// renamed maps field names of the internal form to those of the manifest.
var renamed = strings.NewReplacer(
	"spec.conversion.webhookClientConfig", "spec.conversion.webhook.clientConfig",
	"spec.conversion.conversionReviewVersions", "spec.conversion.webhook.conversionReviewVersions",
)

// place returns the finding with its path in the manifest, once for each version if the field is the same in all
// versions.
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
			// Some texts contain a second path.
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

// schemaOf returns the schema of a version, or nil.
func schemaOf(v *apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.JSONSchemaProps {
	if v.Schema == nil {
		return nil
	}
	return v.Schema.OpenAPIV3Schema
}
