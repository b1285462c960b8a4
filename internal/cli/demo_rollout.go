package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/examples"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/propagation"
	"refract.dev/internal/playground"
)

// The parts of the rollout demo: the RolloutPolicy of the examples, and the member that gets a change first.
const (
	demoRolloutPolicy = "careful"
	demoCanary        = "member-2"
)

// demoRolloutPatience is the longest wait until the change has failed and is reverted.
const demoRolloutPatience = 2 * time.Minute

// demoRollout is the result of a failing change.
type demoRollout struct {
	Policy render.Policy `json:"policy"`
	// Object is the changed object, and Change is the change by the override policy.
	Object render.Object `json:"object"`
	Change string        `json:"change"`
	// Failed is the message about the failure.
	Failed string `json:"failed"`
	// Had are the members that got the change, and Spared the members that did not get it.
	Had    []string `json:"had"`
	Spared []string `json:"spared"`
	// Right is true if only the first member got the change, and all copies have their previous content again.
	Right bool `json:"right"`
	// Seconds is the time from the failure until the change was reverted.
	Seconds float64 `json:"seconds"`
}

// showRollout changes an override policy so that pods on one member do not become ready. It waits until the change is
// reverted there, and adds the outcome to the result.
func showRollout(ctx context.Context, s *streams, pg *playground.Playground, result *demoResult, ended <-chan error) error {
	set, problems := manifest.ReadFS(examples.ReleaseDemo)
	broken, more := manifest.ReadFS(examples.BrokenRelease)
	if problems = slices.Concat(problems, more); len(problems) > 0 {
		return problems[0]
	}
	d, err := newDemo(pg, set)
	if err != nil {
		return err
	}
	front := d.set.Objects[0].Content
	r := &demoRollout{
		Policy: render.Policy{Kind: refractv1alpha1.KindRolloutPolicy, Namespace: front.GetNamespace(), Name: demoRolloutPolicy},
		Object: render.Object{APIVersion: front.GetAPIVersion(), Kind: front.GetKind(), Namespace: front.GetNamespace(), Name: front.GetName()},
	}
	result.Rollout, result.Right = r, false
	fmt.Fprintln(s.err, "hub: applying a rollout policy, and a Deployment with this policy")
	if err := d.apply(ctx); err != nil {
		return err
	}
	if _, ok, err := d.awaitRollout(ctx, front, refractv1alpha1.RolloutComplete, ended); err != nil || !ok {
		return err
	}
	before, err := d.generations(ctx, front)
	if err != nil {
		return err
	}

	fmt.Fprintln(s.err, "hub: changing its override policy to an image that cannot start")
	for i := range broken.Manifests {
		if err := d.put(ctx, broken.Manifests[i].Content); err != nil {
			return err
		}
	}
	status, ok, err := d.awaitRollout(ctx, front, refractv1alpha1.RolloutReverting, ended)
	if err != nil || !ok {
		return err
	}
	failed := time.Now()
	r.Failed = status.Rollout.Message
	if r.Change = "an image that cannot start"; status.Rollout.Phase == refractv1alpha1.RolloutReverting {
		r.Change = changeOf(status, demoCanary)
	}
	if _, ok, err = d.awaitRollout(ctx, front, refractv1alpha1.RolloutReverted, ended); err != nil || !ok {
		return err
	}
	r.Seconds = time.Since(failed).Round(10 * time.Millisecond).Seconds()
	after, err := d.settle(ctx, ended)
	if err != nil {
		return err
	}
	now, err := d.generations(ctx, front)
	if err != nil {
		return err
	}
	for _, c := range d.want.Clusters {
		if now[c.Name] == before[c.Name] {
			r.Spared = append(r.Spared, c.Name)
		} else {
			r.Had = append(r.Had, c.Name)
		}
	}
	r.Right = after.Right && slices.Equal(r.Had, []string{demoCanary})
	result.Right = r.Right
	return nil
}

// awaitRollout waits until the rollout of an object is in a phase. If this is RolloutReverting, RolloutReverted is
// accepted, too, because RolloutReverting may be over too soon to be seen. If it is RolloutComplete, the object must
// also be ready on all members. ok is false if this takes longer than demoRolloutPatience.
func (d *demo) awaitRollout(
	ctx context.Context, object *unstructured.Unstructured, phase refractv1alpha1.RolloutPhase, ended <-chan error,
) (status *refractv1alpha1.PropagationStatus, ok bool, err error) {
	ok, err = poll(ctx, demoRolloutPatience, ended, func(ctx context.Context) (done bool, err error) {
		if status, err = propagation.StatusOf(ctx, d.hub, object); err != nil || status == nil || status.Rollout == nil {
			return false, err
		}
		is := status.Rollout.Phase
		if phase == refractv1alpha1.RolloutComplete {
			unready := func(c refractv1alpha1.ClusterStatus) bool { return c.Readiness != refractv1alpha1.ReadinessReady }
			return is == phase && len(status.Clusters) == len(d.members) && !slices.ContainsFunc(status.Clusters, unready), nil
		}
		return is == phase || (phase == refractv1alpha1.RolloutReverting && is == refractv1alpha1.RolloutReverted), nil
	})
	return status, ok, err
}

// generations returns the generation of the object's copy on each member. The API server increments it at each change
// of the spec.
func (d *demo) generations(ctx context.Context, object *unstructured.Unstructured) (map[string]int64, error) {
	all := make(map[string]int64, len(d.members))
	for name, c := range d.members {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(object.GroupVersionKind())
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), live); err != nil {
			return nil, fmt.Errorf("reading %s %s of %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), name, err)
		}
		all[name] = live.GetGeneration()
	}
	return all, nil
}

// changeOf returns a description of the changes that override policies make on a cluster.
func changeOf(status *refractv1alpha1.PropagationStatus, cluster string) string {
	for i := range status.Clusters {
		if status.Clusters[i].Name != cluster {
			continue
		}
		for k := range status.Variants {
			if status.Variants[k].Hash == status.Clusters[i].Hash {
				return strings.Join(status.Variants[k].Changes, ", ")
			}
		}
	}
	return ""
}

// printRollout shows which members got the change, and whether it was reverted.
func printRollout(w io.Writer, r *demoRollout) {
	if r == nil {
		return
	}
	fmt.Fprintf(w, "\n%s %s/%s: a failing change\n", r.Policy.Kind, r.Policy.Namespace, r.Policy.Name)
	switch {
	case r.Failed == "":
		fmt.Fprintln(w, "  ✗ the change did not fail, or was not reverted")
		return
	case !r.Right:
		fmt.Fprintf(w, "  ✗ the change was on %s, and some copies do not have their previous content\n      %s\n", strings.Join(r.Had, ", "), r.Failed)
		return
	}
	fmt.Fprintf(w, "  ✔ %s  had it: %s\n", strings.Join(r.Had, ", "), r.Change)
	fmt.Fprintf(w, "      %s\n", r.Failed)
	fmt.Fprintf(w, "  ✔ %s  never had it\n", strings.Join(r.Spared, ", "))
	fmt.Fprintf(w, "reverted automatically, %.2f s after the failure\n", r.Seconds)
}
