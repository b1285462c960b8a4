package local

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/tree"
)

// when states how much must be known about an object before a rule applies.
type when int

const (
	// always: only a cluster can know the field.
	always when = iota
	// stored: the API server computes the field for each object that it stores.
	stored
	// unowned: users may request the field, so its owner decides. If the owner is not known, as in an exported object,
	// the field counts as assigned, unless chosen returns true.
	unowned
	// unownedOnly: users usually request the field. If its owner is not known, it counts as requested.
	unownedOnly
)

// rule describes a field of a kind that each cluster assigns.
type rule struct {
	pattern tree.Pattern
	when    when
	// applies reports whether the rule applies to an object; nil means all objects of the kind.
	applies func(object map[string]any) bool
	// keeps reports whether a value cannot come from the hub, so that the field is kept.
	keeps func(value any) bool
	// chosen reports whether a value differs from the API server's default, so that a user has requested it. It is used
	// only if the owner is not known.
	chosen func(value any) bool
}

func field(path string, w when) rule { return rule{pattern: tree.MustParsePattern(path), when: w} }

func (r rule) keeping(keeps func(any) bool) rule { r.keeps = keeps; return r }

func (r rule) unlessChosen(chosen func(any) bool) rule { r.chosen = chosen; return r }

func (r rule) only(applies func(map[string]any) bool) rule { r.applies = applies; return r }

// byKind is the table. Each line names a field that the API server or a controller of Kubernetes assigns.
var byKind = map[schema.GroupKind][]rule{
	{Kind: "Service"}: {
		field("/spec/clusterIP", unowned).keeping(isNone),
		field("/spec/clusterIPs", unowned).keeping(isNone),
		field("/spec/ports/*/nodePort", unowned),
		field("/spec/healthCheckNodePort", unowned),
		field("/spec/ipFamilies", unowned).unlessChosen(severalFamilies),
		field("/spec/ipFamilyPolicy", unowned).unlessChosen(func(value any) bool { return value != "SingleStack" }),
		field("/spec/loadBalancerClass", unownedOnly),
	},
	{Group: "batch", Kind: "Job"}: {
		field("/spec/selector", always).only(selectsBySelf),
		field("/spec/template/metadata/labels/controller-uid", always).only(selectsBySelf),
		field("/spec/template/metadata/labels/job-name", always).only(selectsBySelf),
		field("/spec/template/metadata/labels/batch.kubernetes.io~1*", always).only(selectsBySelf),
		// The API server copies the labels of the template to a Job without labels.
		field("/metadata/labels/controller-uid", always).only(selectsBySelf),
		field("/metadata/labels/job-name", always).only(selectsBySelf),
		field("/metadata/labels/batch.kubernetes.io~1*", always).only(selectsBySelf),
	},
	{Kind: "Pod"}: {
		field("/spec/nodeName", unowned),
		field("/spec/ephemeralContainers", always),
		field("/spec/volumes/*", always).keeping(isNoTokenVolume),
		field("/spec/containers/*/volumeMounts/*", always).keeping(isNoTokenVolume),
		field("/spec/initContainers/*/volumeMounts/*", always).keeping(isNoTokenVolume),
		field("/spec/tolerations/*", stored).keeping(isNoDefaultToleration),
		field("/spec/priority", stored),
		field("/spec/overhead", stored),
		field("/spec/preemptionPolicy", unownedOnly),
		field("/spec/priorityClassName", unownedOnly),
		field("/spec/imagePullSecrets", unownedOnly), // Admission adds the pull Secrets of the ServiceAccount.
	},
	{Kind: "PersistentVolumeClaim"}: {
		field("/spec/volumeName", unowned),
		field("/spec/storageClassName", unownedOnly), // The default class of the hub may not exist on other clusters.
		field("/metadata/annotations/pv.kubernetes.io~1*", always),
		field("/metadata/annotations/volume.kubernetes.io~1selected-node", always),
		field("/metadata/annotations/volume.kubernetes.io~1storage-provisioner", always),
		field("/metadata/annotations/volume.beta.kubernetes.io~1storage-provisioner", always),
	},
	{Kind: "PersistentVolume"}: {
		field("/spec/claimRef", unownedOnly),
		field("/spec/claimRef/uid", always),
		field("/spec/claimRef/resourceVersion", always),
		field("/metadata/annotations/pv.kubernetes.io~1bound-by-controller", always),
	},
	{Group: "apps", Kind: "Deployment"}: revisions,
	{Group: "apps", Kind: "ReplicaSet"}: revisions,
	{Group: "apps", Kind: "DaemonSet"}: {
		field("/metadata/annotations/deprecated.daemonset.template.generation", always),
	},
	{Kind: "ServiceAccount"}: {
		field("/secrets", unowned),
	},
	{Kind: "Namespace"}: {
		field("/spec/finalizers", always),
		field("/metadata/labels/kubernetes.io~1metadata.name", always),
	},
	{Group: "networking.k8s.io", Kind: "Ingress"}: {
		field("/spec/ingressClassName", unownedOnly), // The default class of the hub may not exist on other clusters.
	},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}: {
		field("/rules", always).only(aggregates),
	},
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:   authorities("/webhooks/*/clientConfig/caBundle"),
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}: authorities("/webhooks/*/clientConfig/caBundle"),
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:               authorities("/spec/conversion/webhook/clientConfig/caBundle"),
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:                           authorities("/spec/caBundle"),
}

// revisions are the annotations of the Deployment controller.
var revisions = []rule{
	field("/metadata/annotations/deployment.kubernetes.io~1revision*", always),
	field("/metadata/annotations/deployment.kubernetes.io~1desired-replicas", always),
	field("/metadata/annotations/deployment.kubernetes.io~1max-replicas", always),
}

// authorities returns the rules for a certificate that an injector maintains. If the owner of the field is not known,
// the annotation that requests the injection decides.
func authorities(path string) []rule {
	return []rule{field(path, unownedOnly), field(path, stored).only(asksForAuthority)}
}

// injections are the annotations that request a caBundle from a controller: those of cert-manager's cainjector and of
// OpenShift's service CA operator.
var injections = []string{
	"cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret", "cert-manager.io/inject-apiserver-ca",
	"service.beta.openshift.io/inject-cabundle",
}

func asksForAuthority(object map[string]any) bool {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	return slices.ContainsFunc(injections, func(key string) bool { return annotations[key] != nil })
}

// isNone reports whether a value of clusterIP or clusterIPs requests no address: it is empty or None.
func isNone(value any) bool {
	if list, ok := value.([]any); ok {
		return slices.Contains(list, any("None"))
	}
	return value == "None" || value == ""
}

func severalFamilies(value any) bool {
	list, ok := value.([]any)
	return ok && len(list) > 1
}

// selectsBySelf reports whether the API server generates the selector of a Job.
func selectsBySelf(job map[string]any) bool {
	spec, _ := job["spec"].(map[string]any)
	return spec["manualSelector"] != true
}

// aggregates reports whether a controller of each cluster generates the rules of a ClusterRole.
func aggregates(role map[string]any) bool { return role["aggregationRule"] != nil }

// isNoTokenVolume reports whether a volume or mount comes from a user. Otherwise it is the token volume that the
// ServiceAccount admission plugin adds to each Pod.
func isNoTokenVolume(value any) bool {
	v, _ := value.(map[string]any)
	name, _ := v["name"].(string)
	return !strings.HasPrefix(name, "kube-api-access-")
}

// isNoDefaultToleration reports whether a toleration comes from a user, and not from the admission plugin
// DefaultTolerationSeconds, which adds tolerations to each Pod.
func isNoDefaultToleration(value any) bool {
	t, _ := value.(map[string]any)
	key := t["key"]
	return key != "node.kubernetes.io/not-ready" && key != "node.kubernetes.io/unreachable" ||
		t["operator"] != "Exists" || t["effect"] != "NoExecute" || t["tolerationSeconds"] != int64(300)
}
