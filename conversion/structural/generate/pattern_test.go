package generate

import (
	"regexp"
	"testing"
)

func TestMatching(t *testing.T) {
	more := []string{
		`^a{3}b{2,}c?$`, `^[^a-z]$`, `^(?:x|y)+z*$`, `\bword\b`, `^\d{4}-\d{2}-\d{2}$`, `^[[:alpha:]]+$`, `^\S+$`, `^$`, `.`, `[\x{4e00}-\x{9fff}]{2}`,
	}
	for _, pattern := range append(more, patterns...) {
		t.Run(pattern, func(t *testing.T) {
			wanted := regexp.MustCompile(pattern)
			texts := map[string]bool{}
			for seed := range uint64(100) {
				text := choices{source(seed)}.matching(pattern)
				if !wanted.MatchString(text) {
					t.Fatalf("seed %d: %q does not match", seed, text)
				}
				texts[text] = true
			}
			t.Logf("%d different texts", len(texts))
		})
	}
}

func TestMatchingWhatIsNoExpression(t *testing.T) {
	if got := (choices{source(1)}).matching("(["); got != "" {
		t.Errorf("matching() of no expression = %q, want nothing", got)
	}
}
