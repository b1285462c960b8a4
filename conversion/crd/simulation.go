package crd

import (
	"bufio"
	"fmt"
	"io"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/pipeline"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/internal/output"
)

// Simulation shows what an API server does with an object. It has the steps from the write to the read, each with its
// changes and findings.
type Simulation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Object is KIND NAMESPACE/NAME. Definition is the name of its CustomResourceDefinition.
	Object     string `json:"object"`
	Definition string `json:"definition"`
	// From is the version in which the object is written, Stored is the storage version, and To is the version in which
	// the object is read.
	From   string `json:"from"`
	Stored string `json:"stored"`
	To     string `json:"to"`
	// Refused is true if the API server rejects the request.
	Refused bool `json:"refused"`

	*pipeline.Trace

	sent map[string]any // The object as the client sends it.
}

// The apiVersion and kind in the JSON of a [Simulation].
const (
	SimulationAPIVersion = "refract.dev/v1alpha1"
	SimulationKind       = "Simulation"
)

// Simulate creates an object, and reads it in the version to. If to is empty, it reads the version of the object.
func Simulate(o *Object, to string, hooks pipeline.Hooks) (*Simulation, error) {
	if to == "" {
		to = o.Version.Name()
	}
	s := &Simulation{
		APIVersion: SimulationAPIVersion, Kind: SimulationKind, Object: o.String(), Definition: o.Definition.Name(),
		From: o.Version.Name(), Stored: o.Definition.Storage(), To: to, sent: o.sent(),
	}
	var err error
	s.Trace, err = pipeline.Run(o.Definition.Definition, s.sent, to, hooks)
	s.Refused = s.Trace.Refused()
	return s, err
}

// WriteJSON writes the simulation as one JSON document.
func (s *Simulation) WriteJSON(w io.Writer) error { return writeJSON(w, s) }

// WriteText writes the effect of each step, and a line with the totals.
func (s *Simulation) WriteText(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s: written in %s, stored in %s, read in %s\n", s.Object, s.From, s.Stored, s.To)
	phase, last := "", s.sent
	for i := range s.Steps {
		step := &s.Steps[i]
		if step.Phase != phase {
			phase = step.Phase
			fmt.Fprintf(out, "\n%s\n", phase)
		}
		writeStep(out, step, last)
		last = step.Object
	}
	fmt.Fprintf(out, "\n%s\n", s.totals())
	return out.Flush()
}

// writeStep writes a line for a step, and indented lines for its changes, findings and notes.
func writeStep(w io.Writer, step *pipeline.Step, before map[string]any) {
	mark := "✔"
	if step.Refused() {
		mark = "✗"
	}
	fmt.Fprintf(w, "  %s %-9s %s\n", mark, step.Name, step.Version)
	for i := range step.Changes {
		fmt.Fprintf(w, "      %s\n", changeText(&step.Changes[i], before, step.Object))
	}
	for _, f := range step.Findings {
		fmt.Fprintf(w, "      %s: %s\n", f.Severity, f)
	}
	if step.Note != "" {
		fmt.Fprintf(w, "      note: %s\n", step.Note)
	}
	for i := range step.NotDefaulted {
		c := &step.NotDefaulted[i]
		fmt.Fprintf(w, "        not set: %s %s\n", manifest.FieldOf(step.Object, c.Path), valueText(c.After))
	}
}

func (s *Simulation) totals() string {
	changes, errs, warnings := 0, 0, 0
	for i := range s.Steps {
		changes += len(s.Steps[i].Changes)
		for _, f := range s.Steps[i].Findings {
			if f.Severity == structural.Error {
				errs++
			} else {
				warnings++
			}
		}
	}
	if s.Refused {
		return fmt.Sprintf("refused: %s, %s, %s before", output.Count(errs, "error", "errors"),
			output.Count(warnings, "warning", "warnings"), output.Count(changes, "change", "changes"))
	}
	return fmt.Sprintf("created, and read back: %s, %s", output.Count(changes, "change", "changes"), output.Count(warnings, "warning", "warnings"))
}
