package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/status"
)

// waitOptions are the flags of wait.
type waitOptions struct {
	cluster   clusterFlags
	namespace string
	selector  string
	until     string
	all       bool
	timeout   time.Duration
}

// goals are the values of --for.
var goals = []string{string(status.Synced), string(status.Ready), string(status.Deleted)}

func newWaitCommand(s *streams) *cobra.Command {
	o := &waitOptions{}
	cmd := &cobra.Command{
		Use:   "wait KIND/NAME... | KIND NAME...",
		Short: "Wait until objects have arrived on their clusters",
		Long: `Wait until each named object has a state on all of its clusters, for the generation
that it has on the hub at the start of the wait:

  synced   every cluster has the expected content
  ready    and it is ready on every cluster
  deleted  no cluster has a copy any more, and there is no report on the object

For a kind without generations, such as ConfigMap or Secret, the command uses the current
report.

A halted or reverted rollout ends the wait at once, with the failures. When --timeout
expires, the command prints the remaining obstacles on each cluster, and the exit code
is 1; with --timeout 0 it checks once. A missing object, or an object without a placement,
is an error, except with --for deleted.`,
		Example: `  refract wait deployment/shop/web
  refract wait deployment/web configmap/web -n shop --for ready --timeout 10m
  refract wait deployments -n shop -l app=web`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return nil
			}
			return withHint(fmt.Errorf("%s: name the objects", cmd.CommandPath()), "as KIND/NAME or KIND/NAMESPACE/NAME, or as KIND with --all or --selector")
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), s, args) },
	}
	f := cmd.Flags()
	o.cluster.addClusterFlags(cmd, "hub")
	f.StringVarP(&o.namespace, "namespace", "n", "", "`name` of the namespace of the objects")
	f.StringVarP(&o.selector, "selector", "l", "", "label `selector` for objects of a KIND")
	f.BoolVar(&o.all, "all", false, "all propagated objects of a KIND")
	f.StringVar(&o.until, "for", goals[0], "`state` to wait for: "+strings.Join(goals, ", "))
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "`time` after which to give up")
	cmd.MarkFlagsMutuallyExclusive("all", "selector")
	cmd.ValidArgsFunction = completeObjects(&o.cluster, &o.namespace)
	must(cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(goals, cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("namespace", completeNamespaces(&o.cluster)))
	must(cmd.RegisterFlagCompletionFunc("selector", cobra.NoFileCompletions))
	must(cmd.RegisterFlagCompletionFunc("timeout", cobra.NoFileCompletions))
	return cmd
}

func (o *waitOptions) run(ctx context.Context, s *streams, args []string) error {
	texts, asked, selector, err := o.parse(args)
	if err != nil {
		return err
	}
	return s.limited(ctx, o.timeout, func(ctx context.Context) error { return o.waitFor(ctx, s, texts, asked, selector) })
}

// waitFor waits for the requested objects.
func (o *waitOptions) waitFor(ctx context.Context, s *streams, texts []string, asked []reference, selector labels.Selector) error {
	s.at("the state of the objects is unknown", again)
	cfg, disco, err := hubConfig(ctx, &o.cluster)
	if err != nil {
		return err
	}
	c, err := watchingClient(cfg)
	if err != nil {
		return err
	}
	w := &waiter{goal: status.Goal(o.until), s: s, objects: map[awaitedKey]*status.Object{}}
	find := &awaitedFinder{o: o, client: c, disco: disco, selector: selector}
	for i := range asked {
		found, err := find.find(ctx, texts[i], &asked[i])
		if err != nil {
			return explainHub(err)
		}
		w.add(found)
	}
	return explainHub(w.wait(ctx, c, o.timeout))
}

// parse parses and checks the arguments and flags.
func (o *waitOptions) parse(args []string) ([]string, []reference, labels.Selector, error) {
	if !slices.Contains(goals, o.until) {
		hint := "it is one of " + strings.Join(goals, ", ")
		if near := nearest.To(o.until, goals); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		return nil, nil, nil, withHint(fmt.Errorf("--for: there is no %q", o.until), hint)
	}
	if o.timeout < 0 {
		return nil, nil, nil, fmt.Errorf("--timeout: want 0s or more, got %s", o.timeout)
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("--selector: %w", err)
	}
	texts, asked, err := parseAsked(args)
	if err != nil {
		return nil, nil, nil, err
	}
	for i, text := range texts {
		several := o.all || o.selector != ""
		switch r := &asked[i]; {
		case r.name == "" && !several:
			return nil, nil, nil, withHint(fmt.Errorf("%q names no object", text), "--all selects all objects of the kind, --selector those with a label")
		case r.name != "" && several:
			return nil, nil, nil, fmt.Errorf("--all and --selector are for a KIND, but %q is one object", text)
		case r.namespace != "" && o.namespace != "" && r.namespace != o.namespace:
			return nil, nil, nil, fmt.Errorf("%q is not in the namespace %q", text, o.namespace)
		case r.namespace == "":
			r.namespace = o.namespace
		}
	}
	return texts, asked, selector, nil
}

// awaitedKey identifies an object.
type awaitedKey struct {
	kind schema.GroupKind
	types.NamespacedName
}

func keyOf(o *status.Object) awaitedKey {
	return awaitedKey{o.GroupKind(), types.NamespacedName{Namespace: o.Namespace, Name: o.Name}}
}

// awaited is an object to wait for.
type awaited struct {
	key  awaitedKey
	name string // The name of the object in the form of an argument.
	want status.Want
}

// awaitedFinder finds the requested objects on the hub.
type awaitedFinder struct {
	o        *waitOptions
	client   client.Client
	disco    discovery.DiscoveryInterface
	selector labels.Selector
}

// find returns the objects that a reference names: one object, or all objects of a kind.
func (f *awaitedFinder) find(ctx context.Context, text string, r *reference) ([]awaited, error) {
	kinds, err := typesOf(f.disco, r)
	if err != nil {
		return nil, err
	}
	var found []awaited
	var unplaced, names []string
	for _, kind := range kinds {
		if !kind.namespaced && r.namespace != "" {
			continue
		}
		objects, err := f.list(ctx, kind, r)
		if err != nil {
			return nil, err
		}
		for i := range objects {
			a := newAwaited(kind.kind, &objects[i])
			names = append(names, a.name)
			switch {
			case r.name != "" && r.name != objects[i].Name:
			case !placed(&objects[i]) && f.o.until != string(status.Deleted):
				unplaced = append(unplaced, a.name)
			default:
				found = append(found, a)
			}
		}
	}
	if f.o.until == string(status.Deleted) {
		return f.withReported(ctx, r, found)
	}
	switch {
	case len(found) > 1 && r.name != "":
		return nil, withHint(fmt.Errorf("%q is the name of %d objects of the hub", text, len(found)),
			fmt.Sprintf("did you mean %s or %s?", found[0].name, found[1].name))
	case len(found) > 0:
		return found, nil
	case r.name == "":
		return nil, fmt.Errorf("no propagated object of kind %q is selected", text)
	case len(unplaced) > 0:
		return nil, withHint(fmt.Errorf("%s is not propagated", unplaced[0]),
			fmt.Sprintf("the label %s names the policy that places it", corev1alpha1.PropagationPolicyLabel))
	}
	hint := ""
	if near := nearest.To(strings.ToLower(text), names); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return nil, withHint(fmt.Errorf("object %q is not on the hub", text), hint)
}

// list reads the metadata of the objects of a type.
func (f *awaitedFinder) list(ctx context.Context, kind hubType, r *reference) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.kind.GroupVersion().WithKind(kind.kind.Kind + "List"))
	options := []client.ListOption{client.InNamespace(r.namespace), client.MatchingLabelsSelector{Selector: f.selector}}
	if err := f.client.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing %s on the hub: %w", kind.kind.Kind, err)
	}
	return list.Items, nil
}

// withReported adds objects that have reports. An object that does not exist on the hub any more may still have copies
// on members.
func (f *awaitedFinder) withReported(ctx context.Context, r *reference, found []awaited) ([]awaited, error) {
	if !f.selector.Empty() {
		return found, nil // The labels of deleted objects are not known.
	}
	objects, err := reported(ctx, f.client, r.namespace)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if r.means(o) && !slices.ContainsFunc(found, func(a awaited) bool { return a.key == keyOf(o) }) {
			found = append(found, awaited{key: keyOf(o), name: o.String()})
		}
	}
	return found, nil
}

func newAwaited(kind schema.GroupVersionKind, o *metav1.PartialObjectMetadata) awaited {
	named := &status.Object{Object: render.Object{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: o.Namespace, Name: o.Name}}
	return awaited{key: keyOf(named), name: named.String(), want: status.Want{UID: o.UID, Generation: o.Generation}}
}

// placed reports whether an object has a label that requests propagation.
func placed(o *metav1.PartialObjectMetadata) bool {
	return o.Labels[corev1alpha1.PropagationPolicyLabel] != "" || o.Labels[corev1alpha1.ClusterPropagationPolicyLabel] != ""
}

// waiter waits for objects.
type waiter struct {
	goal    status.Goal
	s       *streams
	awaited []awaited
	objects map[awaitedKey]*status.Object
	last    map[awaitedKey]string
}

func (w *waiter) add(more []awaited) {
	for _, a := range more {
		if !slices.ContainsFunc(w.awaited, func(b awaited) bool { return b.key == a.key }) {
			w.awaited = append(w.awaited, a)
		}
	}
}

// sources returns the sources of the reports to follow. If all objects are in one namespace, the user needs permissions
// only for this namespace.
func (w *waiter) sources() []status.Source {
	namespaces := map[string]bool{}
	for _, a := range w.awaited {
		namespaces[a.key.Namespace] = true
	}
	var sources []status.Source
	if namespaces[""] {
		sources = append(sources, status.ClusterPropagations())
		delete(namespaces, "")
	}
	switch len(namespaces) {
	case 0:
		return sources
	case 1:
		return append(sources, status.Propagations(slices.Collect(maps.Keys(namespaces))[0]))
	default:
		return append(sources, status.Propagations(""))
	}
}

// wait waits until all objects have reached the goal, or until timeout or the deadline of ctx. If ctx is canceled, it
// returns an error.
func (w *waiter) wait(ctx context.Context, c client.WithWatch, timeout time.Duration) error {
	if len(w.awaited) == 0 {
		fmt.Fprintln(w.s.err, "no copies are left")
		return nil
	}
	once := timeout == 0
	limited := ctx
	if !once {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	reached, hopeless := false, false
	err := status.Follow(limited, c, func(events []status.Event) (bool, error) {
		reached, hopeless = w.see(events)
		return reached || hopeless || once, nil
	}, w.sources()...)
	switch {
	case reached:
		return nil
	case hopeless:
		return errFound // The reason was already written.
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	w.explain(timeout)
	return errFound
}

// see records and writes the changes. all is true if all objects have reached the goal. hopeless is true if an object
// cannot reach it by itself.
func (w *waiter) see(events []status.Event) (all, hopeless bool) {
	for _, e := range events {
		o, ok := status.ObjectOf(e.Object)
		switch {
		case !ok:
		case e.Gone:
			delete(w.objects, keyOf(o))
		default:
			w.objects[keyOf(o)] = o
		}
	}
	if w.last == nil {
		w.last = map[awaitedKey]string{}
	}
	all = true
	for i := range w.awaited {
		a := &w.awaited[i]
		done, line := w.goal.Of(w.objects[a.key], a.want)
		if why := w.goal.Hopeless(w.objects[a.key], a.want); why != "" {
			hopeless, line = true, why
		}
		if line != w.last[a.key] {
			w.last[a.key] = line
			fmt.Fprintf(w.s.err, "%s: %s\n", a.name, line)
		}
		all = all && done
	}
	return all, hopeless
}

// explain prints the obstacles.
func (w *waiter) explain(timeout time.Duration) {
	after := ""
	if timeout > 0 {
		after = " after " + timeout.String()
	}
	for i := range w.awaited {
		a := &w.awaited[i]
		o := w.objects[a.key]
		done, line := w.goal.Of(o, a.want)
		if done {
			continue
		}
		fmt.Fprintf(w.s.out, "%s is not %s%s: %s\n", a.name, w.goal, after, line)
		for _, obstacle := range w.goal.Obstacles(o) {
			fmt.Fprintf(w.s.out, "  %s\n", obstacle)
		}
	}
}
