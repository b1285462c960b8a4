package expression

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFunctions has at least one case for each function in the package comment.
func TestFunctions(t *testing.T) {
	cases := map[string]struct {
		expression, value string
		want              string // The result, or "! " and the error.
	}{
		"Count":             {`value.count()`, `["b","a","b"]`, `[{"count":2,"value":"b"},{"count":1,"value":"a"}]`},
		"CountKeys":         {`value.count("k", "n")`, `[1,1.0,"1",true,null]`, `[{"k":1,"n":2},{"k":"1","n":1},{"k":true,"n":1},{"k":null,"n":1}]`},
		"CountObjects":      {`value.count("k", "n")`, `[{"a":1,"b":[2]},{"b":[2.0],"a":1.0},{"a":1}]`, `[{"k":{"a":1,"b":[2]},"n":2},{"k":{"a":1},"n":1}]`},
		"CountSameKeys":     {`value.count("k", "k")`, `[1]`, `! column 12: the two keys are both "k"`},
		"CountNoList":       {`value.count()`, `{}`, `! column 12: no such overload: count(map)`},
		"Expand":            {`value.expand()`, `[{"value":"b","count":2},{"value":"a"}]`, `["b","b","a"]`},
		"ExpandCount":       {`value.count("k", "n").expand("k", "n")`, `[3,1,3]`, `[3,3,1]`},
		"ExpandText":        {`value.expand("k", "n")`, `[{"k":1,"n":"2"}]`, `! column 13: expand: "n" of element 0 is a string, want an integer`},
		"ExpandHalf":        {`value.expand("k", "n")`, `[{"k":1,"n":1.5}]`, `! column 13: expand: "n" of element 0 is 1.5, want an integer from 0 on`},
		"ExpandNoObject":    {`value.expand("k", "n")`, `[1]`, `! column 13: expand: element 0 is a int, want an object`},
		"ExpandNothing":     {`value.expand("k", "n")`, `[{"k":1,"n":0}]`, `[]`},
		"Merge":             {`value.merge({"b": 2, "c": 3})`, `{"a":1,"b":1}`, `{"a":1,"b":2,"c":3}`},
		"MergeMade":         {`{"z": 1}.merge(value).merge({"y": 2})`, `{"a":1}`, `{"a":1,"y":2,"z":1}`},
		"MergeMany":         {`value.merge({"k3": "new", "k99": 99})`, `{"k1":1,"k2":2,"k3":3,"k4":4,"k5":5,"k6":6,"k7":7,"k8":8,"k9":9,"k10":10}`, `{"k1":1,"k10":10,"k2":2,"k3":"new","k4":4,"k5":5,"k6":6,"k7":7,"k8":8,"k9":9,"k99":99}`},
		"MergeNoTexts":      {`value.merge({dyn(1): 2})`, `{}`, `! column 12: merge: want strings as keys, got int`},
		"MergeList":         {`value.merge({})`, `[]`, `! column 12: merge: want an object, got list`},
		"Omit":              {`value.omit(["a", "x"])`, `{"a":1,"b":{"c": 1.0}}`, `{"b":{"c": 1.0}}`},
		"OmitNumber":        {`value.omit([1])`, `{}`, `! column 11: found no matching overload for 'omit' applied to 'dyn.(list(int))'`},
		"Quantity":          {`string(quantity(value))`, `"1024Mi"`, `"1Gi"`},
		"QuantityUnequal":   {`quantity(value) != quantity("1Gi").sub(1)`, `"1Gi"`, `true`},
		"QuantityWrong":     {`string(quantity(value))`, `"a lot"`, `! column 16: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`},
		"Semver":            {`string(semver(value).major()) + "." + string(semver(value).minor())`, `"1.2.3"`, `"1.2"`},
		"SemverNormalized":  {`semver(value, true).isLessThan(semver("1.1.0"))`, `"v1.0"`, `true`},
		"URL":               {`{"host": url(value).getHostname(), "port": int(url(value).getPort())}`, `"https://example.com:80/a"`, `{"host":"example.com","port":80}`},
		"Split":             {`{"host": value.split(":")[0], "port": int(value.split(":")[1])}`, `"h:80"`, `{"host":"h","port":80}`},
		"Join":              {`value.map(x, string(x)).join("-")`, `[1,2]`, `"1-2"`},
		"Format":            {`"%s=%d %.2f".format([value, 5, 1.5])`, `"a"`, `"a=5 1.50"`},
		"Strings":           {`[value.lowerAscii(), value.upperAscii(), value.trim(), value.replace("b", "x"), value.substring(1), value.reverse(), strings.quote(value)]`, `"aBb "`, `["abb ","ABB ","aBb","aBx ","Bb "," bBa","\"aBb \""]`},
		"IndexOf":           {`[value.indexOf("b"), value.lastIndexOf("b"), value.size()]`, `"abab"`, `[1,3,4]`},
		"Regex":             {`[regex.replace(value, "(a+)b", "\\1"), regex.extract(value, "b(.)").orValue("")] + regex.extractAll(value, "[0-9]")`, `"aab1c2"`, `["aa1c2","1","1","2"]`},
		"Matches":           {`value.matches("^a.c$")`, `"abc"`, `true`},
		"Lists":             {`[value.sort(), value.reverse(), value.distinct(), value.slice(0, 1), value.sortBy(x, -x), [value, [[4]]].flatten()]`, `[3,1,3]`, `[[1,3,3],[3,1,3],[3,1],[3],[3,3,1],[3,1,3,[4]]]`},
		"FlattenDepth":      {`value.flatten(2)`, `[1,[2,[3,[4]]]]`, `[1,2,3,[4]]`},
		"FlattenNoList":     {`value.flatten()`, `1`, `! column 14: flatten: want a list, got int`},
		"Range":             {`lists.range(value)`, `3`, `[0,1,2]`},
		"Math":              {`[math.greatest(value), math.least(value), math.abs(-3), math.ceil(1.2), math.sign(-2)]`, `[1,3,2]`, `[3,1,3,2,-1]`},
		"Sets":              {`[sets.contains(value, [1]), sets.equivalent(value, [2, 1]), sets.intersects(value, [5])]`, `[1,2]`, `[true,true,false]`},
		"TwoVar":            {`[value.transformMap(k, v, v + 1), {"r": 0}.transformMapEntry(k, v, {"x": v})]`, `{"a":1,"b":2}`, `[{"a":2,"b":3},{"x":0}]`},
		"TwoVarList":        {`value.transformList(i, v, i * v)`, `[1,2,3]`, `[0,2,6]`},
		"TableKeys":         {`value.map(k, k + "!")`, `{"b":1,"a":2}`, `["b!","a!"]`},
		"Base64":            {`[base64.encode(bytes(value)), string(base64.decode("YQ=="))]`, `"a"`, `["YQ==","a"]`},
		"EncodeJSON":        {`json.encode(value)`, `{"a":9007199254740993}`, `"{\"a\":9007199254740993}"`},
		"Bind":              {`cel.bind(x, value + 1, x * x)`, `2`, `9`},
		"Optional":          {`{?"a": value.?a, ?"b": value.?b}`, `{"a":{"x":1.0}}`, `{"a":{"x":1.0}}`},
		"OptionalNone":      {`optional.none()`, `1`, `null`},
		"OptionalDyn":       {`[1, dyn(cel.bind(o, [dyn(value.?a)], o[0]))]`, `{}`, `! the result has an optional value inside, which may be absent: add .orValue(...), or write {?"key": ...} or [?...]`},
		"CrossType":         {`[1 < 1.5, value == 1.0, value in [1.0, 2.0]]`, `1`, `[true,true,true]`},
		"Equal":             {`[value == {"b": [1], "a": null}, value == {"b": [1]}, value != {"b": [1]}]`, `{"a":null,"b":[1]}`, `[true,false,true]`},
		"In":                {`["a" in value, "b" in value, dyn({"x": 1}) in [{"x": 1.0}]]`, `{"a":1}`, `[true,false,true]`},
		"Plus":              {`value + [3] + value`, `[1,[2]]`, `[1,[2],3,1,[2]]`},
		"Escapes":           {`value + "\n\t\r\u0001é€😀\\"`, `"\u00e9\ud83d\ude00\"/\u2028\ud800"`, "\"é😀\\\"/\u2028\uFFFD\\n\\t\\r\\u0001é€😀\\\\\""},
		"White":             {`value.map(x, x)`, " [ 1 ,\n{ \"a\" : [ ] } ] ", `[1,{ "a" : [ ] }]`},
		"Null":              {`value == null ? "none" : "some"`, `null`, `"none"`},
		"Division":          {`1 / value`, `0`, `! column 3: division by zero`},
		"Twice":             {`value`, `{"a":1,"a":2}`, `! the value has an object with the key "a" twice`},
		"NotANumber":        {`double("NaN")`, `1`, `! the result has the number NaN, which JSON does not have`},
		"Unsigned":          {`uint(value)`, `18446744073709551`, `18446744073709551`},
		"MixedSort":         {`value.sort()`, `[1,"a"]`, `! column 11: list elements must have the same type`},
		"KeysNoTexts":       {`{true: 1}`, `1`, `! column 2: this key is a boolean, and keys of JSON are strings: write string(...)`},
		"Empty":             {" ", `1`, `! column 1: the expression is empty`},
		"FunctionOfNoValue": {`now()`, `1`, `! column 4: undeclared reference to 'now'`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got string
			p, problems := Compile(tc.expression, nil, nil, Limits{})
			if len(problems) > 0 {
				got = "! " + problems[0].String()
			} else if out, err := p.Convert(nil, []byte(tc.value)); err != nil {
				got = "! " + err.Error()
			} else {
				got = string(out)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s of %s: -want, +got:\n%s", tc.expression, tc.value, diff)
			}
		})
	}
}
