// Package checkup looks whether a cluster can take Refract, and whether a Refract that is
// there works, and says of what is wrong what to do. It writes nothing: what it tries out, it
// tries out in dry runs.
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
	"refract.dev/internal/hub"
	"refract.dev/internal/installation"
)

// Options say what is looked at.
type Options struct {
	// Config leads to the cluster, as the user who checks. Required.
	Config *rest.Config
	// Namespace is the system namespace. If empty it is that of the installation; [corev1alpha1.SystemNamespace] if there is none, or
	// several, or if they cannot be found.
	Namespace string
	// Before has it look whether the cluster can take the parts, rather than whether they
	// work.
	Before bool
	// Parts are those that there should be. After an installation they may be empty: it is
	// looked at those that there are.
	Parts []installation.Part
	// Now tells the time; time.Now if nil.
	Now func() time.Time
}

// Result is what came of one check.
type Result struct {
	// Check is the name of the check, in one word.
	Check string `json:"check"`
	// OK is whether all is as it should be.
	OK bool `json:"ok"`
	// Message says what was found, with the object that it is about.
	Message string `json:"message"`
	// Do says what to do about it; empty if nothing need be done.
	Do string `json:"do,omitempty"`
}

// Report is what came of all.
type Report struct {
	// Server is where the API server was asked.
	Server string `json:"server"`
	// Installed are the names of the parts that there are.
	Installed []string `json:"installed"`
	// Results are in the order of the checks.
	Results []Result `json:"results"`
}

// Failed reports whether something is not as it should be.
func (r *Report) Failed() bool {
	for i := range r.Results {
		if !r.Results[i].OK {
			return true
		}
	}
	return false
}

// WriteText writes a line for each result, and below what to do.
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

// checker looks at one cluster.
type checker struct {
	Options

	client client.Client
	disco  discovery.DiscoveryInterface
	spaces []string            // Namespaces with an installation,
	unread error               // and why they could not be found.
	found  []installation.Part // That have a Deployment,
	run    []installation.Part // and those with others that run outside of the cluster.
	report Report
}

func (c *checker) rightf(check, format string, args ...any) {
	c.report.Results = append(c.report.Results, Result{Check: check, OK: true, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) wrongf(check, do, format string, args ...any) {
	c.report.Results = append(c.report.Results, Result{Check: check, Message: fmt.Sprintf(format, args...), Do: do})
}

// Run looks at the cluster. What cannot be looked at is a result, which is not right: an
// error is returned only if the cluster does not answer, or ctx ends.
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
	if !c.Before { // Who may not install yet may not read what there is either.
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
