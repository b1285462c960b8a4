package injected

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

// Pod describes which policies of its namespace added which items to an existing pod, and why other policies did not.
type Pod struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	// Owner is the topmost owner of the pod, as KIND/NAME; empty for a bare pod.
	Owner string `json:"owner,omitempty"`
	// Stale is true if a new pod that is created now would get other items.
	Stale bool `json:"stale"`
	// Hash is the hash of the policies that a new pod would get. Recorded is the hash in the pod's record. A hash is
	// empty if no policy applies.
	Hash     string `json:"hash,omitempty"`
	Recorded string `json:"recorded,omitempty"`
	// Doubt is the reason why the injected items are not known; empty if they are known.
	Doubt string `json:"doubt,omitempty"`
	// Policies are the policies that select the pod, in the order of application.
	Policies []PodPolicy `json:"policies"`
	// Others are the policies of the namespace that do not select the pod or are invalid.
	Others []Other `json:"others,omitempty"`
	// Left are the additions of policies that no longer exist or no longer select the pod.
	Left []Left `json:"left,omitempty"`
}

// PodPolicy is the status of a pod for a policy that selects it.
type PodPolicy struct {
	Name    string `json:"name"`
	Service string `json:"service,omitempty"`
	// Generation is the current generation of the policy. Injected is the generation of the policy that was injected
	// into the pod, or 0 if the pod's record does not have the policy.
	Generation int64        `json:"generation"`
	Injected   int64        `json:"injected,omitempty"`
	State      inject.State `json:"state"`
	// Reason and Message explain every state except Injected.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Added are the policy's additions to the pod, without the items that the pod already had.
	Added []Item `json:"added,omitempty"`
	// Differs are the items that would be different in a new pod, as far as single items can be compared. It is empty
	// unless the pod is stale.
	Differs []Difference `json:"differs,omitempty"`
	// Rollout describes the progress of the policy's rollout; empty unless the pod is stale.
	Rollout string `json:"rollout,omitempty"`
	// Workload is the entry for the pod's owner in the policy's status, if the owner needs attention.
	Workload *refractv1beta1.WorkloadStatus `json:"workload,omitempty"`
}

// Other is a policy that does not apply to a pod.
type Other struct {
	Name string `json:"name"`
	// Why is the reason: the policy does not select the pod or is invalid.
	Why string `json:"why"`
}

// Left has the additions of a policy that no longer applies to the pod.
type Left struct {
	Policy string `json:"policy"`
	// Why is the reason: the policy does not exist any more, or does not apply.
	Why   string `json:"why"`
	Items []Item `json:"items,omitempty"`
}

// Evidence has the objects that explain the injection of a pod.
type Evidence struct {
	// Pod is the pod as JSON.
	Pod []byte
	// Owner is the topmost owner of the pod, as KIND/NAME; empty for a bare pod.
	Owner string
	// Policies are the policies of the pod's namespace in their stored form. So a policy that cannot be decoded does
	// not hide others.
	Policies []unstructured.Unstructured
}

// Explain returns the explanation of a pod. It neither retains nor modifies the evidence.
func Explain(e *Evidence) (*Pod, error) {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(e.Pod, pod); err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	x := &Pod{
		APIVersion: apiVersion, Kind: "PodInjection", Namespace: pod.Namespace, Name: pod.Name, Owner: e.Owner, Policies: []PodPolicy{},
	}
	record := &inject.Record{}
	if text, ok := pod.Annotations[refractv1beta1.InjectionAnnotation]; ok {
		r, err := inject.ReadRecord(text)
		if err != nil {
			x.Doubt = fmt.Sprintf("annotation %s cannot be read, so the added items are not known: %v",
				refractv1beta1.InjectionAnnotation, err)
		} else {
			record = r
		}
	}
	if record.Trimmed {
		x.Doubt = "the list of added items was too long for the pod's annotations: only the names of the policies are known"
	}
	var compiled []*inject.Policy
	objects := map[string]*refractv1beta1.ServiceInjectionPolicy{}
	for i := range e.Policies {
		name, p := e.Policies[i].GetName(), &refractv1beta1.ServiceInjectionPolicy{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(e.Policies[i].Object, p); err != nil {
			x.Others = append(x.Others, Other{name, "cannot be read: " + err.Error()})
			continue
		}
		policy, errs := inject.Compile(p)
		switch {
		case len(errs) > 0:
			x.Others = append(x.Others, Other{p.Name, "cannot be used: " + errs.ToAggregate().Error()})
		case !policy.Matches(pod.Labels):
			x.Others = append(x.Others, Other{p.Name, mismatch(p.Spec.Selector, pod.Labels)})
		default:
			objects[p.Name] = p
			compiled = append(compiled, policy)
		}
	}
	if err := x.examine(e, inject.NewSet(compiled...), pod, record, objects); err != nil {
		return nil, err
	}
	x.left(pod, record, objects)
	return x, nil
}

// examine sets the status of the pod for the policies that select it.
func (x *Pod) examine(
	e *Evidence, set *inject.Set, pod *corev1.Pod, record *inject.Record, objects map[string]*refractv1beta1.ServiceInjectionPolicy,
) error {
	now, err := set.Examine(e.Pod)
	if err != nil {
		return fmt.Errorf("examining the pod: %w", err)
	}
	fresh, gets, err := anew(set, e.Pod)
	if err != nil {
		return err
	}
	x.Hash, x.Recorded, x.Stale = now.Hash, now.Recorded, now.Stale()
	for i := range now.Statuses {
		s := &now.Statuses[i]
		object := objects[s.Policy.Name()]
		p := PodPolicy{
			Name: s.Policy.Name(), Service: s.Policy.Service(), Generation: s.Policy.Generation(),
			State: s.State, Reason: s.Reason, Message: s.Message,
		}
		if a := given(record, p.Name); a != nil {
			p.Injected, p.Added = a.Generation, items(pod, a)
		}
		if s.State == inject.StateStale {
			p.Rollout = RolloutOf(object).Line()
			p.Differs = differences(p.Added, items(fresh, given(gets, p.Name)))
		}
		p.Workload = statusOf(object, pod, e.Owner)
		x.Policies = append(x.Policies, p)
	}
	return nil
}

// statusOf returns the entry for the owner of a pod in a policy's status. A pod without an owner has an entry itself.
// statusOf returns nil if there is no entry, so that no attention is needed.
func statusOf(object *refractv1beta1.ServiceInjectionPolicy, pod *corev1.Pod, owner string) *refractv1beta1.WorkloadStatus {
	if owner == "" {
		owner = "Pod/" + pod.Name
	}
	for i := range object.Status.Workloads {
		if w := &object.Status.Workloads[i]; w.Kind+"/"+w.Name == owner {
			return w.DeepCopy()
		}
	}
	return nil
}

// left fills the field Left: the additions of policies that no longer apply.
func (x *Pod) left(pod *corev1.Pod, record *inject.Record, objects map[string]*refractv1beta1.ServiceInjectionPolicy) {
	for i := range record.Applied {
		a := &record.Applied[i]
		if objects[a.Policy] != nil {
			continue
		}
		why := "the policy no longer exists"
		if at := slices.IndexFunc(x.Others, func(o Other) bool { return o.Name == a.Policy }); at >= 0 {
			why = x.Others[at].Why
		}
		x.Left = append(x.Left, Left{Policy: a.Policy, Why: why, Items: items(pod, a)})
	}
}

func given(record *inject.Record, policy string) *inject.RecordApplied {
	for i := range record.Applied {
		if record.Applied[i].Policy == policy {
			return &record.Applied[i]
		}
	}
	return nil
}
