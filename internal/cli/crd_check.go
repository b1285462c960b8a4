package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"refract.dev/conversion/crd"
	"refract.dev/fleet/offline/manifest"
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
		Short: "Check CustomResourceDefinitions like an API server",
		Long: `Find mistakes in CustomResourceDefinitions: errors of an API server, including all
violations of the rules of structural schemas; unknown fields of the manifest; a
caBundle with which no API server would establish the definition; and probable mistakes
that an API server accepts, such as a minimum above the maximum. The texts of errors are
the API server's, and so are their paths, in the unchanged manifest.

With --old a definition is checked as an update of the definition with the same name
there: an API server tolerates some earlier errors, and rejects the removal of a version
that objects are stored in. The command also compares each version with its previous
state, and warns about changes that break objects or clients but that an API server
accepts: a removed field, whose values are lost; a narrower type, enum or bound; a newly
required field; a version that is no longer served. refract crd validate shows whether
the existing objects are valid. A definition that is not in --old is checked as new.

Other documents are ignored. But if a ConversionPolicy among the files converts the
objects, the effects of strategy None on them are no finding. The exit code is 1 for
findings, with --fail-on error only for errors, and 2 if a file is unreadable or contains
no CustomResourceDefinition.

With -o json there is one object, {"findings": [{"path", "message", "severity",
"rule"}]}, sorted by path; findings of several definitions also have "name" and "file",
in the order of the input.`,
		Example: `  refract crd check -f evolution/at/crd.yaml
  refract crd check -f evolution/pizza/4-one-version.yaml --old evolution/pizza/3-stored-in-v1beta1.yaml
  refract crd check -f evolution/schemas/non-structural.yaml -o json
  refract crd check -f evolution/ --fail-on error -o sarif > refract.sarif`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run(s) },
	}
	o.inputs.addFileFlag(cmd)
	cmd.Flags().StringArrayVar(&o.old, "old", nil, "`file` or folder with the previous CustomResourceDefinition; may be repeated")
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

// noteNew writes a note for each definition that has no old version.
func noteNew(s *streams, documents, old []manifest.Document) {
	for i := range documents {
		name := crd.NameOf(&documents[i])
		if !slices.ContainsFunc(old, func(d manifest.Document) bool { return crd.NameOf(&d) == name }) {
			fmt.Fprintf(s.err, "note: %s: CustomResourceDefinition %s is not in --old, and is checked as new\n", documents[i].Place, name)
		}
	}
}
