package propagation

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// An autoscaler on a member decides the replicas of a copy. Two sources show it: an autoscaler that the hub sends to
// the member, and the managedFields of the copy. docs/design/other-writers.md has the reasons.

// replicasLeft begins the message in the row of a copy that an autoscaler scales.
const replicasLeft = "replicas left to "

// scaledKey returns the key of the workload that an object of the hub scales; the zero Key if it scales none.
func scaledKey(obj *unstructured.Unstructured, s *inputs) Key {
	workload, ok := placement.Scales(obj)
	if !ok {
		return Key{}
	}
	resource, served := s.resource(workload.GroupKind)
	if !served {
		return Key{}
	}
	return Key{GroupResource: resource, NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: workload.Name}}
}

// setScaled records the workload that the object scales. It returns the workloads whose rows may change. The lock
// must be held.
func (s *state) setScaled(key Key, e *objectState, p *desiredState) (touched []Key) {
	if e.scales == p.scales && (p.scales == Key{} || e.desired != nil && samePlaces(e.desired, p)) {
		return nil
	}
	if e.scales != (Key{}) {
		touched = append(touched, e.scales)
		delete(s.scalers[e.scales], key)
		if len(s.scalers[e.scales]) == 0 {
			delete(s.scalers, e.scales)
		}
	}
	e.scales = p.scales
	if e.scales != (Key{}) {
		touched = append(touched, e.scales)
		if s.scalers[e.scales] == nil {
			s.scalers[e.scales] = map[Key]bool{}
		}
		s.scalers[e.scales][key] = true
	}
	return slices.DeleteFunc(touched, func(key Key) bool { return s.objects[key] == nil })
}

// stopsAtZero reports whether an autoscaler pauses while the workload has zero replicas, because users turn it off this
// way:
// https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/#implicit-maintenance-mode-deactivation.
// KEDA does not pause: it scales to zero itself, and has its own HorizontalPodAutoscaler for other numbers.
func stopsAtZero(autoscaler string) bool {
	name, is := strings.CutPrefix(autoscaler, "HorizontalPodAutoscaler ")
	return is && !strings.HasPrefix(name, "keda-hpa-")
}

// samePlaces reports whether two desired states have the same targets.
func samePlaces(p, q *desiredState) bool {
	if len(p.targets) != len(q.targets) {
		return false
	}
	for name := range p.targets {
		if q.targets[name] == nil {
			return false
		}
	}
	return true
}

// scaler returns the autoscaler of the hub that scales the object on the cluster, as KIND NAME; empty if there is none.
// It returns the first one by name if there are several.
func (s *state) scaler(key Key, cluster string) (name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for by := range s.scalers[key] {
		e := s.objects[by]
		if e == nil || e.desired.dryRun {
			continue
		}
		if _, placed := placement.Find(e.previous.placed, cluster); !placed {
			continue
		}
		if is := e.desired.kind + " " + by.Name; name == "" || is < name {
			name = is
		}
	}
	return name
}

// scalerThere returns the autoscaler of a copy according to the cluster, as KIND NAME or by its field manager; empty
// for none. The message of the row keeps an earlier answer of the cluster; if fresh is true, the cluster is asked
// again.
func (a *applier) scalerThere(ctx context.Context, key Key, p *desiredState, r *clusterStatus, have member.Copy, fresh bool) string {
	if have.ScaledBy == "" {
		return ""
	}
	if name, said := strings.CutPrefix(r.message, replicasLeft); said && !fresh && r.state == refractv1alpha1.StateSynced {
		return name
	}
	workload := placement.Workload{Name: key.Name}
	workload.Group, workload.Kind = p.gvr.Group, p.kind
	switch name, known := a.member.Autoscalers.Of(ctx, key.Namespace, workload, fresh); {
	case name != "":
		return "HorizontalPodAutoscaler " + name
	case known && have.ScaledBy == autoscalersManager:
		return "" // The autoscaler has scaled the copy once, and is gone.
	default:
		return have.ScaledBy
	}
}

// autoscalersManager is the field manager of Kubernetes' own autoscaler.
const autoscalersManager = "kube-controller-manager"

// leftOf returns the fields of a copy that Refract does not send. It puts an autoscaler of the cluster into the message
// of the row; [state.sayScaler] does this for an autoscaler of the hub. changed is whether the copy has changed, or is
// about to be written.
func (a *applier) leftOf(ctx context.Context, key Key, p *desiredState, t *target, r *clusterStatus, have member.Copy, changed bool) []tree.Pattern {
	by, message := a.state.scaler(key, a.member.Name), ""
	if by == "" {
		if by = a.scalerThere(ctx, key, p, r, have, changed); by != "" {
			message = replicasLeft + by
		}
	}
	if message != "" || strings.HasPrefix(r.message, replicasLeft) {
		r.message = message
	}
	switch {
	case by == "", slices.ContainsFunc(t.variant.left, replicasField.Equal):
		return t.variant.left
	case t.variant.off && stopsAtZero(by):
		return t.variant.left
	case have.Owned.Has(replicasField):
		return t.variant.left // The autoscaler has not scaled since Refract sent the replicas. They can be sent again, which also turns on a paused autoscaler.
	}
	return append(slices.Clip(t.variant.left), replicasField)
}

// sayScaler puts the autoscaler of the hub into the row of a copy that it scales.
func (s *state) sayScaler(key Key, row *refractv1alpha1.ClusterStatus) {
	if row.State != refractv1alpha1.StateSynced {
		return
	}
	if name := s.scaler(key, row.Name); name != "" {
		row.Message = replicasLeft + name
	}
}

// isOff reports whether an object has zero replicas.
func isOff(obj *unstructured.Unstructured) bool {
	n, found, err := unstructured.NestedInt64(obj.Object, "spec", "replicas")
	return found && err == nil && n == 0
}
