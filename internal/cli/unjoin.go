package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/status"
	"refract.dev/internal/installation"
	"refract.dev/internal/output"
)

// unjoinOptions are the flags of unjoin.
type unjoinOptions struct {
	cluster   clusterFlags
	namespace string // The namespace of Refract on the hub.
	// The kubeconfig for the member and its context. The user in this kubeconfig deletes Refract's account on the
	// member.
	kubeconfig, context string

	force         bool
	yes           bool
	deleteVolumes bool
	timeout       time.Duration
}

func newUnjoinCommand(s *streams) *cobra.Command {
	o := &unjoinOptions{}
	cmd := &cobra.Command{
		Use:   "unjoin NAME",
		Short: "Remove a cluster from the fleet",
		Long: `Remove a cluster from the fleet: the copies on it are deleted, and then its
FederatedCluster and its Secret on the hub. The account that refract join created on the
cluster is deleted, too, by that account itself, or with your rights by --member-context
or --member-kubeconfig. If there are copies, the command lists them and asks for
confirmation; without a terminal it needs --yes. It shows the number of remaining copies
until all are gone. After an interrupt or a timeout the cluster continues to leave; repeat
the command to wait longer.

Copies that hold data are left to the cluster and are no longer copies: volumes
(PersistentVolumeClaims and PersistentVolumes), and copies that the annotation
refract.dev/keep or refract run --keep-kinds protects. They are deleted only after a
separate question, or with --delete-volumes.
The Secret is deleted if refract join created it for this cluster, and no other uses it.

With --force the command deletes nothing on the cluster and does not wait, for a cluster
that will not come back or keeps its copies. If the cluster joins the same hub again,
Refract takes over the remaining copies. For a cluster with two names, only --force
removes one: the copies belong to the cluster.`,
		Example: `  refract unjoin eu-1
  refract unjoin eu-1 --yes --timeout 1h
  refract unjoin eu-1 --yes --delete-volumes
  refract unjoin eu-1 --force`,
		Args: oneName("cluster"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return explainHub(explainMembership(o.run(cmd.Context(), s, args[0])))
		},
	}
	f := cmd.Flags()
	o.cluster.addClusterFlags(cmd, "hub")
	addMemberFlags(cmd, &o.cluster, &o.kubeconfig, &o.context)
	addSystemNamespace(cmd, &o.namespace)
	f.BoolVar(&o.force, "force", false, "leave the copies on the cluster")
	f.BoolVar(&o.yes, "yes", false, "do not ask for confirmation")
	addDeleteVolumes(cmd, &o.deleteVolumes)
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "`time` after which to give up; the cluster continues to leave, and a repeated command waits longer")
	cmd.ValidArgsFunction = completeMember(&o.cluster)
	must(cmd.RegisterFlagCompletionFunc("timeout", cobra.NoFileCompletions))
	return cmd
}

func (o *unjoinOptions) run(ctx context.Context, s *streams, name string) error {
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout: want more than 0s, got %s", o.timeout)
	}
	return s.limited(ctx, o.timeout, func(ctx context.Context) error { return o.unjoin(ctx, s, name) })
}

// unjoin removes a member from the fleet. If it has copies, unjoin asks for confirmation first.
func (o *unjoinOptions) unjoin(ctx context.Context, s *streams, name string) error {
	c, err := hubClient(ctx, &o.cluster)
	if err != nil {
		return err
	}
	fc, err := member.Find(ctx, c, name)
	if err != nil {
		return err
	}
	if err := listed(fc); err != nil {
		return err
	}
	if o.namespace, err = systemNamespace(ctx, c, o.namespace, installation.Propagation); err != nil {
		return err
	}
	objects, err := reported(ctx, c, "")
	if err != nil {
		return err
	}
	copies := copiesOn(objects, name)
	volumes := volumesAmong(copies)
	if o.force {
		return o.release(ctx, s, c, fc, len(copies))
	}
	if err := onlyName(ctx, c, fc); err != nil {
		return err
	}
	if len(copies) > 0 && !o.yes && fc.DeletionTimestamp == nil {
		fmt.Fprintf(s.out, "%s on %s:\n", output.Count(len(copies), "copy", "copies"), name)
		writeGrouped(s.out, copies)
		switch yes, err := confirm(s, "Delete them, and remove the cluster from the fleet?"); {
		case err != nil:
			return err
		case !yes:
			fmt.Fprintln(s.err, "nothing was changed")
			return nil
		}
		if err := o.askAboutVolumes(s, len(volumes)); err != nil {
			return err
		}
	}
	if len(volumes) > 0 && !o.deleteVolumes {
		fmt.Fprintf(s.err, "%s left to the cluster; --delete-volumes deletes volumes with their data\n", output.Count(len(volumes), "volume is", "volumes are"))
	}
	s.at(fmt.Sprintf("cluster %s may have begun to leave", name), "repeat the command to continue")
	if err := member.ReleaseKept(ctx, c, fc, !o.deleteVolumes); err != nil {
		return err
	}
	if err := member.Leave(ctx, c, fc); err != nil {
		return err
	}
	if err := o.untilLeft(ctx, s, c, fc); err != nil {
		return err
	}
	s.at(o.leftovers(fc))
	o.dismiss(ctx, s, c, fc)
	if err := forget(ctx, s, c, o.namespace, fc); err != nil {
		return err
	}
	fmt.Fprintf(s.err, "cluster %s left\n", name)
	return nil
}

// leftovers describes which objects may remain after a cluster has left, and how the user can delete them.
func (o *unjoinOptions) leftovers(fc *corev1alpha1.FederatedCluster) (state, remedy string) {
	key := types.NamespacedName{Namespace: o.namespace, Name: fc.Spec.SecretRef.Name}
	return fmt.Sprintf("cluster %s has left; its secret %s may remain on the hub, and clusterrole %s with the account of Refract on the cluster",
			fc.Name, key, installation.MemberAccount),
		fmt.Sprintf("%s; on the cluster: kubectl delete clusterrole %s", deleteSecret(key), installation.MemberAccount)
}

// deleteSecret returns the kubectl command that deletes a Secret.
func deleteSecret(key types.NamespacedName) string {
	return fmt.Sprintf("kubectl delete secret -n %s %s", key.Namespace, key.Name)
}

// volumesAmong returns the objects that are volumes.
func volumesAmong(objects []*status.Object) (volumes []*status.Object) {
	for _, o := range objects {
		if placement.IsVolume(schema.GroupResource{Group: o.GroupKind().Group, Resource: o.Resource}) {
			volumes = append(volumes, o)
		}
	}
	return volumes
}

// askAboutVolumes asks whether to delete the volumes too.
func (o *unjoinOptions) askAboutVolumes(s *streams, volumes int) error {
	if volumes == 0 || o.deleteVolumes {
		return nil
	}
	question := fmt.Sprintf("Delete %s with their data, too? Otherwise they stay on the cluster.", output.Count(volumes, "volume", "volumes"))
	yes, err := confirm(s, question)
	o.deleteVolumes = yes
	return err
}

// onlyName returns an error if the member also has another name. Its copies belong to the other name, too, and must not
// be deleted.
func onlyName(ctx context.Context, c client.Reader, fc *corev1alpha1.FederatedCluster) error {
	servedAs, second, err := member.OtherName(ctx, c, fc)
	switch {
	case err != nil:
		return err
	case servedAs != "":
		return withHint(fmt.Errorf("cluster %q is another name of %q: its copies cannot be deleted by this name", fc.Name, servedAs),
			fmt.Sprintf("refract unjoin %s --force removes the name only; refract join %s --replaces %s keeps it in place of the other",
				fc.Name, fc.Name, servedAs))
	case second != "":
		return withHint(fmt.Errorf("cluster %q has another name, or may have one, %q: its copies would be deleted", fc.Name, second),
			fmt.Sprintf("refract join %s --replaces %s renames it; refract unjoin %s --force removes that name first", second, fc.Name, second))
	default:
		return nil
	}
}

// forget deletes the Secret of a cluster that has left. If it cannot delete the Secret, it writes the reason.
func forget(ctx context.Context, s *streams, c client.Client, namespace string, fc *corev1alpha1.FederatedCluster) error {
	err := s.clean(ctx, func(ctx context.Context) error {
		stays, err := member.Forget(ctx, c, namespace, fc)
		if stays != "" {
			fmt.Fprintln(s.err, stays)
		}
		return err
	})
	if err == nil {
		return nil
	}
	key := types.NamespacedName{Namespace: namespace, Name: fc.Spec.SecretRef.Name}
	return withHint(fmt.Errorf("secret %s of cluster %q may remain: %w", key, fc.Name, err), deleteSecret(key))
}

// listed returns an error if the cluster is in an inventory, because it would join again.
func listed(fc *corev1alpha1.FederatedCluster) error {
	from := fc.Annotations[refractv1alpha1.InventoryAnnotation]
	gone := slices.ContainsFunc(fc.Status.Conditions, func(c corev1alpha1.ClusterCondition) bool {
		return c.Type == corev1alpha1.ClusterInInventory && c.Reason == corev1alpha1.ReasonGone
	})
	if from == "" || gone {
		return nil
	}
	return withHint(fmt.Errorf("cluster %q is a member because %s lists it: it would join again", fc.Name, from),
		fmt.Sprintf("delete that first or, if refract run no longer reads it: kubectl annotate federatedcluster %s %s-",
			fc.Name, refractv1alpha1.InventoryAnnotation))
}

// dismiss deletes Refract's account on the member. If that fails, it only writes the error, because the cluster has
// already left.
func (o *unjoinOptions) dismiss(ctx context.Context, s *streams, hub client.Client, fc *corev1alpha1.FederatedCluster) {
	var gone bool
	err := s.clean(ctx, func(ctx context.Context) (err error) {
		gone, err = o.dismissed(ctx, hub, fc)
		return err
	})
	switch {
	case err != nil:
		fmt.Fprintf(s.err, "the account of Refract stays on cluster %s: %v\n", fc.Name, err)
		fmt.Fprintf(s.err, "  with sufficient rights: kubectl delete clusterrole %s\n", installation.MemberAccount)
	case gone:
		fmt.Fprintf(s.err, "clusterrole %s deleted on cluster %s, with its account\n", installation.MemberAccount, fc.Name)
	}
}

func (o *unjoinOptions) dismissed(ctx context.Context, hub client.Client, fc *corev1alpha1.FederatedCluster) (bool, error) {
	cfg, err := o.memberConfig(ctx, hub, fc)
	if err != nil || cfg == nil {
		return false, err
	}
	c, err := watchingClient(cfg)
	if err != nil {
		return false, err
	}
	uid, err := identityOf(ctx, hub)
	if err != nil {
		return false, err
	}
	return installation.Dismiss(ctx, c, installation.Membership{Hub: uid, Name: fc.Name})
}

// memberConfig returns the client configuration for the member: from the flags, or else with the credentials that the
// hub has. If these credentials are not those of an account that Refract has created, it returns nil, because there is
// no account to delete.
func (o *unjoinOptions) memberConfig(ctx context.Context, hub client.Reader, fc *corev1alpha1.FederatedCluster) (*rest.Config, error) {
	if o.kubeconfig != "" || o.context != "" {
		return fileConfig(cmp.Or(o.kubeconfig, *o.cluster.kubectl.KubeConfig), o.context)
	}
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: o.namespace, Name: fc.Spec.SecretRef.Name}
	if err := hub.Get(ctx, key, secret); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	cfg, err := member.Config(fc, secret)
	if err != nil || member.AccountOf(cfg) != (types.NamespacedName{Namespace: corev1alpha1.SystemNamespace, Name: installation.MemberAccount}) {
		return nil, nil //nolint:nilnil,nilerr // Credentials that cannot be read were not created by Refract.
	}
	return cfg, nil
}

// release removes a member from the fleet, and leaves its copies on it.
func (o *unjoinOptions) release(ctx context.Context, s *streams, c client.Client, fc *corev1alpha1.FederatedCluster, copies int) error {
	state, remedy := o.leftovers(fc)
	s.at("it is not known whether "+state, "repeat the command; if it reports that the cluster is not joined: "+remedy)
	if err := member.Release(ctx, c, fc); err != nil {
		return err
	}
	if err := forget(ctx, s, c, o.namespace, fc); err != nil {
		return err
	}
	switch copies {
	case 0:
		fmt.Fprintf(s.err, "cluster %s left\n", fc.Name)
	case 1:
		fmt.Fprintf(s.err, "cluster %s left; 1 copy stays there\n", fc.Name)
	default:
		fmt.Fprintf(s.err, "cluster %s left; %d copies stay there\n", fc.Name, copies)
	}
	return nil
}

// untilLeft waits until the cluster has no copies any more and has left. Meanwhile it approves the deletion of the
// copies.
func (o *unjoinOptions) untilLeft(ctx context.Context, s *streams, c client.WithWatch, fc *corev1alpha1.FederatedCluster) error {
	d := &departure{ctx: ctx, s: s, client: c, cluster: fc, all: o.deleteVolumes, holders: map[types.UID]bool{}}
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	sources := append([]status.Source{status.Member(fc.Name)}, reports("")...)
	err := status.Follow(limited, c, d.see, sources...)
	if errors.Is(err, context.DeadlineExceeded) {
		return withHint(fmt.Errorf("cluster %q has not left after %s: %s", fc.Name, o.timeout, d.remaining()),
			"repeat the command to wait longer; --force leaves the copies on the cluster")
	}
	return err
}

// departure tracks the departure of a cluster.
type departure struct {
	ctx     context.Context //nolint:containedctx // The context of the command. Callbacks need it.
	s       *streams
	client  client.Client
	cluster *corev1alpha1.FederatedCluster
	all     bool // Whether copies that hold data, such as volumes, are deleted, too.

	holders  map[types.UID]bool // The UIDs of the Propagations whose objects still have copies on the cluster.
	begun    bool
	there    bool
	total    int
	left     int
	waits    string // The message of the cluster's condition Joined, if the departure waits.
	approved string
}

// see records the changes of an event, and reports whether the cluster has left.
func (d *departure) see(events []status.Event) (bool, error) {
	for _, e := range events {
		if fc, ok := e.Object.(*corev1alpha1.FederatedCluster); ok {
			if fc.UID != d.cluster.UID {
				continue // A new cluster with the same name has joined.
			}
			if d.there = !e.Gone; d.there {
				d.waits = waitsFor(fc)
				if err := d.approve(fc); err != nil {
					return false, err
				}
			}
			continue
		}
		delete(d.holders, e.Object.GetUID())
		o, ok := status.ObjectOf(e.Object)
		if !ok || e.Gone {
			continue
		}
		if r := o.Row(d.cluster.Name); r != nil && status.Holds(r) {
			d.holders[e.Object.GetUID()] = true
		}
	}
	d.tell()
	return !d.there, nil
}

// waitsFor returns the reason why the departure of a cluster does not continue; empty if it does.
func waitsFor(fc *corev1alpha1.FederatedCluster) string {
	at := slices.IndexFunc(fc.Status.Conditions, func(c corev1alpha1.ClusterCondition) bool {
		return c.Type == corev1alpha1.ClusterJoined && c.Reason == "Leaving"
	})
	if at < 0 {
		return ""
	}
	return fc.Status.Conditions[at].Message
}

// remaining describes what delays the departure. The condition of the cluster has more information than the
// Propagations: it includes copies whose objects do not exist on the hub any more, and finalizers of copies.
func (d *departure) remaining() string {
	return cmp.Or(d.waits, output.Count(len(d.holders), "copy is left", "copies are left"))
}

// tell writes the number of remaining copies if it has changed.
func (d *departure) tell() {
	left := len(d.holders)
	d.total = max(d.total, left)
	if d.there && (!d.begun || left != d.left) && d.total > 0 {
		fmt.Fprintf(d.s.err, "%d of %s left\n", left, output.Count(d.total, "copy", "copies"))
	}
	d.begun, d.left = true, left
}

// approve approves the deletions that need an approval.
func (d *departure) approve(fc *corev1alpha1.FederatedCluster) error {
	held := fc.Status.DeletionsHeld
	if held == nil {
		return nil
	}
	token := held.Token
	if held.HoldData > 0 && !d.all {
		token = held.OthersToken
	}
	if token == "" || token == d.approved {
		return nil
	}
	err := member.Approve(d.ctx, d.client, fc.Name, token)
	if errors.Is(err, member.ErrNotPending) || errors.Is(err, member.ErrPendingChanged) || errors.Is(err, member.ErrNotJoined) {
		return nil // The token has changed in the meantime. A later event has the new one.
	}
	d.approved = token
	return err
}
