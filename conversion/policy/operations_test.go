package policy

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// conversion is a value and the expected result. An expected error begins with "error: ".
type conversion struct {
	reason string
	f      transform
	value  string
	want   string
}

func testConversions(t *testing.T, cases map[string]conversion) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dst := []byte("before")
			value := []byte(c.value)
			out, err := c.f(dst, value)
			got := strings.TrimPrefix(string(out), "before")
			if err != nil {
				got = "error: " + err.Error()
			} else if !strings.HasPrefix(string(out), "before") {
				t.Errorf("%s: the result does not follow what was there: %s", c.reason, out)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", c.reason, diff)
			}
			if string(value) != c.value || string(dst) != "before" {
				t.Errorf("%s: the arguments were modified: %s, %s", c.reason, dst, value)
			}
		})
	}
}

func TestScaled(t *testing.T) {
	t.Parallel()
	thousand, thousandth := scaled(1000, 1, true), scaled(1, 1000, true)
	testConversions(t, map[string]conversion{
		"Integer":         {"integers are multiplied", thousand, "7", "7000"},
		"CutOff":          {"integers are truncated", thousandth, "1999", "1"},
		"CutOffNegative":  {"negative integers are truncated toward zero", thousandth, "-1999", "-1"},
		"NegativeNothing": {"integers have no -0", thousandth, "-999", "0"},
		"Beyond53":        {"integers beyond 2^53 are exact", scaled(2, 1, true), "4503599627370497", "9007199254740994"},
		"Largest":         {"the largest integer is exact", scaled(1, 1, true), "9223372036854775807", "9223372036854775807"},
		"Smallest":        {"the smallest integer is exact", scaled(3, 3, true), "-9223372036854775808", "-9223372036854775808"},
		"Between": {
			"intermediate results may exceed 64 bits", scaled(math.MaxInt64, math.MaxInt64, true),
			"-9223372036854775808", "-9223372036854775808",
		},
		"Overflow":      {"a result beyond 64 bits is an error", thousand, "9223372036854776", "error: 9223372036854776 times 1000 is beyond an integer of 64 bits"},
		"OverflowBelow": {"a negative result beyond 64 bits is an error", scaled(3, 2, true), "-9223372036854775808", "error: -9223372036854775808 times 3/2 is beyond an integer of 64 bits"},
		"OverflowRational": {
			"an input beyond 64 bits can be divided", scaled(1, 10, true), "10000000000000000000", "1000000000000000000",
		},
		"Exponent":     {"an integer may have an exponent", thousand, "1e3", "1000000"},
		"Fraction":     {"a fraction may become an integer", scaled(1024, 1, true), "1.5", "1536"},
		"Decimal":      {"decimal numbers are exact", scaled(1, 1000, false), "1", "0.001"},
		"NotFloats":    {"0.1 is not what float64 has for it", scaled(3, 1, false), "0.1", "0.3"},
		"Endless":      {"a result without a finite decimal form is the nearest float64", scaled(1, 3, false), "1", "0.3333333333333333"},
		"Huge":         {"a large exponent does not allocate memory", thousand, "1e1000000000", "error: 1e1000000000 has an exponent that is out of range"},
		"HugeNegative": {"a negative exponent does not allocate memory", scaled(1, 2, false), "1e-1000000000", "error: 1e-1000000000 has an exponent that is out of range"},
		"OutOfRange":   {"a result beyond float64 is an error", scaled(10, 1, false), "1e308", "error: 1e308 becomes a number that is out of range"},
		"Text":         {"a string is not a number", thousand, `"7"`, `error: want a number, got "7"`},
		"List":         {"a list is not a number", thousand, `[7]`, `error: want a number, got [7]`},
		"Empty":        {"an empty value is not a number", thousand, ``, `error: want a number, got `},
	})
}

func TestCastTo(t *testing.T) {
	t.Parallel()
	integer, number, text := castTo(isText, isInteger, nil), castTo(isText, isNumber, nil), castTo(isInteger, isText, nil)
	testConversions(t, map[string]conversion{
		"Integer":          {"digits are an integer", integer, `"8080"`, `8080`},
		"Zeros":            {"leading zeros are removed, because JSON does not allow them", integer, `"007"`, `7`},
		"Zero":             {"a text of zeros is zero", integer, `"000"`, `0`},
		"Minus":            {"a text may be negative", integer, `"-012"`, `-12`},
		"MinusZero":        {"integers have no -0", integer, `"-0"`, `0`},
		"Plus":             {"a plus sign is removed, because JSON does not allow it", integer, `"+5"`, `5`},
		"Escaped":          {"a digit may be escaped", integer, `"\u0031"`, `1`},
		"Beyond53":         {"integers beyond 2^53 are exact", integer, `"9007199254740993"`, `9007199254740993`},
		"Overflow":         {"64 bits are the most", integer, `"9223372036854775808"`, `error: want the text of an integer, got "9223372036854775808"`},
		"Fraction":         {"a fraction is not an integer", integer, `"1.5"`, `error: want the text of an integer, got "1.5"`},
		"Exponent":         {"an exponent is not accepted for an integer", integer, `"1e3"`, `error: want the text of an integer, got "1e3"`},
		"Space":            {"spaces are not accepted", integer, `" 1"`, `error: want the text of an integer, got " 1"`},
		"Hexadecimal":      {"hexadecimal digits are not accepted", integer, `"0x10"`, `error: want the text of an integer, got "0x10"`},
		"Arabic":           {"digits of other scripts are not accepted", integer, `"٣"`, `error: want the text of an integer, got "٣"`},
		"Signs":            {"only one sign is accepted", integer, `"+-1"`, `error: want the text of an integer, got "+-1"`},
		"Empty":            {"an empty text is not a number", integer, `""`, `error: want the text of an integer, got ""`},
		"NoText":           {"a number is not a text", integer, `1`, `error: want a string, got 1`},
		"Number":           {"numbers have the form of API servers", number, `"1.50"`, `1.5`},
		"NumberWhole":      {"API servers drop a fraction of zero", number, `"1.0"`, `1`},
		"NumberDigits":     {"API servers store at most the digits of a float64", number, `"17777777777777777777.1"`, `17777777777777779000`},
		"NumberLarge":      {"API servers use an exponent for large numbers", number, `"1e21"`, `1e+21`},
		"NumberSmall":      {"API servers use an exponent for small numbers", number, `"0.00000010"`, `1e-7`},
		"NumberInteger":    {"integers of 64 bits are exact", number, `"9007199254740993"`, `9007199254740993`},
		"NumberZeros":      {"leading zeros are removed", number, `"00.5"`, `0.5`},
		"NumberExponent":   {"an exponent is accepted for a number", number, `"1E5"`, `100000`},
		"NumberPoint":      {"a digit must precede the point", number, `".5"`, `error: want the text of a number, got ".5"`},
		"NumberPointLast":  {"a digit must follow the point", number, `"5."`, `error: want the text of a number, got "5."`},
		"NumberInfinite":   {"JSON has no infinity", number, `"Infinity"`, `error: want the text of a number, got "Infinity"`},
		"NumberOutOfRange": {"a number beyond float64 is an error", number, `"1e999"`, `error: want the text of a number, got "1e999"`},
		"Otherwise":        {"a text that is not a number becomes the fallback", castTo(isText, isInteger, []byte("-1")), `"many"`, `-1`},
		"Text":             {"the text of an integer is its digits", text, `1e3`, `"1000"`},
		"TextPoint":        {"the notation of the integer does not matter", text, `7.0`, `"7"`},
		"TextFraction":     {"a fraction is not an integer", text, `7.5`, `error: 7.5 is not an integer`},
		"TextLarge":        {"an integer beyond 64 bits is an error", text, `1e30`, `error: 1e30 is beyond an integer of 64 bits`},
		"TextNumber":       {"the text of a number has the form of API servers", castTo(isNumber, isText, nil), `1.50`, `"1.5"`},
		"TextOfText":       {"a text is not a number", text, `"7"`, `error: want a number, got "7"`},
		"True":             {"the text true is a boolean", castTo(isText, isBoolean, nil), `"true"`, `true`},
		"False":            {"the text false is a boolean", castTo(isText, isBoolean, nil), `"false"`, `false`},
		"TRUE":             {"other spellings are not booleans", castTo(isText, isBoolean, nil), `"TRUE"`, `error: want "true" or "false", got "TRUE"`},
		"BooleanOtherwise": {"a text that is not a boolean becomes the fallback", castTo(isText, isBoolean, []byte("false")), `"yes"`, `false`},
		"BooleanText":      {"a boolean becomes its text", castTo(isBoolean, isText, nil), `true`, `"true"`},
		"BooleanNumber":    {"a number is not a boolean", castTo(isBoolean, isText, nil), `1`, `error: want a boolean, got 1`},
		"Whole":            {"a whole number becomes an integer", castTo(isNumber, isInteger, nil), `1e2`, `100`},
		"NotWhole":         {"a number with a fraction is not an integer", castTo(isNumber, isInteger, nil), `0.1`, `error: 0.1 is not an integer`},
		"NotWholeEither":   {"a number with a fraction becomes the fallback", castTo(isNumber, isInteger, []byte("0")), `0.1`, `0`},
		"Same":             {"an integer is a number", castTo(isInteger, isNumber, nil), `9007199254740993`, `9007199254740993`},
	})
}

func TestKeyed(t *testing.T) {
	t.Parallel()
	table, list := tableOf("name", ""), listOf("name", "")
	values, pairs := tableOf("k", "v"), listOf("k", "v")
	testConversions(t, map[string]conversion{
		"Table":      {"the values of the table do not have the key as a field", table, `[{"name":"a","x":1.0},{"y":2,"name":"b"}]`, `{"a":{"x":1.0},"b":{"y":2}}`},
		"TableEmpty": {"an empty list becomes an empty table", table, `[]`, `{}`},
		"TableTwice": {"the last of several elements with the same key counts", table, `[{"name":"a","x":1},{"name":"b"},{"name":"a","x":2}]`, `{"a":{"x":2},"b":{}}`},
		"TableUnicode": {
			"keys are compared after unescaping", table,
			`[{"name":"\u00e9","x":1},{"name":"é","x":2},{"name":"\""}]`, `{"é":{"x":2},"\"":{}}`,
		},
		"TableNoKey":    {"an element without a key is an error", table, `[{"name":"a"},{"x":1}]`, `error: [1]: has no name, which is its key in the other version`},
		"TableNull":     {"null is not a key", table, `[{"name":null}]`, `error: [0]: has no name, which is its key in the other version`},
		"TableNumber":   {"a number is not a key", table, `[{"name":7}]`, `error: [0]: name: want a string, got 7`},
		"TableElement":  {"strings have no keys", table, `["a"]`, `error: [0]: want an object, got "a"`},
		"TableOfTable":  {"a table is not a list", table, `{"a":{}}`, `error: want a list, got {"a":{}}`},
		"Values":        {"one field becomes the value", values, `[{"k":"a","v":[1]},{"k":"b","v":null}]`, `{"a":[1],"b":null}`},
		"ValuesAbsent":  {"an element without the value field is omitted", values, `[{"k":"a"},{"k":"b","v":"x"}]`, `{"b":"x"}`},
		"List":          {"the list is sorted by key", list, `{"b":{"x":1.0},"a":{}}`, `[{"name":"a"},{"name":"b","x":1.0}]`},
		"ListEmpty":     {"an empty table becomes an empty list", list, `{}`, `[]`},
		"ListOrder":     {"keys are sorted by their bytes", list, `{"b":{},"B":{},"":{},"é":{}}`, `[{"name":""},{"name":"B"},{"name":"b"},{"name":"é"}]`},
		"ListNull":      {"null has no fields", list, `{"a":null}`, `[{"name":"a"}]`},
		"ListKeyTwice":  {"a field with the name of the key is replaced", list, `{"a":{"name":"b","x":1}}`, `[{"name":"a","x":1}]`},
		"ListText":      {"strings have no fields", list, `{"a":"x"}`, `error: a: want an object, got "x"`},
		"ListTextDot":   {"the error quotes the key", list, `{"a.b":"x"}`, `error: ["a.b"]: want an object, got "x"`},
		"ListOfList":    {"a list is not a table", list, `[]`, `error: want an object, got []`},
		"Pairs":         {"the value becomes a field", pairs, `{"b":"1","a":[2]}`, `[{"k":"a","v":[2]},{"k":"b","v":"1"}]`},
		"PairsNull":     {"a null value stays", pairs, `{"a":null}`, `[{"k":"a","v":null}]`},
		"PairsEscaping": {"keys are escaped as in JSON", pairs, `{"a\nb":1}`, `[{"k":"a\nb","v":1}]`},
	})
}

func TestWrapped(t *testing.T) {
	t.Parallel()
	testConversions(t, map[string]conversion{
		"Value":     {"a value becomes the only element of a list", wrapped(""), `{"a":1.0}`, `[{"a":1.0}]`},
		"Field":     {"a value becomes a field of the only element", wrapped("name"), `"x"`, `[{"name":"x"}]`},
		"First":     {"the first element counts", unwrapped(""), `[1.0,2]`, `1.0`},
		"FirstNull": {"the first element counts, even if it is null", unwrapped(""), `[null,2]`, `null`},
		"Empty":     {"an empty list means that the value is absent", unwrapped(""), `[]`, `null`},
		"Null":      {"null means that the value is absent", unwrapped("name"), `null`, `null`},
		"FieldOf":   {"the field of the first element counts", unwrapped("name"), `[{"x":1,"name":"a"},{"name":"b"}]`, `"a"`},
		"NoField":   {"a first element without the field means that the value is absent", unwrapped("name"), `[{"x":1}]`, `null`},
		"NullField": {"a null element means that the value is absent", unwrapped("name"), `[null]`, `null`},
		"NoObject":  {"the first element must be an object", unwrapped("name"), `["a"]`, `error: [0]: want an object, got "a"`},
		"NoList":    {"a string is not a list", unwrapped(""), `"a"`, `error: want a list, got "a"`},
	})
}

func TestMapped(t *testing.T) {
	t.Parallel()
	pairs := map[string][]byte{`"a`: []byte(`"A"`), "1/2": []byte(`"half"`), "9007199254740993": []byte(`"large"`), "true": []byte(`"on"`)}
	const refused = ` is in no pair of map, and the versions have different types here`
	strict, passing := mapped(pairs, map[string][]byte{`"a"`: []byte(`"A"`)}, false), mapped(pairs, nil, true)
	testConversions(t, map[string]conversion{
		"Text":      {"a text has a pair", strict, `"a"`, `"A"`},
		"Escaped":   {"an escaped text is the same text", strict, `"\u0061"`, `"A"`},
		"Number":    {"numbers are equal by value", strict, `5e-1`, `"half"`},
		"Beyond53":  {"numbers are compared to the last digit", strict, `9007199254740993`, `"large"`},
		"Neighbour": {"a neighboring number has no pair", strict, `9007199254740992`, `error: 9007199254740992` + refused},
		"Boolean":   {"a boolean has a pair", strict, `true`, `"on"`},
		"NoBoolean": {"a text differs from a boolean", strict, `"true"`, `error: "true"` + refused},
		"NoNumber":  {"a text differs from a number", strict, `"0.5"`, `error: "0.5"` + refused},
		"Passes":    {"values without a pair pass unchanged", passing, `1.50`, `1.50`},
		"Object":    {"values of any type pass", passing, `{"a":1}`, `{"a":1}`},
		"Huge":      {"values of any size pass", passing, `1e999999999999`, `1e999999999999`},
		"Long":      {"values are shortened in errors", strict, `"` + strings.Repeat("x", 100) + `"`, `error: "` + strings.Repeat("x", 63) + "..." + refused},
	})
}

// FuzzScaled compares the fast calculation for integers with the exact one.
func FuzzScaled(f *testing.F) {
	f.Add(int64(1), int64(1), int64(1))
	f.Add(int64(math.MinInt64), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Add(int64(-1999), int64(1), int64(1000))
	f.Fuzz(func(t *testing.T, n, times, by int64) {
		if times < 1 || by < 1 {
			return
		}
		want := new(big.Int).Mul(big.NewInt(n), big.NewInt(times))
		want.Quo(want, big.NewInt(by))
		got, err := scaled(times, by, true)(nil, strconv.AppendInt(nil, n, 10))
		if (err == nil) != want.IsInt64() {
			t.Fatalf("scaled(%d, %d) of %d: %s, %v, want %s", times, by, n, got, err, want)
		}
		if err == nil && string(got) != want.String() {
			t.Errorf("scaled(%d, %d) of %d: %s, want %s", times, by, n, got, want)
		}
	})
}

// FuzzCast casts a value to the other type and back. After one round the value has its usual notation, so a second
// round must not change it.
func FuzzCast(f *testing.F) {
	for _, text := range []string{`"007"`, `"1.50"`, `1e3`, `-0.0`, `"+1"`, `true`, `"false"`, `9007199254740993`} {
		f.Add([]byte(text))
	}
	kinds := []kind{isText, isInteger, isNumber, isBoolean}
	f.Fuzz(func(t *testing.T, value []byte) {
		if !json.Valid(value) {
			return
		}
		value = bytes.TrimSpace(value) // Values in objects have no surrounding white space.
		for _, from := range kinds {
			for _, to := range kinds {
				cast, back := caster(from, to), caster(to, from)
				if cast == nil {
					continue
				}
				if _, err := integerText(nil, value); from == isInteger && err != nil {
					continue // The schema does not allow this value.
				}
				once, err := cast(nil, value)
				if err != nil {
					continue
				}
				returned, err := back(nil, once)
				if err != nil {
					t.Fatalf("%s from %s to %s is %s, which does not come back: %v", value, from, to, once, err)
				}
				if again, err := cast(nil, returned); err != nil || !sameJSON(again, once) {
					t.Errorf("%s from %s to %s is %s, then %s, then %s, %v", value, from, to, once, returned, again, err)
				}
			}
		}
	})
}

// FuzzKeyed converts tables to lists and back. Nothing may get lost.
func FuzzKeyed(f *testing.F) {
	for _, table := range []string{`{"a":{"x":1}}`, `{"b":{},"a":{"y":null}}`, `{"":{"":""}}`, `{"a":1,"b":[2]}`} {
		f.Add([]byte(table))
	}
	f.Fuzz(func(t *testing.T, table []byte) {
		if !json.Valid(table) {
			return
		}
		for _, value := range []string{"", "value"} {
			list, err := listOf("name", value)(nil, table)
			if err != nil {
				continue
			}
			back, err := tableOf("name", value)(nil, list)
			if err != nil {
				t.Fatalf("%s is %s, which does not come back: %v", table, list, err)
			}
			again, err := listOf("name", value)(nil, back)
			if err != nil {
				t.Fatalf("%s is %s, then %s, then no list: %v", table, list, back, err)
			}
			if unique(t, list) && !sameJSON(list, again) {
				t.Errorf("%s is %s, then %s, then %s", table, list, back, again)
			}
		}
	})
}

// unique reports whether all elements of a list have different names.
func unique(t *testing.T, list []byte) bool {
	t.Helper()
	decoded, err := exact(list)
	if err != nil {
		return false
	}
	elements, _ := decoded.([]any)
	names := map[any]bool{}
	for _, element := range elements {
		object, _ := element.(map[string]any)
		if names[object["name"]] {
			return false
		}
		names[object["name"]] = true
	}
	return true
}
