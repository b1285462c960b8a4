// Package convert converts custom resources between the versions of their kinds, from bytes to bytes. It answers the
// ConversionReviews of an API server without I/O. An [Engine] is built from [Resource] values. Each describes how the
// versions of one kind differ from one of them, the hub. The other versions are spokes. Conversion between two spokes
// goes through the hub. The version that an object has is its source version; the requested version is the target
// version.
//
// # Values that stay
//
// The engine decodes only the values at the places that conversions name. It passes everything else byte for byte:
// unknown fields, numbers beyond 2^53, 1.0 and 1e3, white space and the order of keys. It does not change an object
// that already has the target version. Of the metadata, the engine changes only its own annotations ([Annotation] and,
// with [Keep], [Unconverted]). An object without metadata gets an empty one, as API servers require.
//
// An absent value stays absent, and null stays null; functions are called for neither. A place whose parent is absent,
// null or not an object has no value; the schemas of the API server judge the parent instead. If a typed function
// returns a nil slice or map, the value is an empty slice or map. Any other null result means that the target version
// has no such value, and the value is absent. Inside a value, null members are omitted unless the converted value
// contained null. Optional fields of structs should have omitempty. A field whose zero value users may set should be a
// pointer, because the value of a [Field] is converted as a whole. Fields unknown to its type are only in the
// annotation.
//
// # Values that move
//
// A value that moves to another place is inserted after the other members of its new parent. Missing and null parents
// are created. The engine removes the old parent if it becomes empty and its content is elsewhere in the target
// version; the move back creates the parent again. The old parent stays, as {}, in three cases: a value from it is only
// in the annotation, it was empty before a value moved into it, or the version requires it ([SpokeRequires],
// [HubRequires]). The new place must not have a value: a later conversion would take that value for a converted one.
//
// # Places
//
// A place is the list of keys from the root, separated by dots, such as spec.size. A key with characters other than
// letters, digits, - and _ is quoted: spec["a.b"]. In a [Field] or [RawField], spec.{host,port} converts several fields
// of one object as one value: an object of the existing fields, absent if none of them exists. Each member of the
// converted object goes to its place. A member that the converted object lacks is absent.
//
// [Items] and [Values] convert the elements of a list or the values of a table, with places relative to the element.
// Edits of an element are edits of the object, so the text between the edits stays byte for byte. [Move] computes
// nothing. [SpokeOnly] and [HubOnly] declare values that the other version has no place for. [SpokeParent] and
// [HubParent] declare the objects that contain such values or moved values.
//
// # Values that the other version cannot hold
//
// The engine keeps a value that would not come back unchanged from the target version. It writes the value to the
// annotation refract.dev/complement, under the source version and the place. The entry also contains the fingerprint of
// the converted value, which is called the result:
//
//	{"v1alpha1":{"spec.toppings":{"value":["a","b","a"],"of":"221117a02b875354"}}}
//
// The fingerprint is the first 64 bits of the SHA-256 of the canonical value: without white space, with sorted keys,
// and with one notation for each string and number. The conversion back restores the kept value if the result is still
// there and would be made again from the kept value.
//
// If the result has been edited since, the edit wins where it was made: in objects, each member that differs from the
// result, absent members included; lists as a whole. The rest is restored if the source version sees no difference. The
// value before this conversion is in turn kept if it would not come back.
//
// With [Keys], a list that is one value is merged element by element. The merged list has the elements of the kept
// list, in their order, unless the set of elements or their order has changed.
//
// A value that only one version has is always kept, null included, unless it equals its [Default]. Such a value has no
// result: its fingerprint is the fingerprint of null. The value comes back if its place is still empty and its parent
// still exists.
//
// For a list or table, the engine keeps only the elements that would lose something. For each of these elements it
// keeps only the lost values, with places relative to the element:
//
//	{"v1":{"spec.containers":{"items":[{"key":["web"],"kept":{"note":{"value":"n","of":"74234e98afe7498f"}}}]}}}
//	{"v1":{"spec.stock":{"members":{"flour":{"note":{"value":"n","of":"74234e98afe7498f"}}}}}}
//
// The field key has the values of the keys of the element in the target version, null for a missing key. Elements that
// are reordered, added or removed in that version therefore do not affect the entries of other elements. If several
// elements have the same keys, or no keys are declared, an item also has the index among the elements with the same
// keys, the number of these elements, and the fingerprint of the whole converted element:
//
//	{"items":[{"at":0,"size":3,"of":"de9d6974d0a65d0e","kept":{…}}]}
//
// Such an item belongs to an element with this fingerprint at any index. Without such an element, it belongs to the
// element at its index if the number of elements is unchanged. An element that was edited in a list whose length has
// changed is not recognized: declare keys. Items written before keys were declared are matched in this way, too; items
// written with other keys are not.
//
// A conversion removes the entries of both its versions from the annotation. Entries of further versions stay, and an
// empty annotation is removed. The place of an [Object] or [Unstructured] conversion is empty: the kept value has all
// members except apiVersion, kind and metadata.
//
// An entry is not secret: any client that may write annotations can write one. An entry can change nothing that the
// source version of the object sees. It can set the rest, for example fields that a conversion ignores, and the schema
// of the target version does not validate these on reads. Code that relies on such a field has to validate the field
// itself, or the conversion has to. An entry that a conversion refuses or panics on has no effect.
//
// Values are the same if they are equal as JSON, with numbers compared to the last digit, or if [Equivalent] says so.
// The engine calls an equivalence only for a value whose fields are all known to the type. A partial object has neither
// name nor generateName; server-side apply converts such an object for the applied fields of one field manager. A
// partial object keeps nothing, since the manager would own the annotation. An object whose annotations would exceed
// 256 KiB, the limit of API servers, is not converted.
//
// # Values that cannot be converted
//
// With [Keep], the engine converts an object without the parts that cannot be converted. A value that a function
// refuses, at a place or in an element of a list, is absent in the target version, and kept:
//
//	{"v1alpha1":{"spec.size":{"value":"huge","failed":true}}}
//
// If the place of the failure is unknown, all members except apiVersion, kind and metadata are kept under an empty
// place. This happens when a function of whole objects fails, a function panics, or a place is taken. The annotation
// [Unconverted] describes the missing parts. If the object has that annotation, a kept part comes back regardless of
// the value at its place. A value that does not convert back is kept in the same way. A partial object loses the parts
// that fail. An engine without Keep ignores entries of failed values.
//
// # Failures
//
// A review is converted as a whole or not at all. The failure names the object, the versions and the place: see
// [ObjectError]. An object is not converted in these cases: its kind or version is not registered; a key is duplicated
// at its root, in its metadata, or on the path to a place; a function returns an error or panics. Reviews are limited
// by [Limits], documents to [refract.dev/tree/raw.MaxDepth] levels.
package convert
