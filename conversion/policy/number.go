package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
)

// transform appends the converted JSON value to dst, like a function of [convert.RawField].
type transform = func(dst, value []byte) ([]byte, error)

// Limits of numbers, so that a short text cannot become a long number. API servers have only int64 and float64, which
// are far within the limits.
const (
	mostDigits   = 1000
	mostExponent = 1000
)

// rational returns the exact value of a JSON number.
func rational(text []byte) (*big.Rat, error) {
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		exponent, err := strconv.Atoi(string(text[i+1:]))
		if err != nil || exponent > mostExponent || exponent < -mostExponent {
			return nil, fmt.Errorf("%s has an exponent that is out of range", shortened(text))
		}
	}
	r, ok := new(big.Rat), len(text) <= mostDigits
	if ok {
		r, ok = r.SetString(string(text))
	}
	if !ok {
		return nil, fmt.Errorf("%s is not a number that can be converted", shortened(text))
	}
	return r, nil
}

// shortened returns at most 64 bytes of a value, for an error text.
func shortened(value []byte) string {
	const most = 64
	if len(value) <= most {
		return string(value)
	}
	return string(bytes.ToValidUTF8(value[:most], nil)) + "..."
}

// isNumeric reports whether a JSON value is a number.
func isNumeric(value []byte) bool {
	return len(value) > 0 && (value[0] == '-' || '0' <= value[0] && value[0] <= '9')
}

// wrongType is the error for a value whose type is not that of the schema.
func wrongType(want string, value []byte) error {
	return fmt.Errorf("want %s, got %s", want, shortened(value))
}

// integerText appends the exact value of a JSON number as digits. It returns an error if the number is not an integer
// of 64 bits.
func integerText(dst, value []byte) ([]byte, error) {
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		return strconv.AppendInt(dst, n, 10), nil
	}
	r, err := rational(value)
	if err != nil {
		return dst, err
	}
	if !r.IsInt() {
		return dst, fmt.Errorf("%s is not an integer", shortened(value))
	}
	if !r.Num().IsInt64() {
		return dst, fmt.Errorf("%s is beyond an integer of 64 bits", shortened(value))
	}
	return strconv.AppendInt(dst, r.Num().Int64(), 10), nil
}

// scaled returns a function that multiplies a number by times/by. If integer is true, the function truncates the result
// toward zero.
func scaled(times, by int64, integer bool) transform {
	factor := big.NewRat(times, by)
	return func(dst, value []byte) ([]byte, error) {
		if !isNumeric(value) {
			return dst, wrongType("a number", value)
		}
		if integer {
			if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
				return appendScaled(dst, n, times, by)
			}
		}
		r, err := rational(value)
		if err != nil {
			return dst, err
		}
		r.Mul(r, factor)
		if !integer {
			return appendNumber(dst, r, value)
		}
		whole := new(big.Int).Quo(r.Num(), r.Denom())
		if !whole.IsInt64() {
			return dst, errScaled(value, times, by)
		}
		return strconv.AppendInt(dst, whole.Int64(), 10), nil
	}
}

func errScaled[T []byte | int64](value T, times, by int64) error {
	text := fmt.Sprint(value)
	if b, ok := any(value).([]byte); ok {
		text = shortened(b)
	}
	if by == 1 {
		return fmt.Errorf("%s times %d is beyond an integer of 64 bits", text, times)
	}
	return fmt.Errorf("%s times %d/%d is beyond an integer of 64 bits", text, times, by)
}

// appendScaled appends n*times/by, truncated toward zero. times and by are positive.
func appendScaled(dst []byte, n, times, by int64) ([]byte, error) {
	magnitude := uint64(n)
	if n < 0 {
		magnitude = -magnitude
	}
	high, low := bits.Mul64(magnitude, uint64(times))
	if high >= uint64(by) {
		return dst, errScaled(n, times, by)
	}
	result, _ := bits.Div64(high, low, uint64(by))
	switch {
	case n >= 0 && result <= math.MaxInt64:
		return strconv.AppendUint(dst, result, 10), nil
	case n < 0 && result == 0:
		return append(dst, '0'), nil
	case n < 0 && result <= 1<<63:
		return strconv.AppendUint(append(dst, '-'), result, 10), nil
	default:
		return dst, errScaled(n, times, by)
	}
}

// appendNumber appends a number in the notation in which API servers store it: an integer of 64 bits as digits, any
// other number as the nearest float64. With more digits than that, the API server would drop some, and the engine would
// not notice the loss.
func appendNumber(dst []byte, r *big.Rat, value []byte) ([]byte, error) {
	if r.IsInt() && r.Num().IsInt64() {
		return strconv.AppendInt(dst, r.Num().Int64(), 10), nil
	}
	nearest, _ := r.Float64()
	if math.IsInf(nearest, 0) {
		return dst, fmt.Errorf("%s becomes a number that is out of range", shortened(value))
	}
	text, err := json.Marshal(nearest) // API servers encode numbers in this way.
	return append(dst, text...), err
}
