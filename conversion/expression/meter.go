package expression

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// meter counts the cost of one evaluation.
//
// It replaces the cost tracker of cel-go, which keeps the values of arguments. If operators such as && skip arguments,
// their values remain, and the tracker searches all of them again and again. With the tracker, a loop takes minutes to
// reach a limit of a million steps.
type meter struct {
	cost, limit uint64
}

// add panics if the cost exceeds the limit. The value of the panic is that of cel-go's own cost limit, so Eval of the
// program returns it as an error.
func (m *meter) add(n int64) {
	m.cost += uint64(max(n, 0))
	if m.cost > m.limit {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "over the cost limit"})
	}
}

// metered is a variable, a field or a conditional. It costs one unit.
type metered struct {
	interpreter.InterpretableAttribute

	meter *meter
}

// Eval implements [interpreter.Interpretable].
func (m *metered) Eval(vars interpreter.Activation) ref.Val {
	return m.Exec(interpreter.AsFrame(vars))
}

// Exec implements [interpreter.InterpretableV2].
func (m *metered) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	m.meter.add(1)
	return m.InterpretableAttribute.Exec(frame)
}

// constructed is a list or object literal. It costs one unit for each element or member.
type constructed struct {
	interpreter.InterpretableConstructor

	meter *meter
}

// Eval implements [interpreter.Interpretable].
func (c *constructed) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// Exec implements [interpreter.InterpretableV2].
func (c *constructed) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	c.meter.add(int64(len(c.InitVals())))
	return c.InterpretableConstructor.Exec(frame)
}

// guarded is a call with a guard. The guard checks the arguments before the call, and the meter counts the cost.
type guarded struct {
	interpreter.InterpretableCall

	args     []interpreter.InterpretableV2
	values   []ref.Val // Arguments during the call.
	guard    guard
	function *functions.Overload // Nil if only cel-go can make the call.
	limits   Limits
	meter    *meter
}

// decorate adds the guards and the meter to a program.
func decorate(implementations map[string]*functions.Overload, l Limits, m *meter) cel.ProgramOption {
	return cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		switch node := i.(type) {
		case *metered, *guarded, *constructed:
			return i, nil
		case interpreter.InterpretableConstructor:
			return &constructed{InterpretableConstructor: node, meter: m}, nil
		case interpreter.InterpretableAttribute:
			return &metered{InterpretableAttribute: node, meter: m}, nil
		case interpreter.InterpretableCall:
			function := implementations[node.OverloadID()]
			if function == nil {
				function = implementations[node.Function()]
			}
			if function != nil && function.NonStrict {
				function = nil // The function is called even with an error as an argument.
			}
			return &guarded{
				InterpretableCall: node, args: node.Args(), values: make([]ref.Val, len(node.Args())),
				guard: guards[node.Function()], function: function, limits: l, meter: m,
			}, nil
		default:
			return i, nil
		}
	})
}

// Eval implements [interpreter.Interpretable].
func (g *guarded) Eval(vars interpreter.Activation) ref.Val {
	return g.Exec(interpreter.AsFrame(vars))
}

// Exec implements [interpreter.InterpretableV2].
func (g *guarded) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if g.function == nil && g.guard.do == nil {
		g.meter.add(1)
		return g.InterpretableCall.Exec(frame)
	}
	// The buffer for arguments is reused. A call ends before the next call of the same subexpression begins, because an
	// expression is a tree and an evaluation has only one caller.
	args := g.values
	defer clear(args)
	for i, a := range g.args {
		v := a.Exec(frame)
		if types.IsUnknownOrError(v) {
			return v
		}
		args[i] = v
	}
	if g.guard.check != nil {
		if err := g.guard.check(g.limits, args); err != nil {
			return types.LabelErrNode(g.ID(), types.WrapErr(fmt.Errorf("%s: %w", name(g.Function()), err)))
		}
	}
	g.meter.add(cost(g.Function(), args))
	result := g.call(args)
	if err, ok := result.(*types.Err); ok && err.Error() == "no such overload" {
		result = g.mismatch(args) // The new error has the types of the arguments.
	}
	g.meter.add(made(g.Function(), result))
	return types.LabelErrNode(g.ID(), result)
}

func (g *guarded) call(args []ref.Val) ref.Val {
	f := g.function
	switch {
	case g.guard.do != nil:
		return g.guard.do(args)
	case len(args) > 0 && f.OperandTrait != 0 && !args[0].Type().HasTrait(f.OperandTrait):
	case f.Unary != nil && len(args) == 1:
		return f.Unary(args[0])
	case f.Binary != nil && len(args) == 2:
		return f.Binary(args[0], args[1])
	case f.Function != nil:
		return f.Function(args...)
	}
	return g.mismatch(args)
}

// mismatch is the error for arguments that no overload accepts.
func (g *guarded) mismatch(args []ref.Val) ref.Val {
	names := make([]string, len(args))
	for i, a := range args {
		names[i] = typeName(a)
	}
	return types.NewErr("no such overload: %s(%s)", name(g.Function()), strings.Join(names, ", "))
}

// cost returns the cost of a call: one unit, and the work to read its arguments. Ten bytes of text cost one unit.
func cost(function string, args []ref.Val) int64 {
	const bytes = 10
	switch function {
	case "_==_", "_!=_":
		if composite(args[0]) && composite(args[1]) {
			return 1 + min(weigh(args[0], maxValues), weigh(args[1], maxValues))
		}
		return 1 + min(texts(args[:1]), texts(args[1:]))/bytes
	case "@in":
		if _, ok := args[1].(traits.Lister); ok {
			return weigh(args[1], maxValues)
		}
		return 1
	case "_+_":
		return 1 + texts(args)/bytes // The concatenation of two lists takes constant time.
	case "distinct", "count", "json.encode":
		return 1 + weigh(args[0], maxValues)
	case "format":
		return 1 + texts(args)/bytes + weigh(args[1], maxValues)
	case "lists.range", "expand", "merge", "omit", "flatten", "slice", "reverse", "split", "join", "math.@min", "math.@max":
		return 1 + texts(args)/bytes + elements(args[0])
	case "sort", "@sortByAssociatedKeys":
		return 1 + weigh(args[0], maxValues)*int64(bits.Len64(uint64(size(args[0]))))
	case "sets.contains", "sets.equivalent", "sets.intersects":
		return 1 + weigh(args[0], maxValues)*weigh(args[1], maxValues)
	case "matches", "regex.extract", "regex.extractAll", "regex.replace":
		const each, compiled = 40, 4 // As in CEL's own estimate, which also divides text times pattern by 40.
		n, _ := steps(args[1])
		return 1 + (size(args[1])+n)/compiled + (1+size(args[0]))*(1+n)/each
	case "indexOf", "lastIndexOf":
		const each = 40
		return 1 + (1+size(args[0]))*(1+size(args[1]))/each
	default:
		return 1 + texts(args)/bytes
	}
}

// made returns the additional cost for the result of a call: one unit for each element. Guards have limited the number
// of elements before the call.
func made(function string, result ref.Val) int64 {
	switch function {
	case "lists.range", "expand", "merge", "omit", "flatten", "slice", "reverse", "split", "regex.extractAll":
		return elements(result)
	default:
		return 0
	}
}

// texts returns the total size of the texts in bytes.
func texts(args []ref.Val) int64 {
	n := int64(0)
	for _, a := range args {
		switch a.(type) {
		case types.String, types.Bytes:
			n += size(a)
		}
	}
	return n
}

// elements returns the number of elements of a list or members of a map; 0 for other values.
func elements(v ref.Val) int64 {
	if composite(v) {
		return size(v)
	}
	return 0
}

func composite(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper:
		return true
	default:
		return false
	}
}
