package member

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unique"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"refract.dev/tree"
)

// FieldManager is the name under which Refract applies fields.
const FieldManager = "refract"

// Ownership is a set of fields of an object, those that Refract applied and that
// nobody has changed or removed since, and when it did. Whoever changes one takes it
// over; a write under the name of Refract changes the time instead. So a copy that was
// changed has another Ownership than it was written with. Ownerships are
// comparable. The zero Ownership has no fields.
type Ownership struct {
	fields *fieldSet
	// at is when the fields were applied with other values than they had before, in
	// seconds since 1970, as the API server of the member says; 0 if it does not. An
	// apply that changes nothing does not count.
	at int64
}

// Hash identifies the set and the time: 16 hexadecimal characters, @, and the seconds
// since 1970; or "" for no fields.
func (o Ownership) Hash() string {
	if o.fields == nil {
		return ""
	}
	return o.fields.hash() + "@" + strconv.FormatInt(o.at, 10)
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
	if o.fields == nil {
		return fields == ""
	}
	return fields == o.fields.hash()
}

// gained reports whether o has a field that before had not, or the time of another apply.
// Of a set of which only the digest is kept it may have.
func (o Ownership) gained(before Ownership) bool {
	switch {
	case o.fields == nil || o == before:
		return false
	case o.at != before.at, !o.named(), !before.named():
		return true
	default:
		return !o.without(before).Empty()
	}
}

// AppliedWith reports whether nobody has applied anything else in the name of Refract
// between the two.
func (o Ownership) AppliedWith(other Ownership) bool { return o.at == other.at }

// MayHave reports whether the set may have a field of the pattern: it looks for its last key
// alone. Of a set of which only the digest is kept it says so.
func (o Ownership) MayHave(field tree.Pattern) bool {
	if o.fields == nil {
		return false
	}
	text := o.fields.json.Load()
	keys := field.Keys()
	prefix, many := strings.CutSuffix(keys[len(keys)-1], "*")
	if text == nil || many && prefix == "" {
		return true
	}
	key, err := json.Marshal("f:" + prefix)
	return err != nil || strings.Contains(*text, string(key[:len(key)-1]))
}

// Has reports whether a field of the pattern, which has no *, is in the set. Of a set of which only the digest is kept it says no.
func (o Ownership) Has(field tree.Pattern) bool {
	if !o.MayHave(field) || !o.named() {
		return false
	}
	keys := field.Keys()
	path := make(fieldpath.Path, len(keys))
	for i := range keys {
		path[i].FieldName = &keys[i]
	}
	return o.set().Has(path)
}

// LostWithin reports whether all fields that are in o and not in now are among the fields of
// the patterns. Of sets that differ and of which only digests are kept it says no.
func (o Ownership) LostWithin(now Ownership, fields []tree.Pattern) bool {
	switch {
	case o.fields == nil || o.fields == now.fields:
		return true
	case !o.named() || !now.named():
		return false
	}
	all := true
	o.without(now).Leaves().Iterate(func(p fieldpath.Path) { all = all && within(p, fields) })
	return all
}

// within reports whether a field is among those of the patterns.
func within(p fieldpath.Path, fields []tree.Pattern) bool {
	keys := keysOf(p)
	return slices.ContainsFunc(fields, func(f tree.Pattern) bool { return f.Covers(keys) })
}

// keysOf returns the segments of the JSON pointer of a field, with * for an element of a list.
func keysOf(p fieldpath.Path) []string {
	keys := make([]string, len(p))
	for i := range p {
		keys[i] = "*"
		if p[i].FieldName != nil {
			keys[i] = *p[i].FieldName
		}
	}
	return keys
}

// unnamed stands for fields that are gone from a set, or into one, of which only the
// digest is kept.
const unnamed = "fields whose names are not kept"

// Lost returns the fields that are in o and not in now, as
// .spec.template.spec.containers[name="web"].image, sorted. Of a field and what
// is in it, the latter is returned alone. If the two differ, and one of them is too long to
// be kept, it returns words that say so. Fields of the patterns are left out.
func (o Ownership) Lost(now Ownership, but ...tree.Pattern) []string {
	switch {
	case o.fields == nil || o.fields == now.fields:
		return nil
	case !o.named() || !now.named():
		return []string{unnamed}
	}
	var lost []string
	o.without(now).Leaves().Iterate(func(p fieldpath.Path) {
		if !within(p, but) {
			lost = append(lost, p.String())
		}
	})
	slices.Sort(lost)
	return lost
}

// LostPointers returns the fields that are in o and not in now as JSON pointers, with * for an element of a list: sorted, and
// each once. Fields of the patterns are left out. Of sets of which only digests are kept it returns nothing.
func (o Ownership) LostPointers(now Ownership, but ...tree.Pattern) []string {
	if o.fields == nil || o.fields == now.fields || !o.named() || !now.named() {
		return nil
	}
	var lost []string
	o.without(now).Leaves().Iterate(func(p fieldpath.Path) {
		if within(p, but) {
			return
		}
		var at tree.Pointer
		for _, key := range keysOf(p) {
			at = at.Member(key)
		}
		lost = append(lost, at.String())
	})
	slices.Sort(lost)
	return slices.Compact(lost)
}

// named reports whether it is known which fields are in the set.
func (o Ownership) named() bool { return o.fields == nil || o.fields.json.Load() != nil }

func (o Ownership) without(now Ownership) *fieldpath.Set { return o.set().Difference(now.set()) }

func (o Ownership) set() *fieldpath.Set {
	s := &fieldpath.Set{}
	if o.fields == nil {
		return s
	}
	if text := o.fields.json.Load(); text == nil || s.FromJSON(strings.NewReader(*text)) != nil {
		return &fieldpath.Set{}
	}
	return s
}

// ours finds what Refract applied in the record of who manages an object's fields. The
// account has room for it, or its digest is kept; nil for the latter.
func ours(managers []metav1.ManagedFieldsEntry, account *account) Ownership {
	for i := range managers {
		e := &managers[i]
		if e.Manager == FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" && e.FieldsV1 != nil {
			o := Ownership{fields: ownerships.of(e.FieldsV1.GetRawBytes(), account)}
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

// conflictingManager names who took fields from Refract: the manager that has one of them
// now, by itself or through a subresource as an autoscaler does; else, as a field
// that was removed has none, the last one to write the object. That is "" if it has
// left no other trace.
func conflictingManager(lost *fieldpath.Set, managers []metav1.ManagedFieldsEntry) string {
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
	if e.FieldsV1 == nil || len(e.FieldsV1.GetRawBytes()) > mostSet {
		return false
	}
	s := &fieldpath.Set{}
	return s.FromJSON(e.FieldsV1.GetRawReader()) == nil && !s.Intersection(fields).Empty()
}

// fieldSet is a set of fields. There are no two in memory that are equal, however many
// copies have it, on however many clusters: two are equal if their addresses are.
type fieldSet struct {
	sum  [sha256.Size]byte      // Of what canonical writes.
	json atomic.Pointer[string] // That, or nil if it is not kept.
}

// setBytes is what a fieldSet takes without its json.
const setBytes = 250

func (s *fieldSet) hash() string { return hex.EncodeToString(s.sum[:8]) }

// ownerships are the sets that there are.
var ownerships = newFieldSets()

// fieldSets finds the set that is in memory already. A set that nobody has any more is
// forgotten.
type fieldSets struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]weak.Pointer[fieldSet] // By their sum.
	// lately are those that were met lately, by the digest of how an API server wrote them:
	// all copies of a variant have the same. Together they have some bytes.
	lately map[[sha256.Size]byte]met
	bytes  int
}

// met is a set, and who brought it.
type met struct {
	set   *fieldSet
	by    *account
	bytes int
}

func newFieldSets() *fieldSets {
	return &fieldSets{all: map[[sha256.Size]byte]weak.Pointer[fieldSet]{}, lately: map[[sha256.Size]byte]met{}}
}

// of returns the set that an API server wrote so.
func (f *fieldSets) of(raw []byte, by *account) *fieldSet {
	digest := sha256.Sum256(raw)
	f.mu.Lock()
	known, ok := f.lately[digest]
	f.mu.Unlock()
	if ok {
		return known.set
	}
	text, readable := canonical(raw, digest)
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.one(sha256.Sum256(text), by)
	if readable && len(text) <= mostFields && s.json.Load() == nil && !f.name(s, string(text), by) {
		return s // There may be room for its names the next time.
	}
	size := 0
	if s.json.Load() != nil {
		size = len(text)
	}
	if len(f.lately) >= knownSets || f.bytes+size > mostKnown {
		clear(f.lately)
		f.bytes = 0
	}
	f.lately[digest] = met{s, by, size}
	f.bytes += size
	return s
}

// one returns the set with this sum. The lock must be held.
func (f *fieldSets) one(sum [sha256.Size]byte, by *account) *fieldSet {
	if s := f.all[sum].Value(); s != nil {
		return s
	}
	s := &fieldSet{sum: sum}
	here := weak.Make(s)
	f.all[sum] = here
	if by != nil {
		by.must(setBytes)
	}
	runtime.AddCleanup(s, func(sum [sha256.Size]byte) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.all[sum] == here { // Or another has taken its place.
			delete(f.all, sum)
		}
		if by != nil {
			by.must(-setBytes)
		}
	}, sum)
	return s
}

// name keeps what is in a set, if the account has room for it, and reports whether it
// has. The lock must be held.
func (f *fieldSets) name(s *fieldSet, text string, by *account) bool {
	if by == nil || !by.keepFields(len(text)) {
		return false
	}
	s.json.Store(&text)
	runtime.AddCleanup(s, func(bytes int) { by.keepFields(-bytes) }, len(text))
	return true
}

// forget forgets what was met lately because of a member that is gone.
func (f *fieldSets) forget(by *account) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for digest, m := range f.lately {
		if m.by == by {
			delete(f.lately, digest)
			f.bytes -= m.bytes
		}
	}
}

// canonical writes a set in one way, whatever order and escapes an API server
// prefers. What cannot be read as a set, or is too long to be, is written as its digest: it is
// equal to itself.
func canonical(raw []byte, digest [sha256.Size]byte) (text []byte, readable bool) {
	s := &fieldpath.Set{}
	if len(raw) <= mostSet && s.FromJSON(bytes.NewReader(raw)) == nil {
		if sorted, err := s.ToJSON(); err == nil {
			return sorted, true
		}
	}
	return hex.AppendEncode(nil, digest[:]), false
}

// text is a string of which there is one in memory, however many copies have it.
type text struct{ handle unique.Handle[string] }

func intern(s string) text {
	if s == "" {
		return text{}
	}
	return text{unique.Make(s)}
}

// bytes is what the text takes, if nobody else has it.
func (t text) bytes() int {
	if t == (text{}) {
		return 0
	}
	const more = 220 // To find it by.
	return more + len(t.handle.Value())
}

func (t text) String() string {
	if t == (text{}) {
		return "" // A handle that was not made has no value.
	}
	return t.handle.Value()
}
