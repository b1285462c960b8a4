package member

import (
	"context"
	"strings"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"refract.dev/placement"
)

// What is kept of the autoscalers of a member.
const (
	mostScaled     = 500  // Autoscalers that are read of a namespace.
	mostScaledIn   = 1000 // Namespaces of which they are known.
	mostWorkload   = 500  // Bytes of the kind and the name of a workload.
	autoscalersAge = time.Minute
	freshAge       = 10 * time.Second
)

var autoscalers = autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers")

// Autoscalers names the HorizontalPodAutoscalers of a member by the workloads that they scale. It lists those
// of one namespace when it is asked, and remembers them for a minute. Who is about to write a copy asks for what is fresh.
type Autoscalers struct {
	api *connection
	now func() time.Time

	mu  sync.Mutex
	all map[string]scaledIn // By namespace.
}

// scaledIn is what scales the workloads of a namespace.
type scaledIn struct {
	names map[placement.Workload]string
	whole bool // Whether these are all.
	at    time.Time
}

// Of returns the name of the HorizontalPodAutoscaler that scales a workload. It is empty and known if there is
// none. It is not known if they may not, or cannot, be listed. Fresh has
// them listed if that was 10 seconds ago or earlier, and before it is said that there is none.
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

// list reads the autoscalers of a namespace. It is no right that is missing if it may not: Refract works without.
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

// scaledThrough is how managedFields show who has set the replicas by the subresource scale.
const scaledThrough = `"f:spec":{"f:replicas":{}`

// scalerOf returns the controller that has set spec.replicas last through the subresource scale; empty if
// none has, or a person.
func scalerOf(managers []metav1.ManagedFieldsEntry) string {
	for i := range managers {
		e := &managers[i]
		if e.Subresource == "scale" && isController(e.Manager) && e.FieldsV1 != nil && strings.Contains(e.FieldsV1.GetRawString(), scaledThrough) {
			return e.Manager
		}
	}
	return ""
}

// isController reports whether a field manager is a controller, by its name: tools by which people scale, such as kubectl, are
// called otherwise. "manager" is what kubebuilder calls the binary of a controller.
func isController(manager string) bool {
	name := strings.ToLower(manager)
	return name == "manager" || strings.HasPrefix(name, "keda") ||
		strings.Contains(name, "controller") || strings.Contains(name, "scaler") || strings.Contains(name, "operator")
}
