package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"refract.dev/convert/verify"
	"refract.dev/internal/offline/crd"
	"refract.dev/internal/offline/manifest/nearest"
	"refract.dev/internal/output"
	"refract.dev/internal/review"
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
		Short: "Look for objects with which a ConversionPolicy breaks a law",
		Long: `Look for objects that a ConversionPolicy converts wrongly. Objects are made up from the
schemas of all versions, at their edges first, and each is one that an API server would
accept; with --objects real ones are looked at, too, valid or not: each has to convert to
all versions. With all of them these laws are checked:

` + lawsText() + `
For each entry of the policy the smallest object that breaks a law is shown, with what came
of it and what should have, and the real objects that do, too: up to ten a law. The same
--seed makes the same objects. If --timeout is over before all of them were looked at a note says so, which is
no failure; if nothing was looked at it is an error.

With --against the policy is compared with a webhook that converts already: each object
is converted by both, and must come out the same but for what the policy declares to be
equivalent, and for the annotation in which it keeps what would get lost. The webhook
is asked and judged as by an API server.

A policy that does not compile is not verified: what is wrong with it is listed like the
findings of crd check. With -o junit each law is a test case; with -o sarif a violation
stands at the entry of the policy.

The exit code is 1 if the policy does not compile or a law is broken, and 2 if the input
cannot be read or the webhook does not answer.`,
		Example: `  refract crd verify --crd conversion/rename --policy conversion/rename --objects conversion/rename --count 100
  refract crd verify --crd conversion/enum/crd.yaml --policy conversion/enum/policy.yaml --laws RoundTripHub,Edit --count 100 --seed 7
  refract crd verify --crd conversion/unit/crd.yaml --policy conversion/mistakes/no-inverse.yaml --count 100 -o junit > verify.xml
  refract crd verify --crd pizza/manifests/crds/pizza-crd.yaml --policy pizza/policy.yaml --against https://127.0.0.1:8443/convert/v1beta1/pizza --ca ca.crt`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), s) },
	}
	f := cmd.Flags()
	o.policies.addFlags(cmd)
	f.StringSliceVar(&o.laws, "laws", nil, "`names` of the laws to check, with commas between them (default: all)")
	must(cmd.RegisterFlagCompletionFunc("laws", completeLaws))
	f.Uint64Var(&o.seed, "seed", 1, "`number` that objects are made up from")
	f.IntVar(&o.count, "count", 1000, "`number` of objects to make up, per version")
	f.StringArrayVar(&o.objects, "objects", nil, "`file` or folder with real objects to look at too, or - for stdin; may be repeated")
	must(cmd.MarkFlagFilename("objects", "yaml", "yml", "json"))
	f.StringVar(&o.against, "against", "", "`URL` of a conversion webhook to compare with")
	f.StringVar(&o.ca, "ca", "", "`file` with the certificates of who signed that of the webhook (default: whom this machine trusts)")
	must(cmd.MarkFlagFilename("ca", "crt", "pem"))
	f.StringVar(&o.serverName, "tls-server-name", "", "`name` that the certificate of the webhook is for (default: the host of the URL)")
	f.BoolVar(&o.insecure, "insecure", false, "take whatever certificate the webhook has")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "`time` after which to be content with what was looked at")
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

// lawNames returns the names of the laws, in their order.
func lawNames() []string {
	var names []string
	for _, l := range verify.Laws() {
		names = append(names, string(l.Name))
	}
	return names
}

// completeLaws completes the last of the laws.
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
		return withHint(fmt.Errorf("%s were over before the schemas, the policy and the objects were read, and one object was looked at", o.timeout),
			"--timeout gives more time")
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

// verification reads what the flags name, and verifies it for as long as there is time.
func (o *crdVerifyOptions) verification(ctx, budget context.Context, s *streams) (*crd.Verification, error) {
	compiled, err := o.policies.compile(s, flagPaths{"--objects", o.objects})
	if err != nil {
		return nil, err
	}
	if len(compiled.documents) > 1 {
		return nil, withHint(fmt.Errorf("one policy can be verified, and %s has %d", pathsText(o.policies.policies), len(compiled.documents)),
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

// check returns what is wrong with the flags.
func (o *crdVerifyOptions) check() error {
	switch known := lawNames(); {
	case o.count < 1:
		return fmt.Errorf("--count: want at least 1, got %d", o.count)
	case o.timeout <= 0:
		return fmt.Errorf("--timeout: want more than none, got %s", o.timeout)
	case o.against == "" && (o.insecure || o.ca+o.serverName != ""):
		return withHint(errors.New("there is no webhook whose certificate could be trusted"), "--against names one")
	case o.insecure && o.ca != "":
		return errors.New("--ca and --insecure exclude each other")
	case o.against != "" && len(o.laws) > 0:
		return withHint(errors.New("--laws and --against exclude each other"), "what is compared with a webhook is not held against laws")
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

// verify holds a policy against the laws, or compares it with the webhook, until the end of the
// budget; the end of ctx is an error.
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
			fmt.Fprintf(s.err, "note: of %d of %d objects in %s something is kept, as it cannot be converted to %s\n",
				of.Unconverted, of.Objects, of.Version, of.Lacks)
		}
	}
	switch {
	case v.Result.Complete:
	case v.Result.Checks == 0 && o.against != "":
		return withHint(fmt.Errorf("%s did not answer within %s", o.against, o.timeout), "--timeout gives more time")
	case v.Result.Checks == 0:
		return withHint(fmt.Errorf("%s were over before anything was looked at", o.timeout), "--timeout gives more time")
	default:
		fmt.Fprintf(s.err, "note: %s were over before all was looked at; --timeout gives more time\n", o.timeout)
	}
	return nil
}

// mostViolations is how many violations of a law are looked for: each is another entry.
const mostViolations = 10

// mostNotes is how many real objects notes name.
const mostNotes = 10

// noteInvalid names the real objects that are not valid in their version.
func noteInvalid(s *streams, recorded []crd.RecordedObject) {
	n := 0
	for i := range recorded {
		if recorded[i].Invalid == "" {
			continue
		}
		if n++; n <= mostNotes {
			fmt.Fprintf(s.err, "note: %s is not valid in %s, and is tried all the same: %s\n", &recorded[i], recorded[i].Version, recorded[i].Invalid)
		}
	}
	if n > mostNotes {
		fmt.Fprintf(s.err, "note: so %s, which -o json names\n", output.Count(n-mostNotes, "more is", "more are"))
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
