// Package convert converts custom resources between the versions of their kinds, from bytes to bytes. It answers the
// ConversionReviews of an API server without I/O. An [Engine] is built from [Resource] values. A Resource describes one
// kind: how each version differs from the hub, which is one of the versions. All other versions are spokes. A
// conversion between two spokes goes through the hub. The version that an object has is its source version; the
// requested version is the target version.
//
// # Values that stay
//
// The engine decodes only the values at the places that conversions name. All other text stays byte for byte: unknown
// fields, numbers beyond 2^53, 1.0 and 1e3, white space and the order of keys. The engine does not change an object
// that already has the target version. Of the metadata, the engine changes only its own annotations ([Annotation] and,
// with [Keep], [Unconverted]). An object without metadata gets an empty one, as API servers require.
//
// An absent value stays absent, and null stays null; the engine calls no function for them. If the parent of a place is
// absent, null or not an object, the place has no value, and the API server validates the parent against the schema. If
// a typed function returns a nil slice or map, the value is an empty slice or map. Any other null result means that the
// target version has no such value, and the value is absent. Inside a value, null members are omitted unless the
// original value contained null. Optional fields of structs should have omitempty. If users may set the zero value of a
// field, the field should be a pointer. The value of a [Field] is converted as a whole: fields that its Go type does
// not have stay only in the annotation.
//
// # Values that move
//
// A value that moves to another place is inserted after the other members of its new parent. Missing and null parents
// are created. The engine removes the old parent if it becomes empty and its content is elsewhere in the target
// version; the conversion back creates the parent again. The old parent stays, as {}, in three cases: a value from it
// is only in the annotation, it was empty before a value moved into it, or the version requires it ([SpokeRequires],
// [HubRequires]). The new place must not have a value: a later conversion would take that value for a converted one.
//
// # Places
//
// A place is the list of keys from the root, separated by dots, such as spec.size. A key with characters other than
// letters, digits, - and _ is quoted: spec["a.b"]. In a [Field] or [RawField], spec.{host,port} is a group: several
// fields of one object that are converted as one value. This value is an object of the existing fields, and absent if
// none of them exists. Each member of the converted object goes to its place. A member that the converted object lacks
// is absent.
//
// [Items] converts the elements of a list. [Values] converts the values of a table, an object whose keys are data. The
// places of their conversions are relative to the element. The text between the edits of an element stays byte for
// byte. [Move] only moves a value. [SpokeOnly] and [HubOnly] are for values that the other version has no place for.
// [SpokeParent] and [HubParent] are for objects that contain such values or moved values.
//
// # Values that the other version cannot represent
//
// The engine keeps a value that would not come back unchanged from the target version. It writes the value to the
// annotation refract.dev/complement, under the source version and the place. The entry also contains a fingerprint of
// the result, which is the converted value:
//
//	{"v1alpha1":{"spec.toppings":{"value":["a","b","a"],"of":"221117a02b875354"}}}
//
// The fingerprint is the first 64 bits of the SHA-256 of the canonical value: without white space, with sorted keys,
// and with one notation for each string and number. The conversion back restores the kept value if two conditions hold:
// the object still has the result, and a new conversion of the kept value gives the same result.
//
// If the result has been edited, the engine merges. In an object, each member that was edited, added or removed comes
// from the edited value, and all other members come from the kept value. A list comes from one of them as a whole. The
// engine uses the merged value only if the source version does not show a difference between the merged value and the
// edited value. The value before this conversion is kept in turn if it would not come back.
//
// With [Keys], a list that is one value is merged element by element. The merged list has the elements of the kept
// list, in their order, unless the set of elements or their order has changed.
//
// A value that only one version has is always kept, null included, unless it equals its [Default]. Such a value has no
// result: its fingerprint is the fingerprint of null. The value comes back if its place is still empty and its parent
// still exists.
//
// For a list or table, the engine keeps only the elements that would lose a value. For each of these elements it keeps
// only the lost values, with places relative to the element:
//
//	{"v1":{"spec.containers":{"items":[{"key":["web"],"kept":{"note":{"value":"n","of":"74234e98afe7498f"}}}]}}}
//	{"v1":{"spec.stock":{"members":{"flour":{"note":{"value":"n","of":"74234e98afe7498f"}}}}}}
//
// The field key has the values of the key fields of the element in the target version, null for a missing field. So
// reordering, adding or removing elements in that version does not affect the entries of other elements. If several
// elements have the same keys, or the conversion declares no keys, an item has three more fields: the index among the
// elements with the same keys, the number of these elements, and the fingerprint of the whole converted element:
//
//	{"items":[{"at":0,"size":3,"of":"de9d6974d0a65d0e","kept":{…}}]}
//
// Such an item belongs to an element with this fingerprint at any index. Without such an element, it belongs to the
// element at its index if the number of elements is unchanged. If the length of the list has changed, an edited element
// is not recognized: declare keys. Items from the time before keys were declared are matched in this way as well. Items
// with other keys than the declared ones are not matched.
//
// A conversion removes the entries of its two versions from the annotation. Entries of further versions stay, and an
// empty annotation is removed. The place of an [Object] or [Unstructured] conversion is empty: the kept value has all
// members except apiVersion, kind and metadata.
//
// Entries are not protected: any client that may write annotations can write an entry. An entry cannot change a value
// that the source version of the object shows. It can set other values, for example fields that a conversion ignores,
// and API servers do not validate these against the schema of the target version on reads. Code that relies on such a
// field has to validate the field itself, or the conversion has to. An entry has no effect if the conversion of its
// value fails or panics.
//
// Two values are the same if they are equal as JSON, with numbers compared to the last digit, or if [Equivalent] says
// so. The engine calls an equivalence only if the type has fields for all members of the value. A partial object has
// neither name nor generateName; server-side apply converts such an object, with the applied fields of one field
// manager. A partial object keeps nothing, because the annotation would become a field of the manager. An object whose
// annotations would exceed 256 KiB, the limit of API servers, is not converted.
//
// # Values that cannot be converted
//
// With [Keep], the engine converts an object without the parts that cannot be converted. If a function returns an error
// for a value, at a place or in an element of a list, the value is absent in the target version, and kept:
//
//	{"v1alpha1":{"spec.size":{"value":"huge","failed":true}}}
//
// If the place of the failure is unknown, all members except apiVersion, kind and metadata are kept under an empty
// place. This happens when a function of whole objects fails, a function panics, or a target place already has a value.
// The annotation [Unconverted] describes the missing parts. If the object has that annotation, a kept part comes back
// regardless of the value at its place. A value that does not convert back is kept in the same way. A partial object
// loses the parts whose conversion fails. An engine without Keep ignores entries of failed values.
//
// # Failures
//
// A review is converted as a whole or not at all. The failure names the object, the versions and the place: see
// [ObjectError]. An object is not converted in these cases: its kind or version is not registered; a key is duplicated
// at its root, in its metadata, or on the path to a place; a function returns an error or panics. Reviews are limited
// by [Limits], documents to [refract.dev/tree/raw.MaxDepth] levels.
package convert
