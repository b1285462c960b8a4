package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"refract.dev/conversion/crd"
	"refract.dev/conversion/review"
	"refract.dev/conversion/verify"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/internal/output"
)

// crdVerifyOptions are the flags of crd verify.
type crdVerifyOptions struct {
	policies   policyInputs
	laws       []string
	seed       uint64
	count      int
	objects    []string
	against    string
	ca         string
	serverName string
	insecure   bool
	timeout    time.Duration
	output     string
}

func newCRDVerifyCommand(s *streams) *cobra.Command {
	o := &crdVerifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify --crd CRD --policy POLICY",
		Short: "Find objects for which a ConversionPolicy violates a law",
		Long: `Find objects that a ConversionPolicy converts wrongly. The command generates objects from
the schemas of all versions, edge cases first, all of them valid for an API server.
--objects adds real objects, valid or not: each must convert to all versions. The command
checks these laws with all objects:

` + lawsText() + `
For each entry of the policy the command shows the smallest object that violates a law,
with its actual and expected result, and the real objects that violate it: up to ten per
law. The same --seed generates the same objects. If --timeout expires before all objects
are checked, the command writes a note and does not fail; without any checked object it
is an error.

With --against the policy is compared with an existing webhook: both convert each object,
and the results must be equal, except for differences that the policy declares as
equivalent, and for the annotation with kept values. The command calls the webhook, and
checks its answers, as an API server does.

A policy that does not compile is not verified: its errors are listed like the findings
of crd check. With -o junit each law is a test case; with -o sarif a violation is located
at the entry of the policy.

The exit code is 1 if the policy does not compile or violates a law, and 2 if the input
is unreadable or the webhook does not answer.`,
		Example: `  refract crd verify --crd conversion/rename --policy conversion/rename --objects conversion/rename --count 100
  refract crd verify --crd conversion/enum/crd.yaml --policy conversion/enum/policy.yaml --laws RoundTripHub,Edit --count 100 --seed 7
  refract crd verify --crd conversion/unit/crd.yaml --policy conversion/mistakes/no-inverse.yaml --count 100 -o junit > verify.xml
  refract crd verify --crd pizza/manifests/crds/pizza-crd.yaml --policy pizza/policy.yaml --against https://127.0.0.1:8443/convert/v1beta1/pizza --ca ca.crt`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), s) },
	}
	f := cmd.Flags()
	o.policies.addFlags(cmd)
	f.StringSliceVar(&o.laws, "laws", nil, "comma-separated `names` of the laws to check (default: all)")
	must(cmd.RegisterFlagCompletionFunc("laws", completeLaws))
	f.Uint64Var(&o.seed, "seed", 1, "`number` that determines the generated objects")
	f.IntVar(&o.count, "count", 1000, "`number` of objects to generate, per version")
	f.StringArrayVar(&o.objects, "objects", nil, "`file` or folder with real objects to check too, or - for stdin; may be repeated")
	must(cmd.MarkFlagFilename("objects", "yaml", "yml", "json"))
	f.StringVar(&o.against, "against", "", "`URL` of a conversion webhook to compare with")
	f.StringVar(&o.ca, "ca", "", "`file` with the CA certificates of the webhook (default: the CAs of this machine)")
	must(cmd.MarkFlagFilename("ca", "crt", "pem"))
	f.StringVar(&o.serverName, "tls-server-name", "", "`name` in the certificate of the webhook (default: the host of the URL)")
	f.BoolVar(&o.insecure, "insecure", false, "accept any certificate of the webhook")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "`time` after which to report the results so far")
	for _, name := range []string{"seed", "count", "against", "tls-server-name", "timeout"} {
		must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	verifyOutputs.addFlag(cmd, &o.output)
	return cmd
}

// verifyOutputs are the formats of verify.
var verifyOutputs = formats[*crd.Verification]{
	{"text", func(s *streams, v *crd.Verification) error { return v.WriteText(s.out) }},
	{"json", func(s *streams, v *crd.Verification) error { return v.WriteJSON(s.out) }},
	{"junit", func(s *streams, v *crd.Verification) error { return v.WriteJUnit(s.out) }},
	{"sarif", func(s *streams, v *crd.Verification) error { return v.WriteSARIF(s.out) }},
}

// lawNames returns the names of all laws, in their usual order.
func lawNames() []string {
	var names []string
	for _, l := range verify.Laws() {
		names = append(names, string(l.Name))
	}
	return names
}

// completeLaws completes the last element of a list of laws.
func completeLaws(_ *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	given := text[:strings.LastIndex(text, ",")+1]
	var all []cobra.Completion
	for _, name := range lawNames() {
		if !slices.Contains(strings.Split(given, ","), name) {
			all = append(all, given+name)
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// lawsText lists the laws for the help.
func lawsText() string {
	var text strings.Builder
	for _, l := range verify.Laws() {
		fmt.Fprintf(&text, "  %-15s %s\n", l.Name, l.Summary)
	}
	return text.String()
}

func (o *crdVerifyOptions) run(ctx context.Context, s *streams) error {
	write, err := verifyOutputs.find(o.output)
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	budget, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	var verification *crd.Verification
	err = s.within(budget, grace, func() error {
		var err error
		verification, err = o.verification(ctx, budget, s)
		return err
	})
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return withHint(fmt.Errorf("--timeout of %s expired before the first object was checked", o.timeout),
			"--timeout sets another limit")
	case err != nil:
		return err
	}
	if err := write(s, verification); err != nil {
		return err
	}
	if verification.Failed() {
		return errFound
	}
	return nil
}

// verification reads the input and verifies the policy. It stops when budget ends.
func (o *crdVerifyOptions) verification(ctx, budget context.Context, s *streams) (*crd.Verification, error) {
	compiled, err := o.policies.compile(s, flagPaths{"--objects", o.objects})
	if err != nil {
		return nil, err
	}
	if len(compiled.documents) > 1 {
		return nil, withHint(fmt.Errorf("only one policy can be verified, but %s has %d", pathsText(o.policies.policies), len(compiled.documents)),
			fmt.Sprintf("the first two are at %s and %s; give a file with one", compiled.documents[0].Place, compiled.documents[1].Place))
	}
	verification := crd.NewVerification(&compiled.documents[0], compiled.report)
	if len(compiled.policies) == 1 {
		if err := o.verify(ctx, budget, s, verification, &compiled.policies[0]); err != nil {
			return nil, err
		}
	}
	return verification, nil
}

// check returns an error for invalid flags.
func (o *crdVerifyOptions) check() error {
	switch known := lawNames(); {
	case o.count < 1:
		return fmt.Errorf("--count: want at least 1, got %d", o.count)
	case o.timeout <= 0:
		return fmt.Errorf("--timeout: want more than 0s, got %s", o.timeout)
	case o.against == "" && (o.insecure || o.ca+o.serverName != ""):
		return withHint(errors.New("--ca, --tls-server-name and --insecure need a webhook"), "--against names one")
	case o.insecure && o.ca != "":
		return errors.New("--ca and --insecure exclude each other")
	case o.against != "" && len(o.laws) > 0:
		return withHint(errors.New("--laws and --against exclude each other"), "a comparison with a webhook checks no laws")
	default:
		for i, name := range o.laws {
			name = strings.TrimSpace(name)
			at := slices.IndexFunc(known, func(law string) bool { return strings.EqualFold(law, name) })
			if at < 0 {
				return unknownLaw(name, known)
			}
			o.laws[i] = known[at]
		}
		return nil
	}
}

func unknownLaw(name string, known []string) error {
	hint := "there is " + strings.Join(known, ", ")
	if near := nearest.To(name, known); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return withHint(fmt.Errorf("--laws: there is no law %q", name), hint)
}

// verify checks a policy against the laws, or compares it with a webhook. If budget ends, it returns the results so
// far. If ctx ends, it returns an error.
func (o *crdVerifyOptions) verify(ctx, budget context.Context, s *streams, v *crd.Verification, p *crd.Policy) error {
	options := verify.Options{Seed: o.seed, Objects: o.count, Violations: mostViolations}
	for _, name := range o.laws {
		options.Laws = append(options.Laws, verify.Law(name))
	}
	var recorded []crd.Object
	if len(o.objects) > 0 {
		var err error
		if recorded, err = customResources(o.objects, []crd.Definition{*p.Definition}, s); err != nil {
			return err
		}
	}
	if o.against == "" {
		if err := v.Verify(budget, p, nil, recorded, options); err != nil {
			return err
		}
	} else if err := o.compare(budget, v, p, recorded, options); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	noteInvalid(s, v.Recorded)
	for i := range v.Result.Versions {
		if of := &v.Result.Versions[i]; of.Unconverted > 0 {
			fmt.Fprintf(s.err, "note: %d of %d objects in %s keep values that cannot be converted to %s\n",
				of.Unconverted, of.Objects, of.Version, of.Lacks)
		}
	}
	switch {
	case v.Result.Complete:
	case v.Result.Checks == 0 && o.against != "":
		return withHint(fmt.Errorf("%s did not answer within %s", o.against, o.timeout), "--timeout sets another limit")
	case v.Result.Checks == 0:
		return withHint(fmt.Errorf("--timeout of %s expired before the first check", o.timeout), "--timeout sets another limit")
	default:
		fmt.Fprintf(s.err, "note: --timeout of %s expired before all objects were checked\n", o.timeout)
	}
	return nil
}

// mostViolations is the maximum number of violations to find for each law. Each concerns a different entry of the
// policy.
const mostViolations = 10

// mostNotes is the maximum number of invalid objects that notes name.
const mostNotes = 10

// noteInvalid writes notes about the user's objects that are not valid in their version.
func noteInvalid(s *streams, recorded []crd.RecordedObject) {
	n := 0
	for i := range recorded {
		if recorded[i].Invalid == "" {
			continue
		}
		if n++; n <= mostNotes {
			fmt.Fprintf(s.err, "note: %s is not valid in %s, but is checked: %s\n", &recorded[i], recorded[i].Version, recorded[i].Invalid)
		}
	}
	if n > mostNotes {
		fmt.Fprintf(s.err, "note: %s not valid, which -o json names\n", output.Count(n-mostNotes, "more object is", "more objects are"))
	}
}

// compare compares a policy with the webhook.
func (o *crdVerifyOptions) compare(ctx context.Context, v *crd.Verification, p *crd.Policy, recorded []crd.Object, options verify.Options) error {
	authority, err := readCertificates("--ca", o.ca)
	if err != nil {
		return err
	}
	theirs, err := crd.NewWebhook(p.Definition, review.Webhook{
		URL: o.against, Authority: authority, ServerName: o.serverName, Insecure: o.insecure,
	})
	if err != nil {
		return fmt.Errorf("--against: %w", err)
	}
	v.Against = o.against
	err = v.Verify(ctx, p, theirs, recorded, options)
	if theirs.Err() != nil {
		return explainCertificate(theirs.Err(), "--ca")
	}
	return err
}
