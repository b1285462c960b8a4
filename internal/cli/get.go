package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/status"
	"refract.dev/internal/output"
)

// getOptions are the flags of get.
type getOptions struct {
	cluster   clusterFlags
	namespace string
	selector  string
	output    string
	all       bool
	failed    bool
	watch     bool
}

func newGetCommand(s *streams) *cobra.Command {
	o := &getOptions{}
	cmd := &cobra.Command{
		Use:   "get [KIND[/NAME]... | KIND NAME...]",
		Short: "Show the status of objects on the clusters",
		Long: `Show the status of objects on the clusters, from their Propagations on the hub: a line
for each object, and a column for each of their clusters. If the columns do not fit,
one column summarizes all clusters.

For a single object given by name, and for all objects with -o wide, the full report is
shown: for each cluster the state, the share of the replicas, the generation and
content of the copy, the reason of a problem, and the changes by others that were
corrected.

  Ready     the copy is up to date and ready
  Synced    the copy is up to date, but not ready yet, or its readiness is unknown
  Unready   the copy is up to date, but cannot become ready
  Pending   the copy is being written, or waits for something
  Drifted   the copy was changed on the cluster, and is not corrected yet
  Deleting  the copy is to be deleted
  Offline   the cluster cannot be reached
  Failed    the object could not be rendered or written
  -         the object is not placed on the cluster

refract get clusters shows the clusters: whether they are ready, the number of their
copies, and their problems.

The exit code is 1 if a shown object failed on a cluster, cannot become ready there, or
cannot reach the cluster; or if a shown cluster has a problem.`,
		Example: `  refract get
  refract get deployments -n shop --watch
  refract get deploy web -n shop
  refract get -A --failed -o wide
  refract get clusters`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), s, args) },
	}
	f := cmd.Flags()
	o.cluster.addClusterFlags(cmd, "hub")
	f.StringVarP(&o.namespace, "namespace", "n", "", "`name` of the namespace to show (default: that of the context)")
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "show the objects of all namespaces, and those without one")
	f.StringVarP(&o.selector, "selector", "l", "", "label `selector` to filter by")
	f.BoolVar(&o.failed, "failed", false, "show only objects or clusters that are not as desired")
	f.BoolVarP(&o.watch, "watch", "w", false, "keep watching, and show every change, until interrupted")
	getOutputs.addFlag(cmd, &o.output)
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	cmd.ValidArgsFunction = completeObjects(&o.cluster, &o.namespace)
	must(cmd.RegisterFlagCompletionFunc("namespace", completeNamespaces(&o.cluster)))
	must(cmd.RegisterFlagCompletionFunc("selector", cobra.NoFileCompletions))
	return cmd
}

// view is the result of get: objects or clusters.
type view struct {
	text     *status.Text
	objects  *status.Objects
	clusters *status.Clusters
	// one is true if the user has named a single object.
	one bool
}

var getOutputs = formats[*view]{
	{"text", toStdout(func(w io.Writer, v *view) error { return v.write(w, false) })},
	{"wide", toStdout(func(w io.Writer, v *view) error { return v.write(w, true) })},
	{"json", toStdout(func(w io.Writer, v *view) error { return status.WriteJSON(w, v.data()) })},
	{"yaml", toStdout(func(w io.Writer, v *view) error { return status.WriteYAML(w, v.data()) })},
}

func (v *view) write(w io.Writer, wide bool) error {
	v.text.Now = time.Now()
	switch {
	case v.clusters != nil:
		return v.text.Clusters(w, v.clusters, wide)
	case wide || v.one:
		return v.text.Details(w, v.objects)
	default:
		return v.text.Objects(w, v.objects)
	}
}

func (v *view) data() any {
	if v.clusters != nil {
		return v.clusters
	}
	return v.objects
}

func (o *getOptions) run(ctx context.Context, s *streams, args []string) error {
	write, err := getOutputs.find(o.output)
	if err != nil {
		return err
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	texts, asked, err := parseAsked(args)
	if err != nil {
		return err
	}
	clusters := 0
	for i := range asked {
		if asked[i].meansClusters() {
			clusters++
		}
	}
	o.locate(asked)
	c, err := hubClient(ctx, &o.cluster)
	if err != nil {
		return err
	}
	show := func(v *view) error { return write(s, v) }
	text := &status.Text{Width: width(s.out)}
	switch clusters {
	case 0:
		g := &objectGetter{o: o, s: s, client: c, texts: texts, asked: asked, selector: selector, text: text, show: show}
		return explainHub(g.run(ctx))
	case len(asked):
		return o.clusters(ctx, s, c, asked, selector, func(c *status.Clusters) error { return show(&view{text: text, clusters: c}) })
	default:
		return withHint(errors.New("clusters and objects cannot be shown together"), "show them with separate commands")
	}
}

// locate sets the namespaces to search, like kubectl: the namespace of --namespace, or else that of the context. With
// --all-namespaces it sets none. A namespace in an argument takes precedence. Cluster-scoped objects are found in any
// case.
func (o *getOptions) locate(asked []reference) {
	if o.all {
		return
	}
	if o.namespace == "" {
		o.namespace = o.cluster.namespace()
	}
	for i := range asked {
		if asked[i].namespace == "" {
			asked[i].namespace = o.namespace
		}
	}
}

// sources returns the sources of the reports about the requested objects.
func (g *objectGetter) sources() []status.Source {
	switch {
	case g.o.all:
		return reports("")
	case len(g.asked) == 0:
		return reports(g.o.namespace)
	}
	sources := []status.Source{status.ClusterPropagations()}
	seen := map[string]bool{}
	for i := range g.asked {
		if ns := g.asked[i].namespace; !seen[ns] {
			seen[ns] = true
			sources = append(sources, status.Propagations(ns))
		}
	}
	return sources
}

// width returns the width of the terminal in characters; 0 if w is not a terminal.
func width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !isTerminal(w) {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// clusters shows the requested members.
func (o *getOptions) clusters(
	ctx context.Context, s *streams, c client.Client, asked []reference, selector labels.Selector, show func(*status.Clusters) error,
) error {
	if o.watch {
		return withHint(errors.New("--watch shows only objects, not clusters"), "kubectl get federatedclusters --watch follows their conditions")
	}
	members := &corev1alpha1.FederatedClusterList{}
	if err := c.List(ctx, members, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return fmt.Errorf("listing clusters on the hub: %w", err)
	}
	objects, err := reported(ctx, c, "")
	if err != nil {
		return err
	}
	if members.Items, err = chosenMembers(members.Items, asked); err != nil {
		return err
	}
	result := status.NewClusters(members.Items, objects)
	if o.failed {
		result.Clusters = slices.DeleteFunc(result.Clusters, func(c status.Cluster) bool { return c.Right() })
	}
	if len(result.Clusters) == 0 && o.isText() {
		o.nothing(s, len(members.Items), "cluster is as desired", "clusters are as desired", "no matching cluster has joined")
		return nil
	}
	if err := show(result); err != nil {
		return err
	}
	if result.Failed() {
		return errFound
	}
	return nil
}

// chosenMembers returns the members that the user has named, or all members if the user has named none.
func chosenMembers(members []corev1alpha1.FederatedCluster, asked []reference) ([]corev1alpha1.FederatedCluster, error) {
	var chosen []corev1alpha1.FederatedCluster
	names := make([]string, len(members))
	for i := range members {
		names[i] = members[i].Name
	}
	for i := range asked {
		if asked[i].name == "" {
			return members, nil
		}
		at := slices.Index(names, asked[i].name)
		if at < 0 {
			hint := ""
			if near := nearest.To(asked[i].name, names); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			return nil, withHint(fmt.Errorf("cluster %q has not joined the hub", asked[i].name), hint)
		}
		chosen = append(chosen, members[at])
	}
	return chosen, nil
}

func (o *getOptions) isText() bool { return o.output == "text" || o.output == "wide" }

// nothing explains why no object or cluster is shown.
func (o *getOptions) nothing(s *streams, n int, one, many, none string) {
	if o.failed && n > 0 {
		fmt.Fprintln(s.err, output.Count(n, one, many))
		return
	}
	fmt.Fprintln(s.err, none)
}

// objectGetter shows objects.
type objectGetter struct {
	o        *getOptions
	s        *streams
	client   client.WithWatch
	texts    []string // The arguments, as KIND or KIND/NAME.
	asked    []reference
	selector labels.Selector
	text     *status.Text
	show     func(*view) error

	shown  map[types.UID]bool // UIDs of Propagations.
	begun  bool
	failed bool
}

func (g *objectGetter) run(ctx context.Context) error {
	if g.o.watch {
		err := status.Follow(ctx, g.client, func(events []status.Event) (bool, error) { return false, g.see(ctx, events) }, g.sources()...)
		if errors.Is(err, context.Canceled) {
			return nil // The user has interrupted the command.
		}
		return err
	}
	records, err := status.List(ctx, g.client, g.sources()...)
	if err != nil {
		return err
	}
	events := make([]status.Event, len(records))
	for i, record := range records {
		events[i].Object = record
	}
	if err := g.see(ctx, events); err != nil {
		return err
	}
	if g.failed {
		return errFound
	}
	return nil
}

// see first shows all requested objects, and later those that have changed.
func (g *objectGetter) see(ctx context.Context, events []status.Event) error {
	if g.shown == nil {
		g.shown = map[types.UID]bool{}
	}
	record := map[*status.Object]types.UID{}
	var candidates []*status.Object
	for _, e := range events {
		object, ok := status.ObjectOf(e.Object)
		switch uid := e.Object.GetUID(); {
		case !ok:
		case e.Gone && g.shown[uid]:
			delete(g.shown, uid)
			fmt.Fprintf(g.s.err, "%s is gone\n", object)
		case !e.Gone:
			record[object] = uid
			candidates = append(candidates, object)
		}
	}
	chosen, err := g.choose(ctx, candidates)
	if err != nil {
		return err
	}
	total := len(chosen)
	if g.o.failed {
		chosen = slices.DeleteFunc(chosen, func(o *status.Object) bool { return o.Right() && !g.shown[record[o]] })
	}
	for _, o := range chosen {
		g.shown[record[o]] = true
	}
	first := !g.begun
	g.begun = true
	if len(chosen) == 0 {
		if !first {
			return nil
		}
		if g.o.isText() {
			g.o.nothing(g.s, total, "object is as desired", "objects are as desired", g.none())
			return nil
		}
	}
	objects := status.NewObjects(chosen)
	g.failed = objects.Failed()
	one := len(g.asked) == 1 && g.asked[0].name != "" && len(g.shown) <= 1
	return g.show(&view{text: g.text, objects: objects, one: one})
}

// none returns the message if the hub or the namespace has no propagated objects.
func (g *objectGetter) none() string {
	if g.o.all {
		return "nothing is propagated"
	}
	return fmt.Sprintf("nothing is propagated in namespace %s; -A shows all namespaces", g.o.namespace)
}

// choose returns the requested objects. The first call returns an error if a requested object does not exist.
func (g *objectGetter) choose(ctx context.Context, objects []*status.Object) ([]*status.Object, error) {
	chosen := objects
	if len(g.asked) > 0 {
		chosen = nil
		for _, o := range objects {
			if slices.ContainsFunc(g.asked, func(r reference) bool { return r.means(o) }) {
				chosen = append(chosen, o)
			}
		}
	}
	for i := range g.asked {
		if !g.begun && !slices.ContainsFunc(objects, func(o *status.Object) bool { return g.asked[i].means(o) }) {
			return nil, notReported(g.texts[i], &g.asked[i], objects)
		}
	}
	if g.selector.Empty() || len(chosen) == 0 {
		return chosen, nil
	}
	matching, err := matchLabels(ctx, g.client, g.selector, chosen)
	if err != nil {
		return nil, err
	}
	if len(matching) == 0 && !g.begun {
		return nil, errors.New("no propagated object matches these flags")
	}
	return matching, nil
}

// notReported returns the error for a requested object or kind that has no report.
func notReported(text string, r *reference, objects []*status.Object) error {
	names := map[string]string{}
	for _, o := range objects {
		kind := strings.ToLower(o.Kind)
		if r.name == "" {
			names[kind] = kind
			continue
		}
		for _, short := range []string{o.Name, kind + "/" + o.Name, o.String()} {
			names[short] = o.String()
		}
	}
	hint := ""
	if near := nearest.To(strings.ToLower(text), slices.Sorted(maps.Keys(names))); near != "" {
		hint = fmt.Sprintf("did you mean %s?", names[near])
	}
	if r.name == "" {
		return withHint(fmt.Errorf("no object of kind %q is propagated", text), hint)
	}
	return withHint(fmt.Errorf("object %q is not propagated", text), hint)
}

// matchLabels returns the objects whose labels on the hub match the selector.
func matchLabels(ctx context.Context, c client.Client, selector labels.Selector, objects []*status.Object) ([]*status.Object, error) {
	matching := map[types.UID]bool{}
	listed := map[schema.GroupVersionKind]bool{}
	for _, o := range objects {
		kind := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
		if listed[kind] {
			continue
		}
		listed[kind] = true
		options := []client.ListOption{client.MatchingLabelsSelector{Selector: selector}}
		if len(objects) == 1 {
			options = append(options, client.MatchingFields{"metadata.name": o.Name})
		}
		if !slices.ContainsFunc(objects, func(other *status.Object) bool { return other.Namespace != o.Namespace }) {
			options = append(options, client.InNamespace(o.Namespace))
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.List(ctx, list, options...); err != nil {
			return nil, fmt.Errorf("listing %s on the hub: %w", kind.Kind, err)
		}
		for i := range list.Items {
			matching[list.Items[i].UID] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(objects), func(o *status.Object) bool { return !matching[o.UID] }), nil
}
