package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"refract.dev/internal/offline/crd"
	"refract.dev/internal/offline/manifest"
)

// crdCheckOptions are the flags of crd check.
type crdCheckOptions struct {
	inputs inputs
	old    []string
	output string
	failOn failOn
}

func newCRDCheckCommand(s *streams) *cobra.Command {
	o := &crdCheckOptions{}
	cmd := &cobra.Command{
		Use:   "check -f CRD",
		Short: "Find what an API server would say to a CustomResourceDefinition",
		Long: `Find what is wrong with CustomResourceDefinitions: what an API server refuses, every
violation of the rules of structural schemas among it; fields of the manifest that do
not exist; a caBundle with which no API server would establish it; and what an API
server takes and is hardly meant, such as a minimum above the maximum. The texts of
errors are the API server's, and so are their paths, in the manifest as it stands.

With --old a definition is judged as an update of the one by the same name there, by
which an API server tolerates some of what was so before, and refuses to remove a
version that objects are stored in. Beside that each version is compared with itself
before, and what objects or clients do not survive is a warning, as an API server takes
it: a field that is removed, whose values are lost; a type, an enum or a bound that
takes less; a field that is required now; a version that is no longer served. Whether
the objects that there are fit is what refract crd validate says. A definition that is
not in --old is judged as new.

What is no CustomResourceDefinition is passed over. But what strategy None does to
objects is no finding if a ConversionPolicy among the files converts them. The exit code
is 1 if something was found, with --fail-on error if an error was, and 2 if a file cannot
be read or holds no CustomResourceDefinition.

With -o json there is one object, {"findings": [{"path", "message", "severity",
"rule"}]}, sorted by path; findings of several definitions have "name" and "file",
too, and come in the order of the input.`,
		Example: `  refract crd check -f evolution/at/crd.yaml
  refract crd check -f evolution/pizza/4-one-version.yaml --old evolution/pizza/3-stored-in-v1beta1.yaml
  refract crd check -f evolution/schemas/non-structural.yaml -o json
  refract crd check -f evolution/ --fail-on error -o sarif > refract.sarif`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run(s) },
	}
	o.inputs.addFileFlag(cmd)
	cmd.Flags().StringArrayVar(&o.old, "old", nil, "`file` or folder with the CustomResourceDefinition as it was; may be repeated")
	must(cmd.MarkFlagFilename("old", "yaml", "yml", "json"))
	o.failOn.addFlag(cmd)
	reportOutputs.addFlag(cmd, &o.output)
	return cmd
}

func (o *crdCheckOptions) run(s *streams) error {
	write, err := reportOutputs.find(o.output)
	switch {
	case err != nil:
		return err
	case o.failOn.check() != nil:
		return o.failOn.check()
	case !o.inputs.given():
		return withHint(errors.New("there is nothing to read"), "-f names a file, a folder, or - for stdin")
	case slices.Contains(o.inputs.files, manifest.Stdin) && slices.Contains(o.old, manifest.Stdin):
		return bothStdin("-f and --old")
	}
	documents, problems := manifest.Documents(o.inputs.files, s.in)
	if len(problems) > 0 {
		return problemsAsError(problems)
	}
	definitions, err := definitionsAmong(documents, "-f", o.inputs.files)
	if err != nil {
		return err
	}
	var old []manifest.Document
	if len(o.old) > 0 {
		if old, err = definitionDocuments("--old", o.old, s); err != nil {
			return err
		}
		noteNew(s, definitions, old)
	}
	report, wrong := crd.Check(documents, old)
	if err := write(s, report); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return problemsAsError(wrong)
	}
	return o.failOn.judge(report)
}

// noteNew tells which definitions have no old one.
func noteNew(s *streams, documents, old []manifest.Document) {
	for i := range documents {
		name := crd.NameOf(&documents[i])
		if !slices.ContainsFunc(old, func(d manifest.Document) bool { return crd.NameOf(&d) == name }) {
			fmt.Fprintf(s.err, "note: %s: CustomResourceDefinition %s is not in --old, and judged as new\n", documents[i].Place, name)
		}
	}
}
