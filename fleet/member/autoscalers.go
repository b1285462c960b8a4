package member

import (
	"context"
	"strings"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"refract.dev/fleet/policy/placement"
)

// Bounds of the data about the autoscalers of a member.
const (
	mostScaled     = 500  // Autoscalers that are read in a namespace.
	mostScaledIn   = 1000 // Namespaces whose autoscalers are kept.
	mostWorkload   = 500  // Bytes of the group, the kind and the name of a workload.
	autoscalersAge = time.Minute
	freshAge       = 10 * time.Second
)

var autoscalers = autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers")

// Autoscalers finds the HorizontalPodAutoscalers of a member by the workloads that they scale. It lists the autoscalers
// of a namespace on demand, and caches them for a minute. A caller requests fresh data before it writes a copy.
type Autoscalers struct {
	api *connection
	now func() time.Time

	mu  sync.Mutex
	all map[string]scaledIn // By namespace.
}

// scaledIn has the autoscalers of a namespace.
type scaledIn struct {
	names map[placement.Workload]string
	whole bool // Whether all autoscalers of the namespace are known.
	at    time.Time
}

// Of returns the name of the HorizontalPodAutoscaler that scales a workload; "" if none was found. The result known is
// false if none was found and the list of autoscalers is incomplete, for example because the right to list is missing.
// With the argument fresh, Of lists the autoscalers again, unless the last list is less than 10 seconds old and has an
// autoscaler of the workload.
func (a *Autoscalers) Of(ctx context.Context, namespace string, of placement.Workload, fresh bool) (name string, known bool) {
	a.mu.Lock()
	in, read := a.all[namespace]
	a.mu.Unlock()
	age := autoscalersAge
	if fresh {
		age = freshAge
	}
	recent := read && a.now().Sub(in.at) < age
	if _, found := in.names[of]; !recent || fresh && !found {
		in = a.list(ctx, namespace)
		a.mu.Lock()
		if a.all == nil || len(a.all) >= mostScaledIn {
			a.all = map[string]scaledIn{}
		}
		a.all[namespace] = in
		a.mu.Unlock()
	}
	name, found := in.names[of]
	return name, found || in.whole
}

// list reads the autoscalers of a namespace. A missing right to list them is not reported, as Refract works without it.
func (a *Autoscalers) list(ctx context.Context, namespace string) scaledIn {
	in := scaledIn{names: map[placement.Workload]string{}, at: a.now()}
	err := a.api.request(ctx, func(ctx context.Context) error {
		page, err := a.api.whole.list(ctx, autoscalers, namespace, metav1.ListOptions{Limit: mostScaled})
		if err != nil {
			return err
		}
		for i := range page.Items[:min(len(page.Items), mostScaled)] {
			item := &page.Items[i]
			u, err := item.whole()
			if err != nil || !isName(item.Name) {
				continue
			}
			target, ok := placement.Scales(u)
			if ok && len(target.Group)+len(target.Kind)+len(target.Name) <= mostWorkload {
				in.names[target] = item.Name
			}
		}
		in.whole = page.Continue == ""
		return nil
	})
	in.whole = in.whole && err == nil
	return in
}

// scaledThrough is part of the managedFields of a manager that owns spec.replicas.
const scaledThrough = `"f:spec":{"f:replicas":{}`

// scalerOf returns the controller that last set spec.replicas through the subresource scale; "" if there is none. Tools
// of users do not count.
func scalerOf(managers []metav1.ManagedFieldsEntry) string {
	for i := range managers {
		e := &managers[i]
		if e.Subresource == "scale" && isController(e.Manager) && e.FieldsV1 != nil && strings.Contains(e.FieldsV1.GetRawString(), scaledThrough) {
			return e.Manager
		}
	}
	return ""
}

// isController reports whether the name of a field manager looks like the name of a controller. Kubebuilder names the
// binary of a controller "manager". Tools of users, such as kubectl, have other names.
func isController(manager string) bool {
	name := strings.ToLower(manager)
	return name == "manager" || strings.HasPrefix(name, "keda") ||
		strings.Contains(name, "controller") || strings.Contains(name, "scaler") || strings.Contains(name, "operator")
}
