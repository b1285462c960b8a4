package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is refract.dev/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: "refract.dev", Version: "v1alpha1"}

// Prefix is what the labels and annotations of this group begin with.
const Prefix = "refract.dev/"

// The kinds of this group, as they stand in a manifest.
const (
	KindPropagation        = "Propagation"
	KindClusterPropagation = "ClusterPropagation"
)

// Annotations on the copies that members hold.
const (
	// SourceAnnotation names the hub, the object that a copy was made of, and the
	// copy: HUB/UID/RESOURCE.GROUP/NAMESPACE/NAME. Hub and object are named by their
	// UIDs; the hub's is that of its namespace kube-system.
	SourceAnnotation = Prefix + "source"
	// AppliedAnnotation is the hash of the content that the copy was applied with.
	AppliedAnnotation = Prefix + "applied"
	// NamespaceAnnotation is on a namespace that was created on a member because
	// a copy needed it; its value is the hub's UID.
	NamespaceAnnotation = Prefix + "created-by"
)

// Finalizer keeps a Propagation until every copy of its object is gone.
const Finalizer = Prefix + "propagation"

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Propagation{}, &PropagationList{},
		&ClusterPropagation{}, &ClusterPropagationList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
