package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"refract.dev/tree"
)

func (o *demoOptions) print(w io.Writer, r *demoResult) error {
	if o.output == "json" {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	for i := range r.Objects {
		printObject(w, &r.Objects[i])
	}
	if r.RollBack.Right {
		fmt.Fprintf(w, "\n%s %s/%s deleted: rolled back everywhere after %.2f s\n",
			r.RollBack.Policy.Kind, r.RollBack.Policy.Namespace, r.RollBack.Policy.Name, r.RollBack.Seconds)
	}
	printRollout(w, r.Rollout)
	printInjection(w, r.Injection)
	if !r.Right {
		_, err := fmt.Fprintln(w, "\n✗ some results are not as expected")
		return err
	}
	copies := 0
	for i := range r.Objects {
		copies += len(r.Objects[i].Clusters)
	}
	_, err := fmt.Fprintf(w, "\n✔ %d objects, %d copies, each equal to the output of refract render, after %.1f s\n", len(r.Objects), copies, r.Seconds)
	return err
}

// printObject shows the differences on each cluster, with their authors.
func printObject(w io.Writer, o *demoObject) {
	name := o.Object.Name
	if o.Object.Namespace != "" {
		name = o.Object.Namespace + "/" + name
	}
	fmt.Fprintf(w, "\n%s %s\n", o.Object.Kind, name)
	for _, c := range o.Clusters {
		switch {
		case c.Wrong != "":
			fmt.Fprintf(w, "  ✗ %s  %s: %s\n", c.Name, c.State, c.Wrong)
		case len(c.Changes) == 0:
			fmt.Fprintf(w, "  ✔ %s  as on the hub\n", c.Name)
		default:
			fmt.Fprintf(w, "  ✔ %s\n", c.Name)
		}
		for _, change := range c.Changes {
			fmt.Fprintf(w, "      %s\n", change)
		}
	}
}

// differs returns the path of the first field of want that is missing or different in live, or "". It ignores fields
// that only live has, because the API server has added them.
func differs(path string, want, live any) string {
	switch w := want.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s: want an object, got %v", path, live)
		}
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if _, there := l[key]; !there {
				return path + "/" + tree.Escape(key) + ": is missing"
			}
			if d := differs(path+"/"+tree.Escape(key), w[key], l[key]); d != "" {
				return d
			}
		}
		return ""
	case []any:
		l, ok := live.([]any)
		if !ok || len(l) != len(w) {
			return fmt.Sprintf("%s: want %d elements, got %v", path, len(w), live)
		}
		for i := range w {
			if d := differs(fmt.Sprintf("%s/%d", path, i), w[i], l[i]); d != "" {
				return d
			}
		}
		return ""
	default:
		if !reflect.DeepEqual(want, live) {
			return strings.TrimSpace(fmt.Sprintf("%s: want %v, got %v", path, want, live))
		}
		return ""
	}
}
