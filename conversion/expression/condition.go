package expression

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// Condition is a boolean expression about an object. It is safe for concurrent use.
type Condition struct {
	program *Program
}

// CompileCondition compiles an expression with the variable object, whose type is unknown. Otherwise the language is
// that of [Compile]. It returns either the condition, or the problems in the order of the text.
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

// Holds evaluates the condition for an object that was decoded from JSON, with numbers as int64 and float64. It neither
// modifies nor keeps the object. If the evaluation exceeds a limit or fails, for example at an absent field, the error
// has the position and the reason. Holds never panics.
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
		return false, fmt.Errorf("the result is of type %s: %w", out.Type().TypeName(), errNoBool)
	}
	return bool(is), nil
}
