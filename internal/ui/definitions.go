package ui

import (
	"bytes"
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"

	"refract.dev/conversion/crd"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
)

// definitionsPage is the data of the page "Custom resources".
type definitionsPage struct {
	Definitions []definitionRow
	Problems    []string
	Tried       *tried
	Text        string // The object to convert, as the user wrote it.
}

// definitionRow is a CustomResourceDefinition with the policy that converts its objects.
type definitionRow struct {
	Name, Kind string
	Versions   []string
	Stored     string
	Policy     string // The policy that converts its objects; empty if there is none.
	Text       string // The policy as YAML.
}

// tried has the conversions of an object to every other version.
type tried struct {
	Problems []string
	Results  []triedVersion
}

type triedVersion struct {
	Version string
	Lines   []line
	More    int
	Err     string
}

// definitions returns the page with all CustomResourceDefinitions that have several versions. If text is an object, the
// page also has the conversions of this object.
func (s *Snapshot) definitions(text string) *definitionsPage {
	definitions, problems := crd.Compile(definitionsIn(s.documents))
	policies, report, more := crd.CompilePolicies(policiesIn(s.documents), definitions)
	p := &definitionsPage{Text: text}
	if s.unread != "" {
		p.Problems = append(p.Problems, s.unread)
	}
	for _, problem := range slices.Concat(problems, more) {
		p.Problems = append(p.Problems, problem.Error())
	}
	for i := range report.Findings {
		p.Problems = append(p.Problems, report.Findings[i].String())
	}
	for i := range definitions {
		d := &definitions[i]
		is := definitionRow{Name: d.Name(), Kind: d.Kind(), Versions: crd.VersionNames(d.Definition), Stored: d.Storage()}
		at := slices.IndexFunc(policies, func(c crd.Policy) bool { return c.Definition.Name() == d.Name() })
		if at >= 0 {
			is.Policy = crd.NameOf(&policies[at].Document)
			if text, err := yaml.Marshal(policies[at].Document.Content["spec"]); err == nil {
				is.Text = string(text)
			}
		}
		p.Definitions = append(p.Definitions, is)
	}
	if text != "" {
		p.Tried = try(text, policies, definitions)
	}
	return p
}

func definitionsIn(documents []manifest.Document) (found []manifest.Document) {
	for i := range documents {
		if crd.IsDefinition(&documents[i]) {
			found = append(found, documents[i])
		}
	}
	return found
}

func policiesIn(documents []manifest.Document) (found []manifest.Document) {
	for i := range documents {
		if crd.IsPolicy(&documents[i]) {
			found = append(found, documents[i])
		}
	}
	return found
}

// try converts an object to every other version of its CustomResourceDefinition.
func try(text string, policies []crd.Policy, definitions []crd.Definition) *tried {
	is := &tried{}
	documents, problems := manifest.Documents([]string{manifest.Stdin}, bytes.NewReader([]byte(text)))
	matched := crd.Match(documents, definitions, nil)
	for _, problem := range slices.Concat(problems, matched.Problems, crd.Strangers(matched.Foreign, definitions)) {
		is.Problems = append(is.Problems, problem.Error())
	}
	if len(is.Problems) > 0 {
		return is
	}
	engine, err := crd.Engine(policies)
	if err != nil {
		is.Problems = append(is.Problems, err.Error())
		return is
	}
	for i := range matched.Objects {
		o := &matched.Objects[i]
		for _, version := range crd.VersionNames(o.Definition.Definition) {
			if version == o.Version.Name() {
				continue
			}
			is.Results = append(is.Results, convertedTo(version, o, crd.Convert(engine, []crd.Object{*o}, version)))
		}
	}
	if len(matched.Objects) == 0 {
		is.Problems = append(is.Problems, "the text has no object of these definitions")
	}
	return is
}

func convertedTo(version string, o *crd.Object, t *crd.Transformed) triedVersion {
	is := triedVersion{Version: fmt.Sprintf("%s in %s", o, version)}
	for _, refused := range t.Refused {
		is.Err = refused.Error()
	}
	for _, object := range t.Objects {
		var err error
		if is.Lines, is.More, err = linesOf(render.MaskObject(object), nil); err != nil {
			is.Err = err.Error()
		}
	}
	return is
}
