// Package verify checks that conversions of custom resources keep to laws: that nothing
// gets lost or is made up, that edits stay, that what comes out is valid, and that
// reviews are answered as an API server demands. [Laws] lists them.
//
// It is a search, and no proof. [Run] generates objects from the schema of each version,
// all small ones first and then random ones that prefer the edges of the schema, keeps
// those that an API server would accept, and checks every law with every one. Whatever
// breaks a law is made as small as possible, so that what is left is the reason. Recorded
// objects are tried too. The same seed gives the same objects.
//
// # What is the same
//
// Objects are compared as JSON, after the API server's pruning and defaulting, and
// without the annotation refract.dev/complement. What has been converted is converted again
// as an API server stores it, where 1.10 is 1.1. Beyond that two objects mean the same if
// their normal forms are equal, for which there is [Knowledge]. An object without any
// values is no loss if the other version has no place for it, or has other things in it:
// it was only what is around the fields that go elsewhere.
//
// # What the laws say
//
//   - RoundTripSpoke, RoundTripHub: an object comes back as it was. So does the object
//     without metadata, for which nothing can be kept in an annotation, but for
//     Knowledge.MayLose. That shows whether functions are inverses of each other.
//   - Edit: the object is converted, one or two valid edits are made, and it goes back and
//     there again: the edits are still there. In the first version nothing is different
//     that the edits do not touch. What they touch is where an object for which nothing is
//     kept differs with them; a list as a whole, unless the schema has keys for it.
//   - Partial: what one manager of server-side apply has applied is some of an object,
//     without metadata and required fields. It converts, nothing comes of it that does not
//     come of the whole object, and it gets no annotation.
//   - Valid: a valid object converts, nothing of it is unknown or a null to be pruned in
//     the other version, and with the defaults of that it is valid there. A recorded object
//     that is not valid itself, as it was stored before its schema became stricter, converts.
//   - Defaulting: an object converts to the same, whether the defaults of its version
//     are filled in or not, but for those defaults where the other version has nothing. It
//     comes back with what it had if those of the other version are filled in meanwhile.
//   - Triangle: of three versions, the way over the third leads to where the direct one does.
//   - Deterministic: the same object gives the same bytes, the second time and among others.
//     What is given is not modified.
//   - Bounded: sizes have a limit, and do not grow with each trip. Of a list that the schema
//     of the other version limits with maxItems only the largest element counts.
//   - Contract: a review has as many answers, in their order, with their apiVersion, kind
//     and metadata, annotations excepted: none is lost. An object in the wanted version is
//     not changed. Metadata is there always.
//
// A law about an object that cannot be converted says nothing, but for Valid.
package verify
