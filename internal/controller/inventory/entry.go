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

// What of an entry is taken.
const (
	// mostLabels is how many properties become labels.
	mostLabels = 64
	// mostProviders is how many access providers are looked at.
	mostProviders = 16
)

// Kinds of entries, as FederatedClusters name where they come from.
const (
	kindProfile = "ClusterProfile"
	kindCluster = "Cluster"
)

// entry is what an inventory says of a cluster.
type entry struct {
	kind   string // Of the object that lists the cluster: kindProfile or kindCluster.
	object types.NamespacedName
	uid    types.UID
	labels map[string]string

	// access are the ways into the cluster that a ClusterProfile tells of, in its order.
	access []access
	// kubeconfig is the one that Cluster API has written.
	kubeconfig []byte
	// unreadable is why nothing of the above could be taken from the object.
	unreadable error
}

// String is how a FederatedCluster names where it comes from: KIND/NAMESPACE/NAME.
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

// access is one way into a cluster: who knows the credentials, and for which API server.
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
			// CredentialProviders is what they were called before release 0.1.
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

// Of Secrets with a kubeconfig that Cluster API writes.
//
// Source: https://cluster-api.sigs.k8s.io/developer/providers/contracts/control-plane
const (
	clusterNameLabel = "cluster.x-k8s.io/cluster-name"
	kubeconfigSuffix = "-kubeconfig"
	kubeconfigKey    = "value"
)

// readKubeconfig reads a Secret with a kubeconfig that Cluster API has written; nil if it is another.
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

// clusterOf returns the name of the cluster that an object is about.
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

// ours are the domains of labels that mean something to Refract itself: an inventory does not say those.
var ours = []string{corev1alpha1.GroupVersion.Group, "kubeadmiral.io", strings.TrimSuffix(refractv1alpha1.Prefix, "/")}

// label adds a label, if that is what the key and the value can be: properties need not be such.
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
