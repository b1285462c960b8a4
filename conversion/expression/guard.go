package expression

import (
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"regexp/syntax"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

var textType = reflect.TypeFor[string]()

// A guard checks the arguments of a function before the call. CEL determines the cost of a call only after the call,
// when the result already exists.
type guard struct {
	// check returns an error if the result or the work would exceed a limit.
	check func(l Limits, args []ref.Val) error
	// do, if set, replaces the function of the library.
	do func(args []ref.Val) ref.Val
}

// guards are the guards of the functions whose result or work may be much larger than their arguments.
var guards = map[string]guard{
	"_+_": {check: checkSum},
	"_==_": {check: checkWeight, do: func(args []ref.Val) ref.Val {
		return types.Equal(direct(args[0]), direct(args[1]))
	}},
	"_!=_": {check: checkWeight, do: func(args []ref.Val) ref.Val {
		equal, ok := types.Equal(direct(args[0]), direct(args[1])).(types.Bool)
		return types.Bool(!ok || !bool(equal))
	}},
	"@in": {check: checkWeight},

	"lists.range":           {check: checkRange},
	"flatten":               {check: checkFlatten},
	"distinct":              {check: checkWeight, do: doDistinct},
	"count":                 {check: checkWeight},
	"expand":                {check: checkExpand},
	"merge":                 {check: checkSum},
	"slice":                 {check: checkItems},
	"reverse":               {check: checkItems},
	"sort":                  {check: checkItems},
	"@sortByAssociatedKeys": {check: checkItems},
	"sets.contains":         {check: checkPairs},
	"sets.equivalent":       {check: checkPairs},
	"sets.intersects":       {check: checkPairs},
	"matches":               {check: checkPattern},
	"regex.extract":         {check: checkPattern},
	"regex.extractAll":      {check: checkPattern},
	"regex.replace":         {check: checkPatternReplace},
	"indexOf":               {check: checkSearch},
	"lastIndexOf":           {check: checkSearch},
	"replace":               {check: checkReplace},
	"join":                  {check: checkJoin},
	"split":                 {check: checkSplit},
	"format":                {check: checkFormat},
	"strings.quote":         {check: checkText},
	"base64.encode":         {check: checkText},
	"url":                   {check: checkText},
	"json.encode":           {check: checkWeight, do: doEncode},
	"math.@min":             {check: checkItems},
	"math.@max":             {check: checkItems},
	"quantity":              {check: checkQuantity},
	"isQuantity":            {do: doIsQuantity},
	"semver":                {check: checkNumeral},
	"isSemver":              {check: checkNumeral},
}

// direct dereferences a quantity. Some functions return pointers to quantities, and CEL would compare these pointers.
func direct(v ref.Val) ref.Val {
	if q, ok := v.(*apiservercel.Quantity); ok {
		return *q
	}
	return v
}

// name returns the name of a function as in expressions.
func name(function string) string {
	switch function {
	case "@sortByAssociatedKeys":
		return "sortBy"
	case "_[_]":
		return "[]"
	case "math.@max":
		return "math.greatest"
	case "math.@min":
		return "math.least"
	default:
		return strings.Trim(strings.ReplaceAll(function, "@", ""), "_")
	}
}

func tooMany(items int) error {
	return fmt.Errorf("the list would have more than %d elements: that is the limit", items)
}

var (
	errTextLong = fmt.Errorf("the text would have more than %d bytes", maxText)
	errWork     = errors.New("the values are too big for this operation")
)

// size returns the number of elements of a list, members of a map, or bytes of a text.
func size(v ref.Val) int64 {
	switch v := v.(type) {
	case types.String:
		return int64(len(v))
	case types.Bytes:
		return int64(len(v))
	case traits.Sizer:
		n, _ := v.Size().(types.Int)
		return int64(n)
	default:
		return 1
	}
}

// weigh returns the work for a visit of a whole value: one unit for each value in it, and one for each 64 bytes of
// text. It stops when the work exceeds the limit.
func weigh(v ref.Val, limit int64) int64 {
	const bytes = 64
	switch v := v.(type) {
	case types.String, types.Bytes:
		return 1 + size(v)/bytes
	case *list:
		return 1 + int64(v.weight) + int64(len(v.raw))/bytes
	case *table:
		if v.raw != nil {
			return 1 + int64(v.weight) + int64(len(v.raw))/bytes
		}
		n := int64(1)
		for i, k := range v.keys {
			n += int64(len(k)) / bytes
			if n += weigh(v.values[i], limit-n); n > limit {
				break
			}
		}
		return n
	case traits.Lister:
		n := int64(1)
		for it := v.Iterator(); n <= limit && it.HasNext() == types.True; {
			n += weigh(it.Next(), limit-n)
		}
		return n
	case traits.Mapper:
		n := int64(1)
		for it := v.Iterator(); n <= limit && it.HasNext() == types.True; {
			k := it.Next()
			n += weigh(k, limit-n)
			if value, ok := v.Find(k); ok {
				n += weigh(value, limit-n)
			}
		}
		return n
	case *types.Optional:
		if v.HasValue() {
			return 1 + weigh(v.GetValue(), limit-1)
		}
		return 1
	default:
		return 1
	}
}

func checkWeight(_ Limits, args []ref.Val) error {
	for _, a := range args {
		if weigh(a, maxValues) > maxValues {
			return errWork
		}
	}
	return nil
}

func checkItems(l Limits, args []ref.Val) error {
	for _, a := range args {
		if _, ok := a.(traits.Lister); ok && size(a) > max(int64(l.OutputItems), maxValues) {
			return errWork
		}
	}
	return nil
}

// checkSum checks a + b and a.merge(b).
func checkSum(l Limits, args []ref.Val) error {
	n := size(args[0]) + size(args[1])
	switch args[0].(type) {
	case traits.Lister, traits.Mapper:
		if n > int64(l.OutputItems) {
			return tooMany(l.OutputItems)
		}
	case types.String, types.Bytes:
		if n > maxText {
			return errTextLong
		}
	}
	return nil
}

func checkRange(l Limits, args []ref.Val) error {
	if n, ok := args[0].(types.Int); ok && int64(n) > int64(l.OutputItems) {
		return fmt.Errorf("the list would have %d elements, more than %d: that is the limit", int64(n), l.OutputItems)
	}
	return nil
}

func checkFlatten(l Limits, args []ref.Val) error {
	from, ok := args[0].(traits.Lister)
	if !ok {
		return fmt.Errorf("want a list, got %s", typeName(args[0]))
	}
	depth := int64(1)
	if len(args) == 2 {
		n, ok := args[1].(types.Int)
		if !ok {
			return fmt.Errorf("want an integer, got %s", typeName(args[1]))
		}
		depth = int64(n)
	}
	// Empty inner lists count as well, because visiting them is work.
	if flat(from, depth, int64(l.OutputItems)) > int64(l.OutputItems) {
		return tooMany(l.OutputItems)
	}
	return nil
}

// flat returns the length of a list after flatten. It stops when the length exceeds the limit.
func flat(l traits.Lister, depth, limit int64) int64 {
	if size(l) > limit {
		return limit + 1
	}
	n := int64(0)
	for it := l.Iterator(); n <= limit && it.HasNext() == types.True; {
		inner, ok := it.Next().(traits.Lister)
		if !ok || depth <= 0 {
			n++
			continue
		}
		n += max(flat(inner, depth-1, limit-n), 1)
	}
	return n
}

func checkExpand(l Limits, args []ref.Val) error {
	from, ok := args[0].(traits.Lister)
	if !ok {
		return fmt.Errorf("want a list, got %s", typeName(args[0]))
	}
	count := countKey
	if len(args) == 3 {
		count, _ = args[2].(types.String)
	}
	left := int64(l.OutputItems)
	i := 0
	for it := from.Iterator(); it.HasNext() == types.True; i++ {
		n, err := times(it.Next(), i, count)
		if err != nil {
			return nil //nolint:nilerr // expand itself returns this error.
		}
		if n > left {
			return fmt.Errorf("%q of element %d is %d: %w", string(count), i, n, tooMany(l.OutputItems))
		}
		left -= n
	}
	return nil
}

func doDistinct(args []ref.Val) ref.Val {
	out, _, err := distinct(args[0])
	if err != nil {
		return types.WrapErr(fmt.Errorf("distinct: %w", err))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, out)
}

// doEncode encodes all integers exactly. The function of the library does not.
func doEncode(args []ref.Val) ref.Val {
	w := &writer{items: maxValues, limit: maxValues}
	if err := w.value(args[0]); err != nil {
		return types.WrapErr(err)
	}
	return types.String(w.out)
}

// checkPairs checks a function that compares each element of one list with each element of another one.
func checkPairs(l Limits, args []ref.Val) error {
	a, b := weigh(args[0], maxValues), weigh(args[1], maxValues)
	if hi, lo := bits.Mul64(uint64(a), uint64(b)); hi > 0 || lo > l.Cost {
		return errWork
	}
	return nil
}

// checkPattern checks a text and a regular expression. The expression x{1000} has as many steps as x written a thousand
// times.
func checkPattern(_ Limits, args []ref.Val) error {
	const most, longest = 10_000_000, 10_000
	if size(args[1]) > longest {
		return fmt.Errorf("the pattern has more than %d bytes", longest)
	}
	n, groups := steps(args[1])
	switch {
	case n*(groups+1) > 2*longest:
		return errors.New("the pattern has too many parts, repeated ones counted as often as they are repeated: the limit is 20000, divided by its groups")
	case (size(args[0])+1)*(n+8) > most:
		return errWork
	default:
		return nil
	}
}

// steps returns the number of steps of a regular expression, and the number of its groups. A repeated step counts as
// often as it is repeated. Both results are 0 for an invalid expression.
func steps(pattern ref.Val) (n, groups int64) {
	text, ok := pattern.(types.String)
	if !ok {
		return 0, 0
	}
	parsed, err := syntax.Parse(string(text), syntax.Perl)
	if err != nil {
		return 0, 0
	}
	return stepsOf(parsed), int64(parsed.MaxCap())
}

func stepsOf(e *syntax.Regexp) int64 {
	n := int64(1)
	for _, s := range e.Sub {
		n += stepsOf(s)
	}
	switch e.Op {
	case syntax.OpLiteral:
		n = int64(len(e.Rune))
	case syntax.OpRepeat:
		n *= int64(max(e.Min, e.Max, 1))
	default:
	}
	return n
}

func checkPatternReplace(l Limits, args []ref.Val) error {
	if err := checkPattern(l, args); err != nil {
		return err
	}
	// The number of matches is unknown: the pattern may match between any two characters. A group, such as \1, may
	// stand for the whole text.
	with := size(args[2])
	if groups, ok := args[2].(types.String); ok {
		with += int64(strings.Count(string(groups), `\`)) * size(args[0])
	}
	if (size(args[0])+1)*(with+1) > maxText {
		return errTextLong
	}
	return nil
}

// checkSearch checks a function that compares a text at each position of another one.
func checkSearch(_ Limits, args []ref.Val) error {
	const most = 50_000_000
	if _, ok := args[0].(types.String); ok && size(args[0])*size(args[1]) > most {
		return errWork
	}
	return nil
}

func checkReplace(_ Limits, args []ref.Val) error {
	text, ok := args[0].(types.String)
	from, ok2 := args[1].(types.String)
	if !ok || !ok2 {
		return nil // No overload accepts them.
	}
	if n := int64(strings.Count(string(text), string(from))); size(text)+n*size(args[2]) > maxText {
		return errTextLong
	}
	return nil
}

func checkJoin(l Limits, args []ref.Val) error {
	from, ok := args[0].(traits.Lister)
	if !ok {
		return nil // No overload accepts it.
	}
	if err := checkItems(l, args); err != nil {
		return err
	}
	separator := int64(0)
	if len(args) == 2 {
		separator = size(args[1])
	}
	n := int64(0)
	for it := from.Iterator(); it.HasNext() == types.True; {
		if n += size(it.Next()) + separator; n > maxText {
			return errTextLong
		}
	}
	return nil
}

func checkSplit(l Limits, args []ref.Val) error {
	text, ok := args[0].(types.String)
	separator, ok2 := args[1].(types.String)
	if ok && ok2 && strings.Count(string(text), string(separator)) >= l.OutputItems {
		return tooMany(l.OutputItems)
	}
	return nil
}

// checkFormat checks '%.2f %s'.format([...]).
func checkFormat(_ Limits, args []ref.Val) error {
	text, ok := args[0].(types.String)
	if !ok {
		return nil // No overload accepts it.
	}
	const digits = 2
	for _, clause := range strings.Split(string(text), "%")[1:] {
		precision := strings.TrimLeft(strings.TrimPrefix(clause, "."), "0123456789")
		if strings.HasPrefix(clause, ".") && len(clause)-len(precision) > digits+1 {
			return errors.New("want at most 99 digits")
		}
	}
	if checkWeight(Limits{}, args) != nil {
		return errWork
	}
	const each = 512 // The maximum size in bytes of a formatted number, and of 64 bytes of text with escapes.
	if size(text)+int64(strings.Count(string(text), "%"))*weigh(args[1], maxValues)*each > 4*maxText {
		return errTextLong
	}
	return nil
}

func checkText(_ Limits, args []ref.Val) error {
	if len(args) > 0 && size(args[0]) > maxText/4 {
		return errTextLong
	}
	return nil
}

// checkNumeral checks a text that represents a number. Such texts are short.
func checkNumeral(_ Limits, args []ref.Val) error {
	const most = 1024
	if size(args[0]) > most {
		return fmt.Errorf("the text has more than %d bytes", most)
	}
	return nil
}

// checkQuantity checks the text of a quantity. Computing with 1e1000000000 would need as many digits.
func checkQuantity(l Limits, args []ref.Val) error {
	text, ok := args[0].(types.String)
	if !ok {
		return nil // No overload accepts it.
	}
	i := strings.IndexAny(string(text), "eE")
	if digits := strings.TrimLeft(string(text[i+1:]), "+-0"); i >= 0 && len(digits) > 3 {
		return fmt.Errorf("the exponent of %q has more than 3 digits: check isQuantity first", short(string(text)))
	}
	return checkNumeral(l, args)
}

// doIsQuantity returns false for a text that the function quantity rejects.
func doIsQuantity(args []ref.Val) ref.Val {
	text, ok := args[0].(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	if checkQuantity(Limits{}, args) != nil {
		return types.False
	}
	_, err := resource.ParseQuantity(string(text))
	return types.Bool(err == nil)
}
