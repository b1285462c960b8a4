package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/convert"
	"refract.dev/structural"
)

// Names of findings; the package's comment says what each means.
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

// side is a version of the two that a conversion is between.
type side int

const (
	onSpoke side = iota
	onHub
)

func (s side) other() side { return 1 - s }

// name is what a policy's fields call the side.
func (s side) name() string {
	if s == onHub {
		return "hub"
	}
	return "spoke"
}

// report collects findings. Nothing stops at the first one: an author wants to see all at once.
type report struct{ findings []structural.Finding }

// errorf adds a reason why the policy does not compile.
func (r *report) errorf(path, rule, format string, args ...any) {
	r.add(structural.Error, path, rule, fmt.Sprintf(format, args...))
}

// warnf adds something that an author should know.
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

// versions judges which versions a policy names, and reports whether their schemas can be
// compared.
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

// versionPair is a spoke and the hub, between which is converted. What is found about the two
// goes into the report.
type versionPair struct {
	*report

	path     string    // Of the spoke in the policy.
	versions [2]string // By side.
	schemas  [2]*schema.Structural
}

// kind says what there is at a place of a side.
func (p versionPair) kind(sd side, at place, own *schema.Structural) string {
	return fmt.Sprintf("%s is %s in %s", at, article(described(own)), p.versions[sd])
}

// kinds says what there is at a place of each side.
func (p versionPair) kinds(at [2]place, own [2]*schema.Structural) string {
	return p.kind(onSpoke, at[onSpoke], own[onSpoke]) + ", and " + p.kind(onHub, at[onHub], own[onHub])
}

// within returns the schema of the elements of a scope; of the root that of the object.
func (p versionPair) within(c *scope, sd side) *schema.Structural {
	if c.at[sd].steps == nil {
		return p.schemas[sd]
	}
	found, err := find(p.schemas[sd], c.at[sd].elements())
	if err != nil {
		return anything // Its entries were found, so it is there.
	}
	return found
}

// requiredAt reports whether the schema of a side requires what is at a place, so that
// somebody must write it.
func (p versionPair) requiredAt(sd side, at place) bool {
	last := at.steps[len(at.steps)-1]
	parent, err := find(p.schemas[sd], place{steps: at.steps[:len(at.steps)-1]})
	return err == nil && !last.each && requires(parent, last.key) && fieldOf(parent, last.key).Default.Object == nil
}

// spoke is what a spoke of a policy was compiled to: what the engine takes, and what is known
// about it.
type spoke struct {
	versionPair

	entries []*entry
	root    *scope
	// hubValues are those of the entries, by their places.
	hubValues map[string]hubValue
	lone      []lone // See coverage.
}

// version is the one that is not the hub.
func (s *spoke) version() string { return s.versions[onSpoke] }

// compileSpoke compiles the fields of a spoke: each for itself, then sorted by the lists that
// they are in, and then all of them together must cover the schemas.
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

// misplaced reports whether it is unknown which places the entries name, so that nobody can
// say which ones they do not.
func (s *spoke) misplaced() bool {
	return slices.ContainsFunc(s.findings, func(f structural.Finding) bool {
		return f.Rule == ruleField || f.Rule == rulePlace || f.Rule == ruleOverlap
	})
}

// resource returns the spoke as the engine takes it. What the engine has against it is a
// finding.
func (s *spoke) resource(group, kind string) convert.Spoke {
	out := convert.Spoke{Version: s.version(), Conversions: s.conversions(s.root)}
	_, err := convert.New(convert.Resource{Group: group, Kind: kind, Hub: s.versions[onHub], Spokes: []convert.Spoke{out}})
	if err != nil {
		s.errorf(s.path, ruleEngine, "%v", err)
	}
	return out
}
