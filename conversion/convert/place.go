package convert

import (
	"fmt"
	"slices"
	"strings"

	"refract.dev/tree/raw"
)

// place is the location of a value: the path in keys. If there are members, the value is a group: these fields of the
// object at the path.
type place struct {
	keys    []string
	members []string
}

// parsePlace parses a place such as spec.size, spec["a.b"] or spec.{host,port}. The empty place has no keys.
func parsePlace(text string) (place, error) {
	var p place
	rest := text
	for first := true; rest != ""; first = false {
		if !first && !strings.HasPrefix(rest, "[") {
			var ok bool
			if rest, ok = strings.CutPrefix(rest, "."); !ok {
				return p, placeProblem(text)
			}
		}
		if inner, ok := strings.CutPrefix(rest, "{"); ok {
			var err error
			p.members, err = parseMembers(text, inner)
			return p, err
		}
		bracketed := strings.HasPrefix(rest, "[")
		key, tail, ok := cutKey(strings.TrimPrefix(rest, "["))
		if bracketed && ok {
			ok = strings.HasPrefix(rest, `["`)
			if tail, bracketed = strings.CutPrefix(tail, "]"); !bracketed {
				ok = false
			}
		}
		if !ok {
			return p, placeProblem(text)
		}
		p.keys = append(p.keys, key)
		rest = tail
		if strings.TrimSuffix(rest, ".") == "" && rest != "" {
			return p, placeProblem(text) // The text ends with a dot.
		}
	}
	return p, nil
}

func placeProblem(text string) error {
	switch {
	case strings.Contains(text, "[*]"):
		return fmt.Errorf(`place %q: the elements of a list are converted with Items, those of a table with Values`, text)
	case strings.ContainsAny(text, `[]{}"`):
		return fmt.Errorf(`place %q: want keys with dots between them, ["KEY"] for those with other characters, and {KEY,KEY} only at the end`, text)
	default:
		return fmt.Errorf("place %q: want keys with dots between them", text)
	}
}

// cutKey cuts the first key off a text: a quoted key, or all characters up to one with a meaning in places.
func cutKey(text string) (key, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text, `.,[]{}"`)
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], end > 0
	}
	var s raw.Scanner
	s.Reset([]byte(text))
	key = string(s.Text())
	if s.Err() != nil {
		return "", text, false
	}
	return key, text[s.Position():], true
}

// parseMembers parses the fields of a group after its opening brace.
func parseMembers(text, rest string) ([]string, error) {
	var members []string
	for {
		key, tail, ok := cutKey(strings.TrimLeft(rest, " "))
		tail = strings.TrimLeft(tail, " ")
		switch {
		case !ok:
			return nil, placeProblem(text)
		case slices.Contains(members, key):
			return nil, fmt.Errorf("place %q: duplicate key %s", text, key)
		}
		members = append(members, key)
		if tail == "}" {
			return members, nil
		}
		if rest, ok = strings.CutPrefix(tail, ","); !ok {
			return nil, placeProblem(text)
		}
	}
}

// paths returns the path of a place or, for a group, the path of each member.
func (p place) paths() [][]string {
	if p.members == nil {
		return [][]string{p.keys}
	}
	var all [][]string
	for _, m := range p.members {
		all = append(all, append(slices.Clip(p.keys), m))
	}
	return all
}

// placeIn appends a key to a place.
func placeIn(place, key string) string {
	if isPlain(key) {
		return join(place, key)
	}
	return place + "[" + string(raw.AppendString(nil, key)) + "]"
}

// isPlain reports whether a key needs no quotes in a place.
func isPlain(key string) bool {
	return key != "" && strings.IndexFunc(key, func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
}

func textOf(path []string) string {
	text := ""
	for _, key := range path {
		text = placeIn(text, key)
	}
	return text
}

// isInside reports whether outer is a beginning of path, and not the whole path.
func isInside(path, outer []string) bool {
	return len(path) > len(outer) && slices.Equal(path[:len(outer)], outer)
}
