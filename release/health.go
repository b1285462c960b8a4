package release

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What an expression may take. Objects of members are foreign data: whoever evaluates gives a
// context that ends soon, besides.
const (
	// maxCost ends an expression that would not end by itself: that of a single expression in
	// an API server.
	//
	// Source: https://pkg.go.dev/k8s.io/apiserver/pkg/apis/cel#PerCallLimit
	maxCost = 1_000_000
	// maxRange is how long a list lists.range makes.
	maxRange = 1000
	// maxExpression is how long one is, in bytes.
	maxExpression = 4096
	// interruptEvery is after how many steps of a loop it is looked whether the context has ended.
	interruptEvery = 100
)

// language is how expressions are compiled.
var language = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("object", cel.MapType(cel.StringType, cel.DynType)),
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
})

// Health is an expression of a policy, compiled. It may be used by many goroutines.
type Health struct {
	text    string
	program cel.Program
}

// CompileHealth compiles an expression.
func CompileHealth(text string) (*Health, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("it is %d bytes long, and may be %d", len(text), maxExpression)
	}
	env, err := language()
	if err != nil {
		return nil, fmt.Errorf("declaring the variables of CEL: %w", err)
	}
	checked, issues := env.Compile(text)
	if issues != nil && len(issues.Errors()) > 0 {
		first := issues.Errors()[0]
		return nil, fmt.Errorf("line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1, first.Message)
	}
	if out := checked.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("it is of type %s, want bool", out)
	}
	program, err := env.Program(checked, cel.CostLimit(maxCost), cel.EvalOptions(cel.OptOptimize), cel.InterruptCheckFrequency(interruptEvery))
	if err != nil {
		return nil, err
	}
	return &Health{text: text, program: program}, nil
}

// Holds evaluates the expression on a copy as its member has it. What it names and is not
// there is an error, as is all that is neither true nor false: such a copy is not healthy, and
// the error says why.
func (h *Health) Holds(ctx context.Context, object map[string]any) error {
	out, _, err := h.program.ContextEval(ctx, map[string]any{"object": object})
	if err != nil {
		return fmt.Errorf("health.cel: %w", err)
	}
	b, ok := out.(types.Bool)
	switch {
	case !ok:
		return fmt.Errorf("health.cel: it is of type %s, want true or false", out.Type().TypeName())
	case !bool(b):
		return fmt.Errorf("health.cel is false: %s", h.text)
	}
	return nil
}

func checkCEL(text string, path *field.Path) field.ErrorList {
	if _, err := CompileHealth(text); err != nil {
		return field.ErrorList{field.Invalid(path, text, "is not valid CEL: "+err.Error())}
	}
	return nil
}
