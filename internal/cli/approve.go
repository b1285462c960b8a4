package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/member"
	"refract.dev/internal/offline/render"
	"refract.dev/internal/output"
	"refract.dev/internal/status"
)

// approveOptions are the flags of approve.
type approveOptions struct {
	cluster       clusterFlags
	yes           bool
	deleteVolumes bool
}

func newApproveCommand(s *streams) *cobra.Command {
	o := &approveOptions{}
	cmd := &cobra.Command{
		Use:   "approve CLUSTER | KIND/[NAMESPACE/]NAME",
		Short: "Approve deletions and changes of placements that wait for it",
		Long: `Approve deletions and changes of placements that wait for it.

With the name of a cluster, it lets deletions go on there. When many of the copies of a namespace
on a cluster are to go at once that nobody has deleted on the hub, as they are after
it was restored from an old backup or a policy was emptied by mistake, none of them
is removed until somebody has looked: the condition DeletionsHeld of the
FederatedCluster says so, with namespaces and causes.

This command lists what is to go, asks, and approves exactly that. What comes to be
held later must be approved again. Of copies that the hub has no report on, as after
it was restored, it says how many there are, and of which namespaces: their names
are known to the cluster alone.

Copies that hold data are held back one by one, unless a user deleted exactly their
object on the hub: those of volumes (PersistentVolumeClaims and PersistentVolumes),
and those that the annotation refract.dev/keep or refract run --keep-kinds protects.
They need a second answer, or --delete-volumes: --yes alone approves the others.

With a PropagationPolicy or ClusterPropagationPolicy, it approves a change of the
placement of its objects. An object that would leave more than 30 % and more than
two of its clusters in one decision stays where it is until that is approved. So
does one that would come to further clusters because the policy names and selects
none any more. What is approved is the change as it is listed, once: after another
change of the policy, or of the clusters that it chooses, the objects wait for
another approval. So do objects that begin to wait later.

With another object, it approves the change for that object alone: of its placement,
or that its copies go as it has lost its label.

Without a terminal it lists, and approves only with --yes.`,
		Example: `  refract approve eu-1
  refract approve eu-1 --yes
  refract approve eu-1 --yes --delete-volumes
  refract approve propagationpolicy/shop/all
  refract approve deployment/shop/web`,
		Args: oneName("cluster, policy or object"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.Contains(args[0], "/") {
				return o.runPlacement(cmd.Context(), s, args[0])
			}
			return o.run(cmd.Context(), s, args[0])
		},
	}
	o.cluster.addClusterFlags(cmd, "hub")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	addDeleteVolumes(cmd, &o.deleteVolumes)
	cmd.ValidArgsFunction = completeMember(&o.cluster)
	return cmd
}

func addDeleteVolumes(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVar(yes, "delete-volumes", false, "delete copies that hold data as well, as those of volumes")
}

func (o *approveOptions) run(ctx context.Context, s *streams, name string) error {
	c, err := hubClient(ctx, &o.cluster)
	if err != nil {
		return err
	}
	fc, err := member.Find(ctx, c, name)
	if err != nil {
		return explainMembership(err)
	}
	held := fc.Status.DeletionsHeld
	if held == nil {
		return fmt.Errorf("cluster %q: %w", name, member.ErrNotPending)
	}
	done := fc.Annotations[refractv1alpha1.ApproveAnnotation]
	if done == held.Token || done != "" && done == held.OthersToken && o.yes && !o.deleteVolumes {
		fmt.Fprintf(s.err, "the deletions on %s are approved already\n", name)
		return nil
	}
	objects, err := reported(ctx, c, "")
	if err != nil {
		return err
	}
	writeHeld(s.out, objects, name, held)
	token, err := o.choose(s, held)
	switch {
	case err != nil:
		return err
	case token == "":
		fmt.Fprintln(s.err, "nothing was approved")
		return nil
	}
	if err := member.Approve(ctx, c, name, token); err != nil {
		return explainApproval(err)
	}
	fmt.Fprintf(s.err, "approved; refract get cluster/%s says how it goes\n", name)
	return nil
}

// choose returns the token of what the user wants to be deleted: the token of all, or that of the others, which are not kept;
// empty if nothing.
func (o *approveOptions) choose(s *streams, held *corev1alpha1.DeletionsHeld) (string, error) {
	kept, others := int(held.HoldData), held.OthersToken
	switch {
	case kept > 0 && others == "" && o.yes && !o.deleteVolumes:
		return "", withHint(fmt.Errorf("--yes alone does not approve the deletion of %s", keptCopies(kept)), "--delete-volumes does")
	case !o.yes && (kept == 0 || others != "" || o.deleteVolumes):
		if yes, err := confirm(s, "Delete them?"); err != nil || !yes {
			return "", err
		}
	}
	deletes := kept == 0 || o.deleteVolumes
	if !deletes && !o.yes {
		yes, err := confirm(s, fmt.Sprintf("Delete %s, and the data?", keptCopies(kept)))
		if err != nil {
			return "", err
		}
		deletes = yes
	}
	if deletes {
		return held.Token, nil
	}
	if others != "" {
		left := output.Count(kept, "copy that holds data stays; --delete-volumes deletes it", "copies that hold data stay; --delete-volumes deletes them")
		fmt.Fprintln(s.err, left)
	}
	return others, nil
}

// keptCopies counts copies that are deleted only if somebody says so of them.
func keptCopies(n int) string {
	return output.Count(n, "copy that holds data", "copies that hold data")
}

func explainApproval(err error) error {
	if errors.Is(err, member.ErrPendingChanged) {
		return withHint(err, "look again with refract approve")
	}
	return explainMembership(err)
}

// writeHeld lists what is held back on the cluster. How much that is, the cluster's status
// says: what is approved is what it tells of, and the hub may have no report on some of it.
func writeHeld(w io.Writer, objects []*status.Object, cluster string, held *corev1alpha1.DeletionsHeld) {
	listed := awaitingApproval(objects, cluster)
	fmt.Fprintf(w, "%d of %s on %s are to go", held.Copies, output.Count(int(held.Of), "copy", "copies"), cluster)
	if held.HoldData > 0 {
		fmt.Fprintf(w, " (%s: %d)", member.DataCopies, held.HoldData)
	}
	fmt.Fprintln(w, ":")
	writeGrouped(w, listed)
	switch more, which := int(held.Copies)-len(listed), member.PendingGroups(held); {
	case more > 0 && which != "":
		fmt.Fprintf(w, "  and %d that the hub has no report on; together: %s\n", more, which)
	case more > 0:
		fmt.Fprintf(w, "  and %d that the hub has no report on\n", more)
	}
}

// awaitingApproval returns the objects whose copies on the cluster are held back.
func awaitingApproval(objects []*status.Object, cluster string) (held []*status.Object) {
	for _, o := range objects {
		if r := o.Row(cluster); r != nil && status.Holds(r) && r.State == refractv1alpha1.StateDeleting && r.Reason == refractv1alpha1.ReasonAwaitingApproval {
			held = append(held, o)
		}
	}
	return held
}

// copiesOn returns the objects that the cluster has copies of.
func copiesOn(objects []*status.Object, cluster string) []*status.Object {
	var on []*status.Object
	for _, o := range objects {
		if r := o.Row(cluster); r != nil && status.Holds(r) {
			on = append(on, o)
		}
	}
	return on
}

// mostGroups is how many lines a list of objects has at most.
const mostGroups = 20

// writeGrouped lists objects: a line for each kind and namespace.
func writeGrouped(w io.Writer, objects []*status.Object) {
	names := map[string][]string{}
	var groups []string
	for _, o := range objects {
		group := strings.TrimSuffix(o.String(), "/"+o.Name)
		if names[group] == nil {
			groups = append(groups, group)
		}
		names[group] = append(names[group], o.Name)
	}
	slices.Sort(groups)
	for i, group := range groups {
		if i == mostGroups-1 && len(groups) > mostGroups {
			rest := 0
			for _, group := range groups[i:] {
				rest += len(names[group])
			}
			fmt.Fprintf(w, "  and %d more\n", rest)
			return
		}
		fmt.Fprintf(w, "  %s: %s\n", group, render.Few(names[group]))
	}
}
