package installation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/config"
	"refract.dev/fleet/member"
	"refract.dev/fleet/revision"
)

// Stock has the objects of one type that Refract defines.
type Stock struct {
	CRD     string
	Objects []string // NAMESPACE/NAME, or NAME.

	kind schema.GroupVersionKind
}

// Stocks returns a Stock for each type that Refract defines: the objects of users, and the reports about them.
func Stocks(ctx context.Context, c client.Reader) ([]Stock, error) {
	files, err := fs.Glob(config.CRDs, "crd/*.yaml")
	if err != nil {
		return nil, err
	}
	var stocks []Stock
	for _, file := range files {
		text, err := fs.ReadFile(config.CRDs, file)
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := errors.Join(err, yaml.Unmarshal(text, crd)); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		s := Stock{CRD: crd.Name, kind: schema.GroupVersionKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}}
		for i := range crd.Spec.Versions {
			if crd.Spec.Versions[i].Storage {
				s.kind.Version = crd.Spec.Versions[i].Name
			}
		}
		err = s.each(ctx, c, func(o *metav1.PartialObjectMetadata) error {
			s.Objects = append(s.Objects, strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
			return nil
		})
		switch {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("listing %s: %w", crd.Name, err)
		default:
			stocks = append(stocks, s)
		}
	}
	return stocks, nil
}

func (s *Stock) each(ctx context.Context, c client.Reader, do func(*metav1.PartialObjectMetadata) error) error {
	next := ""
	for {
		list := &metav1.PartialObjectMetadataList{}
		kind := s.kind
		kind.Kind += "List"
		list.SetGroupVersionKind(kind)
		if err := c.List(ctx, list, client.Limit(pageSize), client.Continue(next)); err != nil {
			return err
		}
		for i := range list.Items {
			if err := do(&list.Items[i]); err != nil {
				return err
			}
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

// Purge deletes the CustomResourceDefinitions with all their objects, the revisions of rollouts, and the credentials of
// members. It also deletes the system namespace if nothing else is in it. Refract must have stopped. Copies on members
// remain, and must be deleted by hand.
func (r *Removal) Purge(ctx context.Context) error {
	secrets, err := r.credentials(ctx)
	if err != nil {
		return err
	}
	revisions, err := r.revisions(ctx)
	if err != nil {
		return err
	}
	stocks, err := Stocks(ctx, r.Client)
	if err != nil {
		return err
	}
	for i := range stocks {
		if _, err := r.release(ctx, &stocks[i]); err != nil {
			return err
		}
	}
	for i := range stocks {
		if err := r.deleteAll(ctx, []client.Object{named("apiextensions.k8s.io", "CustomResourceDefinition", "", stocks[i].CRD)}); err != nil {
			return err
		}
	}
	for i := range stocks {
		key := client.ObjectKey{Name: stocks[i].CRD}
		err := wait.PollUntilContextCancel(ctx, every, true, func(ctx context.Context) (bool, error) {
			err := r.Client.Get(ctx, key, &apiextensionsv1.CustomResourceDefinition{})
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("waiting for CustomResourceDefinition %s to be gone: %w", key.Name, err)
		}
	}
	if err := r.deleteAll(ctx, slices.Concat(revisions, secrets)); err != nil {
		return err
	}
	return r.deleteNamespace(ctx)
}

// revisions returns the ControllerRevisions of rollouts, and the Secret with the key that encrypts some of them.
func (r *Removal) revisions(ctx context.Context) ([]client.Object, error) {
	list := &appsv1.ControllerRevisionList{}
	if err := r.Client.List(ctx, list, client.MatchingLabels{refractv1alpha1.RevisionLabel: "true"}); err != nil {
		return nil, fmt.Errorf("listing revisions: %w", err)
	}
	var all []client.Object
	for i := range list.Items {
		all = append(all, exactly("apps", "ControllerRevision", &list.Items[i]))
	}
	return append(all, named("", "Secret", r.Namespace, revision.KeySecret)), nil
}

// credentials returns the Secrets that Refract has created for FederatedClusters. Other Secrets must remain.
func (r *Removal) credentials(ctx context.Context) ([]client.Object, error) {
	members := &corev1alpha1.FederatedClusterList{}
	if err := r.Client.List(ctx, members); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var secrets []client.Object
	for i := range members.Items {
		own, stays, err := member.OwnSecret(ctx, r.Client, r.Namespace, &members.Items[i])
		switch {
		case err != nil:
			return nil, err
		case own != nil:
			secrets = append(secrets, exactly("", "Secret", own))
		case stays != "" && r.Tell != nil:
			r.Tell(stays)
		}
	}
	left, err := r.orphans(ctx, members.Items)
	return append(secrets, left...), err
}

// orphans returns the Secrets that `refract join` has created for clusters that no longer exist. If a user deletes a
// FederatedCluster while Refract does not run, its Secret remains.
func (r *Removal) orphans(ctx context.Context, members []corev1alpha1.FederatedCluster) ([]client.Object, error) {
	list := &corev1.SecretList{}
	if err := r.Client.List(ctx, list, client.InNamespace(r.Namespace), client.MatchingLabels{refractv1alpha1.JoinedLabel: "true"}); err != nil {
		return nil, fmt.Errorf("listing the credentials of members in namespace %s: %w", r.Namespace, err)
	}
	var orphans []client.Object
	for i := range list.Items {
		secret := &list.Items[i]
		if !slices.ContainsFunc(members, func(fc corev1alpha1.FederatedCluster) bool {
			return fc.Spec.SecretRef.Name == secret.Name || secret.Annotations[refractv1alpha1.JoinedAnnotation] == string(fc.UID)
		}) {
			orphans = append(orphans, exactly("", "Secret", secret))
		}
	}
	return orphans, nil
}

// release removes Refract's finalizers, because no controller handles them any more. It returns the number of changed
// objects. Finalizers of others remain. The API server then deletes objects whose deletion was requested; release tells
// the user about the clusters among these.
func (r *Removal) release(ctx context.Context, s *Stock) (n int, err error) {
	ours := []string{refractv1alpha1.Finalizer, refractv1alpha1.ConversionFinalizer}
	err = s.each(ctx, r.Client, func(o *metav1.PartialObjectMetadata) error {
		if !slices.ContainsFunc(o.Finalizers, func(f string) bool { return slices.Contains(ours, f) }) {
			return nil
		}
		o.SetGroupVersionKind(s.kind)
		before := o.DeepCopy()
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return slices.Contains(ours, f) })
		err := r.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("releasing %s %s: %w", s.kind.Kind, o.Name, err)
		}
		if before.DeletionTimestamp != nil && s.kind.Kind == corev1alpha1.KindFederatedCluster && r.Tell != nil {
			r.Tell(fmt.Sprintf("federatedcluster %s was being deleted, and is gone now: its copies and the account of Refract stay on it", o.Name))
		}
		n++
		return nil
	})
	return n, err
}
