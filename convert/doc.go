// Package convert converts custom resources between the versions of their kinds, from
// bytes to bytes: it answers the ConversionReviews of an API server, and does so without
// I/O. An [Engine] is made of [Resource] values, which say how each version differs from
// one of them, the hub. Between two spokes objects go through the hub.
//
// # What stays
//
// An object is not decoded. Only the values at the places that a conversion names are;
// everything else is passed on byte for byte: fields that nobody knows, numbers beyond
// 2^53, 1.0 and 1e3, white space and the order of keys. An object that is in the wanted
// version already is not changed at all. Of metadata, the engine only changes one
// annotation, and objects that have none get an empty one, as API servers demand.
//
// A value that is absent is absent afterwards; null stays null, and functions are not
// called for either. A place whose parent is absent, null or no object has no value: the
// API server's schemas judge what stands there instead. A nil slice or map that a typed
// function returns is an empty one; another null means that the version has no such value,
// which is then absent. Inside a value, members that are null are left out unless there was
// null in what was converted. Fields of structs that need not be there want omitempty, and
// pointers where a zero value is one that somebody may write: a value of a [Field] is
// converted as a whole, and what its type has no place for is only in the annotation.
//
// # What moves
//
// A value whose places differ is put behind the other members of its new parent. Parents
// that are not there, or are null, are made. The old parent goes if nothing is left in it
// and all that was in it is elsewhere now, since the move back makes it anew; if a value in
// it is in the annotation alone it stays, as {}, and so does one that was empty before a
// value moved into it, or that the version requires ([SpokeRequires], [HubRequires]). There
// must not be a value at the new place: it would be taken for a converted one later.
//
// # Places
//
// A place is the keys from the root on with dots between them, such as spec.size. A key
// with other characters than letters, digits, - and _ is quoted: spec["a.b"]. Several
// fields of one object are one value of a [Field] or [RawField] with spec.{host,port}: an
// object of those that are there, absent if none is. Of the object that becomes of it each
// member goes to its place; a member that it lacks is absent.
//
// [Items] and [Values] convert what is in a list or a table, with places that begin at the
// element. Edits of an element are edits of the object: what stays between them stays byte
// for byte. [Move] computes nothing. [SpokeOnly] and [HubOnly] are about values that the
// other version has no place for, [SpokeParent] and [HubParent] about the objects that such
// values, or moved ones, are in.
//
// # What the other version cannot hold
//
// If a value would not come back as it was from the other version, it is kept in the
// annotation refract.dev/complement, under the version that it belongs to and its place,
// with a fingerprint of what was made of it:
//
//	{"v1alpha1":{"spec.toppings":{"value":["a","b","a"],"of":"221117a02b875354"}}}
//
// The fingerprint is the first 64 bits of the SHA-256 of the value without white space, its
// keys sorted and its strings and numbers written in one way. On the way back the value is
// restored if what was made of it is still there, and would be made of it again.
//
// If something has been changed meanwhile it wins where it is: of objects each member that
// is not what it was, absent or not, and lists as a whole. The rest is restored, provided
// that the version which the object is in sees no difference. What was made of it then is
// kept in turn if it would not come back.
//
// With [Keys] a list that is such a value merges element by element. Its elements are those
// of what was kept, in their order, if nobody has changed which there are, or their order.
//
// What only one version has is always kept, null too, unless it is its [Default]. It is
// made of nothing: its fingerprint is the one of null. It comes back if there is still
// nothing at its place and the object that it was in is still there.
//
// Of a list or a table only those elements are kept that something would get lost of, and
// of these only that, with places that begin at the element:
//
//	{"v1":{"spec.containers":{"items":[{"key":["web"],"kept":{"note":{"value":"n","of":"74234e98afe7498f"}}}]}}}
//	{"v1":{"spec.stock":{"members":{"flour":{"note":{"value":"n","of":"74234e98afe7498f"}}}}}}
//
// Key has the values of the element's keys in the other version, null for one that it does
// not have; so elements that were put in another order, added or taken away there leave
// the others theirs. If several elements have the same key, or there are no keys, an item
// also says the element's index among those with its key, how many they were, and the
// fingerprint of the whole element that was made of it:
//
//	{"items":[{"at":0,"size":3,"of":"de9d6974d0a65d0e","kept":{…}}]}
//
// It belongs to an element that is still what was made of it, wherever that is, and
// otherwise to the one at its index, if they are as many as they were. An element that was
// changed in a list that has become shorter or longer is not known again: use keys. What
// was written before there were keys is found in this way, too; not so what was written by
// other keys.
//
// The entries of both versions leave the annotation, those of further versions stay, and
// it goes when it is empty. Places of an [Object] or [Unstructured] conversion are empty:
// what is kept are all members but apiVersion, kind and metadata.
//
// An entry is no secret: whoever may write annotations can write one. It can say nothing
// that the object's version would see. What that version does not see it can say, for
// instance fields that a conversion ignores, and the schema of the other version has not
// validated them when they are read. Who relies on such a field checks it there, or in the
// conversion. An entry that a conversion refuses or panics about has no effect.
//
// Values are the same if they are equal as JSON, numbers to the last digit, or if
// [Equivalent] says so; it is asked about a value all of whose fields the type knows. A
// partial object, one without name and generateName such as server-side apply converts of
// what one manager has applied, keeps nothing: it would become the manager's. An object
// whose annotations would be larger than API servers allow, 256 KiB, is not converted.
//
// # What cannot be converted
//
// With [Keep] an object of which something cannot be converted is converted without that. A value that a
// function refuses, at a place or in an element of a list, is absent in the other version, and kept:
//
//	{"v1alpha1":{"spec.size":{"value":"huge","failed":true}}}
//
// Where nobody knows the place, as when a function of whole objects fails, one panics, or a place is taken, all
// but apiVersion, kind and metadata is kept, with an empty place. The annotation [Unconverted] says what the
// object lacks. What is kept comes back whatever stands at its place, to an object with the second annotation. What does
// not convert back is kept in the same way. Of a partial object it is left out. An engine without Keep believes none
// of it.
//
// # What fails
//
// A review is converted as a whole or not at all. Its failure names the object, the
// versions and the place: see [ObjectError]. An object is not converted if its kind or
// version is not registered; if a key is there twice at its root, in its metadata, or on
// the way to a place; or if a function returns an error or panics. Reviews are limited by
// [Limits], documents to [refract.dev/tree/raw.MaxDepth] levels.
package convert
