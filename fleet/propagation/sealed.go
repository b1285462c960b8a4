package propagation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/fleet/revision"
)

// isSealed reports whether reports and stored revisions must not reveal the content of an object to readers of
// Propagations.
func isSealed(key Key) bool { return member.Sealed(key.GroupResource) }

// sealing returns the key for sealed content.
func (v *revisions) sealing(ctx context.Context) ([]byte, error) {
	return v.key.ready(ctx, v.live, v.client, v.system)
}

// prepare reads the key if the report on an object needs it.
func (v *revisions) prepare(ctx context.Context, key Key) error {
	if !isSealed(key) {
		return nil
	}
	_, err := v.sealing(ctx)
	return err
}

// namesPlainly reports whether a user's annotation names a revision by a plain hash, although the Propagation contains
// no plain hash.
func (s *steering) namesPlainly(key Key, progress *refractv1alpha1.RolloutStatus) bool {
	if progress != nil && !revision.IsDigest(progress.Target.Name) || progress == nil && !isSealed(key) {
		return false
	}
	return isPlainly(s.approved) || isPlainly(s.resumed)
}

// isPlainly reports whether a name in an annotation is a plain hash.
func isPlainly(said string) bool { return said != "" && !revision.IsDigest(said) }

// nameOf returns the name of the stored part of an object.
func (v *revisions) nameOf(ctx context.Context, key Key, part *revision.Part) (string, error) {
	if !isSealed(key) {
		return part.Name, nil
	}
	sealing, err := v.sealing(ctx)
	if err != nil {
		return "", err
	}
	return revision.SealedName(sealing, part.Name), nil
}

// sealedParts returns the sealed parts of a revision, by name, with their objects.
func sealedParts(key Key, r *refractv1alpha1.Revision) (parts map[string]Key) {
	parts = map[string]Key{}
	if r.Name == rollout.Found {
		return parts
	}
	if isSealed(key) {
		parts[r.Object] = key
	}
	for i := range r.Followers {
		if f := followerKey(key, &r.Followers[i]); isSealed(f) {
			parts[r.Followers[i].Object] = f
		}
	}
	return parts
}

// current reports whether all sealed parts of the revisions have names that the present key makes.
func (v *revisions) current(key Key, all ...*refractv1alpha1.Revision) bool {
	for _, r := range all {
		for name := range sealedParts(key, r) {
			if !revision.IsSealedWith(v.key.known(), name) {
				return false
			}
		}
	}
	return true
}

// renew returns a rollout with the names that the present key makes, and stores the parts under these names. It is
// needed because earlier versions named sealed content by plain hashes, and because a user may have replaced the key.
// It returns the same pointer if no name changes. A part that is not stored, and was named with another key, keeps
// its name.
func (v *revisions) renew(ctx context.Context, key Key, s *refractv1alpha1.RolloutStatus) (*refractv1alpha1.RolloutStatus, error) {
	if v.current(key, revisionsIn(s)...) {
		return s, nil
	}
	sealing, err := v.key.make(ctx, v.live, v.client, v.system)
	if err != nil {
		return s, err
	}
	var names []string // Pairs of a former and a present name.
	for _, r := range revisionsIn(s) {
		before := len(names)
		parts := sealedParts(key, r)
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			now, err := v.rename(ctx, parts[name], name, sealing)
			if err != nil {
				return s, err
			}
			if now != name {
				names = append(names, name, now)
			}
		}
		if len(names) > before {
			names = append(names, r.Name, revision.SealedRevision(sealing, r.Name))
		}
	}
	if len(names) == 0 {
		return s, nil
	}
	text, err := json.Marshal(s) // Messages have names, too.
	if err != nil {
		return s, fmt.Errorf("encoding a rollout: %w", err)
	}
	is := &refractv1alpha1.RolloutStatus{}
	if err := json.Unmarshal([]byte(strings.NewReplacer(names...).Replace(string(text))), is); err != nil {
		return s, fmt.Errorf("decoding a rollout: %w", err)
	}
	return is, nil
}

// rename stores the part of an object under the name that the key makes, if the part still exists, and returns the
// name.
func (v *revisions) rename(ctx context.Context, key Key, name string, sealing []byte) (string, error) {
	if revision.IsSealedWith(sealing, name) {
		return name, nil
	}
	data, err := v.objectPart(ctx, key, name)
	if err != nil {
		return "", err
	}
	plain, unreadable := revision.NameOf(data)
	if !revision.IsSealed(name) && (unreadable != nil || plain != name) {
		return revision.SealedName(sealing, name), nil //nolint:nilerr // The part is gone or has other content, so it is not stored again.
	}
	if unreadable != nil {
		return name, nil //nolint:nilerr // Without its key, the plain name is unknown.
	}
	now := revision.SealedName(sealing, plain)
	return now, v.storeData(ctx, objectPlace(key, now, v.system), data, true)
}
