package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	utiljson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"
)

// document is one value of the input.
type document struct {
	place Place
	value any // Integers are int64.
	lines lines
}

// chunk is the text between two document markers.
type chunk struct {
	text   []byte
	offset int // Of text in the file.
	line   int // The line of the file where text begins, from 1.
}

// split splits a file at its document markers: lines that begin with ---, which become part of the next chunk, and
// lines that consist of "..." with at most a comment. The text is split before it is parsed, so that a broken document
// does not hide the others. JSON has no such lines. The directives before a marker are dropped: kubectl ignores the
// version of YAML that they ask for.
//
// Source: YAML 1.2.2, section 9.1.2: a marker ends a document at any place; and section 9.2 on directives.
func split(data []byte) []chunk {
	var chunks []chunk
	start, line, startLine := 0, 1, 1
	cut := func(at int) {
		if at > start {
			chunks = append(chunks, chunk{text: data[start:at], offset: start, line: startLine})
		}
		start, startLine = at, line
	}
	for at := 0; at < len(data); line++ {
		end := len(data)
		if n := bytes.IndexByte(data[at:], '\n'); n >= 0 {
			end = at + n + 1
		}
		text := bytes.TrimRight(data[at:end], " \t\r\n")
		switch {
		case string(text) == "---" || bytes.HasPrefix(text, []byte("--- ")) || bytes.HasPrefix(text, []byte("---\t")):
			if onlyDirectives(data[start:at]) {
				start, startLine = at, line
			}
			cut(at)
		case string(text) == "..." || bytes.HasPrefix(text, []byte("... #")) || bytes.HasPrefix(text, []byte("...\t#")):
			cut(at)
			start = end
			startLine = line + 1
		}
		at = end
	}
	cut(len(data))
	return chunks
}

// onlyDirectives reports whether a text contains directives and nothing else except comments.
func onlyDirectives(text []byte) bool {
	found := false
	for line := range bytes.Lines(text) {
		switch comment := bytes.TrimSpace(line); {
		case line[0] == '%':
			found = true
		case len(comment) > 0 && comment[0] != '#':
			return false
		}
	}
	return found
}

// decoder decodes the documents of one chunk of a file, and numbers them from 1.
type decoder struct {
	file      string
	chunk     chunk
	number    int
	documents []document
	problems  []*Problem
}

func (d *decoder) place(line int) Place { return Place{File: d.file, Line: line, Document: d.number} }

func (d *decoder) problem(place Place, field, fact string) {
	d.problems = append(d.problems, &Problem{Place: place, Field: field, Fact: fact})
}

func (d *decoder) decode() {
	c := d.chunk
	behind := chunk{text: bytes.TrimPrefix(c.text, []byte("---")), line: c.line} // JSON may follow a marker, too.
	if trimmed := bytes.TrimSpace(behind.text); len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
		// Flow style YAML looks like JSON. The extension .json decides.
		if json.Valid(trimmed) || isJSONStream(trimmed) || path.Ext(d.file) == ".json" {
			d.json(behind)
			return
		}
	}
	d.yaml(c)
}

// fail reports that err prevented the decoding of the chunk.
func (d *decoder) fail(err error) {
	d.number, d.documents = 1, nil
	d.problem(d.place(d.chunk.line), "", err.Error())
}

// moveBy increases the numbers of the documents by the number of documents in earlier chunks.
func (d *decoder) moveBy(documents int) {
	for i := range d.documents {
		d.documents[i].place.Document += documents
	}
	for _, p := range d.problems {
		p.Place.Document += documents
	}
}

func isJSONStream(text []byte) bool {
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// json decodes consecutive JSON values.
func (d *decoder) json(c chunk) {
	dec := json.NewDecoder(bytes.NewReader(c.text))
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return
		}
		d.number++
		if err != nil {
			at := dec.InputOffset()
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				at = syntax.Offset
			}
			d.problem(d.place(c.lineAt(at)), "", fmt.Sprintf("is not valid JSON: %v", err))
			return // The beginning of the next value is not known.
		}
		line := c.lineAt(dec.InputOffset() - int64(len(raw)))
		doc := document{place: d.place(line), lines: linesOf(raw, line)}
		mistakes, err := utiljson.UnmarshalStrict(raw, &doc.value, utiljson.DisallowDuplicateFields)
		if err != nil {
			d.problem(doc.place, "", fmt.Sprintf("is not valid JSON: %v", err))
			continue
		}
		for _, mistake := range mistakes {
			d.duplicateField(&doc, mistake)
		}
		switch {
		case len(mistakes) > 0:
		case tooDeep(doc.value, 0):
			d.problem(doc.place, "", factTooDeep)
		default:
			d.documents = append(d.documents, doc)
		}
	}
}

func (d *decoder) duplicateField(doc *document, mistake error) {
	var at utiljson.FieldError
	if !errors.As(mistake, &at) {
		d.problem(doc.place, "", mistake.Error())
		return
	}
	d.problem(doc.lines.at(doc.place, at.FieldPath()), at.FieldPath(), "is set twice")
}

// lineAt returns the line of a byte of the chunk.
func (c chunk) lineAt(offset int64) int {
	offset = min(max(offset, 0), int64(len(c.text)))
	return c.line + bytes.Count(c.text[:offset], []byte("\n"))
}

// yaml decodes one YAML document.
func (d *decoder) yaml(c chunk) {
	line, certain := c.begin()
	if value, ok := decodeQuickly(c.text); ok && certain {
		d.number++
		d.documents = append(d.documents, document{place: d.place(line), value: value, lines: linesOf(c.text, c.line)})
		return
	}
	d.yamlSlowly(c)
}

// yamlSlowly decodes one YAML document and finds its mistakes.
func (d *decoder) yamlSlowly(c chunk) {
	var node, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(c.text))
	syntax := dec.Decode(&node)
	if errors.Is(syntax, io.EOF) {
		return
	}
	// Only the first document of a chunk is decoded: a second one would be lost.
	if end := dec.Decode(&more); syntax == nil && !errors.Is(end, io.EOF) {
		d.number++
		d.problem(d.place(c.line+max(more.Line-1, 0)), "", "follows another document: put a line with --- between them")
		return
	}
	if syntax == nil && empty(&node) {
		return
	}
	d.number++
	// The library of kubectl decides the meaning of a document: yes is true, and 010 is 8. The nodes are used only for
	// places.
	if syntax == nil && d.infinite(node.Content[0]) {
		return
	}
	doc := document{place: d.place(c.line)}
	if syntax == nil {
		doc.lines = linesIn(node.Content[0], c.line-1)
		doc.place.Line = doc.lines.of("", c.line)
		if wrong := doc.lines.wrongKeys(); len(wrong) > 0 {
			d.wrongKeys(doc.place, wrong)
			return
		}
	}
	text, err := kyaml.YAMLToJSON(c.text) // The keys are unique. The strict variant would reject a key that overrides a merged one.
	// The library of kubectl reads only the first document of a text and accepts further text. So a text that only this
	// library accepts may be read in part.
	if err = cmp.Or(err, syntax); err != nil {
		d.problems = append(d.problems, c.explain(d.place(c.line), err))
		return
	}
	// Merges are checked last, because by now the library has verified that they are not too large.
	if wrong := doc.lines.wrongMerges(); len(wrong) > 0 {
		d.wrongKeys(doc.place, wrong)
		return
	}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(text, &doc.value); err != nil {
		d.problem(doc.place, "", "is not valid YAML: "+err.Error())
		return
	}
	if tooDeep(doc.value, 0) {
		d.problem(doc.place, "", factTooDeep)
		return
	}
	d.documents = append(d.documents, doc)
}

func (d *decoder) wrongKeys(place Place, wrong []wrongKey) {
	for i := range wrong {
		place.Line = wrong[i].line
		if wrong[i].unfit == anObject && bytes.Contains(d.chunk.text, []byte("{{")) {
			d.problems = append(d.problems, template(place))
			return
		}
		d.problem(place, wrong[i].path, wrong[i].fact())
	}
}

// template returns the problem of a document that is an unrendered template.
func template(place Place) *Problem {
	return &Problem{
		Place: place, Fact: "is not valid YAML: it looks like a template that is not filled in",
		Hint: "helm template prints the manifests of a chart; pipe them in with -f -",
	}
}

// infinite reports numbers that JSON cannot express, and returns whether there are any.
func (d *decoder) infinite(root *yaml.Node) bool {
	found := false
	l := linesIn(root, d.chunk.line-1)
	for path, node := range l.scalars() {
		if v, ok := plain(node); ok {
			if f, isFloat := v.(float64); isFloat && (math.IsInf(f, 0) || math.IsNaN(f)) {
				found = true
				d.problem(d.place(l.line(node)), path, fmt.Sprintf("is %s, which is not a number in JSON: write a number, or quote it", node.Value))
			}
		}
	}
	return found
}

// empty reports whether a document is empty or null.
func empty(node *yaml.Node) bool {
	if node.Kind == yaml.DocumentNode {
		node = node.Content[0]
	}
	return node.IsZero() || node.ShortTag() == "!!null"
}

// parserFacts are the errors of the YAML library that count lines from 0. All other errors count them from 1.
var parserFacts = []string{
	"did not find expected <document start>", "did not find expected key", "did not find expected node content",
	"did not find expected '-' indicator", "did not find expected ',' or ']'", "did not find expected ',' or '}'",
}

// quoting are the errors of the YAML library that quote the document, with the texts that replace them in a Secret.
var quoting = []struct{ begin, instead string }{
	{"unknown anchor ", "an alias names a missing anchor; quote a value that begins with *"},
	{"cannot decode ", "a value does not match its tag"},
	{"invalid map key: ", "a key is not a string"},
}

// secretKind matches every document that contains a Secret, and some others.
var secretKind = regexp.MustCompile(`kind["']?\s*:\s*["']?Secret`)

// explain returns the Problem for an error of the YAML library. The library counts lines from the beginning of the
// text, and puts the line into its message, except for the first line.
func (c chunk) explain(place Place, err error) *Problem {
	fact := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(fact, "line "); ok {
		number, rest, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			place.Line, fact = c.line+n-1, rest
		}
		if slices.Contains(parserFacts, fact) {
			place.Line++
		}
	}
	for _, q := range quoting {
		if strings.HasPrefix(fact, q.begin) && secretKind.Match(c.text) {
			fact = q.instead
		}
	}
	last := c.line + bytes.Count(bytes.TrimRight(c.text, "\r\n"), []byte("\n"))
	place.Line = min(place.Line, last) // For an error at the end, the library names a line after the last one.
	if bytes.Contains(c.text, []byte("{{")) {
		return template(place)
	}
	return &Problem{Place: place, Fact: "is not valid YAML: " + fact}
}
