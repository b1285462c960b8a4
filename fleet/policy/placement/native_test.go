package placement_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/policy/placement"
)

func TestNative(t *testing.T) {
	bootstrapping := map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}
	updated := map[string]string{"apf.kubernetes.io/autoupdate-spec": "true"}
	cases := map[string]struct {
		reason   string
		resource string // Includes the group.
		object   metav1.ObjectMeta
		want     bool
		says     string
	}{
		"Front":              {"The way to a cluster's own API server.", "services", metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, true, ""},
		"FrontElsewhere":     {"In another namespace it is anybody's.", "services", metav1.ObjectMeta{Namespace: "shop", Name: "kubernetes"}, false, ""},
		"OtherInDefault":     {"What users put into the namespace default travels.", "services", metav1.ObjectMeta{Namespace: "default", Name: "web"}, false, ""},
		"FrontEndpoints":     {"They say where it is.", "endpoints", metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, true, ""},
		"FrontSlice":         {"So does this.", "endpointslices.discovery.k8s.io", metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, true, ""},
		"Slice":              {"Endpoints that users write travel.", "endpointslices.discovery.k8s.io", metav1.ObjectMeta{Namespace: "default", Name: "external"}, false, ""},
		"RootCertificates":   {"Each namespace has that of its cluster.", "configmaps", metav1.ObjectMeta{Namespace: "shop", Name: "kube-root-ca.crt"}, true, ""},
		"SecretOfThatName":   {"Another type may have an object of that name.", "secrets", metav1.ObjectMeta{Namespace: "shop", Name: "kube-root-ca.crt"}, false, ""},
		"Authentication":     {"By it extension API servers know whom to trust.", "configmaps", metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"}, true, ""},
		"InSystem":           {"What users place in kube-system travels.", "daemonsets.apps", metav1.ObjectMeta{Namespace: "kube-system", Name: "node-agent"}, false, ""},
		"SystemSettings":     {"An installer made it; it may as well come from a hub.", "configmaps", metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}, false, ""},
		"Account":            {"Each namespace has it.", "serviceaccounts", metav1.ObjectMeta{Namespace: "shop", Name: "default"}, true, ""},
		"AccountOfWorkload":  {"It is what its pods need.", "serviceaccounts", metav1.ObjectMeta{Namespace: "shop", Name: "web"}, false, ""},
		"ControllersAccount": {"Without it a cluster's controller can do nothing.", "serviceaccounts", metav1.ObjectMeta{Namespace: "kube-system", Name: "deployment-controller"}, true, ""},
		"OwnController":      {"A user's may have that name elsewhere.", "serviceaccounts", metav1.ObjectMeta{Namespace: "shop", Name: "deployment-controller"}, false, ""},
		"AccountOfAddOn":     {"Add-ons are in kube-system, too.", "serviceaccounts", metav1.ObjectMeta{Namespace: "kube-system", Name: "metrics-server"}, false, ""},

		"DefaultNamespace": {"It cannot be deleted.", "namespaces", metav1.ObjectMeta{Name: "default"}, true, ""},
		"SystemNamespace":  {"Nor can this.", "namespaces", metav1.ObjectMeta{Name: "kube-system"}, true, ""},
		"PublicNamespace":  {"Nor this.", "namespaces", metav1.ObjectMeta{Name: "kube-public"}, true, ""},
		"LeaseNamespace":   {"This can, and all Nodes would be taken for dead.", "namespaces", metav1.ObjectMeta{Name: "kube-node-lease"}, true, ""},
		"Namespace":        {"A name that begins so is a user's.", "namespaces", metav1.ObjectMeta{Name: "kube-flannel"}, false, ""},
		"Node":             {"A machine is of one cluster.", "nodes", metav1.ObjectMeta{Name: "any"}, true, ""},
		"NodeOfAnother":    {"A kind is not that of Kubernetes for its name.", "nodes.example.com", metav1.ObjectMeta{Name: "any"}, false, ""},
		"PriorityClass":    {"The prefix is reserved.", "priorityclasses.scheduling.k8s.io", metav1.ObjectMeta{Name: "system-node-critical"}, true, ""},
		"OwnPriorityClass": {"It is what workloads need.", "priorityclasses.scheduling.k8s.io", metav1.ObjectMeta{Name: "shop-critical"}, false, ""},

		"Role":           {"It is marked.", "clusterroles.rbac.authorization.k8s.io", metav1.ObjectMeta{Name: "system:node", Labels: bootstrapping}, true, "label kubernetes.io/bootstrapping"},
		"RoleOfAddOn":    {"An add-on's role has such a name, and not the mark.", "clusterroles.rbac.authorization.k8s.io", metav1.ObjectMeta{Name: "system:metrics-server"}, false, ""},
		"UnmarkedAdmin":  {"It is one even in a manifest that somebody wrote.", "clusterroles.rbac.authorization.k8s.io", metav1.ObjectMeta{Name: "cluster-admin"}, true, ""},
		"RoleInSystem":   {"There are marked ones in namespaces, too.", "rolebindings.rbac.authorization.k8s.io", metav1.ObjectMeta{Namespace: "kube-public", Name: "x", Labels: bootstrapping}, true, "label"},
		"MarkedOther":    {"On another type the label says nothing.", "configmaps", metav1.ObjectMeta{Namespace: "shop", Name: "x", Labels: bootstrapping}, false, ""},
		"LocalAPI":       {"Each cluster says itself what it serves.", "apiservices.apiregistration.k8s.io", metav1.ObjectMeta{Name: "v1.apps", Labels: map[string]string{"kube-aggregator.kubernetes.io/automanaged": "onstart"}}, true, "label kube-aggregator"},
		"ExtensionAPI":   {"An add-on's API is placed with it.", "apiservices.apiregistration.k8s.io", metav1.ObjectMeta{Name: "v1beta1.metrics.k8s.io"}, false, ""},
		"FlowSchema":     {"An API server keeps it up to date.", "flowschemas.flowcontrol.apiserver.k8s.io", metav1.ObjectMeta{Name: "probes", Annotations: updated}, true, "annotation apf"},
		"TakenOver":      {"An administrator may take it over.", "flowschemas.flowcontrol.apiserver.k8s.io", metav1.ObjectMeta{Name: "probes", Annotations: map[string]string{"apf.kubernetes.io/autoupdate-spec": "false"}}, false, ""},
		"ExemptPriority": {"But not this.", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", metav1.ObjectMeta{Name: "exempt"}, true, ""},
		"TrustOfCluster": {"Each cluster publishes its own certificates.", "clustertrustbundles.certificates.k8s.io", metav1.ObjectMeta{Name: "kubernetes.io:kube-apiserver-serving:abc"}, true, ""},
		"TrustOfCompany": {"A company publishes its own, too.", "clustertrustbundles.certificates.k8s.io", metav1.ObjectMeta{Name: "example.com:ca:abc"}, false, ""},

		"JobOfCronJob":       {"The CronJob on each cluster makes its own.", "jobs.batch", metav1.ObjectMeta{Namespace: "shop", Name: "backup-29", OwnerReferences: controlledBy("batch/v1", "CronJob", "backup")}, true, "CronJob backup"},
		"Job":                {"A user made it.", "jobs.batch", metav1.ObjectMeta{Namespace: "shop", Name: "migrate"}, false, ""},
		"JobOfOperator":      {"Another controller made it, perhaps on the hub alone.", "jobs.batch", metav1.ObjectMeta{Namespace: "shop", Name: "a", OwnerReferences: controlledBy("example.com/v1", "CronJob", "a")}, false, ""},
		"JobOwned":           {"An owner that is no controller is one that a user has set.", "jobs.batch", metav1.ObjectMeta{Namespace: "shop", Name: "a", OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "a"}}}, false, ""},
		"Pod":                {"Pod templates often carry the labels of the workload.", "pods", metav1.ObjectMeta{Namespace: "shop", Name: "a", OwnerReferences: controlledBy("apps/v1", "ReplicaSet", "web-1")}, true, "ReplicaSet web-1"},
		"StaticPod":          {"The kubelet of one cluster mirrors it.", "pods", metav1.ObjectMeta{Namespace: "kube-system", Name: "a", OwnerReferences: controlledBy("v1", "Node", "n")}, true, "Node n"},
		"ReplicaSet":         {"It is made for a Deployment.", "replicasets.apps", metav1.ObjectMeta{Namespace: "shop", Name: "web-1", OwnerReferences: controlledBy("apps/v1", "Deployment", "web")}, true, "Deployment web"},
		"Revision":           {"It is made for a StatefulSet.", "controllerrevisions.apps", metav1.ObjectMeta{Namespace: "shop", Name: "a", OwnerReferences: controlledBy("apps/v1", "StatefulSet", "db")}, true, "StatefulSet db"},
		"SliceOfService":     {"It has the labels of the Service.", "endpointslices.discovery.k8s.io", metav1.ObjectMeta{Namespace: "shop", Name: "web-x", OwnerReferences: controlledBy("v1", "Service", "web")}, true, "Service web"},
		"EndpointsOfService": {"They have the labels of the Service, and no owner.", "endpoints", metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"endpoints.kubernetes.io/managed-by": "endpoint-controller"}}, true, "Service web"},
		"Endpoints":          {"A user wrote them.", "endpoints", metav1.ObjectMeta{Namespace: "shop", Name: "web"}, false, ""},
		"MadeForWorkload":    {"Not Kubernetes made it.", "configmaps", metav1.ObjectMeta{Namespace: "shop", Name: "a", OwnerReferences: controlledBy("apps/v1", "Deployment", "web")}, false, ""},
		"ClaimOfTemplate":    {"The StatefulSet on each cluster makes its own.", "persistentvolumeclaims", metav1.ObjectMeta{Namespace: "shop", Name: "data-db-0", OwnerReferences: controlledBy("apps/v1", "StatefulSet", "db")}, true, "StatefulSet db"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			why := placement.Native(schema.ParseGroupResource(tc.resource), &tc.object)
			if got := why != ""; got != tc.want || !strings.Contains(why, tc.says) {
				t.Errorf("%s\nNative(%s, %s): want %t with %q, got %q", tc.reason, tc.resource, tc.object.Name, tc.want, tc.says, why)
			}
		})
	}
}

func controlledBy(apiVersion, kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, Controller: new(true)}}
}

// TestNativeToken verifies that the type of a Secret is enough to recognize a token. In a file, the annotation may
// still be missing.
func TestNativeToken(t *testing.T) {
	for secretType, want := range map[string]bool{"kubernetes.io/service-account-token": true, "Opaque": false, "": false} {
		secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": secretType}}
		secret.SetNamespace("shop")
		secret.SetName("token")
		why := placement.Native(schema.GroupResource{Resource: "secrets"}, secret)
		if (why != "") != want || want && !strings.Contains(why, "propagate the ServiceAccount") {
			t.Errorf("type %q: want it native: %t, got %q", secretType, want, why)
		}
	}
}
