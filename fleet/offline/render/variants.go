package render

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/override"
	"refract.dev/internal/output"
)

// WriteVariants writes for each object the groups of clusters with the same content, with the changes and their
// authors, and then a line with the totals.
func WriteVariants(w io.Writer, e *Evaluation) error {
	out := bufio.NewWriter(w)
	variants := 0
	for i := range e.Outcomes {
		variants += writeOutcome(out, &e.Outcomes[i])
	}
	fmt.Fprintf(out, "%s: %s across %s\n",
		output.Count(len(e.Outcomes), "object", "objects"), output.Count(variants, "variant", "variants"), output.Count(len(e.Clusters), "cluster", "clusters"))
	return out.Flush()
}

// writeOutcome returns the number of variants.
func writeOutcome(out *bufio.Writer, o *Outcome) int {
	if o.Gone != "" {
		fmt.Fprintf(out, "%s: %s\n\n", o.about(), o.Gone)
		return 0
	}
	groups := o.Groups()
	variants, clusters := 0, 0
	for i := range groups {
		if groups[i].Variant().Err == nil {
			variants++
			clusters += len(groups[i].Clusters)
		}
	}
	fmt.Fprintf(out, "%s: %s across %s%s\n", o.about(),
		output.Count(variants, "variant", "variants"), output.Count(clusters, "cluster", "clusters"), o.followsText())
	for i := range groups {
		writeGroup(out, o, &groups[i])
	}
	out.WriteByte('\n') //nolint:errcheck // Flush returns it.
	return variants
}

// followsText lists the leaders of the object; empty without leaders.
func (o *Outcome) followsText() string {
	if len(o.Follows) == 0 {
		return ""
	}
	return ", follows " + FollowsText(o.Follows)
}

// FollowsText lists the leaders of an object: "deployments.apps web".
func FollowsText(all []refractv1alpha1.FollowedObject) string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].Resource + " " + all[i].Name
	}
	return Few(texts)
}

// writeGroup writes the changes that lead to a group. Variants with the same changes share one list.
func writeGroup(out *bufio.Writer, o *Outcome, g *Group) {
	clusters := fmt.Sprintf("%s: %s", output.Count(len(g.Clusters), "cluster", "clusters"), o.fewNames(g.Clusters))
	if err := g.Variant().Err; err != nil {
		fmt.Fprintf(out, "  ✗ %s\n      keeps its copy: %v\n", clusters, err)
		return
	}
	mark := "✔"
	if o.Refuses(g.Variant()) {
		mark = "~"
	}
	fmt.Fprintf(out, "  %s %s\n", mark, clusters)
	var before string
	for i, v := range g.Variants {
		made := changesOf(o, v)
		if i > 0 && made != before {
			fmt.Fprintf(out, "    the same on %s, by\n", o.fewNames(v.Clusters))
		}
		if i == 0 || made != before {
			out.WriteString(made) //nolint:errcheck // Flush returns it.
		}
		before = made
	}
}

// changesOf returns the changes of a variant, one on each line.
func changesOf(o *Outcome, v *override.Variant) string {
	if len(v.Changes) == 0 {
		return "      as it is on the hub\n"
	}
	var b strings.Builder
	for _, c := range v.Changes {
		c = Mask(o.ID.GroupKind, c)
		fmt.Fprintf(&b, "      %s  (%s)\n", TextOf(&c), c.By)
	}
	return b.String()
}
