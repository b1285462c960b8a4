package member

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// FieldManager is the name under which Refract applies fields.
const FieldManager = "refract"

// Ownership is a set of fields of an object, those that Refract applied and that
// nobody has changed or removed since, and when it did. Whoever changes one takes it
// over; whoever does that under the name of Refract makes it be later. So a copy that
// was changed is one with another Ownership than it was written with. Ownerships are
// comparable. The zero Ownership has no fields.
type Ownership struct {
	fields text
	// at is when the fields were applied with other values than they had before, in
	// seconds since 1970, as the API server of the member says; 0 if it does not. An
	// apply that changes nothing does not count.
	at int64
}

// Hash identifies the set and the time: 16 hexadecimal characters, @, and the seconds
// since 1970; or "" for no fields.
func (o Ownership) Hash() string {
	if o.fields == (text{}) {
		return ""
	}
	return o.hashOfFields() + "@" + strconv.FormatInt(o.at, 10)
}

func (o Ownership) hashOfFields() string {
	sum := sha256.Sum256([]byte(o.fields.String()))
	return hex.EncodeToString(sum[:8])
}

// Is reports whether the hash is that of o. One without a time, as hashes once were,
// is that of the fields.
func (o Ownership) Is(hash string) bool {
	if strings.Contains(hash, "@") {
		return hash == o.Hash()
	}
	return o.HasFieldsOf(hash)
}

// HasFieldsOf reports whether the hash is one of the same fields, at whatever time.
func (o Ownership) HasFieldsOf(hash string) bool {
	fields, _, _ := strings.Cut(hash, "@")
	if o.fields == (text{}) {
		return fields == ""
	}
	return fields == o.hashOfFields()
}

// gained reports whether o has a field that before had not, or the time of another apply.
// Of a set that could not be read it may have.
func (o Ownership) gained(before Ownership) bool {
	switch now := o.set(); {
	case o.fields == (text{}):
		return false
	case o.at != before.at, now.Empty():
		return true
	default:
		return !now.Difference(before.set()).Empty()
	}
}

// AppliedWith reports whether nobody has applied anything else in the name of Refract
// between the two.
func (o Ownership) AppliedWith(other Ownership) bool { return o.at == other.at }

// Replicas reports whether .spec.replicas is in the set.
func (o Ownership) Replicas() bool {
	return o.set().Has(fieldpath.MakePathOrDie("spec", "replicas"))
}

// Lost returns the fields that are in o and not in now, as
// .spec.template.spec.containers[name="web"].image, sorted. Of a field and what
// is in it, the latter is returned alone.
func (o Ownership) Lost(now Ownership) []string {
	if o.fields == now.fields {
		return nil
	}
	var lost []string
	o.without(now).Leaves().Iterate(func(p fieldpath.Path) { lost = append(lost, p.String()) })
	slices.Sort(lost)
	return lost
}

func (o Ownership) without(now Ownership) *fieldpath.Set { return o.set().Difference(now.set()) }

func (o Ownership) set() *fieldpath.Set {
	s := &fieldpath.Set{}
	if o.fields == (text{}) {
		return s
	}
	if err := s.FromJSON(strings.NewReader(o.fields.String())); err != nil {
		return &fieldpath.Set{} // It was never a set: see canonical.
	}
	return s
}

// ours finds what Refract applied in the record of who manages an object's fields.
func ours(managers []metav1.ManagedFieldsEntry) Ownership {
	for i := range managers {
		e := &managers[i]
		if e.Manager == FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" && e.FieldsV1 != nil {
			o := Ownership{fields: ownerships.of(e.FieldsV1.GetRawBytes())}
			if e.Time != nil {
				o.at = e.Time.Unix()
			}
			return o
		}
	}
	return Ownership{}
}

// unsigned reports whether an object was written since the fields were applied without
// any manager's entry saying so: then it may be that Refract's own fields were written in
// its name, within the second that the time of an entry is given in. Statuses are written
// by others all the time, and are no reason if something else was written, too. Of two
// API servers, the clock of one may be a little behind.
func (o Ownership) unsigned(managers []metav1.ManagedFieldsEntry, otherThanStatus bool) bool {
	for i := range managers {
		e := &managers[i]
		if e.Manager == FieldManager && e.Operation == metav1.ManagedFieldsOperationApply || otherThanStatus && e.Subresource == "status" {
			continue
		}
		if e.Time == nil || e.Time.Unix() >= o.at-1 {
			return false
		}
	}
	return true
}

// culprit names who took fields from Refract: the manager that has one of them
// now, by itself or through a subresource as an autoscaler does; else, as a field
// that was removed has none, the last one to write the object. That is "" if it has
// left no other trace.
func culprit(lost *fieldpath.Set, managers []metav1.ManagedFieldsEntry) string {
	var owner, last *metav1.ManagedFieldsEntry
	for i := range managers {
		e := &managers[i]
		if e.Subresource == "status" || e.Manager == FieldManager || strings.HasPrefix(e.Manager, FieldManager+"-") {
			continue
		}
		if e.Subresource == "" && (last == nil || earlier(last.Time, e.Time)) {
			last = e
		}
		if (owner == nil || earlier(owner.Time, e.Time)) && touches(e, lost) {
			owner = e
		}
	}
	switch {
	case owner != nil:
		return owner.Manager
	case last != nil:
		return last.Manager
	default:
		return ""
	}
}

// earlier takes a time that is not known, as that of a change through a
// subresource may be, for an early one.
func earlier(a, b *metav1.Time) bool { return b != nil && (a == nil || a.Before(b)) }

func touches(e *metav1.ManagedFieldsEntry, fields *fieldpath.Set) bool {
	if e.FieldsV1 == nil || len(e.FieldsV1.GetRawBytes()) > mostFields {
		return false
	}
	s := &fieldpath.Set{}
	return s.FromJSON(e.FieldsV1.GetRawReader()) == nil && !s.Intersection(fields).Empty()
}

// ownerships are the sets that were met lately, by the digest of how an API server
// wrote them: all copies of a variant have the same, on every cluster.
var ownerships = ownershipCache{sets: map[[sha256.Size]byte]text{}}

type ownershipCache struct {
	mu   sync.Mutex
	sets map[[sha256.Size]byte]text
}

// knownOwnerships bounds the cache. An entry takes as much as the set: some KB.
const knownOwnerships = 2048

func (c *ownershipCache) of(raw []byte) text {
	digest := sha256.Sum256(raw)
	c.mu.Lock()
	fields, ok := c.sets[digest]
	c.mu.Unlock()
	if ok {
		return fields
	}
	fields = intern(string(canonical(raw, digest)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sets) >= knownOwnerships {
		clear(c.sets)
	}
	c.sets[digest] = fields
	return fields
}

// canonical writes a set in one way, whatever order and escapes an API server
// prefers. What cannot be read as a set, or is too long to be, is kept as its digest: it is
// equal to itself.
func canonical(raw []byte, digest [sha256.Size]byte) []byte {
	s := &fieldpath.Set{}
	if len(raw) > mostFields || s.FromJSON(bytes.NewReader(raw)) != nil {
		return hex.AppendEncode(nil, digest[:])
	}
	sorted, err := s.ToJSON()
	if err != nil {
		return hex.AppendEncode(nil, digest[:])
	}
	return sorted
}

// text is a string of which there is one in memory, however many copies have it.
type text struct{ handle unique.Handle[string] }

func intern(s string) text {
	if s == "" {
		return text{}
	}
	return text{unique.Make(s)}
}

func (t text) String() string {
	if t == (text{}) {
		return "" // A handle that was not made has no value.
	}
	return t.handle.Value()
}
