package propagation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

const (
	// provenFor is the time for which an answer of the hub about clusters or a policy is reused, because many objects
	// may leave a cluster at the same time.
	provenFor = time.Second
	// mostProven bounds the number of remembered answers.
	mostProven = 1000
)

// proof confirms with the hub that the inputs of a placement are current, before a copy outside the placement is
// removed.
//
// The watches of objects, policies and clusters are independent. After an outage one of them may be a minute behind
// another. Together they can then show a state that the hub never had: for example, replicas are divided among two
// clusters, one of them has left since, and the other gets none. The decision is repeated when all watches have
// caught up, but by then the pods of a deleted copy have stopped.
type proof struct {
	sources  *sources
	policies *policies
	members  *member.Set
	state    *state
	live     client.Reader // Reads from the hub.
	now      func() time.Time

	mu      sync.Mutex
	answers map[tree.Policy]finding // By policy and generation; the empty policy stands for the clusters.
}

// finding is the last answer of the hub, and the time until which it is reused.
type finding struct {
	holds bool
	until time.Time
}

// holds reports whether the object, its leaders (the objects that it travels with), its policy and the clusters are
// unchanged on the hub since the object was placed. If not, the watches will report the difference and the object will
// be placed again.
func (f *proof) holds(ctx context.Context, key Key, p *desiredState) (bool, error) {
	known, err := f.holdsOne(ctx, key, p)
	leaders := slices.Concat(p.follows, p.previous.follows)
	slices.SortFunc(leaders, compareKeys)
	for _, leader := range slices.Compact(leaders) {
		if !known || err != nil {
			break
		}
		if l := f.state.desired(leader); l != nil && !l.gone && l.blocked == "" { // A blocked leader keeps the follower; a gone leader kept it for a minute.
			known, err = f.holdsOne(ctx, leader, l)
		}
	}
	if err != nil {
		return false, fmt.Errorf("checking on the hub whether the object must leave the cluster: %w", err)
	}
	return known, nil
}

// holdsOne does the same as [proof.holds] without the leaders of the object.
func (f *proof) holdsOne(ctx context.Context, key Key, p *desiredState) (bool, error) {
	if !alike(p.among, f.members.Clusters()) {
		return false, nil
	}
	if known, err := f.once(tree.Policy{}, func() (bool, error) { return f.sameClusters(ctx) }); err != nil || !known {
		return false, err
	}
	if p.propagation != nil {
		by := tree.Policy{Kind: p.propagation.Kind, Namespace: p.propagation.Namespace, Name: p.propagation.Name, Generation: p.propagation.Generation}
		if known, err := f.once(by, func() (bool, error) { return f.samePolicy(ctx, by) }); err != nil || !known {
			return false, err
		}
	}
	return f.sameObject(ctx, key, p)
}

// once returns the answer of ask, or its answer within the last second. It holds no lock during the request, so
// several workers may ask at the same time.
func (f *proof) once(of tree.Policy, ask func() (bool, error)) (bool, error) {
	f.mu.Lock()
	was, asked := f.answers[of]
	f.mu.Unlock()
	began := f.now()
	if asked && began.Before(was.until) {
		return was.holds, nil
	}
	known, err := ask()
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.answers) >= mostProven || f.answers == nil {
		f.answers = map[tree.Policy]finding{}
	}
	f.answers[of] = finding{known, began.Add(provenFor)}
	return known, nil
}

// alike reports whether the clusters have the same names, labels and taints. Their readiness is ignored, because it
// only affects new copies.
func alike(a, b []placement.Cluster) bool {
	if len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) {
		return true
	}
	return slices.EqualFunc(a, b, func(a, b placement.Cluster) bool {
		return a.Name == b.Name && maps.Equal(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Taints, b.Taints)
	})
}

// sameClusters reports whether the clusters on the hub are the known ones. It reads only their metadata, because
// their status may be large.
func (f *proof) sameClusters(ctx context.Context) (bool, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1alpha1.GroupVersion.WithKind(corev1alpha1.KindFederatedCluster + "List"))
	if err := f.live.List(ctx, &list); err != nil {
		return false, fmt.Errorf("listing clusters: %w", err)
	}
	return f.members.Same(list.Items), nil
}

// samePolicy reports whether the hub has the policy in this generation.
func (f *proof) samePolicy(ctx context.Context, ref tree.Policy) (bool, error) {
	known := f.policies.object(anyGeneration(ref))
	if known == nil || known.GetGeneration() != ref.Generation {
		return false, nil
	}
	gvr, _ := meta.UnsafeGuessKindToResource(corev1alpha1.GroupVersion.WithKind(ref.Kind))
	live, err := readByName(ctx, f.sources.dynamic.Resource(gvr).Namespace(ref.Namespace), gvr.GroupResource(), ref.Name)
	if err != nil {
		return false, ignoreNotFound(err)
	}
	return live.GetUID() == known.GetUID() && live.GetGeneration() == known.GetGeneration(), nil
}

// sameObject reports whether the object is unchanged on the hub since it was placed. Its status does not affect the
// placement, so a status update is no difference.
func (f *proof) sameObject(ctx context.Context, key Key, p *desiredState) (bool, error) {
	src, known := f.sources.get(key)
	if !known || src.object == nil || src.object.GetResourceVersion() != p.version {
		return false, nil
	}
	live, err := readByName(ctx, f.sources.dynamic.Resource(src.gvr).Namespace(key.Namespace), key.GroupResource, key.Name)
	if err != nil {
		return false, ignoreNotFound(err)
	}
	return live.GetResourceVersion() == p.version || live.GetUID() == src.object.GetUID() && live.GetGeneration() == src.object.GetGeneration() &&
		live.GetDeletionTimestamp() == nil &&
		maps.Equal(live.GetLabels(), src.object.GetLabels()) && maps.Equal(live.GetAnnotations(), src.object.GetAnnotations()), nil
}

// ignoreNotFound returns nil for a not-found error: a watch is about to report the deletion.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
