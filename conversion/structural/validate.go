package structural

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

const (
	// anyNamespace is the namespace for an object that has none.
	anyNamespace = "default"
	// anyResourceVersion stands for the resourceVersion that the API server assigns.
	anyResourceVersion = "1"
	// anySuffix stands for the letters that the API server appends to generateName.
	anySuffix = "00000"
	// generateNameLength is the number of letters of generateName that the API server uses.
	//
	// Source: k8s.io/apiserver/pkg/storage/names, maxGeneratedNameLength.
	generateNameLength = 63 - len(anySuffix)

	// declarativeValidation is the default of the feature gate DeclarativeValidationBeta.
	declarativeValidation = true

	skippedRules = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
)

// Validate returns the errors of the API server for the creation of obj. They are in the order of the API server:
// metadata, schema, scale, embedded resources, list sets and maps, CEL rules; each of these groups is sorted by path.
// Validate does not decode obj: see [Version.Decode]. Fields that the API server sets may be absent, such as a
// namespace (here: default) or a name for a generateName. nil means no findings.
//
// After some errors the API server skips CEL rules. The findings then have the sentence that the API server adds in
// this case.
func (v *Version) Validate(obj map[string]any) []Finding {
	obj = v.completed(obj, nil)
	var r report
	if errs := v.typeMeta(obj); len(errs) > 0 {
		r.add(errs)
	} else {
		r.add(v.createMeta(obj))
		r.add(validation.ValidateCustomResource(nil, obj, v.validator))
		r.add(v.scale(obj))
	}
	r.add(objectmeta.Validate(context.Background(), nil, obj, v.structural, false))
	r.add(listtype.ValidateListSetsAndMaps(nil, v.structural, obj))
	r.add(v.celRules(r.blocked, obj, nil))
	return r.findings
}

// ValidateUpdate returns the errors of the API server for the replacement of old by obj, in the order of
// [Version.Validate]. Both objects must have this version. An invalid value that has not changed is not an error if the
// API server tolerates it
// (https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-ratcheting).
// CEL rules may use oldSelf.
func (v *Version) ValidateUpdate(obj, old map[string]any) []Finding {
	old = v.completed(old, nil)
	obj = v.completed(obj, old)
	correlated := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: v.structural})
	var r report
	r.note(v.commonMeta(obj, old))
	if errs := v.typeMeta(obj); len(errs) > 0 {
		r.add(errs)
	} else {
		r.add(v.updateMeta(obj, old))
		r.add(validation.ValidateCustomResourceUpdate(nil, obj, old, v.validator, validation.WithRatcheting(correlated)))
		r.add(v.scale(obj))
	}
	r.add(objectmeta.Validate(context.Background(), nil, obj, v.structural, false))
	if len(listtype.ValidateListSetsAndMaps(nil, v.structural, old)) == 0 {
		r.add(listtype.ValidateListSetsAndMaps(nil, v.structural, obj))
	}
	r.add(v.celRules(r.blocked, obj, old, cel.WithRatcheting(correlated)))
	return r.findings
}

// report collects the findings of all stages.
type report struct {
	findings []Finding
	// blocked is true if an earlier error prevents the evaluation of CEL rules.
	blocked bool
}

// blocking are the types of errors that prevent the evaluation of CEL rules.
//
// Source: hasBlockingErr of the API server's customResourceStrategy.
var blocking = []field.ErrorType{
	field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
}

// add appends the errors of a stage, and notes whether one of them is blocking.
func (r *report) add(errs field.ErrorList) {
	for _, err := range errs {
		r.blocked = r.blocked || slices.Contains(blocking, err.Type)
	}
	r.note(errs)
}

// note appends errors in the usual order. It omits errors that are already in the report.
func (r *report) note(errs field.ErrorList) {
	for _, f := range findings(errs) {
		if !slices.Contains(r.findings, f) {
			r.findings = append(r.findings, f)
		}
	}
}

// celRules evaluates the rules of x-kubernetes-validations.
func (v *Version) celRules(blocked bool, obj, old map[string]any, options ...cel.Option) field.ErrorList {
	rules := v.rules()
	if rules == nil {
		return nil
	}
	if blocked {
		return field.ErrorList{field.Invalid(nil, nil, skippedRules)}
	}
	var before any // A nil map would count as an old object.
	if old != nil {
		before = old
	}
	errs, _ := rules.Validate(context.Background(), nil, v.structural, obj, before, celconfig.RuntimeCELCostBudget, options...)
	return errs
}

// typeMeta does the same as ValidateTypeMeta of the API server.
func (v *Version) typeMeta(obj map[string]any) field.ErrorList {
	var errs field.ErrorList
	if kind, _ := obj["kind"].(string); kind != v.crd.Spec.Names.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), kind, "must be "+v.crd.Spec.Names.Kind))
	}
	if apiVersion, _ := obj["apiVersion"].(string); apiVersion != v.APIVersion() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), apiVersion, "must be "+v.APIVersion()))
	}
	return errs
}

// kept are the members of metadata that an update does not change.
//
// Source: BeforeUpdate of k8s.io/apiserver/pkg/registry/rest.
var kept = []string{"generation", "uid", "creationTimestamp", "resourceVersion"}

// completed returns obj with the metadata that the API server sets before validation. It copies each object that it
// changes.
func (v *Version) completed(obj, old map[string]any) map[string]any {
	metadata, ok := obj["metadata"].(map[string]any)
	if !ok && obj["metadata"] != nil {
		return obj // Validation reports it.
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	text := func(key string) string { s, _ := metadata[key].(string); return s }
	if prefix := text("generateName"); text("name") == "" && prefix != "" && old == nil {
		metadata["name"] = prefix[:min(len(prefix), generateNameLength)] + anySuffix
	}
	before, _ := old["metadata"].(map[string]any)
	switch namespace, ok := before["namespace"]; {
	case !v.namespaced():
		delete(metadata, "namespace") // The server removes it.
	case text("namespace") != "" || metadata["namespace"] != nil:
	case ok:
		metadata["namespace"] = namespace
	default:
		metadata["namespace"] = anyNamespace
	}
	delete(metadata, "generation")    // The API server sets the generation.
	delete(metadata, "managedFields") // The API server sets managedFields.
	for _, key := range kept {
		if value, ok := before[key]; ok {
			metadata[key] = value
		} else if before != nil {
			delete(metadata, key)
		}
	}
	if value, ok := before["deletionTimestamp"]; ok {
		metadata["deletionTimestamp"] = value
	}
	if value, ok := before["deletionGracePeriodSeconds"]; ok && metadata["deletionGracePeriodSeconds"] == nil {
		metadata["deletionGracePeriodSeconds"] = value
	}
	if text("resourceVersion") == "" {
		metadata["resourceVersion"] = anyResourceVersion
	}
	obj = maps.Clone(obj)
	if obj == nil {
		obj = map[string]any{}
	}
	obj["metadata"] = metadata
	return obj
}

// createMeta does the same as validateObjectMetaDeclaratively of the API server.
func (v *Version) createMeta(obj map[string]any) field.ErrorList {
	metadata, errs := metadataOf(obj)
	if len(errs) > 0 {
		return errs
	}
	return metavalidation.ValidateObjectMetaDeclaratively(context.Background(), operation.Create, metadata, nil,
		v.namespaced(), metavalidation.NameIsDNSSubdomain, field.NewPath("metadata"), declarativeValidation)
}

// updateMeta does the same as validateObjectMetaUpdateDeclaratively of the API server.
func (v *Version) updateMeta(obj, old map[string]any) field.ErrorList {
	metadata, before, errs := bothMetadata(obj, old)
	if len(errs) > 0 {
		return errs
	}
	return metavalidation.ValidateObjectMetaDeclaratively(context.Background(), operation.Update, metadata, before,
		v.namespaced(), nil, field.NewPath("metadata"), declarativeValidation)
}

// commonMeta does the same as validateCommonFields of the API server's generic registry. This validation comes before
// that of custom resources, and its errors do not prevent the evaluation of CEL rules.
func (v *Version) commonMeta(obj, old map[string]any) field.ErrorList {
	metadata, before, errs := bothMetadata(obj, old)
	if len(errs) > 0 {
		return nil // updateMeta reports it.
	}
	at := field.NewPath("metadata")
	return append(metavalidation.ValidateObjectMetaAccessor(metadata, v.namespaced(), segment, at),
		metavalidation.ValidateObjectMetaAccessorUpdate(metadata, before, at)...)
}

func (v *Version) namespaced() bool { return v.crd.Spec.Scope == apiextensionsv1.NamespaceScoped }

func bothMetadata(obj, old map[string]any) (metadata, before *metav1.ObjectMeta, errs field.ErrorList) {
	if metadata, errs = metadataOf(obj); len(errs) > 0 {
		return nil, nil, errs
	}
	before, errs = metadataOf(old)
	return metadata, before, errs
}

// segment returns the reasons why a name cannot be a segment of a URL path.
func segment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

// metadataOf decodes metadata.
func metadataOf(obj map[string]any) (*metav1.ObjectMeta, field.ErrorList) {
	at, raw := field.NewPath("metadata"), obj["metadata"]
	members, ok := raw.(map[string]any)
	if !ok {
		return nil, field.ErrorList{field.Invalid(at, raw, fmt.Sprintf("expected map[string]interface{}, got %T", raw))}
	}
	metadata := &metav1.ObjectMeta{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(members, metadata); err != nil {
		return nil, field.ErrorList{field.Invalid(at, raw, err.Error())}
	}
	return metadata, nil
}

// scale does the same as ValidateScaleSpec and ValidateScaleStatus of the API server.
func (v *Version) scale(obj map[string]any) field.ErrorList {
	if v.v1.Subresources == nil || v.v1.Subresources.Scale == nil {
		return nil
	}
	s := v.v1.Subresources.Scale
	errs := append(replicas(obj, s.SpecReplicasPath), replicas(obj, s.StatusReplicasPath)...)
	if s.LabelSelectorPath != nil {
		if selector, _, err := unstructured.NestedString(obj, keysOf(*s.LabelSelectorPath)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*s.LabelSelectorPath), selector, err.Error()))
		}
	}
	return errs
}

// replicas checks the number at a path, if there is one.
func replicas(obj map[string]any, path string) field.ErrorList {
	n, _, err := unstructured.NestedInt64(obj, keysOf(path)...)
	var detail string
	switch {
	case err != nil:
		detail = err.Error()
	case n < 0:
		detail = "should be a non-negative integer"
	case n > math.MaxInt32:
		detail = fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(path), n, detail)}
}

// keysOf returns the keys of a path such as .spec.replicas.
func keysOf(path string) []string {
	return strings.Split(strings.TrimPrefix(path, "."), ".")
}
