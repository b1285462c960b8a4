// Package expression computes one JSON value from another with an expression in CEL, the
// language in which validation rules of CustomResourceDefinitions are written. A [Program]
// is made once by [Compile], which checks the expression against the schemas of the value
// and of the result, and then converts any number of values. The package does no I/O, and
// its answers depend on its arguments alone.
//
// # The value
//
// An expression has one variable, value. Its type comes from the schema:
//
//	object with properties         an object: value.size; fields that the schema
//	                               does not have are errors when compiling
//	object with
//	additionalProperties           map(string, ...): value["key"]
//	object with neither            map(string, dyn)
//	array                          list(...)
//	string, of whatever format     string: texts stay texts, dates too
//	integer, number, boolean       int, double, bool
//	x-kubernetes-int-or-string,
//	x-kubernetes-preserve-
//	unknown-fields, no schema      dyn: known when evaluating
//
// Fields whose names are no identifiers are written as in validation rules: "__" in a name
// as __underscores__, "." as __dot__, "-" as __dash__, "/" as __slash__, and a reserved
// word, such as namespace, as __namespace__. A name with other characters has no such form.
// dyn(value)["any name"] selects each, and makes a table of an object: for loops over its
// fields, to compare it with {...}, or to have it in one list with {...}.
//
// A field that is not there is an error when it is selected: has(value.a) asks, and
// value.?a.orValue(1) stands for something else. A nullable integer, number, boolean or
// text can be compared with null, and so can objects; lists and tables as dyn(value.a).
//
// # Numbers
//
// Integers are exact from -2^63 to 2^63-1; an overflow is an error. A larger one is an error
// that names it as soon as it is computed with, and passes unharmed inside of what is not.
// Where the schema says integer, 1.0 and 1e3 are integers too. Where it says number, numbers
// are doubles, also those without a point, unless they are integers beyond 2^53, which stay
// exact. Without a schema 1 is an int and 1.0 a double. Comparisons across types are by
// value: 1 == 1.0. Doubles are written as short as they can be told from others: 1.0
// becomes 1. Dividing ints gives an int.
//
// # The result
//
// The result is null, a boolean, a number, a text, a list, or a map with texts as keys; a
// timestamp, a duration, a quantity, bytes and the like have to become one of these, most
// often with string(...). Made objects have their keys sorted; lists and objects of the value
// that are passed on keep their JSON, byte for byte.
//
// The whole result may be absent: null, which says that the other version has no such value,
// fits every schema. So do optional values: optional.none() becomes null, and optional.of(x)
// becomes x. The percentage of the first metric that is named cpu, if there is one:
//
//	value.filter(m, m.name == "cpu").map(m, m.percent).first()
//
// null and optional.none() go with values of any type in the branches of ?: that are the
// whole result, and null in its orValue: has(value.size) ? value.size : null.
//
// Inside of the result a value that may be absent is written {?"key": value.?key} or
// [?value.?key], and a null is one that the schema has to allow.
//
// When compiling, the result is held against the schema as far as the text shows what it is:
// literals, choices, macros such as map and filter, and lists that are put together are
// followed, so that a key that the schema does not know is reported where it stands.
//
// # Functions
//
// All of CEL's own functions and macros are there, with optional values, cel.bind, macros
// with two variables (value.transformList(i, v, ...), transformMap, transformMapEntry), and
// the extensions of
//
//	texts          charAt, format, indexOf, join, lastIndexOf, lowerAscii, quote,
//	               replace, reverse, split, substring, trim, upperAscii
//	lists          distinct, flatten, lists.range, reverse, slice, sort, sortBy
//	numbers        math.abs, math.ceil, math.floor, math.greatest, math.least, ...
//	sets           sets.contains, sets.equivalent, sets.intersects
//	patterns       regex.extract, regex.extractAll, regex.replace
//	encodings      base64.decode, base64.encode, json.encode
//	Kubernetes     quantity, isQuantity, semver, isSemver, url, isURL and their methods
//
// and, beyond these:
//
//	list.count()                 [{"value": v, "count": n}, ...]: each value once, in
//	                             order of first appearance, and how often it is there
//	list.count("name", "n")      the same with these two keys
//	list.expand()                the inverse: each value as often as its count says, and
//	list.expand("name", "n")     once if it has none
//	map.merge(map)               the members of both; those of the second one win
//	map.omit(["a", "b"])         the members but for these
//	string(quantity)             the quantity as Kubernetes writes it
//
// What count and distinct take for equal is equal with ==, and is told from each other in
// time that grows with the list and not with its square. Lists and maps need not be of one
// type: {"name": "x", "n": 1} needs no dyn().
//
// # Limits
//
// [Limits] has what one evaluation may take; over a limit it is an error, and nothing that
// is too big has been made by then. No number in a value is ever trusted as the length of
// something.
//
//	elements and members of the result, with all that is inside       OutputItems
//	elements of each list that is made on the way                     OutputItems
//	cost: one for each variable, field, choice and call, one for ten
//	bytes of text, one for each element that a call looks at or
//	makes, text times pattern divided by 40 for searches              Cost
//	a text on the way, and the result                                 8 MiB
//	values in the value, at any depth                                 1,000,000
//	levels of the value                                               10,000
//	text times pattern, in bytes                                      10,000,000
//	bytes of a pattern; its parts, repeated ones counted as often
//	as they are repeated, times its groups and one                    10,000; 20,000
//	lists and objects of the result inside each other                 9,900
//	optMap and optFlatMap, in an expression                           8
//	lists, maps and optional values inside each other, in a type      32
//	the text of a quantity or a semantic version                      1,024 bytes
//	the exponent of a quantity; isQuantity says no of more            3 digits
//	places behind the point in format                                 99
//
// A value that has a key twice in one object is refused: no two readers agree on what it
// means.
package expression
