package expression

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiserver/pkg/cel/library"
)

// Program is an expression that was compiled for the values of a schema. It is safe for concurrent use.
type Program struct {
	build func() (*evaluation, error)
	// idle has the evaluations that no caller uses.
	idle   chan *evaluation
	source *ast.SourceInfo
	in     *shape
	limits Limits
	one    bool // Whether the text has one line.
}

// evaluation is a compiled expression with its meter, for one caller at a time.
type evaluation struct {
	program cel.Program
	meter   *meter
	vars    variables
}

// idle is the maximum number of unused evaluations that a program keeps.
const idle = 16

// Limits bounds one evaluation.
type Limits struct {
	// OutputItems is the maximum number of elements and members of the result, including nested ones. It is also the
	// maximum number of elements of each intermediate list. Zero or less means 100,000.
	OutputItems int
	// Cost is the maximum cost in units: one unit for each variable, field, conditional and call, and more for calls
	// with large arguments. Zero means 1,000,000.
	Cost uint64
}

const (
	defaultOutputItems = 100_000
	defaultCost        = 1_000_000
)

func (l Limits) orDefaults() Limits {
	if l.OutputItems <= 0 {
		l.OutputItems = defaultOutputItems
	}
	if l.Cost == 0 {
		l.Cost = defaultCost
	}
	return l
}

// Problem is a compile error of an expression.
type Problem struct {
	// Line and Column are the position in the text of the expression. Both begin at 1. The column counts characters.
	Line, Column int
	// Message describes the problem.
	Message string

	one bool // Whether the text has one line.
}

// String returns the position and the message: "line 1, column 14: undefined field 'nme'". It omits the line if the
// text has only one line.
func (p Problem) String() string {
	if p.one {
		return fmt.Sprintf("column %d: %s", p.Column, p.Message)
	}
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Message)
}

// language has the parts that all expressions share.
type language struct {
	env             *cel.Env
	implementations map[string]*functions.Overload
	wraps           map[string]bool
}

// common creates the language once, because that takes longer than the compilation of an expression. The language is
// never modified.
var common = sync.OnceValues(newLanguage)

func newLanguage() (*language, error) {
	env, err := cel.NewEnv(append([]cel.EnvOption{
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		ext.Strings(),
		ext.Lists(),
		ext.Math(),
		ext.Sets(),
		ext.TwoVarComprehensions(),
		ext.Encoders(),
		ext.Regex(),
		ext.Bindings(),
		library.Quantity(),
		library.SemverLib(library.SemverVersion(1)),
		library.URLs(),
	}, own()...)...)
	if err != nil {
		return nil, fmt.Errorf("declaring the functions of expressions: %w", err)
	}
	implementations := map[string]*functions.Overload{}
	for _, f := range env.Functions() {
		bindings, err := f.Bindings()
		if err != nil {
			return nil, fmt.Errorf("declaring the functions of expressions: %w", err)
		}
		for _, b := range bindings {
			implementations[b.Operator] = b
		}
	}
	return &language{env: env, implementations: implementations, wraps: wrapping(env)}, nil
}

// maxOptionalMacros is the maximum number of optMap and optFlatMap in an expression. Each of them doubles the
// expression in front of it.
const maxOptionalMacros = 8

// Compile checks the expression against in, the schema of value, and its result against the schema out, as far as the
// text and the types determine the result. A nil schema allows any value. Compile returns either the program, or the
// problems in the order of the text. It neither keeps nor modifies the schemas.
func Compile(text string, in, out *schema.Structural, l Limits) (*Program, []Problem) {
	known := objects{}
	shape := known.shape(in, "value")
	v := variable{name: "value", typ: shape.typ, known: known}
	p, problems := v.compile(text, l, func(checked *cel.Ast, one bool) []Problem { return check(checked.NativeRep(), out, one) })
	if p != nil {
		p.in = shape
	}
	return p, problems
}

// variable is the variable of an expression.
type variable struct {
	name  string
	typ   *cel.Type
	known objects // The object types in typ.
}

// compile compiles an expression. The function suits checks its result.
func (v *variable) compile(text string, l Limits, suits func(checked *cel.Ast, one bool) []Problem) (*Program, []Problem) {
	one := !strings.Contains(strings.TrimSpace(text), "\n")
	fail := func(err error) []Problem {
		return []Problem{{Line: 1, Column: 1, Message: err.Error(), one: one}}
	}
	lang, err := common()
	if err != nil {
		return nil, fail(err)
	}
	env, err := lang.env.Extend(
		cel.CustomTypeProvider(provider{Provider: lang.env.CELTypeProvider(), objects: v.known}),
		cel.Variable(v.name, v.typ),
	)
	if err != nil {
		return nil, fail(err)
	}
	if strings.TrimSpace(text) == "" {
		return nil, fail(errors.New("the expression is empty"))
	}
	if strings.Count(text, "optMap")+strings.Count(text, "optFlatMap") > maxOptionalMacros {
		return nil, fail(fmt.Errorf("more than %d times optMap and optFlatMap: in a chain, each doubles the expression; "+
			"write has(...) and a choice", maxOptionalMacros))
	}
	parsed, issues := env.Parse(text)
	if issues != nil && issues.Err() != nil {
		return nil, findings(issues, one)
	}
	loosen(parsed.NativeRep())
	if at := lang.tooNested(parsed.NativeRep()); at != nil {
		c := &checker{ast: parsed.NativeRep(), one: one}
		c.reportf(at, "more than %d lists, maps and optional values inside each other: that is the limit", maxNesting)
		return nil, c.problems
	}
	checked, issues := env.Check(parsed)
	if issues != nil && issues.Err() != nil {
		return nil, v.known.explain(findings(issues, one))
	}
	if problems := suits(checked, one); len(problems) > 0 {
		return nil, problems
	}
	l = l.orDefaults()
	build := func() (*evaluation, error) {
		// The optimizations of cel-go are not used. They evaluate parts of the expression at compile time. They also
		// replace calls with constant patterns and lists by calls without guards.
		m := &meter{limit: l.Cost}
		program, err := env.Program(checked, decorate(lang.implementations, l, m))
		return &evaluation{program: program, meter: m, vars: variables{name: v.name}}, err
	}
	first, err := build()
	if err != nil {
		return nil, fail(err)
	}
	p := &Program{build: build, idle: make(chan *evaluation, idle), source: checked.NativeRep().SourceInfo(), limits: l, one: one}
	p.idle <- first
	return p, nil
}

// evaluate returns the result of the expression.
func (p *Program) evaluate(value ref.Val) (ref.Val, error) {
	var e *evaluation
	select {
	case e = <-p.idle:
	default:
		made, err := p.build()
		if err != nil {
			return nil, err
		}
		e = made
	}
	e.meter.cost, e.vars.value = 0, value
	out, _, err := e.program.Eval(&e.vars)
	e.vars.value = nil
	select {
	case p.idle <- e:
	default:
	}
	return out, err
}

// findings converts errors of CEL to problems.
func findings(issues *cel.Issues, one bool) []Problem {
	var out []Problem
	for _, e := range issues.Errors() {
		fact, _, _ := strings.Cut(e.Message, "\n")
		fact = strings.ReplaceAll(fact, " (in container '')", "")
		if i := strings.Index(fact, " expecting {"); i >= 0 && len(fact)-i > maxExpected {
			fact = fact[:i] // Cuts a long list of expected tokens.
		}
		if len(fact) > maxMessage {
			fact = strings.ToValidUTF8(fact[:maxMessage], "") + "…"
		}
		out = append(out, Problem{Line: max(e.Location.Line(), 1), Column: max(e.Location.Column()+1, 1), Message: fact, one: one})
	}
	return sorted(out)
}

// variables has the value of the variable of an expression.
type variables struct {
	name  string
	value ref.Val
}

// ResolveName implements [interpreter.Activation].
func (v *variables) ResolveName(name string) (any, bool) {
	if name != v.name {
		return nil, false
	}
	return v.value, true
}

// Parent implements [interpreter.Activation].
func (*variables) Parent() interpreter.Activation { return nil }

// Convert converts a JSON value. It appends the JSON of the result to dst, and returns the extended slice. An absent
// result is null. Convert neither modifies nor keeps value. If the evaluation exceeds a limit or fails, or if the
// result is not JSON, the error has the position and the reason; the content of dst must then not be used. Convert
// never panics.
func (p *Program) Convert(dst, value []byte) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("evaluating: %v", r)
		}
	}()
	v, err := decode(value, p.in)
	if err != nil {
		return nil, err
	}
	result, err := p.evaluate(v)
	if err != nil {
		return nil, p.explain(err)
	}
	w := &writer{out: dst, start: len(dst), items: p.limits.OutputItems, limit: p.limits.OutputItems}
	if err := w.value(present(result)); err != nil {
		return nil, err
	}
	if len(w.out)-w.start > maxText {
		return nil, errLong
	}
	return w.out, nil
}

// maxExpected is the maximum size in bytes of the parser's list of expected tokens.
const maxExpected = 60

// maxMessage is the maximum size in bytes of a message without its position.
const maxMessage = 500

// explain adds the position in the expression to an error.
func (p *Program) explain(err error) error {
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded {
		return fmt.Errorf("it costs more than %d units: that is the limit", p.limits.Cost)
	}
	var at *types.Err
	if !errors.As(err, &at) {
		return err
	}
	if text := err.Error(); len(text) > maxMessage { // The text may contain a part of the value.
		err = errors.New(strings.ToValidUTF8(text[:maxMessage], "") + "…")
	}
	where := p.source.GetStartLocation(at.NodeID())
	switch {
	case at.NodeID() == 0 || where.Line() < 1:
		return err
	case p.one:
		return fmt.Errorf("column %d: %w", where.Column()+1, err)
	default:
		return fmt.Errorf("line %d, column %d: %w", where.Line(), where.Column()+1, err)
	}
}
