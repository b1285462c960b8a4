package schema

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// typeWords are the names of types in sentences.
var typeWords = map[string]string{
	"object":    "an object",
	"array":     "an array",
	"string":    "a string",
	"boolean":   "a boolean",
	"integer":   "an integer",
	"number":    "a number",
	intOrString: "an integer or a string",
	quantity:    "a quantity like 500m, 1.5 or 2Gi",
}

// wants describes the expected value, or returns the empty string if the value has the right type. The value must not
// be null.
func (s *shape) wants(value any) string {
	ok := true
	switch s.Type {
	case "object":
		_, ok = value.(map[string]any)
	case "array":
		_, ok = value.([]any)
	case "string":
		_, ok = value.(string)
	case "boolean":
		_, ok = value.(bool)
	case "number":
		_, whole := value.(int64)
		_, fraction := value.(float64)
		ok = whole || fraction
	case "integer":
		return wantsInteger(value, s.Format == "int32", typeWords["integer"])
	case intOrString:
		if _, isString := value.(string); !isString {
			return wantsInteger(value, s.typed, typeWords[intOrString])
		}
	case quantity:
		ok = isQuantity(value)
	}
	if ok {
		return ""
	}
	return typeWords[s.Type]
}

func wantsInteger(value any, small bool, words string) string {
	n, ok := integer(value)
	f, _ := value.(float64)
	switch {
	case !ok && math.Abs(f) >= math.MaxInt64:
		return fmt.Sprintf("%s from %d to %d", words, math.MinInt64, math.MaxInt64)
	case !ok:
		return words
	case small && (n < math.MinInt32 || n > math.MaxInt32):
		return fmt.Sprintf("%s from %d to %d", words, math.MinInt32, math.MaxInt32)
	default:
		return ""
	}
}

func isQuantity(value any) bool {
	text, err := json.Marshal(value)
	return err == nil && new(resource.Quantity).UnmarshalJSON(text) == nil
}

// formatWords are the names of formats in sentences, for formats with a better name than their own.
var formatWords = map[string]string{
	"byte":       "base64",
	"date-time":  "a time like 2006-01-02T15:04:05Z",
	"micro-time": "a time like 2006-01-02T15:04:05.000000Z",
	"date":       "a date like 2006-01-02",
	"duration":   "a duration like 1h30m",
	"uri":        "a URI",
	"email":      "an email address",
	"hostname":   "a host name",
	"ipv4":       "an IPv4 address",
	"ipv6":       "an IPv6 address",
	"cidr":       "an address range like 10.0.0.0/8",
	"mac":        "a MAC address",
	"uuid":       "a UUID",
}

func (c *checker) checkFormat(text string, s *shape) {
	if s.Format == "" || s.Type != "string" && s.Type != anything || hasFormat(text, s) {
		return
	}
	want, ok := formatWords[s.Format]
	if !ok {
		want = "the format " + s.Format
	}
	hint := ""
	if c.secret && len(c.path) == 2 && c.path[0] == "data" {
		hint = "stringData takes plain text"
	}
	c.report(fmt.Sprintf("is %s, want %s", c.show(text), want), hint)
}

// hasFormat reports whether a text has the format of its shape. Formats that an API server does not know are not
// checked.
func hasFormat(text string, s *shape) bool {
	if !s.typed {
		return !strfmt.Default.ContainsName(s.Format) || strfmt.Default.Validates(s.Format, text)
	}
	switch s.Format {
	case "byte":
		_, err := base64.StdEncoding.DecodeString(text)
		return err == nil
	case "date-time":
		_, err := time.Parse(time.RFC3339, text)
		return err == nil
	case "micro-time":
		_, err := time.Parse(metav1.RFC3339Micro, text)
		return err == nil
	default:
		return true
	}
}
