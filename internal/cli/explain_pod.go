package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/status"
	"refract.dev/injection/injected"
)

// explainPodOptions are the flags of explain pod.
type explainPodOptions struct {
	inCluster

	output string
}

func newExplainPodCommand(s *streams) *cobra.Command {
	o := &explainPodOptions{}
	cmd := &cobra.Command{
		Use:   "pod NAME",
		Short: "Show the items that each policy injected into a pod",
		Long: `Explain an existing pod: the items that each ServiceInjectionPolicy of its namespace
injected, and their containers; the missing policies, the differences from a pod
created now, and the progress of the rollout that recreates the pod; and the reasons
that other policies do not apply.

Marks: ✔ the pod has the items of the policy, ✗ the pod lacks them but would get them
if created now, ~ the policy is left out for the pod, · the policy does not select the
pod. Values of Secrets are not shown.`,
		Example: `  refract explain pod web-7d9978b5c5-7dzsh -n shop
  refract explain pod web-7d9978b5c5-7dzsh -n shop --kubeconfig member-1.yaml -o json`,
		Args: oneName("pod"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), s, args[0]) },
	}
	o.addFlags(cmd)
	podOutputs.addFlag(cmd, &o.output)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.peekPods(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

var podOutputs = formats[*injected.Pod]{
	{"text", toStdout(injected.WritePod)},
	{"json", toStdout(func(w io.Writer, x *injected.Pod) error { return injected.WriteJSON(w, x) })},
}

func (o *explainPodOptions) run(ctx context.Context, s *streams, name string) error {
	write, err := podOutputs.find(o.output)
	if err != nil {
		return err
	}
	c, err := clusterClient(ctx, &o.cluster)
	if err != nil {
		return err
	}
	evidence, err := o.gather(ctx, c, name)
	if err != nil {
		return err
	}
	explanation, err := injected.Explain(evidence)
	if err != nil {
		return err
	}
	return write(s, explanation)
}

// gather reads the pod and all other objects that are needed to explain its injection.
func (o *explainPodOptions) gather(ctx context.Context, c client.Client, name string) (*injected.Evidence, error) {
	pod := &unstructured.Unstructured{} // The pod may have fields that a typed Pod of this program does not know.
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := c.Get(ctx, types.NamespacedName{Namespace: o.in(), Name: name}, pod)
	switch {
	case apierrors.IsNotFound(err):
		hint := "kubectl get pods --all-namespaces lists them"
		if near := nearest.To(name, o.peekPods(ctx)); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		return nil, withHint(fmt.Errorf("there is no pod %q in namespace %q", name, o.in()), hint)
	case err != nil:
		return nil, fmt.Errorf("reading pod %q: %w", name, err)
	}
	policies := injectionPolicies()
	if err := c.List(ctx, policies, client.InNamespace(pod.GetNamespace())); err != nil {
		if meta.IsNoMatchError(err) {
			return nil, explainInjection(status.ErrNoInjection)
		}
		return nil, fmt.Errorf("listing ServiceInjectionPolicies: %w", err)
	}
	owner, err := topOwner(ctx, c, pod)
	if err != nil {
		return nil, err
	}
	text, err := pod.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding pod %q: %w", name, err)
	}
	return &injected.Evidence{Pod: text, Owner: owner, Policies: policies.Items}, nil
}

// injectionPolicies returns an empty list of unstructured policies. With a typed list, one invalid policy would make
// the whole list unreadable.
func injectionPolicies() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(refractv1beta1.GroupVersion.WithKind(refractv1beta1.KindServiceInjectionPolicy + "List"))
	return list
}

// mostOwners is the maximum number of owners that are read. Kubernetes' own controllers make at most two owners above a
// pod, and other controllers may add some.
const mostOwners = 5

// topOwner returns the topmost owner of a pod, as KIND/NAME. If an owner does not exist or cannot be read, topOwner
// returns this owner.
func topOwner(ctx context.Context, c client.Client, pod *unstructured.Unstructured) (string, error) {
	top, of := "", metav1.GetControllerOf(pod)
	for range mostOwners {
		if of == nil {
			return top, nil
		}
		top = of.Kind + "/" + of.Name
		gv, err := schema.ParseGroupVersion(of.APIVersion)
		if err != nil {
			return top, nil //nolint:nilerr // With an invalid apiVersion, the owner cannot be read.
		}
		owner := &metav1.PartialObjectMetadata{}
		owner.SetGroupVersionKind(gv.WithKind(of.Kind))
		err = c.Get(ctx, types.NamespacedName{Namespace: pod.GetNamespace(), Name: of.Name}, owner)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err), meta.IsNoMatchError(err):
			return top, nil // The owner does not exist or cannot be read.
		case err != nil:
			return "", fmt.Errorf("reading %s, the owner of the pod: %w", top, err)
		}
		of = metav1.GetControllerOf(owner)
	}
	return top, nil
}

// peekPods returns the names of the pods in the namespace, for completion and hints.
func (o *explainPodOptions) peekPods(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if c, err := clusterClient(ctx, &o.cluster); err != nil || c.List(ctx, pods, client.InNamespace(o.in())) != nil {
		return nil
	}
	names := make([]string, len(pods.Items))
	for i := range pods.Items {
		names[i] = pods.Items[i].Name
	}
	return names
}
