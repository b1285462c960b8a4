package policytest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	yaml "go.yaml.in/yaml/v3"

	"refract.dev/tree"
)

// maxCost ends an expression that would run too long. It is the limit of API servers for a single expression.
//
// Source: https://pkg.go.dev/k8s.io/apiserver/pkg/apis/cel#PerCallLimit
const maxCost = 1_000_000

// maxRange is the maximum length of a list that lists.range creates.
const maxRange = 10_000

// language compiles expressions, each text once.
type language struct {
	env      *cel.Env
	compiled map[string]compiled
}

type compiled struct {
	*expression

	issue *cel.Error
	err   error
}

// expression is a compiled CEL expression with a boolean result.
type expression struct {
	text    string
	program cel.Program
	// places are the places of the object that the expression names.
	places []tree.Pointer
}

// newLanguage declares the variables. The options are those of an API server, except for the Kubernetes libraries.
func newLanguage() (*language, error) {
	object := cel.MapType(cel.StringType, cel.DynType)
	env, err := cel.NewEnv(
		cel.Variable("object", object),
		cel.Variable("hub", object),
		cel.Variable("cluster", object),
		cel.Variable("changes", cel.ListType(object)),
		cel.Variable("warnings", cel.ListType(cel.StringType)),
		cel.HomogeneousAggregateLiterals(),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		ext.Strings(),
		ext.Lists(ext.ListsMaxRangeSize(maxRange)),
		ext.Sets(),
		ext.Regex(),
		ext.Bindings(),
		ext.TwoVarComprehensions(),
	)
	if err != nil {
		return nil, fmt.Errorf("declaring the variables of CEL: %w", err)
	}
	return &language{env: env, compiled: map[string]compiled{}}, nil
}

// compile compiles the expression in a value, or reports its mistake.
func (l *language) compile(at *value) (*expression, bool) {
	text, ok := at.text()
	if !ok {
		return nil, false
	}
	c, done := l.compiled[text]
	if !done {
		c = l.compileText(text)
		l.compiled[text] = c
	}
	switch {
	case c.issue != nil:
		lines := c.issue.Location.Line() - 1
		where := *at
		if node := resolve(at.node); node != nil {
			where.line = at.doc.before() + node.Line
			if node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
				lines++ // The text begins on the next line.
			}
			if strings.Contains(text, "\n") || node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
				where.line += lines
			}
		}
		fact, _, _ := strings.Cut(c.issue.Message, "\n")
		where.report(fmt.Sprintf("is not valid CEL: column %d: %s", c.issue.Location.Column()+1, fact), "")
		return nil, false
	case c.err != nil:
		at.report(fmt.Sprintf("is not valid CEL: %v", c.err), "")
		return nil, false
	default:
		return c.expression, true
	}
}

func (l *language) compileText(text string) compiled {
	checked, issues := l.env.Compile(text)
	if issues != nil && len(issues.Errors()) > 0 {
		return compiled{issue: issues.Errors()[0]}
	}
	if out := checked.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return compiled{err: fmt.Errorf("it is of type %s, want bool", out)}
	}
	program, err := l.env.Program(checked, cel.CostLimit(maxCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return compiled{err: err}
	}
	return compiled{expression: &expression{text: text, program: program, places: places(checked.NativeRep().Expr())}}
}

// line returns the expression on one line.
func (x *expression) line() string { return strings.Join(strings.Fields(x.text), " ") }

var errNoBool = errors.New("want true or false")

// holds evaluates the expression.
func (x *expression) holds(variables map[string]any) (bool, error) {
	out, _, err := x.program.Eval(variables)
	if err != nil {
		return false, err
	}
	b, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("is of type %s: %w", out.Type().TypeName(), errNoBool)
	}
	return bool(b), nil
}

// places returns the places inside the object that an expression names, such as
// object.spec.template.spec.containers[0].image, in the order of the text.
func places(e ast.Expr) []tree.Pointer {
	var found []tree.Pointer
	seen := map[string]bool{}
	visitor := func(e ast.NavigableExpr) bool {
		p, ok := placeOf(e)
		if ok && p.String() != "" && !seen[p.String()] {
			seen[p.String()] = true
			found = append(found, p)
		}
		return ok
	}
	visit(ast.NavigateExpr(ast.NewAST(e, nil), e), visitor)
	return found
}

// visit descends into an expression until satisfied returns true.
func visit(e ast.NavigableExpr, satisfied func(ast.NavigableExpr) bool) {
	if satisfied(e) {
		return
	}
	for _, child := range e.Children() {
		visit(child, satisfied)
	}
}

// placeOf returns the place that a chain of fields and constant indexes names.
func placeOf(e ast.Expr) (tree.Pointer, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return tree.Pointer{}, e.AsIdent() == "object"
	case ast.SelectKind:
		p, ok := placeOf(e.AsSelect().Operand())
		return p.Member(e.AsSelect().FieldName()), ok
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != "_[_]" || len(call.Args()) != 2 || call.Args()[1].Kind() != ast.LiteralKind {
			return tree.Pointer{}, false
		}
		p, ok := placeOf(call.Args()[0])
		return p.Member(fmt.Sprint(call.Args()[1].AsLiteral().Value())), ok
	default:
		return tree.Pointer{}, false
	}
}
