package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"refract.dev/tree/raw"
)

// place is the location of a value in an object: a path of keys and [*].
type place struct {
	steps []step
	// group are the fields that form one value together, in the object at steps; nil for a single value.
	group []string
}

// step is a key of an object, or [*] for each element of a list or table.
type step struct {
	key  string
	each bool
}

var each = step{each: true}

// parsePlace parses a place such as spec.containers[*].image, spec["a.b"] or spec.{host,port}.
func parsePlace(text string) (place, error) {
	if !utf8.ValidString(text) {
		return place{}, fmt.Errorf("%q is not UTF-8", text)
	}
	p := &placeParser{text: text, rest: text}
	for p.rest != "" && p.err == nil && p.place.group == nil {
		p.next()
	}
	switch {
	case p.err != nil:
	case len(p.place.steps) == 0:
		p.err = errors.New("want keys with dots between them, such as spec.size")
	case p.rest != "":
		p.fail("want nothing after {...}")
	}
	return p.place, p.err
}

type placeParser struct {
	text, rest string
	place      place
	err        error
}

func (p *placeParser) fail(want string) {
	p.err = fmt.Errorf("%q, column %d: %s", p.text, len(p.text)-len(p.rest)+1, want)
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+`)

func (p *placeParser) next() {
	first := len(p.place.steps) == 0
	switch {
	case strings.HasPrefix(p.rest, "[*]"):
		if first {
			p.fail("want a key before [*]")
			return
		}
		p.rest = p.rest[len("[*]"):]
		p.place.steps = append(p.place.steps, each)
		return
	case strings.HasPrefix(p.rest, `["`):
		p.rest = p.rest[1:]
		key := p.quoted()
		if p.err == nil && !p.take("]") {
			p.fail("want ] after the quoted key")
		}
		p.place.steps = append(p.place.steps, step{key: key})
		return
	case !first && !p.take("."):
		p.fail(`want a dot, [*] or ["..."]`)
		return
	}
	if !first && p.take("{") {
		p.members()
		return
	}
	if key := p.plain(); key != "" {
		p.place.steps = append(p.place.steps, step{key: key})
		return
	}
	p.fail(`want a key of letters, digits, - and _; others are quoted, as in spec["a.b"]`)
}

// members parses a group after its opening brace.
func (p *placeParser) members() {
	for p.err == nil {
		var key string
		if strings.HasPrefix(p.rest, `"`) {
			key = p.quoted()
		} else {
			key = p.plain()
		}
		switch {
		case p.err != nil:
			return
		case key == "":
			p.fail("want the name of a field")
			return
		case slices.Contains(p.place.group, key):
			p.fail(fmt.Sprintf("duplicate field %q", key))
			return
		}
		p.place.group = append(p.place.group, key)
		if p.take("}") {
			return
		}
		if !p.take(",") {
			p.fail("want a comma or }")
		}
	}
}

func (p *placeParser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return ok
}

func (p *placeParser) plain() string {
	key := plainKey.FindString(p.rest)
	p.rest = p.rest[len(key):]
	return key
}

// quoted parses a JSON string.
func (p *placeParser) quoted() string {
	end := 1
	for end < len(p.rest) && p.rest[end] != '"' {
		if p.rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(p.rest) {
		p.fail("the quoted key has no end quote")
		return ""
	}
	key, err := raw.String([]byte(p.rest[:end+1]))
	if err != nil || key == "" {
		p.fail("want a quoted key that is a JSON string and not empty")
		return ""
	}
	p.rest = p.rest[end+1:]
	return key
}

// String returns the place as written in a policy.
func (p place) String() string {
	var b strings.Builder
	for _, s := range p.steps {
		if s.each {
			b.WriteString("[*]")
			continue
		}
		b.WriteString(keyText(s.key, b.Len() == 0))
	}
	if p.group != nil {
		names := make([]string, len(p.group))
		for i, name := range p.group {
			names[i] = name
			if plainKey.FindString(name) != name {
				names[i] = string(raw.AppendString(nil, name))
			}
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString("{" + strings.Join(names, ",") + "}")
	}
	return b.String()
}

// keyText returns the text of a key. first is true if no key precedes it.
func keyText(key string, first bool) string {
	switch {
	case plainKey.FindString(key) != key || key == "":
		return "[" + string(raw.AppendString(nil, key)) + "]"
	case first:
		return key
	default:
		return "." + key
	}
}

// member returns the place of a field of the object at p.
func (p place) member(key string) place {
	return place{steps: append(slices.Clip(p.steps), step{key: key})}
}

// equal reports whether two places are equal.
func (p place) equal(o place) bool {
	return slices.Equal(p.steps, o.steps) && slices.Equal(p.group, o.group) && (p.group == nil) == (o.group == nil)
}

// elements returns the place of the elements of the list or table at p.
func (p place) elements() place {
	return place{steps: append(slices.Clip(p.steps), each)}
}

// join returns the place inner, which is relative to p, as a place relative to the object.
func (p place) join(inner place) place {
	return place{steps: append(slices.Clip(p.steps), inner.steps...), group: inner.group}
}

// members returns the places of the single values of a group. For other places, it returns the place itself.
func (p place) members() []place {
	if p.group == nil {
		return []place{p}
	}
	all := make([]place, len(p.group))
	for i, key := range p.group {
		all[i] = place{steps: p.steps}.member(key)
	}
	return all
}

// scopes returns the number of [*] in the place.
func (p place) scopes() int {
	n := 0
	for _, s := range p.steps {
		if s.each {
			n++
		}
	}
	return n
}

// cut splits a place at its first [*]. Neither part contains this [*].
func (p place) cut() (head, rest place, found bool) {
	i := slices.Index(p.steps, each)
	if i < 0 {
		return p, place{}, false
	}
	return place{steps: p.steps[:i:i]}, place{steps: p.steps[i+1:], group: p.group}, true
}

// parsePath parses the path of a value in an object. Unlike in a place, elements may have an index such as [2], which
// becomes [*].
func parsePath(text string) (place, error) {
	return parsePlace(indexed.ReplaceAllString(text, "[*]"))
}

var indexed = regexp.MustCompile(`\[\d+\]`)

// matches reports whether one of the two places contains the other or equals it. [*] matches every key and element.
func (p place) matches(path place) bool {
	n := min(len(p.steps), len(path.steps))
	for i := range n {
		if a, b := p.steps[i], path.steps[i]; !a.each && !b.each && a.key != b.key {
			return false
		}
	}
	return true
}
