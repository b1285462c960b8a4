package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"refract.dev/fleet/offline/explain"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/placement"
	"refract.dev/internal/ui"
	"refract.dev/tree"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	inputs   inputs
	clusters []string
	path     string
	output   string

	namespace string
}

func newExplainCommand(s *streams) *cobra.Command {
	o := &explainOptions{}
	cmd := &cobra.Command{
		Use:   "explain {KIND/NAME | KIND NAME} -f FILE",
		Short: "Show the policy and rule behind each difference",
		Long: `Explain the content of an object on each cluster: the policy that places it there, or
the reason that none does; the override rules that apply, and the reasons that others
do not; and for every field that a policy changes, the chain of values from the
object on the hub to the copy on the cluster, each with its policy, rule and item.
Clusters with the same rules are explained together.

The object is KIND/NAME, KIND NAME or KIND/NAMESPACE/NAME. --path limits the
explanation to one field and its subfields. A chain follows its value: if elements of
a list move because others are inserted or removed before them, the chain is that of
the same element, and --path is the position in the copy on the cluster.

Marks: ✔ took effect, ✗ failed, ~ had no effect or is hidden by a later change
(shadowed), · is not for these clusters. In a chain, + adds, → replaces and
- removes. Values of Secrets are not shown.

If a rule fails on a shown cluster, the exit code is 1.`,
		Example: `  refract explain deployment/my-nginx -f shop/ -f clusters.yaml
  refract explain deployment/shop/my-nginx -f shop/ -f clusters.yaml --member member-1 --path /spec/replicas
  refract explain deployment/catalog -f shop/ -f clusters.yaml --member member-3 -o json
  refract explain deployment web -n shop --hub --member eu-1`,
		Args: oneObject,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), s, strings.Join(args, "/"))
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 1 || (len(args) == 1 && strings.Contains(args[0], "/")) {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeInput(&o.inputs)(cmd, args, typed)
		},
	}
	f := cmd.Flags()
	o.inputs.addFlags(cmd)
	f.StringArrayVar(&o.clusters, "member", nil, "`name` of a cluster to explain for, instead of all; may be repeated")
	f.StringVarP(&o.namespace, "namespace", "n", "", "`name` of the object's namespace")
	f.StringVar(&o.path, "path", "", "JSON `pointer` to the only field to explain, such as /spec/replicas")
	explainOutputs.addFlag(cmd, &o.output)
	must(cmd.RegisterFlagCompletionFunc("member", completeCluster(&o.inputs, &o.clusters)))
	must(cmd.RegisterFlagCompletionFunc("path", cobra.NoFileCompletions))
	must(cmd.RegisterFlagCompletionFunc("namespace", completeInputNamespaces(&o.inputs)))
	cmd.AddCommand(newExplainPodCommand(s))
	return cmd
}

// explainOutputs are the formats of explain. The text output contains errors and warnings. Programs read the JSON
// output, so errors and warnings are also written to stderr for the user.
var explainOutputs = formats[*explained]{
	{"text", func(s *streams, x *explained) error { return explain.WriteText(s.out, x.Explanation) }},
	{"json", func(s *streams, x *explained) error {
		reportFindings(s, x.Errors, x.Warnings)
		return explain.WriteJSON(s.out, x.Explanation)
	}},
	{"html", func(s *streams, x *explained) error { return ui.WriteExplain(s.out, x.outcome, x.Explanation) }},
}

// explained is an explanation, together with the outcome for the object.
type explained struct {
	*explain.Explanation

	outcome *render.Outcome
}

// oneObject returns an error unless the arguments name exactly one object.
func oneObject(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return withHint(fmt.Errorf("%s: name the object", cmd.CommandPath()), "as KIND/NAME or KIND/NAMESPACE/NAME")
	case len(args) == 1, len(args) == 2 && !strings.Contains(args[0]+args[1], "/"):
		return nil
	default:
		return fmt.Errorf("%s takes one object, got %q", cmd.CommandPath(), strings.Join(args, " "))
	}
}

func (o *explainOptions) run(ctx context.Context, s *streams, object string) error {
	write, err := explainOutputs.find(o.output)
	if err != nil {
		return err
	}
	set, err := o.inputs.read(ctx, s)
	if err != nil {
		return err
	}
	found, err := findObject(set, object, o.namespace)
	if err != nil {
		return err
	}
	at, err := parsePath(o.path, found)
	if err != nil {
		return err
	}
	evaluation, err := render.Evaluate(set, render.Options{
		Clusters: o.clusters,
		Select: func(m *manifest.Object) bool {
			return m == found || placement.IsAutoscaler(m.Identity().GroupKind) && m.Content.GetNamespace() == found.Content.GetNamespace()
		},
	})
	if err != nil {
		return explainClusters(err)
	}
	evaluation.CheckTypes(set.Objects)
	outcome := evaluation.Find(found.Identity())
	explanation, err := explain.Explain(evaluation, outcome, at)
	var unknown *explain.UnknownPathError
	switch {
	case errors.As(err, &unknown):
		return withHint(fmt.Errorf("--path: %w", err), unknown.Hint)
	case err != nil:
		return err
	}
	if err := write(s, &explained{explanation, outcome}); err != nil {
		return err
	}
	if len(explanation.Errors) > 0 {
		return errFound
	}
	return nil
}

// parsePath parses the flag --path, which is a JSON pointer. If the user has given a path with dots, the error suggests
// the pointer, provided that the object has this field.
func parsePath(path string, object *manifest.Object) (tree.Pointer, error) {
	at, err := tree.Parse(path)
	if err == nil {
		return at, nil
	}
	hint := ""
	dotted := "/" + strings.ReplaceAll(strings.Trim(path, "./"), ".", "/")
	if p, err := tree.Parse(dotted); err == nil {
		if _, err := tree.Lookup(object.Content.Object, p); err == nil {
			hint = fmt.Sprintf("did you mean %s?", dotted)
		}
	}
	return at, withHint(fmt.Errorf("--path: %w", err), hint)
}
