package structural

import (
	"errors"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// ErrNotDefinition is wrapped by errors about objects that are not CustomResourceDefinitions.
var ErrNotDefinition = errors.New("not a CustomResourceDefinition")

const (
	definitionKind = "CustomResourceDefinition"
	ruleRemoved    = "RemovedAPIVersion"
)

// removed is the finding for a manifest in v1beta1. Kubernetes 1.22 has replaced v1beta1 by v1:
// https://kubernetes.io/docs/reference/using-api/deprecation-guide/#v1-22
var removed = Finding{
	Path: "apiVersion",
	Message: "apiextensions.k8s.io/v1beta1 is no longer served since Kubernetes 1.22: write apiextensions.k8s.io/v1, " +
		"move spec.validation.openAPIV3Schema to spec.versions[*].schema.openAPIV3Schema, spec.subresources and spec.additionalPrinterColumns " +
		"into each of spec.versions, and spec.conversion.webhookClientConfig to spec.conversion.webhook.clientConfig; " +
		"spec.version becomes an entry of spec.versions, and spec.preserveUnknownFields is removed",
	Severity: Error,
	Rule:     ruleRemoved,
}

// manifest is a CustomResourceDefinition after the defaulting of the API server. v1 is the form for clients, and
// internal is the form that the API server validates.
type manifest struct {
	v1       *apiextensionsv1.CustomResourceDefinition
	internal *apiextensions.CustomResourceDefinition
}

// errRemoved is the error for a manifest in v1beta1. It corresponds to the finding removed.
var errRemoved = errors.New(removed.Message)

// decode decodes a manifest without its unknown fields, and applies the defaults of the API server. The error wraps
// errRemoved or [ErrNotDefinition], or describes the value that cannot be decoded.
func decode(crd map[string]any) (manifest, error) {
	kind, _ := crd["kind"].(string)
	apiVersion, _ := crd["apiVersion"].(string)
	switch {
	case kind == definitionKind && apiVersion == apiextensions.GroupName+"/v1beta1":
		return manifest{}, errRemoved
	case kind != definitionKind || apiVersion != apiextensionsv1.SchemeGroupVersion.String():
		return manifest{}, fmt.Errorf("%w: want kind %s of apiVersion %s, got kind %q of apiVersion %q",
			ErrNotDefinition, definitionKind, apiextensionsv1.SchemeGroupVersion, kind, apiVersion)
	}
	copied, err := cloneObject(crd)
	if err != nil {
		return manifest{}, fmt.Errorf("reading the CustomResourceDefinition: %w", err)
	}
	data, err := json.Marshal(copied)
	if err != nil {
		return manifest{}, fmt.Errorf("reading the CustomResourceDefinition: %w", err)
	}
	v1 := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(data, v1); err != nil {
		return manifest{}, fmt.Errorf("decoding the CustomResourceDefinition: %w", err)
	}
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(v1)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(v1.DeepCopy(), internal, nil); err != nil {
		return manifest{}, fmt.Errorf("converting the CustomResourceDefinition: %w", err)
	}
	return manifest{v1: v1, internal: internal}, nil
}

// asCreated sets the status of a new definition.
func (m manifest) asCreated() {
	m.internal.Status = apiextensions.CustomResourceDefinitionStatus{}
	m.internal.Generation = 1
	m.addStored()
}

// asUpdated copies the fields that an update does not change from the previous definition. A previous definition
// without a status counts as established.
func (m manifest) asUpdated(old manifest) {
	if len(old.internal.Status.Conditions) == 0 {
		old.internal.Status.Conditions = []apiextensions.CustomResourceDefinitionCondition{
			{Type: apiextensions.Established, Status: apiextensions.ConditionTrue},
		}
	}
	m.internal.Status = *old.internal.Status.DeepCopy()
	m.addStored()
	// The API server sets these fields, or compares them with the stored ones.
	before, after := &old.internal.ObjectMeta, &m.internal.ObjectMeta
	if before.ResourceVersion == "" {
		before.ResourceVersion = anyResourceVersion
	}
	after.ResourceVersion = before.ResourceVersion
	after.Generation = before.Generation
	after.UID = before.UID
	after.CreationTimestamp = before.CreationTimestamp
	after.DeletionTimestamp = before.DeletionTimestamp
	after.DeletionGracePeriodSeconds = before.DeletionGracePeriodSeconds
}

// addStored adds the storage version to status.storedVersions.
func (m manifest) addStored() {
	for _, v := range m.internal.Spec.Versions {
		if v.Storage && !apiextensions.IsStoredVersion(m.internal, v.Name) {
			m.internal.Status.StoredVersions = append(m.internal.Status.StoredVersions, v.Name)
		}
		if v.Storage {
			return
		}
	}
}
