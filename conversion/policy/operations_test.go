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

// conversion is a value with its expected result, or the expected error if want begins with "error: ".
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
		"Integer":         {"an integer is multiplied", thousand, "7", "7000"},
		"CutOff":          {"what is left is cut off", thousandth, "1999", "1"},
		"CutOffNegative":  {"toward zero, not down", thousandth, "-1999", "-1"},
		"NegativeNothing": {"there is no -0 among integers", thousandth, "-999", "0"},
		"Beyond53":        {"integers beyond 2^53 are exact", scaled(2, 1, true), "4503599627370497", "9007199254740994"},
		"Largest":         {"the largest integer is one", scaled(1, 1, true), "9223372036854775807", "9223372036854775807"},
		"Smallest":        {"the smallest, too", scaled(3, 3, true), "-9223372036854775808", "-9223372036854775808"},
		"Between": {
			"what is on the way may be larger than 64 bits", scaled(math.MaxInt64, math.MaxInt64, true),
			"-9223372036854775808", "-9223372036854775808",
		},
		"Overflow":      {"so is too large a result", thousand, "9223372036854776", "error: 9223372036854776 times 1000 is beyond an integer of 64 bits"},
		"OverflowBelow": {"below, too", scaled(3, 2, true), "-9223372036854775808", "error: -9223372036854775808 times 3/2 is beyond an integer of 64 bits"},
		"OverflowRational": {
			"a number beyond 64 bits is one to divide", scaled(1, 10, true), "10000000000000000000", "1000000000000000000",
		},
		"Exponent":     {"an integer may be written with an exponent", thousand, "1e3", "1000000"},
		"Fraction":     {"a fraction becomes an integer", scaled(1024, 1, true), "1.5", "1536"},
		"Decimal":      {"decimals are exact", scaled(1, 1000, false), "1", "0.001"},
		"NotFloats":    {"0.1 is not what float64 has for it", scaled(3, 1, false), "0.1", "0.3"},
		"Endless":      {"digits without end are those of a float64", scaled(1, 3, false), "1", "0.3333333333333333"},
		"Huge":         {"an exponent does not allocate", thousand, "1e1000000000", "error: 1e1000000000 has an exponent that is out of range"},
		"HugeNegative": {"the other way, too", scaled(1, 2, false), "1e-1000000000", "error: 1e-1000000000 has an exponent that is out of range"},
		"OutOfRange":   {"a number that float64 does not have is an error", scaled(10, 1, false), "1e308", "error: 1e308 becomes a number that is out of range"},
		"Text":         {"a text is no number", thousand, `"7"`, `error: want a number, got "7"`},
		"List":         {"neither is a list", thousand, `[7]`, `error: want a number, got [7]`},
		"Empty":        {"nor nothing", thousand, ``, `error: want a number, got `},
	})
}

func TestCastTo(t *testing.T) {
	t.Parallel()
	integer, number, text := castTo(isText, isInteger, nil), castTo(isText, isNumber, nil), castTo(isInteger, isText, nil)
	testConversions(t, map[string]conversion{
		"Integer":          {"digits are an integer", integer, `"8080"`, `8080`},
		"Zeros":            {"zeros in front are none of JSON", integer, `"007"`, `7`},
		"Zero":             {"one of them is the number", integer, `"000"`, `0`},
		"Minus":            {"a negative one", integer, `"-012"`, `-12`},
		"MinusZero":        {"there is no -0 among integers", integer, `"-0"`, `0`},
		"Plus":             {"a plus sign is none of JSON", integer, `"+5"`, `5`},
		"Escaped":          {"a digit may be written in another way", integer, `"\u0031"`, `1`},
		"Beyond53":         {"integers beyond 2^53 are exact", integer, `"9007199254740993"`, `9007199254740993`},
		"Overflow":         {"64 bits are the most", integer, `"9223372036854775808"`, `error: want the text of an integer, got "9223372036854775808"`},
		"Fraction":         {"a fraction is no integer", integer, `"1.5"`, `error: want the text of an integer, got "1.5"`},
		"Exponent":         {"an exponent is not what anybody writes for an integer", integer, `"1e3"`, `error: want the text of an integer, got "1e3"`},
		"Space":            {"spaces are no digits", integer, `" 1"`, `error: want the text of an integer, got " 1"`},
		"Hexadecimal":      {"other digits neither", integer, `"0x10"`, `error: want the text of an integer, got "0x10"`},
		"Arabic":           {"nor those of other scripts", integer, `"٣"`, `error: want the text of an integer, got "٣"`},
		"Signs":            {"one sign is enough", integer, `"+-1"`, `error: want the text of an integer, got "+-1"`},
		"Empty":            {"nothing is no number", integer, `""`, `error: want the text of an integer, got ""`},
		"NoText":           {"a number is no text", integer, `1`, `error: want a string, got 1`},
		"Number":           {"numbers are as API servers store them", number, `"1.50"`, `1.5`},
		"NumberWhole":      {"which know no fraction of zero", number, `"1.0"`, `1`},
		"NumberDigits":     {"and no more digits than float64 has", number, `"17777777777777777777.1"`, `17777777777777779000`},
		"NumberLarge":      {"nor write out long ones", number, `"1e21"`, `1e+21`},
		"NumberSmall":      {"or short ones", number, `"0.00000010"`, `1e-7`},
		"NumberInteger":    {"integers of 64 bits are exact", number, `"9007199254740993"`, `9007199254740993`},
		"NumberZeros":      {"without zeros in front", number, `"00.5"`, `0.5`},
		"NumberExponent":   {"exponents are numbers", number, `"1E5"`, `100000`},
		"NumberPoint":      {"a point wants a digit before it", number, `".5"`, `error: want the text of a number, got ".5"`},
		"NumberPointLast":  {"and one behind it", number, `"5."`, `error: want the text of a number, got "5."`},
		"NumberInfinite":   {"infinity is no number of JSON", number, `"Infinity"`, `error: want the text of a number, got "Infinity"`},
		"NumberOutOfRange": {"a number that float64 does not have is none", number, `"1e999"`, `error: want the text of a number, got "1e999"`},
		"Otherwise":        {"what is no number may become one", castTo(isText, isInteger, []byte("-1")), `"many"`, `-1`},
		"Text":             {"an integer's text is its digits", text, `1e3`, `"1000"`},
		"TextPoint":        {"however it is written", text, `7.0`, `"7"`},
		"TextFraction":     {"a fraction is no integer", text, `7.5`, `error: 7.5 is not an integer`},
		"TextLarge":        {"an integer beyond 64 bits is none", text, `1e30`, `error: 1e30 is beyond an integer of 64 bits`},
		"TextNumber":       {"a number's text is as API servers store it", castTo(isNumber, isText, nil), `1.50`, `"1.5"`},
		"TextOfText":       {"a text is no number", text, `"7"`, `error: want a number, got "7"`},
		"True":             {"true", castTo(isText, isBoolean, nil), `"true"`, `true`},
		"False":            {"false", castTo(isText, isBoolean, nil), `"false"`, `false`},
		"TRUE":             {"and nothing else", castTo(isText, isBoolean, nil), `"TRUE"`, `error: want "true" or "false", got "TRUE"`},
		"BooleanOtherwise": {"what is no boolean may become one", castTo(isText, isBoolean, []byte("false")), `"yes"`, `false`},
		"BooleanText":      {"a boolean's text", castTo(isBoolean, isText, nil), `true`, `"true"`},
		"BooleanNumber":    {"a number is no boolean", castTo(isBoolean, isText, nil), `1`, `error: want a boolean, got 1`},
		"Whole":            {"a number may be an integer", castTo(isNumber, isInteger, nil), `1e2`, `100`},
		"NotWhole":         {"or not", castTo(isNumber, isInteger, nil), `0.1`, `error: 0.1 is not an integer`},
		"NotWholeEither":   {"which may become one", castTo(isNumber, isInteger, []byte("0")), `0.1`, `0`},
		"Same":             {"an integer is a number", castTo(isInteger, isNumber, nil), `9007199254740993`, `9007199254740993`},
	})
}

func TestKeyed(t *testing.T) {
	t.Parallel()
	table, list := tableOf("name", ""), listOf("name", "")
	values, pairs := tableOf("k", "v"), listOf("k", "v")
	testConversions(t, map[string]conversion{
		"Table":      {"the key is no field of the table's values", table, `[{"name":"a","x":1.0},{"y":2,"name":"b"}]`, `{"a":{"x":1.0},"b":{"y":2}}`},
		"TableEmpty": {"an empty list is an empty table", table, `[]`, `{}`},
		"TableTwice": {"of elements with the same key the last one counts", table, `[{"name":"a","x":1},{"name":"b"},{"name":"a","x":2}]`, `{"a":{"x":2},"b":{}}`},
		"TableUnicode": {
			"keys are what they say, however they are written", table,
			`[{"name":"\u00e9","x":1},{"name":"é","x":2},{"name":"\""}]`, `{"é":{"x":2},"\"":{}}`,
		},
		"TableNoKey":    {"an element without a key has no place", table, `[{"name":"a"},{"x":1}]`, `error: [1]: has no name, which is its key in the other version`},
		"TableNull":     {"null is no key", table, `[{"name":null}]`, `error: [0]: has no name, which is its key in the other version`},
		"TableNumber":   {"neither is a number", table, `[{"name":7}]`, `error: [0]: name: want a string, got 7`},
		"TableElement":  {"a list of texts has no keys", table, `["a"]`, `error: [0]: want an object, got "a"`},
		"TableOfTable":  {"a table is no list", table, `{"a":{}}`, `error: want a list, got {"a":{}}`},
		"Values":        {"one field is the value", values, `[{"k":"a","v":[1]},{"k":"b","v":null}]`, `{"a":[1],"b":null}`},
		"ValuesAbsent":  {"an element without a value has no place", values, `[{"k":"a"},{"k":"b","v":"x"}]`, `{"b":"x"}`},
		"List":          {"a list is in the order of its keys", list, `{"b":{"x":1.0},"a":{}}`, `[{"name":"a"},{"name":"b","x":1.0}]`},
		"ListEmpty":     {"an empty table is an empty list", list, `{}`, `[]`},
		"ListOrder":     {"which is that of their bytes", list, `{"b":{},"B":{},"":{},"é":{}}`, `[{"name":""},{"name":"B"},{"name":"b"},{"name":"é"}]`},
		"ListNull":      {"null has no fields", list, `{"a":null}`, `[{"name":"a"}]`},
		"ListKeyTwice":  {"a field that is the key is not there twice", list, `{"a":{"name":"b","x":1}}`, `[{"name":"a","x":1}]`},
		"ListText":      {"a table of texts has no fields", list, `{"a":"x"}`, `error: a: want an object, got "x"`},
		"ListTextDot":   {"the error names the key", list, `{"a.b":"x"}`, `error: ["a.b"]: want an object, got "x"`},
		"ListOfList":    {"a list is no table", list, `[]`, `error: want an object, got []`},
		"Pairs":         {"a value is a field", pairs, `{"b":"1","a":[2]}`, `[{"k":"a","v":[2]},{"k":"b","v":"1"}]`},
		"PairsNull":     {"null is a value", pairs, `{"a":null}`, `[{"k":"a","v":null}]`},
		"PairsEscaping": {"keys are written as JSON", pairs, `{"a\nb":1}`, `[{"k":"a\nb","v":1}]`},
	})
}

func TestWrapped(t *testing.T) {
	t.Parallel()
	testConversions(t, map[string]conversion{
		"Value":     {"a value is a list of one", wrapped(""), `{"a":1.0}`, `[{"a":1.0}]`},
		"Field":     {"or in a field of one", wrapped("name"), `"x"`, `[{"name":"x"}]`},
		"First":     {"the first one counts", unwrapped(""), `[1.0,2]`, `1.0`},
		"FirstNull": {"even if it is null", unwrapped(""), `[null,2]`, `null`},
		"Empty":     {"none is no value", unwrapped(""), `[]`, `null`},
		"Null":      {"null neither", unwrapped("name"), `null`, `null`},
		"FieldOf":   {"the field of the first one", unwrapped("name"), `[{"x":1,"name":"a"},{"name":"b"}]`, `"a"`},
		"NoField":   {"which may have none", unwrapped("name"), `[{"x":1}]`, `null`},
		"NullField": {"or be null", unwrapped("name"), `[null]`, `null`},
		"NoObject":  {"or no object", unwrapped("name"), `["a"]`, `error: [0]: want an object, got "a"`},
		"NoList":    {"a value is no list", unwrapped(""), `"a"`, `error: want a list, got "a"`},
	})
}

func TestMapped(t *testing.T) {
	t.Parallel()
	pairs := map[string][]byte{`"a`: []byte(`"A"`), "1/2": []byte(`"half"`), "9007199254740993": []byte(`"large"`), "true": []byte(`"on"`)}
	const refused = ` is in no pair of map, and the versions have different types here`
	strict, passing := mapped(pairs, map[string][]byte{`"a"`: []byte(`"A"`)}, false), mapped(pairs, nil, true)
	testConversions(t, map[string]conversion{
		"Text":      {"a text", strict, `"a"`, `"A"`},
		"Escaped":   {"a text that is written in another way", strict, `"\u0061"`, `"A"`},
		"Number":    {"numbers are equal by their value", strict, `5e-1`, `"half"`},
		"Beyond53":  {"to the last digit", strict, `9007199254740993`, `"large"`},
		"Neighbour": {"so its neighbour is another one", strict, `9007199254740992`, `error: 9007199254740992` + refused},
		"Boolean":   {"a boolean", strict, `true`, `"on"`},
		"NoBoolean": {"which is no text", strict, `"true"`, `error: "true"` + refused},
		"NoNumber":  {"a number's text is no number", strict, `"0.5"`, `error: "0.5"` + refused},
		"Passes":    {"other values pass as they are", passing, `1.50`, `1.50`},
		"Object":    {"whatever they are", passing, `{"a":1}`, `{"a":1}`},
		"Huge":      {"however large they are", passing, `1e999999999999`, `1e999999999999`},
		"Long":      {"errors are short", strict, `"` + strings.Repeat("x", 100) + `"`, `error: "` + strings.Repeat("x", 63) + "..." + refused},
	})
}

// FuzzScaled compares the fast path for integers with the definition.
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

// FuzzCast casts there and back. The result is canonical, so a second round must not change it.
func FuzzCast(f *testing.F) {
	for _, text := range []string{`"007"`, `"1.50"`, `1e3`, `-0.0`, `"+1"`, `true`, `"false"`, `9007199254740993`} {
		f.Add([]byte(text))
	}
	kinds := []kind{isText, isInteger, isNumber, isBoolean}
	f.Fuzz(func(t *testing.T, value []byte) {
		if !json.Valid(value) {
			return
		}
		value = bytes.TrimSpace(value) // As in objects, values have no surrounding white space.
		for _, from := range kinds {
			for _, to := range kinds {
				cast, back := caster(from, to), caster(to, from)
				if cast == nil {
					continue
				}
				if _, err := integerText(nil, value); from == isInteger && err != nil {
					continue // The schema does not allow it.
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

// FuzzKeyed converts tables to lists and back: nothing may get lost.
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

// unique reports whether the elements of a list have unique names.
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
