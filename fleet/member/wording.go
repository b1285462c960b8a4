package member

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/output"
)

// wording masks the messages of a member about an object of a sealed type. It keeps only text that contains no values:
// names of fields, and the common words of API servers and webhooks, unless the object has them as values. It leaves
// out all other text, and all quoted text. So a value that is not recognized, for example in another encoding, is left
// out, too.
type wording struct {
	of     schema.GroupResource
	names  map[string]bool // Names of fields, and other names that every reader of the report knows.
	values map[string]bool // The values of the object, and each of their words.
	texts  []string        // Values of several words.
}

// leftOut replaces text that is left out.
const leftOut = "…"

// mostLeftOut is the maximum number of values of an object that are compared with a text. With more values, only the
// paths of fields remain.
const mostLeftOut = 20_000

// newWording returns the wording for the answer to a request. Sent is the object in the request, if any.
func newWording(of schema.GroupResource, sent []byte, details *metav1.StatusDetails) *wording {
	w := &wording{of: of, names: map[string]bool{}, values: map[string]bool{}}
	for _, name := range []string{of.Resource, of.Group, of.String(), "spec", "status", "metadata"} {
		w.name(name)
	}
	var object map[string]any
	if unmarshal(sent, &object) == nil {
		w.add(object, false)
	}
	if details != nil {
		for _, cause := range details.Causes[:min(len(details.Causes), mostCauses)] {
			for segment := range strings.SplitSeq(maskedPath(cause.Field), ".") {
				w.name(strings.TrimSuffix(segment, "[]"))
			}
		}
	}
	return w
}

func (w *wording) name(name string) {
	if name != "" {
		w.names[name] = true
	}
}

// add collects the names and values of a part of the object. The kind and the name of the object are not confidential.
func (w *wording) add(part any, inside bool) {
	switch part := part.(type) {
	case map[string]any:
		for key, v := range part {
			w.name(key)
			text, isText := v.(string)
			switch {
			case !inside && isText && (key == "kind" || key == "apiVersion"):
				w.name(text)
			case !inside && key == "metadata":
				meta, _ := v.(map[string]any)
				for k, v := range meta {
					if text, isText := v.(string); isText && (k == "name" || k == "namespace") {
						w.name(text)
						continue
					}
					w.add(v, true)
				}
			default:
				w.add(v, true)
			}
		}
	case []any:
		for _, v := range part {
			w.add(v, true)
		}
	case nil:
	default:
		w.value(part)
	}
}

func (w *wording) value(v any) {
	if len(w.values) > mostLeftOut {
		return
	}
	text, isText := v.(string)
	if !isText {
		encoded, err := json.Marshal(v)
		if err != nil {
			return
		}
		text = string(encoded)
	}
	text = strings.ToLower(text)
	words := strings.Fields(text)
	if len(words) < 2 {
		w.values[strings.Trim(text, punctuation)] = true
		return
	}
	w.texts = append(w.texts, strings.Join(words, " "))
	for _, word := range words {
		if word = strings.Trim(word, punctuation); !vocabulary[word] { // Common words occur in every sentence.
			w.values[word] = true
		}
	}
}

// mostCauses is the maximum number of causes of a failure that are kept.
const mostCauses = 16

// knownCauses are the types of causes in answers of API servers.
var knownCauses = []metav1.CauseType{
	metav1.CauseTypeFieldValueNotFound, metav1.CauseTypeFieldValueRequired, metav1.CauseTypeFieldValueDuplicate, metav1.CauseTypeFieldValueInvalid,
	metav1.CauseTypeFieldValueNotSupported, metav1.CauseTypeForbidden, metav1.CauseTypeTooLong, metav1.CauseTypeTooMany,
	metav1.CauseTypeInternal, metav1.CauseTypeTypeInvalid, metav1.CauseTypeUnexpectedServerResponse, metav1.CauseTypeFieldManagerConflict,
	metav1.CauseTypeResourceVersionTooLarge, corev1.NamespaceTerminatingCause,
}

// details keeps the field and the type of each cause in the details of an error.
func (w *wording) details(d *metav1.StatusDetails) *metav1.StatusDetails {
	if d == nil {
		return nil
	}
	kept := &metav1.StatusDetails{RetryAfterSeconds: d.RetryAfterSeconds}
	if d.Kind == namespaces.Resource && d.Group == namespaces.Group || d.Kind == w.of.Resource && d.Group == w.of.Group {
		kept.Kind, kept.Group = d.Kind, d.Group
	}
	for _, cause := range d.Causes[:min(len(d.Causes), mostCauses)] {
		c := metav1.StatusCause{Field: maskedPath(cause.Field), Message: w.cause(&cause)}
		if slices.Contains(knownCauses, cause.Type) {
			c.Type = cause.Type
		}
		kept.Causes = append(kept.Causes, c)
	}
	return kept
}

// Parts of messages that contain no values, in the form of API servers.
var (
	invalid   = regexp.MustCompile(`^[^"]{1,320}"[^"]*" is invalid: `)
	byWebhook = regexp.MustCompile(`^admission webhook "[a-z0-9.-]{1,253}" denied the request(?:: |$)`)
	ofWebhook = regexp.MustCompile(`^Internal error occurred: failed calling webhook "[a-z0-9.-]{1,253}": `)
	byPolicy  = regexp.MustCompile(`^[^"]{1,320}"[^"]*" is forbidden: ` +
		`(ValidatingAdmissionPolicy '[a-z0-9.-]{1,253}' with binding '[a-z0-9.-]{1,253}' denied request: )`)
	ofQuota    = regexp.MustCompile(`^[^"]{1,320}"[^"]*" is (forbidden: exceeded quota: [a-z0-9.-]{1,253}, requested: )`)
	byManager  = regexp.MustCompile(`^conflict with "[A-Za-z0-9./_-]{1,128}"`)
	supported  = regexp.MustCompile(`^Unsupported value: "(?:[^"\\]|\\.)*": (supported values: "[^"\\]*"(?:, "[^"\\]*")*)$`)
	path       = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]{0,62}(?:\.[A-Za-z_$][A-Za-z0-9_$-]{0,62}|\[[^\]]*\])*$`)
	bracketed  = regexp.MustCompile(`\[[^\]]*\]`)
	plainIndex = regexp.MustCompile(`^\[[0-9]{1,6}\]$`)
	digits     = regexp.MustCompile(`^-?[0-9][0-9.]*(?:e[+-]?[0-9]+)?$`)
)

// message returns the masked message, with the field and the kind of each fault.
func (w *wording) message(said *metav1.Status) string {
	text := output.Cut(said.Message, mostMessage)
	if verb := knownDenial(text); verb != "" {
		return fmt.Sprintf(`the request is forbidden: User %q cannot %s resource %q in API group %q`, unnamedCause, verb, w.of.Resource, w.of.Group)
	}
	if quota := ofQuota.FindStringSubmatch(text); quota != nil {
		for _, counted := range []string{w.of.Resource + "=1", "count/" + w.of.String() + "=1"} {
			if strings.Contains(text, quota[1]+counted+", used: ") {
				return fmt.Sprintf("the request is %s%s, used: %s", quota[1], counted, unnamedCause)
			}
		}
	}
	if denied := byPolicy.FindStringSubmatch(text); denied != nil {
		return fmt.Sprintf("%s is forbidden: %s%s", w.of, denied[1], w.told(strings.TrimPrefix(text, denied[0])))
	}
	for _, known := range []*regexp.Regexp{byWebhook, ofWebhook} {
		if prefix := known.FindString(text); prefix != "" {
			return prefix + w.told(text[len(prefix):])
		}
	}
	if words := ofStorage(text); words != "" {
		return words
	}
	if invalid.MatchString(text) && said.Details != nil && len(said.Details.Causes) > 0 {
		var faults []string
		for _, cause := range said.Details.Causes[:min(len(said.Details.Causes), mostCauses)] {
			faults = append(faults, strings.TrimPrefix(maskedPath(cause.Field)+": "+w.cause(&cause), ": "))
		}
		return output.Cut(fmt.Sprintf("%s is invalid: %s", w.of, strings.Join(faults, ", ")), mostMessage)
	}
	return w.told(text)
}

// cause returns the masked message about one field.
func (w *wording) cause(c *metav1.StatusCause) string {
	text := output.Cut(c.Message, mostMessage)
	if by := byManager.FindString(text); by != "" && c.Type == metav1.CauseTypeFieldManagerConflict {
		return by
	}
	if values := supported.FindStringSubmatch(text); values != nil && c.Type == metav1.CauseTypeFieldValueNotSupported {
		return fmt.Sprintf("Unsupported value: %s: %s", leftOut, values[1]) // These values come from the schema.
	}
	return w.told(text)
}

// maskedPath returns the path of a field without the keys of lists; "" if the text is no path.
func maskedPath(field string) string {
	if !path.MatchString(field) {
		return ""
	}
	return bracketed.ReplaceAllStringFunc(field, func(index string) string {
		if plainIndex.MatchString(index) {
			return index
		}
		return "[]"
	})
}

// maskedReadiness masks the reason why a copy is not ready, because it may come from the status.
func maskedReadiness(of schema.GroupResource, message string) string {
	switch {
	case message == "" || !Sealed(of) || message == isGoing:
		return message
	case isSecret(of):
		return notShown
	default:
		return newWording(of, nil, nil).told(message)
	}
}

// punctuation are the characters that may surround a word.
const punctuation = ".,;:!?()[]{}"

// told returns a text without the words that may be values of fields of an object.
func (w *wording) told(text string) string {
	text = strings.Join(strings.Fields(unquoted(text)), " ")
	for lower := strings.ToLower(text); ; lower = strings.ToLower(text) {
		at := slices.IndexFunc(w.texts, func(value string) bool { return strings.Contains(lower, value) })
		if at < 0 {
			break
		}
		text = strings.ReplaceAll(lower, w.texts[at], leftOut)
	}
	var kept []string
	for word := range strings.FieldsSeq(text) {
		told := w.word(word, kept)
		if told == leftOut && len(kept) > 0 && strings.HasPrefix(kept[len(kept)-1], leftOut) {
			continue
		}
		kept = append(kept, told)
	}
	return strings.Join(kept, " ")
}

// unquoted leaves out quoted text, and everything after an opening quote without an end.
func unquoted(text string) string {
	var b strings.Builder
	var quote rune
	escaped, before := false, ' '
	for _, r := range text {
		switch {
		case quote != 0:
			if r == quote && !escaped {
				quote = 0
			}
			escaped = r == '\\' && !escaped
		case r == '"' || r == '`' || r == '\'' && !unicode.IsLetter(before):
			quote = r
			b.WriteString(leftOut)
		default:
			b.WriteRune(r)
		}
		before = r
	}
	return b.String()
}

// word returns a word with its punctuation, or [leftOut] if the word must not be shown. The result depends on the words
// before it.
func (w *wording) word(word string, before []string) string {
	core := strings.Trim(word, punctuation)
	if core == "" {
		return leftOut
	}
	around := strings.SplitN(word, core, 2)
	if strings.Contains(core, "[") && !strings.Contains(core, "]") {
		core, around[1] = core+"]", strings.TrimPrefix(around[1], "]")
	}
	return strings.TrimLeft(around[0], ".") + w.core(core, before) + around[1]
}

// bounds are the words before a number that comes from a schema.
var bounds = []string{"than", "to", "least", "most", "of"}

func (w *wording) core(word string, before []string) string {
	lower := strings.ToLower(word)
	switch {
	case w.values[lower], len(w.values) > mostLeftOut:
		return leftOut
	case w.names[word], vocabulary[lower], strings.Trim(word, "<>=!&|+-*/%") == "":
		return word
	case digits.MatchString(word) && len(w.values) > 0 && len(before) > 0 && slices.Contains(bounds, before[len(before)-1]):
		return word
	}
	known := maskedPath(word)
	for segment := range strings.SplitSeq(known, ".") {
		if name := bracketed.ReplaceAllString(segment, ""); !w.names[name] && name != "self" {
			return leftOut
		}
	}
	return known
}
