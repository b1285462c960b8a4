package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"refract.dev/conversion/crd"
	"refract.dev/conversion/structural"
	"refract.dev/internal/output"
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
		Short: "Write a first ConversionPolicy from the differences between schemas",
		Long: `Write a first ConversionPolicy for a CustomResourceDefinition to stdout, from the
differences between the schemas of its versions: added and removed values, and values
that seem to have another name, place, type or unit, or to be in a list.

A schema does not contain the meaning of a value. So each entry has a comment with the
open decision, and with the change for a wrong guess. A value without a counterpart is
kept for its own version, and never dropped. If the policy does not compile yet, comments
mark the places, and a note goes to stderr.

Then verify with refract crd verify that the policy loses no data. The exit code is 2 for
no definition, several definitions, or a definition with a single version.`,
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
		return withHint(fmt.Errorf("a policy is for one definition, but %s has %d", strings.Join(o.definitions, ", "), len(definitions)),
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
