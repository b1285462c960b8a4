package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/hub"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/propagation"
	"refract.dev/internal/playground"
)

// demo runs examples on a playground.
type demo struct {
	set     *manifest.Set
	want    *render.Result
	hub     client.Client
	members map[string]client.Client
}

// demoResult is the result of the demo.
type demoResult struct {
	// Objects are the placed objects, in the order of the examples.
	Objects []demoObject `json:"objects"`
	// RollBack is the result of the deletion of an override policy.
	RollBack demoRollBack `json:"rollBack"`
	// Rollout is the result of a failing change; nil if the demo ended earlier.
	Rollout *demoRollout `json:"rollout,omitempty"`
	// Injection is the result of an injection policy; nil if the demo ended earlier.
	Injection *demoInjection `json:"injection,omitempty"`
	// Right is true if all copies were equal to the output of refract render at each step of the demo, and all pods
	// have the content of the injection policy.
	Right bool `json:"right"`
	// Seconds is the time since the first process was started.
	Seconds float64 `json:"seconds"`
}

type demoRollBack struct {
	Policy render.Policy `json:"policy"`
	// Right is true if all copies are again as they would be without the policy.
	Right bool `json:"right"`
	// Seconds is the time from the deletion until Right was true.
	Seconds float64 `json:"seconds"`
}

type demoObject struct {
	Object   render.Object `json:"object"`
	Clusters []demoCopy    `json:"clusters"`
}

type demoCopy struct {
	Name string `json:"name"`
	// State is the state of the copy in the Propagation.
	State string `json:"state"`
	// Changes are the changes by override policies, with their authors.
	Changes []string `json:"changes,omitempty"`
	// Wrong names a field that differs from the output of refract render.
	Wrong string `json:"wrong,omitempty"`
}

func newDemo(pg *playground.Playground, set *manifest.Set) (*demo, error) {
	d := &demo{set: set, members: map[string]client.Client{}}
	// Objects that are not propagated have no copies to compare.
	set.Objects = slices.DeleteFunc(set.Objects, func(o manifest.Object) bool { return !propagates(o.Content) })
	// The examples name only the first members. The playground may have more.
	only := make([]string, 0, demoMembers)
	for _, m := range pg.Members()[:demoMembers] {
		only = append(only, m.Name)
		cfg, err := fileConfig(m.Kubeconfig, "")
		if err != nil {
			return nil, err
		}
		if d.members[m.Name], err = hub.Client(cfg); err != nil {
			return nil, err
		}
	}
	var err error
	if d.want, err = render.Render(set, only); err != nil {
		return nil, err
	}
	cfg, err := fileConfig(pg.Hub().Kubeconfig, "")
	if err != nil {
		return nil, err
	}
	d.hub, err = hub.Client(cfg)
	return d, err
}

// propagates reports whether the object has a label that requests propagation.
func propagates(u *unstructured.Unstructured) bool {
	labels := u.GetLabels()
	return labels[corev1alpha1.PropagationPolicyLabel] != "" || labels[corev1alpha1.ClusterPropagationPolicyLabel] != ""
}

// settle waits until all copies are right, but at most for demoPatience. It returns the state of the copies.
func (d *demo) settle(ctx context.Context, ended <-chan error) (*demoResult, error) {
	var result *demoResult
	_, err := poll(ctx, demoPatience, ended, func(ctx context.Context) (done bool, err error) {
		now, err := d.look(ctx)
		if err != nil {
			return false, err
		}
		result = now
		return now.Right, nil
	})
	if err == nil && result == nil {
		err = errors.New("the clusters did not respond in time")
	}
	return result, err
}

// poll calls look repeatedly until it returns true for done. ok is false if this takes longer than patience. The error
// of a call that was interrupted by the end of this time is ignored.
func poll(ctx context.Context, patience time.Duration, ended <-chan error, look func(context.Context) (done bool, err error)) (ok bool, err error) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := look(within)
		switch {
		case err == nil && done:
			return true, nil
		case err != nil && within.Err() == nil:
			return false, err
		}
		select {
		case <-within.Done():
			return false, ctx.Err()
		case err := <-ended:
			return false, errors.Join(errors.New("the controllers ended"), err)
		case <-tick.C:
		}
	}
}

// rollBack deletes the policy demoRelease, and adds the effect to the result.
func (d *demo) rollBack(ctx context.Context, result *demoResult, ended <-chan error) error {
	policy := &corev1alpha1.OverridePolicy{}
	policy.Namespace, policy.Name = "shop", demoRelease
	began := time.Now()
	if err := d.hub.Delete(ctx, policy); err != nil {
		return fmt.Errorf("deleting OverridePolicy %s: %w", client.ObjectKeyFromObject(policy), err)
	}
	// From now on the desired content is the content without the label of the deleted policy.
	for i := range d.set.Objects {
		o := &d.set.Objects[i]
		labels := o.Content.GetLabels()
		if labels[corev1alpha1.OverridePolicyLabel] == policy.Name {
			o.Content = o.Content.DeepCopy()
			delete(labels, corev1alpha1.OverridePolicyLabel)
			o.Content.SetLabels(labels)
		}
	}
	var err error
	if d.want, err = render.Render(d.set, slices.Sorted(maps.Keys(d.members))); err != nil {
		return err
	}
	after, err := d.settle(ctx, ended)
	if err != nil {
		return err
	}
	result.RollBack = demoRollBack{
		Policy:  render.Policy{Kind: corev1alpha1.KindOverridePolicy, Namespace: policy.Namespace, Name: policy.Name},
		Right:   after.Right,
		Seconds: time.Since(began).Round(10 * time.Millisecond).Seconds(),
	}
	result.Right = result.Right && after.Right
	return nil
}

// apply applies all examples except the clusters to the hub.
func (d *demo) apply(ctx context.Context) error {
	for i := range d.set.Manifests {
		u := d.set.Manifests[i].Content
		if u.GetKind() == corev1alpha1.KindFederatedCluster {
			continue
		}
		if err := d.put(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// put applies an object to the hub unchanged.
func (d *demo) put(ctx context.Context, u *unstructured.Unstructured) error {
	err := d.hub.Apply(ctx, client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner("refract-demo"), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", u.GetKind(), client.ObjectKeyFromObject(u), err)
	}
	return nil
}

// look compares every copy with the output of refract render.
func (d *demo) look(ctx context.Context) (*demoResult, error) {
	result := &demoResult{Right: len(d.want.Errors) == 0}
	at := map[render.Object]int{}
	for _, c := range d.want.Clusters {
		for _, object := range c.Objects {
			want := &unstructured.Unstructured{Object: object}
			id := render.Object{APIVersion: want.GetAPIVersion(), Kind: want.GetKind(), Namespace: want.GetNamespace(), Name: want.GetName()}
			if _, ok := at[id]; !ok {
				at[id] = len(result.Objects)
				result.Objects = append(result.Objects, demoObject{Object: id})
			}
			got, err := d.copyOn(ctx, c.Name, want)
			if err != nil {
				return nil, err
			}
			result.Right = result.Right && got.Wrong == "" && got.State == "Synced"
			o := &result.Objects[at[id]]
			o.Clusters = append(o.Clusters, *got)
		}
	}
	return result, nil
}

func (d *demo) copyOn(ctx context.Context, cluster string, want *unstructured.Unstructured) (*demoCopy, error) {
	c := &demoCopy{Name: cluster}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(want.GroupVersionKind())
	err := d.members[cluster].Get(ctx, client.ObjectKeyFromObject(want), live)
	switch {
	case apierrors.IsNotFound(err):
		c.Wrong = "the copy is missing"
	case err != nil:
		return nil, fmt.Errorf("reading %s %s of %s: %w", want.GetKind(), client.ObjectKeyFromObject(want), cluster, err)
	default:
		c.Wrong = differs("", want.Object, live.Object)
	}
	status, err := propagation.StatusOf(ctx, d.hub, want)
	if err != nil {
		return nil, err
	}
	if status == nil {
		return c, nil
	}
	hash := ""
	for _, row := range status.Clusters {
		if row.Name == cluster {
			c.State, hash = string(row.State), row.Hash
		}
	}
	for _, v := range status.Variants {
		if v.Hash == hash {
			c.Changes = v.Changes
		}
	}
	return c, nil
}
