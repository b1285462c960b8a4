package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"refract.dev/conversion/crd"
	"refract.dev/conversion/structural"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/internal/output"
)

func newCRDCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "crd COMMAND",
		Short: "Check, convert and migrate custom resources",
		Long: `Check CustomResourceDefinitions, and see the effects of an API server on objects of
their kinds: pruning, defaults and rejections, and the result of a write in one version
and a read in another. Convert objects between versions by a ConversionPolicy, verify
that the policy loses no data, and write a first policy. All commands except migrate work
without a cluster, with the packages of the API server, so the results and their texts
are those of the server.

The files in the examples of the commands are in the folder examples.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, newCommand := range crdCommands {
		cmd.AddCommand(newCommand(s))
	}
	return cmd
}

// crdCommands are the constructors of the crd commands, in the order of the help.
var crdCommands = []func(*streams) *cobra.Command{
	newCRDCheckCommand,
	newCRDPruneCommand,
	newCRDDefaultCommand,
	newCRDValidateCommand,
	newCRDSimulateCommand,
	newCRDConvertCommand,
	newCRDVerifyCommand,
	newCRDSuggestCommand,
	newCRDMigrateCommand,
}

// crdInputs are the flags for the CustomResourceDefinitions and objects that a command reads.
type crdInputs struct {
	inputs      inputs
	definitions []string
}

func (in *crdInputs) addFlags(cmd *cobra.Command) {
	addDefinitionFlag(cmd, &in.definitions)
	in.inputs.addFileFlag(cmd)
}

// addDefinitionFlag adds the flag for definitions and its completion.
func addDefinitionFlag(cmd *cobra.Command, definitions *[]string) {
	cmd.Flags().StringArrayVar(definitions, "crd", nil,
		"`file` or folder with the CustomResourceDefinition of the objects, or - for stdin; may be repeated")
	must(cmd.MarkFlagFilename("crd", "yaml", "yml", "json"))
}

// read reads the objects, and finds the CustomResourceDefinition and version of each.
func (in *crdInputs) read(s *streams) ([]crd.Object, error) {
	definitions, err := in.compile(s)
	if err != nil {
		return nil, err
	}
	return customResources(in.inputs.files, definitions, s)
}

// compile reads the definitions.
func (in *crdInputs) compile(s *streams) ([]crd.Definition, error) {
	switch {
	case len(in.definitions) == 0:
		return nil, errNoDefinition()
	case !in.inputs.given():
		return nil, withHint(errors.New("there is nothing to read"), "-f names a file, a folder, or - for stdin")
	case slices.Contains(in.definitions, manifest.Stdin) && slices.Contains(in.inputs.files, manifest.Stdin):
		return nil, bothStdin("--crd and -f")
	}
	return compileDefinitions(in.definitions, s)
}

// errNoDefinition returns the error if the flag --crd is missing.
func errNoDefinition() error {
	return withHint(errors.New("no CustomResourceDefinition is given"), "--crd names a file, a folder, or - for stdin")
}

// compileDefinitions compiles the CustomResourceDefinitions in the files of --crd.
func compileDefinitions(paths []string, s *streams) ([]crd.Definition, error) {
	documents, err := definitionDocuments("--crd", paths, s)
	if err != nil {
		return nil, err
	}
	definitions, problems := crd.Compile(documents)
	return definitions, problemsAsError(problems)
}

// bothStdin returns the error for two flags that read stdin.
func bothStdin(flags string) error {
	return withHint(errors.New(flags+" cannot both read stdin"), "give one of them the name of a file")
}

// definitionDocuments reads the CustomResourceDefinitions in the files of a flag. It returns an error if it finds none.
func definitionDocuments(flag string, paths []string, s *streams) ([]manifest.Document, error) {
	documents, problems := manifest.Documents(paths, s.in)
	if len(problems) > 0 {
		return nil, problemsAsError(problems)
	}
	return definitionsAmong(documents, flag, paths)
}

// definitionsAmong returns those documents that are CustomResourceDefinitions. It returns an error if there are none.
// The flag and paths are for the error.
func definitionsAmong(documents []manifest.Document, flag string, paths []string) ([]manifest.Document, error) {
	found := slices.DeleteFunc(slices.Clone(documents), func(d manifest.Document) bool { return !crd.IsDefinition(&d) })
	if len(found) > 0 {
		return found, nil
	}
	err := fmt.Errorf("%s: there is no CustomResourceDefinition in %s", flag, pathsText(paths))
	if len(documents) == 0 {
		return nil, withHint(err, "the input is empty")
	}
	hint := whatIsThere(documents)
	if near := nearest.To(crd.Kind, kindsOf(documents)); near != "" {
		hint = fmt.Sprintf("%s: did you mean kind %s in apiextensions.k8s.io/v1?", near, crd.Kind)
	}
	return nil, withHint(err, hint)
}

// kindsOf returns the distinct kinds of documents.
func kindsOf(documents []manifest.Document) []string {
	var kinds []string
	for i := range documents {
		kind, _ := documents[i].Content["kind"].(string)
		if kind == "" {
			kind = "without a kind"
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// customResources reads the objects whose kinds the definitions define. Files without any objects are not an error.
func customResources(paths []string, definitions []crd.Definition, s *streams) ([]crd.Object, error) {
	documents, problems := manifest.Documents(paths, s.in)
	if len(problems) > 0 {
		return nil, problemsAsError(problems)
	}
	matched := crd.Match(documents, definitions, paths)
	switch {
	case len(matched.Problems) > 0:
		return nil, problemsAsError(matched.Problems)
	case len(documents) == 0:
		fmt.Fprintf(s.err, "note: no object is in %s\n", pathsText(paths))
	case len(matched.Objects) == 0:
		err := fmt.Errorf("no object is in %s", pathsText(paths))
		if len(matched.Foreign) > 0 {
			err = withHint(fmt.Errorf("no object of a defined kind is in %s", pathsText(paths)), whatIsThere(matched.Foreign))
		}
		return nil, err
	case len(matched.Foreign) > 0:
		fmt.Fprintf(s.err, "note: ignored %s without a definition: %s\n",
			output.Count(len(matched.Foreign), "document", "documents"), strings.Join(kindsOf(matched.Foreign), ", "))
	}
	return matched.Objects, nil
}

// pathsText lists paths for a message.
func pathsText(paths []string) string {
	names := slices.Clone(paths)
	for i := range names {
		if names[i] == manifest.Stdin {
			names[i] = "stdin"
		}
	}
	return strings.Join(names, ", ")
}

func whatIsThere(documents []manifest.Document) string {
	return "found " + strings.Join(kindsOf(documents), ", ")
}

// failOn is the value of --fail-on: the lowest severity that causes exit code 1.
type failOn string

func (o *failOn) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(o), "fail-on", string(structural.Warning), "minimum `severity` for exit code 1: "+strings.Join(severities, ", "))
	must(cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(severities, cobra.ShellCompDirectiveNoFileComp)))
}

// check returns an error for an unknown severity.
func (o *failOn) check() error {
	if !slices.Contains(severities, string(*o)) {
		return unknownSeverity(string(*o))
	}
	return nil
}

// judge returns the error with which a command ends after it has written its report.
func (o *failOn) judge(r *crd.Report) error {
	if r.Has(structural.Severity(*o)) {
		return errFound
	}
	return nil
}

// reportOutputs are the formats of findings.
var reportOutputs = formats[*crd.Report]{
	{"text", func(s *streams, r *crd.Report) error { return r.WriteText(s.out) }},
	{"json", func(s *streams, r *crd.Report) error { return r.WriteJSON(s.out) }},
	{"sarif", func(s *streams, r *crd.Report) error { return r.WriteSARIF(s.out) }},
}
