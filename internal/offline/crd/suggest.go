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
	"refract.dev/convert/policy"
	"refract.dev/convert/suggest"
	"refract.dev/internal/offline/manifest"
	"refract.dev/structural"
)

// Suggestion is a first ConversionPolicy of a definition.
type Suggestion struct {
	// Findings are what keeps it from compiling, and what it is warned of.
	Findings []structural.Finding

	policy *refractv1alpha1.ConversionPolicy
	notes  []string
}

// Suggest writes a first policy for a definition; the hub may be empty.
func Suggest(definition *Definition, hub string) (*Suggestion, error) {
	p, notes, err := suggest.Policy(definition.Definition, hub)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		return nil, fmt.Errorf("encoding the policy: %w", err)
	}
	if _, refused := specOf(&manifest.Document{Content: content}); len(refused) > 0 { // It has too many entries, say.
		return &Suggestion{Findings: refused, policy: p, notes: notes}, nil
	}
	_, findings := policy.Compile(&p.Spec, definition.Definition)
	return &Suggestion{Findings: findings, policy: p, notes: notes}, nil
}

// place is where a note belongs: a spoke, and one of its entries or key lists.
var place = regexp.MustCompile(`^spec\.spokes\[(\d+)\](?:\.(fields|lists)\[(\d+)\])?[^:]*: `)

// remarks are the notes of a suggestion by the place at which they stand.
type remarks map[string][]string

// at is the key of remarks.
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
		spoke, _ := strconv.Atoi(m[1]) // Digits.
		index, _ := strconv.Atoi(m[3])
		key, text := at(spoke, m[2], index), prefix+note[len(m[0]):]
		if !slices.Contains(placed[key], text) { // Several pairs of one map may have the same to say.
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

// WriteYAML writes the policy as a YAML document. What there is to decide are comments
// above what they are about.
func (s *Suggestion) WriteYAML(w io.Writer) error {
	out := bufio.NewWriter(w)
	placed, general := s.remarks()
	spec := &s.policy.Spec
	comment(out, "", fmt.Sprintf("A first policy for %s, from what differs between its schemas. Read what the comments ask you to decide, "+
		"and have refract crd verify prove the rest.", spec.CRD))
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
		comment(out, "    ", "What both versions have is at the same places, and passes as it is.")
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

// item writes an item of a list: its places first.
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

// rank puts places before what is said of them.
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

// commentWidth is how long the lines of comments may get, where words allow it.
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

// sentence begins a text with a capital letter, unless it begins with a name, and ends
// it with a full stop.
func sentence(text string) string {
	text = strings.TrimSuffix(text, ".") + "."
	if first, _, _ := strings.Cut(text, " "); strings.Trim(first, "abcdefghijklmnopqrstuvwxyz") == "" && first != "" {
		return strings.ToUpper(text[:1]) + text[1:]
	}
	return text
}
