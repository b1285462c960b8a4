// Package checkup checks whether Refract can be installed in a cluster, and whether an installed Refract works. Each
// failure comes with advice. The checks use dry runs, and write nothing.
package checkup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/hub"
	"refract.dev/internal/installation"
)

// Options configure the checks.
type Options struct {
	// Config is the configuration of a client with the rights of the user. Required.
	Config *rest.Config
	// Namespace is the system namespace. If it is empty, it defaults to the namespace of the only installation. If
	// there is not exactly one installation, or if the search fails, it defaults to [corev1alpha1.SystemNamespace].
	Namespace string
	// Before is true if the cluster is checked before an installation. Otherwise the installed parts are checked.
	Before bool
	// Parts are the expected parts. If the list is empty and Before is false, the installed parts are expected.
	Parts []installation.Part
	// Now returns the current time; time.Now if nil.
	Now func() time.Time
}

// Result is the result of one check.
type Result struct {
	// Check is the name of the check, in one word.
	Check string `json:"check"`
	// OK is true if the check has found no problem.
	OK bool `json:"ok"`
	// Message describes the finding and names its object.
	Message string `json:"message"`
	// Do is advice for the user; empty if no action is necessary.
	Do string `json:"do,omitempty"`
}

// Report has the results of all checks.
type Report struct {
	// Server is the address of the API server.
	Server string `json:"server"`
	// Installed has the names of the installed parts.
	Installed []string `json:"installed"`
	// Results are in the order of the checks.
	Results []Result `json:"results"`
}

// Failed reports whether any check found a problem.
func (r *Report) Failed() bool {
	for i := range r.Results {
		if !r.Results[i].OK {
			return true
		}
	}
	return false
}

// WriteText writes a line for each result, followed by its advice.
func (r *Report) WriteText(w io.Writer) error {
	for i := range r.Results {
		mark := "✔"
		if !r.Results[i].OK {
			mark = "✗"
		}
		if _, err := fmt.Fprintf(w, "%s %-12s %s\n", mark, r.Results[i].Check, r.Results[i].Message); err != nil {
			return err
		}
		if r.Results[i].Do == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "  %-12s → %s\n", "", r.Results[i].Do); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(r)
}

// checker checks one cluster.
type checker struct {
	Options

	client client.Client
	disco  discovery.DiscoveryInterface
	spaces []string            // Namespaces with an installation.
	unread error               // The error of the search for spaces, or nil.
	found  []installation.Part // Parts with a Deployment.
	run    []installation.Part // The parts in found, and the parts that run outside of the cluster.
	report Report
}

func (c *checker) rightf(check, format string, args ...any) {
	c.report.Results = append(c.report.Results, Result{Check: check, OK: true, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) wrongf(check, do, format string, args ...any) {
	c.report.Results = append(c.report.Results, Result{Check: check, Message: fmt.Sprintf(format, args...), Do: do})
}

// Run checks the cluster. If a check is not possible, its result has OK false. Run returns an error only if the cluster
// does not answer or ctx ends.
func Run(ctx context.Context, o *Options) (*Report, error) {
	c := &checker{Options: *o}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Config = rest.CopyConfig(c.Config)
	c.Config.QPS = -1
	c.Config.WarningHandler = rest.NoWarnings{}
	c.report = Report{Server: c.Config.Host, Installed: []string{}, Results: []Result{}}
	var err error
	if c.client, err = hub.Client(c.Config); err != nil {
		return nil, err
	}
	if c.disco, err = discovery.NewDiscoveryClientForConfig(c.Config); err != nil {
		return nil, err
	}
	c.spaces, c.unread = installation.Namespaces(ctx, c.client, installation.Parts()...)
	if c.Namespace == "" && len(c.spaces) == 1 {
		c.Namespace = c.spaces[0]
	}
	c.Namespace = cmp.Or(c.Namespace, corev1alpha1.SystemNamespace)
	if !c.Before { // A user may not be allowed to read Refract's objects before an administrator has installed it.
		if c.found, err = installation.Installed(ctx, c.client, c.Namespace); err != nil {
			return nil, err
		}
		elsewhere, err := installation.Elsewhere(ctx, c.client, c.Namespace, c.found)
		if err != nil {
			return nil, err
		}
		c.run = slices.Concat(c.found, elsewhere)
	}
	for _, part := range c.found {
		c.report.Installed = append(c.report.Installed, part.Name)
	}
	for _, check := range c.checks() {
		check(ctx)
		if err := ctx.Err(); err != nil {
			return nil, errors.Join(errors.New("checking the cluster"), err)
		}
	}
	return &c.report, nil
}

func (c *checker) checks() []func(context.Context) {
	always := []func(context.Context){c.version, c.clock, c.admissionAPI, c.namespace, c.others, c.kubeAdmiral}
	if c.Before {
		return append(always, c.nodes, c.mayInstall)
	}
	return append(always, c.installed, c.deployments, c.definitions, c.rights, c.propagated, c.admissionPolicies, c.configurations,
		c.certificates, c.answers, c.leases, c.members, c.conversions)
}
