package lint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/override"
	"refract.dev/tree"
)

// failureCodes are the codes for errors of the engine. The first matching entry counts.
var failureCodes = []struct {
	fact error
	code Code
}{
	{override.ErrNoPodTemplate, NoPodTemplate},
	{override.ErrPresent, AlreadyPresent},
	{override.ErrProtected, ProtectedField},
	{override.ErrImage, InvalidImage},
	{tree.ErrIndex, IndexOutOfRange},
	{tree.ErrNotFound, PathNotFound},
	{tree.ErrType, PathWrongType},
}

func failureCode(err error) Code {
	for _, c := range failureCodes {
		if errors.Is(err, c.fact) {
			return c.code
		}
	}
	return RuleFails
}

// checkFailures finds rules that fail.
func checkFailures(overriding []*policy, out *report) {
	for it := range itemsOf(overriding) {
		it.reportFailures(out)
	}
}

func (it *item) reportFailures(out *report) {
	alike := map[string][]run{}
	var first []*failure // The first failure of each group of similar ones.
	for i := range it.failures {
		fail := &it.failures[i]
		if fail.reportImage(out) {
			it.reported = true
			continue
		}
		if alike[fail.alike()] == nil {
			first = append(first, fail)
		}
		alike[fail.alike()] = append(alike[fail.alike()], fail.run)
	}
	for _, fail := range first {
		it.reported = true
		code := failureCode(fail.err)
		finding := it.rule.policy.finding(code, it.failingField(code), "%s", fail.err.Err)
		finding.Path = fail.err.Path
		if hint := fail.advice(it, code); hint != "" {
			finding.hint("%s", hint)
		}
		out.add(finding.on(affected(alike[fail.alike()])))
	}
}

// alike returns the same text for failures with the same message and hint. For a missing path, the existing part may
// differ between kinds.
func (fail *failure) alike() string {
	code := failureCode(fail.err)
	if code == PathNotFound {
		return string(code) + fail.err.Path
	}
	return string(code)
}

// reportImage reports an image that is invalid on the hub, and returns false for other failures.
func (fail *failure) reportImage(out *report) bool {
	path := fail.err.Path
	p, err := tree.Parse(path)
	if err != nil || !errors.Is(fail.err, override.ErrImage) {
		return false
	}
	o := fail.outcome.Object
	value, err := tree.Lookup(o.Content.Object, p)
	fact, ok := strings.CutPrefix(fail.err.Err.Error(), path+" ")
	if err != nil || !ok || !strings.HasPrefix(fact, fmt.Sprintf("is %q, which", value)) {
		return false // The rule makes the image invalid.
	}
	s := subjectOf(o)
	finding := s.finding(InvalidImage, manifest.FieldOf(o.Content.Object, path), "%s", fact)
	finding.Path = path
	out.once(s.object.String()+path, finding.on(affected([]run{fail.run})))
	return true
}

// failingField returns the field of the item that a failure concerns.
func (it *item) failingField(code Code) string {
	switch spec := it.spec.(type) {
	case *corev1alpha1.JSONPatchOverrider:
		return it.field + ".path"
	case *corev1alpha1.ImageOverrider:
		if spec.ImagePath != "" && (code == PathNotFound || code == IndexOutOfRange || code == PathWrongType) {
			return it.field + ".imagePath"
		}
	}
	return it.field
}

// advice returns a hint for a failure, based on the object.
func (fail *failure) advice(it *item, code Code) string {
	switch code {
	case AlreadyPresent:
		if other := it.rule.duplicate(); other != nil {
			return fmt.Sprintf("rule %d is the same as rule %d", it.rule.index, other.index)
		}
		if _, err := tree.Lookup(fail.template(), tree.MustParse(fail.err.Path)); err != nil {
			return "it does not exist on the hub: an earlier rule adds it"
		}
		return "operator overwrite replaces the existing value"
	case PathNotFound:
		if meant := nearPath(fail.template(), fail.err.Path); meant != "" {
			return fmt.Sprintf("did you mean %s?", meant)
		}
		if hint := it.splitByKind(fail.err.Path); hint != "" {
			return hint
		}
		return it.parentMissing(fail.err.Path)
	case NoPodTemplate, PathWrongType:
		return it.splitByKind("")
	case IndexOutOfRange:
		return elements(fail.template(), fail.err.Path)
	default: // The message is sufficient.
	}
	return ""
}

// splitByKind returns a hint for an item that fails for all objects of some kinds and fits others. An object fits if
// the item does not fail, or fails only inside the path.
func (it *item) splitByKind(path string) string {
	failing, unfit := map[string]bool{}, map[string]bool{}
	for i := range it.failures {
		fail := &it.failures[i]
		switch at := fail.err.Path; {
		case path != "" && at != path && tree.Covers(path, at):
		case path == "" || at == path:
			failing[fail.outcome.ID.Kind] = true
		default:
			unfit[fail.outcome.ID.Kind] = true
		}
	}
	return it.split(failing, unfit)
}

// split suggests to split the policy by kind, if the item fits kinds that are neither failing nor unfit.
func (it *item) split(failing, unfit map[string]bool) string {
	kinds := map[string]bool{}
	for i := range it.rule.runs {
		kinds[it.rule.runs[i].outcome.ID.Kind] = true
	}
	maps.DeleteFunc(kinds, func(kind string, _ bool) bool { return failing[kind] || unfit[kind] })
	if len(kinds) == 0 || len(failing) == 0 {
		return ""
	}
	return fmt.Sprintf("the rule fits %s and not %s: write a policy for each kind",
		strings.Join(slices.Sorted(maps.Keys(kinds)), ", "), strings.Join(slices.Sorted(maps.Keys(failing)), ", "))
}

// parentMissing returns a hint for a missing parent of the item's value; empty if more than the parent is missing.
func (it *item) parentMissing(path string) string {
	spec, ok := it.spec.(*corev1alpha1.JSONPatchOverrider)
	if !ok || spec.Operator == corev1alpha1.OpRemove || around(spec.Path) != path || path == "" {
		return ""
	}
	key := lastKey(spec.Path)
	if _, err := strconv.Atoi(key); err == nil || key == "-" {
		return fmt.Sprintf("add the list itself first: path %s, value [..]", path)
	}
	return fmt.Sprintf("add the map itself first: path %s, value {..}", path)
}

// nearPath returns the path with its last segment replaced by the most similar key of the object around it; empty
// without a similar key.
func nearPath(object map[string]any, path string) string {
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 {
		return ""
	}
	around, err := tree.Lookup(object, tree.MustParse(path[:slash]))
	members, ok := around.(map[string]any)
	if err != nil || !ok {
		return ""
	}
	key := lastKey(path)
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(members)), func(k string) bool { return k == key })
	if n := nearest.To(key, others); n != "" {
		return path[:slash+1] + tree.Escape(n)
	}
	return ""
}

// elements lists the elements of an array by name, for a path to an element that does not exist.
func elements(object map[string]any, path string) string {
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 {
		return ""
	}
	around, err := tree.Lookup(object, tree.MustParse(path[:slash]))
	array, ok := around.([]any)
	if err != nil || !ok || len(array) == 0 {
		return ""
	}
	texts := make([]string, len(array))
	for i, element := range array {
		name := nameOf(element)
		if name == "" {
			return fmt.Sprintf("the last index is %d", len(array)-1)
		}
		texts[i] = fmt.Sprintf("%d is %q", i, name)
	}
	return render.Few(texts)
}
