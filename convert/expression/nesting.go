package expression

import (
	"maps"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// maxNesting is how many lists, maps and optional values an expression may make inside
// each other. The type checker goes through a type again for each place that it is
// used in, and for each level of it: 560 levels, in an expression of 2 KB, took it more
// than a minute.
const maxNesting = 32

// nesting finds where an expression's types would be too deep, before they are checked.
type nesting struct {
	// wraps are the functions whose result is a level deeper than what they are called on.
	wraps map[string]bool
	// variables have how deep each one is that the expression has made.
	variables map[string]int
	// at is the first place that is too deep.
	at ast.Expr
}

// tooNested is the first place at which the expression makes more than [maxNesting]
// levels, and nil if there is none.
func (l *language) tooNested(a *ast.AST) ast.Expr {
	n := &nesting{wraps: l.wraps, variables: map[string]int{}}
	n.depth(a.Expr())
	return n.at
}

// depth is how many levels an expression's type may have on top of those of value.
func (n *nesting) depth(e ast.Expr) int {
	d := 0
	switch e.Kind() {
	case ast.ListKind:
		d = 1 + n.deepest(e.AsList().Elements())
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			m := entry.AsMapEntry()
			d = max(d, n.depth(m.Key()), n.depth(m.Value()))
		}
		d++
	case ast.CallKind:
		d = n.deepest(arguments(e))
		if n.wraps[e.AsCall().FunctionName()] {
			d++
		}
	case ast.SelectKind:
		d = n.depth(e.AsSelect().Operand())
	case ast.IdentKind:
		d = n.variables[e.AsIdent()]
	case ast.ComprehensionKind:
		d = n.loop(e.AsComprehension())
	default: // A literal. Structs have no types here.
	}
	if d > maxNesting && n.at == nil {
		n.at = e
	}
	return d
}

func (n *nesting) deepest(exprs []ast.Expr) int {
	d := 0
	for _, e := range exprs {
		d = max(d, n.depth(e))
	}
	return d
}

// loop is depth for a macro. Its elements are taken to be as deep as the list that has
// them.
func (n *nesting) loop(c ast.ComprehensionExpr) int {
	values := n.depth(c.IterRange())
	total := n.depth(c.AccuInit())
	restore := n.bind(map[string]int{c.IterVar(): values, c.IterVar2(): values, c.AccuVar(): total})
	defer restore()
	n.depth(c.LoopCondition())
	total = max(total, n.depth(c.LoopStep()))
	n.variables[c.AccuVar()] = total
	return n.depth(c.Result())
}

// bind gives variables their depths, and returns what gives them back those that they
// had.
func (n *nesting) bind(depths map[string]int) (restore func()) {
	had := map[string]int{}
	for name, d := range depths {
		had[name], n.variables[name] = n.variables[name], d
	}
	return func() {
		maps.Copy(n.variables, had)
	}
}

// wrapping are the functions of which an overload, for any type, gives one that is deeper:
// optional.of(A) is an optional A. They are without their namespace, which is what a
// function is called on until the checker knows that it is one.
func wrapping(env *cel.Env) map[string]bool {
	wraps := map[string]bool{}
	for name, f := range env.Functions() {
		for _, o := range f.OverloadDecls() {
			takes, generic := 0, false
			for _, t := range o.ArgTypes() {
				d, some := levels(t)
				takes, generic = max(takes, d), generic || some
			}
			if gives, _ := levels(o.ResultType()); generic && gives > takes {
				wraps[name[strings.LastIndex(name, ".")+1:]] = true
			}
		}
	}
	return wraps
}

// levels is how deep a declared type is, and whether it stands for any.
func levels(t *types.Type) (depth int, generic bool) {
	generic = t.Kind() == types.TypeParamKind
	for _, p := range t.Parameters() {
		d, some := levels(p)
		depth, generic = max(depth, d+1), generic || some
	}
	return depth, generic
}
