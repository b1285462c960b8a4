package propagation

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Objects returns what the hub holds of what Refract acts on, as the controllers
// know it: policies, clusters, the objects that travel, and for each of these a
// Propagation that says where it is. They are shared and must not be modified. As
// long as nothing changes the same slice is returned.
func (c *Controller) Objects(ctx context.Context) ([]*unstructured.Unstructured, error) {
	if !c.primed.Load() {
		return nil, c.Ready()
	}
	at := moment{epoch: c.epoch.Load(), plans: c.ledger.plans()}
	if had := c.contents.Load(); had != nil && had.moment == at {
		return had.objects, nil
	}
	objects, err := c.collect(ctx)
	if err != nil {
		return nil, err
	}
	c.contents.Store(&contents{moment: at, objects: objects})
	return objects, nil
}

// Scope says of a kind that can travel whether it is namespaced; known is false if
// the hub does not serve it.
func (c *Controller) Scope(kind schema.GroupKind) (namespaced, known bool) {
	return c.sources.scope(kind)
}

// moment tells states of the hub apart, as the controllers know it.
type moment struct{ epoch, plans int64 }

// contents is what the hub held at a moment.
type contents struct {
	moment

	objects []*unstructured.Unstructured
}

func (c *Controller) collect(ctx context.Context) ([]*unstructured.Unstructured, error) {
	var clusters corev1alpha1.FederatedClusterList
	if err := c.client.List(ctx, &clusters); err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var all []*unstructured.Unstructured
	for _, policy := range c.policies.all() {
		u, err := unstructuredOf(policy, corev1alpha1.GroupVersion.WithKind(kindOf(policy)))
		if err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	for i := range clusters.Items {
		u, err := unstructuredOf(&clusters.Items[i], corev1alpha1.GroupVersion.WithKind(corev1alpha1.KindFederatedCluster))
		if err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	for _, key := range c.ledger.keys() {
		p, _, was, ok := c.ledger.snapshot(key)
		if !ok || p.gone {
			continue
		}
		report, err := location(key, p, was)
		if err != nil {
			return nil, err
		}
		all = append(all, report)
	}
	return append(all, c.sources.objects()...), nil
}

func unstructuredOf(obj client.Object, gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("converting %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(obj), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// location is a Propagation that says where an object is, and why.
func location(key Key, p *plan, was memory) (*unstructured.Unstructured, error) {
	r := newRecord(key.Namespace != "")
	r.SetNamespace(key.Namespace)
	r.SetName(recordName(key))
	describe(r, key, p)
	r.status.OverridePolicies, r.status.DeletedPolicies, r.status.PlacementHash = p.overrides, p.deleted, was.hash
	for i := range was.placed {
		r.status.Clusters = append(r.status.Clusters, refractv1alpha1.ClusterStatus{
			Name: was.placed[i].Cluster, State: refractv1alpha1.StateSynced, Replicas: was.placed[i].Replicas,
		})
	}
	for _, leader := range p.following {
		r.status.Follows = append(r.status.Follows, refractv1alpha1.FollowedObject{Resource: leader.GroupResource.String(), Name: leader.Name})
	}
	kind := refractv1alpha1.KindPropagation
	if key.Namespace == "" {
		kind = refractv1alpha1.KindClusterPropagation
	}
	return unstructuredOf(r.Object, refractv1alpha1.GroupVersion.WithKind(kind))
}
