package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural"
)

// Rules of findings; the package comment describes them.
const (
	ruleDefinition = "WrongDefinition"
	ruleVersion    = "UnknownVersion"
	ruleLeftOut    = "VersionNotConverted"
	ruleField      = "InvalidField"
	rulePlace      = "InvalidPlace"
	ruleOverlap    = "PlacesOverlap"
	ruleCoverage   = "NotCovered"
	ruleType       = "TypeMismatch"
	rulePair       = "InvalidPair"
	ruleEnum       = "EnumNotCovered"
	ruleDefault    = "InvalidDefault"
	ruleRequired   = "RequiredNotFilled"
	ruleExpression = "InvalidExpression"
	ruleLists      = "InvalidList"
	ruleEngine     = "NotConvertible"
	ruleExcess     = "TooMuch"

	warnExpansion = "ExpansionUnlimited"
	warnPairs     = "ManyToOne"
	warnNoEffect  = "NoEffect"
	warnKeys      = "ListWithoutKeys"
	warnValues    = "ValuesWithoutPair"
	warnNull      = "NullDropped"
	warnRequired  = "RequiredByOne"
)

// side is one of the two versions of a conversion.
type side int

const (
	onSpoke side = iota
	onHub
)

func (s side) other() side { return 1 - s }

// name returns the name of the side as a field of a policy.
func (s side) name() string {
	if s == onHub {
		return "hub"
	}
	return "spoke"
}

// report collects findings. The compiler continues after an error, so that authors see all errors at once.
type report struct{ findings []structural.Finding }

// errorf adds an error. A policy with an error does not compile.
func (r *report) errorf(path, rule, format string, args ...any) {
	r.add(structural.Error, path, rule, fmt.Sprintf(format, args...))
}

// warnf adds a warning.
func (r *report) warnf(path, rule, format string, args ...any) {
	r.add(structural.Warning, path, rule, fmt.Sprintf(format, args...))
}

func (r *report) add(severity structural.Severity, path, rule, message string) {
	r.findings = append(r.findings, structural.Finding{Path: path, Rule: rule, Severity: severity, Message: message})
}

// failed reports whether there is an error.
func (r *report) failed() bool {
	return slices.ContainsFunc(r.findings, func(f structural.Finding) bool { return f.Severity == structural.Error })
}

// versions checks the versions of a policy. It returns false if their schemas cannot be compared.
func (r *report) versions(spec *refractv1alpha1.ConversionPolicySpec, def *structural.Definition) bool {
	names := make([]string, 0, len(def.Versions()))
	for _, v := range def.Versions() {
		names = append(names, v.Name())
	}
	if spec.CRD != def.Name() {
		r.errorf("spec.crd", ruleDefinition, "is %q, and the definition is %s", spec.CRD, def.Name())
	}
	known := true
	named := []string{spec.Hub}
	check := func(path, version string) {
		if !slices.Contains(names, version) {
			r.errorf(path, ruleVersion, "%s has no version %q: it has %s", def.Name(), version, strings.Join(names, ", "))
			known = false
		}
	}
	check("spec.hub", spec.Hub)
	for i, s := range spec.Spokes {
		path := fmt.Sprintf("spec.spokes[%d].version", i)
		check(path, s.Version)
		if slices.Contains(named, s.Version) {
			r.errorf(path, ruleVersion, "%s is the hub, or a spoke already", s.Version)
			known = false
		}
		named = append(named, s.Version)
	}
	for _, v := range def.Versions() {
		if (v.Served() || v.Name() == def.Storage()) && !slices.Contains(named, v.Name()) {
			use := "served"
			if v.Name() == def.Storage() {
				use = "stored"
			}
			r.errorf("spec.spokes", ruleLeftOut, "%s of %s is %s, and neither the hub nor a spoke: add a spoke with version: %s",
				v.Name(), def.Name(), use, v.Name())
		}
	}
	return known
}

// versionPair is a spoke together with the hub. Findings about them go into the report.
type versionPair struct {
	*report

	path     string    // Path of the spoke in the policy, such as spec.spokes[0].
	versions [2]string // By side.
	schemas  [2]*schema.Structural
}

// kind describes the type of the value at a place of one side.
func (p versionPair) kind(sd side, at place, own *schema.Structural) string {
	return fmt.Sprintf("%s is %s in %s", at, article(described(own)), p.versions[sd])
}

// kinds describes the types of the values at the places of both sides.
func (p versionPair) kinds(at [2]place, own [2]*schema.Structural) string {
	return p.kind(onSpoke, at[onSpoke], own[onSpoke]) + ", and " + p.kind(onHub, at[onHub], own[onHub])
}

// within returns the schema of the elements of a scope. For the root scope, it returns the schema of the object.
func (p versionPair) within(c *scope, sd side) *schema.Structural {
	if c.at[sd].steps == nil {
		return p.schemas[sd]
	}
	found, err := find(p.schemas[sd], c.at[sd].elements())
	if err != nil {
		return anything // Cannot happen: the entries of the scope have been found in the schema.
	}
	return found
}

// requiredAt reports whether clients must write the value at a place: the schema requires it and has no default for it.
func (p versionPair) requiredAt(sd side, at place) bool {
	last := at.steps[len(at.steps)-1]
	parent, err := find(p.schemas[sd], place{steps: at.steps[:len(at.steps)-1]})
	return err == nil && !last.each && requires(parent, last.key) && fieldOf(parent, last.key).Default.Object == nil
}

// spoke is a compiled spoke of a policy: the entries, and data for later questions about them.
type spoke struct {
	versionPair

	entries []*entry
	root    *scope
	// hubValues are the values of the entries, by their places in the hub.
	hubValues map[string]hubValue
	lone      []lone // See coverage.
}

// version returns the version that is not the hub.
func (s *spoke) version() string { return s.versions[onSpoke] }

// compileSpoke compiles a spoke. It compiles each field alone, sorts the entries by the lists that contain their
// values, and checks that all entries together cover the schemas.
func compileSpoke(i int, spec *refractv1alpha1.ConversionPolicySpec, schemas [2]*schema.Structural) *spoke {
	from := &spec.Spokes[i]
	pair := versionPair{
		report:   &report{},
		path:     fmt.Sprintf("spec.spokes[%d]", i),
		versions: [2]string{onSpoke: from.Version, onHub: spec.Hub},
		schemas:  schemas,
	}
	s, covered := &spoke{versionPair: pair}, &coverage{versionPair: pair}
	fields := fieldCompiler{versionPair: pair, coverage: covered}
	for j := range from.Fields {
		if e := fields.entry(j, &from.Fields[j]); e != nil {
			s.entries = append(s.entries, e)
		}
	}
	sorted := scopes{versionPair: pair, coverage: covered}
	s.root = sorted.sort(s.entries, from.Lists)
	if !s.misplaced() {
		covered.scope(s.root)
	}
	s.lone = covered.lone
	return s
}

// misplaced reports whether the place of an entry is unknown. Coverage cannot be checked then.
func (s *spoke) misplaced() bool {
	return slices.ContainsFunc(s.findings, func(f structural.Finding) bool {
		return f.Rule == ruleField || f.Rule == rulePlace || f.Rule == ruleOverlap
	})
}

// resource returns the spoke in the form of the engine. It reports an error of the engine as a finding.
func (s *spoke) resource(group, kind string) convert.Spoke {
	out := convert.Spoke{Version: s.version(), Conversions: s.conversions(s.root)}
	_, err := convert.New(convert.Resource{Group: group, Kind: kind, Hub: s.versions[onHub], Spokes: []convert.Spoke{out}})
	if err != nil {
		s.errorf(s.path, ruleEngine, "%v", err)
	}
	return out
}
