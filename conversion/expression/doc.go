// Package expression computes one JSON value from another with an expression in CEL, the language of validation rules
// in CustomResourceDefinitions. [Compile] creates a [Program]. It checks the expression against the schemas of the
// value and of the result. A Program converts any number of values. The package does no I/O, and its results depend
// only on its arguments.
//
// # The value
//
// An expression has one variable, value. Its type comes from the schema:
//
//	object with properties         an object: value.size; unknown fields
//	                               are compile errors
//	object with
//	additionalProperties           map(string, ...): value["key"]
//	object with neither            map(string, dyn)
//	array                          list(...)
//	string of any format           string, also for dates
//	integer, number, boolean       int, double, bool
//	x-kubernetes-int-or-string,
//	x-kubernetes-preserve-
//	unknown-fields, no schema      dyn: known during evaluation
//
// Fields whose names are not identifiers are escaped as in validation rules: "__" in a name as __underscores__, "." as
// __dot__, "-" as __dash__, "/" as __slash__, and a reserved word, such as namespace, as __namespace__. A name with
// other characters has no escaped form. dyn(value)["any name"] selects any field. dyn(value) is also the object as a
// table, which is necessary for loops over its fields, for comparisons with {...}, and for lists that contain both the
// object and {...}.
//
// Selecting an absent field is an error: has(value.a) tests for the field, and value.?a.orValue(1) has a fallback. A
// nullable integer, number, boolean or text can be compared with null, and so can objects; for lists and tables, write
// dyn(value.a).
//
// # Numbers
//
// Integers are exact from -2^63 to 2^63-1; an overflow is an error. A larger integer is an error as soon as the
// expression computes with it, and the error names the integer. Inside a value that is only passed on, it stays
// unchanged. Where the schema has type integer, 1.0 and 1e3 are integers, too. Where it has type number, all numbers
// are doubles, except integers beyond 2^53, which stay exact. Without a schema, 1 is an int and 1.0 a double.
// Comparisons across types are by value: 1 == 1.0. Doubles are written in the shortest form that identifies them: 1.0
// becomes 1. The quotient of two ints is an int.
//
// # The result
//
// The result is null, a boolean, a number, a text, a list, or a map with texts as keys. Timestamps, durations,
// quantities, bytes and other types have to be converted to one of these, in most cases with string(...). New objects
// have sorted keys. Lists and objects that are passed on from the value keep their JSON byte for byte.
//
// The whole result may be absent. Absent is written as null, which means that the other version has no such value, and
// fits every schema. An optional value is allowed, too: optional.none() becomes null, and optional.of(x) becomes x.
// Example: the percentage of the first metric named cpu, absent without such a metric:
//
//	value.filter(m, m.name == "cpu").map(m, m.percent).first()
//
// If a conditional is the whole result, one of its branches may be null or optional.none(), whatever the type of the
// other branch: has(value.size) ? value.size : null. If a call of orValue is the whole result, its argument may be null.
//
// Inside the result, an optional member or element is written {?"key": value.?key} or [?value.?key], and the schema has
// to allow a null.
//
// The compiler checks the result against the schema as far as the text of the expression determines the result. It
// follows literals, conditionals, macros such as map and filter, and concatenated lists. So the problem about an unknown
// key has the position of the key.
//
// # Functions
//
// Expressions can use all of CEL's standard functions and macros, optional values, cel.bind, macros with two variables
// (value.transformList(i, v, ...), transformMap, transformMapEntry), and these extensions:
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
// The package adds:
//
//	list.count()                 [{"value": v, "count": n}, ...]: each distinct value,
//	                             in order of first appearance, and its count
//	list.count("name", "n")      the same with these two keys
//	list.expand()                the inverse: repeats each value by its count,
//	list.expand("name", "n")     1 by default
//	map.merge(map)               the members of both; those of the second map win
//	map.omit(["a", "b"])         the members except these
//	string(quantity)             the quantity in the notation of Kubernetes
//
// The functions count and distinct compare values as == does. Their time grows linearly with the list, not
// quadratically. Lists and maps may have values of different types: {"name": "x", "n": 1} needs no dyn().
//
// # Limits
//
// [Limits] bounds one evaluation. Exceeding a limit is an error, which is found before an oversized value is created. A
// number in a value is never used as a length without a check.
//
//	elements and members of the result, at all levels                 OutputItems
//	elements of each intermediate list                                OutputItems
//	cost: one for each variable, field, conditional and call, one
//	for ten bytes of text, one for each element that a call reads
//	or creates, text times pattern divided by 40 for searches         Cost
//	an intermediate text, and the result                              8 MiB
//	values inside value, including nested ones                        1,000,000
//	nested levels of value                                            10,000
//	text times pattern, in bytes                                      10,000,000
//	bytes of a pattern                                                10,000
//	parts of a pattern, multiplied by their repetitions and by the
//	number of groups plus one                                         20,000
//	nested lists and objects of the result                            9,900
//	optMap and optFlatMap, in an expression                           8
//	nested lists, maps and optional values, in a type                 32
//	the text of a quantity or a semantic version                      1,024 bytes
//	the exponent of a quantity; isQuantity is false beyond            3 digits
//	decimal places in format                                          99
//
// A value with a duplicate key in an object is rejected, because parsers disagree about its meaning.
package expression
