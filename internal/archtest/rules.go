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
	// Chain leads from the package that the rule is about to what it must not
	// import: two packages if it imports it directly.
	Chain []string
	// Why is the rule.
	Why string
}

// String returns the broken arrow and the rule.
func (v Violation) String() string {
	return strings.Join(v.Chain, " → ") + ": " + v.Why
}

// A Layer is a floor of the house. Its packages may import the floors it names,
// and each other.
type Layer struct {
	Name string
	// Packages are patterns of import paths. A package belongs to the first layer
	// that names it.
	Packages []string
	// Imports are the names of other layers that this one may import. A package of
	// no layer, such as a library, may always be imported.
	Imports []string
	// Apart forbids the packages of one pattern to import those of another.
	Apart bool
}

// CheckLayers returns every import, in tests too, between two packages of the
// module that the layers do not allow, and a Violation of one package for each
// that belongs to no layer. They come ordered by package.
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

// forbids returns why room, a pattern of l, may not import other, a pattern of
// to. It returns "" if it may.
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

// find returns the layer that the package belongs to and the pattern that says so.
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

// A Ban forbids packages to depend on others, whichever module these are of.
// Test files are free.
type Ban struct {
	// From and To are patterns of import paths.
	From, To []string
	// Direct judges the packages' own imports only. Otherwise what these import in
	// turn is judged too.
	Direct bool
	// Through are patterns of packages that are trusted: what is reached only by
	// way of them is not judged.
	Through []string
	// Why is the rule, as the one who broke it will read it.
	Why string
}

// CheckBans returns, for each package and each pattern it must not depend on,
// one shortest chain of imports that does. They come ordered by ban, package,
// pattern.
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

// CheckNames returns a Violation of one package for each package of the module
// that bears one of names, or lies in a folder that does. A name is a pattern of
// [path.Match]: "*util" forbids "stringutil" too.
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

// badName returns the first of words that matches one of names, or "".
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
