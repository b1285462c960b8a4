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
	"refract.dev/fleet/member"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/status"
	"refract.dev/internal/output"
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
		Short: "Approve held deletions and placement changes",
		Long: `Approve held deletions and placement changes.

With the name of a cluster, the command approves held deletions on that cluster.
Refract holds deletions if many copies of a namespace on a cluster are due for
deletion at once although no user deleted their objects on the hub, for example after
a restore of the hub from an old backup, or after a policy was emptied by mistake.
The condition DeletionsHeld of the FederatedCluster lists the namespaces and causes.

The command lists the held deletions, asks for confirmation, and approves exactly
these. Deletions held later need another approval. For copies without a report on the
hub, for example after a restore, it shows only their number and namespaces: only the
cluster knows their names.

Refract also holds the deletion of each copy that holds data, unless a user deleted
that very object on the hub: copies of volumes (PersistentVolumeClaims and
PersistentVolumes), and copies protected by the annotation refract.dev/keep or by
refract run --keep-kinds. They need a second confirmation, or --delete-volumes: --yes
alone approves the others.

With a PropagationPolicy or ClusterPropagationPolicy, the command approves a placement
change of its objects. A change is held if one decision would remove an object from
more than 30 % and more than two of its clusters, or would add clusters because the
policy no longer names or selects any. The approval covers the listed change, once.
After another change of the policy, or of the clusters that it chooses, the objects
need another approval. So do objects held later.

With another object, the command approves the change of that object alone: its new
placement, or the deletion of its copies after the loss of its label.

Without a terminal, the command lists the changes, and approves them only with --yes.`,
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
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask for confirmation")
	addDeleteVolumes(cmd, &o.deleteVolumes)
	cmd.ValidArgsFunction = completeMember(&o.cluster)
	return cmd
}

func addDeleteVolumes(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVar(yes, "delete-volumes", false, "also delete copies that hold data, such as those of volumes")
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
	fmt.Fprintf(s.err, "approved; refract get cluster/%s shows the progress\n", name)
	return nil
}

// choose asks which deletions the user approves, and returns the token for the approval. There is one token for all
// copies, and one for the copies without data. choose returns "" if the user approves nothing.
func (o *approveOptions) choose(s *streams, held *corev1alpha1.DeletionsHeld) (string, error) {
	kept, others := int(held.HoldData), held.OthersToken
	switch {
	case kept > 0 && others == "" && o.yes && !o.deleteVolumes:
		return "", withHint(fmt.Errorf("--yes alone does not approve the deletion of %s", keptCopies(kept)), "add --delete-volumes")
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

// keptCopies returns the number of copies that hold data, as text. They are deleted only after an explicit approval.
func keptCopies(n int) string {
	return output.Count(n, "copy that holds data", "copies that hold data")
}

func explainApproval(err error) error {
	if errors.Is(err, member.ErrPendingChanged) {
		return withHint(err, "run refract approve again")
	}
	return explainMembership(err)
}

// writeHeld lists the deletions that await approval on the cluster. The total comes from the status of the cluster,
// because the approval covers all deletions in this status. It also covers copies that no report on the hub names.
func writeHeld(w io.Writer, objects []*status.Object, cluster string, held *corev1alpha1.DeletionsHeld) {
	listed := awaitingApproval(objects, cluster)
	fmt.Fprintf(w, "%d of %s on %s await deletion", held.Copies, output.Count(int(held.Of), "copy", "copies"), cluster)
	if held.HoldData > 0 {
		fmt.Fprintf(w, " (%s: %d)", member.DataCopies, held.HoldData)
	}
	fmt.Fprintln(w, ":")
	writeGrouped(w, listed)
	switch more, which := int(held.Copies)-len(listed), member.PendingGroups(held); {
	case more > 0 && which != "":
		fmt.Fprintf(w, "  and %d without a report on the hub; in total: %s\n", more, which)
	case more > 0:
		fmt.Fprintf(w, "  and %d without a report on the hub\n", more)
	}
}

// awaitingApproval returns the objects whose copies on the cluster are deleted only after an approval.
func awaitingApproval(objects []*status.Object, cluster string) (held []*status.Object) {
	for _, o := range objects {
		if r := o.Row(cluster); r != nil && status.Holds(r) && r.State == refractv1alpha1.StateDeleting && r.Reason == refractv1alpha1.ReasonAwaitingApproval {
			held = append(held, o)
		}
	}
	return held
}

// copiesOn returns the objects that have copies on the cluster.
func copiesOn(objects []*status.Object, cluster string) []*status.Object {
	var on []*status.Object
	for _, o := range objects {
		if r := o.Row(cluster); r != nil && status.Holds(r) {
			on = append(on, o)
		}
	}
	return on
}

// mostGroups is the maximum number of lines in a list of objects.
const mostGroups = 20

// writeGrouped lists objects in one line for each kind and namespace.
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
