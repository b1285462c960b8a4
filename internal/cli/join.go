package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/status"
	"refract.dev/internal/installation"
)

// joinOptions are the flags of join.
type joinOptions struct {
	cluster    clusterFlags // The hub.
	namespace  string       // Refract's namespace on the hub.
	kubeconfig string       // The kubeconfig for the member; context is the context in this file.
	context    string
	labels     map[string]string
	taints     []string
	role       string
	asTheyAre  bool
	replaces   string // The present name of the member that gets a new name.
	all        bool   // Whether all members get new credentials. Then no cluster joins.
	timeout    time.Duration
}

func newJoinCommand(s *streams) *cobra.Command {
	o := &joinOptions{}
	cmd := &cobra.Command{
		Use:   "join {NAME {--member-context CONTEXT | --replaces OLD} | --renew-all}",
		Short: "Make a cluster a member of the hub",
		Long: `Make a cluster a member of the hub. The command creates an account for Refract on the
member, with a role for its rights, and stores a token of the account in a Secret on the
hub. Refract renews the token before it expires. The command creates a FederatedCluster
on the hub, and waits until the cluster is ready.

The command uses your own rights on both clusters: on the member you need all rights of
the role. --role names a file with a ClusterRole of your own, for fewer rights. With
--existing-credentials the command stores the client certificate or the token of the
kubeconfig unchanged, and creates nothing on the member. If the cluster does not answer,
the command writes nothing to the hub.

A cluster has one name. --replaces changes it: the new name takes over the labels, the
taints, the credentials and all copies of the old one, which is deleted. No copy is written
or deleted. If policies contain only the old name, the command lists them and changes
nothing: add the new name to them, and repeat the command. An interrupted command can be
repeated, too. --replaces needs no context; a given context must lead to the same cluster.

--renew-all gives each member a new token, after the restore of a hub from a backup with
expired tokens. A context belongs to a member if its server is the address that the hub
records, and if it leads to the cluster that the hub records. A member without such a
context gets no token and is listed with the reason; the exit code is then 1. The contexts
are those of --member-kubeconfig, or of the kubeconfig of the hub.

The hub is the current cluster of kubectl, or the cluster of kubectl's flags.
The member is a context of the same kubeconfig, or of another file.`,
		Example: `  refract join eu-1 --context hub --member-context eu-1 --label region=eu
  refract join lab --kubeconfig hub.yaml --member-kubeconfig lab.yaml --taint stage=test:NoSchedule
  refract join eu-west-1 --replaces eu-1
  refract join --renew-all --member-kubeconfig members.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.all {
				return noArgs(cmd, args)
			}
			return oneName("cluster")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return explainMembership(o.run(cmd.Context(), s, strings.Join(args, "")))
		},
	}
	f := cmd.Flags()
	o.cluster.addClusterFlags(cmd, "hub")
	addMemberFlags(cmd, &o.cluster, &o.kubeconfig, &o.context)
	addSystemNamespace(cmd, &o.namespace)
	f.StringToStringVar(&o.labels, "label", nil, "`label` of the cluster, k=v; may be repeated")
	f.StringArrayVar(&o.taints, "taint", nil, "`taint` of the cluster, key=value:Effect or key:Effect; may be repeated")
	f.StringVar(&o.role, "role", "", "`file` with a ClusterRole for the rights of Refract on the member")
	f.BoolVar(&o.asTheyAre, "existing-credentials", false, "store the credentials of the kubeconfig unchanged")
	f.StringVar(&o.replaces, "replaces", "", "`name` of the member to rename")
	f.BoolVar(&o.all, "renew-all", false, "give each member a new token")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "`time` after which to give up; 0 to not wait until the cluster is ready")
	must(cmd.MarkFlagFilename("role", "yaml", "yml"))
	must(cmd.RegisterFlagCompletionFunc("taint", cobra.NoFileCompletions))
	must(cmd.RegisterFlagCompletionFunc("timeout", cobra.NoFileCompletions))
	must(cmd.RegisterFlagCompletionFunc("replaces", completeMember(&o.cluster)))
	cmd.MarkFlagsMutuallyExclusive("role", "existing-credentials", "replaces", "renew-all")
	cmd.MarkFlagsMutuallyExclusive("renew-all", "label")
	cmd.MarkFlagsMutuallyExclusive("renew-all", "taint")
	return cmd
}

// addMemberFlags adds the flags for the kubeconfig of a member.
func addMemberFlags(cmd *cobra.Command, hub *clusterFlags, kubeconfig, context *string) {
	cmd.Flags().StringVar(kubeconfig, "member-kubeconfig", "", "kubeconfig `file` of the member (default: that of the hub)")
	cmd.Flags().StringVar(context, "member-context", "", "`name` of its context in that file (default: the current one)")
	must(cmd.MarkFlagFilename("member-kubeconfig"))
	must(cmd.RegisterFlagCompletionFunc("member-context", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		raw, err := loaderOf(cmp.Or(*kubeconfig, *hub.kubectl.KubeConfig), "").RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(maps.Keys(raw.Contexts)), cobra.ShellCompDirectiveNoFileComp
	}))
}

func (o *joinOptions) run(ctx context.Context, s *streams, name string) error {
	if o.kubeconfig == "" && o.context == "" && o.replaces == "" && !o.all {
		return withHint(errors.New("no member cluster is given"), "--member-context or --member-kubeconfig names it")
	}
	if o.timeout < 0 {
		return fmt.Errorf("--timeout: want 0s or more, got %s", o.timeout)
	}
	taints, err := parseTaints(o.taints)
	if err != nil {
		return err
	}
	rules, err := o.rules()
	if err != nil {
		return err
	}
	return s.limited(ctx, o.timeout, func(ctx context.Context) error { return o.join(ctx, s, name, taints, rules) })
}

// join does what the flags request: it joins a cluster, renames a member, or renews the credentials of all members.
func (o *joinOptions) join(ctx context.Context, s *streams, name string, taints []corev1.Taint, rules []rbacv1.PolicyRule) error {
	hub, err := hubClient(ctx, &o.cluster)
	if err != nil {
		return err
	}
	if o.namespace, err = systemNamespace(ctx, hub, o.namespace, installation.Propagation); err != nil {
		return err
	}
	if o.all {
		return o.renewAll(ctx, s, hub)
	}
	if o.replaces != "" {
		return o.rename(ctx, s, hub, name, taints)
	}
	cfg, err := fileConfig(cmp.Or(o.kubeconfig, *o.cluster.kubectl.KubeConfig), o.context)
	if err != nil {
		return err
	}
	account := &account{s: s, hub: hub, of: name}
	account.writes = func() { s.at(account.mayStay()) }
	if !o.asTheyAre {
		// This check must come before the first write to the cluster.
		if err := member.Joinable(ctx, hub, name, cfg); err != nil {
			return err
		}
		if cfg, err = account.admit(ctx, cfg, rules); err != nil {
			return errors.Join(fmt.Errorf("creating an account for Refract on cluster %q: %w", name, err), account.dismiss(ctx))
		}
	}
	secret := types.NamespacedName{Namespace: o.namespace, Name: name}
	s.at(fmt.Sprintf("it is not known whether cluster %s has joined", name), o.uncertain(secret))
	err = member.Join(ctx, hub, o.namespace, name, cfg, o.labels, taints)
	if errors.Is(err, member.ErrUncertain) {
		return withHint(err, o.uncertain(secret)) // The account is not deleted, because the cluster may have joined.
	}
	if err != nil {
		return errors.Join(err, account.dismiss(ctx))
	}
	s.at(fmt.Sprintf("cluster %s has joined", name), fmt.Sprintf("refract get cluster/%s shows its status", name))
	fmt.Fprintf(s.err, "cluster %s joined; refract get cluster/%s shows its status\n", name, name)
	if o.timeout == 0 {
		return nil
	}
	return o.untilReady(ctx, s, hub, name)
}

// uncertain returns advice for the case that the hub may have stored only a part of the cluster's objects.
func (o *joinOptions) uncertain(secret types.NamespacedName) string {
	hint := fmt.Sprintf("refract get cluster/%s shows whether it has; if not: %s, and repeat the command", secret.Name, deleteSecret(secret))
	if o.asTheyAre {
		return hint
	}
	return hint + fmt.Sprintf(", or delete the account on the cluster: kubectl delete clusterrole %s", installation.MemberAccount)
}

// rules returns the rules in the file of --role; nil without the flag.
func (o *joinOptions) rules() ([]rbacv1.PolicyRule, error) {
	if o.role == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.role)
	if err != nil {
		return nil, fmt.Errorf("--role: %w", err)
	}
	role, problems := manifest.One(o.role, text)
	if len(problems) > 0 {
		return nil, fmt.Errorf("--role: %w", problemsAsError(problems))
	}
	rules, err := installation.RulesOf(role)
	if err != nil {
		return nil, fmt.Errorf("--role %s: %w", o.role, err)
	}
	return rules, nil
}

// account is Refract's account on a member.
type account struct {
	s      *streams
	hub    client.Client
	of     string // The name of the member.
	writes func() // Called before the first write.
	member client.Client
	made   installation.Membership
	begun  bool
}

// admit creates the account on the member, and returns a configuration with its token. After an error,
// [account.dismiss] deletes the objects that admit has created.
func (a *account) admit(ctx context.Context, cfg *rest.Config, rules []rbacv1.PolicyRule) (as *rest.Config, err error) {
	uid, err := identityOf(ctx, a.hub)
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandler = rest.NoWarnings{}
	c, err := watchingClient(cfg)
	if err != nil {
		return nil, err
	}
	a.member, a.made = c, installation.Membership{Hub: uid, Name: a.of}
	token, err := installation.Admit(ctx, c, a.made, rules, func() {
		a.begun = true
		a.writes()
	})
	if err != nil {
		return nil, err
	}
	as = rest.AnonymousClientConfig(cfg)
	as.BearerToken = token
	if err := untilAdmitted(ctx, as); err != nil {
		return nil, err
	}
	fmt.Fprintf(a.s.err, "serviceaccount %s/%s has the rights of clusterrole %s on the cluster\n",
		corev1alpha1.SystemNamespace, installation.MemberAccount, installation.MemberAccount)
	return as, nil
}

// mayStay describes which objects may remain on a cluster that has not joined, and how the user can delete them.
func (a *account) mayStay() (state, remedy string) {
	return fmt.Sprintf("cluster %s has not joined; clusterrole %s with the account of Refract may remain on it", a.of, installation.MemberAccount),
		fmt.Sprintf("repeat the command to continue; to give up, on the cluster: kubectl delete clusterrole %s", installation.MemberAccount)
}

// dismiss deletes the objects that [account.admit] has created, because the cluster does not join. If it fails, the
// error names the objects that may remain.
func (a *account) dismiss(ctx context.Context) error {
	if !a.begun {
		return nil
	}
	a.s.at(a.mayStay())
	err := a.s.clean(ctx, func(ctx context.Context) error { return installation.Undo(ctx, a.member, a.made) })
	if err != nil {
		state, remedy := a.mayStay()
		return withHint(fmt.Errorf("%s: %s", state, err.Error()), remedy)
	}
	a.s.at(fmt.Sprintf("cluster %s has not joined; the new account on it was deleted", a.of), again)
	return nil
}

// untilAdmitted waits until the API server grants the permissions of a new account, but at most for ten seconds. If
// permissions are still missing then, a later step of the join reports the reason.
func untilAdmitted(ctx context.Context, cfg *rest.Config) error {
	c, err := watchingClient(cfg)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := identityOf(ctx, c)
		return !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err), nil
	})
	if ctx.Err() != nil {
		return err
	}
	return nil
}

// identityOf returns the UID of the namespace kube-system, which identifies a cluster.
func identityOf(ctx context.Context, c client.Reader) (types.UID, error) {
	ns := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return ns.UID, nil
}

// untilReady waits until the member is ready. After the timeout it returns an error with the reason why the member is
// not ready.
func (o *joinOptions) untilReady(ctx context.Context, s *streams, hub client.WithWatch, name string) error {
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	why := "the hub has not reported its status"
	err := status.Follow(limited, hub, func(events []status.Event) (bool, error) {
		for _, e := range events {
			fc, ok := e.Object.(*corev1alpha1.FederatedCluster)
			if !ok || e.Gone {
				continue
			}
			c := &status.NewClusters([]corev1alpha1.FederatedCluster{*fc}, nil).Clusters[0]
			problems := c.Problems()
			if len(problems) == 0 {
				return true, nil
			}
			why = problems[0]
		}
		return false, nil
	}, status.Member(name))
	if errors.Is(err, context.DeadlineExceeded) {
		return withHint(fmt.Errorf("cluster %q has joined, but is not ready after %s: %s", name, o.timeout, why),
			"refract check shows whether Refract runs on the hub")
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(s.err, "cluster %s is ready\n", name)
	return nil
}

// taintEffects are the effects that placement supports.
var taintEffects = []string{string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)}

// parseTaints parses taints in kubectl's format.
func parseTaints(texts []string) ([]corev1.Taint, error) {
	taints := make([]corev1.Taint, len(texts))
	for i, text := range texts {
		subject, effect, ok := strings.Cut(text, ":")
		key, value, _ := strings.Cut(subject, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--taint: want key=value:Effect or key:Effect, got %q", text)
		}
		if !slices.Contains(taintEffects, effect) {
			hint := "it is one of " + strings.Join(taintEffects, ", ")
			if near := nearest.To(effect, taintEffects); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			return nil, withHint(fmt.Errorf("--taint: there is no effect %q", effect), hint)
		}
		problems := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value))
		if len(problems) > 0 {
			return nil, fmt.Errorf("--taint %s: %s", text, problems[0])
		}
		taints[i] = corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	}
	return taints, nil
}

// must panics if there is an error. Such an error is a bug in the program.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// oneName requires exactly one argument: a name. The argument what is the word for the named thing in errors.
func oneName(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return withHint(fmt.Errorf("%s takes the name of one %s, got %d arguments", cmd.CommandPath(), what, len(args)),
			fmt.Sprintf("%s --help shows the usage", cmd.CommandPath()))
	}
}

// explainMembership adds advice to an error about a member.
func explainMembership(err error) error {
	if errors.Is(err, member.ErrNoCRDs) {
		return withHint(err, "start `refract run` against the hub once: it installs the CustomResourceDefinitions")
	}
	if errors.Is(err, member.ErrJoined) {
		return withHint(err, "remove it with refract unjoin first, or choose another name")
	}
	if second, ok := errors.AsType[*member.SecondNameError](err); ok {
		return withHint(err, fmt.Sprintf("refract join %s --replaces %s renames it", second.Name, second.Served))
	}
	if errors.Is(err, member.ErrUnidentified) {
		return withHint(err, "it does when the cluster is ready: refract get clusters shows why it is not")
	}
	if errors.Is(err, member.ErrAnotherCluster) {
		return withHint(err, "--replaces renames a cluster; join a new cluster without it")
	}
	if errors.Is(err, member.ErrNotJoined) {
		return withHint(err, "refract get clusters lists the members")
	}
	if errors.Is(err, member.ErrLeftSecret) {
		return withHint(err, "delete it if nothing needs it, or choose another name")
	}
	return err
}
