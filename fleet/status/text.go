package status

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/render"
	"refract.dev/internal/output"
	"refract.dev/tree"
)

// Text writes text for users. Successive tables of one Text have aligned columns.
type Text struct {
	// Now is the current time, for ages.
	Now time.Time
	// Width is the maximum number of characters in a line; 0 for no bound.
	Width int

	table    table
	clusters []string
	folded   bool
	rollouts bool // Whether an object had a rollout in progress.
}

// Statuses of an object on a cluster in one word. The variable words has them in order: good, in progress, failed.
const (
	wordReady  = "Ready"
	wordSynced = string(refractv1alpha1.StateSynced)
	// wordUnready means that a copy is synced, but cannot become ready.
	wordUnready = "Unready"
)

var words = []string{
	wordReady, wordSynced, string(refractv1alpha1.StatePending), string(refractv1alpha1.StateDeleting),
	string(refractv1alpha1.StateDrifted), string(refractv1alpha1.StateOffline), wordUnready, string(refractv1alpha1.StateFailed),
}

// word returns the status of an object on a cluster in one word.
func word(r *refractv1alpha1.ClusterStatus) string {
	switch {
	case r == nil:
		return none
	case r.State != refractv1alpha1.StateSynced:
		return string(r.State)
	case r.Readiness == refractv1alpha1.ReadinessReady:
		return wordReady
	case r.Readiness == refractv1alpha1.ReadinessFailed:
		return wordUnready
	default:
		return wordSynced
	}
}

// mostColumns is the maximum number of clusters with a column each.
const mostColumns = 8

// Objects writes a table with a line for each object and a column for each cluster of these objects, or one summary
// column if there are too many clusters. The changes of placements that wait for approval come after the table.
func (t *Text) Objects(w io.Writer, o *Objects) error {
	if err := t.objects(w, o); err != nil {
		return err
	}
	return writeHeld(w, o.Objects)
}

// writeHeld writes a line for each change of a placement that waits for approval.
func writeHeld(w io.Writer, objects []*Object) error {
	names := map[string][]string{}
	var changes []string
	for _, o := range objects {
		if reason := inTheWay(o.Status); o.Status.Held != nil && reason != "" {
			if names[reason] == nil {
				changes = append(changes, reason)
			}
			names[reason] = append(names[reason], o.String())
		}
	}
	for _, change := range changes {
		if _, err := fmt.Fprintf(w, "%s: %s\n", render.Few(names[change]), change); err != nil {
			return err
		}
	}
	return nil
}

func (t *Text) objects(w io.Writer, o *Objects) error {
	for _, object := range o.Objects {
		for i := range object.Status.Clusters {
			if name := object.Status.Clusters[i].Name; !slices.Contains(t.clusters, name) {
				t.clusters = append(t.clusters, name)
			}
		}
	}
	slices.Sort(t.clusters)
	if !t.folded {
		header, rows := t.matrix(o.Objects, t.clusters)
		t.folded = len(t.clusters) > mostColumns || (t.Width > 0 && widthOf(append(rows, header)) > t.Width)
		if !t.folded {
			return t.table.write(w, header, rows)
		}
	}
	header, rows := t.matrix(o.Objects, nil)
	header = append(header, "CLUSTERS")
	for i := range rows {
		rows[i] = append(rows[i], summary(o.Objects[i].Status.Clusters))
	}
	return t.table.write(w, header, rows)
}

func (t *Text) matrix(objects []*Object, clusters []string) (header []string, rows [][]string) {
	header = []string{"OBJECT", "PLACED", "SYNCED", "READY", "VARIANTS", "AGE"}
	t.rollouts = t.rollouts || slices.ContainsFunc(objects, func(o *Object) bool { return WaveOf(o.Status.Rollout) != "" })
	if t.rollouts {
		header = append(header, "WAVE")
	}
	header = append(header, clusters...)
	names := Names(objects)
	for i, o := range objects {
		s := o.Status
		row := []string{names[i], number(s.Placed), number(s.Synced), number(s.Ready), number(s.VariantCount), t.age(o.Created)}
		if t.rollouts {
			row = append(row, cmp.Or(WaveOf(s.Rollout), none))
		}
		for _, name := range clusters {
			row = append(row, word(o.Row(name)))
		}
		rows = append(rows, row)
	}
	return header, rows
}

func number(n int32) string { return strconv.Itoa(int(n)) }

func (t *Text) age(since metav1.Time) string {
	if since.IsZero() {
		return none
	}
	return duration.HumanDuration(t.Now.Sub(since.Time))
}

// summary counts the clusters by status, and names those with a problem or work in progress.
func summary(rows []refractv1alpha1.ClusterStatus) string {
	names := map[string][]string{}
	for i := range rows {
		names[word(&rows[i])] = append(names[word(&rows[i])], rows[i].Name)
	}
	var parts []string
	for _, word := range words {
		if len(names[word]) == 0 {
			continue
		}
		part := fmt.Sprintf("%d %s", len(names[word]), strings.ToLower(word))
		if word != wordReady && word != wordSynced {
			part += ": " + render.Few(names[word])
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, "; ")
}

// Details writes the complete status of each object, with a line for each cluster.
func (t *Text) Details(w io.Writer, o *Objects) error {
	out := bufio.NewWriter(w)
	for i, object := range o.Objects {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := t.detail(out, object); err != nil {
			return err
		}
	}
	return out.Flush()
}

func (t *Text) detail(out io.Writer, o *Object) error {
	s := o.Status
	fmt.Fprintf(out, "%s: %d of %s synced, %d ready, %s", o, s.Synced, output.Count(int(s.Placed), "cluster", "clusters"),
		s.Ready, output.Count(int(s.VariantCount), "variant", "variants"))
	if p := s.PropagationPolicy; p != nil {
		fmt.Fprintf(out, ", placed by %s", policyName(p))
	}
	fmt.Fprintln(out)
	for _, note := range aboutAll(s) {
		fmt.Fprintf(out, "  %s\n", note)
	}
	if len(s.Clusters) == 0 {
		return nil
	}
	rows := make([][]string, len(s.Clusters))
	for i := range s.Clusters {
		r := &s.Clusters[i]
		rows[i] = []string{
			r.Name, string(r.State), cmp.Or(string(r.Readiness), none), replicas(r.Replicas), generation(r.Generation),
			cmp.Or(r.Hash[:min(len(r.Hash), shortHash)], none), cmp.Or(r.Reason, none), oneLine(cmp.Or(r.Message, r.ReadinessMessage)),
		}
	}
	columns := &table{}
	if err := columns.write(out, []string{"CLUSTER", "STATE", "READY", "REPLICAS", "GENERATION", "HASH", "REASON", "MESSAGE"}, rows); err != nil {
		return err
	}
	for i := range s.Clusters {
		for _, note := range t.aboutOne(&s.Clusters[i]) {
			fmt.Fprintf(out, "  %s: %s\n", s.Clusters[i].Name, note)
		}
	}
	return nil
}

func policyName(p *refractv1alpha1.PolicyReference) string {
	return tree.Policy{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}.String()
}

// shortHash is the number of shown characters of a hash, enough to compare hashes.
const shortHash = 8

func replicas(n *int64) string {
	if n == nil {
		return none
	}
	return strconv.FormatInt(*n, 10)
}

func generation(n int64) string {
	if n == 0 {
		return none // The kind has no generation, or the cluster has no copy.
	}
	return strconv.FormatInt(n, 10)
}

// oneLine replaces line breaks in a message, which would break a table.
func oneLine(message string) string { return strings.Join(strings.Fields(message), " ") }

// aboutAll returns the notes about the object on all clusters.
func aboutAll(s *refractv1alpha1.PropagationStatus) []string {
	var notes []string
	if reason := inTheWay(s); reason != "" {
		notes = append(notes, reason)
	}
	for _, p := range s.DeletedPolicies {
		notes = append(notes, "~ "+policyName(&p)+" is deleted: its changes were reverted")
	}
	for _, warning := range s.Warnings {
		notes = append(notes, "~ "+oneLine(warning))
	}
	if len(s.Follows) > 0 {
		names := make([]string, len(s.Follows))
		for i, f := range s.Follows {
			names[i] = f.Resource + "/" + f.Name
		}
		notes = append(notes, "travels with "+render.Few(names))
	}
	return notes
}

// reasonProgressing is the reason of conditions that only summarize the rows.
const reasonProgressing = "Progressing"

// inTheWay returns the reason why the object is not synced, if no row of a cluster has this reason.
func inTheWay(s *refractv1alpha1.PropagationStatus) string {
	for i := range s.Conditions {
		c := &s.Conditions[i]
		said := func(r refractv1alpha1.ClusterStatus) bool { return r.Reason == c.Reason }
		if c.Type != refractv1alpha1.ConditionSynced || c.Reason == reasonProgressing || slices.ContainsFunc(s.Clusters, said) {
			continue
		}
		if c.Status != metav1.ConditionTrue || s.Placed == 0 {
			return c.Reason + ": " + oneLine(c.Message)
		}
	}
	return ""
}

// aboutOne returns the notes about the object on one cluster.
func (t *Text) aboutOne(r *refractv1alpha1.ClusterStatus) []string {
	var notes []string
	if r.Adopted {
		notes = append(notes, "adopted: the object existed before")
	}
	if d := r.Drift; d != nil {
		notes = append(notes, DriftText(d, t.Now))
	}
	for _, warning := range r.Warnings {
		notes = append(notes, "~ "+oneLine(warning))
	}
	return notes
}

// DriftText describes a correction of a copy in one line; now is the current time.
func DriftText(d *refractv1alpha1.DriftStatus, now time.Time) string {
	note := fmt.Sprintf("corrected %d×, last %s ago", d.Count, (&Text{Now: now}).age(d.Time))
	switch {
	case d.Deleted:
		note += ": deleted"
	case len(d.Fields) > 0:
		note += ": " + render.Few(d.Fields)
	default:
		note += ": changed unobserved"
	}
	if d.Manager != "" {
		note += " by " + d.Manager
	}
	return note
}

// Clusters writes a table with a line for each cluster, followed by the problems. If wide is set, the table has more
// conditions.
func (t *Text) Clusters(w io.Writer, c *Clusters, wide bool) error {
	header := []string{"NAME", "READY", "COPIES", "SYNCED", "FAILED", "TAINTS", "AGE"}
	if wide {
		header = append(header, "JOINED", "OFFLINE", "AUTHORIZED", "DELETIONS-HELD")
	}
	rows := make([][]string, len(c.Clusters))
	for i := range c.Clusters {
		c := &c.Clusters[i]
		rows[i] = []string{
			c.Name, c.status(corev1alpha1.ClusterReady), strconv.Itoa(c.Copies), strconv.Itoa(c.Synced), strconv.Itoa(c.Failed), c.taints(), t.age(c.Created),
		}
		if wide {
			for _, condition := range []corev1alpha1.ClusterConditionType{
				corev1alpha1.ClusterJoined, corev1alpha1.ClusterOffline, corev1alpha1.ClusterAuthorized, corev1alpha1.ClusterDeletionsHeld,
			} {
				rows[i] = append(rows[i], c.status(condition))
			}
		}
	}
	if err := t.table.write(w, header, rows); err != nil {
		return err
	}
	for i := range c.Clusters {
		c := &c.Clusters[i]
		if c.Leaving {
			fmt.Fprintf(w, "  %s: leaves the fleet when its copies are gone\n", c.Name)
		}
		for _, problem := range c.problems() {
			fmt.Fprintf(w, "  %s: %s: %s\n", c.Name, problem.Reason, oneLine(problem.Message))
		}
	}
	return nil
}

// taints returns the taints in the format of kubectl: KEY=VALUE:EFFECT.
func (c *Cluster) taints() string {
	texts := make([]string, len(c.Taints))
	for i := range c.Taints {
		texts[i] = c.Taints[i].ToString()
	}
	return cmp.Or(strings.Join(texts, ","), none)
}
