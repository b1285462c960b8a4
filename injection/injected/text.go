package injected

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"refract.dev/injection/inject"
	"refract.dev/internal/output"
)

// The marks for the status of a pod: injected, stale, skipped or excluded, and not selected by the policy.
const (
	markRight = "✔"
	markStale = "✗"
	markOut   = "~"
	markOther = "·"
)

// WritePod writes the pod as text for users.
func WritePod(w io.Writer, x *Pod) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "pod %s/%s", x.Namespace, x.Name)
	if x.Owner != "" {
		fmt.Fprintf(out, " of %s", x.Owner)
	}
	fmt.Fprintf(out, ": %s\n", x.summary())
	if x.Doubt != "" {
		fmt.Fprintf(out, "%s %s\n", markOut, x.Doubt)
	}
	for i := range x.Policies {
		writePolicy(out, &x.Policies[i], x.Doubt != "")
	}
	for _, l := range x.Left {
		fmt.Fprintf(out, "\n%s %s: %s; the pod keeps its items\n", markOut, l.Policy, l.Why)
		writeItems(out, "    ", l.Items)
	}
	if len(x.Others) > 0 {
		fmt.Fprintln(out)
	}
	for _, o := range x.Others {
		fmt.Fprintf(out, "%s %s %s\n", markOther, o.Name, o.Why)
	}
	return out.Flush()
}

// summary describes the status in one line.
func (x *Pod) summary() string {
	switch {
	case len(x.Policies) > 0:
		return x.tally()
	case len(x.Others) == 0:
		return "there is no ServiceInjectionPolicy in its namespace"
	default:
		return "no ServiceInjectionPolicy of its namespace selects it"
	}
}

// tally counts the policies in each state.
func (x *Pod) tally() string {
	counts := map[inject.State]int32{}
	for i := range x.Policies {
		counts[x.Policies[i].State]++
	}
	parts := []string{output.Count(len(x.Policies), "policy selects it", "policies select it")}
	for _, state := range []inject.State{inject.StateInjected, inject.StateStale, inject.StateSkipped, inject.StateExcluded} {
		if n := counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(string(state))))
		}
	}
	return strings.Join(parts, ", ")
}

func writePolicy(w io.Writer, p *PodPolicy, doubtful bool) {
	mark := markRight
	switch p.State {
	case inject.StateStale:
		mark = markStale
	case inject.StateSkipped, inject.StateExcluded:
		mark = markOut
	case inject.StateInjected:
	}
	fmt.Fprintf(w, "\n%s %s", mark, p.Name)
	if p.Service != "" {
		fmt.Fprintf(w, " (service %s)", p.Service)
	}
	fmt.Fprintf(w, ": %s", strings.ToLower(string(p.State)))
	if p.Injected > 0 && p.State == inject.StateInjected {
		fmt.Fprintf(w, ", generation %d", p.Injected)
	}
	if p.Reason != "" {
		fmt.Fprintf(w, ", %s: %s", p.Reason, p.Message)
	}
	fmt.Fprintln(w)
	switch {
	case len(p.Added) > 0:
		writeItems(w, "    ", p.Added)
	case p.State == inject.StateInjected && !doubtful:
		fmt.Fprintln(w, "    the pod already had all items")
	}
	writeDifferences(w, p.Differs)
	if p.Rollout != "" {
		fmt.Fprintf(w, "    rollout: %s\n", p.Rollout)
	}
	if p.Workload != nil {
		fmt.Fprintf(w, "    %s/%s: %s: %s\n", p.Workload.Kind, p.Workload.Name, p.Workload.Reason, p.Workload.Message)
	}
}

func writeItems(w io.Writer, indent string, items []Item) {
	for i := range items {
		fmt.Fprintf(w, "%s%s\n", indent, &items[i])
	}
}

// writeDifferences writes the items that would be different in a new pod.
func writeDifferences(w io.Writer, differs []Difference) {
	if len(differs) == 0 {
		return
	}
	fmt.Fprintln(w, "    if it were created now:")
	for _, d := range differs {
		switch {
		case d.Is == nil:
			fmt.Fprintf(w, "      + %s\n", d.Would)
		case d.Would == nil:
			fmt.Fprintf(w, "      - %s\n", d.Is)
		default:
			fmt.Fprintf(w, "      → %s\n", d.Would)
		}
	}
}

// String returns the item as text for users.
func (i *Item) String() string {
	text := i.Kind + " " + strings.TrimPrefix(i.Name, ":") // A source of variables without prefix.
	switch {
	case i.Says == "":
	case i.Kind == kindEnv && strings.HasPrefix(i.Says, `"`):
		text += "=" + i.Says
	default:
		text += " (" + i.Says + ")"
	}
	if len(i.Containers) > 0 {
		text += " in " + strings.Join(i.Containers, ", ")
	}
	return text
}
