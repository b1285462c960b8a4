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
	// Chain leads from the package that breaks the rule to the forbidden package. It has two packages if the import is
	// direct, and one if the rule is not about an import.
	Chain []string
	// Why is the rule.
	Why string
}

// String returns the chain of imports and the rule.
func (v Violation) String() string {
	return strings.Join(v.Chain, " → ") + ": " + v.Why
}

// A Layer is a set of packages. They may import each other, and packages of the layers in Imports.
type Layer struct {
	Name string
	// Packages are patterns of import paths. A package belongs to the first layer with a matching pattern.
	Packages []string
	// Imports are the names of the other layers whose packages this layer may import. A package that belongs to no
	// layer, such as a library, may always be imported.
	Imports []string
	// Apart is true if packages that match different patterns may not import each other.
	Apart bool
}

// CheckLayers returns every import between two packages of the module that the layers forbid, including imports in
// tests. For each package without a layer it returns a Violation with one package. The result is sorted by package.
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

// forbids returns the reason why a package of layer l may not import a package of another or the same layer; "" if it
// may. room and other are the patterns that the importing and the imported package match.
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

// A Ban forbids packages to depend on certain other packages of any module. It does not apply to test files.
type Ban struct {
	// From and To are patterns of import paths.
	From, To []string
	// Direct limits the ban to direct imports.
	Direct bool
	// Through are patterns of trusted packages. A dependency is allowed if it exists only by means of trusted packages.
	Through []string
	// Why is the rule, which the error shows.
	Why string
}

// CheckBans returns one shortest forbidden chain of imports for each package and each pattern in To. The result is
// sorted by ban, package and pattern.
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

// CheckNames returns a Violation with one package for each package with a forbidden name: one of the names matches the
// name of the package, or of a folder in its path. Names are patterns of [path.Match]: "*util" also forbids
// "stringutil".
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
