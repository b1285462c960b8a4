package expression

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// checker checks the parts of an expression that build its result against a schema.
type checker struct {
	ast      *ast.AST
	one      bool
	problems []Problem
}

// check returns a problem for each part of the result that cannot fit the schema, in the order of the text.
func check(a *ast.AST, out *schema.Structural, one bool) []Problem {
	c := &checker{ast: a, one: one}
	c.whole(a.Expr(), out)
	c.arguments(a.Expr())
	return sorted(c.problems)
}

// sorted returns the problems in the order of the text, without duplicates.
func sorted(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(problems)
}

func (c *checker) reportf(e ast.Expr, format string, args ...any) {
	at := c.ast.SourceInfo().GetStartLocation(e.ID())
	c.problems = append(c.problems, Problem{
		Line: max(at.Line(), 1), Column: max(at.Column()+1, 1), Message: fmt.Sprintf(format, args...), one: c.one,
	})
}

// result checks the value of an expression against a schema.
func (c *checker) result(e ast.Expr, out *schema.Structural) {
	if out == nil {
		out = &schema.Structural{} // Any type.
	}
	switch e.Kind() {
	case ast.ListKind:
		if c.outer(e, out) {
			c.elements(e.AsList(), out)
		}
	case ast.MapKind:
		if c.outer(e, out) {
			c.members(e.AsMap().Entries(), out)
		}
	case ast.ComprehensionKind:
		c.comprehension(e, out)
	case ast.CallKind:
		c.call(e, out)
	default:
		c.kind(e, out)
	}
}

func (c *checker) elements(l ast.ListExpr, out *schema.Structural) {
	for i, e := range l.Elements() {
		if !l.IsOptional(int32(i)) {
			c.result(e, out.Items)
		}
	}
}

func (c *checker) members(entries []ast.EntryExpr, out *schema.Structural) {
	for _, entry := range entries {
		m := entry.AsMapEntry()
		var below *schema.Structural
		if key, ok := literal(m.Key()); ok {
			below = c.key(m.Key(), key, out)
		} else if got := kind(c.ast.GetType(m.Key().ID())); got != "" && got != "string" {
			c.reportf(m.Key(), "this key is %s, and keys of JSON are strings: write string(...)", article(got))
		}
		if !m.IsOptional() {
			c.result(m.Value(), below)
		}
	}
}

// literal returns the text of a string literal.
func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// key returns the schema of the member with this key. It reports a problem if the schema does not have the key.
func (c *checker) key(at ast.Expr, key string, out *schema.Structural) *schema.Structural {
	if out.Type != "object" {
		return nil // Any type.
	}
	if p, ok := out.Properties[key]; ok {
		return &p
	}
	switch additional := out.AdditionalProperties; {
	case additional != nil && (additional.Bool || additional.Structural != nil):
		return additional.Structural
	case out.XPreserveUnknownFields:
	case out.XEmbeddedResource && slices.Contains([]string{"apiVersion", "kind", "metadata"}, key):
	case len(out.Properties) == 0:
		c.reportf(at, "unknown field %q: the schema has no fields here", key)
	default:
		const most = 10
		names := slices.Sorted(maps.Keys(out.Properties))
		more := ""
		if len(names) > most {
			names, more = names[:most], " and more"
		}
		c.reportf(at, "unknown field %q: the schema has %s%s", key, strings.Join(names, ", "), more)
	}
	return nil
}

// comprehension checks a macro by the results of its steps.
func (c *checker) comprehension(e ast.Expr, out *schema.Structural) {
	fold := e.AsComprehension()
	if binds(fold) {
		c.result(fold.Result(), out)
		return
	}
	if !c.outer(e, out) {
		return
	}
	step := fold.LoopStep()
	if args := callOf(step, operators.Conditional, 3); args != nil { // A filter.
		step = args[1]
	}
	if args := callOf(step, operators.Add, 2); args != nil && args[1].Kind() == ast.ListKind {
		c.elements(args[1].AsList(), out)
	}
	if args := callOf(step, "cel.@mapInsert", 3); args != nil && out.AdditionalProperties != nil {
		c.result(args[2], out.AdditionalProperties.Structural)
	}
	if args := callOf(step, "cel.@mapInsert", 2); args != nil {
		c.result(args[1], out)
	}
}

// callOf returns the arguments of a call of a function with n arguments; the target counts as an argument. It returns
// nil for other expressions.
func callOf(e ast.Expr, function string, n int) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != function {
		return nil
	}
	args := arguments(e)
	if len(args) != n {
		return nil
	}
	return args
}

func arguments(e ast.Expr) []ast.Expr {
	call := e.AsCall()
	if call.IsMemberFunction() {
		return append([]ast.Expr{call.Target()}, call.Args()...)
	}
	return call.Args()
}

func (c *checker) call(e ast.Expr, out *schema.Structural) {
	args := arguments(e)
	switch e.AsCall().FunctionName() {
	case operators.Conditional:
		c.result(args[1], out)
		c.result(args[2], out)
		return
	case "dyn":
		c.result(args[0], out)
		return
	}
	if !c.kind(e, out) {
		return
	}
	switch e.AsCall().FunctionName() {
	case operators.Add:
		if out.Type == "array" {
			c.result(args[0], out)
			c.result(args[1], out)
		}
	case "distinct", "reverse", "sort", "slice", "omit":
		if e.AsCall().FunctionName() == "omit" || out.Type == "array" {
			c.constructed(args[0], out)
		}
	case "merge":
		c.constructed(args[0], out)
		c.constructed(args[1], out)
	case "flatten":
		if len(args) == 1 && c.ast.GetType(args[0].ID()).Kind() == types.ListKind &&
			c.ast.GetType(args[0].ID()).Parameters()[0].Kind() == types.ListKind {
			c.result(args[0], &schema.Structural{Generic: schema.Generic{Type: "array"}, Items: out})
		}
	case "count":
		c.counted(args, out)
	case "orValue":
		c.result(args[1], out)
	}
}

// constructed checks an argument against the schema if the expression constructs the argument. Other arguments are not
// checked: a part that the schema does not have may come from the input.
func (c *checker) constructed(e ast.Expr, out *schema.Structural) {
	switch e.Kind() {
	case ast.ListKind, ast.MapKind, ast.ComprehensionKind:
		c.result(e, out)
	case ast.CallKind:
		if e.AsCall().FunctionName() != "omit" {
			c.result(e, out)
		}
	default:
	}
}

// counted checks list.count() and list.count(valueKey, countKey).
func (c *checker) counted(args []ast.Expr, out *schema.Structural) {
	if out.Items == nil || out.Items.Type != "object" {
		return
	}
	if len(args) == 1 {
		c.key(args[0], string(valueKey), out.Items)
		c.key(args[0], string(countKey), out.Items)
		return
	}
	for _, a := range args[1:] {
		if key, ok := literal(a); ok {
			c.key(a, key, out.Items)
		}
	}
}

// kind reports whether the type of an expression fits the schema, as far as the type is known.
func (c *checker) kind(e ast.Expr, out *schema.Structural) bool {
	return c.fits(e, c.ast.GetType(e.ID()), out)
}

// fits is kind for an expression of a given type.
func (c *checker) fits(e ast.Expr, t *types.Type, out *schema.Structural) bool {
	message := misfit(t, out)
	if message == "" {
		return true
	}
	c.reportf(e, "this is %s", message)
	return false
}

// outer is kind for the outermost type only. The contents of lists and maps are checked element by element.
func (c *checker) outer(e ast.Expr, out *schema.Structural) bool {
	got := kind(c.ast.GetType(e.ID()))
	if got == out.Type || got == "" || out.Type == "" || out.XIntOrString {
		return true
	}
	return c.kind(e, out)
}

// mayBeAbsent is the advice for an optional value inside the result.
const mayBeAbsent = `add .orValue(...), or write {?"key": ...} or [?...]`

// misfit returns the reason why values of a type cannot fit a schema; "" if they may fit.
func misfit(t *types.Type, out *schema.Structural) string {
	got := kind(t)
	switch {
	case optional(t):
		return "an optional value, which may be absent: " + mayBeAbsent
	case got == "" && foreign(t):
		return fmt.Sprintf("of type %s, which JSON does not have: write %s", typeText(t.TypeName()), instead(t.TypeName()))
	case out == nil || out.XIntOrString || out.Type == "":
	case got == "" || got == out.Type || got == "integer" && out.Type == "number":
	case got == "null" && out.Nullable:
	case got == "null":
		return fmt.Sprintf("null, and the schema wants %s", article(out.Type))
	case got == "number" && out.Type == "integer":
		return "a number that may not be an integer, and the schema wants an integer: write int(...)"
	default:
		return fmt.Sprintf("%s, and the schema wants %s", article(got), article(out.Type))
	}
	switch got {
	case "array":
		if inside := misfit(t.Parameters()[0], below(out, false)); inside != "" {
			return "a list, and an element is " + inside
		}
	case "object":
		if t.Kind() != types.MapKind {
			return ""
		}
		if inside := misfit(t.Parameters()[1], below(out, true)); inside != "" {
			return "an object, and a value is " + inside
		}
	}
	return ""
}

// below returns the schema of the elements of a list or, if table is true, of the values of a map.
func below(out *schema.Structural, table bool) *schema.Structural {
	switch {
	case out == nil:
		return nil
	case !table:
		return out.Items
	case out.AdditionalProperties != nil:
		return out.AdditionalProperties.Structural
	default:
		return nil
	}
}

// foreign reports whether JSON certainly does not have a type.
func foreign(t *types.Type) bool {
	switch t.Kind() {
	case types.DynKind, types.TypeParamKind, types.AnyKind, types.ErrorKind, types.UnspecifiedKind:
		return false
	default:
		return true
	}
}

func optional(t *types.Type) bool {
	return t.Kind() == types.OpaqueKind && t.TypeName() == "optional_type"
}

// kind returns the name that schemas have for a type; "" if the type is unknown.
func kind(t *types.Type) string {
	switch t.Kind() {
	case types.BoolKind:
		return "boolean"
	case types.IntKind, types.UintKind:
		return "integer"
	case types.DoubleKind:
		return "number"
	case types.StringKind:
		return "string"
	case types.NullTypeKind:
		return "null"
	case types.ListKind:
		return "array"
	case types.MapKind:
		return "object"
	case types.StructKind:
		if strings.HasPrefix(t.TypeName(), "object(") {
			return "object"
		}
		return ""
	default:
		return ""
	}
}

// article returns the name of a schema type with an article.
func article(kind string) string {
	switch kind {
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "integer":
		return "an integer"
	case "string":
		return "a text"
	case "boolean":
		return "a boolean"
	case "number":
		return "a number"
	default:
		return kind
	}
}

// arguments reports calls of merge and omit with arguments that are certainly not objects. The type checker does not
// find them, because the declarations of these functions accept any value.
func (c *checker) arguments(root ast.Expr) {
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		function := e.AsCall().FunctionName()
		if function != "merge" && function != "omit" {
			return
		}
		args := arguments(e)
		if function == "omit" {
			args = args[:1]
		}
		for _, a := range args {
			if got := kind(c.ast.GetType(a.ID())); got != "" && got != "object" {
				c.reportf(a, "%s wants objects, and this is %s", function, article(got))
			}
		}
	}))
}
