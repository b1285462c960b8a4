package structural

import (
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Names of lints; the package comment describes them. Lints are not about style: each finds a definition whose effect
// differs from the apparent intention.
const (
	lintIntOrString    = "IntOrStringType"
	lintRequired       = "RequiredUnknownField"
	lintFormat         = "UnrecognizedFormat"
	lintItems          = "RootItems"
	lintSet            = "NonScalarSet"
	lintCABundle       = "InvalidCABundle"
	lintReviewVersions = "ConversionReviewV1"
	lintNoneDrops      = "NoneConversionDrops"
	lintNoneType       = "NoneConversionType"
	lintNoneRequires   = "NoneConversionRequires"
)

// OfStrategyNone reports whether the finding is about the effect of the conversion strategy None on objects. Such a
// finding does not matter if a ConversionPolicy converts the objects.
func (f Finding) OfStrategyNone() bool {
	return f.Rule == lintNoneDrops || f.Rule == lintNoneType || f.Rule == lintNoneRequires
}

// lint returns probable mistakes in a definition, and errors because of which the API server does not establish it. The
// findings have no particular order.
func lint(m manifest) []Finding {
	crd := m.v1
	l := &linter{established: apiextensions.IsCRDConditionTrue(m.internal, apiextensions.Established)}
	for i := range crd.Spec.Versions {
		if s := schemaOf(&crd.Spec.Versions[i]); s != nil {
			l.schema(s, schemaPath(i), schemaContext{root: true})
		}
	}
	l.conversion(crd)
	return l.found
}

// linter collects findings.
type linter struct {
	// established is true if the API server already serves the definition.
	established bool
	found       []Finding
}

func (l *linter) warnf(rule, path, format string, args ...any) {
	l.found = append(l.found, Finding{Path: path, Message: fmt.Sprintf(format, args...), Severity: Warning, Rule: rule})
}

// schemaContext describes the position of a schema in a definition.
type schemaContext struct {
	// root is true for the schema of the resource itself.
	root bool
	// nested is true inside allOf, anyOf, oneOf and not.
	nested bool
	// preserved is true if an array around the schema keeps unknown fields of its items.
	preserved bool
}

// schema checks a schema and all schemas inside it.
func (l *linter) schema(s *apiextensionsv1.JSONSchemaProps, at string, c schemaContext) {
	if s.XIntOrString && s.Type != "" && !c.nested {
		l.warnf(lintIntOrString, at+".type",
			"has no effect beside x-kubernetes-int-or-string, which accepts only integers and strings; remove type: %s", s.Type)
	}
	if s.Format != "" {
		format := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
		for range validation.GetUnrecognizedFormats(format, environment.DefaultCompatibilityVersion()) {
			l.warnf(lintFormat, at+".format", "unrecognized format %q", s.Format)
		}
	}
	if items := itemsOf(s); items != nil && s.XListType != nil && *s.XListType == "set" && (items.Type == "object" || items.Type == "array") {
		l.warnf(lintSet, at+".x-kubernetes-list-type",
			"x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules", items.Type)
	}
	if items, ok := s.Properties["items"]; ok && c.root && items.Type == "array" {
		l.warnf(lintItems, property(at, "items"),
			"is at the root, where the server treats an object with an array items as a list, and answers its write with 500; put it into spec, or rename it")
	}
	l.required(s, at, c)
	l.values(s, at, c)
	eachSchema(s, at, func(child *apiextensionsv1.JSONSchemaProps, path string, kind childKind) {
		l.schema(child, path, schemaContext{
			nested:    c.nested || kind == childNested,
			preserved: kind == childItems && (c.preserved || keepsUnknown(s)),
		})
	})
}

// required reports required fields that pruning removes.
func (l *linter) required(s *apiextensionsv1.JSONSchemaProps, at string, c schemaContext) {
	if c.nested || c.preserved || s.Type != "object" || keepsUnknown(s) || s.AdditionalProperties != nil {
		return
	}
	for i, name := range s.Required {
		if _, ok := s.Properties[name]; ok || (c.root || s.XEmbeddedResource) && isMeta(name) {
			continue
		}
		l.warnf(lintRequired, fmt.Sprintf("%s.required[%d]", at, i), "%q is required but not among properties, so it is pruned and no object is valid%s",
			name, hint(nearest(name, slices.Sorted(maps.Keys(s.Properties)))))
	}
}

func hint(near string) string {
	if near == "" {
		return ""
	}
	return "; did you mean " + near + "?"
}

// conversion checks the conversion between versions.
func (l *linter) conversion(crd *apiextensionsv1.CustomResourceDefinition) {
	conversion := crd.Spec.Conversion
	if conversion.Strategy == apiextensionsv1.NoneConverter {
		l.none(crd.Spec.Versions)
		return
	}
	if conversion.Webhook == nil {
		return
	}
	at := "spec.conversion.webhook"
	if config := conversion.Webhook.ClientConfig; config != nil {
		l.authority(config.CABundle, at+".clientConfig.caBundle")
	}
	if versions := conversion.Webhook.ConversionReviewVersions; slices.Contains(versions, "v1beta1") && !slices.Contains(versions, "v1") {
		l.warnf(lintReviewVersions, at+".conversionReviewVersions",
			"lacks v1: the server checks neither uid nor apiVersion in answers to v1beta1 reviews; put v1 first if the webhook supports it")
	}
}

// authority checks the caBundle of the conversion webhook. The API server does not establish a definition with a bundle
// that it cannot parse, such as white space. It continues to serve a definition that is already established.
func (l *linter) authority(bundle []byte, at string) {
	switch {
	case len(bundle) == 0 || x509.NewCertPool().AppendCertsFromPEM(bundle):
	case !l.established:
		l.found = append(l.found, Finding{
			Path: at, Severity: Error, Rule: lintCABundle,
			Message: "holds no certificate in PEM: the server accepts the definition, but does not establish it (InvalidCABundle) until there is one; " +
				"want the " +
				"base64 of one that begins with -----BEGIN CERTIFICATE-----, or leave caBundle out if something else writes it",
		})
	case strings.TrimSpace(string(bundle)) != "": // In conversions, white space counts as an empty bundle.
		l.warnf(lintCABundle, at,
			"holds no certificate in PEM, so that every conversion fails; want the base64 of one that begins with -----BEGIN CERTIFICATE-----")
	}
}

// none compares the storage version with each other served version, for a definition with the conversion strategy None.
func (l *linter) none(versions []apiextensionsv1.CustomResourceDefinitionVersion) {
	stored := slices.IndexFunc(versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if stored < 0 {
		return
	}
	a := side{version: versions[stored].Name, schema: schemaOf(&versions[stored]), path: schemaPath(stored), stored: true, served: versions[stored].Served}
	for i := range versions {
		v := &versions[i]
		b := side{version: v.Name, schema: schemaOf(v), path: schemaPath(i), served: v.Served}
		if i != stored && v.Served && a.schema != nil && b.schema != nil {
			l.members(a, b, true)
		}
	}
}

// side is a schema in one of two compared versions.
type side struct {
	version        string
	schema         *apiextensionsv1.JSONSchemaProps
	path           string
	stored, served bool
}

func (s side) in(schema *apiextensionsv1.JSONSchemaProps, path string) side {
	s.schema, s.path = schema, path
	return s
}

// compare checks a field that both versions have. Findings have the path in b.
func (l *linter) compare(a, b side) {
	typeA, typeB := typeOf(a.schema), typeOf(b.schema)
	if typeA != typeB && typeA != "" && typeB != "" {
		l.warnf(lintNoneType, b.path, "is %s here and %s in %s, and the conversion strategy is None: it is served as it is stored",
			typeB, typeA, a.version)
		return
	}
	l.members(a, b, false)
	itemsA, itemsB := itemsOf(a.schema), itemsOf(b.schema)
	if itemsA != nil && itemsB != nil && !keepsUnknown(a.schema) && !keepsUnknown(b.schema) {
		l.compare(a.in(itemsA, a.path+".items"), b.in(itemsB, b.path+".items"))
	}
	valuesA, valuesB := valuesOf(a.schema), valuesOf(b.schema)
	if valuesA != nil && valuesB != nil {
		l.compare(a.in(valuesA, a.path+".additionalProperties"), b.in(valuesB, b.path+".additionalProperties"))
	}
}

// members checks the fields of an object that both versions have.
func (l *linter) members(a, b side, root bool) {
	for _, name := range slices.Sorted(maps.Keys(a.schema.Properties)) {
		if root && isMeta(name) {
			continue
		}
		propertyA, propertyB := a.schema.Properties[name], b.schema.Properties[name]
		if _, ok := b.schema.Properties[name]; ok {
			l.compare(a.in(&propertyA, property(a.path, name)), b.in(&propertyB, property(b.path, name)))
		} else {
			l.missing(a, b, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.schema.Properties)) {
		if _, ok := a.schema.Properties[name]; !ok && (!root || !isMeta(name)) {
			l.missing(b, a, name)
		}
	}
}

// missing checks a field that one version has and the other lacks.
func (l *linter) missing(has, lacks side, name string) {
	if keepsUnknown(lacks.schema) || lacks.schema.AdditionalProperties != nil {
		return
	}
	at := property(has.path, name)
	if slices.Contains(has.schema.Required, name) && has.schema.Properties[name].Default == nil && has.served {
		l.warnf(lintNoneRequires, at, "is required here and unknown to %s, and the conversion strategy is None: an object that was %s is invalid here",
			lacks.version, lacks.use())
		return
	}
	if lacks.stored {
		l.warnf(lintNoneDrops, at,
			"is unknown to %s, which objects are stored in, and the conversion strategy is None: it is never stored; "+
				"a ConversionPolicy or a webhook would keep it", lacks.version)
		return
	}
	l.warnf(lintNoneDrops, at,
		"is unknown to %s, and the conversion strategy is None: a client that reads and writes an object there drops it; "+
			"a ConversionPolicy or a webhook would keep it", lacks.version)
}

// use describes how objects get into the version.
func (s side) use() string {
	if s.stored {
		return "stored"
	}
	return "written there"
}

// property returns the path of a property.
func property(path, name string) string { return path + ".properties[" + name + "]" }

func isMeta(name string) bool { return name == "apiVersion" || name == "kind" || name == "metadata" }

func keepsUnknown(s *apiextensionsv1.JSONSchemaProps) bool {
	return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields
}

func itemsOf(s *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if s.Items == nil {
		return nil
	}
	return s.Items.Schema
}

func valuesOf(s *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if s.AdditionalProperties == nil {
		return nil
	}
	return s.AdditionalProperties.Schema
}

// typeOf returns the type that a schema accepts; "" for any type.
func typeOf(s *apiextensionsv1.JSONSchemaProps) string {
	if s.XIntOrString {
		return "int-or-string"
	}
	return s.Type
}

// childKind is the relation of a schema to its parent.
type childKind int

const (
	childMember childKind = iota
	childItems
	childNested
)

// eachSchema calls f for each schema that is directly inside s.
func eachSchema(s *apiextensionsv1.JSONSchemaProps, at string, f func(child *apiextensionsv1.JSONSchemaProps, path string, kind childKind)) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		child := s.Properties[name]
		f(&child, property(at, name), childMember)
	}
	if items := itemsOf(s); items != nil {
		f(items, at+".items", childItems)
	}
	if values := valuesOf(s); values != nil {
		f(values, at+".additionalProperties", childMember)
	}
	for _, nested := range []struct {
		name string
		all  []apiextensionsv1.JSONSchemaProps
	}{{"allOf", s.AllOf}, {"anyOf", s.AnyOf}, {"oneOf", s.OneOf}} {
		for i := range nested.all {
			f(&nested.all[i], fmt.Sprintf("%s.%s[%d]", at, nested.name, i), childNested)
		}
	}
	if s.Not != nil {
		f(s.Not, at+".not", childNested)
	}
}
