package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/examples"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/injection/inject"
	"refract.dev/injection/injected"
	"refract.dev/internal/playground"
)

// The parts of the injection demo: the policy of the examples, the Deployment whose pods use the service, and a
// variable with its value before and after the change.
const (
	demoPolicy   = "allow-database"
	demoConsumer = "storefront"
	demoVariable = "DB_PORT"
	demoBefore   = "6379"
	demoAfter    = "6380"
)

// demoPodPatience is the longest wait until all pods are recreated.
const demoPodPatience = 2 * time.Minute

// demoInjection is the result of an injection policy.
type demoInjection struct {
	Policy render.Policy `json:"policy"`
	// Pods are the pods of the members, with the items that the policy added.
	Pods []demoPod `json:"pods"`
	// Change is the result of a change of the policy on the hub.
	Change demoChange `json:"change"`
	// Right is true if all pods had the content of the policy before the change and after it, and if all copies of the
	// policy and the Deployment are equal to the output of refract render.
	Right bool `json:"right"`
	// Seconds is the time until all pods had the content of the policy.
	Seconds float64 `json:"seconds"`
}

// demoChange is a change of the policy on the hub.
type demoChange struct {
	// Variable is the changed variable, with its value before and after.
	Variable string `json:"variable"`
	Before   string `json:"before"`
	After    string `json:"after"`
	// Pods are the recreated pods.
	Pods []demoPod `json:"pods"`
	// Seconds is the time from the change until all pods were recreated.
	Seconds float64 `json:"seconds"`
}

// demoPod is a pod on a member.
type demoPod struct {
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
	// Owner is the KIND/NAME of the pod's topmost owner.
	Owner string `json:"owner"`
	// Added are the items that the policy added.
	Added []string `json:"added"`

	uid types.UID
}

// showInjection propagates an injection policy to the members and waits until all pods have its content. Then it
// changes the policy and waits until the pods are recreated. It adds both outcomes to the result.
func showInjection(ctx context.Context, s *streams, pg *playground.Playground, result *demoResult, ended <-chan error) error {
	set, problems := manifest.ReadFS(examples.InjectionDemo)
	if len(problems) > 0 {
		return problems[0]
	}
	d, err := newDemo(pg, set)
	if err != nil {
		return err
	}
	i := &demoInjection{
		Policy: render.Policy{Kind: refractv1beta1.KindServiceInjectionPolicy, Namespace: "shop", Name: demoPolicy},
		Change: demoChange{Variable: demoVariable, Before: demoBefore, After: demoAfter},
	}
	result.Injection, result.Right = i, false
	fmt.Fprintln(s.err, "hub: applying a service injection policy, and a consumer of its service")
	began := time.Now()
	if err := d.apply(ctx); err != nil {
		return err
	}
	if i.Pods, err = d.awaitPods(ctx, demoBefore, nil, ended); err != nil || i.Pods == nil {
		return err
	}
	i.Seconds = time.Since(began).Round(10 * time.Millisecond).Seconds()

	fmt.Fprintln(s.err, "hub: changing the policy")
	began = time.Now()
	if err := d.change(ctx); err != nil {
		return err
	}
	if i.Change.Pods, err = d.awaitPods(ctx, demoAfter, i.Pods, ended); err != nil || i.Change.Pods == nil {
		return err
	}
	i.Change.Seconds = time.Since(began).Round(10 * time.Millisecond).Seconds()
	after, err := d.settle(ctx, ended)
	if err != nil {
		return err
	}
	i.Right = after.Right
	result.Right = i.Right
	return nil
}

// change changes the variable in the policy on the hub, and in the desired content.
func (d *demo) change(ctx context.Context) error {
	for i := range d.set.Objects {
		o := &d.set.Objects[i]
		if o.Content.GetKind() != refractv1beta1.KindServiceInjectionPolicy {
			continue
		}
		o.Content = o.Content.DeepCopy()
		env := []any{map[string]any{"name": demoVariable, "value": demoAfter}}
		if err := unstructured.SetNestedSlice(o.Content.Object, env, "spec", "env"); err != nil {
			return err
		}
		if err := d.put(ctx, o.Content); err != nil {
			return err
		}
	}
	var err error
	d.want, err = render.Render(d.set, slices.Sorted(maps.Keys(d.members)))
	return err
}

// awaitPods waits until all pods of demoConsumer run on all members and have the value, and no old pods exist. If this
// takes longer than demoPodPatience, it returns nil.
func (d *demo) awaitPods(ctx context.Context, value string, old []demoPod, ended <-chan error) ([]demoPod, error) {
	var pods []demoPod
	_, err := poll(ctx, demoPodPatience, ended, func(ctx context.Context) (done bool, err error) {
		pods, err = d.podsWith(ctx, value, old)
		return pods != nil, err
	})
	return pods, err
}

// podsWith returns the pods of demoConsumer on all members; nil if they do not meet the conditions of awaitPods yet.
func (d *demo) podsWith(ctx context.Context, value string, old []demoPod) ([]demoPod, error) {
	var all []demoPod
	for _, name := range slices.Sorted(maps.Keys(d.members)) {
		pods, err := d.podsOn(ctx, name, value)
		if err != nil || pods == nil {
			return nil, err
		}
		all = append(all, pods...)
	}
	for i := range all {
		if slices.ContainsFunc(old, func(o demoPod) bool { return o.uid == all[i].uid }) {
			return nil, nil
		}
	}
	return all, nil
}

func (d *demo) podsOn(ctx context.Context, cluster, value string) ([]demoPod, error) {
	c := d.members[cluster]
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := c.List(ctx, list, client.InNamespace("shop"), client.MatchingLabels{"app": demoConsumer}); err != nil {
		return nil, fmt.Errorf("listing pods of %s: %w", cluster, err)
	}
	policies := injectionPolicies()
	err := c.List(ctx, policies, client.InNamespace("shop"))
	switch {
	case meta.IsNoMatchError(err):
		return nil, nil // The controllers of the member have not created the type yet.
	case err != nil:
		return nil, fmt.Errorf("listing policies of %s: %w", cluster, err)
	}
	if len(list.Items) != d.replicas() {
		return nil, nil
	}
	pods := make([]demoPod, 0, len(list.Items))
	for i := range list.Items {
		u := &list.Items[i]
		owner, err := topOwner(ctx, c, u)
		if err != nil {
			return nil, err
		}
		pod, right, err := explainDemoPod(u, owner, policies.Items, value)
		if err != nil || !right {
			return nil, err
		}
		pod.Cluster = cluster
		pods = append(pods, pod)
	}
	return pods, nil
}

// replicas returns the number of pods of demoConsumer on each member.
func (d *demo) replicas() int {
	for i := range d.set.Objects {
		if o := d.set.Objects[i].Content; o.GetKind() == "Deployment" {
			n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas") // The example sets it.
			return int(n)
		}
	}
	return 0
}

// explainDemoPod returns a pod with the items that the policy added. right is false if the pod does not run or does not
// have the value.
func explainDemoPod(
	u *unstructured.Unstructured, owner string, policies []unstructured.Unstructured, value string,
) (pod demoPod, right bool, err error) {
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	if phase != string(corev1.PodRunning) || u.GetDeletionTimestamp() != nil {
		return pod, false, nil
	}
	text, err := u.MarshalJSON()
	if err != nil {
		return pod, false, err
	}
	x, err := injected.Explain(&injected.Evidence{Pod: text, Owner: owner, Policies: policies})
	if err != nil {
		return pod, false, fmt.Errorf("explaining pod %s: %w", u.GetName(), err)
	}
	pod = demoPod{Name: u.GetName(), Owner: owner, uid: u.GetUID()}
	for i := range x.Policies {
		p := &x.Policies[i]
		if p.Name != demoPolicy || p.State != inject.StateInjected {
			return pod, false, nil
		}
		for j := range p.Added {
			item := &p.Added[j]
			right = right || (item.Name == demoVariable && item.Says == strconv.Quote(value))
			pod.Added = append(pod.Added, item.String())
		}
	}
	return pod, right, nil
}

// printInjection shows the items that the pods got, and the recreated pods.
func printInjection(w io.Writer, i *demoInjection) {
	if i == nil {
		return
	}
	fmt.Fprintf(w, "\n%s %s/%s\n", i.Policy.Kind, i.Policy.Namespace, i.Policy.Name)
	if len(i.Pods) == 0 {
		fmt.Fprintln(w, "  ✗ the pods did not get the content of the policy")
		return
	}
	printPods(w, i.Pods)
	for _, item := range i.Pods[0].Added { // The other pods have the same items.
		fmt.Fprintf(w, "      %s\n", item)
	}
	c := &i.Change
	fmt.Fprintf(w, "\n%s %s/%s changed: env %s from %q to %q\n", i.Policy.Kind, i.Policy.Namespace, i.Policy.Name, c.Variable, c.Before, c.After)
	if len(c.Pods) == 0 {
		fmt.Fprintln(w, "  ✗ the pods were not recreated")
		return
	}
	printPods(w, c.Pods)
	fmt.Fprintf(w, "%d pods recreated by their own controllers after %.2f s\n", len(c.Pods), c.Seconds)
}

// printPods shows the pods of each cluster.
func printPods(w io.Writer, pods []demoPod) {
	names := map[string][]string{}
	for _, p := range pods {
		names[p.Cluster] = append(names[p.Cluster], p.Name)
	}
	for _, cluster := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(w, "  ✔ %s  %s of %s\n", cluster, strings.Join(names[cluster], ", "), pods[0].Owner)
	}
}
