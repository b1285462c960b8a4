package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/internal/output"
)

// Removal removes an installation.
type Removal struct {
	Client client.Client
	// Discovery returns the API types of the cluster.
	Discovery discovery.DiscoveryInterface
	// Namespace is the system namespace.
	Namespace string
	// Unwire is true if conversion webhooks are also removed from CustomResourceDefinitions with several versions in
	// use, provided that no stored object needs a conversion.
	Unwire bool
	// Tell is called with a line of text for each action.
	Tell func(line string)
}

// Kept is a CustomResourceDefinition that still needs its conversion webhook, with the reason.
type Kept struct {
	WiredCRD

	Why error
}

// Kept returns the CustomResourceDefinitions that need their conversion webhook. Without it, objects could not be read
// or would lose values. free has the other CustomResourceDefinitions with a webhook of this installation.
func (r *Removal) Kept(ctx context.Context) (kept []Kept, free []WiredCRD, err error) {
	wired, err := Wired(ctx, r.Client, r.Namespace)
	if err != nil {
		return nil, nil, err
	}
	for i := range wired {
		w := &wired[i]
		why := w.Unneeded(ctx, r.Client)
		if why == nil && len(w.InUse) > 1 && !r.Unwire {
			why = fmt.Errorf("its versions %s are in use, and requests for versions other than %s would return objects as stored: "+
				"serve only %s, or use --unwire", strings.Join(w.InUse, ", "), w.Storage, w.Storage)
		}
		if why != nil {
			kept = append(kept, Kept{*w, why})
			continue
		}
		free = append(free, *w)
	}
	return kept, free, nil
}

// Run removes the installation: first the webhooks, so that no write waits for a stopped webhook, then the Deployments,
// then the roles. It returns the CustomResourceDefinitions that need their conversion webhook; the part that serves
// this webhook is not removed. Objects of users and CustomResourceDefinitions always remain.
func (r *Removal) Run(ctx context.Context) ([]Kept, error) {
	kept, free, err := r.Kept(ctx)
	if err != nil {
		return nil, err
	}
	var stays, goes []Part
	for _, part := range Parts() {
		// The conversion webhook may be served by the Deployment of another part.
		if slices.ContainsFunc(kept, func(k Kept) bool { return k.Service == part.Deployment || part == Conversion }) {
			stays = append(stays, part)
			continue
		}
		goes = append(goes, part)
	}
	if err := r.mayGo(ctx, goes); err != nil {
		return nil, err
	}
	// This admission policy prevents the removal of the conversion, so its binding is deleted first.
	if slices.Contains(goes, Conversion) {
		if err := r.deleteAll(ctx, []client.Object{inUseBinding()}); err != nil {
			return nil, err
		}
	}
	// Without permissions, the controllers cannot restore the objects that are changed and deleted next.
	if err := r.deleteAll(ctx, r.rights(goes, "ClusterRoleBinding", "RoleBinding")); err != nil {
		return nil, err
	}
	if err := r.unwire(ctx, free); err != nil {
		return nil, err
	}
	if err := r.deleteAll(ctx, r.asks(goes, stays)); err != nil {
		return nil, err
	}
	if err := r.stop(ctx, goes); err != nil {
		return nil, err
	}
	if err := r.releaseAll(ctx, goes); err != nil {
		return nil, err
	}
	rest, err := r.manifest(goes, stays)
	if err != nil {
		return nil, err
	}
	for _, part := range goes {
		rest = append(rest, part.own(r.Namespace, stays)...)
	}
	// A replica may have written an object shortly before it lost its permissions.
	if err := r.unwire(ctx, free); err != nil {
		return nil, err
	}
	rest = append(rest, r.asks(goes, stays)...)
	if err := r.deleteAll(ctx, rest); err != nil {
		return nil, err
	}
	if len(stays) > 0 {
		return kept, nil
	}
	return kept, r.deleteNamespace(ctx)
}

// unwire removes the conversion webhook from the given definitions, if they still have it.
func (r *Removal) unwire(ctx context.Context, these []WiredCRD) error {
	if len(these) == 0 {
		return nil
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		wired, err := Wired(ctx, r.Client, r.Namespace)
		if err != nil {
			return err
		}
		for i := range wired {
			w := &wired[i]
			if !slices.ContainsFunc(these, func(this WiredCRD) bool { return this.Name == w.Name }) {
				continue
			}
			if err := w.Unwire(ctx, r.Client); err != nil {
				return err
			}
			r.Tell(fmt.Sprintf("customresourcedefinition %s is no longer converted", w.Name))
		}
		return nil
	})
}

// mayGo returns an error if Helm manages a part, or if a part runs outside of the cluster.
func (r *Removal) mayGo(ctx context.Context, parts []Part) error {
	for _, part := range parts {
		d := &appsv1.Deployment{}
		d.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: part.Deployment}, d)
		switch {
		case err == nil:
			if release := KeptByHelm(d); release != "" {
				return fmt.Errorf("deployment %s/%s %w, release %s", d.Namespace, d.Name, ErrKeptByHelm, release)
			}
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("reading deployment %s/%s: %w", r.Namespace, part.Deployment, err)
		default:
			alive, err := renewed(ctx, r.Client, r.Namespace, part)
			if err != nil {
				return err
			}
			if alive {
				return fmt.Errorf("%w: `refract run` provides %s from outside of the cluster: stop it first", ErrRuns, part.Name)
			}
		}
	}
	return nil
}

// ErrRuns is returned if Refract runs although it has no Deployment.
var ErrRuns = errors.New("there is no Deployment")

// rights returns the RBAC objects of the given kinds that belong to the parts.
func (r *Removal) rights(parts []Part, kinds ...string) []client.Object {
	var objects []client.Object
	for _, part := range parts {
		for _, kind := range kinds {
			namespace := r.Namespace
			if strings.HasPrefix(kind, "Cluster") {
				namespace = ""
			}
			objects = append(objects, named("rbac.authorization.k8s.io", kind, namespace, part.Role))
		}
		if part == Propagation {
			objects = append(objects, named("rbac.authorization.k8s.io", "RoleBinding", r.Namespace, member.PermitRole))
		}
	}
	return objects
}

// asks returns the webhook configurations and admission policies of the parts in goes. It omits those that a part in
// stays needs.
func (r *Removal) asks(goes, stays []Part) []client.Object {
	var objects []client.Object
	for _, part := range goes {
		objects = append(objects, part.asked()...)
		objects = append(objects, part.judged(stays)...)
	}
	return objects
}

// manifest returns the objects in the manifests of the parts in goes, in the order of deletion. It omits those that a
// part in stays needs.
func (r *Removal) manifest(goes, stays []Part) ([]client.Object, error) {
	all, err := Objects(&Options{Parts: goes, Namespace: r.Namespace, Image: "refract"})
	if err != nil {
		return nil, err
	}
	kept := map[string]bool{}
	if len(stays) > 0 {
		others, err := Objects(&Options{Parts: stays, Namespace: r.Namespace, Image: "refract"})
		if err != nil {
			return nil, err
		}
		for _, o := range others {
			kept[Describe(o)] = true
		}
	}
	var objects []client.Object
	for _, o := range slices.Backward(all) {
		if o.GetKind() != "Namespace" && !kept[Describe(o)] {
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// stop deletes the Deployments and waits until their pods have ended, because a running pod could write objects again.
func (r *Removal) stop(ctx context.Context, parts []Part) error {
	for _, part := range parts {
		if err := r.deleteAll(ctx, []client.Object{named("apps", "Deployment", r.Namespace, part.Deployment)}); err != nil {
			return err
		}
	}
	last := ""
	err := wait.PollUntilContextCancel(ctx, every, true, func(ctx context.Context) (bool, error) {
		var pods []string
		for _, part := range parts {
			list := &corev1.PodList{}
			if err := r.Client.List(ctx, list, client.InNamespace(r.Namespace), client.MatchingLabels{"app.kubernetes.io/name": part.Deployment}); err != nil {
				return false, err
			}
			for i := range list.Items {
				pods = append(pods, list.Items[i].Name)
			}
		}
		if line := fmt.Sprintf("%d pods are terminating", len(pods)); len(pods) > 0 && line != last {
			r.Tell(line)
			last = line
		}
		return len(pods) == 0, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("waiting for the pods to terminate: %s: %w", last, err)
	}
	return err
}

// held returns the types whose objects have finalizers of the part, from this version or an earlier one.
func held(p Part) []schema.GroupVersionKind {
	switch p {
	case Propagation:
		return []schema.GroupVersionKind{
			refractv1alpha1.GroupVersion.WithKind(refractv1alpha1.KindPropagation),
			refractv1alpha1.GroupVersion.WithKind(refractv1alpha1.KindClusterPropagation),
			corev1alpha1.GroupVersion.WithKind(corev1alpha1.KindFederatedCluster),
		}
	case Conversion:
		return []schema.GroupVersionKind{refractv1alpha1.GroupVersion.WithKind(refractv1alpha1.KindConversionPolicy)}
	default:
		return nil
	}
}

// releaseAll removes Refract's finalizers from all objects. Otherwise these objects, their namespaces and their
// CustomResourceDefinitions could not be deleted without Refract. A later installation adds the finalizers again.
func (r *Removal) releaseAll(ctx context.Context, parts []Part) error {
	for _, part := range parts {
		for _, kind := range held(part) {
			n, err := r.release(ctx, &Stock{kind: kind})
			if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
				return err
			}
			if n > 0 {
				r.Tell(fmt.Sprintf("%s of %s removed", output.Count(n, "finalizer", "finalizers"), strings.ToLower(kind.Kind)))
			}
		}
	}
	return nil
}

// deleteAll deletes those objects that exist, and tells the user about each of them.
func (r *Removal) deleteAll(ctx context.Context, objects []client.Object) error {
	for _, o := range objects {
		err := r.delete(ctx, o)
		switch {
		case err == nil:
			r.Tell(Describe(o) + " deleted")
		case !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
			return fmt.Errorf("deleting %s: %w", Describe(o), err)
		}
	}
	return nil
}

// inUseBinding returns the binding of the admission policy that prevents the removal of the conversion.
func inUseBinding() client.Object {
	return named("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", "", inUse)
}

// delete deletes an object. If the admission policy refract-conversion-in-use rejects the deletion, delete tries again:
// an API server notices the deletion of the policy's binding only after a moment, and a new replica may have written
// the binding again.
func (r *Removal) delete(ctx context.Context, o client.Object) error {
	var refused error
	err := wait.PollUntilContextCancel(ctx, every, true, func(ctx context.Context) (bool, error) {
		refused = r.deleteExactly(ctx, o)
		if !apierrors.IsForbidden(refused) || !strings.Contains(refused.Error(), "'"+inUse+"'") {
			return true, refused
		}
		return false, client.IgnoreNotFound(r.deleteExactly(ctx, inUseBinding()))
	})
	if ctx.Err() != nil && refused != nil {
		return refused
	}
	return err
}

// deleteExactly deletes an object by its UID. If o has no UID, it deletes the object that now has this name.
func (r *Removal) deleteExactly(ctx context.Context, o client.Object) error {
	uid := o.GetUID()
	if uid == "" {
		is := &metav1.PartialObjectMetadata{}
		is.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(o), is); err != nil {
			return err
		}
		uid = is.UID
	}
	return r.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
}

// deleteNamespace deletes the system namespace if all objects in it were created by Kubernetes itself. Other objects
// belong to the user, such as the credentials of members.
func (r *Removal) deleteNamespace(ctx context.Context) error {
	ns := &corev1.Namespace{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: r.Namespace}, ns); err != nil {
		return client.IgnoreNotFound(err)
	}
	holds, err := r.holds(ctx)
	if err != nil {
		return err
	}
	if holds != "" {
		r.Tell(fmt.Sprintf("namespace %s stays: it has %s", r.Namespace, holds))
		return nil
	}
	return r.deleteAll(ctx, []client.Object{exactly("", "Namespace", ns)})
}

// holds returns an object in the system namespace that does not come from Kubernetes; empty if there is none.
func (r *Removal) holds(ctx context.Context) (string, error) {
	lists, err := discovery.ServerPreferredNamespacedResources(r.Discovery)
	if err != nil {
		return "", fmt.Errorf("discovering the types of the cluster, any of which may be in namespace %s: %w", r.Namespace, err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return "", err
		}
		for i := range list.APIResources {
			resource := &list.APIResources[i]
			if !slices.Contains(resource.Verbs, "list") || !slices.Contains(resource.Verbs, "delete") || resource.Kind == "Event" {
				continue
			}
			found := &metav1.PartialObjectMetadataList{}
			found.SetGroupVersionKind(gv.WithKind(resource.Kind + "List"))
			if err := r.Client.List(ctx, found, client.InNamespace(r.Namespace), client.Limit(pageSize)); err != nil {
				return "", fmt.Errorf("listing %s in namespace %s: %w", resource.Name, r.Namespace, err)
			}
			for j := range found.Items {
				if o := &found.Items[j]; !madeByCluster(resource.Kind, o) {
					return strings.ToLower(resource.Kind) + " " + o.Name, nil
				}
			}
		}
	}
	return "", nil
}

// madeByCluster reports whether Kubernetes creates such an object in every namespace, or is deleting it anyway.
func madeByCluster(kind string, o *metav1.PartialObjectMetadata) bool {
	switch {
	case kind == "ConfigMap" && o.Name == "kube-root-ca.crt", kind == "ServiceAccount" && o.Name == "default":
		return true
	default:
		return o.DeletionTimestamp != nil || len(o.OwnerReferences) > 0
	}
}
