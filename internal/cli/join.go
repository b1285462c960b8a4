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
	"refract.dev/internal/installation"
	"refract.dev/internal/member"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/manifest/nearest"
	"refract.dev/internal/status"
)

// joinOptions are the flags of join.
type joinOptions struct {
	cluster    clusterFlags // The hub,
	namespace  string       // and that of Refract there.
	kubeconfig string       // Of the member, and the context in it.
	context    string
	labels     map[string]string
	taints     []string
	role       string
	asTheyAre  bool
	replaces   string // The name that the cluster has.
	all        bool   // Whether all members get new credentials, and none joins.
	timeout    time.Duration
}

func newJoinCommand(s *streams) *cobra.Command {
	o := &joinOptions{}
	cmd := &cobra.Command{
		Use:   "join {NAME {--member-context CONTEXT | --replaces OLD} | --renew-all}",
		Short: "Make a cluster a member of the hub",
		Long: `Make a cluster a member of the hub. On the member an account is made for Refract, with
a role that says what it may do there, and a token of that account is stored in a Secret
on the hub. Refract renews it before it ends. A FederatedCluster on the hub says how to
use it, and the command waits until the cluster is ready.

It takes your own rights, on both clusters: on the member those to give out what the
role says. --role names a file with a ClusterRole of your own, for less. With
--existing-credentials the client certificate or the token of the kubeconfig is stored as
it is, and nothing is made on the member. Nothing is written to the hub for a cluster
that does not answer.

A cluster has one name. --replaces gives it another one: the new name takes over the labels,
the taints, the credentials and all copies of the old one, which is deleted. No copy is
written or deleted. Policies that name the old name, and not the new one, are listed first and
nothing is done: add the new name to them, and repeat the command. It can be repeated, too,
if it was interrupted. With --replaces no context is needed; if one is given, it must lead to
the same cluster.

--renew-all gives each member a new token, after the hub was restored from a backup whose tokens
have expired. A context belongs to a member if its server is the address that the hub records,
and if the cluster that answers is the one that the hub records. A member of which that is not
true gets nothing and is listed, with the reason; the exit code is then 1. Contexts are those of
--member-kubeconfig, or of the kubeconfig of the hub.

The hub is the cluster that kubectl would ask, or that the flags of kubectl name.
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
	f.StringVar(&o.role, "role", "", "`file` with a ClusterRole that says what Refract may do on the member")
	f.BoolVar(&o.asTheyAre, "existing-credentials", false, "store the credentials of the kubeconfig as they are")
	f.StringVar(&o.replaces, "replaces", "", "`name` of a member that gets the new name")
	f.BoolVar(&o.all, "renew-all", false, "give each member a new token")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "`time` after which to give up, whether the cluster is ready or not; 0 to not wait for that")
	must(cmd.MarkFlagFilename("role", "yaml", "yml"))
	must(cmd.RegisterFlagCompletionFunc("taint", cobra.NoFileCompletions))
	must(cmd.RegisterFlagCompletionFunc("timeout", cobra.NoFileCompletions))
	must(cmd.RegisterFlagCompletionFunc("replaces", completeMember(&o.cluster)))
	cmd.MarkFlagsMutuallyExclusive("role", "existing-credentials", "replaces", "renew-all")
	cmd.MarkFlagsMutuallyExclusive("renew-all", "label")
	cmd.MarkFlagsMutuallyExclusive("renew-all", "taint")
	return cmd
}

// addMemberFlags adds those that name the kubeconfig of a member.
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
		return withHint(errors.New("no cluster is named that is to join"), "--member-context or --member-kubeconfig names it")
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

// join does what the flags say.
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
		// Before anything is made on it.
		if err := member.Joinable(ctx, hub, name, cfg); err != nil {
			return err
		}
		if cfg, err = account.admit(ctx, cfg, rules); err != nil {
			return errors.Join(fmt.Errorf("making an account for Refract on cluster %q: %w", name, err), account.dismiss(ctx))
		}
	}
	secret := types.NamespacedName{Namespace: o.namespace, Name: name}
	s.at(fmt.Sprintf("it is not known whether cluster %s has joined", name), o.uncertain(secret))
	err = member.Join(ctx, hub, o.namespace, name, cfg, o.labels, taints)
	if errors.Is(err, member.ErrUncertain) {
		return withHint(err, o.uncertain(secret)) // The account may be needed.
	}
	if err != nil {
		return errors.Join(err, account.dismiss(ctx))
	}
	s.at(fmt.Sprintf("cluster %s has joined", name), fmt.Sprintf("refract get cluster/%s says how it is", name))
	fmt.Fprintf(s.err, "cluster %s joined; refract get cluster/%s says how it is\n", name, name)
	if o.timeout == 0 {
		return nil
	}
	return o.untilReady(ctx, s, hub, name)
}

// uncertain is what to do if it is not known whether the hub has written all of a cluster.
func (o *joinOptions) uncertain(secret types.NamespacedName) string {
	hint := fmt.Sprintf("refract get cluster/%s says whether it has; if not: %s, and give the command again", secret.Name, deleteSecret(secret))
	if o.asTheyAre {
		return hint
	}
	return hint + fmt.Sprintf(", or take the account away from the cluster: kubectl delete clusterrole %s", installation.MemberAccount)
}

// rules are those of the file that --role names; nil without.
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

// account is that of Refract on a member.
type account struct {
	s      *streams
	hub    client.Client
	of     string // The name of the member.
	writes func() // Called before something is written.
	member client.Client
	made   installation.Membership
	begun  bool
}

// admit makes the account on the member, and returns how to reach the member as that account. What it has made when it
// fails, [account.dismiss] takes away again.
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
	fmt.Fprintf(a.s.err, "serviceaccount %s/%s may do on the cluster what clusterrole %s says\n",
		corev1alpha1.SystemNamespace, installation.MemberAccount, installation.MemberAccount)
	return as, nil
}

// mayStay says what a cluster may have that did not join, and how it is taken away by hand.
func (a *account) mayStay() (state, remedy string) {
	return fmt.Sprintf("cluster %s has not joined; clusterrole %s with the account of Refract may stay on it", a.of, installation.MemberAccount),
		fmt.Sprintf("the same command goes on from there; to give up, on the cluster: kubectl delete clusterrole %s", installation.MemberAccount)
}

// dismiss takes away what [account.admit] has made, if anything, as the cluster does not join. The error says what stays.
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
	a.s.at(fmt.Sprintf("cluster %s has not joined; the account that was made on it was taken away again", a.of), again)
	return nil
}

// untilAdmitted returns when the API server knows what a new account may do, which takes it a
// moment, or after ten seconds: who may not by then is told why when the cluster joins.
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

// identityOf returns what a cluster is known by: the UID of the namespace that each has one of.
func identityOf(ctx context.Context, c client.Reader) (types.UID, error) {
	ns := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return ns.UID, nil
}

// untilReady waits until the cluster is ready, and says why it is not if it is not in time.
func (o *joinOptions) untilReady(ctx context.Context, s *streams, hub client.WithWatch, name string) error {
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	why := "the hub has not told how it is"
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
		return withHint(fmt.Errorf("cluster %q has joined, and is not ready after %s: %s", name, o.timeout, why),
			"refract check says whether Refract runs on the hub")
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(s.err, "cluster %s is ready\n", name)
	return nil
}

// taintEffects are those that placement knows.
var taintEffects = []string{string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)}

// parseTaints reads taints as kubectl takes them.
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

// must is for errors of the program, not of its user.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// oneName takes exactly one argument, the name of what.
func oneName(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return withHint(fmt.Errorf("%s takes the name of one %s, got %d arguments", cmd.CommandPath(), what, len(args)),
			fmt.Sprintf("%s --help says what it takes", cmd.CommandPath()))
	}
}

// explainMembership adds what to do.
func explainMembership(err error) error {
	if errors.Is(err, member.ErrNoCRDs) {
		return withHint(err, "start `refract run` against the hub once: it installs what is needed")
	}
	if errors.Is(err, member.ErrJoined) {
		return withHint(err, "refract unjoin takes it out first, or choose another name")
	}
	if second, ok := errors.AsType[*member.SecondNameError](err); ok {
		return withHint(err, fmt.Sprintf("refract join %s --replaces %s gives it the new name", second.Name, second.Served))
	}
	if errors.Is(err, member.ErrUnidentified) {
		return withHint(err, "it does as soon as the cluster is ready: refract get clusters says why it is not")
	}
	if errors.Is(err, member.ErrAnotherCluster) {
		return withHint(err, "--replaces gives one cluster another name; a new cluster joins without it")
	}
	if errors.Is(err, member.ErrNotJoined) {
		return withHint(err, "refract get clusters lists the members")
	}
	if errors.Is(err, member.ErrLeftSecret) {
		return withHint(err, "delete it if nothing needs it, or choose another name")
	}
	return err
}
