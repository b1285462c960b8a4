package policy

import (
	"fmt"
	"strconv"
	"strings"

	"refract.dev/tree/raw"
)

// castTo returns the conversion from one kind to another. If otherwise is not nil, it replaces a value without a
// counterpart.
func castTo(from, to kind, otherwise []byte) transform {
	f := caster(from, to)
	if otherwise == nil {
		return f
	}
	return func(dst, value []byte) ([]byte, error) {
		if out, err := f(dst, value); err == nil {
			return out, nil
		}
		return append(dst, otherwise...), nil
	}
}

// caster returns the conversion from one kind to another; nil if cast does not support it.
func caster(from, to kind) transform {
	switch {
	case from == isText && to == isBoolean:
		return booleanOfText
	case from == isText && to.number():
		return numberOfText(to)
	case from == isBoolean && to == isText:
		return textOfBoolean
	case from.number() && to == isText:
		return textOfNumber(from)
	case from == isInteger && to == isNumber:
		return sameNumber
	case from == isNumber && to == isInteger:
		return integerOfNumber
	default:
		return nil
	}
}

func booleanOfText(dst, value []byte) ([]byte, error) {
	text, err := raw.String(value)
	if err != nil {
		return dst, wrongType("a string", value)
	}
	if text != "true" && text != "false" {
		return dst, fmt.Errorf(`want "true" or "false", got %s`, shortened(value))
	}
	return append(dst, text...), nil
}

func textOfBoolean(dst, value []byte) ([]byte, error) {
	if text := string(value); text != "true" && text != "false" {
		return dst, wrongType("a boolean", value)
	}
	return raw.AppendString(dst, value), nil
}

// numberOfText converts texts that are decimal numbers. It drops a plus sign and leading zeros, which JSON does not
// allow.
func numberOfText(to kind) transform {
	return func(dst, value []byte) ([]byte, error) {
		text, err := raw.String(value)
		if err != nil {
			return dst, wrongType("a string", value)
		}
		refused := func() ([]byte, error) {
			return dst, fmt.Errorf("want the text of %s, got %s", article(string(to)), shortened(value))
		}
		number, ok := decimal(text)
		if !ok {
			return refused()
		}
		if to == isInteger {
			if n, err := strconv.ParseInt(number, 10, 64); err == nil {
				return strconv.AppendInt(dst, n, 10), nil
			}
			return refused()
		}
		r, err := rational([]byte(number))
		if err != nil {
			return refused()
		}
		if out, err := appendNumber(dst, r, value); err == nil {
			return out, nil
		}
		return refused()
	}
}

// decimal returns a text as a JSON number. It returns false if the text is not a decimal number.
func decimal(text string) (string, bool) {
	sign := ""
	digits := strings.TrimPrefix(text, "+")
	if len(digits) == len(text) {
		digits = strings.TrimPrefix(text, "-")
		sign = text[:len(text)-len(digits)]
	}
	if digits == "" || digits[0] < '0' || digits[0] > '9' {
		return "", false
	}
	trimmed := strings.TrimLeft(digits, "0")
	if trimmed == "" || trimmed[0] < '0' || trimmed[0] > '9' {
		trimmed = "0" + trimmed
	}
	s := raw.New([]byte(sign + trimmed))
	s.Value()
	if s.End() != nil {
		return "", false
	}
	return sign + trimmed, true
}

// textOfNumber writes integers as digits, and other numbers in the notation in which API servers store them.
func textOfNumber(from kind) transform {
	return func(dst, value []byte) ([]byte, error) {
		if !isNumeric(value) {
			return dst, wrongType("a number", value)
		}
		text, err := numberText(from, value)
		if err != nil {
			return dst, err
		}
		return raw.AppendString(dst, text), nil
	}
}

func numberText(of kind, value []byte) ([]byte, error) {
	if of == isInteger {
		return integerText(nil, value)
	}
	r, err := rational(value)
	if err != nil {
		return nil, err
	}
	return appendNumber(nil, r, value)
}

func sameNumber(dst, value []byte) ([]byte, error) {
	if !isNumeric(value) {
		return dst, wrongType("a number", value)
	}
	return append(dst, value...), nil
}

func integerOfNumber(dst, value []byte) ([]byte, error) {
	if !isNumeric(value) {
		return dst, wrongType("a number", value)
	}
	return integerText(dst, value)
}
