// Package policy compiles conversions without code: what a ConversionPolicy says of a
// CustomResourceDefinition becomes the conversions of package convert. It does no I/O.
//
// # Coverage
//
// A policy that compiles says of every field of both schemas, at any depth, what becomes of
// it: an entry names it, or what contains it; or it passes, because the other version has
// the same type at the same place, or keeps fields that it does not know. Whatever else
// there is would be lost without anybody noticing, so that it is an error, which says what
// to write. The rest of the verdict is in the findings' rules:
//
//	WrongDefinition      error    another definition than the policy is about
//	UnknownVersion       error    a version that does not exist, or is there twice
//	VersionNotConverted  error    a version that is served or stored, and neither hub nor spoke
//	InvalidField         error    an entry whose parts do not go together
//	InvalidPlace         error    a place that is malformed, unknown, in metadata, or of another number of [*]
//	PlacesOverlap        error    two entries about one place, or one inside the other's
//	NotCovered           error    a field that only one version has, and no entry names
//	TypeMismatch         error    a value of another type, without an operation that is for both
//	InvalidPair          error    a pair whose value is none of the schema's
//	EnumNotCovered       error    a value of an enum that becomes none of the other version's
//	InvalidDefault       error    a default that is not the schema's own, or of no use
//	RequiredNotFilled    error    a required field that the other version has nothing for
//	InvalidExpression    error    an expression that does not compile
//	InvalidList          error    keys of what is no list of objects, or has no such fields
//	NotConvertible       error    what the engine has against the conversions
//	TooMuch              error    more versions, entries, pairs or expressions than a policy may have
//	ExpansionUnlimited   warning  a list that becomes as long as a number says, without a limit of one's own
//	ManyToOne            warning  a value that is more than one of the other version
//	NoEffect             warning  an entry, or a part of one, that does nothing
//	ListWithoutKeys      warning  elements that are converted, and are told from each other by their position alone
//	ValuesWithoutPair    warning  values that a conversion or the other version does not take
//	RequiredByOne        warning  a field that passes, and only one version requires
//	NullDropped          warning  a null that passes, and the API server drops
//
// Bounds, patterns and CEL rules of schemas are not compared: verification finds what they
// refuse.
//
// # Operations
//
// All of them are exact. Numbers are compared and computed as they are written, not as
// float64; an integer beyond 64 bits is an error that names it. What one of the two
// directions does not bring back, the engine keeps: a text "007" that became 7, the order
// of a list that became a table, the second value of a list that became a single one.
// What API servers do not keep is nothing to rely on: tables become lists in the order of
// their keys, whatever order they are written in.
//
//	map    compares strings by their text, and numbers by their value.
//	scale  cuts integers off toward zero. A number is the float64 that is nearest.
//	cast   takes decimal numbers, without spaces; zeros in front and a plus sign go.
//	       Integers are written in digits, numbers as API servers store them: 1.50 is 1.5.
//	keyed  of elements with the same key takes the last one. An element without a key is an error; with a value, an element without one has no place.
//	wrap   takes the first element. An empty list is no value.
//
// Entries inside lists and tables ([*]) are conversions of their elements: see
// [refract.dev/convert.Items]. The place of a list that moves follows from its elements'
// entries; an entry for the list itself may say it, too. An object that one version alone
// has around its values comes with the first of them and goes with the last.
package policy
