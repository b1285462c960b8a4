package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/hub"
	"refract.dev/fleet/member"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/status"
)

// hubConfig returns the client configuration for the hub. It returns an error if the hub does not respond to a request
// for its version, which needs no special permissions.
func hubConfig(ctx context.Context, c *clusterFlags) (*rest.Config, *discovery.DiscoveryClient, error) {
	return reach(ctx, "hub", c)
}

// reach is like hubConfig, for any cluster. The argument what is the word for the cluster in errors.
func reach(ctx context.Context, what string, c *clusterFlags) (*rest.Config, *discovery.DiscoveryClient, error) {
	cfg, err := c.restConfig()
	if err != nil {
		return nil, nil, err
	}
	cfg.WarningHandler = rest.NoWarnings{} // Warnings about deprecated types do not matter to a program that lists all types.
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := disco.RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil {
		return nil, nil, fmt.Errorf("reaching the %s at %s: %w", what, cfg.Host, err)
	}
	return cfg, disco, nil
}

// clusterClient returns a client for the cluster that the flags select.
func clusterClient(ctx context.Context, c *clusterFlags) (client.WithWatch, error) {
	cfg, _, err := reach(ctx, "cluster", c)
	if err != nil {
		return nil, err
	}
	return watchingClient(cfg)
}

// hubClient returns a client for the hub that the flags select.
func hubClient(ctx context.Context, c *clusterFlags) (client.WithWatch, error) {
	cfg, _, err := hubConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	return watchingClient(cfg)
}

func watchingClient(cfg *rest.Config) (client.WithWatch, error) {
	ctrllog.SetLogger(logr.Discard()) // Without a logger, the library writes a warning after a while.
	scheme, err := hub.Scheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reaching the API server at %s: %w", cfg.Host, err)
	}
	return c, nil
}

// reports returns the sources of the reports about the objects of a namespace, or about all objects if namespace is
// empty.
func reports(namespace string) []status.Source {
	if namespace != "" {
		return []status.Source{status.Propagations(namespace)}
	}
	return []status.Source{status.Propagations(""), status.ClusterPropagations()}
}

// reported returns the objects that have reports in a namespace, or in all namespaces if namespace is empty.
func reported(ctx context.Context, c client.Client, namespace string) ([]*status.Object, error) {
	records, err := status.List(ctx, c, reports(namespace)...)
	if err != nil {
		return nil, explainHub(err)
	}
	return status.NewObjects(objectsOf(records)).Objects, nil
}

func objectsOf(records []client.Object) []*status.Object {
	var objects []*status.Object
	for _, record := range records {
		if o, ok := status.ObjectOf(record); ok {
			objects = append(objects, o)
		}
	}
	return objects
}

// explainHub adds advice to an error about a cluster that is not a hub.
func explainHub(err error) error {
	if errors.Is(err, status.ErrNoHub) {
		return withHint(err, "start `refract run` against it once to install the CustomResourceDefinitions")
	}
	return err
}

// parseAsked parses arguments as kubectl does: KIND/NAME..., or KIND[,KIND...] with optional names behind it. It also
// returns each argument as KIND or KIND/NAME. For a KIND without a name, the name in the reference is empty.
func parseAsked(args []string) (texts []string, asked []reference, err error) {
	texts = args
	if len(args) > 0 && !strings.ContainsAny(args[0], "/ ") {
		if texts, err = spelledOut(args); err != nil {
			return nil, nil, err
		}
	}
	for _, text := range texts {
		r, err := parseKindOrReference(text)
		if err != nil {
			return nil, nil, err
		}
		asked = append(asked, r)
	}
	return texts, asked, nil
}

// spelledOut combines each kind with each of the names behind it, as KIND/NAME.
func spelledOut(args []string) ([]string, error) {
	kinds, names := strings.Split(args[0], ","), args[1:]
	if len(names) == 0 {
		return kinds, nil
	}
	var texts []string
	for _, kind := range kinds {
		for _, name := range names {
			if strings.Contains(name, "/") {
				return nil, withHint(fmt.Errorf("%q names a kind, but follows the kind %q", name, args[0]),
					fmt.Sprintf("use %s/NAME, or only names after the kind", kind))
			}
			texts = append(texts, kind+"/"+name)
		}
	}
	return texts, nil
}

// parseKindOrReference is like parseReference, but also accepts a KIND without a name. The name in the result is then
// empty.
func parseKindOrReference(text string) (reference, error) {
	if text == "" || strings.ContainsAny(text, "/ ") {
		return parseReference(text)
	}
	r, err := parseReference(text + "/any")
	r.name = ""
	return r, err
}

// means reports whether r can refer to the object.
func (r *reference) means(o *status.Object) bool {
	gk := o.GroupKind()
	return (r.matchesKind(strings.ToLower(gk.Kind)) || r.kind == o.Resource) &&
		(r.anyGroup || r.group == gk.Group) &&
		(r.namespace == "" || r.namespace == o.Namespace || o.Namespace == "") &&
		(r.name == "" || r.name == o.Name)
}

// meansClusters reports whether r refers to a member of the fleet, and not to an object.
func (r *reference) meansClusters() bool {
	switch r.kind {
	case "cluster", "clusters", "federatedcluster", "federatedclusters", "fcluster":
		return r.anyGroup || r.group == corev1alpha1.GroupVersion.Group
	default:
		return false
	}
}

// hubType is a type of the hub whose objects can be propagated.
type hubType struct {
	kind       schema.GroupVersionKind
	namespaced bool
}

// typesOf returns the types on the hub that match the kind in a reference.
func typesOf(disco discovery.DiscoveryInterface, r *reference) ([]hubType, error) {
	lists, err := discovery.ServerPreferredResources(disco)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // Discovery also works if an aggregated API is unavailable.
		return nil, fmt.Errorf("discovering the types of the hub: %w", err)
	}
	var found []hubType
	var known []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("discovering the types of the hub: %w", err)
		}
		for i := range list.APIResources {
			resource := &list.APIResources[i]
			kind := gv.WithKind(resource.Kind)
			if !member.Propagates(kind.GroupKind(), resource.Verbs) {
				continue
			}
			known = append(known, strings.ToLower(resource.Kind))
			if (r.anyGroup || r.group == gv.Group) && r.meansResource(resource) {
				found = append(found, hubType{kind, resource.Namespaced})
			}
		}
	}
	if len(found) == 0 {
		hint := ""
		if near := nearest.To(r.kind, known); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		return nil, withHint(fmt.Errorf("the hub has no propagatable kind %q", r.kind), hint)
	}
	return found, nil
}

func (r *reference) meansResource(resource *metav1.APIResource) bool {
	return r.matchesKind(strings.ToLower(resource.Kind)) || r.kind == resource.Name || slices.Contains(resource.ShortNames, r.kind)
}

// Shell completion with data from the hub.

// completeObjects completes objects that have reports. It omits objects that the user has already given.
func completeObjects(of *clusterFlags, namespace *string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return namesAfter(args, status.Names(peekReports(of, *namespace))), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNamespaces completes namespaces that have objects with reports.
func completeNamespaces(of *clusterFlags) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var names []string
		for _, o := range peekReports(of, "") {
			if o.Namespace != "" {
				names = append(names, o.Namespace)
			}
		}
		slices.Sort(names)
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeMember completes the name of one member.
func completeMember(of *clusterFlags) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		members := &corev1alpha1.FederatedClusterList{}
		if c, err := hubClient(ctx, of); err != nil || c.List(ctx, members) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := make([]string, len(members.Items))
		for i := range members.Items {
			names[i] = members.Items[i].Name
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// peekReports is like reported, with a short timeout, for completion.
func peekReports(of *clusterFlags, namespace string) []*status.Object {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := hubClient(ctx, of)
	if err != nil {
		return nil
	}
	objects, err := reported(ctx, c, namespace)
	if err != nil {
		return nil
	}
	return objects
}
