package suggest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// pairing is a guess that two values with different names correspond to each other.
type pairing struct {
	added, removed int // Indexes.
	score          int // The strength of the evidence. A larger score is stronger.
	entry          entry
}

// renames finds values of one object that have another name in the other version. It returns the values without a
// counterpart.
func (d *differences) renames(added, removed []oneSided) []oneSided {
	var guesses []pairing
	for i := range added {
		for j := range removed {
			score := likeness(&added[i], &removed[j])
			if score == 0 {
				continue
			}
			e, ok := d.renamed(&added[i], &removed[j])
			if !ok {
				continue
			}
			if kindOf(added[i].value) == kindOf(removed[j].value) {
				score++
			}
			guesses = append(guesses, pairing{i, j, score, e})
		}
	}
	slices.SortStableFunc(guesses, func(a, b pairing) int { return cmp.Compare(b.score, a.score) })
	usedAdded, usedRemoved := map[int]bool{}, map[int]bool{}
	for i := range guesses {
		g := &guesses[i]
		if usedAdded[g.added] || usedRemoved[g.removed] {
			continue
		}
		usedAdded[g.added], usedRemoved[g.removed] = true, true
		d.pair(g.entry, &added[g.added], &removed[g.removed], byName)
	}
	if len(added) == 1 && len(removed) == 1 && isReplaced(&added[0], &removed[0]) {
		added[0].instead, removed[0].instead = removed[0].place, added[0].place
	}
	var left []oneSided
	for i := range added {
		if !usedAdded[i] {
			left = append(left, added[i])
		}
	}
	for j := range removed {
		if !usedRemoved[j] {
			left = append(left, removed[j])
		}
	}
	return left
}

// renamed returns an entry for a renamed value. It moves the value or converts it with an operation.
func (d *differences) renamed(hub, spoke *oneSided) (entry, bool) {
	if sameShape(hub.value, spoke.value) {
		return moved(hub.place, spoke.place), true
	}
	return d.operation(hub, spoke)
}

// moved returns the entry for a value that only moves.
func moved(hub, spoke string) entry {
	return entry{FieldConversion: refractv1alpha1.FieldConversion{Hub: hub, Spoke: spoke}}
}

// pair adds an entry for two values that seem to correspond to each other. Its note names the decision of the author,
// and the entries for the other decision.
func (d *differences) pair(e entry, added, removed *oneSided, reason string) {
	same := fmt.Sprintf("decide whether %s of %s is %s of %s: a guess, %s. If not, write {hub: %s, added: %s} and {spoke: %s, removed: %s}",
		e.Hub, d.hubVersion, e.Spoke, d.spokeVersion, reason, quoted(added.place), added.fill(), quoted(removed.place), removed.fill())
	if scale, from, to := unitsOf(added, removed); scale != nil && e.moves() {
		e.Scale = scale
		e.notes = append(e.notes, fmt.Sprintf("decide whether the hub counts in %s and the spoke in %s: a guess, by their names", to, from))
	}
	e.notes = append([]string{same}, e.notes...)
	d.entries = append(d.entries, e)
}

// byName is the reason for most guesses.
const byName = "by name and type"

// replaced pairs a required value of one version with the required value that seems to replace it in the other version,
// if neither has another counterpart.
func (d *differences) replaced() {
	for i := 0; i < len(d.lonely); i++ {
		a := d.lonely[i]
		j := slices.IndexFunc(d.lonely, func(r oneSided) bool { return a.hub && !r.hub && r.place == a.instead })
		if j < 0 {
			continue
		}
		r := d.lonely[j]
		d.pair(moved(a.place, r.place), &a, &r, "as each version requires one of them, of the same type, without other differences there")
		d.lonely = slices.DeleteFunc(d.lonely, func(o oneSided) bool { return o.place == a.place && o.hub || o.place == r.place && !o.hub })
		i = -1
	}
}

// moves reports whether an entry leaves the value unchanged.
func (e *entry) moves() bool {
	return e.Map == nil && e.Cast == nil && e.Keyed == nil && e.Wrap == nil && e.ToHub == ""
}

// moves finds values that have another place in the other version. Each version must have only one value with this name
// and shape.
func (d *differences) moves() {
	var apart []oneSided
	for i := 0; i < len(d.lonely); i++ {
		if o := d.lonely[i]; d.hasMove(&o) {
			apart = append(apart, o)
			d.lonely = append(d.lonely, o.members()...)
			d.lonely = slices.Delete(d.lonely, i, i+1)
			i--
		}
	}
	var left []oneSided
	paired := make([]bool, len(d.lonely))
	for i := range d.lonely {
		a := &d.lonely[i]
		if !a.hub || paired[i] {
			continue
		}
		at := slices.IndexFunc(d.lonely, func(r oneSided) bool { return d.isMove(a, &r) })
		if at < 0 || paired[at] || d.count(func(r *oneSided) bool { return d.isMove(a, r) }) > 1 ||
			d.count(func(other *oneSided) bool { return other.hub && d.isMove(other, &d.lonely[at]) }) > 1 {
			continue
		}
		paired[i], paired[at] = true, true
		d.pair(moved(a.place, d.lonely[at].place), a, &d.lonely[at], byName)
	}
	for i := range d.lonely {
		if !paired[i] {
			left = append(left, d.lonely[i])
		}
	}
	d.lonely = left
	for _, o := range slices.Backward(apart) {
		d.rejoin(&o)
	}
}

// rejoin replaces the members of an object by the object again, if none of them has moved. Entries for single members
// could not give a required object a default.
func (d *differences) rejoin(o *oneSided) {
	members := o.members()
	isMember := func(l oneSided) bool {
		return slices.ContainsFunc(members, func(m oneSided) bool { return m.hub == l.hub && m.place == l.place })
	}
	if d.count(func(l *oneSided) bool { return isMember(*l) }) == len(members) {
		d.lonely = append(slices.DeleteFunc(d.lonely, isMember), *o)
	}
}

func (d *differences) count(is func(*oneSided) bool) int {
	n := 0
	for i := range d.lonely {
		if is(&d.lonely[i]) {
			n++
		}
	}
	return n
}

// hasMove reports whether a member of an object, at any depth, may correspond to a value that only the other version
// has.
func (d *differences) hasMove(o *oneSided) bool {
	if kindOf(o.value) != object || keepsAll(o.value) || o.value.XEmbeddedResource {
		return false
	}
	for _, m := range o.members() {
		if d.hasMove(&m) || slices.ContainsFunc(d.lonely, func(other oneSided) bool { return d.isMove(&m, &other) || d.isMove(&other, &m) }) {
			return true
		}
	}
	return false
}

// members returns the members of an object as values of their own, sorted by name.
func (o *oneSided) members() []oneSided {
	var out []oneSided
	for _, name := range slices.Sorted(maps.Keys(o.value.Properties)) {
		out = append(out, memberOf(o.value, name, o.place, o.scope, o.hub))
	}
	return out
}

// isReplaced reports whether two values with unrelated names may correspond to each other, because each version
// requires one of them.
func isReplaced(added, removed *oneSided) bool {
	return added.required && removed.required && !hasDefault(added.value) && !hasDefault(removed.value) && sameShape(added.value, removed.value)
}

// isMove reports whether a value of the hub may correspond to a value of the spoke at another place.
func (d *differences) isMove(hub, spoke *oneSided) bool {
	return hub.hub && !spoke.hub && hub.scope == spoke.scope && hub.name == spoke.name && sameShape(hub.value, spoke.value)
}

// likeness returns how similar two values are. 0 means that they have nothing in common.
func likeness(a, b *oneSided) int {
	score := 0
	if describesSame(a.value.Description, b.value.Description) {
		score += 4
	}
	first, second := words(a.name), words(b.name)
	switch scale, _, _ := unitsOf(a, b); {
	case slices.Equal(first, second), scale != nil && stem(a.name) == stem(b.name):
		score += 6
	case common(first, second)*2 >= max(len(first), len(second)):
		score += 3
	case distance(strings.Join(first, ""), strings.Join(second, ""))*3 <= min(len(a.name), len(b.name)):
		score += 2
	}
	return score
}

// describesSame reports whether most words of two descriptions are equal.
func describesSame(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	first, second := strings.Fields(strings.ToLower(a)), strings.Fields(strings.ToLower(b))
	return common(first, second)*3 >= 2*max(len(first), len(second))
}

// words splits a name such as maxSurgePods into words, and removes the s of plurals.
func words(name string) []string {
	var out []string
	start := 0
	runes := []rune(name)
	add := func(end int) {
		if word := strings.ToLower(string(runes[start:end])); word != "" {
			out = append(out, strings.TrimSuffix(word, "s"))
		}
	}
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			add(i)
			start = i + 1
		case i > start && unicode.IsUpper(r) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			add(i)
			start = i
		}
	}
	add(len(runes))
	return out
}

// common returns the number of words that two texts have in common.
func common(a, b []string) int {
	left := slices.Clone(b)
	n := 0
	for _, word := range a {
		if i := slices.Index(left, word); i >= 0 {
			left = slices.Delete(left, i, i+1)
			n++
		}
	}
	return n
}

// distance returns the number of letters that must be changed, added or removed to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			before, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, before+cost)
		}
	}
	return row[len(b)]
}

// unit is a unit at the end of field names.
type unit struct {
	of       string // The measured quantity: time or size.
	name     string
	factor   int64 // Number of the smallest units that this unit has.
	suffixes []string
}

// units are the known units. The factors are milliseconds for time, and bytes for size. The factor 1,024 for KB, MB and
// so on is a guess, too.
var units = []unit{
	{"time", "milliseconds", 1, []string{"Milliseconds", "Millis", "Ms", "MS"}},
	{"time", "seconds", 1000, []string{"Seconds", "Second", "Secs", "Sec"}},
	{"time", "minutes", 60_000, []string{"Minutes", "Minute", "Mins"}},
	{"time", "hours", 3_600_000, []string{"Hours", "Hour"}},
	{"time", "days", 86_400_000, []string{"Days", "Day"}},
	{"size", "KiB", 1 << 10, []string{"KiB", "Kib", "KB", "Kilobytes"}},
	{"size", "MiB", 1 << 20, []string{"MiB", "Mib", "MB", "Megabytes"}},
	{"size", "GiB", 1 << 30, []string{"GiB", "Gib", "GB", "Gigabytes"}},
	{"size", "TiB", 1 << 40, []string{"TiB", "Tib", "TB", "Terabytes"}},
	{"size", "bytes", 1, []string{"Bytes", "Byte"}},
}

// unitsOf returns the scale between two numbers, and their units, if their names end with different units of the same
// quantity. Otherwise the scale is nil.
func unitsOf(hub, spoke *oneSided) (scale *refractv1alpha1.ScaleConversion, from, to string) {
	if k := kindOf(hub.value); k != integer && k != number || kindOf(spoke.value) != k {
		return nil, "", ""
	}
	at, of := unitOf(hub.name), unitOf(spoke.name)
	if at == nil || of == nil || at.of != of.of || at.factor == of.factor {
		return nil, "", ""
	}
	// scale.Hub units of the hub are equal to scale.Spoke units of the spoke.
	scale = &refractv1alpha1.ScaleConversion{Hub: of.factor, Spoke: at.factor}
	divisor := gcd(scale.Hub, scale.Spoke)
	scale.Hub, scale.Spoke = scale.Hub/divisor, scale.Spoke/divisor
	return scale, of.name, at.name
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// unitOf returns the unit at the end of a name; nil if there is none.
func unitOf(name string) *unit {
	for i := range units {
		for _, suffix := range units[i].suffixes {
			if strings.HasSuffix(name, suffix) || strings.EqualFold(name, suffix) {
				return &units[i]
			}
		}
	}
	return nil
}

// stem returns a name without its unit.
func stem(name string) string {
	if u := unitOf(name); u != nil {
		for _, suffix := range u.suffixes {
			if rest, ok := strings.CutSuffix(name, suffix); ok {
				return rest
			}
		}
	}
	return ""
}
