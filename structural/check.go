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

// Check returns everything that is wrong with a CustomResourceDefinition: what
// the server says when it is created, the violations of the structural schema
// rules among it; fields of the manifest that do not exist, also where the server
// does not look (inside items and additionalProperties); and lints. They come
// sorted by path, indexes as numbers, then by message, without duplicates. No
// findings are nil.
//
// Paths and texts are the server's, but for two things: versions in a text are
// their names, and not all that is in them; and what the server says of
// its internal form (spec.validation.openAPIV3Schema, if all versions have the
// same schema, or just one) is said of the manifest
// (spec.versions[0].schema.openAPIV3Schema, and likewise of every other version).
//
// Of a manifest in apiextensions.k8s.io/v1beta1 there is one finding, which says
// what to do. The error is for what is no CustomResourceDefinition at all
// ([ErrNotDefinition]) and for what cannot be decoded as one.
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

// CheckUpdate is Check for a definition that takes the place of old, which the
// server judges by what has changed: what old may not have had either is
// tolerated, names and scope are fixed, and versions that objects are stored in
// (status.storedVersions of old) must stay. An old one without status counts as
// served, with objects in its storage version.
//
// Beside that it warns about what the server takes and old objects or clients do
// not survive: each version that both have is compared with itself. Of what is
// only added there is no finding.
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

// check adds to the server's errors what the server does not say.
func check(crd map[string]any, m manifest, server []Finding) []Finding {
	all := slices.Concat(server, unknownFields(crd), lint(m))
	if len(all) == 0 {
		return nil
	}
	return Sort(all)
}

// create returns the server's errors for a definition that is created.
func (m manifest) create() []Finding {
	m.asCreated()
	return m.findings(validation.ValidateCustomResourceDefinition(context.Background(), m.internal))
}

// update returns the server's errors for a definition that replaces another.
func (m manifest) update(old manifest) []Finding {
	m.asUpdated(old)
	return m.findings(validation.ValidateCustomResourceDefinitionUpdate(context.Background(), m.internal, old.internal))
}

// findings returns errors about the server's internal form as findings about the
// manifest.
func (m manifest) findings(errs field.ErrorList) []Finding {
	var all []Finding
	for _, f := range findings(m.told(errs)) {
		all = append(all, m.place(f)...)
	}
	return Sort(all)
}

// told returns the errors that are told: versions by their names, and if there is not one storage
// version, only that, and not what follows for the status.
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

// namesOf names versions, and says which are stored.
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

// hoisted are the fields that the internal form has once, for all versions, if
// they are the same in all of them, and what they are inside a version.
//
// Source: Convert_v1_CustomResourceDefinitionSpec_To_apiextensions_CustomResourceDefinitionSpec.
var hoisted = []struct{ internal, version string }{
	{"spec.validation", "schema"},
	{"spec.subresources", "subresources"},
	{"spec.additionalPrinterColumns", "additionalPrinterColumns"},
	{"spec.selectableFields", "selectableFields"},
}

// renamed are names of the internal form, and those of the manifest.
var renamed = strings.NewReplacer(
	"spec.conversion.webhookClientConfig", "spec.conversion.webhook.clientConfig",
	"spec.conversion.conversionReviewVersions", "spec.conversion.webhook.conversionReviewVersions",
)

// place returns the finding where the manifest has what it is about: once for
// every version if it is about what is the same in all.
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
			// Some texts name a second path.
			placed[i].Message = strings.ReplaceAll(f.Message, h.internal+".", in+".")
		}
		return placed
	}
	f.Path = renamed.Replace(f.Path)
	return []Finding{f}
}

// schemaPath is where a version's schema is.
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
