package archtest

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// A Violation is an import that a rule forbids.
type Violation struct {
	// Chain leads from the package under the rule to the forbidden import. It has two packages if the import is direct,
	// and one if the violation is not about an import.
	Chain []string
	// Why is the rule.
	Why string
}

// String returns the chain of imports and the rule.
func (v Violation) String() string {
	return strings.Join(v.Chain, " → ") + ": " + v.Why
}

// A Layer has packages that may import each other and those of named other layers.
type Layer struct {
	Name string
	// Packages are patterns of import paths. A package belongs to the first layer with a matching pattern.
	Packages []string
	// Imports are the names of other layers that this one may import. A package without a layer, such as a library, may
	// always be imported.
	Imports []string
	// Apart forbids imports between packages of different patterns.
	Apart bool
}

// CheckLayers returns every import between two packages of the module that the layers forbid, including imports of
// tests. It also returns a Violation with one package for each package without a layer. They are sorted by package.
func CheckLayers(g Graph, module string, layers []Layer) []Violation {
	var out []Violation
	for _, name := range g.within(module) {
		p := g[name]
		from, room := find(layers, name)
		if from == nil {
			out = append(out, Violation{Chain: []string{name}, Why: "the package is on no layer"})
			continue
		}
		imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		slices.Sort(imports)
		for _, imp := range slices.Compact(imports) {
			to, other := find(layers, imp)
			if to == nil || imp == name {
				continue
			}
			if why := from.forbids(room, to, other); why != "" {
				out = append(out, Violation{Chain: []string{name, imp}, Why: why})
			}
		}
	}
	return out
}

// forbids returns the reason why a package of layer l, with the pattern room, may not import a package of layer to,
// with the pattern other. It returns "" if the import is allowed.
func (l *Layer) forbids(room string, to *Layer, other string) string {
	switch {
	case l.Name == to.Name && l.Apart && room != other:
		return fmt.Sprintf("%s packages do not import each other", l.Name)
	case l.Name == to.Name || slices.Contains(l.Imports, to.Name):
		return ""
	case len(l.Imports) == 0:
		return fmt.Sprintf("%s imports no other layer, and this is %s", l.Name, to.Name)
	default:
		return fmt.Sprintf("%s may import %s, and this is %s", l.Name, strings.Join(l.Imports, ", "), to.Name)
	}
}

// find returns the layer of a package, and its matching pattern.
func find(layers []Layer, name string) (*Layer, string) {
	for i := range layers {
		for _, pattern := range layers[i].Packages {
			if match(pattern, name) {
				return &layers[i], pattern
			}
		}
	}
	return nil, ""
}

// A Ban forbids packages to depend on others, in any module. Test files are exempt.
type Ban struct {
	// From and To are patterns of import paths.
	From, To []string
	// Direct restricts the ban to the packages' own imports. Otherwise it includes indirect imports.
	Direct bool
	// Through are patterns of trusted packages. Dependencies that are reached only through trusted packages are
	// allowed.
	Through []string
	// Why is the rule, as the text of the error.
	Why string
}

// CheckBans returns one shortest forbidden chain of imports for each package and each pattern in To. They are sorted by
// ban, package and pattern.
func CheckBans(g Graph, bans []Ban) []Violation {
	var out []Violation
	for _, b := range bans {
		for _, name := range slices.Sorted(maps.Keys(g)) {
			if !matchAny(b.From, name) {
				continue
			}
			for _, to := range b.To {
				if chain := b.chain(g, name, to); chain != nil {
					out = append(out, Violation{Chain: chain, Why: b.Why})
				}
			}
		}
	}
	return out
}

func (b Ban) chain(g Graph, from, to string) []string {
	if !b.Direct {
		return g.Chain(from, []string{to}, b.Through)
	}
	imports := g[from].Imports
	i := slices.IndexFunc(imports, func(imp string) bool { return match(to, imp) })
	if i < 0 {
		return nil
	}
	return []string{from, imports[i]}
}

// CheckNames returns a Violation with one package for each package of the module whose name, or the name of one of
// whose folders, matches one of names. A name is a pattern of [path.Match]: "*util" forbids "stringutil" too.
func CheckNames(g Graph, module string, names []string) []Violation {
	var out []Violation
	for _, p := range g.within(module) {
		bad := badName(append(strings.Split(p, "/"), g[p].Name), names)
		if bad == "" {
			continue
		}
		out = append(out, Violation{
			Chain: []string{p},
			Why:   fmt.Sprintf("the name %q does not say what the package does", bad),
		})
	}
	return out
}

// badName returns the first word that matches one of names, or "".
func badName(words, names []string) string {
	for _, w := range words {
		for _, n := range names {
			if ok, err := path.Match(n, w); ok && err == nil {
				return w
			}
		}
	}
	return ""
}

// within returns the import paths of the module's packages, sorted.
func (g Graph) within(module string) []string {
	var out []string
	for name := range g {
		if match(module+"/...", name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
