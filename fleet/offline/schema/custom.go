package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// add adds the types of a definition.
func (s *Schemas) add(object *unstructured.Unstructured) error {
	want := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	if gvk := object.GroupVersionKind(); gvk != want {
		return fmt.Errorf("is %s in %s, want %s in %s", gvk.Kind, gvk.GroupVersion(), want.Kind, want.GroupVersion())
	}
	data, err := json.Marshal(object.Object)
	if err != nil {
		return fmt.Errorf("encoding it: %w", err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(data, &crd); err != nil {
		return fmt.Errorf("decoding it: %w", err)
	}

	var problems []error
	for _, version := range crd.Spec.Versions {
		gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
		if !version.Served {
			continue
		}
		if s.root(gvk) != nil {
			problems = append(problems, fmt.Errorf("version %s: %s is defined already", version.Name, gvk.Kind))
			continue
		}
		root, err := s.compileRoot(&version, crd.Spec.PreserveUnknownFields)
		if err != nil {
			problems = append(problems, fmt.Errorf("version %s: schema: %w", version.Name, err))
			continue
		}
		s.custom[gvk] = root
	}
	return errors.Join(problems...)
}

// compileRoot compiles the shape of the objects of a version. It adds the metadata of every object, which the schema
// leaves out.
func (s *Schemas) compileRoot(version *apiextensionsv1.CustomResourceDefinitionVersion, open bool) (*shape, error) {
	props := &apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}
	if version.Schema != nil && version.Schema.OpenAPIV3Schema != nil {
		props = version.Schema.OpenAPIV3Schema
	}
	c := compiler{
		resolve: func(name string) (*shape, error) {
			return nil, fmt.Errorf("$ref: is %q, which a CustomResourceDefinition cannot have", name)
		},
		objectMeta: s.builtin.shape(objectMeta),
	}
	root := &shape{}
	if err := c.compile(props, root); err != nil {
		return nil, err
	}
	if err := c.addIdentity(props, root); err != nil {
		return nil, err
	}
	root.open = root.open || open
	if root.members["status"] != nil {
		root.members["status"] = &shape{open: true}
	}
	root.Required = slices.DeleteFunc(slices.Clone(root.Required), func(name string) bool { return name == "status" })
	return root, nil
}
