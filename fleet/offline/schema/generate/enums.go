package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// readEnums adds the values of enumerations to types. The Go code has a function for each type that returns its schema
// as a literal, such as schema_k8sio_api_core_v1_Container for io.k8s.api.core.v1.Container.
func readEnums(file string, types map[string]*definition) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("reading the schemas in Go: %w", err)
	}
	found := 0
	for _, decl := range parsed.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name, ok := strings.CutPrefix(f.Name.Name, "schema_k8sio_api_")
		if !ok {
			continue
		}
		// Some functions are for types that no document has.
		d, ok := types["io.k8s.api."+strings.ReplaceAll(name, "_", ".")]
		if !ok {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			key, s, ok := property(n)
			if !ok {
				return true
			}
			p, declared := d.Properties[key]
			if values := enum(s); declared && len(values) > 0 {
				d.Properties[key] = withEnum(p, values)
				found++
			}
			return false
		})
	}
	if found == 0 {
		return errors.New("the schemas in Go have no enumerations")
	}
	return nil
}

// property returns the name and the schema of a property.
func property(n ast.Node) (string, *ast.CompositeLit, bool) {
	pair, ok := n.(*ast.KeyValueExpr)
	if !ok {
		return "", nil, false
	}
	key, isName := pair.Key.(*ast.BasicLit)
	value, isSchema := pair.Value.(*ast.CompositeLit)
	if !isName || !isSchema {
		return "", nil, false
	}
	name, err := strconv.Unquote(key.Value)
	return name, value, err == nil
}

// enum returns the values of the first Enum within a schema, as JSON.
func enum(s *ast.CompositeLit) []apiextensionsv1.JSON {
	var values []apiextensionsv1.JSON
	ast.Inspect(s, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if !ok || values != nil {
			return values == nil
		}
		list, ok := pair.Value.(*ast.CompositeLit)
		if key, isIdent := pair.Key.(*ast.Ident); !ok || !isIdent || key.Name != "Enum" {
			return true
		}
		for _, item := range list.Elts {
			if literal, ok := item.(*ast.BasicLit); ok {
				values = append(values, apiextensionsv1.JSON{Raw: []byte(literal.Value)})
			}
		}
		return false
	})
	return values
}

// withEnum restricts a schema of strings, or of a list or map of strings, to these values.
func withEnum(p apiextensionsv1.JSONSchemaProps, values []apiextensionsv1.JSON) apiextensionsv1.JSONSchemaProps {
	switch {
	case p.Items != nil:
		p.Items.Schema.Enum = values
	case p.AdditionalProperties != nil:
		p.AdditionalProperties.Schema.Enum = values
	default:
		p.Enum = values
	}
	return p
}
