// Package verify checks laws of conversions of custom resources: no data is lost or invented, edits stay, converted
// objects are valid, and reviews are answered as API servers require. [Laws] lists the laws.
//
// Verification is a search and not a proof. [Run] generates objects from the schema of each version: first all small
// objects, and then random ones that prefer the limits of the schema. It uses the objects that an API server would
// accept, and checks every law with each of them. If an object violates a law, Run shrinks the object as far as
// possible, so that the remaining fields show the reason. Run can also check recorded objects. The same seed gives the
// same objects.
//
// # Equality
//
// Objects are compared as JSON, after pruning and defaulting by the API server, and without the annotation
// refract.dev/complement. A converted object is converted again in the form in which an API server stores it; for
// example, 1.10 is stored as 1.1. Two objects also mean the same if their normal forms are equal: see [Knowledge]. An
// object without values may get lost if the other version has no place for it or had other content in it: it existed
// only because of fields that move elsewhere.
//
// # The laws
//
//   - RoundTripSpoke, RoundTripHub: an object comes back unchanged. This is also true for the object without metadata,
//     which cannot keep values in an annotation, except for the places in Knowledge.MayLose. So the law finds functions
//     that are not inverses.
//   - Edit: the object is converted, gets one or two valid edits, is converted back, and is converted once more. The
//     edits must still be present. In the first version, only values that the edits affect may differ. These are the
//     values that the edits change in an object without kept values. A list is affected as a whole, unless the schema
//     has keys for it.
//   - Partial: a partial object has the applied fields of one manager of server-side apply, without metadata and
//     perhaps without required fields. It must convert. The result must not have values that the result for the whole
//     object does not have, and must not have an annotation.
//   - Valid: a valid object converts. In the other version, the result has no unknown field and no null that is pruned,
//     and is valid with the defaults of that version. A recorded object may be invalid because its schema has become
//     stricter. Such an object only has to convert.
//   - Defaulting: an object converts to the same result with and without the defaults of its version, except for
//     defaults of fields that the other version does not set. It also comes back unchanged after the defaults of the
//     other version were set.
//   - Triangle: with three versions, the conversion through the third version equals the direct conversion.
//   - Deterministic: the same object gives the same bytes, the second time and among other objects. The conversion does
//     not modify its input.
//   - Bounded: the size of the result is limited, and does not grow with each round trip. In a list with maxItems in
//     the schema of the other version, only the largest element counts.
//   - Contract: the answer to a review has the same number of objects, in order, with the right apiVersion, kind and
//     metadata; annotations may change. An object in the target version is unchanged. Metadata is always present.
//
// An object that cannot be converted violates only Valid; the other laws ignore it.
package verify
