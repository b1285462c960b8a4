package apiserver

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	schemaobjectmeta "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	structuralpruning "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Type is a served resource.
type Type struct {
	// GVR is the group, version and resource in requests.
	GVR schema.GroupVersionResource
	// Kind is the kind of its objects.
	Kind string
	// Namespaced is whether its objects are in namespaces.
	Namespaced bool
	// Status is true if there is a subresource status. Then writes to the resource do not change the status, and writes
	// to the subresource change only the status.
	Status bool
	// Scale is true if there is a subresource scale.
	Scale bool
	// Generation is true if changes outside of metadata and status increment metadata.generation.
	Generation bool
	// Schema is the schema of a custom resource. It is nil for types of client-go.
	Schema *Schema
	// Verbs are the allowed verbs; nil allows all.
	Verbs []string

	made *machinery // Prepared by FromCRD and BuiltIn.
}

// Schema is the schema of one version of a CustomResourceDefinition.
type Schema struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	status     validation.SchemaValidator
	rules      func() *cel.Validator
	fields     managedfields.TypeConverter
	// storage is the storage version; short are the short names.
	storage string
	short   []string
	list    string // Kind of lists.
	single  string
}

// machinery handles objects of a type. Servers share it.
type machinery struct {
	typ Type
	gvk schema.GroupVersionKind
	// storage is the version of stored objects.
	storage schema.GroupVersion
	// main tracks the owners of fields for writes to the resource, status for writes to its subresource status.
	main, status *managedfields.FieldManager
	fields       managedfields.TypeConverter
	builtin      *rules // Nil for custom resources.
}

func (t *Type) verbs() []string {
	if t.Verbs != nil {
		return t.Verbs
	}
	return allVerbs
}

var allVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

func (t *Type) can(verb string) bool { return t.Verbs == nil || slices.Contains(t.Verbs, verb) }

func (t *Type) gvk() schema.GroupVersionKind { return t.GVR.GroupVersion().WithKind(t.Kind) }

// builtInFields has the schemas of the types of client-go. Parsing them takes a tenth of a second.
var builtInFields = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(scheme.Scheme) })

// deduced is the converter for types without a schema.
var deduced = managedfields.NewDeducedTypeConverter()

// machine returns the machinery of a type.
func (t *Type) machine() *machinery {
	if t.made != nil && t.made.typ.same(t) {
		return t.made
	}
	m := &machinery{typ: *t, gvk: t.gvk(), storage: t.GVR.GroupVersion(), fields: deduced}
	create := managedfields.NewDefaultCRDFieldManager
	switch {
	case t.Schema != nil:
		m.fields = t.Schema.fields
		m.storage.Version = t.Schema.storage
	case known.Recognizes(m.gvk):
		if scheme.Scheme.Recognizes(m.gvk) {
			m.fields = builtInFields()
		}
		m.builtin = rulesOf(t.GVR.GroupResource())
		create = managedfields.NewDefaultFieldManager
	}
	var err error
	main, status := m.reset()
	if m.main, err = create(m.fields, converter{m}, defaulter{m}, creator{m}, m.gvk, m.storage, "", main); err != nil {
		panic(err) // Only a missing type converter is an error.
	}
	if m.status, err = create(m.fields, converter{m}, defaulter{m}, creator{m}, m.gvk, m.storage, "status", status); err != nil {
		panic(err)
	}
	return m
}

func (t *Type) same(o *Type) bool {
	return t.GVR == o.GVR && t.Kind == o.Kind && t.Status == o.Status && t.Schema == o.Schema && t.Generation == o.Generation
}

// reset returns the fields that a write cannot change: main for writes to the resource, status for writes to its
// subresource status.
func (m *machinery) reset() (main, status map[fieldpath.APIVersion]fieldpath.Filter) {
	if !m.typ.Status {
		return nil, nil
	}
	v := fieldpath.APIVersion(m.gvk.GroupVersion().String())
	sets := fieldpath.NewSet(fieldpath.MakePathOrDie("spec"))
	switch {
	case m.builtin == nil:
		sets.Insert(fieldpath.MakePathOrDie("metadata"))
	case m.builtin.statusKeepsLabels:
		sets.Insert(fieldpath.MakePathOrDie("metadata", "labels"))
	}
	return fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{v: fieldpath.NewSet(fieldpath.MakePathOrDie("status"))}),
		fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{v: sets})
}

// converter converts custom resources as the API server does without a conversion webhook: it only changes the
// apiVersion.
type converter struct{ m *machinery }

var _ runtime.ObjectConvertor = converter{}

func (c converter) Convert(_, _, _ any) error { return errors.New("only whole objects are converted") }

func (c converter) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is not converted", in)
	}
	gvk := u.GroupVersionKind()
	want, ok := to.KindForGroupVersionKinds([]schema.GroupVersionKind{gvk})
	if !ok {
		return nil, runtime.NewNotRegisteredErrForTarget("", nil, to)
	}
	if want == gvk || gvk.Empty() {
		return in, nil
	}
	if gv, ok := to.(schema.GroupVersion); ok {
		want = gv.WithKind(gvk.Kind)
	}
	return &unstructured.Unstructured{Object: inVersion(u.Object, want.GroupVersion().String())}, nil
}

func (c converter) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// inVersion returns the object with another apiVersion. Both objects share all other values.
func inVersion(o map[string]any, version string) map[string]any {
	if o["apiVersion"] == version {
		return o
	}
	c := maps.Clone(o)
	c["apiVersion"] = version
	return c
}

type defaulter struct{ m *machinery }

func (d defaulter) Default(in runtime.Object) {
	// normal sets the defaults of built-in types.
	if u, ok := in.(*unstructured.Unstructured); ok && d.m.builtin == nil {
		d.m.setDefaults(u.Object)
	}
}

type creator struct{ m *machinery }

func (c creator) New(schema.GroupVersionKind) (runtime.Object, error) { return c.m.nothing(), nil }

// setDefaults sets the defaults of the type.
func (m *machinery) setDefaults(o map[string]any) {
	switch {
	case m.typ.Schema != nil && m.typ.Schema.structural != nil:
		structuraldefaulting.Default(o, m.typ.Schema.structural)
	case m.builtin != nil && m.builtin.defaults != nil:
		m.builtin.defaults(o)
	}
}

// normal returns the object without unknown fields, and with defaults.
func (m *machinery) normal(o map[string]any) (map[string]any, error) {
	o["apiVersion"], o["kind"] = m.gvk.GroupVersion().String(), m.gvk.Kind
	switch {
	case m.typ.Schema != nil:
		if err := m.prune(o); err != nil {
			return nil, err
		}
	case known.Recognizes(m.gvk):
		typed, err := known.New(m.gvk)
		if err != nil {
			return nil, err
		}
		// The conversion skips managedFields, the largest part of many objects.
		meta, _ := o["metadata"].(map[string]any)
		fields, owned := meta["managedFields"]
		delete(meta, "managedFields")
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, typed); err != nil {
			return nil, err
		}
		if o, err = plain(typed, m.gvk); err != nil {
			return nil, err
		}
		if owned {
			sub(o, "metadata")["managedFields"] = fields
		}
	}
	m.setDefaults(o)
	return o, nil
}

// plain returns a typed object as a map.
func plain(typed runtime.Object, gvk schema.GroupVersionKind) (map[string]any, error) {
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, err
	}
	o["apiVersion"], o["kind"] = gvk.GroupVersion().String(), gvk.Kind
	if meta, ok := o["metadata"].(map[string]any); ok && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	return o, nil
}

func (m *machinery) prune(o map[string]any) error {
	meta, found, err := schemaobjectmeta.GetObjectMeta(o, false)
	if err != nil {
		return err
	}
	if s := m.typ.Schema.structural; s != nil {
		structuralpruning.Prune(o, s, true)
		structuraldefaulting.PruneNonNullableNullsWithoutDefaults(o, s)
		if err := schemaobjectmeta.Coerce(nil, o, s, false, false); err != nil {
			return err
		}
	}
	o["apiVersion"], o["kind"] = m.gvk.GroupVersion().String(), m.gvk.Kind
	if found {
		if err := schemaobjectmeta.SetObjectMeta(o, meta); err != nil {
			return err
		}
		if meta, ok := o["metadata"].(map[string]any); ok && meta["creationTimestamp"] == nil {
			delete(meta, "creationTimestamp")
		}
	}
	return nil
}

const reference = "#/components/schemas/"

var objectMeta = metav1.ObjectMeta{}.OpenAPIModelName()

// metadataModels returns the schemas of metadata.
func metadataModels() map[string]*spec.Schema {
	all := generatedopenapi.GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef(reference + common.EscapeJsonPointer(name)) })
	models := map[string]*spec.Schema{}
	var add func(name string)
	add = func(name string) {
		if models[name] != nil {
			return
		}
		d := all[name]
		models[name] = &d.Schema
		for _, dependency := range d.Dependencies {
			add(dependency)
		}
	}
	add(objectMeta)
	return models
}

// embedded adds the schema of metadata to embedded objects.
func embedded(s *spec.Schema) {
	for name, property := range s.Properties {
		embedded(&property)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		embedded(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		embedded(s.AdditionalProperties.Schema)
	}
	if is, ok := s.Extensions.GetBool("x-kubernetes-embedded-resource"); ok && is {
		s.SetProperty("metadata", *spec.RefSchema(reference + objectMeta))
		s.SetProperty("apiVersion", *spec.StringProperty())
		s.SetProperty("kind", *spec.StringProperty())
	}
}

var (
	crdMu   sync.Mutex
	crdSeen = map[[sha256.Size]byte][]Type{}
)

// FromCRD returns the served types of a CustomResourceDefinition, one for each version. They share their storage. It
// panics if an API server would reject the definition.
func FromCRD(crd *apiextensionsv1.CustomResourceDefinition) []Type {
	text, err := json.Marshal(crd)
	if err != nil {
		panic(err)
	}
	key := sha256.Sum256(text)
	crdMu.Lock()
	defer crdMu.Unlock()
	if all, ok := crdSeen[key]; ok {
		return slices.Clone(all)
	}
	all, err := fromCRD(crd.DeepCopy())
	if err != nil {
		panic(fmt.Errorf("CustomResourceDefinition %s: %w", crd.Name, err))
	}
	crdSeen[key] = all
	return slices.Clone(all)
}

func fromCRD(crd *apiextensionsv1.CustomResourceDefinition) ([]Type, error) {
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
		return nil, err
	}
	names := crd.Spec.Names
	schemas, models := map[string]*Schema{}, metadataModels()
	storage := ""
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			storage = v.Name
		}
		known, err := apiextensions.GetSchemaForVersion(internal, v.Name)
		if err != nil {
			return nil, err
		}
		s := &Schema{short: names.ShortNames, list: names.ListKind, single: names.Singular}
		if known != nil && known.OpenAPIV3Schema != nil {
			if err := s.read(known.OpenAPIV3Schema); err != nil {
				return nil, err
			}
		}
		schemas[v.Name] = s
		model := s.model()
		model.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": crd.Spec.Group, "version": v.Name, "kind": names.Kind}})
		models[crd.Spec.Group+"."+v.Name+"."+names.Kind] = model
	}
	fields, err := managedfields.NewTypeConverter(models, crd.Spec.PreserveUnknownFields)
	if err != nil {
		return nil, err
	}
	var all []Type
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		t := Type{
			GVR:  schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: names.Plural},
			Kind: names.Kind, Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, Generation: true, Schema: schemas[v.Name],
		}
		t.Schema.fields, t.Schema.storage = fields, storage
		if v.Subresources != nil {
			t.Status, t.Scale = v.Subresources.Status != nil, v.Subresources.Scale != nil
		}
		t.made = t.machine()
		all = append(all, t)
	}
	return all, nil
}

// read sets the schema of a version.
func (s *Schema) read(from *apiextensions.JSONSchemaProps) error {
	structural, err := structuralschema.NewStructural(from)
	if err != nil {
		return err
	}
	if err := structuraldefaulting.PruneDefaults(structural); err != nil {
		return err
	}
	s.structural = structural
	// The compilation of CEL rules is slow, and most types are never written.
	s.rules = sync.OnceValue(func() *cel.Validator { return cel.NewValidator(structural, true, celconfig.PerCallLimit) })
	if status, ok := from.Properties["status"]; ok {
		if s.status, _, err = validation.NewSchemaValidator(&status); err != nil {
			return err
		}
	}
	s.validator, _, err = validation.NewSchemaValidator(from)
	return err
}

// model returns the schema for the tracking of field owners.
func (s *Schema) model() *spec.Schema {
	if s.structural == nil {
		return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	}
	model := s.structural.ToKubeOpenAPI()
	model.SetProperty("metadata", *spec.RefSchema(reference + objectMeta))
	model.SetProperty("apiVersion", *spec.StringProperty())
	model.SetProperty("kind", *spec.StringProperty())
	embedded(model)
	return model
}
