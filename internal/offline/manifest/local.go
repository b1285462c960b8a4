package manifest

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// LocalConfig is the annotation, with the value "true", of manifests that are for
// tools and are not themselves sent to an API server. It means nothing on an object
// with a label that names a propagation policy: that asks to be propagated, and the
// controllers, which do not know the annotation, do so.
//
// Source: https://kpt.dev/reference/annotations/local-config/.
const LocalConfig = "config.kubernetes.io/local-config"

// staysLocal reports whether a document is for tools alone, and never sent to an
// API server: kustomize's own files, what is marked as such (see [LocalConfig]),
// and tests of policies.
func staysLocal(content map[string]any) bool {
	version, _ := content["apiVersion"].(string)
	gv, _ := schema.ParseGroupVersion(version) // A bad one is reported with the object.
	if gv.Group == "kustomize.config.k8s.io" {
		return true
	}
	if gv == refractv1alpha1.GroupVersion && content["kind"] == "PolicyTest" {
		return true
	}
	local, _, _ := unstructured.NestedFieldNoCopy(content, "metadata", "annotations", LocalConfig)
	return local == "true" && !asksToBePropagated(content)
}

// asksToBePropagated reports whether an object has a label that names a propagation
// policy.
func asksToBePropagated(content map[string]any) bool {
	for _, label := range []string{corev1alpha1.PropagationPolicyLabel, corev1alpha1.ClusterPropagationPolicyLabel} {
		if _, found, _ := unstructured.NestedFieldNoCopy(content, "metadata", "labels", label); found {
			return true
		}
	}
	return false
}

// explains reports whether an object says something about others even where it goes nowhere
// itself: a CustomResourceDefinition, and a Namespace, which may name a rollout policy for them.
func explains(content map[string]any) bool { return isDefinition(content) || isNamespace(content) }

func isNamespace(content map[string]any) bool {
	return content["apiVersion"] == "v1" && content["kind"] == "Namespace"
}

// namesRollout reports whether an object is a Namespace that names a rollout policy.
func namesRollout(content map[string]any) bool {
	_, named, _ := unstructured.NestedFieldNoCopy(content, "metadata", "labels", refractv1alpha1.ClusterRolloutPolicyLabel)
	return named && isNamespace(content)
}

// isDefinition reports whether an object is a CustomResourceDefinition.
func isDefinition(content map[string]any) bool {
	version, _ := content["apiVersion"].(string)
	gv, _ := schema.ParseGroupVersion(version) // A bad one is reported with the object.
	return gv.Group == "apiextensions.k8s.io" && content["kind"] == "CustomResourceDefinition"
}
