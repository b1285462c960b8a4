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

// Ownership has the fields of an object that Refract applied and that no other manager has changed or removed since. It
// also has the time of the apply. A manager that changes a field takes over its ownership. By contrast, a write under
// the name of Refract changes the time. So each change of these fields changes the Ownership. Ownerships are
// comparable. The zero Ownership has no fields.
type Ownership struct {
	fields *fieldSet
	// at is the time of the last apply that changed values, in seconds since 1970, by the clock of the member's API
	// server; 0 if it is not known.
	at int64
}

// Hash identifies the set and the time: 16 hexadecimal characters, @, and the seconds since 1970; or "" for no fields.
func (o Ownership) Hash() string {
	if o.fields == nil {
		return ""
	}
	return o.fields.hash() + "@" + strconv.FormatInt(o.at, 10)
}

// Is reports whether o has this hash. A hash without a time comes from an earlier version of Refract, and is compared
// with the fields alone.
func (o Ownership) Is(hash string) bool {
	if strings.Contains(hash, "@") {
		return hash == o.Hash()
	}
	return o.HasFieldsOf(hash)
}

// HasFieldsOf reports whether the fields of o have this hash. The time in the hash does not matter.
func (o Ownership) HasFieldsOf(hash string) bool {
	fields, _, _ := strings.Cut(hash, "@")
	if o.fields == nil {
		return fields == ""
	}
	return fields == o.fields.hash()
}

// gained reports whether o has a field that the earlier Ownership lacks, or another time. If only the digest of a set
// is kept and the result is not certain, gained returns true.
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

// AppliedWith reports whether o and other come from the same apply under the name of Refract.
func (o Ownership) AppliedWith(other Ownership) bool { return o.at == other.at }

// MayHave reports whether the set may have a field of the pattern. It searches only for the last key of the pattern. It
// returns true if only the digest of the set is kept.
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

// Has reports whether the set has a field of the pattern, which must not have a *. It returns false if only the digest
// of the set is kept.
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

// LostWithin reports whether every field that o has and now lacks matches one of the patterns. If the sets differ and
// only the digest of one is kept, it returns false.
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

// within reports whether a field matches one of the patterns.
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

// unnamed stands for the difference of two sets if only the digest of one is kept.
const unnamed = "fields whose names are not kept"

// Lost returns the fields that o has and now lacks, sorted, in the form
// .spec.template.spec.containers[name="web"].image. Fields that match the patterns are left out. If a field and its
// inner fields are lost, only the inner fields are returned. If the sets differ and only the digest of one is kept,
// Lost returns [unnamed].
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

// LostPointers returns the fields that o has and now lacks as JSON pointers, with * for an element of a list, sorted
// and without duplicates. Fields that match the patterns are left out. If only the digest of a set is kept,
// LostPointers returns nothing.
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

// named reports whether the fields of the set are kept, and not only a digest.
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

// ours returns the fields that Refract applied, according to the managedFields of an object. If the account is nil or
// has no room for the set, only the digest is kept.
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

// unsigned is for an object that was written after the apply in o. It reports whether managedFields have no entry of
// another manager since the apply. Then another client may have changed Refract's fields under the name of Refract,
// within the same second: the times of entries have a precision of a second. If otherThanStatus is set, entries for the
// subresource status do not count, because controllers write the status all the time. The comparison of times allows
// for small differences between the clocks of API servers.
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

// conflictingManager returns the manager that took fields from Refract. This is the manager that now owns one of the
// fields, for example an autoscaler that writes through a subresource. If no manager owns them, for example because
// they were removed, it is the last writer of the object. The result is "" if managedFields have no entry of that
// writer.
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

// earlier compares times. An unknown time counts as the earliest, for example the time of a change through a
// subresource.
func earlier(a, b *metav1.Time) bool { return b != nil && (a == nil || a.Before(b)) }

func touches(e *metav1.ManagedFieldsEntry, fields *fieldpath.Set) bool {
	if e.FieldsV1 == nil || len(e.FieldsV1.GetRawBytes()) > mostSet {
		return false
	}
	s := &fieldpath.Set{}
	return s.FromJSON(e.FieldsV1.GetRawReader()) == nil && !s.Intersection(fields).Empty()
}

// fieldSet is a set of fields. Equal sets of all copies and clusters share one object in memory, so two sets are equal
// if their addresses are equal.
type fieldSet struct {
	sum  [sha256.Size]byte      // The digest of the result of canonical.
	json atomic.Pointer[string] // The result of canonical, or nil if it is not kept.
}

// setBytes is the size of a fieldSet without its json.
const setBytes = 250

func (s *fieldSet) hash() string { return hex.EncodeToString(s.sum[:8]) }

// ownerships has all sets of owned fields in this process.
var ownerships = newFieldSets()

// fieldSets finds sets that are already in memory. A set without references is forgotten.
type fieldSets struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]weak.Pointer[fieldSet] // By their sum.
	// lately caches recent sets by the digest of the text from an API server: all copies of a variant have the same
	// text. Bytes is the total size of these sets.
	lately map[[sha256.Size]byte]met
	bytes  int
}

// met is a cached set, with the account of the member that had it first.
type met struct {
	set   *fieldSet
	by    *account
	bytes int
}

func newFieldSets() *fieldSets {
	return &fieldSets{all: map[[sha256.Size]byte]weak.Pointer[fieldSet]{}, lately: map[[sha256.Size]byte]met{}}
}

// of returns the set for a text from an API server.
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
		return s // Not cached: the account may have room for the names next time.
	}
	size := setBytes
	if s.json.Load() != nil {
		size += len(text)
	}
	if f.bytes+size > mostKnown {
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
		if f.all[sum] == here { // Another set may have replaced it.
			delete(f.all, sum)
		}
		if by != nil {
			by.must(-setBytes)
		}
	}, sum)
	return s
}

// name keeps the fields of a set if the account has room, and reports whether it has room. The lock must be held.
func (f *fieldSets) name(s *fieldSet, text string, by *account) bool {
	if by == nil || !by.keepFields(len(text)) {
		return false
	}
	s.json.Store(&text)
	runtime.AddCleanup(s, func(bytes int) { by.keepFields(-bytes) }, len(text))
	return true
}

// forget removes the cached sets of a member that is gone.
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

// canonical writes a set in a form that does not depend on the order and the escapes of the API server. For a set that
// is unreadable or too long, it returns a digest of the text.
func canonical(raw []byte, digest [sha256.Size]byte) (text []byte, readable bool) {
	s := &fieldpath.Set{}
	if len(raw) <= mostSet && s.FromJSON(bytes.NewReader(raw)) == nil {
		if sorted, err := s.ToJSON(); err == nil {
			return sorted, true
		}
	}
	return hex.AppendEncode(nil, digest[:]), false
}

// text is a string with one instance in memory for all copies.
type text struct{ handle unique.Handle[string] }

func intern(s string) text {
	if s == "" {
		return text{}
	}
	return text{unique.Make(s)}
}

// bytes returns the size of the text, as if no other copy shared it.
func (t text) bytes() int {
	if t == (text{}) {
		return 0
	}
	const more = 220 // For its entry in the table of texts.
	return more + len(t.handle.Value())
}

func (t text) String() string {
	if t == (text{}) {
		return "" // The zero handle has no value.
	}
	return t.handle.Value()
}
