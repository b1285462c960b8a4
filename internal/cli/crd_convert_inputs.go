package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"refract.dev/conversion/convert"
	"refract.dev/conversion/crd"
	"refract.dev/conversion/structural"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
)

// policyInputs are the flags for the CustomResourceDefinitions and ConversionPolicies that a command reads.
type policyInputs struct {
	definitions []string
	policies    []string
}

func (in *policyInputs) addFlags(cmd *cobra.Command) {
	addDefinitionFlag(cmd, &in.definitions)
	cmd.Flags().StringArrayVar(&in.policies, "policy", nil,
		"`file` or folder with the ConversionPolicy of the CustomResourceDefinition, or - for stdin; may be repeated")
	must(cmd.MarkFlagFilename("policy", "yaml", "yml", "json"))
}

// completeVersion completes the versions of the definitions in the preceding flags.
func (in *policyInputs) completeVersion(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return versionsIn(in.definitions), cobra.ShellCompDirectiveNoFileComp
}

// versionsIn returns the versions of the definitions in the files, for completion.
func versionsIn(files []string) []cobra.Completion {
	files = slices.DeleteFunc(slices.Clone(files), func(name string) bool { return name == manifest.Stdin })
	documents, _ := manifest.Documents(files, nil) // The command itself reports problems.
	definitions, _ := crd.Compile(documents)
	var names []cobra.Completion
	for i := range definitions {
		for _, name := range crd.VersionNames(definitions[i].Definition) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// flagPaths has the files that a flag names.
type flagPaths struct {
	flag  string
	paths []string
}

// compiledPolicies are policies with their definitions.
type compiledPolicies struct {
	definitions []crd.Definition
	documents   []manifest.Document // The documents with policies.
	policies    []crd.Policy
	report      *crd.Report
}

// compile reads the definitions and policies. The argument others has other flags with files: at most one of all flags
// may read stdin. The report has the errors in the policies.
func (in *policyInputs) compile(s *streams, others ...flagPaths) (*compiledPolicies, error) {
	switch {
	case len(in.definitions) == 0:
		return nil, errNoDefinition()
	case len(in.policies) == 0:
		return nil, withHint(errors.New("no ConversionPolicy is given"),
			"--policy names a file, a folder, or - for stdin; refract crd suggest writes a first one")
	}
	if err := stdinOnce(append([]flagPaths{{"--crd", in.definitions}, {"--policy", in.policies}}, others...)...); err != nil {
		return nil, err
	}
	var c compiledPolicies
	var err error
	if c.definitions, err = compileDefinitions(in.definitions, s); err != nil {
		return nil, err
	}
	documents, problems := manifest.Documents(in.policies, s.in)
	if len(problems) > 0 {
		return nil, problemsAsError(problems)
	}
	for i := range documents {
		if crd.IsPolicy(&documents[i]) {
			c.documents = append(c.documents, documents[i])
		}
	}
	if len(c.documents) == 0 {
		err := fmt.Errorf("--policy: there is no %s in %s", crd.PolicyKind, pathsText(in.policies))
		switch near := nearest.To(crd.PolicyKind, kindsOf(documents)); {
		case near != "":
			err = withHint(err, fmt.Sprintf("%s: did you mean kind %s in refract.dev/v1alpha1?", near, crd.PolicyKind))
		case len(documents) > 0:
			err = withHint(err, whatIsThere(documents))
		}
		return nil, err
	}
	c.policies, c.report, problems = crd.CompilePolicies(c.documents, c.definitions)
	return &c, problemsAsError(problems)
}

// stdinOnce returns an error if two flags read stdin.
func stdinOnce(flags ...flagPaths) error {
	first := ""
	for _, f := range flags {
		switch {
		case !slices.Contains(f.paths, manifest.Stdin):
		case first != "":
			return bothStdin(first + " and " + f.flag)
		default:
			first = f.flag
		}
	}
	return nil
}

// engine returns the conversion engine for the policies. If a policy has errors, engine writes them to stderr. It
// writes no warnings, because they are for the author of a policy.
func (c *compiledPolicies) engine(s *streams) (*convert.Engine, error) {
	if c.report.Has(structural.Error) {
		if err := c.report.Errors().WriteText(s.err); err != nil {
			return nil, err
		}
		return nil, withHint(errors.New("the policy does not compile"), "its errors are listed above")
	}
	return crd.Engine(c.policies)
}

// covers reports whether a policy converts the objects of a definition.
func (c *compiledPolicies) covers(d *crd.Definition) bool {
	return slices.ContainsFunc(c.policies, func(p crd.Policy) bool { return p.Definition.Name() == d.Name() })
}
