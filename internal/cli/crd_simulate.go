package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"refract.dev/conversion/crd"
	"refract.dev/conversion/review"
	"refract.dev/conversion/structural/pipeline"
)

// crdSimulateOptions are the flags of crd simulate.
type crdSimulateOptions struct {
	inputs     crdInputs
	to         string
	conversion string
	mutate     string
	validate   string
	authority  string
	serverName string
	output     string
}

func newCRDSimulateCommand(s *streams) *cobra.Command {
	o := &crdSimulateOptions{}
	cmd := &cobra.Command{
		Use:   "simulate --crd CRD -f OBJECT",
		Short: "Simulate an object in an API server, from create to get",
		Long: `Simulate the path of an object through an API server, from the create of one client to
the get of another, and show the changes of each step: it is decoded by the schema of its
version, and defaulted; the mutating webhook is called; it is validated; the validating
webhook is called; it is converted to the storage version, and stored. The stored object
is decoded and defaulted by the schema of the storage version, and converted to the
requested version, whose schema prunes it and does not default it.

The command sends no requests to an API server. It calls webhooks over HTTPS if their
URLs are given: with real reviews, for admission as dry runs. It checks their answers as
an API server does. A definition with strategy None needs no conversion webhook; if a
definition names a URL, the command uses it. A served ConversionPolicy is called like any
webhook, if --crd is the definition of the cluster; for the result of a policy that is
not served, use refract crd convert. Generated values of an API server are missing: uid,
times, generation, managed fields.

With -o json one document has all steps, with the object after each.

The exit code is 0 if the object arrives, 1 if a step rejects it, and 2 if the input
is unreadable or a webhook does not answer.`,
		Example: `  refract crd simulate --crd evolution/at/crd.yaml -f evolution/at/garbage.yaml
  refract crd simulate --crd evolution/defaults/crd.yaml -f evolution/defaults/object.yaml --to v1beta1
  refract crd simulate --crd evolution/defaults/crd.yaml -f evolution/defaults/object.yaml -o json
  refract crd simulate --crd evolution/pizza/2-two-versions.yaml -f evolution/pizza/margherita.yaml ` +
			`--conversion https://127.0.0.1:8443/convert/v1beta1/pizza --certificate-authority ca.crt`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), s) },
	}
	f := cmd.Flags()
	o.inputs.addFlags(cmd)
	f.StringVar(&o.to, "to", "", "`version` to read the object in (default: its own)")
	f.StringVar(&o.conversion, "conversion", "", "`URL` of the conversion webhook (default: that of the definition)")
	f.StringVar(&o.mutate, "mutate", "", "`URL` of a mutating admission webhook")
	f.StringVar(&o.validate, "validate", "", "`URL` of a validating admission webhook")
	f.StringVar(&o.authority, "certificate-authority", "",
		"`file` with the CA certificates of the webhooks (default: the definition's caBundle, or the CAs of this machine)")
	must(cmd.MarkFlagFilename("certificate-authority", "crt", "pem"))
	f.StringVar(&o.serverName, "tls-server-name", "", "`name` in the certificates of the webhooks (default: the host of the URL)")
	for _, name := range []string{"conversion", "mutate", "validate", "tls-server-name"} {
		must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	must(cmd.RegisterFlagCompletionFunc("to", o.completeVersion))
	simulateOutputs.addFlag(cmd, &o.output)
	return cmd
}

// simulateOutputs are the formats of simulate.
var simulateOutputs = formats[*crd.Simulation]{
	{"text", func(s *streams, r *crd.Simulation) error { return r.WriteText(s.out) }},
	{"json", func(s *streams, r *crd.Simulation) error { return r.WriteJSON(s.out) }},
}

// completeVersion completes the versions of the definitions in the preceding flags.
func (o *crdSimulateOptions) completeVersion(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return versionsIn(o.inputs.definitions), cobra.ShellCompDirectiveNoFileComp
}

func (o *crdSimulateOptions) run(ctx context.Context, s *streams) error {
	write, err := simulateOutputs.find(o.output)
	if err != nil {
		return err
	}
	object, err := o.object(s)
	if err != nil {
		return err
	}
	hooks, err := o.hooks(ctx, s, object)
	if err != nil {
		return err
	}
	simulation, err := crd.Simulate(object, o.to, hooks)
	if err != nil {
		return explainCertificate(err, "--certificate-authority")
	}
	if err := write(s, simulation); err != nil {
		return err
	}
	if simulation.Refused {
		return errFound
	}
	return nil
}

// object reads the only object of the input.
func (o *crdSimulateOptions) object(s *streams) (*crd.Object, error) {
	objects, err := o.inputs.read(s)
	if err != nil {
		return nil, err
	}
	switch len(objects) {
	case 1:
	case 0:
		return nil, errors.New("there is no object to simulate")
	default:
		return nil, withHint(fmt.Errorf("only one object can be simulated, but %s has %d", strings.Join(o.inputs.inputs.files, ", "), len(objects)),
			fmt.Sprintf("the first two are %s (%s) and %s (%s); give a file with one",
				&objects[0], objects[0].Document.Place, &objects[1], objects[1].Document.Place))
	}
	object := &objects[0]
	if o.to == "" {
		return object, nil
	}
	return object, hasVersion("--to", object.Definition.Definition, o.to)
}

// hooks returns the webhooks that the flags name.
func (o *crdSimulateOptions) hooks(ctx context.Context, s *streams, object *crd.Object) (pipeline.Hooks, error) {
	var hooks pipeline.Hooks
	authority, err := o.readAuthority()
	if err != nil {
		return hooks, err
	}
	definition := object.Definition.Definition
	if o.mutate != "" {
		webhook, err := review.NewAdmission(definition, review.Webhook{URL: o.mutate, Authority: authority, ServerName: o.serverName})
		if err != nil {
			return hooks, fmt.Errorf("--mutate: %w", err)
		}
		webhook.Warn = func(text string) { fmt.Fprintf(s.err, "warning: %s: %s\n", o.mutate, text) }
		hooks.Mutate = func(obj map[string]any) (map[string]any, error) { return webhook.Mutate(ctx, obj) }
	}
	if o.validate != "" {
		webhook, err := review.NewAdmission(definition, review.Webhook{URL: o.validate, Authority: authority, ServerName: o.serverName})
		if err != nil {
			return hooks, fmt.Errorf("--validate: %w", err)
		}
		webhook.Warn = func(text string) { fmt.Fprintf(s.err, "warning: %s: %s\n", o.validate, text) }
		hooks.Admit = func(obj map[string]any) error { return webhook.Validate(ctx, obj) }
	}
	hooks.Convert, err = o.convert(ctx, object, authority)
	return hooks, err
}

// convert returns a function that calls the conversion webhook; nil for the conversion strategy None. If the address of
// the webhook is unknown, the function returns an error, but only when an object must be converted.
func (o *crdSimulateOptions) convert(ctx context.Context, object *crd.Object, authority []byte) (func(map[string]any, string) (map[string]any, error), error) {
	says := crd.ConversionOf(&object.Definition.Document)
	webhook := review.Webhook{URL: o.conversion, Authority: authority, ServerName: o.serverName}
	switch {
	case o.conversion != "":
	case says.Strategy == "None":
		return nil, nil //nolint:nilnil // Documented.
	case says.URL == "":
		err := withHint(fmt.Errorf("%s is converted by the Service %s, which only a cluster knows", object.Definition.Name(), says.Service),
			"--conversion names a URL of the webhook, for example of kubectl port-forward, with --tls-server-name for the Service's name")
		return func(map[string]any, string) (map[string]any, error) { return nil, err }, nil
	default:
		webhook.URL = says.URL
	}
	if authority == nil {
		webhook.Authority = says.Authority
	}
	converter, err := review.NewConverter(object.Definition.Definition, says.ReviewVersions, webhook)
	if err != nil {
		return nil, fmt.Errorf("--conversion: %w", err)
	}
	return func(obj map[string]any, to string) (map[string]any, error) { return converter.Convert(ctx, obj, to) }, nil
}

// explainCertificate adds advice to an error about an untrusted certificate. authorityFlag is the flag for trusted
// certificate authorities.
func explainCertificate(err error, authorityFlag string) error {
	var unknown x509.UnknownAuthorityError
	var other x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return withHint(err, authorityFlag+" names a file with the CA certificate of the webhook")
	case errors.As(err, &other) && other.Certificate != nil && len(other.Certificate.DNSNames) > 0:
		return withHint(err, "--tls-server-name sets the name: the certificate is for "+strings.Join(other.Certificate.DNSNames, ", "))
	default:
		return err
	}
}

// readAuthority reads the trusted certificate authorities; nil if the flag is not set.
func (o *crdSimulateOptions) readAuthority() ([]byte, error) {
	return readCertificates("--certificate-authority", o.authority)
}

// readCertificates reads the certificates in a file that a flag names; nil without a file.
func readCertificates(flag, name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return nil, withHint(fmt.Errorf("%s: no certificate is in %s", flag, name),
			"it is a PEM file, with lines -----BEGIN CERTIFICATE-----")
	}
	return text, nil
}
