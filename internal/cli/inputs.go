package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/hub"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/offline/render"
	"refract.dev/tree"
)

// inputs are the flags for the input of a command.
type inputs struct {
	files   []string
	hub     bool         // Whether the user has requested to read a hub.
	cluster clusterFlags // The hub. If any of these flags is set, the hub is read.
}

// addFlags adds the flags for files and for a hub, and their completion.
func (in *inputs) addFlags(cmd *cobra.Command) {
	in.addFileFlag(cmd)
	cmd.Flags().BoolVar(&in.hub, "hub", false,
		"read policies, clusters and objects from a hub, as with any flag that selects one; the manifests of -f overlay them")
	in.cluster.addClusterFlags(cmd, "hub")
}

// addFileFlag adds only the flag for files and its completion.
func (in *inputs) addFileFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&in.files, "filename", "f", nil, "`file` or folder to read, or - for stdin; may be repeated")
	must(cmd.MarkFlagFilename("filename", "yaml", "yml", "json"))
}

// given reports whether the flags name any input.
func (in *inputs) given() bool { return len(in.files) > 0 || in.live() }

// live reports whether a hub is read.
func (in *inputs) live() bool { return in.hub || in.cluster.given() }

// read reads the input. It returns all problems with files as one error. Problems with the content of a hub are only
// warnings.
func (in *inputs) read(ctx context.Context, s *streams) (*manifest.Set, error) {
	r, err := in.open(ctx, s)
	if err != nil {
		return nil, err
	}
	r.warn(s, r.set)
	return r.set, problemsAsError(r.problems)
}

// input is the input of a command. Manifests from further files can be laid over it.
type input struct {
	set *manifest.Set
	// problems are the problems with files. stored are the problems with objects of the hub.
	problems, stored []*manifest.Problem
	// scope returns whether a kind of the hub is namespaced, and whether the hub has the kind. It is nil without a hub.
	scope func(schema.GroupKind) (namespaced, known bool)
}

// open is like read, for callers that handle problems themselves. It returns an error only if it cannot read the input
// at all.
func (in *inputs) open(ctx context.Context, s *streams) (*input, error) {
	if !in.given() {
		return nil, withHint(errors.New("there is nothing to read"),
			"-f names a file, a folder, or - for stdin; --hub reads the cluster of kubectl")
	}
	r := &input{set: &manifest.Set{}}
	if in.live() {
		contents, err := hubContents(ctx, &in.cluster)
		if err != nil {
			return nil, err
		}
		r.scope = contents.Scope
		r.set, r.stored = manifest.FromObjects(liveFile, contents.Objects, contents.Scope)
	}
	r.set, r.problems = r.with(in.files, s)
	return r, nil
}

// with returns the input after the manifests in further files replace or complete it. It also returns the problems with
// these files.
func (r *input) with(files []string, s *streams) (*manifest.Set, []*manifest.Problem) {
	over, problems := manifest.ReadFor(r.scope, files, s.in)
	return r.set.Overlay(over), problems
}

// warn writes warnings: the notes of the set, and the problems with objects of the hub. It omits objects that are
// replaced in the set.
func (r *input) warn(s *streams, set *manifest.Set) {
	for _, n := range set.Notes {
		fmt.Fprintf(s.err, "warning: %s\n", n)
	}
	for _, p := range r.left(set) {
		fmt.Fprintf(s.err, "warning: %s\n", p)
	}
}

// left returns the problems with objects of the hub that are not replaced in the set.
func (r *input) left(set *manifest.Set) []*manifest.Problem {
	return slices.DeleteFunc(slices.Clone(r.stored), func(p *manifest.Problem) bool {
		return slices.ContainsFunc(set.Manifests, func(o manifest.Object) bool {
			return o.Place.File != liveFile && o.Content.GetKind() == p.Kind && o.Content.GetName() == p.Name && o.Content.GetNamespace() == p.Namespace
		})
	})
}

// liveFile stands for the name of the file if an object is from a hub.
const liveFile = "hub"

// hubContents reads all objects that matter to Refract from the hub that the flags select.
func hubContents(ctx context.Context, c *clusterFlags) (*hub.Contents, error) {
	cfg, err := c.restConfig()
	if err != nil {
		return nil, err
	}
	if err := hub.Reachable(ctx, cfg); err != nil {
		return nil, err
	}
	return hub.Read(ctx, cfg)
}

// problemsAsError returns one error for all problems, with their hints; nil if there are none.
func problemsAsError(problems []*manifest.Problem) error {
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = withHint(p, p.Hint)
	}
	return errors.Join(errs...)
}

// patience is how long completion waits for a hub.
const patience = time.Second

// peek reads the input for completion, with a short timeout. It ignores problems, because the command itself will
// report them.
func (in *inputs) peek() *manifest.Set {
	files := slices.DeleteFunc(slices.Clone(in.files), func(name string) bool { return name == manifest.Stdin })
	set, _ := manifest.Read(files, nil)
	if !in.live() {
		return set
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	contents, err := hubContents(ctx, &in.cluster)
	if err != nil {
		return set
	}
	live, _ := manifest.FromObjects(liveFile, contents.Objects, contents.Scope)
	return live.Overlay(set)
}

// selection are the arguments and flags that select objects of the input.
type selection struct {
	namespace string
	selector  string
	objects   []string // KIND/NAME, or kinds followed by names.
	policies  []string
}

func (sel *selection) addFlags(cmd *cobra.Command, in *inputs) {
	f := cmd.Flags()
	f.StringVarP(&sel.namespace, "namespace", "n", "", "`name` of the only namespace to include")
	f.StringVarP(&sel.selector, "selector", "l", "", "label `selector` of the objects to include")
	f.StringArrayVar(&sel.policies, "policy", nil, "`KIND/NAME` of a policy, to include only objects that name it; may be repeated")
	must(cmd.RegisterFlagCompletionFunc("policy", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var names []string
		for _, p := range in.peek().Policies() {
			names = append(names, policyName(p))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}))
	cmd.Args = objectsAsked
	cmd.ValidArgsFunction = completeInput(in)
	must(cmd.RegisterFlagCompletionFunc("namespace", completeInputNamespaces(in)))
}

// given reports whether the selection may exclude objects.
func (sel *selection) given() bool {
	return sel.namespace != "" || sel.selector != "" || len(sel.objects)+len(sel.policies) > 0
}

// filter returns a function that selects objects; nil if all are selected. If an object does not exist that the user
// has named, filter returns an error.
func (sel *selection) filter(set *manifest.Set) (func(*manifest.Object) bool, error) {
	if !sel.given() {
		return nil, nil //nolint:nilnil // Documented.
	}
	selector, err := labels.Parse(sel.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	texts, asked, err := parseAsked(sel.objects)
	if err != nil {
		return nil, err
	}
	for i, text := range texts {
		if !slices.ContainsFunc(set.Objects, func(o manifest.Object) bool { return asked[i].matches(&o) }) {
			return nil, notFound(text, set)
		}
	}
	named, err := sel.namedPolicies(set)
	if err != nil {
		return nil, err
	}
	chosen := func(o *manifest.Object) bool {
		return (sel.namespace == "" || o.Content.GetNamespace() == sel.namespace) &&
			selector.Matches(labels.Set(o.Content.GetLabels())) &&
			(len(asked) == 0 || slices.ContainsFunc(asked, func(r reference) bool { return r.matches(o) })) &&
			(named == nil || slices.ContainsFunc(o.Policies(), func(p tree.Policy) bool { return named[p] }))
	}
	if !slices.ContainsFunc(set.Objects, func(o manifest.Object) bool { return chosen(&o) }) {
		return nil, sel.nothing(set)
	}
	return chosen, nil
}

// nothing returns the error for a selection without any object. Without this error, the empty output would look like a
// success.
func (sel *selection) nothing(set *manifest.Set) error {
	hint := ""
	if known := namespaces(set); sel.namespace != "" && !slices.Contains(known, sel.namespace) {
		hint = "its namespaces are " + render.Few(known)
		if near := nearest.To(sel.namespace, known); near != "" {
			hint = fmt.Sprintf("did you mean namespace %s?", near)
		}
	}
	return withHint(errors.New("no object of the input matches these flags"), hint)
}

// namespaces returns the namespaces of objects, sorted.
func namespaces(set *manifest.Set) []string {
	var names []string
	for i := range set.Objects {
		names = append(names, set.Objects[i].Content.GetNamespace())
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" })
}

// namedPolicies returns the policies that the user has named; nil if there are none.
func (sel *selection) namedPolicies(set *manifest.Set) (map[tree.Policy]bool, error) {
	if len(sel.policies) == 0 {
		return nil, nil //nolint:nilnil // Documented.
	}
	named := map[tree.Policy]bool{}
	known := set.Policies()
	for _, text := range sel.policies {
		r, err := parseReference(text)
		if err != nil {
			return nil, fmt.Errorf("--policy: %w", err)
		}
		found := false
		var names []string
		for _, p := range known {
			names = append(names, policyName(p))
			if kind := strings.ToLower(p.Kind); r.matchesKind(kind) && r.name == p.Name && (r.namespace == "" || r.namespace == p.Namespace) {
				named[p], found = true, true
			}
		}
		if !found {
			hint := ""
			if near := nearest.To(strings.ToLower(text), names); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			return nil, withHint(fmt.Errorf("policy %q is not in the input", text), hint)
		}
	}
	return named, nil
}

// policyName returns the name of a policy in the form of an argument.
func policyName(p tree.Policy) string {
	if p.Namespace == "" {
		return strings.ToLower(p.Kind) + "/" + p.Name
	}
	return strings.ToLower(p.Kind) + "/" + p.Namespace + "/" + p.Name
}

// objectsAsked returns an error if an argument does not name an object. If it is the name of a file, the error suggests
// the flag for files.
func objectsAsked(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		if strings.HasPrefix(arg, ".") || strings.HasPrefix(arg, "/") || strings.HasSuffix(arg, "/") ||
			slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(arg)) {
			return withHint(fmt.Errorf("%s takes names of objects, got %q", cmd.CommandPath(), arg), fmt.Sprintf("did you mean -f %s?", arg))
		}
	}
	_, _, err := parseAsked(args)
	return err
}

// completeInput completes the objects in the input that the user has already given: as KIND/NAME, or as names behind a
// kind.
func completeInput(in *inputs) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return namesAfter(args, objectNames(in.peek())), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeInputNamespaces completes the namespaces in the input that the user has already given.
func completeInputNamespaces(in *inputs) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return namespaces(in.peek()), cobra.ShellCompDirectiveNoFileComp
	}
}

// namesAfter returns the completions behind the arguments in typed. If the first argument is a kind, these are the
// names of its objects. Otherwise they are the objects, as KIND/NAME or KIND/NAMESPACE/NAME, without those that the
// user has already given.
func namesAfter(typed, names []string) []string {
	if len(typed) == 0 || strings.Contains(typed[0], "/") {
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(typed, name) })
	}
	var after []string
	for kind := range strings.SplitSeq(typed[0], ",") {
		r, err := parseKindOrReference(kind)
		if err != nil {
			return nil
		}
		for _, name := range names {
			parts := strings.Split(name, "/")
			of, group, grouped := strings.Cut(parts[0], ".")
			if last := parts[len(parts)-1]; r.matchesKind(of) && (r.anyGroup || !grouped || r.group == group) &&
				!slices.Contains(typed[1:], last) && !slices.Contains(after, last) {
				after = append(after, last)
			}
		}
	}
	return after
}

// reference is an argument that names an object or policy: KIND[.GROUP]/NAME or KIND[.GROUP]/NAMESPACE/NAME. If KIND
// ends with a dot, the kind belongs to the core group.
type reference struct {
	kind, group     string // In lower case.
	anyGroup        bool
	namespace, name string // An empty namespace matches any namespace, and an empty name any name.
}

func parseReference(text string) (reference, error) {
	parts := strings.Split(strings.Replace(text, " ", "/", 1), "/")
	var r reference
	switch {
	case slices.Contains(parts, ""):
		return r, fmt.Errorf("%q is not KIND/NAME or KIND/NAMESPACE/NAME", text)
	case len(parts) == 2:
		r.name = parts[1]
	case len(parts) == 3:
		r.namespace, r.name = parts[1], parts[2]
	default:
		return r, fmt.Errorf("%q is not KIND/NAME or KIND/NAMESPACE/NAME", text)
	}
	kind, group, grouped := strings.Cut(strings.ToLower(parts[0]), ".")
	r.kind, r.group, r.anyGroup = kind, group, !grouped
	return r, nil
}

// matches reports whether r refers to the object.
func (r *reference) matches(o *manifest.Object) bool {
	gvk := o.Content.GroupVersionKind()
	return r.matchesKind(strings.ToLower(gvk.Kind)) &&
		(r.anyGroup || r.group == gvk.Group) &&
		(r.namespace == "" || r.namespace == o.Content.GetNamespace()) &&
		(r.name == "" || r.name == o.Content.GetName())
}

// shortNames has kubectl's short names of policies and of kinds that are often propagated.
var shortNames = map[string]string{
	"cj": "cronjob", "cm": "configmap", "crd": "customresourcedefinition", "deploy": "deployment", "ds": "daemonset",
	"hpa": "horizontalpodautoscaler", "ing": "ingress", "limits": "limitrange", "netpol": "networkpolicy", "ns": "namespace",
	"pdb": "poddisruptionbudget", "po": "pod", "pv": "persistentvolume", "pvc": "persistentvolumeclaim", "quota": "resourcequota",
	"rs": "replicaset", "sa": "serviceaccount", "sc": "storageclass", "sts": "statefulset", "svc": "service",
	"sip": "serviceinjectionpolicy",
	"op":  "overridepolicy", "cop": "clusteroverridepolicy", "pp": "propagationpolicy", "cpp": "clusterpropagationpolicy",
}

// matchesKind reports whether the kind in r is the given kind. r may have the name of the kind, a short name of
// kubectl, or a regular plural.
func (r *reference) matchesKind(kind string) bool {
	if shortNames[r.kind] == kind {
		return true
	}
	plurals := []string{kind, kind + "s", kind + "es"}
	if stem, ok := strings.CutSuffix(kind, "y"); ok {
		plurals = append(plurals, stem+"ies")
	}
	return slices.Contains(plurals, r.kind)
}

// nameOf returns the name of an object in the form of an argument, without the group of its kind.
func nameOf(o *manifest.Object) string { return joinName(strings.ToLower(o.Content.GetKind()), o) }

// fullNameOf is like nameOf, but includes the group of the kind.
func fullNameOf(o *manifest.Object) string {
	gvk := o.Content.GroupVersionKind()
	return joinName(strings.ToLower(gvk.Kind)+"."+gvk.Group, o)
}

func joinName(kind string, o *manifest.Object) string {
	if o.Content.GetNamespace() == "" {
		return kind + "/" + o.Content.GetName()
	}
	return kind + "/" + o.Content.GetNamespace() + "/" + o.Content.GetName()
}

// objectNames returns the names of all objects in the form of arguments. It adds the group of the kind if the name
// would be ambiguous without it.
func objectNames(set *manifest.Set) []string {
	count := map[string]int{}
	for i := range set.Objects {
		count[nameOf(&set.Objects[i])]++
	}
	names := make([]string, len(set.Objects))
	for i := range set.Objects {
		if names[i] = nameOf(&set.Objects[i]); count[names[i]] > 1 {
			names[i] = fullNameOf(&set.Objects[i])
		}
	}
	return names
}

// findObject returns the object in the set that text names. It returns an error unless exactly one object matches.
func findObject(set *manifest.Set, text, namespace string) (*manifest.Object, error) {
	r, err := parseReference(text)
	if err != nil {
		return nil, err
	}
	if namespace != "" && r.namespace == "" {
		r.namespace = namespace
	}
	var found []*manifest.Object
	for i := range set.Objects {
		if r.matches(&set.Objects[i]) {
			found = append(found, &set.Objects[i])
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, notFound(text, set)
	default:
		return nil, withHint(fmt.Errorf("%q is the name of %d objects of the input", text, len(found)),
			fmt.Sprintf("did you mean %s or %s?", fullNameOf(found[0]), fullNameOf(found[1])))
	}
}

// notFound returns the error for an object that the set does not have. Its hint suggests a similar name. The user may
// have left out the kind or the namespace.
func notFound(text string, set *manifest.Set) error {
	names := map[string]string{}
	for i := range set.Objects {
		o := &set.Objects[i]
		whole := nameOf(o)
		for _, short := range []string{o.Content.GetName(), strings.ToLower(o.Content.GetKind()) + "/" + o.Content.GetName(), whole} {
			names[short] = whole
		}
	}
	hint := ""
	if near := nearest.To(strings.ToLower(text), slices.Sorted(maps.Keys(names))); near != "" {
		hint = fmt.Sprintf("did you mean %s?", names[near])
	}
	return withHint(fmt.Errorf("object %q is not in the input", text), hint)
}

// completeCluster completes the names of clusters in the input that the user has already given.
func completeCluster(in *inputs, given *[]string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var names []string
		for _, c := range in.peek().Clusters {
			if !slices.Contains(*given, c.Cluster.Name) {
				names = append(names, c.Cluster.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
