package manifest

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// LocalConfig is an annotation. Its value "true" marks manifests for tools, which are not sent to an API server. The
// annotation is ignored on an object with the label of a propagation policy: such an object asks to be propagated, and
// the controllers, which do not know the annotation, propagate it.
//
// Source: https://kpt.dev/reference/annotations/local-config/.
const LocalConfig = "config.kubernetes.io/local-config"

// staysLocal reports whether a document is only for tools and never sent to an API server: kustomize's own files,
// objects with the annotation [LocalConfig], and tests of policies.
func staysLocal(content map[string]any) bool {
	version, _ := content["apiVersion"].(string)
	gv, _ := schema.ParseGroupVersion(version) // An invalid version is reported with the object.
	if gv.Group == "kustomize.config.k8s.io" {
		return true
	}
	if gv == refractv1alpha1.GroupVersion && content["kind"] == "PolicyTest" {
		return true
	}
	local, _, _ := unstructured.NestedFieldNoCopy(content, "metadata", "annotations", LocalConfig)
	return local == "true" && !asksToBePropagated(content)
}

// asksToBePropagated reports whether an object has the label of a propagation policy.
func asksToBePropagated(content map[string]any) bool {
	for _, label := range []string{corev1alpha1.PropagationPolicyLabel, corev1alpha1.ClusterPropagationPolicyLabel} {
		if _, found, _ := unstructured.NestedFieldNoCopy(content, "metadata", "labels", label); found {
			return true
		}
	}
	return false
}

// explains reports whether an object describes other objects even if it is not propagated itself: a
// CustomResourceDefinition describes a kind, and a Namespace may name a rollout policy for its objects.
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
	gv, _ := schema.ParseGroupVersion(version) // An invalid version is reported with the object.
	return gv.Group == "apiextensions.k8s.io" && content["kind"] == "CustomResourceDefinition"
}
