package preview

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"

	"refract.dev/injection/inject"
	"refract.dev/internal/output"
)

// WriteYAML writes the pods as one stream of YAML documents.
func WriteYAML(w io.Writer, r *Result) error {
	out := bufio.NewWriter(w)
	for _, object := range r.Objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
			return err
		}
	}
	return out.Flush()
}

// WriteJSON writes the result as one JSON document.
func WriteJSON(w io.Writer, r *Result) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// context is the number of lines shown around a change.
const context = 3

// WriteDiff writes a unified diff of the YAML of each changed pod, compared with the pod without policies. Lines that
// begin with # name the policies and their additions.
func WriteDiff(w io.Writer, e *Evaluation) error {
	out := bufio.NewWriter(w)
	for i := range e.Pods {
		p := &e.Pods[i]
		if !p.Changed() {
			continue
		}
		before, err := linesOf(p.Before)
		if err != nil {
			return err
		}
		after, err := linesOf(p.After)
		if err != nil {
			return err
		}
		text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
			A: before, FromFile: "a/" + p.String(), B: after, ToFile: "b/" + p.String(), Context: context,
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "# %s\n", p)
		for j := range p.Result.Applied {
			fmt.Fprintf(out, "# %s\n", describe(&p.Result.Applied[j]))
		}
		if _, err := out.WriteString(text); err != nil {
			return err
		}
	}
	return out.Flush()
}

func linesOf(object map[string]any) ([]string, error) {
	text, err := yaml.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	return lines[:len(lines)-1], nil // The text ends with a newline.
}

// describe lists the additions of a policy: "allow-database: variable DB_PORT, volume cache-volume, mount /cache".
func describe(a *inject.Applied) string {
	sources := make([]string, len(a.EnvFrom))
	for i, id := range a.EnvFrom {
		sources[i] = strings.TrimPrefix(id, ":") // Without a prefix.
	}
	var parts []string
	for _, added := range []struct {
		one, many string
		names     []string
	}{
		{"variable", "variables", a.Env},
		{"source of variables", "sources of variables", sources},
		{"volume", "volumes", a.Volumes},
		{"mount", "mounts", a.Mounts},
	} {
		switch len(added.names) {
		case 0:
		case 1:
			parts = append(parts, added.one+" "+added.names[0])
		default:
			parts = append(parts, added.many+" "+strings.Join(added.names, ", "))
		}
	}
	if parts == nil {
		return a.Policy.Name() + ": is there already"
	}
	return a.Policy.Name() + ": " + strings.Join(parts, "; ")
}

// Totals returns the numbers of pods by result, on one line.
func (e *Evaluation) Totals() string {
	changed, refused, same := 0, 0, 0
	for i := range e.Pods {
		switch p := &e.Pods[i]; {
		case p.After == nil:
			refused++
		case p.Changed():
			changed++
		default:
			same++
		}
	}
	text := fmt.Sprintf("%s changed, %d as before", output.Count(changed, "pod", "pods"), same)
	if refused > 0 {
		text += fmt.Sprintf(", %d not created", refused)
	}
	return text
}
