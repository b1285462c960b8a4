package inventory

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Bounds of an entry.
const (
	// mostLabels is the maximum number of properties that become labels.
	mostLabels = 64
	// mostProviders is the maximum number of access providers; further ones are ignored.
	mostProviders = 16
)

// Kinds of entries, as in the inventory annotation of a FederatedCluster.
const (
	kindProfile = "ClusterProfile"
	kindCluster = "Cluster"
)

// entry is the description of a cluster in an inventory.
type entry struct {
	kind   string // Kind of the object that lists the cluster: kindProfile or kindCluster.
	object types.NamespacedName
	uid    types.UID
	labels map[string]string

	// access has the access providers of a ClusterProfile, in its order.
	access []access
	// kubeconfig is the kubeconfig from Cluster API.
	kubeconfig []byte
	// unreadable is the error that prevented the fields above from being read.
	unreadable error
}

// String returns KIND/NAMESPACE/NAME, the value of the inventory annotation.
func (e *entry) String() string { return e.kind + "/" + e.object.String() }

// reference returns the object that lists the cluster, for events.
func (e *entry) reference() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(profiles.GroupVersion().String())
	if e.kind == kindCluster {
		u.SetAPIVersion(clusters.GroupVersion().String())
	}
	u.SetKind(e.kind)
	u.SetNamespace(e.object.Namespace)
	u.SetName(e.object.Name)
	u.SetUID(e.uid)
	return u
}

// access is one access to a cluster: the name of the provider of credentials, and the API server.
type access struct {
	Name    string              `json:"name"`
	Cluster clientcmdv1.Cluster `json:"cluster"`
}

// readProfile reads a ClusterProfile of multicluster.x-k8s.io/v1alpha1.
//
// Source: https://github.com/kubernetes-sigs/cluster-inventory-api
func readProfile(u *unstructured.Unstructured) *entry {
	e := entryOf(kindProfile, u)
	var profile struct {
		Status struct {
			Properties []struct {
				Name  string `json:"name"`
				Value string `json:"value"`
			} `json:"properties"`
			AccessProviders []access `json:"accessProviders"`
			// CredentialProviders is the name of AccessProviders before release 0.1.
			CredentialProviders []access `json:"credentialProviders"`
		} `json:"status"`
	}
	if err := decode(u, "status", &profile); err != nil {
		e.unreadable = err
		return e
	}
	all := slices.Concat(profile.Status.AccessProviders, profile.Status.CredentialProviders)
	e.access = all[:min(len(all), mostProviders)]
	for _, p := range profile.Status.Properties {
		e.label(p.Name, p.Value)
	}
	return e
}

// decode reads one field of an object into the fields of a struct.
func decode(u *unstructured.Unstructured, field string, into any) error {
	text, err := json.Marshal(map[string]any{field: u.Object[field]})
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// readCluster reads the metadata of a Cluster of Cluster API.
func readCluster(u *unstructured.Unstructured) *entry {
	e := entryOf(kindCluster, u)
	labels := u.GetLabels()
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		e.label(key, labels[key])
	}
	return e
}

// Name, label and key of Secrets with a kubeconfig of Cluster API.
//
// Source: https://cluster-api.sigs.k8s.io/developer/providers/contracts/control-plane
const (
	clusterNameLabel = "cluster.x-k8s.io/cluster-name"
	kubeconfigSuffix = "-kubeconfig"
	kubeconfigKey    = "value"
)

// readKubeconfig reads a Secret with a kubeconfig of Cluster API; nil for another Secret.
func readKubeconfig(u *unstructured.Unstructured) *entry {
	name, ok := strings.CutSuffix(u.GetName(), kubeconfigSuffix)
	if !ok || u.GetLabels()[clusterNameLabel] != name {
		return nil
	}
	e := entryOf(kindCluster, u)
	e.object.Name = name
	var secret struct {
		Data map[string][]byte `json:"data"`
	}
	if e.unreadable = decode(u, "data", &secret); e.unreadable == nil {
		e.kubeconfig = secret.Data[kubeconfigKey]
	}
	return e
}

// clusterOf returns the name of the cluster of an object.
func clusterOf(u *unstructured.Unstructured) string {
	if u.GetKind() == "Secret" {
		return strings.TrimSuffix(u.GetName(), kubeconfigSuffix)
	}
	return u.GetName()
}

func entryOf(kind string, u *unstructured.Unstructured) *entry {
	return &entry{
		kind: kind, object: types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}, uid: u.GetUID(), labels: map[string]string{},
	}
}

// ours are the domains of labels with a meaning for Refract. An inventory cannot set such labels.
var ours = []string{corev1alpha1.GroupVersion.Group, "kubeadmiral.io", strings.TrimSuffix(refractv1alpha1.Prefix, "/")}

// label adds a label. It ignores invalid keys and values, because properties need not be valid labels.
func (e *entry) label(key, value string) {
	if len(e.labels) >= mostLabels || len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
		return
	}
	domain, _, _ := strings.Cut(key, "/")
	for _, d := range ours {
		if domain == d || strings.HasSuffix(domain, "."+d) {
			return
		}
	}
	e.labels[key] = value
}
