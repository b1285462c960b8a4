package diff

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"

	"refract.dev/tree"
)

// quantities matches the fields with quantities, which have several notations: 1Gi is 1024Mi.
var quantities = regexp.MustCompile(`/(resources/(limits|requests)/[^/]+|emptyDir/sizeLimit)$`)

// respells reports whether the step only changes the notation of a quantity. For an API server, this is no change.
func (s *step) respells() bool {
	if s.Op != tree.OpReplace || !quantities.MatchString(s.Path) {
		return false
	}
	was, wasOne := quantityOf(s.Before)
	is, isOne := quantityOf(s.After)
	return wasOne && isOne && was.Cmp(is) == 0
}

func quantityOf(value any) (resource.Quantity, bool) {
	switch value.(type) {
	case string, int64, float64:
	default:
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(fmt.Sprint(value))
	return q, err == nil
}

// within reports whether the step changes only fields that match the expression. The step may add or remove a map
// around them.
func (s *step) within(places *regexp.Regexp) bool {
	return within(s.Path, s.Before, places) && within(s.Path, s.After, places)
}

func within(path string, value any, places *regexp.Regexp) bool {
	if value == nil || places.MatchString(path) {
		return true
	}
	members, ok := value.(map[string]any)
	for key, inside := range members {
		if !within(path+"/"+tree.Escape(key), inside, places) {
			return false
		}
	}
	return ok && len(members) > 0
}
