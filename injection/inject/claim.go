package inject

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateEphemeral(s *corev1.EphemeralVolumeSource, at *field.Path) field.ErrorList {
	at = at.Child("volumeClaimTemplate")
	template := s.VolumeClaimTemplate
	if template == nil {
		return field.ErrorList{field.Required(at, "must specify the claim")}
	}
	meta := at.Child("metadata")
	errs := apivalidation.ValidateAnnotations(template.Annotations, meta.Child("annotations"))
	errs = append(errs, metav1validation.ValidateLabels(template.Labels, meta.Child("labels"))...)
	errs = append(errs, onlyLabels(&template.ObjectMeta, meta)...)
	return append(errs, validateClaim(&template.Spec, at.Child("spec"))...)
}

// onlyLabels rejects metadata other than labels and annotations: the claim gets its name and all other metadata from
// its pod.
func onlyLabels(meta *metav1.ObjectMeta, at *field.Path) field.ErrorList {
	rest := meta.DeepCopy()
	rest.Labels, rest.Annotations = nil, nil
	if apiequality.Semantic.DeepEqual(rest, &metav1.ObjectMeta{}) {
		return nil
	}
	return field.ErrorList{field.Forbidden(at, "may have labels and annotations, and nothing else")}
}

func validateClaim(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	errs := validateAccess(s.AccessModes, at.Child("accessModes"))
	if s.Selector != nil {
		errs = append(errs, validateSelector(s.Selector, at.Child("selector"))...)
	}
	size := at.Child("resources", "requests").Key(string(corev1.ResourceStorage))
	if storage, found := s.Resources.Requests[corev1.ResourceStorage]; !found {
		errs = append(errs, field.Required(size, "must specify the amount of storage"))
	} else if storage.Sign() <= 0 {
		errs = append(errs, field.Invalid(size, storage.String(), "must be greater than zero"))
	}
	errs = append(errs, validateClass(s.StorageClassName, at.Child("storageClassName"))...)
	errs = append(errs, validateClass(s.VolumeAttributesClassName, at.Child("volumeAttributesClassName"))...)
	errs = append(errs, oneOf(s.VolumeMode, at.Child("volumeMode"), corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock)...)
	return append(errs, validateDataSources(s, at)...)
}

func validateClass(name *string, at *field.Path) field.ErrorList {
	if name == nil || *name == "" {
		return nil
	}
	return invalid(at, *name, validation.IsDNS1123Subdomain(*name))
}

func validateAccess(modes []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(at, "must have one access mode or more")}
	}
	var errs field.ErrorList
	alone := false
	for i := range modes {
		errs = append(errs, oneOf(&modes[i], at.Index(i),
			corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod)...)
		alone = alone || modes[i] == corev1.ReadWriteOncePod
	}
	if alone && slices.ContainsFunc(modes, func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadWriteOncePod }) {
		errs = append(errs, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

func validateDataSources(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if from := s.DataSource; from != nil {
		errs = append(errs, validateDataSource(from.APIGroup, from.Kind, from.Name, at.Child("dataSource"))...)
	}
	ref := s.DataSourceRef
	if ref == nil {
		return errs
	}
	errs = append(errs, validateDataSource(ref.APIGroup, ref.Kind, ref.Name, at.Child("dataSourceRef"))...)
	crosses := ref.Namespace != nil && *ref.Namespace != ""
	if crosses {
		errs = append(errs, invalid(at.Child("dataSourceRef", "namespace"), *ref.Namespace, validation.IsDNS1123Label(*ref.Namespace))...)
	}
	if s.DataSource == nil {
		return errs
	}
	same := s.DataSource.Kind == ref.Kind && s.DataSource.Name == ref.Name &&
		apiequality.Semantic.DeepEqual(s.DataSource.APIGroup, ref.APIGroup)
	if crosses || !same {
		errs = append(errs, field.Forbidden(at.Child("dataSource"), "must equal dataSourceRef or be absent: leave it out"))
	}
	return errs
}

func validateDataSource(group *string, kind, name string, at *field.Path) field.ErrorList {
	errs := required(at, present{"name", name}, present{"kind", kind})
	switch {
	case group != nil && *group != "":
		return append(errs, invalid(at.Child("apiGroup"), *group, validation.IsDNS1123Subdomain(*group))...)
	case kind != claimKind:
		return append(errs, field.Invalid(at.Child("kind"), kind, "must be PersistentVolumeClaim without an apiGroup"))
	default:
		return errs
	}
}
