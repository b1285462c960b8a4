package propagation

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/local"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// replicasField is the field that an autoscaler, or retain-replicas, leaves to a cluster.
var replicasField = tree.MustParsePattern("/spec/replicas")

// leftTo returns the fields that Refract does not send to an existing copy: the fields that the hub assigned, those
// that the object leaves to the members, and the replicas if they are retained. changes are the changes by overrides. A
// field that an override has written counts as requested and is sent, except the replicas, which KubeAdmiral retains in
// any case.
func leftTo(keeping *placement.Keeping, changes []tree.Change) []tree.Pattern {
	left := slices.DeleteFunc(slices.Concat(local.Fields(changes), keeping.Left), func(field tree.Pattern) bool { return overridden(field, changes) })
	if keeping.RetainReplicas && !slices.ContainsFunc(left, replicasField.Equal) {
		left = append(left, replicasField)
	}
	return left
}

// overridden reports whether an override has written a field, or something inside or around it.
func overridden(field tree.Pattern, changes []tree.Change) bool {
	return slices.ContainsFunc(changes, func(c tree.Change) bool {
		if c.By.Left != "" || c.By.Rule == tree.NoRule {
			return false
		}
		path, err := tree.ParsePattern(c.Path)
		return err == nil && (field.Covers(path.Keys()) || path.Covers(field.Keys()))
	})
}

// without returns the body of [body.forKnown] without the given fields.
func (b *body) without(fields []tree.Pattern, uid types.UID, adopted bool) ([]byte, error) {
	text := b.forKnown(uid, adopted)
	if len(fields) == 0 {
		return text, nil
	}
	var object map[string]any
	if err := utiljson.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	kept, differs, err := withoutLeft(object, fields)
	if err != nil || !differs {
		return text, err
	}
	return json.Marshal(kept)
}

// writing makes the request body for one copy.
type writing func(*body) ([]byte, error)

// bodyForKnown returns the function that makes the request body for an existing copy. Refract may still own a field
// that is left to the cluster. Such a field is sent with its value on the cluster, because an API server removes a
// field that its only owner stops sending. This takes one more request, only for such copies. Refract owns such a field
// until the cluster changes it.
func (a *applier) bodyForKnown(ctx context.Context, key Key, v *variant, have member.Copy, adopted bool, left []tree.Pattern) (writing, error) {
	more := left[len(v.left):] // Fields that are left to this cluster alone, because of an autoscaler there.
	plain := func(b *body) ([]byte, error) { return b.without(more, have.UID, adopted) }
	carriable := slices.Concat(v.carried, more)
	if !slices.ContainsFunc(carriable, have.Owned.MayHave) {
		return plain, nil
	}
	obj, err := a.member.Objects.ReadWhole(ctx, v.gvr, key.NamespacedName)
	if err != nil {
		return nil, err
	}
	return func(b *body) ([]byte, error) {
		text, err := plain(b)
		if err != nil {
			return nil, err
		}
		var object map[string]any
		if err := utiljson.Unmarshal(text, &object); err != nil {
			return nil, err
		}
		carried, carries, err := local.Carry(object, obj.Object, member.FieldManager, carriable)
		if err != nil || !carries {
			return text, err
		}
		metadata, _ := carried["metadata"].(map[string]any)
		metadata = maps.Clone(metadata)
		metadata["resourceVersion"] = obj.GetResourceVersion() // The values were read at this version.
		carried = maps.Clone(carried)
		carried["metadata"] = metadata
		return json.Marshal(carried)
	}, nil
}
