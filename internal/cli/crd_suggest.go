package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"refract.dev/internal/offline/crd"
	"refract.dev/internal/output"
	"refract.dev/structural"
)

// crdSuggestOptions are the flags of crd suggest.
type crdSuggestOptions struct {
	definitions []string
	hub         string
}

func newCRDSuggestCommand(s *streams) *cobra.Command {
	o := &crdSuggestOptions{}
	cmd := &cobra.Command{
		Use:   "suggest --crd CRD",
		Short: "Write a first ConversionPolicy from what differs between schemas",
		Long: `Write a first ConversionPolicy for a CustomResourceDefinition to stdout, from what
differs between the schemas of its versions: values that were added and removed, that
seem to have another name or place, that are of another type, count in another unit or
stand in a list.

A schema does not say what a value means. So each entry has a comment that says what
there is to decide, and what to write if the guess is wrong. A value for which nothing
is found is kept for its own version, and never just dropped. Where the policy does not
compile yet a comment says so, and a note on stderr.

Then refract crd verify proves that it loses nothing. The exit code is 2 if there is no
definition, several, or one with a single version.`,
		Example: `  refract crd suggest --crd evolution/pizza/2-two-versions.yaml
  refract crd suggest --crd conversion/rename/crd.yaml --hub v1 > policy.yaml`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run(s) },
	}
	addDefinitionFlag(cmd, &o.definitions)
	cmd.Flags().StringVar(&o.hub, "hub", "", "`version` that all conversions go through (default: the newest stable one)")
	must(cmd.RegisterFlagCompletionFunc("hub", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return versionsIn(o.definitions), cobra.ShellCompDirectiveNoFileComp
	}))
	return cmd
}

func (o *crdSuggestOptions) run(s *streams) error {
	if len(o.definitions) == 0 {
		return errNoDefinition()
	}
	definitions, err := compileDefinitions(o.definitions, s)
	if err != nil {
		return err
	}
	if len(definitions) > 1 {
		return withHint(fmt.Errorf("a policy is for one definition, and %s has %d", strings.Join(o.definitions, ", "), len(definitions)),
			fmt.Sprintf("the first two are %s (%s) and %s (%s); give a file with one",
				definitions[0].Name(), definitions[0].Document.Place, definitions[1].Name(), definitions[1].Document.Place))
	}
	if o.hub != "" {
		if err := hasVersion("--hub", definitions[0].Definition, o.hub); err != nil {
			return err
		}
	}
	suggestion, err := crd.Suggest(&definitions[0], o.hub)
	if err != nil {
		return withHint(fmt.Errorf("%s: %w", definitions[0].Name(), err), "add the other version to the definition first")
	}
	if err := suggestion.WriteYAML(s.out); err != nil {
		return err
	}
	if errs := count(suggestion.Findings, structural.Error); errs > 0 {
		fmt.Fprintf(s.err, "note: the policy does not compile yet: %s in its comments\n", output.Count(errs, "thing to do is", "things to do are"))
	}
	return nil
}

// count counts the findings of a severity.
func count(findings []structural.Finding, severity structural.Severity) int {
	n := 0
	for _, f := range findings {
		if f.Severity == severity {
			n++
		}
	}
	return n
}
