package override

import (
	"errors"
	"fmt"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// ErrImage is wrapped by the error for a text that is not an image reference, or is a different reference than
// intended.
var ErrImage = errors.New("is not a valid image reference")

// image is a parsed reference: [registry/]repository[:tag][@digest].
type image struct {
	registry, repository, tag, digest string
}

func (i *image) component(c corev1alpha1.ImageComponent) *string {
	switch c {
	case corev1alpha1.ImageRegistry:
		return &i.registry
	case corev1alpha1.ImageRepository:
		return &i.repository
	case corev1alpha1.ImageTag:
		return &i.tag
	case corev1alpha1.ImageDigest:
		return &i.digest
	default:
		return nil
	}
}

// String returns the reference.
func (i *image) String() string {
	var registry, tag, digest string
	if i.registry != "" {
		registry = "/"
	}
	if i.tag != "" {
		tag = ":"
	}
	if i.digest != "" {
		digest = "@"
	}
	return i.registry + registry + i.repository + tag + i.tag + digest + i.digest
}

// Reasons why a text is not an image reference.
const (
	whyEmpty  = "it is empty"
	whyName   = "the name must be segments parted by / of lower-case letters and digits, joined by ., _, __ or dashes, and at most 255 long"
	whyTag    = "the tag must be at most 128 letters, digits, _, . and -, and not begin with . or -"
	whyDigest = "the digest must be sha256:, sha384: or sha512: and the matching number of lower-case hexadecimal digits"
)

// parseImage parses an image reference by the grammar of https://pkg.go.dev/github.com/distribution/reference; a fuzz
// test compares the results. As in Docker, the first segment of the name is a registry only if it contains a dot or a
// colon or is localhost. No defaults are added.
func parseImage(s string) (image, error) {
	var i image
	name, digest, hasDigest := strings.Cut(s, "@")
	tag, hasTag := "", false
	slash := strings.LastIndexByte(name, '/')
	if colon := strings.IndexByte(name[slash+1:], ':'); colon >= 0 {
		name, tag, hasTag = name[:slash+1+colon], name[slash+1+colon+1:], true
	}
	switch {
	case s == "":
		return i, fmt.Errorf("%w: %s", ErrImage, whyEmpty)
	case hasDigest && !isDigest(digest):
		return i, fmt.Errorf("%w: %s", ErrImage, whyDigest)
	case hasTag && !isTag(tag):
		return i, fmt.Errorf("%w: %s", ErrImage, whyTag)
	case !isName(name):
		return i, fmt.Errorf("%w: %s", ErrImage, whyName)
	}
	i = image{repository: name, tag: tag, digest: digest}
	if first, rest, ok := strings.Cut(name, "/"); ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		i.registry, i.repository = first, rest
	}
	return i, nil
}

// The grammar follows, with one function for each production.

const maxPath = 255

// isName implements [domain "/"] path.
func isName(s string) bool {
	if first, rest, ok := strings.Cut(s, "/"); ok && isDomain(first) {
		s = rest
	}
	return len(s) <= maxPath && isPath(s)
}

// isDomain implements (domain-name | "[" IPv6-address "]") [":" port].
func isDomain(s string) bool {
	host := s
	if colon := strings.LastIndexByte(s, ':'); colon > strings.LastIndexByte(s, ']') {
		if !all(s[colon+1:], isDigit) {
			return false
		}
		host = s[:colon]
	}
	if address, ok := strings.CutPrefix(host, "["); ok {
		address, ok = strings.CutSuffix(address, "]")
		return ok && all(address, func(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' || c == ':' })
	}
	for label := range strings.SplitSeq(host, ".") {
		if !all(label, func(c byte) bool { return isAlphanumeric(c) || c == '-' }) || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	return true
}

// isPath implements component ["/" component]*.
func isPath(s string) bool {
	for component := range strings.SplitSeq(s, "/") {
		if !isPathComponent(component) {
			return false
		}
	}
	return true
}

// isPathComponent accepts lower-case letters and digits, with a separator ".", "_", "__" or any number of "-" between
// two of them.
func isPathComponent(s string) bool {
	separator := -1 // Start of the current separator; -1 outside of separators.
	for i := range len(s) {
		c := s[i]
		switch {
		case isDigit(c) || 'a' <= c && c <= 'z':
			separator = -1
		case i == 0:
			return false
		case separator < 0 && (c == '.' || c == '_' || c == '-'):
			separator = i
		case c == '_' && s[separator] == '_' && i == separator+1:
		case c == '-' && s[separator] == '-':
		default:
			return false
		}
	}
	return s != "" && separator < 0
}

// isTag accepts a letter, digit or "_", followed by up to 127 letters, digits, "_", "." and "-".
func isTag(s string) bool {
	return all(s, func(c byte) bool { return isAlphanumeric(c) || c == '_' || c == '.' || c == '-' }) &&
		len(s) <= 128 && s[0] != '.' && s[0] != '-'
}

// isDigest accepts the three algorithms that can be verified, with their full length.
func isDigest(s string) bool {
	algorithm, hex, _ := strings.Cut(s, ":")
	want := 0
	switch algorithm {
	case "sha256":
		want = 64
	case "sha384":
		want = 96
	case "sha512":
		want = 128
	}
	return len(hex) == want && all(hex, func(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' })
}

// all reports whether s is not empty and each of its bytes is wanted.
func all(s string, wanted func(byte) bool) bool {
	for i := range len(s) {
		if !wanted(s[i]) {
			return false
		}
	}
	return s != ""
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isAlphanumeric(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' }
