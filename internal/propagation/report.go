package propagation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// A report waits a moment for what else there is to say; longer while clusters
// are still being written to.
const (
	settledDelay   = 100 * time.Millisecond
	unsettledDelay = 2 * time.Second
)

// What a report holds at most, so that it stays a small object.
const (
	maxVariants   = 16
	maxChanges    = 64
	maxValueRunes = 60
)

// record is a Propagation or a ClusterPropagation: the same but for its kind.
type record struct {
	client.Object

	spec   *refractv1alpha1.PropagationSpec
	status *refractv1alpha1.PropagationStatus
}

func newRecord(namespaced bool) record {
	if namespaced {
		p := &refractv1alpha1.Propagation{}
		return record{p, &p.Spec, &p.Status}
	}
	p := &refractv1alpha1.ClusterPropagation{}
	return record{p, &p.Spec, &p.Status}
}

func recordOf(obj any) (record, bool) {
	switch p := obj.(type) {
	case *refractv1alpha1.Propagation:
		return record{p, &p.Spec, &p.Status}, true
	case *refractv1alpha1.ClusterPropagation:
		return record{p, &p.Spec, &p.Status}, true
	case cache.DeletedFinalStateUnknown:
		return recordOf(p.Obj)
	default:
		return record{}, false
	}
}

// key returns the key of the object that the record is about.
func (r record) key() Key {
	gv, _ := schema.ParseGroupVersion(r.spec.Source.APIVersion) // A bad one leads to a key that no object has.
	return Key{
		GroupResource:  schema.GroupResource{Group: gv.Group, Resource: r.spec.Source.Resource},
		NamespacedName: types.NamespacedName{Namespace: r.GetNamespace(), Name: r.spec.Source.Name},
	}
}

// recordName is NAME.RESOURCE[.GROUP]; with a hash at its end where that is no
// name of an object, or too long for one.
func recordName(key Key) string {
	name := key.Name + "." + key.GroupResource.String()
	plain := strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || ('a' <= r && r <= 'z') || ('0' <= r && r <= '9') {
			return r
		}
		return '-'
	}, name)
	const most = 253 - 1 - 8
	if plain == name && len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.Trim(plain[:min(len(plain), most)], "-.") + "-" + hex.EncodeToString(sum[:4])
}

// StatusOf reads what is reported on an object of the hub; nil if nothing is. The
// client must know the types of the hub.
func StatusOf(ctx context.Context, hub client.Client, obj client.Object) (*refractv1alpha1.PropagationStatus, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	mapping, err := hub.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, fmt.Errorf("looking up kind %s: %w", gvk.Kind, err)
	}
	key := Key{GroupResource: mapping.Resource.GroupResource(), NamespacedName: client.ObjectKeyFromObject(obj)}
	r := newRecord(key.Namespace != "")
	err = hub.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: recordName(key)}, r.Object)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // Nothing is reported, and nothing is wrong.
	}
	if err != nil {
		return nil, fmt.Errorf("reading the report on %s %s: %w", gvk.Kind, key.NamespacedName, err)
	}
	return r.status, nil
}

// watchReports follows the records: one whose object is gone has to be cleaned
// up, one that somebody deleted has to be made again.
func (c *Controller) watchReports(ctx context.Context, mgr ctrl.Manager) error {
	handlers := cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			r, ok := recordOf(obj)
			switch {
			case ok && initial:
				c.decide.add(r.key())
			case ok:
				c.report.addAfter(r.key(), settledDelay)
			}
		},
		// Our own writes come back here, too: what was reported in the meantime, on
		// the ground of an older record, is looked at once more.
		UpdateFunc: func(_, obj any) {
			if r, ok := recordOf(obj); ok {
				c.report.addAfter(r.key(), settledDelay)
			}
		},
		DeleteFunc: func(obj any) {
			if r, ok := recordOf(obj); ok {
				c.report.add(r.key())
			}
		},
	}
	return follow(ctx, mgr, handlers, &refractv1alpha1.Propagation{}, &refractv1alpha1.ClusterPropagation{})
}

// read returns the record of the key from the cache.
func (c *Controller) read(ctx context.Context, key Key) (r record, found bool, err error) {
	r = newRecord(key.Namespace != "")
	err = c.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: recordName(key)}, r.Object)
	if apierrors.IsNotFound(err) {
		return r, false, nil
	}
	return r, err == nil, err
}

// remembered reads from the record what was true before a restart.
func (c *Controller) remembered(ctx context.Context, key Key) (memory, error) {
	r, found, err := c.read(ctx, key)
	if err != nil || !found {
		return memory{}, err
	}
	m := memory{uid: r.spec.Source.UID}
	for i := range r.status.Clusters {
		// A cluster that left while nobody looked has nothing to be waited for.
		row := &r.status.Clusters[i]
		switch {
		case !c.members.Known(row.Name):
		case row.State == refractv1alpha1.StateDeleting:
			m.leaving = append(m.leaving, row.Name)
		default:
			m.placed = append(m.placed, row.Name)
		}
	}
	for _, refs := range [][]refractv1alpha1.PolicyReference{r.status.OverridePolicies, r.status.DeletedPolicies} {
		for _, ref := range refs {
			m.rendered = append(m.rendered, tree.Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	return m, nil
}

// reportOne writes the record of one object, or takes it away.
func (c *Controller) reportOne(ctx context.Context, key Key) (reconcile.Result, error) {
	p, rows, placed, ok := c.ledger.snapshot(key)
	if !ok {
		// A record that came into the cache after its object was forgotten.
		_, found, err := c.read(ctx, key)
		if found {
			c.decide.add(key)
		}
		return reconcile.Result{}, err
	}
	r, found, err := c.read(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if p.gone && len(rows)+len(placed) == 0 {
		if found {
			if err := c.close(ctx, r); err != nil {
				return again(err)
			}
		}
		c.ledger.forget(key, p)
		return reconcile.Result{}, nil
	}
	switch {
	case p.gone && !found:
		return reconcile.Result{}, nil // Nobody is left to report to.
	case !p.gone && found && r.GetDeletionTimestamp() != nil:
		// Somebody deleted it, or the object was made again: so is the record.
		if err := c.release(ctx, r); err != nil {
			return again(err)
		}
		return reconcile.Result{RequeueAfter: settledDelay}, nil
	case !found:
		if r, err = c.open(ctx, key, p); err != nil {
			return again(err)
		}
	case !p.gone && r.spec.Source.UID != p.uid:
		describe(r, key, p)
		if err := c.client.Update(ctx, r.Object); err != nil {
			return again(err)
		}
	}
	status := assemble(p, rows, placed, r.status.Conditions)
	if equality.Semantic.DeepEqual(status, *r.status) {
		return reconcile.Result{}, nil
	}
	before := *r.status
	*r.status = status
	if err := c.client.Status().Update(ctx, r.Object); err != nil {
		return again(err)
	}
	c.announce(key, p, before, status)
	return reconcile.Result{}, nil
}

// again has a report come again after an error. That the cache is behind is no
// error: the record exists already, or has changed, or is gone.
func again(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: settledDelay}, nil
	}
	return reconcile.Result{}, err
}

// open creates the record.
func (c *Controller) open(ctx context.Context, key Key, p *plan) (record, error) {
	r := newRecord(key.Namespace != "")
	r.SetNamespace(key.Namespace)
	r.SetName(recordName(key))
	describe(r, key, p)
	return r, c.client.Create(ctx, r.Object)
}

// describe fills in what the record is about.
func describe(r record, key Key, p *plan) {
	api := p.gvr.GroupVersion().String()
	r.spec.Source = refractv1alpha1.SourceReference{APIVersion: api, Kind: p.kind, Resource: key.Resource, Name: key.Name, UID: p.uid}
	r.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: api, Kind: p.kind, Name: key.Name, UID: p.uid}})
	controllerutil.AddFinalizer(r.Object, refractv1alpha1.Finalizer)
}

// close takes the record away.
func (c *Controller) close(ctx context.Context, r record) error {
	if err := c.release(ctx, r); err != nil {
		return err
	}
	if r.GetDeletionTimestamp() != nil {
		return nil
	}
	return client.IgnoreNotFound(c.client.Delete(ctx, r.Object))
}

// release lets a record go that is being deleted.
func (c *Controller) release(ctx context.Context, r record) error {
	before, ok := r.DeepCopyObject().(client.Object)
	if !ok || !controllerutil.RemoveFinalizer(r.Object, refractv1alpha1.Finalizer) {
		return nil
	}
	return client.IgnoreNotFound(c.client.Patch(ctx, r.Object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// assemble makes the status. It is deterministic, so that what did not change is
// not written.
func assemble(p *plan, rows map[string]row, placed []string, conditions []metav1.Condition) refractv1alpha1.PropagationStatus {
	s := refractv1alpha1.PropagationStatus{
		ObservedGeneration: p.generation,
		Placed:             int32(len(p.targets)),
		PropagationPolicy:  p.propagation,
		OverridePolicies:   p.overrides,
		DeletedPolicies:    p.deleted,
		Warnings:           p.warnings,
		Conditions:         slices.Clone(conditions),
	}
	names := map[string]bool{}
	for name := range rows {
		names[name] = true
	}
	for name := range p.targets {
		names[name] = true
	}
	for _, name := range placed {
		names[name] = true
	}
	holders := map[string]int32{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		r, reported := rows[name]
		if !reported {
			r.ClusterStatus = refractv1alpha1.ClusterStatus{Name: name, State: refractv1alpha1.StatePending}
		}
		if t := p.targets[name]; p.held == "" && r.State == refractv1alpha1.StateSynced && (t == nil || t.variant == nil || t.variant.hash != r.Hash) {
			r.State = refractv1alpha1.StatePending
		}
		if t := p.targets[name]; t != nil && t.variant != nil {
			holders[t.variant.hash]++
		}
		if r.State == refractv1alpha1.StateSynced {
			s.Synced++
		}
		s.Clusters = append(s.Clusters, r.ClusterStatus)
	}
	s.VariantCount = int32(len(p.variants))
	for _, v := range p.variants[:min(len(p.variants), maxVariants)] {
		s.Variants = append(s.Variants, refractv1alpha1.VariantStatus{Hash: v.hash, Clusters: holders[v.hash], Changes: lines(v)})
	}
	meta.SetStatusCondition(&s.Conditions, verdict(p, &s))
	return s
}

// verdict says in one condition how it stands.
func verdict(p *plan, s *refractv1alpha1.PropagationStatus) metav1.Condition {
	c := metav1.Condition{Type: refractv1alpha1.ConditionSynced, Status: metav1.ConditionFalse, ObservedGeneration: p.generation}
	var failed []string
	for i := range s.Clusters {
		if r := &s.Clusters[i]; r.State == refractv1alpha1.StateFailed || r.State == refractv1alpha1.StateOffline {
			failed = append(failed, fmt.Sprintf("%s: %s", r.Name, r.Message))
			if c.Reason == "" {
				c.Reason = r.Reason
			}
		}
	}
	switch {
	case p.held != "":
		c.Reason, c.Message = p.held, p.heldMessage
	case p.gone:
		c.Reason, c.Message = reasonSourceGone, "copies are being removed"
	case len(failed) > 0:
		const most = 3
		c.Message = strings.Join(failed[:min(len(failed), most)], "; ")
		if more := len(failed) - most; more > 0 {
			c.Message += fmt.Sprintf("; and %d more clusters", more)
		}
	case len(p.targets) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonNoCluster, "the propagation policy chooses no cluster"
	case int(s.Synced) < len(s.Clusters):
		c.Reason, c.Message = reasonProgressing, fmt.Sprintf("%d of %d clusters are as they should be", s.Synced, len(s.Clusters))
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonSynced, fmt.Sprintf("all %d clusters hold what belongs there", s.Placed)
	}
	return c
}

// lines renders the changes of a variant.
func lines(v *variant) []string {
	var out []string
	for i := range v.changes {
		if len(out) == maxChanges {
			break
		}
		c := &v.changes[i]
		before, after := value(c.Before, c.Op != tree.OpAdd, v.secret), value(c.After, c.Op != tree.OpRemove, v.secret)
		out = append(out, fmt.Sprintf("%s: %s → %s (%s)", c.Path, before, after, c.By))
	}
	return out
}

func value(v any, there, secret bool) string {
	switch {
	case !there:
		return "(nothing)"
	case secret:
		return "***"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	if utf8.RuneCount(text) <= maxValueRunes {
		return string(text)
	}
	return string([]rune(string(text))[:maxValueRunes]) + "…"
}

// announce records events on the source object: its first arrival, and failures.
func (c *Controller) announce(key Key, p *plan, before, now refractv1alpha1.PropagationStatus) {
	if p.gone {
		return
	}
	source := &unstructured.Unstructured{}
	source.SetAPIVersion(p.gvr.GroupVersion().String())
	source.SetKind(p.kind)
	source.SetNamespace(key.Namespace)
	source.SetName(key.Name)
	source.SetUID(p.uid)
	was := meta.FindStatusCondition(before.Conditions, refractv1alpha1.ConditionSynced)
	is := meta.FindStatusCondition(now.Conditions, refractv1alpha1.ConditionSynced)
	switch {
	case is.Status == metav1.ConditionTrue && (was == nil || was.Status != metav1.ConditionTrue):
		c.recorder.Eventf(source, nil, corev1.EventTypeNormal, is.Reason, "Propagate", "%s", is.Message)
	case is.Status == metav1.ConditionFalse && is.Reason != reasonProgressing && (was == nil || was.Reason != is.Reason || was.Message != is.Message):
		c.recorder.Eventf(source, nil, corev1.EventTypeWarning, is.Reason, "Propagate", "%s", cut(is.Message, 1000))
	}
	old := map[string]bool{}
	for _, w := range before.Warnings {
		old[w] = true
	}
	for _, w := range now.Warnings {
		if !old[w] {
			c.recorder.Eventf(source, nil, corev1.EventTypeWarning, "PropagationWarning", "Propagate", "%s", cut(w, 1000))
		}
	}
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
