package expression

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// Condition is an expression about an object that is true or false. It is safe for
// concurrent use.
type Condition struct {
	program *Program
}

// CompileCondition compiles an expression of the same language whose variable is object, of
// which nothing is known. It returns the condition, or what is wrong, in the order of the text.
func CompileCondition(text string, l Limits) (*Condition, []Problem) {
	v := variable{name: "object", typ: cel.MapType(cel.StringType, cel.DynType), known: objects{}}
	p, problems := v.compile(text, l, func(checked *cel.Ast, one bool) []Problem {
		out := checked.OutputType()
		if out.IsExactType(cel.BoolType) || out.IsExactType(cel.DynType) {
			return nil
		}
		return []Problem{{Line: 1, Column: 1, Message: fmt.Sprintf("it is of type %s, want bool", out), one: one}}
	})
	if len(problems) > 0 {
		return nil, problems
	}
	return &Condition{p}, nil
}

var errNoBool = errors.New("want true or false")

// Holds evaluates the condition for an object as decoded from JSON, with int64 and float64 for
// numbers. It neither changes nor keeps the object. If the evaluation is over a limit, or fails,
// as for a field that is not there, it returns an error that says where in the expression and
// why. It never panics.
func (c *Condition) Holds(object map[string]any) (holds bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			holds, err = false, fmt.Errorf("evaluating: %v", r)
		}
	}()
	out, err := c.program.evaluate(types.DefaultTypeAdapter.NativeToValue(object))
	if err != nil {
		return false, c.program.explain(err)
	}
	is, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("it gives a value of type %s: %w", out.Type().TypeName(), errNoBool)
	}
	return bool(is), nil
}
