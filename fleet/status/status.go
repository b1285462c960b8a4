// Package status shows the status of hub objects on their clusters, as reported by Propagations and FederatedClusters.
// It writes tables, text and data.
package status

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/rollout"
)

// Kinds and version of the data.
const (
	objectsKind  = "ObjectStatuses"
	clustersKind = "ClusterStatuses"
)

var apiVersion = refractv1alpha1.GroupVersion.String()

// Objects has the statuses of objects, sorted.
type Objects struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Objects    []*Object `json:"objects"`
}

// NewObjects sorts the objects by namespace, kind, name and group, cluster-scoped objects first. It keeps the slice and
// sorts it in place.
func NewObjects(objects []*Object) *Objects {
	slices.SortFunc(objects, func(a, b *Object) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.APIVersion, b.APIVersion))
	})
	if objects == nil {
		objects = []*Object{}
	}
	return &Objects{APIVersion: apiVersion, Kind: objectsKind, Objects: objects}
}

// Failed reports whether any object failed on a cluster.
func (o *Objects) Failed() bool { return slices.ContainsFunc(o.Objects, (*Object).Failed) }

// Object is the status of one object, from its Propagation or ClusterPropagation.
type Object struct {
	render.Object `json:",inline"`

	// Resource is the plural name of the object's type.
	Resource string `json:"resource"`
	// UID of the reported object.
	UID types.UID `json:"uid,omitempty"`
	// Created is the creation time of the Propagation.
	Created metav1.Time `json:"created"`
	// Status is the status in the Propagation, and shared with it.
	Status *refractv1alpha1.PropagationStatus `json:"status"`
}

// ObjectOf reads a Propagation or a ClusterPropagation; ok is false for all other types.
func ObjectOf(o client.Object) (object *Object, ok bool) {
	var source *refractv1alpha1.SourceReference
	object = &Object{Created: o.GetCreationTimestamp()}
	switch p := o.(type) {
	case *refractv1alpha1.Propagation:
		source, object.Status = &p.Spec.Source, &p.Status
	case *refractv1alpha1.ClusterPropagation:
		source, object.Status = &p.Spec.Source, &p.Status
	default:
		return nil, false
	}
	object.Object = render.Object{APIVersion: source.APIVersion, Kind: source.Kind, Namespace: o.GetNamespace(), Name: source.Name}
	object.Resource, object.UID = source.Resource, source.UID
	object.Status.Expand()
	return object, true
}

// GroupKind returns the group and kind of the object.
func (o *Object) GroupKind() schema.GroupKind {
	return schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind()
}

// String returns the object in the format of the command line: KIND/NAMESPACE/NAME, or KIND/NAME.
func (o *Object) String() string { return o.named(strings.ToLower(o.Kind)) }

// Full returns the object as [Object.String] does, with the group after the kind.
func (o *Object) Full() string { return o.named(strings.ToLower(o.Kind) + "." + o.GroupKind().Group) }

func (o *Object) named(kind string) string {
	if o.Namespace == "" {
		return kind + "/" + o.Name
	}
	return kind + "/" + o.Namespace + "/" + o.Name
}

// Names returns the objects in the format of the command line. A name has the group only if another object would have
// the same name otherwise.
func Names(objects []*Object) []string {
	count := map[string]int{}
	for _, o := range objects {
		count[o.String()]++
	}
	names := make([]string, len(objects))
	for i, o := range objects {
		if names[i] = o.String(); count[names[i]] > 1 {
			names[i] = o.Full()
		}
	}
	return names
}

// Row returns the status of the object on a cluster; nil if the Propagation does not have the cluster.
func (o *Object) Row(cluster string) *refractv1alpha1.ClusterStatus {
	for i := range o.Status.Clusters {
		if o.Status.Clusters[i].Name == cluster {
			return &o.Status.Clusters[i]
		}
	}
	return nil
}

// Condition returns a condition of the Propagation; nil if it is missing.
func (o *Object) Condition(conditionType string) *metav1.Condition {
	return meta.FindStatusCondition(o.Status.Conditions, conditionType)
}

// Failed reports whether the rollout of the object was stopped, or the object failed on a cluster. It failed there if
// its copy cannot become ready or could not be written, for example because the cluster is offline.
func (o *Object) Failed() bool {
	return (o.Status.Rollout != nil && rollout.Stopped(o.Status.Rollout)) ||
		slices.ContainsFunc(o.Status.Clusters, func(r refractv1alpha1.ClusterStatus) bool { return failed(&r) })
}

// Right reports whether the object is synced on all clusters, and no copy is in progress or failed.
func (o *Object) Right() bool {
	synced := o.Condition(refractv1alpha1.ConditionSynced)
	return synced != nil && synced.Status == metav1.ConditionTrue &&
		!slices.ContainsFunc(o.Status.Clusters, func(r refractv1alpha1.ClusterStatus) bool { return !right(&r) })
}

func failed(r *refractv1alpha1.ClusterStatus) bool {
	switch r.State {
	case refractv1alpha1.StateFailed, refractv1alpha1.StateOffline:
		return true
	default:
		return r.Readiness == refractv1alpha1.ReadinessFailed
	}
}

func right(r *refractv1alpha1.ClusterStatus) bool {
	switch r.Readiness {
	case refractv1alpha1.ReadinessInProgress, refractv1alpha1.ReadinessFailed:
		return false
	default:
		return r.State == refractv1alpha1.StateSynced
	}
}

// Holds reports whether the cluster of a row has a copy, as far as known.
func Holds(r *refractv1alpha1.ClusterStatus) bool {
	return r.Hash != "" || r.State == refractv1alpha1.StateDeleting
}

// Clusters has the statuses of clusters, by name.
type Clusters struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Clusters   []Cluster `json:"clusters"`
}

// Cluster is the status of one cluster.
type Cluster struct {
	Name string `json:"name"`
	// Created is the creation time of the FederatedCluster.
	Created metav1.Time `json:"created"`
	// Copies is the number of objects with a copy on the cluster. Synced is the number of objects that are synced
	// there. Failed is the number of objects that failed there.
	Copies int `json:"copies"`
	Synced int `json:"synced"`
	Failed int `json:"failed"`
	// Leaving is whether the FederatedCluster is being deleted.
	Leaving    bool                            `json:"leaving,omitempty"`
	Taints     []corev1.Taint                  `json:"taints,omitempty"`
	Conditions []corev1alpha1.ClusterCondition `json:"conditions"`
}

// NewClusters counts the copies in the Propagations for each cluster.
func NewClusters(members []corev1alpha1.FederatedCluster, objects []*Object) *Clusters {
	clusters := make([]Cluster, len(members))
	at := make(map[string]*Cluster, len(members))
	for i := range members {
		m := &members[i]
		clusters[i] = Cluster{
			Name: m.Name, Created: m.CreationTimestamp, Leaving: m.DeletionTimestamp != nil,
			Taints: m.Spec.Taints, Conditions: m.Status.Conditions,
		}
		if clusters[i].Conditions == nil {
			clusters[i].Conditions = []corev1alpha1.ClusterCondition{}
		}
		at[m.Name] = &clusters[i]
	}
	for _, o := range objects {
		for i := range o.Status.Clusters {
			r := &o.Status.Clusters[i]
			c := at[r.Name]
			if c == nil {
				continue // The cluster has left the fleet, and its copies stay there.
			}
			if Holds(r) {
				c.Copies++
			}
			if r.State == refractv1alpha1.StateSynced {
				c.Synced++
			}
			if failed(r) {
				c.Failed++
			}
		}
	}
	slices.SortFunc(clusters, func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) })
	return &Clusters{APIVersion: apiVersion, Kind: clustersKind, Clusters: clusters}
}

// Failed reports whether any cluster has a problem: see [Cluster.Right].
func (c *Clusters) Failed() bool {
	return slices.ContainsFunc(c.Clusters, func(c Cluster) bool { return !c.Right() })
}

// Right reports whether the cluster is ready, no object failed there, and no condition needs the attention of a user.
func (c *Cluster) Right() bool {
	return c.Failed == 0 && c.status(corev1alpha1.ClusterReady) == string(metav1.ConditionTrue) && len(c.problems()) == 0
}

// status returns the status of a condition, "-" if it is missing.
func (c *Cluster) status(conditionType corev1alpha1.ClusterConditionType) string {
	if found := c.condition(conditionType); found != nil {
		return string(found.Status)
	}
	return none
}

func (c *Cluster) condition(conditionType corev1alpha1.ClusterConditionType) *corev1alpha1.ClusterCondition {
	for i := range c.Conditions {
		if c.Conditions[i].Type == conditionType {
			return &c.Conditions[i]
		}
	}
	return nil
}

// Problems describes the conditions of the cluster that are not as wanted, each with its reason.
func (c *Cluster) Problems() []string {
	var texts []string
	for _, p := range c.problems() {
		texts = append(texts, p.Reason+": "+oneLine(p.Message))
	}
	if len(texts) == 0 && c.status(corev1alpha1.ClusterReady) != string(metav1.ConditionTrue) {
		texts = append(texts, "it was not checked yet")
	}
	return texts
}

// problems returns the conditions that are not as wanted. It leaves out Offline, because an offline cluster is not
// Ready either, and the condition Ready has the reason.
func (c *Cluster) problems() []*corev1alpha1.ClusterCondition {
	var found []*corev1alpha1.ClusterCondition
	for _, good := range []struct {
		condition corev1alpha1.ClusterConditionType
		status    metav1.ConditionStatus
	}{
		{corev1alpha1.ClusterReady, metav1.ConditionTrue},
		{corev1alpha1.ClusterAuthorized, metav1.ConditionTrue},
		{corev1alpha1.ClusterReadable, metav1.ConditionTrue},
		{corev1alpha1.ClusterDeletionsHeld, metav1.ConditionFalse},
		{corev1alpha1.ClusterCredentialsExpiring, metav1.ConditionFalse},
		{corev1alpha1.ClusterInInventory, metav1.ConditionTrue},
	} {
		if c := c.condition(good.condition); c != nil && c.Status != good.status && c.Status != metav1.ConditionUnknown {
			found = append(found, c)
		}
	}
	return found
}
