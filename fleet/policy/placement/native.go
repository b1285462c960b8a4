package placement

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// natives describes objects of a type that each cluster creates for itself. Empty fields match nothing.
type natives struct {
	// all is whether every object of the type matches.
	all bool
	// names are the names of the objects. They match only in this namespace. If namespace is empty, they match in every
	// namespace, and match cluster-scoped objects.
	namespace string
	names     []string
	// prefix is a prefix of the names.
	prefix string
	// Keys of metadata: label matches a label with any value that is not empty, annotation matches an annotation with
	// the value "true", and about matches an annotation with any value.
	label, annotation, about string
	// secret is the type of Secrets. The type is unknown if only the metadata of an object is known. Then the
	// annotation decides, because API servers store no token without it.
	secret corev1.SecretType
}

// The marks of objects that Kubernetes creates and updates itself.
const (
	bootstrapLabel  = "kubernetes.io/bootstrapping"
	aggregatorLabel = "kube-aggregator.kubernetes.io/automanaged"
)

// front is the Service of the API server, and its endpoints.
var front = natives{namespace: metav1.NamespaceDefault, names: []string{"kubernetes"}}

// nativesOf describes the objects that kube-apiserver, kube-controller-manager and kubelet create. Objects that users
// install on each cluster, with kubeadm for example, are not in the list, because they may also come from a hub. The
// prefix "system:" is not sufficient, because add-ons use such names, too.
var nativesOf = map[schema.GroupResource][]natives{
	{Resource: "namespaces"}: {{
		names: []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease},
	}},
	{Resource: "services"}:                                  {front},
	{Resource: "endpoints"}:                                 {front},
	{Group: "discovery.k8s.io", Resource: "endpointslices"}: {front},
	{Resource: "configmaps"}: {
		{names: []string{"kube-root-ca.crt"}},
		{namespace: metav1.NamespaceSystem, names: []string{"extension-apiserver-authentication", "kube-apiserver-legacy-service-account-token-tracking"}},
	},
	// The token controller of each cluster creates the token of a ServiceAccount. It deletes a Secret that claims to be
	// a token and names the UID of another cluster's ServiceAccount.
	{Resource: "secrets"}:         {{about: corev1.ServiceAccountNameKey}, {secret: corev1.SecretTypeServiceAccountToken}},
	{Resource: "serviceaccounts"}: {{names: []string{"default"}}, {namespace: metav1.NamespaceSystem, names: controllers}},
	{Resource: "nodes"}:           {{all: true}},

	{Group: "storage.k8s.io", Resource: "csinodes"}:                           {{all: true}},
	{Group: "storage.k8s.io", Resource: "volumeattachments"}:                  {{all: true}},
	{Group: "resource.k8s.io", Resource: "resourceslices"}:                    {{all: true}},
	{Group: "internal.apiserver.k8s.io", Resource: "storageversions"}:         {{all: true}},
	{Group: "networking.k8s.io", Resource: "ipaddresses"}:                     {{all: true}},
	{Group: "networking.k8s.io", Resource: "servicecidrs"}:                    {{names: []string{"kubernetes"}}},
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"}:                 {{prefix: "system-"}},
	{Group: "certificates.k8s.io", Resource: "clustertrustbundles"}:           {{prefix: "kubernetes.io:"}},
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:                {{label: aggregatorLabel}},
	{Group: flowcontrolv1.GroupName, Resource: "flowschemas"}:                 configuredFlow,
	{Group: flowcontrolv1.GroupName, Resource: "prioritylevelconfigurations"}: configuredFlow,

	{Group: rbacv1.GroupName, Resource: "clusterroles"}:        {{label: bootstrapLabel}, {names: []string{"cluster-admin", "admin", "edit", "view"}}},
	{Group: rbacv1.GroupName, Resource: "clusterrolebindings"}: {{label: bootstrapLabel}, {names: []string{"cluster-admin"}}},
	{Group: rbacv1.GroupName, Resource: "roles"}:               {{label: bootstrapLabel}},
	{Group: rbacv1.GroupName, Resource: "rolebindings"}:        {{label: bootstrapLabel}},
}

// configuredFlow is the API server's own configuration of API Priority and Fairness.
var configuredFlow = []natives{{annotation: flowcontrolv1.AutoUpdateAnnotationKey}, {names: []string{"exempt", "catch-all"}}}

// controllers are the controllers of kube-controller-manager, each with its own account:
// https://kubernetes.io/docs/reference/access-authn-authz/rbac/#controller-roles.
var controllers = []string{
	"attachdetach-controller", "bootstrap-signer", "certificate-controller", "clusterrole-aggregation-controller", "cronjob-controller",
	"daemon-set-controller", "deployment-controller", "device-taint-eviction-controller", "disruption-controller", "endpoint-controller",
	"endpointslice-controller", "endpointslicemirroring-controller", "ephemeral-volume-controller", "expand-controller",
	"generic-garbage-collector", "horizontal-pod-autoscaler", "job-controller", "kube-apiserver-serving-clustertrustbundle-publisher",
	"legacy-service-account-token-cleaner", "namespace-controller", "node-controller", "persistent-volume-binder", "pod-garbage-collector",
	"podcertificaterequestcleaner", "podgroup-protection-controller", "pv-protection-controller", "pvc-protection-controller",
	"replicaset-controller", "replication-controller", "resource-claim-controller", "resourcepoolstatusrequest-controller",
	"resourcequota-controller", "root-ca-cert-publisher", "route-controller", "selinux-warning-controller", "service-account-controller",
	"service-cidrs-controller", "service-controller", "statefulset-controller", "storage-version-garbage-collector",
	"storage-version-migrator-controller", "taint-eviction-controller", "token-cleaner", "ttl-after-finished-controller", "ttl-controller",
	"validatingadmissionpolicy-status-controller", "volumeattributesclass-protection-controller",
}

// Native returns the reason why an object is native, as a sentence without a period; empty if it is not. A native
// object is one that each cluster creates for itself. An object from another cluster must not replace it, so Refract
// does not create, adopt, change or delete native objects. Native objects are recognized by name, by Kubernetes' marks,
// or by their [Parent], on the hub as on members. Other objects in a system namespace are not native. Native neither
// keeps nor changes parts of the object.
func Native(resource schema.GroupResource, o metav1.Object) (why string) {
	const keeps = "each cluster creates this object itself, and keeps its own"
	for _, n := range nativesOf[resource] {
		switch {
		case n.all, n.named(o):
			return keeps
		case n.secret != "" && typeOf(o) == string(n.secret):
			return fmt.Sprintf("each cluster creates the tokens of ServiceAccounts itself, and type %s marks this Secret as a token; "+
				"propagate the ServiceAccount, and create the Secret on each cluster if pods need it", n.secret)
		case n.about != "" && hasAnnotation(o, n.about):
			return fmt.Sprintf("each cluster creates the tokens of ServiceAccounts itself, and annotation %s marks this Secret as a token; "+
				"propagate the ServiceAccount, and create the Secret on each cluster if pods need it", n.about)
		case n.label != "" && o.GetLabels()[n.label] != "":
			return fmt.Sprintf("%s, as label %s shows; give an object of your own another name, without the label", keeps, n.label)
		case n.annotation != "" && o.GetAnnotations()[n.annotation] == "true":
			return fmt.Sprintf("%s, as annotation %s shows; give an object of your own another name, without the annotation", keeps, n.annotation)
		}
	}
	if owner := Parent(resource, o); owner != "" {
		return fmt.Sprintf("the controller of %s created this object, and each cluster creates its own; propagate %s instead", owner, owner)
	}
	return ""
}

// typeOf returns the type of a Secret; empty if only its metadata is known.
func typeOf(o metav1.Object) string {
	whole, ok := o.(interface{ UnstructuredContent() map[string]any })
	if !ok {
		return ""
	}
	text, _ := whole.UnstructuredContent()["type"].(string)
	return text
}

func hasAnnotation(o metav1.Object, key string) bool {
	_, has := o.GetAnnotations()[key]
	return has
}

// named reports whether an object has one of the names or the prefix.
func (n *natives) named(o metav1.Object) bool {
	if n.prefix != "" && strings.HasPrefix(o.GetName(), n.prefix) {
		return true
	}
	return slices.Contains(n.names, o.GetName()) && (n.namespace == "" || n.namespace == o.GetNamespace())
}
