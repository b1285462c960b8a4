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
		"Front":          {"The Service leads to the cluster's API server.", "services", metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, true, ""},
		"FrontElsewhere": {"In another namespace, the name has no meaning.", "services", metav1.ObjectMeta{Namespace: "shop", Name: "kubernetes"}, false, ""},
		"OtherInDefault": {"User objects in the namespace default are propagated.", "services", metav1.ObjectMeta{Namespace: "default", Name: "web"}, false, ""},
		"FrontEndpoints": {"Endpoints have the addresses of the API server.", "endpoints", metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, true, ""},
		"FrontSlice": {
			"The slice has the addresses of the API server, too.",
			"endpointslices.discovery.k8s.io", metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, true, "",
		},
		"Slice":              {"Endpoints that users write are propagated.", "endpointslices.discovery.k8s.io", metav1.ObjectMeta{Namespace: "default", Name: "external"}, false, ""},
		"RootCertificates":   {"Namespaces have their cluster's root CA.", "configmaps", metav1.ObjectMeta{Namespace: "shop", Name: "kube-root-ca.crt"}, true, ""},
		"SecretOfThatName":   {"An object of another type may have that name.", "secrets", metav1.ObjectMeta{Namespace: "shop", Name: "kube-root-ca.crt"}, false, ""},
		"Authentication":     {"Extension API servers read from it which clients to trust.", "configmaps", metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"}, true, ""},
		"InSystem":           {"Objects of users in kube-system are propagated.", "daemonsets.apps", metav1.ObjectMeta{Namespace: "kube-system", Name: "node-agent"}, false, ""},
		"SystemSettings":     {"An installer created it, and it may as well come from a hub.", "configmaps", metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}, false, ""},
		"Account":            {"Each namespace has this account.", "serviceaccounts", metav1.ObjectMeta{Namespace: "shop", Name: "default"}, true, ""},
		"AccountOfWorkload":  {"The pods of a workload need its account.", "serviceaccounts", metav1.ObjectMeta{Namespace: "shop", Name: "web"}, false, ""},
		"ControllersAccount": {"A controller of the cluster needs this account.", "serviceaccounts", metav1.ObjectMeta{Namespace: "kube-system", Name: "deployment-controller"}, true, ""},
		"OwnController":      {"In another namespace, an account of a user may have that name.", "serviceaccounts", metav1.ObjectMeta{Namespace: "shop", Name: "deployment-controller"}, false, ""},
		"AccountOfAddOn":     {"Add-ons are in kube-system, too.", "serviceaccounts", metav1.ObjectMeta{Namespace: "kube-system", Name: "metrics-server"}, false, ""},

		"DefaultNamespace": {"This namespace cannot be deleted.", "namespaces", metav1.ObjectMeta{Name: "default"}, true, ""},
		"SystemNamespace":  {"The namespace kube-system cannot be deleted.", "namespaces", metav1.ObjectMeta{Name: "kube-system"}, true, ""},
		"PublicNamespace":  {"The namespace kube-public cannot be deleted.", "namespaces", metav1.ObjectMeta{Name: "kube-public"}, true, ""},
		"LeaseNamespace":   {"Without this namespace, all Nodes would count as failed.", "namespaces", metav1.ObjectMeta{Name: "kube-node-lease"}, true, ""},
		"Namespace":        {"Other names with the prefix kube- belong to users.", "namespaces", metav1.ObjectMeta{Name: "kube-flannel"}, false, ""},
		"Node":             {"A machine belongs to one cluster.", "nodes", metav1.ObjectMeta{Name: "any"}, true, ""},
		"NodeOfAnother":    {"A type of another group may have the same name.", "nodes.example.com", metav1.ObjectMeta{Name: "any"}, false, ""},
		"PriorityClass":    {"The prefix is reserved.", "priorityclasses.scheduling.k8s.io", metav1.ObjectMeta{Name: "system-node-critical"}, true, ""},
		"OwnPriorityClass": {"Workloads need PriorityClasses of users.", "priorityclasses.scheduling.k8s.io", metav1.ObjectMeta{Name: "shop-critical"}, false, ""},

		"Role":           {"The role has the label of the API server.", "clusterroles.rbac.authorization.k8s.io", metav1.ObjectMeta{Name: "system:node", Labels: bootstrapping}, true, "label kubernetes.io/bootstrapping"},
		"RoleOfAddOn":    {"The role of an add-on has the prefix, but not the label.", "clusterroles.rbac.authorization.k8s.io", metav1.ObjectMeta{Name: "system:metrics-server"}, false, ""},
		"UnmarkedAdmin":  {"The role is native even in a manifest without the label.", "clusterroles.rbac.authorization.k8s.io", metav1.ObjectMeta{Name: "cluster-admin"}, true, ""},
		"RoleInSystem":   {"Objects in namespaces have the label, too.", "rolebindings.rbac.authorization.k8s.io", metav1.ObjectMeta{Namespace: "kube-public", Name: "x", Labels: bootstrapping}, true, "label"},
		"MarkedOther":    {"On another type, the label has no meaning.", "configmaps", metav1.ObjectMeta{Namespace: "shop", Name: "x", Labels: bootstrapping}, false, ""},
		"LocalAPI":       {"Each cluster registers its own APIs.", "apiservices.apiregistration.k8s.io", metav1.ObjectMeta{Name: "v1.apps", Labels: map[string]string{"kube-aggregator.kubernetes.io/automanaged": "onstart"}}, true, "label kube-aggregator"},
		"ExtensionAPI":   {"An add-on's API is propagated.", "apiservices.apiregistration.k8s.io", metav1.ObjectMeta{Name: "v1beta1.metrics.k8s.io"}, false, ""},
		"FlowSchema":     {"The API server keeps the object up to date.", "flowschemas.flowcontrol.apiserver.k8s.io", metav1.ObjectMeta{Name: "probes", Annotations: updated}, true, "annotation apf"},
		"TakenOver":      {"An administrator may take over the object.", "flowschemas.flowcontrol.apiserver.k8s.io", metav1.ObjectMeta{Name: "probes", Annotations: map[string]string{"apf.kubernetes.io/autoupdate-spec": "false"}}, false, ""},
		"ExemptPriority": {"exempt cannot be taken over.", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", metav1.ObjectMeta{Name: "exempt"}, true, ""},
		"TrustOfCluster": {"Each cluster publishes its own certificates.", "clustertrustbundles.certificates.k8s.io", metav1.ObjectMeta{Name: "kubernetes.io:kube-apiserver-serving:abc"}, true, ""},
		"TrustOfCompany": {"A company may publish its own.", "clustertrustbundles.certificates.k8s.io", metav1.ObjectMeta{Name: "example.com:ca:abc"}, false, ""},

		"JobOfCronJob":       {"The CronJob on each cluster creates its own Jobs.", "jobs.batch", metav1.ObjectMeta{Namespace: "shop", Name: "backup-29", OwnerReferences: controlledBy("batch/v1", "CronJob", "backup")}, true, "CronJob backup"},
		"Job":                {"A user created the Job.", "jobs.batch", metav1.ObjectMeta{Namespace: "shop", Name: "migrate"}, false, ""},
		"JobOfOperator":      {"Another controller created it, which may run only on the hub.", "jobs.batch", metav1.ObjectMeta{Namespace: "shop", Name: "a", OwnerReferences: controlledBy("example.com/v1", "CronJob", "a")}, false, ""},
		"JobOwned":           {"An owner that is not the controller was set by a user.", "jobs.batch", metav1.ObjectMeta{Namespace: "shop", Name: "a", OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "a"}}}, false, ""},
		"Pod":                {"Pods often have the labels of their workload.", "pods", metav1.ObjectMeta{Namespace: "shop", Name: "a", OwnerReferences: controlledBy("apps/v1", "ReplicaSet", "web-1")}, true, "ReplicaSet web-1"},
		"StaticPod":          {"The kubelet of one cluster creates the mirror Pod.", "pods", metav1.ObjectMeta{Namespace: "kube-system", Name: "a", OwnerReferences: controlledBy("v1", "Node", "n")}, true, "Node n"},
		"ReplicaSet":         {"The Deployment on each cluster creates its own ReplicaSets.", "replicasets.apps", metav1.ObjectMeta{Namespace: "shop", Name: "web-1", OwnerReferences: controlledBy("apps/v1", "Deployment", "web")}, true, "Deployment web"},
		"Revision":           {"The StatefulSet on each cluster creates its own revisions.", "controllerrevisions.apps", metav1.ObjectMeta{Namespace: "shop", Name: "a", OwnerReferences: controlledBy("apps/v1", "StatefulSet", "db")}, true, "StatefulSet db"},
		"SliceOfService":     {"The slice has the labels of its Service.", "endpointslices.discovery.k8s.io", metav1.ObjectMeta{Namespace: "shop", Name: "web-x", OwnerReferences: controlledBy("v1", "Service", "web")}, true, "Service web"},
		"EndpointsOfService": {"The Endpoints have the labels of their Service, and no owner.", "endpoints", metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"endpoints.kubernetes.io/managed-by": "endpoint-controller"}}, true, "Service web"},
		"Endpoints":          {"A user wrote the Endpoints.", "endpoints", metav1.ObjectMeta{Namespace: "shop", Name: "web"}, false, ""},
		"MadeForWorkload":    {"Kubernetes itself creates no ConfigMap for a Deployment.", "configmaps", metav1.ObjectMeta{Namespace: "shop", Name: "a", OwnerReferences: controlledBy("apps/v1", "Deployment", "web")}, false, ""},
		"ClaimOfTemplate":    {"The StatefulSet on each cluster creates its own claims.", "persistentvolumeclaims", metav1.ObjectMeta{Namespace: "shop", Name: "data-db-0", OwnerReferences: controlledBy("apps/v1", "StatefulSet", "db")}, true, "StatefulSet db"},
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
