package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/status"
	"refract.dev/tree"
)

// policyOrObject returns an error unless the arguments are the name of an injection policy, or an object as KIND/NAME
// or KIND NAME.
func policyOrObject(cmd *cobra.Command, args []string) error {
	if len(args) == 1 || (len(args) == 2 && !strings.Contains(args[0]+args[1], "/")) {
		return nil
	}
	return withHint(fmt.Errorf("%s takes one policy or one object, got %d arguments", cmd.CommandPath(), len(args)),
		"POLICY for a ServiceInjectionPolicy, KIND/NAME for an object of the hub")
}

// objectIn returns the object in the arguments, as KIND/NAME; empty if they name an injection policy.
func objectIn(args []string) string {
	if text := strings.Join(args, "/"); strings.Contains(text, "/") {
		return text
	}
	return ""
}

// object returns the report about an object, and its rollout.
func (o *inCluster) object(ctx context.Context, c client.Client, text string) (client.Object, *status.Rollout, error) {
	r, err := parseReference(text)
	if err != nil {
		return nil, nil, err
	}
	if r.namespace == "" {
		r.namespace = o.in()
	}
	var names []string
	// Reports of the namespace come first, because the user may not be allowed to read cluster-scoped reports.
	for _, source := range []status.Source{status.Propagations(r.namespace), status.ClusterPropagations()} {
		records, err := status.List(ctx, c, source)
		if err != nil {
			return nil, nil, explainHub(err)
		}
		for _, record := range records {
			object, ok := status.ObjectOf(record)
			if !ok {
				continue
			}
			names = append(names, object.String())
			if r.means(object) {
				rollout, err := status.RolloutOf(object, record.GetAnnotations())
				return record, rollout, explainRollout(err)
			}
		}
	}
	hint := "refract get lists the objects with reports"
	if near := nearest.To(strings.ToLower(text), names); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return nil, nil, withHint(fmt.Errorf("nothing is reported on %q in namespace %q", text, r.namespace), hint)
}

// explainRollout adds advice to an error about an object without a rollout policy.
func explainRollout(err error) error {
	if errors.Is(err, status.ErrNoRollout) {
		return withHint(err, "the label "+refractv1alpha1.RolloutPolicyLabel+" names one: without it, changes reach all clusters at once")
	}
	return err
}

var objectRolloutOutputs = formats[*status.Rollout]{
	{"text", toStdout(func(w io.Writer, r *status.Rollout) error { return status.WriteRollout(w, r, time.Now()) })},
	{"json", toStdout(func(w io.Writer, r *status.Rollout) error { return status.WriteJSON(w, r) })},
}

// runObject is like run, for an object of the hub.
func (o *rolloutStatusOptions) runObject(ctx context.Context, s *streams, text string) error {
	write, err := objectRolloutOutputs.find(o.output)
	if err != nil {
		return err
	}
	if o.timeout < 0 {
		return fmt.Errorf("--timeout: want 0s or more, got %s", o.timeout)
	}
	return s.limited(ctx, o.limit(), func(ctx context.Context) error { return o.showObject(ctx, s, text, write) })
}

// showObject shows the rollout of an object of the hub.
func (o *rolloutStatusOptions) showObject(ctx context.Context, s *streams, text string, write func(*streams, *status.Rollout) error) error {
	s.at("the state of the rollout is unknown", again)
	c, err := hubClient(ctx, &o.cluster)
	if err != nil {
		return err
	}
	record, r, err := o.object(ctx, c, text)
	if err != nil {
		return err
	}
	newest := func(*status.Rollout) bool { return true }
	if (o.wait && o.timeout > 0) || o.watch {
		if newest, err = newestOf(ctx, c, r); err != nil {
			return err
		}
		if r, err = o.followObject(ctx, s, c, record, r, newest); err != nil {
			return err
		}
	}
	if err := write(s, r); err != nil {
		return err
	}
	if done := r.Complete() && newest(r); r.Stopped() || (o.wait && !done) {
		return errFound
	}
	return nil
}

// newestOf returns a function that reports whether a rollout includes the present versions of the object and its
// override policies. After a recent change, the report may still be about the versions before.
func newestOf(ctx context.Context, c client.Client, r *status.Rollout) (func(*status.Rollout) bool, error) {
	source := &metav1.PartialObjectMetadata{}
	source.SetGroupVersionKind(schema.FromAPIVersionAndKind(r.APIVersion, r.Kind))
	if err := c.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, source); err != nil {
		return nil, fmt.Errorf("reading %s: %w", r, err)
	}
	refs, _, err := override.Named(source.Labels, source.Namespace)
	if err != nil {
		return nil, err
	}
	generations := map[tree.Policy]int64{}
	for _, ref := range refs {
		policy := &metav1.PartialObjectMetadata{}
		policy.SetGroupVersionKind(corev1alpha1.GroupVersion.WithKind(ref.Kind))
		if err := c.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, policy); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading %s: %w", ref, err)
		}
		generations[ref] = policy.Generation
	}
	return func(r *status.Rollout) bool {
		target := &r.Rollout.Target
		for i := range target.Policies {
			p := &target.Policies[i]
			if p.Generation < generations[tree.Policy{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}] {
				return false
			}
		}
		return target.Generation >= source.Generation
	}, nil
}

// followObject writes every change of the rollout until it is complete or stopped, or until the time limit. It returns
// the last state.
func (o *rolloutStatusOptions) followObject(
	ctx context.Context, s *streams, c client.WithWatch, record client.Object, r *status.Rollout, newest func(*status.Rollout) bool,
) (*status.Rollout, error) {
	limited, cancel := o.waiting(ctx)
	defer cancel()
	source := status.ClusterPropagations()
	if record.GetNamespace() != "" {
		source = status.Propagations(record.GetNamespace())
	}
	last := ""
	err := status.Follow(limited, c, func(events []status.Event) (bool, error) {
		for _, e := range events {
			if e.Object.GetName() != record.GetName() {
				continue
			}
			object, ok := status.ObjectOf(e.Object)
			switch {
			case ok && e.Gone:
				return false, fmt.Errorf("%s was deleted", r)
			case ok:
				now, err := status.RolloutOf(object, e.Object.GetAnnotations())
				if err != nil {
					return false, explainRollout(err)
				}
				r = now
			}
		}
		if line := r.Line(); line != last {
			last = line
			fmt.Fprintf(s.err, "%s: %s\n", r, line)
		}
		return !o.watch && newest(r) && (r.Complete() || r.Stopped()), nil
	}, source)
	if errors.Is(err, context.DeadlineExceeded) {
		fmt.Fprintf(s.err, "%s: not complete after %s\n", r, o.timeout)
		err = nil
	}
	return r, explainHub(err)
}

// stepObject pauses, resumes or approves the rollout of an object on the hub.
func (o *inCluster) stepObject(ctx context.Context, s *streams, text string, decide func(*status.Rollout) (*status.Step, error)) error {
	c, err := hubClient(ctx, &o.cluster)
	if err != nil {
		return err
	}
	record, r, err := o.object(ctx, c, text)
	if err != nil {
		return err
	}
	step, err := decide(r)
	if err != nil {
		return explainStep(err)
	}
	if len(step.Annotations) > 0 {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": step.Annotations}})
		if err != nil {
			return err
		}
		if err := c.Patch(ctx, record, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return fmt.Errorf("annotating the report on %s: %w", r, err)
		}
	}
	fmt.Fprintf(s.err, "%s: %s\n", r, step.Said)
	return nil
}
