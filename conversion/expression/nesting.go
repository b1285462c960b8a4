package expression

import (
	"maps"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// maxNesting is the maximum number of nested lists, maps and optional values in a type. The type checker visits a type
// again for each use and each level: an expression of 2 KB with 560 levels took more than a minute.
const maxNesting = 32

// nesting finds the position where a type has too many levels. It runs before the type checker.
type nesting struct {
	// wraps are the functions whose result has one level more than their target.
	wraps map[string]bool
	// variables are the numbers of levels of the variables that the expression defines.
	variables map[string]int
	// at is the first expression that has too many levels.
	at ast.Expr
}

// tooNested returns the first expression with more than [maxNesting] levels, or nil.
func (l *language) tooNested(a *ast.AST) ast.Expr {
	n := &nesting{wraps: l.wraps, variables: map[string]int{}}
	n.depth(a.Expr())
	return n.at
}

// depth returns an upper bound of the levels of the type of an expression. The type of value counts as 0 levels.
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
	default: // A literal. Expressions of this package have no structs.
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

// loop is depth for a macro. It assumes that the elements of a list have as many levels as the list.
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

// bind sets the levels of variables. It returns a function that restores the previous levels.
func (n *nesting) bind(depths map[string]int) (restore func()) {
	had := map[string]int{}
	for name, d := range depths {
		had[name], n.variables[name] = n.variables[name], d
	}
	return func() {
		maps.Copy(n.variables, had)
	}
}

// wrapping returns the functions whose result has more levels than their arguments, such as optional.of, for generic
// overloads. The names have no namespace: before type checking, a namespace looks like a target.
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

// levels returns the number of levels of a declared type, and whether the type is generic.
func levels(t *types.Type) (depth int, generic bool) {
	generic = t.Kind() == types.TypeParamKind
	for _, p := range t.Parameters() {
		d, some := levels(p)
		depth, generic = max(depth, d+1), generic || some
	}
	return depth, generic
}
