// Package policy compiles ConversionPolicies to the conversions of package convert. A ConversionPolicy converts the
// objects of a CustomResourceDefinition without code. The package does no I/O.
//
// # Coverage
//
// A policy that compiles covers every field of both schemas, at any depth. A field is covered if an entry has its
// place, or the place of an object that contains it. A field is also covered if it passes, which means that it stays
// unchanged: the other version has the same type at the same place, or keeps fields that are not in its schema. Any
// other field would get lost silently, so it is an error. The message of the error contains the missing entry. The
// rules of the findings are:
//
//	WrongDefinition      error    the policy is about another definition
//	UnknownVersion       error    a version that does not exist, or that occurs twice
//	VersionNotConverted  error    a version that is served or stored, but is neither hub nor spoke
//	InvalidField         error    an entry with incompatible parts
//	InvalidPlace         error    a place that is malformed, unknown, in metadata, or has another number of [*]
//	PlacesOverlap        error    two entries with one place, or with a place inside the place of the other
//	NotCovered           error    a field that only one version has and that has no entry
//	TypeMismatch         error    a value of another type, without an operation between both types
//	InvalidPair          error    a pair with a value that the schema does not allow
//	EnumNotCovered       error    a value of an enum without a counterpart in the other version
//	InvalidDefault       error    a default that differs from the schema's default, or has no effect
//	RequiredNotFilled    error    a required field without a source in the other version
//	InvalidExpression    error    an expression that does not compile
//	InvalidList          error    keys for a value that is not a list of objects, or for unknown fields
//	NotConvertible       error    conversions that the engine rejects
//	TooMuch              error    more versions, entries, pairs or expressions than a policy may have
//	ExpansionUnlimited   warning  a list whose length depends on a number, without a limit in the policy
//	ManyToOne            warning  a value with several counterparts in the other version
//	NoEffect             warning  an entry, or a part of one, without effect
//	ListWithoutKeys      warning  converted elements that only their position identifies
//	ValuesWithoutPair    warning  values that the conversion or the other version does not accept
//	RequiredByOne        warning  a field that passes and that only one version requires
//	NullDropped          warning  a null that passes and that the API server drops
//
// Bounds, patterns and CEL rules of schemas are not compared. Verification finds values that they reject.
//
// # Operations
//
// All operations are exact. They compare and compute numbers as decimal numbers, not as float64. An integer beyond 64
// bits is an error that names the integer. The engine keeps each value that the reverse conversion does not restore: a
// text "007" that became 7, the order of a list that became a table, the second element of a list that became a single
// value. The order of the keys of a table is not kept, because API servers do not preserve it: a table becomes a list
// in the order of its keys.
//
//	map    compares strings by their text, and numbers by their value.
//	scale  truncates integers toward zero. A number becomes the nearest float64.
//	cast   accepts decimal numbers without spaces, and drops leading zeros and a plus sign.
//	       Integers are written in digits, numbers as API servers store them: 1.50 is 1.5.
//	keyed  uses the last of several elements with the same key. An element without a key is an error.
//	       If the entry has a value, elements without that field are omitted.
//	wrap   uses the first element. An empty list is an absent value.
//
// Entries for places inside lists and tables ([*]) convert the elements: see [refract.dev/conversion/convert.Items]. If
// a list moves, the entries of its elements determine its new place; an entry for the list itself may do so as well. An
// object that only one version has around its values is created with the first of these values, and removed with the
// last.
package policy
