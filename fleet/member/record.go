package member

import (
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// record is the stored form of a Copy: some 150 bytes, and strings that it shares with other records.
type record struct {
	uid        uid
	source     origin
	madeFor    text
	hash       text
	orphan     text
	message    text
	fault      text
	scaledBy   text
	owned      Ownership
	ended      Ended
	generation int64
	version    uint64
	round      uint32 // The number of the last list that has shown the copy.
	judged     uint32 // Version of the Health that readiness takes into account.
	readiness  uint8  // Index of readinesses.
	keep       bool
	adopted    bool
	native     bool
	deleting   bool
	doubted    bool
}

// recordBytes is the size of a record and its map entry, without the strings. namespaceBytes is the size of the map of
// a namespace.
const (
	recordBytes    = 200
	namespaceBytes = 300
)

// bytes returns the size of the record, as if no other record shared its strings.
func (r *record) bytes() int {
	return recordBytes + r.uid.other.bytes() + r.source.bytes() +
		r.madeFor.bytes() + r.hash.bytes() + r.orphan.bytes() + r.message.bytes() + r.fault.bytes() + r.scaledBy.bytes()
}

var readinesses = [...]refractv1alpha1.Readiness{
	refractv1alpha1.ReadinessUnknown, refractv1alpha1.ReadinessReady, refractv1alpha1.ReadinessInProgress, refractv1alpha1.ReadinessFailed,
}

// ready sets the readiness, and reports whether it has changed.
func (r *record) ready(readiness refractv1alpha1.Readiness, message string, judged uint32) (changed bool) {
	before, said, asked := r.readiness, r.message, r.judged
	r.readiness, r.message, r.judged = 0, intern(message), judged
	for i, one := range readinesses {
		if one == readiness {
			r.readiness = uint8(i)
		}
	}
	return before != r.readiness || said != r.message || asked != r.judged
}

func recordOf(key Key, c *Copy) *record {
	r := &record{
		uid:        uidOf(c.UID),
		source:     originOf(key, c.Source),
		madeFor:    intern(c.MadeFor),
		hash:       intern(c.Hash),
		orphan:     intern(c.Orphan),
		fault:      intern(c.Fault),
		scaledBy:   intern(c.ScaledBy),
		owned:      c.Owned,
		ended:      c.Ended,
		generation: c.generation,
		version:    c.version,
		keep:       c.Keep,
		adopted:    c.Adopted,
		native:     c.Native,
		deleting:   c.Deleting,
		doubted:    c.Doubted,
	}
	r.ready(c.Readiness, c.ReadinessMessage, c.Judged)
	return r
}

func (r *record) copy(key Key) Copy {
	return Copy{
		UID:              r.uid.String(),
		Source:           r.source.of(key),
		MadeFor:          r.madeFor.String(),
		Hash:             r.hash.String(),
		Orphan:           r.orphan.String(),
		Fault:            r.fault.String(),
		Keep:             r.keep,
		ScaledBy:         r.scaledBy.String(),
		Adopted:          r.adopted,
		Native:           r.native,
		Deleting:         r.deleting,
		Owned:            r.owned,
		Doubted:          r.doubted,
		Ended:            r.ended,
		Readiness:        readinesses[r.readiness],
		ReadinessMessage: r.message.String(),
		Judged:           r.judged,
		generation:       r.generation,
		version:          r.version,
	}
}

// origin is the annotation that names the source of a copy. The annotation ends with the name of the copy itself, so
// only its beginning is stored.
type origin struct {
	hub    text // The hub, or the whole annotation if it has another form.
	object uid
	short  bool
}

// bytes returns the size of the origin beyond the struct. All copies usually share the text of the hub.
func (s origin) bytes() int {
	if !s.short {
		return s.hub.bytes()
	}
	const shared = 64
	return shared + len(s.hub.String()) + s.object.other.bytes()
}

func originOf(key Key, s string) origin {
	if start, ok := strings.CutSuffix(s, ending(key)); ok {
		if hub, object, ok := strings.Cut(start, "/"); ok {
			return origin{hub: intern(hub), object: uidOf(types.UID(object)), short: true}
		}
	}
	return origin{hub: intern(s)}
}

func (s origin) of(key Key) string {
	if !s.short {
		return s.hub.String()
	}
	return s.hub.String() + "/" + string(s.object.String()) + ending(key)
}

// ending returns the end of the source annotation of a copy with this key: see [refractv1alpha1.SourceAnnotation].
func ending(key Key) string {
	return "/" + key.GroupResource.String() + "/" + key.Namespace + "/" + key.Name
}

// uid is a UID in 24 bytes.
type uid struct {
	bytes [16]byte
	other text // A UID that does not have the usual form of API servers.
}

func uidOf(id types.UID) uid {
	var u uid
	if len(id) == 36 {
		digits := id[:8] + id[9:13] + id[14:18] + id[19:23] + id[24:]
		if _, err := hex.Decode(u.bytes[:], []byte(digits)); err == nil && u.String() == id {
			return u
		}
	}
	return uid{other: intern(string(id))}
}

// String returns the UID as the API server wrote it.
func (u uid) String() types.UID {
	if u.other != (text{}) || u.bytes == [16]byte{} {
		return types.UID(u.other.String())
	}
	var b [36]byte
	for i, at := range [...]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34} {
		hex.Encode(b[at:at+2], u.bytes[i:i+1])
	}
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return types.UID(b[:])
}

// difference names the parts of a copy that have changed.
type difference struct {
	content   bool // The copy appeared, disappeared, was replaced, or has other content.
	readiness bool
}

// differs compares the record with the previous one, which may be nil.
func (r *record) differs(before *record) difference {
	if before == nil {
		return difference{content: true, readiness: true}
	}
	return difference{
		content: before.uid != r.uid || before.source != r.source || before.hash != r.hash || before.owned != r.owned ||
			before.orphan != r.orphan || before.keep != r.keep || before.adopted != r.adopted || before.native != r.native || before.deleting != r.deleting ||
			before.fault != r.fault || before.scaledBy != r.scaledBy || before.doubted != r.doubted,
		readiness: before.ended != r.ended || before.readiness != r.readiness || before.message != r.message || before.judged != r.judged,
	}
}
