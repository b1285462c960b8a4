package render

import (
	"bufio"
	"fmt"
	"io"

	"refract.dev/tree"
)

// WriteVariants writes for each object which clusters get the same, and what was
// changed for them and by whom; then a line that counts.
func WriteVariants(w io.Writer, e *Evaluation) error {
	out := bufio.NewWriter(w)
	variants := 0
	for i := range e.Outcomes {
		variants += writeOutcome(out, &e.Outcomes[i])
	}
	fmt.Fprintf(out, "%s: %s across %s\n",
		Count(len(e.Outcomes), "object", "objects"), Count(variants, "variant", "variants"), Count(len(e.Clusters), "cluster", "clusters"))
	return out.Flush()
}

// writeOutcome returns how many variants there are.
func writeOutcome(out *bufio.Writer, o *Outcome) int {
	groups := o.Groups()
	variants, clusters := 0, 0
	for i := range groups {
		if groups[i].Variant.Err == nil {
			variants++
			clusters += len(groups[i].Clusters)
		}
	}
	fmt.Fprintf(out, "%s: %s across %s\n", o.about(), Count(variants, "variant", "variants"), Count(clusters, "cluster", "clusters"))
	for i := range groups {
		g := &groups[i]
		mark := "✔"
		if g.Variant.Err != nil {
			mark = "✗"
		}
		fmt.Fprintf(out, "  %s %s: %s\n", mark, Count(len(g.Clusters), "cluster", "clusters"), Few(o.Names(g)))
		switch {
		case g.Variant.Err != nil:
			fmt.Fprintf(out, "      keeps what it has: %v\n", g.Variant.Err)
		case len(g.Variant.Changes) == 0:
			fmt.Fprintf(out, "      as it is on the hub\n")
		}
		if g.Variant.Err != nil {
			continue
		}
		for _, c := range g.Variant.Changes {
			writeChange(out, o, c)
		}
	}
	out.WriteByte('\n') //nolint:errcheck // Flush returns it.
	return variants
}

func writeChange(out *bufio.Writer, o *Outcome, c tree.Change) {
	c = Mask(o.ID.GroupKind, c)
	fmt.Fprintf(out, "      %s  (%s)\n", TextOf(&c), c.By)
}
