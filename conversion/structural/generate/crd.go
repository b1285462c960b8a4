package generate

import (
	"encoding/json"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// CRD returns the manifest of a CustomResourceDefinition that an API server accepts. Its name is PLURAL.GROUP. The
// first version is the storage version. Some definitions have a second served version with another schema and without
// conversion. Some have a status or scale subresource, and some are cluster-scoped.
func CRD(src Source, name string, o SchemaOptions) map[string]any {
	m := &maker{choices: choices{src}, options: o.withDefaults()}
	plural, group, _ := strings.Cut(name, ".")
	kind := strings.ToUpper(plural[:1]) + plural[1:]
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: plural + "-one", Kind: kind, ListKind: kind + "List"},
			Scope: apiextensionsv1.NamespaceScoped,
		},
	}
	if m.chance(15) {
		crd.Spec.Scope = apiextensionsv1.ClusterScoped
	}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{m.version("v1")}
	crd.Spec.Versions[0].Storage = true
	if m.chance(20) {
		crd.Spec.Versions = append(crd.Spec.Versions, m.version("v1beta1"))
	}
	return manifest(crd)
}

// version returns a served version.
func (m *maker) version(name string) apiextensionsv1.CustomResourceDefinitionVersion {
	sub := &apiextensionsv1.CustomResourceSubresources{}
	if m.chance(40) {
		sub.Status = &apiextensionsv1.CustomResourceSubresourceStatus{}
	}
	schemas := *m
	schemas.options.Status = sub.Status != nil
	root := schemas.root()
	if m.chance(25) {
		sub.Scale = m.scale(&root)
	}
	out := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: name, Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root},
	}
	if sub.Status != nil || sub.Scale != nil {
		out.Subresources = sub
	}
	if m.chance(10) {
		out.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{
			{Name: "Spec", Type: typeString, JSONPath: ".spec"}, {Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
		}
	}
	return out
}

// scale adds the fields of the scale subresource to a schema. They may have any type, because the API server notices a
// wrong type only in objects.
func (m *maker) scale(root *props) *apiextensionsv1.CustomResourceSubresourceScale {
	spec := root.Properties["spec"]
	spec.Properties["replicas"] = draw(m.choices, []weighted[props]{
		{4, props{Type: typeInteger, Format: "int32", Minimum: new(0.0)}}, {1, props{Type: typeInteger}}, {1, props{XIntOrString: true}},
	})
	spec.MaxProperties = nil
	// These restrictions may not fit the new property.
	spec.XValidations, spec.AnyOf, spec.OneOf, spec.AllOf, spec.Not, spec.Default = nil, nil, nil, nil, nil, nil
	root.Properties["spec"] = spec
	root.XValidations, root.AnyOf, root.OneOf, root.AllOf, root.Not = nil, nil, nil, nil, nil
	out := &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"}
	if m.chance(50) {
		out.LabelSelectorPath = new(".status.selector")
	}
	return out
}

// manifest returns a definition in the form that a decoded file has. Empty fields are omitted.
func manifest(crd *apiextensionsv1.CustomResourceDefinition) map[string]any {
	raw, err := json.Marshal(crd)
	if err != nil {
		panic(fmt.Errorf("writing a definition: %w", err)) // Cannot happen: all values are JSON values.
	}
	var out map[string]any
	if err := utiljson.Unmarshal(raw, &out); err != nil {
		panic(fmt.Errorf("reading a definition: %w", err))
	}
	delete(out, "status")
	return out
}
