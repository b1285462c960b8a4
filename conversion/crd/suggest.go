package crd

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/policy"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/suggest"
	"refract.dev/fleet/offline/manifest"
)

// Suggestion is a draft of a ConversionPolicy for a definition.
type Suggestion struct {
	// Findings are the errors and warnings of the compiler. If an API server would reject the policy, they are the
	// errors of its validation.
	Findings []structural.Finding

	policy *refractv1alpha1.ConversionPolicy
	notes  []string
}

// Suggest drafts a policy for a definition. hub is the name of a version; if hub is empty, Suggest chooses one.
func Suggest(definition *Definition, hub string) (*Suggestion, error) {
	p, notes, err := suggest.Policy(definition.Definition, hub)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		return nil, fmt.Errorf("encoding the policy: %w", err)
	}
	if _, refused := specOf(&manifest.Document{Content: content}); len(refused) > 0 { // For example, there are too many entries.
		return &Suggestion{Findings: refused, policy: p, notes: notes}, nil
	}
	_, findings := policy.Compile(&p.Spec, definition.Definition)
	return &Suggestion{Findings: findings, policy: p, notes: notes}, nil
}

// place matches the beginning of a note that names a place in the policy: a spoke, and perhaps an entry of its fields
// or lists.
var place = regexp.MustCompile(`^spec\.spokes\[(\d+)\](?:\.(fields|lists)\[(\d+)\])?[^:]*: `)

// remarks are the notes for each place in the policy.
type remarks map[string][]string

// at returns the key in remarks for a place.
func at(spoke int, list string, index int) string { return fmt.Sprint(spoke, list, index) }

func (s *Suggestion) remarks() (remarks, []string) {
	placed := remarks{}
	var general []string
	add := func(note, prefix string) {
		m := place.FindStringSubmatch(note)
		if m == nil {
			general = append(general, prefix+note)
			return
		}
		spoke, _ := strconv.Atoi(m[1]) // Cannot fail: the group consists of digits.
		index, _ := strconv.Atoi(m[3])
		key, text := at(spoke, m[2], index), prefix+note[len(m[0]):]
		if !slices.Contains(placed[key], text) { // Several pairs of a map may have the same note.
			placed[key] = append(placed[key], text)
		}
	}
	for _, note := range s.notes {
		add(note, "")
	}
	for _, f := range s.Findings {
		switch f.Severity {
		case structural.Error:
			add(f.String(), "It does not compile: ")
		default:
			add(f.String(), "Warning: ")
		}
	}
	return placed, general
}

// WriteYAML writes the policy as a YAML document. Comments name the decisions of the user, each above the lines that it
// is about.
func (s *Suggestion) WriteYAML(w io.Writer) error {
	out := bufio.NewWriter(w)
	placed, general := s.remarks()
	spec := &s.policy.Spec
	comment(out, "", fmt.Sprintf("A first policy for %s, from the differences between its schemas. Make the decisions in the comments, and verify the "+
		"rest with refract crd verify.", spec.CRD))
	for _, note := range general {
		comment(out, "", note)
	}
	fmt.Fprintf(out, "apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\nspec:\n  crd: %s\n  hub: %s\n  spokes:\n",
		s.policy.APIVersion, s.policy.Kind, s.policy.Name, spec.CRD, spec.Hub)
	for i := range spec.Spokes {
		if err := writeSpoke(out, &spec.Spokes[i], i, placed); err != nil {
			return err
		}
	}
	return out.Flush()
}

func writeSpoke(out *bufio.Writer, spoke *refractv1alpha1.ConversionSpoke, index int, placed remarks) error {
	comments(out, "  ", placed[at(index, "", 0)])
	fmt.Fprintf(out, "  - version: %s\n", spoke.Version)
	if len(spoke.Fields) == 0 {
		comment(out, "    ", "Both versions have the same fields at the same places: all values pass unchanged.")
	} else {
		fmt.Fprintln(out, "    fields:")
	}
	for i := range spoke.Fields {
		comments(out, "    ", placed[at(index, "fields", i)])
		if err := item(out, "    ", &spoke.Fields[i]); err != nil {
			return err
		}
	}
	if len(spoke.Lists) > 0 {
		fmt.Fprintln(out, "    lists:")
	}
	for i := range spoke.Lists {
		comments(out, "    ", placed[at(index, "lists", i)])
		if err := item(out, "    ", &spoke.Lists[i]); err != nil {
			return err
		}
	}
	return nil
}

// item writes an item of a list. Its fields hub and spoke come first.
func item(out *bufio.Writer, indent string, value any) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	names := slices.SortedFunc(maps.Keys(fields), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	mark := "- "
	for _, name := range names {
		text, err := yaml.Marshal(map[string]any{name: fields[name]})
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			fmt.Fprintf(out, "%s%s%s", indent, mark, line)
			mark = "  "
		}
	}
	return nil
}

// rank sorts the fields hub and spoke before all other fields.
func rank(name string) int {
	if i := slices.Index([]string{"hub", "spoke"}, name); i >= 0 {
		return i
	}
	return 2
}

func comments(out *bufio.Writer, indent string, notes []string) {
	for _, note := range notes {
		comment(out, indent, note)
	}
}

// commentWidth is the maximum length of a comment line. A line with a single word may be longer.
const commentWidth = 100

// comment writes a text as a comment that is a sentence.
func comment(out *bufio.Writer, indent, text string) {
	line := indent + "#"
	for word := range strings.FieldsSeq(sentence(text)) {
		if len(line)+1+len(word) > commentWidth && line != indent+"#" {
			fmt.Fprintln(out, line)
			line = indent + "#"
		}
		line += " " + word
	}
	fmt.Fprintln(out, line)
}

// sentence turns a text into a sentence: with a period, and with a capital letter unless the first word is a name.
func sentence(text string) string {
	text = strings.TrimSuffix(text, ".") + "."
	if first, _, _ := strings.Cut(text, " "); strings.Trim(first, "abcdefghijklmnopqrstuvwxyz") == "" && first != "" {
		return strings.ToUpper(text[:1]) + text[1:]
	}
	return text
}
