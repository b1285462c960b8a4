package structural

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const ruleUnknown = "UnknownField"

// Types whose JSON does not correspond to their Go fields.
var (
	schemaType        = reflect.TypeFor[apiextensionsv1.JSONSchemaProps]()
	schemaOrArrayType = reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray]()
	schemaOrBoolType  = reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrBool]()
	schemaOrNamesType = reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrStringArray]()
	unmarshalerType   = reflect.TypeFor[json.Unmarshaler]()
)

// moved has the field of v1 for each field of apiextensions.k8s.io/v1beta1 that v1 has at another place.
var moved = map[string]string{
	"spec.version":                             "spec.versions[*].name",
	"spec.validation":                          "spec.versions[*].schema",
	"spec.subresources":                        "spec.versions[*].subresources",
	"spec.additionalPrinterColumns":            "spec.versions[*].additionalPrinterColumns",
	"spec.selectableFields":                    "spec.versions[*].selectableFields",
	"spec.conversion.webhookClientConfig":      "spec.conversion.webhook.clientConfig",
	"spec.conversion.conversionReviewVersions": "spec.conversion.webhook.conversionReviewVersions",
}

// unknownFields returns the fields of a manifest that a CustomResourceDefinition does not have.
func unknownFields(crd map[string]any) []Finding {
	var u unknowns
	u.visit(crd, reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](), nil)
	return u.found
}

// unknowns collects members of objects for which the Go type has no field.
type unknowns struct{ found []Finding }

// visit compares a value with the Go type of its place. It ignores values of a wrong type, which the decoder reports.
func (u *unknowns) visit(value any, t reflect.Type, at *field.Path) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := value.(type) {
	case map[string]any:
		u.object(v, t, at)
	case []any:
		u.array(v, t, at)
	}
}

func (u *unknowns) array(v []any, t reflect.Type, at *field.Path) {
	var element reflect.Type
	switch {
	case t == schemaOrArrayType:
		element = schemaType
	case t.Kind() == reflect.Slice:
		element = t.Elem()
	default:
		return
	}
	for i, e := range v {
		u.visit(e, element, at.Index(i))
	}
}

func (u *unknowns) object(v map[string]any, t reflect.Type, at *field.Path) {
	switch {
	case t == schemaOrArrayType, t == schemaOrBoolType, t == schemaOrNamesType:
		u.members(v, fieldsOf(schemaType), at)
	case reflect.PointerTo(t).Implements(unmarshalerType):
		// Any JSON, or a value without members.
	case t.Kind() == reflect.Map:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			u.visit(v[key], t.Elem(), at.Key(key))
		}
	case t.Kind() == reflect.Struct:
		u.members(v, fieldsOf(t), at)
	}
}

func (u *unknowns) members(v map[string]any, fields map[string]reflect.Type, at *field.Path) {
	for _, key := range slices.Sorted(maps.Keys(v)) {
		child := field.NewPath(key)
		if at != nil {
			child = at.Child(key)
		}
		if t, ok := fields[key]; ok {
			u.visit(v[key], t, child)
			continue
		}
		path := child.String()
		message := fmt.Sprintf("unknown field %q", key)
		if near := nearest(key, slices.Sorted(maps.Keys(fields))); moved[path] != "" {
			message += "; apiextensions.k8s.io/v1 has it as " + moved[path]
		} else if near != "" {
			message += "; did you mean " + near + "?"
		}
		u.found = append(u.found, Finding{Path: path, Message: message, Severity: Error, Rule: ruleUnknown})
	}
}

// fieldsOf returns the fields of a struct by their JSON names.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && (f.Anonymous || strings.Contains(options, "inline")):
			maps.Copy(fields, fieldsOf(f.Type))
		case name != "" && name != "-":
			fields[name] = f.Type
		}
	}
	return fields
}

// nearest returns the candidate that is most similar to name; of several equally similar ones, the first. It returns ""
// if more than a third of the letters plus one would have to change.
func nearest(name string, candidates []string) string {
	best, least := "", len(name)/3+2
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance returns the Levenshtein distance of a and b, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := corner
			if a[i] != b[j] {
				replaced++
			}
			corner = row[j+1]
			row[j+1] = min(replaced, corner+1, row[j]+1)
		}
	}
	return row[len(b)]
}
