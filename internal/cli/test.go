package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/policytest"
)

// testOptions are the flags of test.
type testOptions struct {
	output      string
	verbose     bool
	update      bool
	minCoverage percentage
}

func newTestCommand(s *streams) *cobra.Command {
	o := &testOptions{minCoverage: "0"}
	cmd := &cobra.Command{
		Use:   "test DIR...",
		Short: "Run the unit tests of policies",
		Long: `Run the unit tests of policies: YAML documents of kind PolicyTest, in the given
files and folders, with the expected content of objects on clusters. The command
sends no requests to an API server.

  apiVersion: refract.dev/v1alpha1
  kind: PolicyTest
  metadata: {name: replicas}
  spec:
    inputs: [../shop, ../clusters.yaml]
    cases:
    - name: Europe runs one
      object: deployment/shop/my-nginx
      cluster: member-1
      expect:
        fields: {/spec/replicas: 1}
        cel: [object.spec.replicas < hub.spec.replicas]

Failures go to stdout, with the policy and rule that set the value. Rules of
override policies that no test and no object exercises are warnings. --update
replaces failed expectations in the tests by the current values; failures that
need a human decision remain.

The exit code is 1 if a case failed or too few rules are tested, and 2 if the
tests or their inputs have mistakes: then no test runs.`,
		Example: `  refract test tests/
  refract test tests/replicas.yaml --verbose
  refract test tests/ -o junit > report.xml
  refract test tests/ --min-coverage 80
  refract test tests/ --update`,
		Args: someTests,
		RunE: func(_ *cobra.Command, args []string) error { return o.run(s, args) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return []cobra.Completion{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	f := cmd.Flags()
	testOutputs(false).addFlag(cmd, &o.output)
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show the cases that passed too")
	f.BoolVar(&o.update, "update", false, "replace failed expectations in the tests by the current values")
	f.Var(&o.minCoverage, "min-coverage", "fail if the tests exercise less than this `percentage` of the rules")
	return cmd
}

// percentage is the value of a flag. It is parsed after all flags, because pflag would add its own text to an error of
// Set.
type percentage string

func (p *percentage) Set(text string) error {
	*p = percentage(text)
	return nil
}

func (p *percentage) String() string { return string(*p) }

func (p *percentage) Type() string { return "percentage" }

func (p *percentage) parse() (int, error) {
	n, err := strconv.Atoi(p.String())
	if err != nil || n < 0 || n > 100 {
		return 0, fmt.Errorf("%q is not a percentage from 0 to 100", p)
	}
	return n, nil
}

// someTests requires at least one argument.
func someTests(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return withHint(errors.New("there is nothing to test"), cmd.CommandPath()+" takes the files and folders with tests")
}

// testOutputs are the formats of test.
func testOutputs(verbose bool) formats[*policytest.Result] {
	return formats[*policytest.Result]{
		{"text", func(s *streams, r *policytest.Result) error { return policytest.WriteText(s.out, r, verbose) }},
		{"json", toStdout(policytest.WriteJSON)},
		{"junit", toStdout(policytest.WriteJUnit)},
	}
}

func (o *testOptions) run(s *streams, paths []string) error {
	write, err := testOutputs(o.verbose).find(o.output)
	if err != nil {
		return err
	}
	least, err := o.minCoverage.parse()
	if err != nil {
		return fmt.Errorf("--min-coverage: %w", err)
	}
	result, err := runTests(paths)
	if err != nil {
		return err
	}
	if o.update {
		if result, err = updateTests(s, paths, result); err != nil {
			return err
		}
	}
	for i := range result.Coverage.Unexercised {
		fmt.Fprintf(s.err, "warning: %s: no test and no object exercises it\n", &result.Coverage.Unexercised[i])
	}
	if err := write(s, result); err != nil {
		return err
	}
	return judge(s, result, least)
}

// judge returns errFound if a case has failed, or if the tests cover less than the given percentage of the rules.
func judge(s *streams, result *policytest.Result, least int) error {
	c := &result.Coverage
	low := c.Percent() < least
	if low {
		report(s.err, fmt.Errorf("the tests exercise %d of %d rules, %d%%; --min-coverage requires %d%%", c.Tested, c.Rules, c.Percent(), least))
	}
	if low || !result.Passed() {
		return errFound
	}
	return nil
}

// runTests loads the tests and runs them.
func runTests(paths []string) (*policytest.Result, error) {
	tests, problems := policytest.Load(paths)
	if len(problems) > 0 {
		return nil, problemsAsError(problems)
	}
	if len(tests) == 0 {
		return nil, withHint(fmt.Errorf("no test is in %s", strings.Join(paths, ", ")),
			"a test is a YAML document of kind PolicyTest, in a file *.yaml or *.yml")
	}
	result, problems := policytest.Run(tests, findTested)
	return result, problemsAsError(problems)
}

// updateTests writes the actual values into the tests, and runs the tests again.
func updateTests(s *streams, paths []string, result *policytest.Result) (*policytest.Result, error) {
	var updated []policytest.Updated
	var refused []policytest.Refused
	err := s.whole(func() (err error) {
		updated, refused, err = policytest.Update(result)
		return err
	})
	for i := range updated {
		fmt.Fprintf(s.err, "updated %s\n", &updated[i])
	}
	for i := range refused {
		fmt.Fprintf(s.err, "warning: %s\n", &refused[i])
	}
	if err != nil || len(updated) == 0 {
		return result, err
	}
	return runTests(paths)
}

// findTested is like findObject, with the signature that tests need.
func findTested(set *manifest.Set, reference string) (object *manifest.Object, hint string, err error) {
	object, err = findObject(set, reference, "")
	if h, ok := errors.AsType[*hinted](err); ok {
		return nil, h.hint, h.error
	}
	return object, "", err
}
