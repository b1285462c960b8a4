package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	imageref "github.com/distribution/reference"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/checkup"
	"refract.dev/internal/installation"
	"refract.dev/internal/member"
	"refract.dev/internal/signature"
)

// partFlags say which parts of Refract are meant.
type partFlags struct {
	propagation, injection, conversion bool
}

func (p *partFlags) addFlags(cmd *cobra.Command, verb string) {
	f := cmd.Flags()
	f.BoolVar(&p.propagation, "propagation", false, verb+" what carries objects of a hub to its members")
	f.BoolVar(&p.injection, "injection", false, verb+" what injects services into the pods of the cluster")
	f.BoolVar(&p.conversion, "conversion", false, verb+" what converts custom resources of the cluster")
}

// parts returns those that were named.
func (p *partFlags) parts() []installation.Part {
	var names []string
	for name, given := range map[string]bool{"propagation": p.propagation, "injection": p.injection, "conversion": p.conversion} {
		if given {
			names = append(names, name)
		}
	}
	return installation.PartsNamed(names...)
}

// installOptions are the flags of install.
type installOptions struct {
	cluster   clusterFlags
	parts     partFlags
	namespace string
	image     string
	propagate []string // Types.
	verify    string   // File with the public key by which the image is signed,
	signature string   // and with the signature.
	export    bool
	timeout   time.Duration
}

func newInstallCommand(s *streams) *cobra.Command {
	o := &installOptions{}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install Refract in a cluster, or upgrade it",
		Long: `Install Refract in a cluster, or upgrade it: its namespace, accounts, roles and
Deployments are written by server-side apply. The command waits until they are ready
and then checks the installation, as refract check does. What refract run keeps itself
(CustomResourceDefinitions, admission policies and webhook configurations) it brings
up to date when it starts.

Without a flag that names a part it is what the cluster has, and --propagation for one
that has nothing. Before anything is written it is looked whether the cluster can take
it. An installation of Helm is left to Helm.

--image names the image in a registry of yours, as there is none that Refract is served by;
make image pushes what make dist makes. With a digest (NAME@sha256:...) it is always the same
image, and --verify has the command look first whether its signature is one by that key.

--propagate names the types whose objects are propagated, as deployments.apps,configmaps. Refract's
account on the hub may list these types, and what Refract itself needs. At first it is '*', every
type, with which the account can list every Secret of the hub. Later it stays as it is without
the flag. A type that is not named is passed over.

With --export the objects are printed as YAML, with the reason for each right, and no
cluster is asked.`,
		Example: `  refract install --context hub --image registry.example.com/refract:v0.1.0
  refract install --injection --conversion --image registry.example.com/refract@sha256:DIGEST --verify cosign.pub
  refract install --propagation --image registry.example.com/refract:v0.1.0 --export > refract.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), s) },
	}
	f := cmd.Flags()
	o.cluster.addClusterFlags(cmd, "cluster")
	o.parts.addFlags(cmd, "install")
	addSystemNamespace(cmd, &o.namespace)
	f.StringVar(&o.image, "image", "", "`reference` of the image that the pods run; required")
	f.StringSliceVar(&o.propagate, "propagate", nil, "`types` whose objects are propagated, RESOURCE.GROUP each, or * (default: those that it has, or *)")
	f.StringVar(&o.verify, "verify", "", "`file` with a public key: write nothing unless it is that of the image's signature")
	f.StringVar(&o.signature, "signature", "refract_image.sig", "`file` with the signature of the image, as make dist writes it")
	f.BoolVar(&o.export, "export", false, "print the objects, and write nothing")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "`time` after which to give up, ready or not; the same command goes on")
	must(cmd.RegisterFlagCompletionFunc("image", cobra.NoFileCompletions))
	must(cmd.RegisterFlagCompletionFunc("propagate", cobra.NoFileCompletions))
	must(cmd.MarkFlagFilename("verify", "pub", "pem"))
	must(cmd.MarkFlagFilename("signature", "sig"))
	must(cmd.RegisterFlagCompletionFunc("timeout", cobra.NoFileCompletions))
	return cmd
}

func addSystemNamespace(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVar(namespace, "system-namespace", "",
		"`namespace` that Refract runs in (default: that of its installation in the cluster, or "+corev1alpha1.SystemNamespace+" without one)")
	must(cmd.RegisterFlagCompletionFunc("system-namespace", cobra.NoFileCompletions))
}

// systemNamespace returns the namespace that Refract runs in: the one that --system-namespace names, or else that of the installation of
// one of the parts, or the default one if the cluster has no installation, and Refract has run in no other.
func systemNamespace(ctx context.Context, c client.Reader, given string, parts ...installation.Part) (string, error) {
	if given != "" {
		return given, nil
	}
	const hint = "--system-namespace names the namespace"
	found, err := installation.Namespaces(ctx, c, parts...)
	switch {
	case err != nil:
		return "", withHint(fmt.Errorf("finding the namespace that Refract runs in: %w", err), hint)
	case len(found) > 1:
		return "", withHint(fmt.Errorf("there are installations of Refract in several namespaces: %s", strings.Join(found, ", ")), hint)
	case len(found) == 1:
		return found[0], nil
	}
	ran, err := installation.Leased(ctx, c, parts...)
	if err != nil {
		return "", withHint(fmt.Errorf("finding the namespace that Refract runs in: %w", err), hint)
	}
	if slices.ContainsFunc(ran, func(namespace string) bool { return namespace != corev1alpha1.SystemNamespace }) {
		err := fmt.Errorf("no installation of Refract names its namespace, and Refract may run from elsewhere with one of these, which have its Lease: %s",
			strings.Join(ran, ", "))
		return "", withHint(err, hint)
	}
	return corev1alpha1.SystemNamespace, nil
}

// verified returns an error unless an image is named, and is signed if that is asked for.
func (o *installOptions) verified() error {
	if o.image == "" {
		return withHint(errors.New("--image: no image is named, and there is no registry that has one by default"),
			"push the image that make dist makes to a registry of yours (make image PUSH=registry.example.com/refract:v0.1.0), and name it as --image")
	}
	if _, err := imageref.ParseNormalizedNamed(o.image); err != nil {
		return withHint(fmt.Errorf("--image: %q is no image: %w", o.image, err), "name it as a pod does: registry.example.com/refract:v0.1.0")
	}
	if o.verify == "" {
		return nil
	}
	key, err := os.ReadFile(o.verify)
	if err != nil {
		return fmt.Errorf("--verify: %w", err)
	}
	sig, err := os.ReadFile(o.signature)
	if err != nil {
		return withHint(fmt.Errorf("--signature: %w", err), "make dist KEY=cosign.key writes bin/dist/refract_image.sig")
	}
	if err := signature.Verify(o.image, key, sig); err != nil {
		return withHint(fmt.Errorf("--verify: %w", err), "nothing was written; refract_image.sig is the signature of the image that was made with it")
	}
	return nil
}

func (o *installOptions) run(ctx context.Context, s *streams) error {
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout: want more than 0s, got %s", o.timeout)
	}
	parts := o.parts.parts()
	types, err := installation.ParseTypes(o.propagate)
	if err != nil {
		return fmt.Errorf("--propagate: %w", err)
	}
	if err := o.verified(); err != nil {
		return err
	}
	if o.export {
		if len(parts) == 0 {
			parts = []installation.Part{installation.Propagation}
		}
		text, err := installation.Manifest(&installation.Options{Parts: parts, Namespace: o.namespace, Image: o.image, Types: types})
		if err != nil {
			return err
		}
		_, err = s.out.Write(text)
		return err
	}
	return s.limited(ctx, o.timeout, func(ctx context.Context) error { return o.runIn(ctx, s, parts, types) })
}

// runIn installs the parts in the cluster; those that it has if none are named.
func (o *installOptions) runIn(ctx context.Context, s *streams, parts []installation.Part, types []schema.GroupResource) error {
	cfg, _, err := reach(ctx, "cluster", &o.cluster)
	if err != nil {
		return err
	}
	c, err := watchingClient(cfg)
	if err != nil {
		return err
	}
	if o.namespace, err = systemNamespace(ctx, c, o.namespace, installation.Parts()...); err != nil {
		return err
	}
	if len(parts) == 0 {
		if parts, err = installation.Installed(ctx, c, o.namespace); err != nil {
			return err
		}
	}
	if len(parts) == 0 {
		parts = []installation.Part{installation.Propagation}
	}
	return o.install(ctx, s, cfg, c, &installation.Options{Parts: parts, Namespace: o.namespace, Image: o.image, Types: types})
}

func (o *installOptions) install(ctx context.Context, s *streams, cfg *rest.Config, c client.Client, what *installation.Options) error {
	parts := what.Parts
	objects, err := installation.Objects(what)
	if err == nil && len(what.Types) == 0 {
		objects, err = installation.KeepTypes(ctx, c, objects)
	}
	if err != nil {
		return err
	}
	before, err := checkup.Run(ctx, &checkup.Options{Config: cfg, Namespace: o.namespace, Before: true, Parts: parts})
	if err != nil {
		return err
	}
	if before.Failed() {
		before.Results = failed(before.Results)
		if err := before.WriteText(s.err); err != nil {
			return err
		}
		return errors.New("nothing was written: the cluster cannot take Refract as it is")
	}
	tell := func(line string) { fmt.Fprintln(s.err, line) }
	written := 0
	wrote := func() {
		s.at(fmt.Sprintf("%d of %d objects are written", written, len(objects)), "the same command writes the others")
	}
	wrote()
	err = installation.Apply(ctx, c, objects, func(o client.Object, did string) {
		tell(installation.Describe(o) + " " + did)
		written++
		wrote()
	})
	if errors.Is(err, installation.ErrKeptByHelm) {
		return withHint(err, "helm upgrade upgrades it")
	}
	if err != nil {
		return err
	}
	if slices.Contains(parts, installation.Propagation) {
		// An upgrade may be the first version whose roles name no Secret of a member.
		if err := member.PermitAll(ctx, c, o.namespace); err != nil {
			return err
		}
	}
	s.at("all objects are written", "the same command waits on")
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	err = installation.Wait(limited, c, o.namespace, parts, tell)
	if errors.Is(err, installation.ErrNotReady) {
		return withHint(err, "the objects are written, and the same command waits on; --image names another image")
	}
	if err != nil {
		return err
	}
	return settle(limited, s, &checkup.Options{Config: cfg, Namespace: o.namespace, Parts: parts})
}

func failed(all []checkup.Result) []checkup.Result {
	var bad []checkup.Result
	for i := range all {
		if !all[i].OK {
			bad = append(bad, all[i])
		}
	}
	return bad
}

// How long an installation that is ready may take until all is right: what a replica writes when
// it leads comes a moment after.
const (
	settled   = 30 * time.Second
	lookAgain = time.Second
)

// settle checks an installation until all is right, for a moment at most, and shows the last
// report.
func settle(ctx context.Context, s *streams, o *checkup.Options) error {
	var report *checkup.Report
	err := wait.PollUntilContextTimeout(ctx, lookAgain, settled, true, func(context.Context) (done bool, err error) {
		report, err = checkup.Run(ctx, o)
		return err == nil && !report.Failed(), err
	})
	if err != nil && !wait.Interrupted(err) || report == nil {
		return err
	}
	if err := report.WriteText(s.out); err != nil {
		return err
	}
	if report.Failed() {
		return errFound
	}
	return nil
}
