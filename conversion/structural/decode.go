package structural

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"refract.dev/tree"
)

// Result is an object after pruning or defaulting.
type Result struct {
	// Object is the resulting object. The caller owns it.
	Object map[string]any
	// Changes are the differences between the given object and Object. A removed or added value with all its content is
	// one change. The author of the changes is the definition, which has no rules ([tree.NoRule]).
	Changes []tree.Change
	// Unknown are the paths of unknown fields, sorted, in the format of the API server's message unknown field
	// "spec.x". Defaulting leaves it empty.
	Unknown []string
}

// Prune removes everything that the API server does not keep. These are unknown fields, nulls that the schema does not
// allow and no default replaces, and unknown metadata, also in embedded resources. Prune does not check types.
//
// The error is about malformed metadata, an object of another version, or values that are not JSON.
func (v *Version) Prune(obj map[string]any) (*Result, error) {
	return v.change(obj, v.prune)
}

// Default sets the defaults of the schema in existing parents: for absent fields, and for nulls that the schema does
// not allow. It prunes nothing. Its errors are those of [Version.Prune], except those about metadata.
func (v *Version) Default(obj map[string]any) (*Result, error) {
	return v.change(obj, v.fill)
}

// Decode prunes and then defaults an object. The API server does this with each object that a client writes or that it
// reads from storage. (In an object from storage, the API server drops malformed metadata, which is an error here.) The
// errors are those of [Version.Prune].
func (v *Version) Decode(obj map[string]any) (*Result, error) {
	return v.change(obj, v.prune, v.fill)
}

// change applies the steps to a copy of obj. Each step returns the unknown fields.
func (v *Version) change(obj map[string]any, steps ...func(map[string]any) ([]string, error)) (*Result, error) {
	kind, _ := obj["kind"].(string)
	apiVersion, _ := obj["apiVersion"].(string)
	if kind != v.crd.Spec.Names.Kind || apiVersion != v.APIVersion() {
		return nil, fmt.Errorf("want kind %s of apiVersion %s, got kind %q of apiVersion %q",
			v.crd.Spec.Names.Kind, v.APIVersion(), kind, apiVersion)
	}
	copied, err := cloneObject(obj)
	if err != nil {
		return nil, err
	}
	r := &Result{Object: copied}
	for _, step := range steps {
		unknown, err := step(copied)
		if err != nil {
			return nil, err
		}
		r.Unknown = append(r.Unknown, unknown...)
	}
	slices.Sort(r.Unknown)
	r.Changes = v.compare(nil, "", obj, copied)
	return r, nil
}

// prune does the same as unstructuredSchemaCoercer.apply of the API server.
func (v *Version) prune(obj map[string]any) ([]string, error) {
	metadata, found, unknown, err := objectmeta.GetObjectMetaWithOptions(obj, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, fmt.Errorf("decoding metadata: %w", err)
	}
	pruned := pruning.PruneWithOptions(obj, v.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, v.structural)
	bad, embedded := objectmeta.CoerceWithOptions(nil, obj, v.structural, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if bad != nil {
		return nil, fmt.Errorf("decoding an embedded resource: %w", cmp.Or(malformed(nil, obj, v.structural), bad))
	}
	if found {
		if err := objectmeta.SetObjectMeta(obj, metadata); err != nil {
			return nil, fmt.Errorf("encoding metadata: %w", err)
		}
	}
	return slices.Concat(unknown, pruned, embedded), nil
}

// malformed returns the error about the first malformed part of an embedded resource, in the order of member names; nil
// if there is none. The API server returns one of several errors at random.
func malformed(at *field.Path, value any, s *schema.Structural) *field.Error {
	if s == nil {
		return nil
	}
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if err := malformedMember(at, key, value[key], s); err != nil {
				return err
			}
		}
	case []any:
		for i, element := range value {
			if err := malformed(at.Index(i), element, s.Items); err != nil {
				return err
			}
		}
	}
	return nil
}

func malformedMember(at *field.Path, key string, member any, s *schema.Structural) *field.Error {
	if s.XEmbeddedResource {
		alone := &schema.Structural{Extensions: schema.Extensions{XEmbeddedResource: true}}
		if err, _ := objectmeta.CoerceWithOptions(at, map[string]any{key: member}, alone, false, objectmeta.CoerceOptions{}); err != nil {
			return err
		}
	}
	if property, ok := s.Properties[key]; ok {
		return malformed(at.Child(key), member, &property)
	}
	if s.AdditionalProperties != nil {
		return malformed(at.Key(key), member, s.AdditionalProperties.Structural)
	}
	return nil
}

func (v *Version) fill(obj map[string]any) ([]string, error) {
	defaulting.Default(obj, v.structural)
	return nil, nil
}

// compare appends the changes between two values. The API server adds and removes only members of objects, so arrays
// have the same length before and after.
func (v *Version) compare(changes []tree.Change, path string, before, after any) []tree.Change {
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			return v.compareMembers(changes, path, b, a)
		}
	case []any:
		if a, ok := after.([]any); ok && len(a) == len(b) {
			for i := range b {
				from := len(changes)
				at := path + "/" + strconv.Itoa(i)
				changes = v.compare(changes, at, b[i], a[i])
				if len(changes) > from && changes[from].Path == at {
					changes[from].Element = true
				}
			}
			return changes
		}
	}
	if tree.Equal(before, after) {
		return changes
	}
	return append(changes, tree.Change{Path: path, Op: tree.OpReplace, Before: before, After: after, By: v.author})
}

func (v *Version) compareMembers(changes []tree.Change, path string, before, after map[string]any) []tree.Change {
	keys := slices.Collect(maps.Keys(before))
	for key := range after {
		if _, ok := before[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		b, was := before[key]
		a, is := after[key]
		at := path + "/" + tree.Escape(key)
		switch {
		case was && is:
			changes = v.compare(changes, at, b, a)
		case was:
			changes = append(changes, tree.Change{Path: at, Op: tree.OpRemove, Before: b, By: v.author})
		default:
			changes = append(changes, tree.Change{Path: at, Op: tree.OpAdd, After: a, By: v.author})
		}
	}
	return changes
}
