package main

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const (
	meta          = "io.k8s.apimachinery.pkg.apis.meta.v1."
	core          = "io.k8s.api.core.v1."
	apiextensions = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
)

var (
	yes      = true
	anything = apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: &yes}
)

// special are the types with a syntax of their own, which is implemented by their Go types and not described by
// OpenAPI.
var special = map[string]apiextensionsv1.JSONSchemaProps{
	"io.k8s.apimachinery.pkg.api.resource.Quantity":   {Format: "quantity"},
	"io.k8s.apimachinery.pkg.util.intstr.IntOrString": {XIntOrString: true},
	"io.k8s.apimachinery.pkg.runtime.RawExtension":    anything,
	meta + "Time":                                  {Type: "string", Format: "date-time"},
	meta + "MicroTime":                             {Type: "string", Format: "micro-time"},
	meta + "FieldsV1":                              anything,
	apiextensions + "JSON":                         anything,
	apiextensions + "JSONSchemaPropsOrArray":       anything,
	apiextensions + "JSONSchemaPropsOrBool":        anything,
	apiextensions + "JSONSchemaPropsOrStringArray": anything,
}

// notRequired lists, by type, the members that OpenAPI calls required although an API server accepts their absence as
// empty or zero. OpenAPI follows the tags of Go fields, an API server its validation code (pkg/apis/*/validation in
// k8s.io/kubernetes).
var notRequired = map[string][]string{
	apiextensions + "CustomResourceDefinitionVersion": {"served", "storage"},
	core + "Event":                                           {"metadata", "involvedObject"},
	core + "EvictionResponder":                               {"priority"},
	core + "HTTPHeader":                                      {"value"},
	core + "ISCSIPersistentVolumeSource":                     {"lun"},
	core + "ISCSIVolumeSource":                               {"lun"},
	core + "LimitRangeSpec":                                  {"limits"},
	core + "PreferredSchedulingTerm":                         {"preference"},
	core + "ScaleIOPersistentVolumeSource":                   {"secretRef"},
	core + "ScaleIOVolumeSource":                             {"secretRef"},
	core + "SleepAction":                                     {"seconds"},
	core + "Sysctl":                                          {"value"},
	meta + "GroupResource":                                   {"group"}, // The core group has no name.
	"io.k8s.api.apiserverinternal.v1alpha1.StorageVersion":   {"metadata"},
	"io.k8s.api.apps.v1.ControllerRevision":                  {"data"},
	"io.k8s.api.authorization.v1.SelfSubjectRulesReview":     {"spec"},
	"io.k8s.api.batch.v1.PodFailurePolicy":                   {"rules"},
	"io.k8s.api.resource.v1.Counter":                         {"value"},
	"io.k8s.api.resource.v1.DeviceCapacity":                  {"value"},
	"io.k8s.api.resource.v1.ResourcePool":                    {"generation"},
	"io.k8s.api.resource.v1alpha3.ResourcePoolStatusRequest": {"metadata"},
	"io.k8s.api.resource.v1beta1.Counter":                    {"value"},
	"io.k8s.api.resource.v1beta1.DeviceCapacity":             {"value"},
	"io.k8s.api.resource.v1beta1.ResourcePool":               {"generation"},
	"io.k8s.api.resource.v1beta2.Counter":                    {"value"},
	"io.k8s.api.resource.v1beta2.DeviceCapacity":             {"value"},
	"io.k8s.api.resource.v1beta2.ResourcePool":               {"generation"},
	"io.k8s.api.storage.v1.CSIDriver":                        {"spec"},
	"io.k8s.api.storage.v1.CSINodeSpec":                      {"drivers"},
}

// reduceKind allows any status of a kind, because only a server writes it.
func reduceKind(s *apiextensionsv1.JSONSchemaProps) {
	if _, ok := s.Properties["status"]; ok {
		s.Properties["status"] = anything
	}
	s.Required = slices.DeleteFunc(s.Required, func(name string) bool { return name == "status" })
}

// reduce removes the parts of a schema that checks do not need, and returns the names of the types that the schema
// refers to.
func reduce(s *apiextensionsv1.JSONSchemaProps) []string {
	if len(s.AllOf) == 1 && s.AllOf[0].Ref != nil {
		s.Ref, s.AllOf = s.AllOf[0].Ref, nil // OpenAPI uses this form for a reference with a default.
	}
	s.Description, s.XMapType = "", nil
	if s.XListType != nil && *s.XListType == "atomic" {
		s.XListType = nil
	}
	if s.Default != nil && slices.Contains([]string{`""`, "0", "false", "{}"}, string(s.Default.Raw)) {
		s.Default = nil // This is the zero value of the Go type, which an absent member has anyway.
	}
	if s.Ref != nil {
		name := (*s.Ref)[strings.LastIndex(*s.Ref, "/")+1:]
		*s = apiextensionsv1.JSONSchemaProps{Ref: &name}
		return []string{name}
	}

	var refs []string
	for key, p := range s.Properties {
		refs = append(refs, reduce(&p)...)
		s.Properties[key] = p
	}
	if s.Items != nil {
		refs = append(refs, reduce(s.Items.Schema)...)
	}
	if s.AdditionalProperties != nil {
		refs = append(refs, reduce(s.AdditionalProperties.Schema)...)
	}
	return refs
}
