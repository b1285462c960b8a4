package expression

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// The result of an expression may be absent: null, or an optional without a value. The functions below find the
// subexpressions that may be the result.

// outcomes returns the subexpressions of which one is the result of the expression, such as the branches of a
// conditional. It returns nil for expressions of other kinds.
func outcomes(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.ComprehensionKind:
		if binds(e.AsComprehension()) {
			return []ast.Expr{e.AsComprehension().Result()}
		}
	case ast.CallKind:
		args := arguments(e)
		switch function := e.AsCall().FunctionName(); {
		case function == operators.Conditional && len(args) == 3:
			return args[1:]
		case function == "dyn" && len(args) == 1:
			return args
		}
	default:
	}
	return nil
}

// binds reports whether a comprehension is the expansion of cel.bind or sortBy.
func binds(c ast.ComprehensionExpr) bool {
	return c.IterRange().Kind() == ast.ListKind && c.IterRange().AsList().Size() == 0
}

// loosen replaces null and optional.none() by dyn(null) and dyn(optional.none()) wherever they may be the result. The
// branches of a conditional must have the same type, and null has no type in common with numbers, texts and lists.
//
// loosen also replaces each key k of an object by dyn(k), unless k is a literal. Otherwise the type checker may visit
// an inner type twice, in the key and in the value, and its work doubles with each level of nesting.
func loosen(a *ast.AST) {
	l := &loosener{ast: a, id: ast.MaxID(a), factory: ast.NewExprFactory()}
	l.expression(a.Expr())
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.MapKind {
			return
		}
		for _, entry := range e.AsMap().Entries() {
			if key := entry.AsMapEntry().Key(); key.Kind() != ast.LiteralKind {
				l.dynamic(key)
			}
		}
	}))
}

type loosener struct {
	ast     *ast.AST
	id      int64 // The last used ID.
	factory ast.ExprFactory
}

// dynamic replaces e by dyn(e).
func (l *loosener) dynamic(e ast.Expr) {
	l.id++
	inside := l.factory.NewUnspecifiedExpr(l.id)
	inside.SetKindCase(e)
	if at, ok := l.ast.SourceInfo().GetOffsetRange(e.ID()); ok {
		l.ast.SourceInfo().SetOffsetRange(l.id, at)
	}
	e.SetKindCase(l.factory.NewCall(e.ID(), "dyn", inside)) // The call gets the ID of e.
}

func (l *loosener) expression(e ast.Expr) {
	if absent(e) {
		if e.Kind() == ast.CallKind && !e.AsCall().IsMemberFunction() {
			return // A macro has created it together with the other branch, so both branches have the same type.
		}
		l.dynamic(e)
		return
	}
	below := outcomes(e)
	if args := callOf(e, "orValue", 2); args != nil {
		below = args[1:]
	}
	for _, b := range below {
		l.expression(b)
	}
}

// absent reports whether an expression is null or optional.none().
func absent(e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return e.AsLiteral() == types.NullValue
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() == "optional.none" { // This form is in macros, and everywhere after type checking.
			return true
		}
		return call.FunctionName() == "none" && len(call.Args()) == 0 && call.IsMemberFunction() &&
			call.Target().Kind() == ast.IdentKind && call.Target().AsIdent() == "optional"
	default:
		return false
	}
}

// whole checks an expression that may be the result against a schema.
func (c *checker) whole(e ast.Expr, out *schema.Structural) {
	if absent(e) {
		return
	}
	if below := outcomes(e); below != nil {
		for _, b := range below {
			c.whole(b, out)
		}
		return
	}
	if args := callOf(e, "optional.of", 1); args != nil {
		c.whole(args[0], out)
		return
	}
	if args := callOf(e, "orValue", 2); args != nil {
		c.whole(args[0], out)
		c.whole(args[1], out)
		return
	}
	if args := callOf(e, "or", 2); args != nil {
		c.whole(args[0], out)
		c.whole(args[1], out)
		return
	}
	t := c.ast.GetType(e.ID())
	if !optional(t) {
		c.result(e, out)
		return
	}
	for optional(t) {
		t = t.Parameters()[0]
	}
	c.fits(e, t, out)
}

// present returns the value of an optional, and null for an optional without a value. Other values stay unchanged.
func present(v ref.Val) ref.Val {
	for {
		o, ok := v.(*types.Optional)
		switch {
		case !ok:
			return v
		case !o.HasValue():
			return types.NullValue
		}
		v = o.GetValue()
	}
}
