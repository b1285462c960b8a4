package injected

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
)

// Pod says of a pod that is there which policies of its namespace put what into it,
// and why others did not.
type Pod struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	// Owner is what made the pod in the end, KIND/NAME; empty for a bare pod.
	Owner string `json:"owner,omitempty"`
	// Stale is whether it would get something else if it were created now.
	Stale bool `json:"stale"`
	// Hash is of what it would get now, Recorded of what it got; empty for nothing.
	Hash     string `json:"hash,omitempty"`
	Recorded string `json:"recorded,omitempty"`
	// Doubt says why it is not known what was added to the pod; empty if it is.
	Doubt string `json:"doubt,omitempty"`
	// Policies are those that select the pod, in the order of application.
	Policies []PodPolicy `json:"policies"`
	// Others are the policies of the namespace that do not select it, or cannot be used.
	Others []Other `json:"others,omitempty"`
	// Left is what policies injected that are no more, or do not select it any more.
	Left []Left `json:"left,omitempty"`
}

// PodPolicy is the status of a pod for a policy that selects it.
type PodPolicy struct {
	Name    string `json:"name"`
	Service string `json:"service,omitempty"`
	// Generation is the policy's now; Injected the one that the pod was given, 0 for
	// none.
	Generation int64        `json:"generation"`
	Injected   int64        `json:"injected,omitempty"`
	State      inject.State `json:"state"`
	// Reason and Message say why, unless the state is Injected.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Added is what the policy put into the pod; what was there already is not in it.
	Added []Item `json:"added,omitempty"`
	// Differs is what would be otherwise if the pod were created now, as far as that can
	// be said of single items; empty unless it is stale.
	Differs []Difference `json:"differs,omitempty"`
	// Rollout says how far the recreation of the policy's pods has come; empty unless
	// the pod is stale.
	Rollout string `json:"rollout,omitempty"`
	// Workload is the status of the pod's owner for the policy, if it needs attention.
	Workload *refractv1beta1.WorkloadStatus `json:"workload,omitempty"`
}

// Other is a policy that has nothing to do with a pod.
type Other struct {
	Name string `json:"name"`
	// Why it does not select the pod, or cannot be used.
	Why string `json:"why"`
}

// Left is what a policy injected that does not apply to the pod any more.
type Left struct {
	Policy string `json:"policy"`
	// Why it does not.
	Why   string `json:"why"`
	Items []Item `json:"items,omitempty"`
}

// Evidence is what there is about a pod.
type Evidence struct {
	// Pod is its JSON.
	Pod []byte
	// Owner is KIND/NAME of what made it in the end; empty for a bare pod.
	Owner string
	// Policies are those of its namespace, as they are stored: one that cannot be read
	// hides no other.
	Policies []unstructured.Unstructured
}

// Explain explains a pod. It does not keep or change the evidence.
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
			x.Doubt = fmt.Sprintf("annotation %s cannot be understood, so what was there before is not told from what was added: %v",
				refractv1beta1.InjectionAnnotation, err)
		} else {
			record = r
		}
	}
	if record.Trimmed {
		x.Doubt = "what was added to the pod was too much to be written down in its annotations: only the names of the policies are known"
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

// examine fills in the status of the pod for the policies that select it.
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

// statusOf returns the status of the owner of a pod, or of the pod itself if it has none,
// for a policy; nil if it needs no attention.
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

// left fills in what is there of policies that do not apply any more.
func (x *Pod) left(pod *corev1.Pod, record *inject.Record, objects map[string]*refractv1beta1.ServiceInjectionPolicy) {
	for i := range record.Applied {
		a := &record.Applied[i]
		if objects[a.Policy] != nil {
			continue
		}
		why := "there is no such policy any more"
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
