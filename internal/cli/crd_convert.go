package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"refract.dev/conversion/convert"
	"refract.dev/conversion/crd"
	"refract.dev/conversion/structural"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
)

// crdConvertOptions are the flags of crd convert.
type crdConvertOptions struct {
	policies policyInputs
	inputs   inputs
	to       string
	review   bool
	output   string
}

func newCRDConvertCommand(s *streams) *cobra.Command {
	o := &crdConvertOptions{}
	cmd := &cobra.Command{
		Use:   "convert --crd CRD --policy POLICY --to VERSION -f OBJECTS",
		Short: "Convert objects between versions by a ConversionPolicy",
		Long: `Convert objects to a version of their kinds by ConversionPolicies, with the engine of the
conversion webhook. An object that is already in the version stays unchanged. Values that
the other version cannot hold are kept in the annotation refract.dev/complement, and are
restored when the object is converted back. An object without a name is converted as a
part of an object, as for server-side apply, and no values are kept.

The converted objects go to stdout, as YAML for kubectl apply -f - or, with -o json,
as a List. Objects that fail are omitted, with a message for each. The command does not
prune, default or validate: see crd prune, default and validate.

With --review the input is one ConversionReview, as from an API server, and the output is
its answer. Its objects are converted all or not at all.

CustomResourceDefinitions and ConversionPolicies among the files are ignored. The exit
code is 1 if an object does not convert, and 2 if the input is unreadable, has objects of
an undefined kind or version, or a policy does not compile; crd verify shows the details.`,
		Example: `  refract crd convert --crd conversion/rename/crd.yaml --policy conversion/rename/policy.yaml --to v1 -f conversion/rename/objects.yaml
  refract crd convert --crd evolution/pizza/2-two-versions.yaml --policy pizza/policy.yaml --to v1beta1 -f evolution/pizza/objects.yaml -o json
  refract crd prune --crd evolution/pizza/2-two-versions.yaml -f evolution/pizza/objects.yaml | ` +
			`refract crd convert --crd evolution/pizza/2-two-versions.yaml --policy pizza/policy.yaml --to v1beta1 -f -`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run(s) },
	}
	f := cmd.Flags()
	o.policies.addFlags(cmd)
	o.inputs.addFileFlag(cmd)
	f.StringVar(&o.to, "to", "", "`version` to convert to; required without --review")
	must(cmd.RegisterFlagCompletionFunc("to", o.policies.completeVersion))
	f.BoolVar(&o.review, "review", false, "answer a ConversionReview")
	transformOutputs.addFlag(cmd, &o.output)
	return cmd
}

func (o *crdConvertOptions) run(s *streams) error {
	write, err := transformOutputs.find(o.output)
	switch {
	case err != nil:
		return err
	case !o.inputs.given():
		return withHint(errors.New("there is nothing to read"), "-f names a file, a folder, or - for stdin")
	case o.review && o.to != "":
		return withHint(errors.New("--review and --to exclude each other"), "the review contains the version")
	case !o.review && o.to == "":
		return withHint(errors.New("--to: no version given"), "it is the version to convert to")
	}
	compiled, err := o.policies.compile(s, flagPaths{"-f", o.inputs.files})
	if err != nil {
		return err
	}
	engine, err := compiled.engine(s)
	if err != nil {
		return err
	}
	if o.review {
		return o.answer(s, engine)
	}
	objects, err := o.objects(s, compiled)
	if err != nil {
		return err
	}
	result := crd.Convert(engine, objects, o.to)
	if len(result.Refused) > 0 {
		report(s.err, problemsAsError(result.Refused))
	}
	if err := write(s, result); err != nil {
		return err
	}
	if len(result.Refused) > 0 {
		return errFound
	}
	return nil
}

// objects reads the objects. It returns an error for an object whose definition lacks the target version. It also
// returns an error for an object in another version that no policy converts.
func (o *crdConvertOptions) objects(s *streams, compiled *compiledPolicies) ([]crd.Object, error) {
	documents, problems := manifest.Documents(o.inputs.files, s.in)
	if len(problems) > 0 {
		return nil, problemsAsError(problems)
	}
	matched := crd.Match(documents, compiled.definitions, o.inputs.files)
	if problems := slices.Concat(matched.Problems, crd.Strangers(matched.Foreign, compiled.definitions)); len(problems) > 0 {
		return nil, problemsAsError(problems)
	}
	if len(matched.Objects) == 0 {
		fmt.Fprintf(s.err, "note: no object is in %s\n", pathsText(o.inputs.files))
	}
	for i := range matched.Objects {
		object := &matched.Objects[i]
		if err := hasVersion("--to", object.Definition.Definition, o.to); err != nil {
			return nil, err
		}
		if object.Version.Name() != o.to && !compiled.covers(object.Definition) {
			return nil, withHint(fmt.Errorf("%s: %s is in %s, and no policy of the input is for %s",
				object.Document.Place, object, object.Version.Name(), object.Definition.Name()), "--policy names it")
		}
	}
	return matched.Objects, nil
}

// hasVersion returns an error if a definition does not have the version that a flag names.
func hasVersion(flag string, d *structural.Definition, version string) error {
	names := crd.VersionNames(d)
	if slices.Contains(names, version) {
		return nil
	}
	hint := "it has " + strings.Join(names, ", ")
	name := version[strings.LastIndex(version, "/")+1:] // The user may have given a whole apiVersion.
	if near := nearest.To(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return withHint(fmt.Errorf("%s: %s has no version %q", flag, d.Name(), version), hint)
}

// answer answers a ConversionReview.
func (o *crdConvertOptions) answer(s *streams, engine *convert.Engine) error {
	if len(o.inputs.files) != 1 {
		return withHint(fmt.Errorf("want one file with a review, got %d", len(o.inputs.files)), "give one file, or - for stdin")
	}
	name := o.inputs.files[0]
	body, err := readReview(name, s.in)
	if err != nil {
		return err
	}
	answer, err := engine.Review(body)
	if err != nil {
		return withHint(fmt.Errorf("%s: %w", pathsText(o.inputs.files), err), "without --review, objects are converted")
	}
	text := append(answer.Bytes(), '\n')
	if o.output != "json" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
	}
	if _, err := s.out.Write(text); err != nil {
		return err
	}
	if answer.Err() != nil {
		report(s.err, answer.Err())
		return errFound
	}
	return nil
}

// readReview reads a ConversionReview. It returns JSON unchanged, because every byte may matter for the conversion. It
// translates YAML to JSON.
func readReview(name string, stdin io.Reader) ([]byte, error) {
	var body []byte
	var err error
	if name == manifest.Stdin {
		body, err = io.ReadAll(stdin)
	} else {
		body, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	if body, err = manifest.Text(body); err != nil {
		return nil, fmt.Errorf("%s: %w", pathsText([]string{name}), err)
	}
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return nil, fmt.Errorf("%s: the file is empty", pathsText([]string{name}))
	case json.Valid(body):
		return body, nil
	}
	review, problems := manifest.One(pathsText([]string{name}), body)
	if len(problems) > 0 {
		return nil, problemsAsError(problems)
	}
	return json.Marshal(review)
}
