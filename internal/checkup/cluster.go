package checkup

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/internal/installation"
)

// oldest is the first version of Kubernetes with all features that Refract requires.
const oldest = "1.35.0"

// version checks the version of the API server.
func (c *checker) version(context.Context) {
	info, err := c.disco.ServerVersion()
	if err != nil {
		c.wrongf("version", "check whether the API server answers: kubectl version", "the version of the API server cannot be read: %v", err)
		return
	}
	v, err := version.ParseGeneric(info.GitVersion)
	if err != nil || v.LessThan(version.MustParseGeneric(oldest)) {
		c.wrongf("version", "upgrade the cluster to Kubernetes 1.35 or later",
			"the API server is Kubernetes %s, which Refract does not support", info.GitVersion)
		return
	}
	c.rightf("version", "Kubernetes %s", info.GitVersion)
}

// mostSkew is the maximum difference between clocks. Certificates and Leases work only if the difference is smaller.
const mostSkew = 10 * time.Second

// clock compares the clock of this machine with that of the API server. It takes the server's time from the Date header
// of a response, which has whole seconds.
func (c *checker) clock(ctx context.Context) {
	server, err := c.serverTime(ctx)
	if err != nil {
		c.wrongf("clock", "", "the time of the API server cannot be read: %v", err)
		return
	}
	skew := c.Now().Sub(server).Round(time.Second)
	if skew > mostSkew || skew < -mostSkew {
		c.wrongf("clock", "synchronize this machine and the API server by NTP: certificates and Leases depend on their clocks",
			"the clocks of this machine and the API server differ by %s: %s here, %s there", skew.Abs(),
			c.Now().UTC().Format(time.RFC3339), server.UTC().Format(time.RFC3339))
		return
	}
	c.rightf("clock", "the API server's clock is accurate to %s", mostSkew)
}

// serverTime returns the time of the API server.
func (c *checker) serverTime(ctx context.Context) (time.Time, error) {
	web, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return time.Time{}, err
	}
	url, _, err := rest.DefaultServerUrlFor(c.Config)
	if err != nil {
		return time.Time{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url.JoinPath("version").String(), nil)
	if err != nil {
		return time.Time{}, err
	}
	answer, err := web.Do(req)
	if err != nil {
		return time.Time{}, err
	}
	if err := answer.Body.Close(); err != nil {
		return time.Time{}, err
	}
	at, err := http.ParseTime(answer.Header.Get("Date"))
	return at.Add(time.Second / 2), err
}

// admissionAPI checks whether the API server serves ValidatingAdmissionPolicies and webhook configurations.
func (c *checker) admissionAPI(context.Context) {
	list, err := c.disco.ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	var missing []string
	if err == nil {
		for _, want := range []string{
			"validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations", "mutatingwebhookconfigurations",
		} {
			if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == want }) {
				missing = append(missing, want)
			}
		}
	}
	switch {
	case err != nil:
		c.wrongf("admission", "check --runtime-config of the API server", "admissionregistration.k8s.io/v1 is not served: %v", err)
	case len(missing) > 0:
		c.wrongf("admission", "check --runtime-config of the API server", "admissionregistration.k8s.io/v1 is served without %s", strings.Join(missing, ", "))
	default:
		c.rightf("admission", "admission policies and webhooks are served")
	}
}

// namespace checks whether objects can be created in the system namespace.
func (c *checker) namespace(ctx context.Context) {
	ns := &corev1.Namespace{}
	err := c.client.Get(ctx, client.ObjectKey{Name: c.Namespace}, ns)
	switch {
	case apierrors.IsNotFound(err) && c.Before:
		c.rightf("namespace", "%s is created by the installation", c.Namespace)
	case apierrors.IsNotFound(err):
		c.wrongf("namespace", "install Refract: refract install", "namespace %s does not exist", c.Namespace)
	case err != nil:
		c.wrongf("namespace", "", "namespace %s cannot be read: %v", c.Namespace, err)
	case ns.DeletionTimestamp != nil:
		c.wrongf("namespace", "wait until it is gone; the conditions in `kubectl get namespace "+c.Namespace+" -o yaml` show the reason",
			"namespace %s is being deleted", c.Namespace)
	default:
		c.rightf("namespace", "%s", c.Namespace)
	}
}

// others searches for an installation in another namespace. Two installations would undo each other's changes.
func (c *checker) others(ctx context.Context) {
	if c.unread != nil {
		c.wrongf("others", "check as a user who may read it, or set --system-namespace",
			"the namespace of Refract cannot be found: %v", c.unread)
		return
	}
	var elsewhere []string
	for _, namespace := range c.spaces {
		if namespace == c.Namespace {
			continue
		}
		parts, err := installation.Installed(ctx, c.client, namespace)
		if err != nil {
			c.wrongf("others", "", "%v", err)
			return
		}
		for _, part := range parts {
			elsewhere = append(elsewhere, fmt.Sprintf("deployment %s/%s", namespace, part.Deployment))
		}
	}
	if len(elsewhere) > 0 {
		c.wrongf("others", "remove that one (refract uninstall --system-namespace), or name its namespace with --system-namespace",
			"Refract is installed in another namespace, too, and the two would revert each other's changes: %s", strings.Join(elsewhere, ", "))
		return
	}
	c.rightf("others", "no other installation")
}

// kubeAdmiral searches for KubeAdmiral. It has the same types as Refract, so both would place the same objects.
func (c *checker) kubeAdmiral(ctx context.Context) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(crdKind)
	err := c.client.Get(ctx, client.ObjectKey{Name: "federatedtypeconfigs.core.kubeadmiral.io"}, crd)
	switch {
	case err == nil:
		c.wrongf("kubeadmiral", "run only one of them: docs/guide/operate-clusters.md describes the migration from KubeAdmiral",
			"KubeAdmiral is installed (CustomResourceDefinition %s), and would place the same objects", crd.Name)
	case !apierrors.IsNotFound(err):
		c.wrongf("kubeadmiral", "", "CustomResourceDefinitions cannot be read: %v", err)
	default:
		c.rightf("kubeadmiral", "KubeAdmiral is not installed")
	}
}

// nodes checks whether the cluster has a ready node.
func (c *checker) nodes(ctx context.Context) {
	nodes := &corev1.NodeList{}
	if err := c.client.List(ctx, nodes, client.Limit(500)); err != nil {
		c.wrongf("nodes", "", "nodes cannot be listed: %v", err)
		return
	}
	ready := 0
	for i := range nodes.Items {
		if !nodes.Items[i].Spec.Unschedulable && slices.ContainsFunc(nodes.Items[i].Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			ready++
		}
	}
	if ready == 0 {
		c.wrongf("nodes", "run Refract elsewhere, with a kubeconfig of the cluster: refract run --kubeconfig FILE --webhook-url URL",
			"none of %d nodes is ready and schedulable", len(nodes.Items))
		return
	}
	c.rightf("nodes", "%d of %d nodes are ready", ready, len(nodes.Items))
}

// mayInstall checks by dry runs whether the user may apply each object of the installation. If the namespace does not
// exist yet, a dry run is not possible; then it checks the permission to create the namespaced objects.
func (c *checker) mayInstall(ctx context.Context) {
	objects, err := installation.Objects(&installation.Options{Parts: c.Parts, Namespace: c.Namespace, Image: "refract"})
	if err != nil {
		c.wrongf("rights", "", "%v", err)
		return
	}
	there := c.client.Get(ctx, client.ObjectKey{Name: c.Namespace}, &corev1.Namespace{}) == nil
	var refused []string
	for _, o := range objects {
		if err := c.try(ctx, o, there); err != nil {
			refused = append(refused, fmt.Sprintf("%s: %v", installation.Describe(o), err))
		}
	}
	if len(refused) > 0 {
		c.wrongf("rights", "install as a user who may (--as, --context), or let such a user apply the output of `refract install --export`",
			"%d of %d objects cannot be written: %s", len(refused), len(objects), some(refused))
		return
	}
	c.rightf("rights", "you may write all %d objects of the installation", len(objects))
}

// try applies an object in a dry run. If its namespace does not exist, try only checks the permission to create the
// object.
func (c *checker) try(ctx context.Context, o *unstructured.Unstructured, there bool) error {
	if o.GetNamespace() != "" && !there {
		mapping, err := c.client.RESTMapper().RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		if err != nil {
			return err
		}
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: o.GetNamespace(), Verb: "create", Group: mapping.Resource.Group, Version: mapping.Resource.Version,
				Resource: mapping.Resource.Resource, Name: o.GetName(),
			},
		}}
		if err := c.client.Create(ctx, review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return errors.New("you may not create it")
		}
		return nil
	}
	return c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()),
		client.FieldOwner(installation.FieldManager), client.ForceOwnership, client.DryRunAll)
}

// some joins the first three texts, and appends the number of the others.
func some(texts []string) string {
	const most = 3
	if len(texts) <= most {
		return strings.Join(texts, "; ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:most], "; "), len(texts)-most)
}
