package propagation

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
)

// inventory collects the objects of the hub that Refract acts on.
type inventory struct {
	client     client.Reader // Reads from caches.
	policies   *policies
	sources    *sources
	namespaces *hubNamespaces
	state      *state
	records    *records
	remembered func(Key, *known) previous // The facts in the record of an object.

	last atomic.Pointer[contents] // The last collection.
}

// objects implements [Controller.Objects].
func (v *inventory) objects(ctx context.Context) ([]*unstructured.Unstructured, error) {
	at := moment{epoch: v.state.epoch.Load(), decisions: v.state.decisions()}
	had := v.last.Load()
	if had != nil && had.objects != nil && had.moment == at {
		return had.objects, nil
	}
	now := &contents{moment: at, stored: map[edition]*unstructured.Unstructured{}, reports: map[Key]located{}}
	objects, err := v.collect(ctx, had, now)
	if err != nil {
		now.keep(had)
		v.last.Store(now)
		return nil, err
	}
	now.objects = objects
	v.last.Store(now)
	return now.objects, nil
}

// moment identifies a state of the hub in the caches of the controllers.
type moment struct{ epoch, decisions int64 }

// contents is the content of the hub at a moment.
type contents struct {
	moment

	objects []*unstructured.Unstructured // Nil if the collection was interrupted.
	stored  map[edition]*unstructured.Unstructured
	reports map[Key]located
}

// edition identifies a version of a policy or cluster.
type edition struct {
	kind            string
	uid             types.UID
	resourceVersion string
}

// located is the report on the location of an object, with the values that it was made from: a desired state, or a
// version of a Propagation.
type located struct {
	desired *desiredState
	version string
	hash    string
	placed  []placement.Target
	report  *unstructured.Unstructured
}

// mostKept is the maximum number of policies and clusters in an interrupted collection; some may be outdated versions.
const mostKept = 10_000

// keep adds the missing entries from an earlier collection.
func (c *contents) keep(had *contents) {
	if had == nil || len(had.stored) > mostKept {
		return
	}
	for v, u := range had.stored {
		if c.stored[v] == nil {
			c.stored[v] = u
		}
	}
	for key, l := range had.reports {
		if c.reports[key].report == nil {
			c.reports[key] = l
		}
	}
}

// collect returns all objects, and adds newly created ones to now. It reuses the objects in had, which may be nil, if
// they were created from the same values.
func (v *inventory) collect(ctx context.Context, had, now *contents) ([]*unstructured.Unstructured, error) {
	if had == nil {
		had = &contents{}
	}
	var clusters corev1alpha1.FederatedClusterList
	// Clusters and policies are read here, and not modified.
	if err := v.client.List(ctx, &clusters, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	stored := v.policies.all()
	for i := range clusters.Items {
		stored = append(stored, &clusters.Items[i])
	}
	var all []*unstructured.Unstructured
	for _, item := range stored {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		u, err := had.untyped(item)
		if err != nil {
			return nil, err
		}
		now.stored[editionOf(item)] = u
		all = append(all, u)
	}
	all = append(all, v.namespaces.floored()...)
	kept := v.records.kept() // Read before the decided objects, so that an object that is decided in between is not missed.
	for _, key := range v.state.keys() {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p, was, ok := v.state.place(key)
		if !ok || p.gone {
			continue
		}
		l, err := had.located(key, p, was)
		if err != nil {
			return nil, err
		}
		now.reports[key] = l
		all = append(all, l.report)
	}
	reports, err := v.undecided(ctx, kept, had, now)
	if err != nil {
		return nil, err
	}
	return slices.Concat(all, reports, v.sources.objects()), nil
}

// undecided returns the reports on objects that are not decided, as on a replica that stands by.
func (v *inventory) undecided(ctx context.Context, kept map[Key]*known, had, now *contents) (all []*unstructured.Unstructured, err error) {
	for key, k := range kept {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if _, decided := now.reports[key]; decided || causeIn(k.conditions) != "" {
			continue
		}
		l, was := had.reports[key], v.remembered(key, k)
		if l.report == nil || l.version != k.version || !slices.Equal(l.placed, was.placed) {
			report, err := location(key, &k.spec.Source, k.status.OverridePolicies, k.status.DeletedPolicies, k.status.Follows, was)
			if err != nil {
				return nil, err
			}
			l = located{version: k.version, placed: was.placed, report: report}
		}
		now.reports[key] = l
		all = append(all, l.report)
	}
	return all, nil
}

// place returns the desired state of a key, and the results of earlier decisions.
func (s *state) place(key Key) (p *desiredState, was previous, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return nil, previous{}, false
	}
	return e.desired, e.previous, true
}

// located returns the report on the location of an object.
func (c *contents) located(key Key, p *desiredState, was previous) (located, error) {
	if l, ok := c.reports[key]; ok && l.desired == p && l.hash == was.hash && slices.Equal(l.placed, was.placed) {
		return l, nil
	}
	source := sourceReference(key, p)
	report, err := location(key, &source, p.overrides, p.deleted, p.followed(), was)
	return located{desired: p, hash: was.hash, placed: was.placed, report: report}, err
}

// untyped returns a policy or cluster as an unstructured object, reused from the earlier collection or converted.
func (c *contents) untyped(item client.Object) (*unstructured.Unstructured, error) {
	v := editionOf(item)
	if u := c.stored[v]; u != nil && v.uid != "" {
		return u, nil
	}
	gv := corev1alpha1.GroupVersion
	if v.kind == refractv1alpha1.KindRolloutPolicy || v.kind == refractv1alpha1.KindClusterRolloutPolicy {
		gv = refractv1alpha1.GroupVersion
	}
	return unstructuredOf(item, gv.WithKind(v.kind))
}

func editionOf(item client.Object) edition {
	kind := corev1alpha1.KindFederatedCluster
	if _, cluster := item.(*corev1alpha1.FederatedCluster); !cluster {
		kind = kindOf(item)
	}
	return edition{kind, item.GetUID(), item.GetResourceVersion()}
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

// location returns a Propagation that contains the clusters of an object and the reasons for them.
func location(
	key Key, source *refractv1alpha1.SourceReference, overrides, deleted []refractv1alpha1.PolicyReference, follows []refractv1alpha1.FollowedObject,
	was previous,
) (*unstructured.Unstructured, error) {
	r := newRecord(key.Namespace != "")
	r.SetNamespace(key.Namespace)
	r.SetName(recordName(key))
	r.spec.Source = *source
	r.status.OverridePolicies, r.status.DeletedPolicies, r.status.PlacementHash = overrides, deleted, was.hash
	r.status.ChosenBy = was.chosenBy
	for i := range was.placed {
		r.status.Clusters = append(r.status.Clusters, refractv1alpha1.ClusterStatus{
			Name: was.placed[i].Cluster, State: refractv1alpha1.StateSynced, Replicas: was.placed[i].Replicas,
		})
	}
	r.status.Follows = follows
	kind := refractv1alpha1.KindPropagation
	if key.Namespace == "" {
		kind = refractv1alpha1.KindClusterPropagation
	}
	return unstructuredOf(r.Object, refractv1alpha1.GroupVersion.WithKind(kind))
}
