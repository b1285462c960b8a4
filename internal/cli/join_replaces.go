package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/status"
	"refract.dev/internal/installation"
	"refract.dev/internal/output"
)

// rename gives a member another name. Each step can be repeated. No step deletes or writes copies.
func (o *joinOptions) rename(ctx context.Context, s *streams, hub client.WithWatch, name string, taints []corev1.Taint) error {
	old, err := member.Find(ctx, hub, o.replaces)
	if errors.Is(err, member.ErrNotJoined) {
		there, again := member.Replaced(ctx, hub, name, o.replaces)
		if again != nil || there == nil {
			return errors.Join(err, again)
		}
		fmt.Fprintf(s.err, "cluster %s has the name %s already\n", o.replaces, name)
		return o.untilReady(ctx, s, hub, name)
	}
	if err != nil {
		return err
	}
	if err := listed(old); err != nil {
		return err
	}
	if o.kubeconfig != "" || o.context != "" {
		cfg, err := fileConfig(cmp.Or(o.kubeconfig, *o.cluster.kubectl.KubeConfig), o.context)
		if err != nil {
			return err
		}
		if err := member.Identify(ctx, old, cfg); err != nil {
			return err
		}
	}
	policies, err := naming(ctx, hub, old.Name, name)
	if err != nil {
		return err
	}
	if len(policies) > 0 {
		return withHint(fmt.Errorf("%s name %s but not %s, and would no longer apply to the cluster: %s",
			output.Count(len(policies), "policy", "policies"), old.Name, name, strings.Join(policies, ", ")),
			fmt.Sprintf("add %s beside %s in each, and repeat the command; nothing was changed", name, old.Name))
	}
	s.at(fmt.Sprintf("cluster %s may have begun to replace %s; the copies stay unchanged", name, old.Name), "repeat the command to continue")
	if _, err := member.Replace(ctx, hub, o.namespace, name, old, o.labels, taints); err != nil {
		return err
	}
	fmt.Fprintf(s.err, "cluster %s replaces %s\n", name, old.Name)
	if err := o.untilReady(ctx, s, hub, name); err != nil {
		return withHint(err, "repeat the command to continue; the copies stay unchanged")
	}
	return o.finish(ctx, s, hub, name, old)
}

// finish removes the old name of a member when the new one is in use.
func (o *joinOptions) finish(ctx context.Context, s *streams, hub client.WithWatch, name string, old *corev1alpha1.FederatedCluster) error {
	servedAs, _, err := member.OtherName(ctx, hub, old)
	if err != nil {
		return err
	}
	if servedAs == "" {
		gone, err := isGone(ctx, hub, old)
		if err != nil {
			return err
		}
		if gone { // An earlier run of this command has already removed the old name.
			fmt.Fprintf(s.err, formerName, old.Name, name)
			return nil
		}
	}
	if servedAs != name {
		return withHint(fmt.Errorf("cluster %q is not served as %q", old.Name, name), "refract get clusters shows the reason; nothing was deleted")
	}
	if err := renameAccount(ctx, hub, o.namespace, old, name); err != nil {
		fmt.Fprintf(s.err, "the account of Refract on the cluster could not be assigned to %s: %v\n", name, err)
	}
	if err := forget(ctx, s, hub, o.namespace, old); err != nil {
		return err
	}
	if err := member.Leave(ctx, hub, old); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	err = status.Follow(limited, hub, func(events []status.Event) (bool, error) {
		there := false
		for _, e := range events {
			fc, ok := e.Object.(*corev1alpha1.FederatedCluster)
			there = there || ok && !e.Gone && fc.UID == old.UID
		}
		return !there, nil
	}, status.Member(old.Name))
	if errors.Is(err, context.DeadlineExceeded) {
		return withHint(fmt.Errorf("cluster %q is ready, but %q still exists after %s", name, old.Name, o.timeout), "repeat the command to wait longer")
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(s.err, formerName, old.Name, name)
	return nil
}

// formerName is the last message of a successful rename.
const formerName = "cluster %s is gone; its copies belong to %s\n"

// isGone reports whether a FederatedCluster has been deleted meanwhile.
func isGone(ctx context.Context, hub client.Reader, fc *corev1alpha1.FederatedCluster) (bool, error) {
	now, err := member.Find(ctx, hub, fc.Name)
	if errors.Is(err, member.ErrNotJoined) {
		return true, nil
	}
	return err == nil && now.UID != fc.UID, err
}

// renameAccount changes the membership of Refract's account on the member to the new name. Without such an account it
// does nothing.
func renameAccount(ctx context.Context, hub client.Client, namespace string, old *corev1alpha1.FederatedCluster, name string) error {
	fc, err := member.Find(ctx, hub, name)
	if err != nil {
		return err
	}
	cfg, err := (&unjoinOptions{namespace: namespace}).memberConfig(ctx, hub, fc)
	if err != nil || cfg == nil {
		return err
	}
	cfg.WarningHandler = rest.NoWarnings{}
	c, err := watchingClient(cfg)
	if err != nil {
		return err
	}
	uid, err := identityOf(ctx, hub)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	return installation.Rename(ctx, c, installation.Membership{Hub: uid, Name: old.Name}, installation.Membership{Hub: uid, Name: name})
}

// policyKinds are the kinds of policies that can name clusters.
var policyKinds = []schema.GroupVersionKind{
	corev1alpha1.GroupVersion.WithKind(corev1alpha1.KindPropagationPolicy), corev1alpha1.GroupVersion.WithKind(corev1alpha1.KindClusterPropagationPolicy),
	corev1alpha1.GroupVersion.WithKind(corev1alpha1.KindOverridePolicy), corev1alpha1.GroupVersion.WithKind(corev1alpha1.KindClusterOverridePolicy),
	refractv1alpha1.GroupVersion.WithKind(refractv1alpha1.KindRolloutPolicy), refractv1alpha1.GroupVersion.WithKind(refractv1alpha1.KindClusterRolloutPolicy),
}

// naming returns the policies that name the cluster by the old name only, as KIND NAMESPACE/NAME. More precisely, some
// list of clusters in the policy has the old name but not the new one.
func naming(ctx context.Context, hub client.Reader, old, name string) (policies []string, err error) {
	for _, kind := range policyKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := hub.List(ctx, list); err != nil {
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				continue // The hub does not have this type.
			}
			return nil, fmt.Errorf("listing policies: %w", err)
		}
		for i := range list.Items {
			if o := &list.Items[i]; names(o.Object["spec"], old, name) {
				policies = append(policies, kind.Kind+" "+strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
			}
		}
	}
	return policies, nil
}

// names reports whether any list of clusters in a part of a policy has the old name but not the new one.
func names(part any, old, name string) bool {
	switch part := part.(type) {
	case []any:
		return slices.ContainsFunc(part, func(e any) bool { return names(e, old, name) })
	case map[string]any:
		for key, v := range part {
			if list := clusterNames(key, part, v); slices.Contains(list, old) && !slices.Contains(list, name) || names(v, old, name) {
				return true
			}
		}
	}
	return false
}

// clusterNames returns the names of clusters in a field of a policy. The field may be a list of names, a placement, or
// a requirement for the field metadata.name.
func clusterNames(key string, of map[string]any, v any) (all []string) {
	list, _ := v.([]any)
	for _, e := range list {
		switch {
		case key == "clusters", key == "values" && of["key"] == "metadata.name":
			name, _ := e.(string)
			all = append(all, name)
		case key == "placement":
			place, _ := e.(map[string]any)
			name, _ := place["cluster"].(string)
			all = append(all, name)
		}
	}
	return all
}
