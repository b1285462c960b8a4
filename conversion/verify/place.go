package verify

import (
	"maps"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// plain matches keys that need no quotes in a path.
var plain = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// member returns the path of a member.
func member(path, key string) string {
	switch {
	case !plain.MatchString(key):
		return path + "[" + strconv.Quote(key) + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

// element returns the path of an element.
func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// pathOf converts a list of names and indexes to a path.
func pathOf(place []any) string {
	var path string
	for _, step := range place {
		switch step := step.(type) {
		case string:
			path = member(path, step)
		case int:
			path = element(path, step)
		}
	}
	return path
}

// each is the step for each element of a list, and for each value of a table.
const each = "[*]"

// parsePlace returns the steps of a place. For a group of fields it returns a place for each field.
func parsePlace(text string) [][]string {
	if open := strings.IndexByte(text, '{'); open >= 0 && !strings.Contains(text[:open], `"`) {
		if end := strings.IndexByte(text[open:], '}'); end > 0 {
			var out [][]string
			for name := range strings.SplitSeq(text[open+1:open+end], ",") {
				out = append(out, parsePlace(text[:open]+strings.TrimSpace(name)+text[open+end+1:])...)
			}
			return out
		}
	}
	var steps []string
	for text != "" {
		var step string
		step, text = nextStep(text)
		if step != "" {
			steps = append(steps, step)
		}
	}
	return [][]string{steps}
}

// nextStep returns the first step of a place, unquoted, and the rest of the place.
func nextStep(text string) (step, rest string) {
	switch {
	case strings.HasPrefix(text, each):
		return each, text[len(each):]
	case strings.HasPrefix(text, `["`):
		if quoted, err := strconv.QuotedPrefix(text[1:]); err == nil {
			key, _ := strconv.Unquote(quoted) // Cannot fail: the text is quoted.
			return key, strings.TrimPrefix(text[1+len(quoted):], "]")
		}
	case strings.HasPrefix(text, "."):
		return "", text[1:]
	}
	if end := strings.IndexAny(text[1:], ".["); end >= 0 {
		return text[:end+1], text[end+1:]
	}
	return text, ""
}

// firstOf returns the place of the first field of a group. Other places stay unchanged.
func firstOf(place string) string {
	open := strings.IndexByte(place, '{')
	if open < 0 || strings.Contains(place[:open], `"`) {
		return place
	}
	names, rest, ok := strings.Cut(place[open+1:], "}")
	if !ok {
		return place
	}
	name, _, _ := strings.Cut(names, ",")
	return place[:open] + strings.TrimSpace(name) + rest
}

// general replaces indexes of list elements and keys of tables in a path by [*]. It returns false if the schema has no
// such place.
func general(s *schema.Structural, path string) (string, bool) {
	var out string
	for rest := path; rest != ""; {
		var step string
		if step, rest = nextStep(rest); step == "" {
			continue
		}
		inner := below(s, step)
		named := false
		if s != nil {
			_, named = s.Properties[step]
		}
		switch {
		case named:
			out = member(out, step)
		case s != nil && s.Items != nil && strings.HasPrefix(step, "["):
			out, inner = out+each, s.Items
		case inner != nil:
			out += each
		default:
			return path, false
		}
		if s = inner; s == anything {
			break
		}
	}
	return out, true
}

// without returns a value without the part at a place. gone is true if nothing remains. Objects and lists that become
// empty are removed as well. without copies each object and list that it changes.
func without(value any, place []string) (out any, gone bool) {
	if len(place) == 0 {
		return nil, true
	}
	switch value := value.(type) {
	case map[string]any:
		changed := maps.Clone(value)
		for key, inner := range value {
			if key != place[0] && place[0] != each {
				continue
			}
			if left, gone := without(inner, place[1:]); gone {
				delete(changed, key)
			} else {
				changed[key] = left
			}
		}
		return changed, len(changed) == 0
	case []any:
		if place[0] != each {
			return value, false
		}
		changed := make([]any, 0, len(value))
		for _, inner := range value {
			if left, gone := without(inner, place[1:]); !gone {
				changed = append(changed, left)
			}
		}
		return changed, len(changed) == 0
	default:
		return value, false
	}
}

// valueAt returns the value at a path of an API server. Such paths have no quotes, so keys with dots are not found.
func valueAt(value any, path string) any {
	for path != "" {
		step, rest := nextStep(path)
		path = rest
		index, isIndex := strings.CutPrefix(step, "[")
		index = strings.TrimSuffix(index, "]")
		i, err := strconv.Atoi(index)
		list, isList := value.([]any)
		switch {
		case step == "":
		case isIndex && isList && err == nil && i >= 0 && i < len(list):
			value = list[i]
		case isIndex:
			value = memberOf(value, index)
		default:
			value = memberOf(value, step)
		}
		if value == none {
			return nil
		}
	}
	return value
}
