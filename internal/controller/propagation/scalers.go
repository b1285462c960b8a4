package propagation

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/member"
	"refract.dev/placement"
	"refract.dev/tree"
)

// An autoscaler on a member decides on the replicas of a copy. That there is one is known by the object that the
// hub sends there, or by the managedFields of the copy. docs/design/0043 says why these two.

// replicasLeft begins what the row of a cluster says of a copy that an autoscaler scales.
const replicasLeft = "replicas left to "

// scaledKey is the key of the workload that an object of the hub scales; the zero Key if it scales none.
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

// setScaled records which workload the object scales. It returns the workloads of which something else is to be said now.
// The lock must be held.
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

// stopsAtZero reports whether an autoscaler rests while no replicas are asked for: so users turn it off,
// https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/#implicit-maintenance-mode-deactivation.
// KEDA does not rest: it scales to zero, and has a HorizontalPodAutoscaler of its own for all else.
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

// scaler names an autoscaler of the hub that scales the object on the cluster, as KIND NAME; empty if there is none.
func (s *state) scaler(key Key, cluster string) (name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for by := range s.scalers[key] {
		e := s.objects[by]
		if e == nil || e.desired.dryRun {
			continue
		}
		if _, placed := find(e.previous.placed, cluster); !placed {
			continue
		}
		if is := e.desired.kind + " " + by.Name; name == "" || is < name {
			name = is
		}
	}
	return name
}

// scalerThere names what scales a copy, as KIND NAME or by its field manager, as far as the cluster shows it; empty if
// nothing does. What the cluster was asked is remembered in the message of the row: fresh has it asked again.
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
		return "" // It has scaled the copy once, and is gone.
	default:
		return have.ScaledBy
	}
}

// autoscalersManager is the field manager of Kubernetes' own autoscaler.
const autoscalersManager = "kube-controller-manager"

// leftOf returns the fields of a copy that Refract does not send. If an autoscaler scales it that the cluster shows, its
// row says so; [state.sayScaler] says it of one of the hub. Changed is whether the copy has changed, or is about to be written.
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
		return t.variant.left // It has not scaled since Refract sent them. So they can be sent again, and also turn an autoscaler on that was off.
	}
	return append(slices.Clip(t.variant.left), replicasField)
}

// sayScaler says in the row of a copy that an autoscaler of the hub scales it.
func (s *state) sayScaler(key Key, row *refractv1alpha1.ClusterStatus) {
	if row.State != refractv1alpha1.StateSynced {
		return
	}
	if name := s.scaler(key, row.Name); name != "" {
		row.Message = replicasLeft + name
	}
}

// isOff reports whether an object asks for no replicas.
func isOff(obj *unstructured.Unstructured) bool {
	n, found, err := unstructured.NestedInt64(obj.Object, "spec", "replicas")
	return found && err == nil && n == 0
}
