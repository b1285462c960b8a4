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
	"refract.dev/fleet/member"
	"refract.dev/internal/checkup"
	"refract.dev/internal/installation"
	"refract.dev/internal/signature"
)

// partFlags are the flags that select parts of Refract.
type partFlags struct {
	propagation, injection, conversion bool
}

func (p *partFlags) addFlags(cmd *cobra.Command, verb string) {
	f := cmd.Flags()
	f.BoolVar(&p.propagation, "propagation", false, verb+" the propagation of objects from a hub to its members")
	f.BoolVar(&p.injection, "injection", false, verb+" the injection of services into the pods of the cluster")
	f.BoolVar(&p.conversion, "conversion", false, verb+" the conversion of custom resources of the cluster")
}

// parts returns the parts that the flags select.
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
	propagate []string // Types of objects.
	verify    string   // The file with the public key for the signature of the image.
	signature string   // The file with the signature.
	export    bool
	timeout   time.Duration
}

func newInstallCommand(s *streams) *cobra.Command {
	o := &installOptions{}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install or upgrade Refract in a cluster",
		Long: `Install or upgrade Refract in a cluster. The command writes the namespace, accounts,
roles and Deployments of Refract by server-side apply, waits until they are ready, and
checks the installation, as refract check does. refract run updates its own objects
(CustomResourceDefinitions, admission policies and webhook configurations) when it
starts.

Without a flag for a part, the command upgrades the installed parts, or installs
--propagation in a cluster without Refract. Before any write, it checks whether the
cluster meets the requirements. It does not change an installation by Helm.

--image names the image in a registry of yours, because no public registry has one; make image
pushes the image of make dist. With a digest (NAME@sha256:...) the image never changes, and
--verify first checks its signature with a public key.

--propagate names the types of the propagated objects, such as deployments.apps,configmaps.
Refract's account on the hub may list these types and those that Refract itself needs. The
initial value is '*', every type: the account can then list every Secret of the hub. Without
the flag, an upgrade keeps the types. Objects of other types are ignored.

With --export, the command prints the objects as YAML, with the reason for each right,
and contacts no cluster.`,
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
	f.StringSliceVar(&o.propagate, "propagate", nil, "`types` of the propagated objects, RESOURCE.GROUP each, or * (default: the current types, or *)")
	f.StringVar(&o.verify, "verify", "", "`file` with a public key; write nothing unless the signature of the image is by this key")
	f.StringVar(&o.signature, "signature", "refract_image.sig", "`file` with the signature of the image, as make dist writes it")
	f.BoolVar(&o.export, "export", false, "print the objects, and write nothing")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "`time` after which to give up; repeat the command to continue")
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

// systemNamespace returns the namespace in which Refract runs. This is the namespace of --system-namespace or else that
// of the installation of any of the parts. If there is no installation, it is the default namespace. But if another
// namespace has a Lease of Refract, systemNamespace returns an error.
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
		err := fmt.Errorf("found no installation of Refract, but it may run outside of the cluster in one of the namespaces with its Lease: %s",
			strings.Join(ran, ", "))
		return "", withHint(err, hint)
	}
	return corev1alpha1.SystemNamespace, nil
}

// verified returns an error if no image is named or if its name is invalid. If the flags request that, it also checks
// the signature of the image.
func (o *installOptions) verified() error {
	if o.image == "" {
		return withHint(errors.New("--image: want the name of an image; no registry has one by default"),
			"push the image of make dist to a registry of yours (make image PUSH=registry.example.com/refract:v0.1.0), and name it with --image")
	}
	if _, err := imageref.ParseNormalizedNamed(o.image); err != nil {
		return withHint(fmt.Errorf("--image: %q is no image: %w", o.image, err), "write it as in a pod: registry.example.com/refract:v0.1.0")
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
		return withHint(fmt.Errorf("--verify: %w", err), "nothing was written; refract_image.sig is the signature of the image of the same build")
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

// runIn installs the parts in the cluster. If parts is empty, it upgrades the installed parts.
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
		return errors.New("nothing was written: the cluster does not meet the requirements of Refract")
	}
	tell := func(line string) { fmt.Fprintln(s.err, line) }
	written := 0
	wrote := func() {
		s.at(fmt.Sprintf("%d of %d objects are written", written, len(objects)), "repeat the command to write the others")
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
		// The installed version may be older than the roles for the Secrets of individual members.
		if err := member.PermitAll(ctx, c, o.namespace); err != nil {
			return err
		}
	}
	s.at("all objects are written", "repeat the command to continue")
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	err = installation.Wait(limited, c, o.namespace, parts, tell)
	if errors.Is(err, installation.ErrNotReady) {
		return withHint(err, "the objects are written; repeat the command to continue, or name another image with --image")
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

// settled is how long a ready installation may take until it passes all checks, because a replica writes some objects
// only after it has become the leader. lookAgain is the interval between checks.
const (
	settled   = 30 * time.Second
	lookAgain = time.Second
)

// settle checks an installation until it passes all checks, but at most for the time settled. It shows the last report.
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
