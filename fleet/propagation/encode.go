package propagation

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/local"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// maxBody is the maximum size of the JSON of a copy, in bytes. An API server reads 3 MiB, and stores half of that.
const maxBody = 3 << 20

// content is the applied content of a copy. All clusters with the same variant share it.
type content struct {
	gvr  schema.GroupVersionResource
	hash string
	// left are the fields that Refract does not send to an existing copy: see [leftTo].
	left []tree.Pattern
	// carried are the fields that an existing copy keeps if Refract owns them: see [applier.bodyForKnown].
	carried []tree.Pattern
	// off is whether the object asks for zero replicas.
	off bool
	// expires is whether the cluster removes the copy by itself: a Job with ttlSecondsAfterFinished.
	expires bool
	// size is the size of the body, in bytes.
	size int
	// body is nil while no cluster needs it, and if it exceeds the bounds on memory: then it is rendered again, see
	// [renderer.bodyOf].
	body atomic.Pointer[body]
	// covered are the managed fields of a copy that was found to have all fields of the body.
	covered atomic.Pointer[member.Ownership]
}

// body is the JSON of a copy: one for a new copy, and one for an existing copy. Both are equal unless fields are left
// to the cluster.
type body struct{ created, kept pieces }

// pieces are the JSON of a copy in two pieces: head is the metadata without its opening brace, and rest are the other
// top-level fields without the opening brace. A request puts the fields that describe the existing copy before head.
type pieces struct{ head, rest []byte }

// hashLength is the length of a content hash: 128 bits of SHA-256, in hexadecimal.
const hashLength = 32

// unhashed is the placeholder of the hash.
var unhashed = bytes.Repeat([]byte{'0'}, hashLength)

// encode adds the marks of a copy to a rendered object, and encodes it once for all clusters. left are the fields that
// are omitted for an existing copy; the content hash does not cover them. An object that is too large for every cluster
// is an error here, so that it takes no time of the writers.
func encode(obj *unstructured.Unstructured, gvr schema.GroupVersionResource, source string, keeping *placement.Keeping, left []tree.Pattern) (*content, error) {
	if len(left) == 0 {
		if err := member.CheckFields(obj.Object); err != nil {
			return nil, err
		}
	}
	b, c := &body{}, &content{left: left, carried: slices.Concat(left, local.Assignable(obj.Object)), expires: expires(obj), off: isOff(obj)}
	var err error
	if b.created, err = marked(obj.Object, source, keeping); err != nil {
		return nil, err
	}
	b.kept = b.created
	c.size = len(b.created.head) + len(b.created.rest)
	if c.size > maxBody {
		return nil, fmt.Errorf("the copy takes %d bytes as JSON, and API servers read at most %d", c.size, maxBody)
	}
	kept, differs, err := withoutLeft(obj.Object, left)
	if err != nil {
		return nil, fmt.Errorf("leaving fields to the cluster: %w", err)
	}
	if differs {
		if b.kept, err = marked(kept, source, keeping); err != nil {
			return nil, err
		}
		c.size += len(b.kept.head) + len(b.kept.rest)
	}
	if err := member.CheckSize(b.kept.head, b.kept.rest); err != nil {
		return nil, err
	}
	digest := sha256.New()
	digest.Write([]byte("{"))
	digest.Write(b.kept.head)
	digest.Write(b.kept.rest)
	hash := hex.EncodeToString(digest.Sum(nil))[:hashLength]
	for _, p := range []pieces{b.created, b.kept} {
		mark := []byte(`"` + refractv1alpha1.AppliedAnnotation + `":"`)
		if at := bytes.Index(p.head, append(mark, unhashed...)); at >= 0 { // Both may share their head.
			copy(p.head[at+len(mark):], hash)
		}
	}

	// An override may have chosen another version of the type.
	gv, err := schema.ParseGroupVersion(obj.GetAPIVersion())
	if err != nil {
		return nil, fmt.Errorf("apiVersion: %w", err)
	}
	gvr.Version = gv.Version
	c.gvr, c.hash = gvr, hash
	c.body.Store(b)
	return c, nil
}

// marked encodes an object with the marks of a copy, and with [unhashed] in place of the hash.
func marked(object map[string]any, source string, keeping *placement.Keeping) (pieces, error) {
	root := maps.Clone(object)
	metadata, _ := root["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	delete(root, "metadata")
	labels, _ := metadata["labels"].(map[string]any)
	metadata["labels"] = with(labels, corev1alpha1.ManagedLabel, "true")
	annotations, _ := metadata["annotations"].(map[string]any)
	annotations = with(annotations, refractv1alpha1.SourceAnnotation, source)
	annotations[refractv1alpha1.AppliedAnnotation] = string(unhashed)
	if keeping.Orphan != "" {
		annotations[refractv1alpha1.OrphanAnnotation] = keeping.Orphan
	}
	if keeping.Keep {
		annotations[refractv1alpha1.KeepAnnotation] = "true"
	}
	metadata["annotations"] = annotations
	head, err := json.Marshal(metadata)
	if err != nil {
		return pieces{}, fmt.Errorf("encoding metadata: %w", err)
	}
	rest, err := json.Marshal(root)
	if err != nil {
		return pieces{}, fmt.Errorf("encoding the object: %w", err)
	}
	return pieces{head[1:], rest[1:]}, nil
}

// withoutLeft returns the object without the fields that are left to the cluster, and whether it had any of them.
func withoutLeft(object map[string]any, left []tree.Pattern) (kept map[string]any, differs bool, err error) {
	doc := tree.Edit(object)
	for _, pattern := range left {
		for _, place := range pattern.Places(doc.Root()) {
			differs = true
			if _, err := doc.Remove(place); err != nil {
				return nil, false, err
			}
		}
	}
	return doc.Root(), differs, nil
}

func with(m map[string]any, key, value string) map[string]any {
	c := make(map[string]any, len(m)+2)
	maps.Copy(c, m)
	c[key] = value
	return c
}

// forNew returns the request body for a copy that does not exist. If an object of this name exists after all, the API
// server answers with a conflict, because no object ever had this resourceVersion.
func (b *body) forNew() []byte { return b.created.with(`"resourceVersion":"1"`) }

// forKnown returns the request body for the copy with this UID. If another object has replaced the copy, the API server
// answers with a conflict. adopted marks an object that existed before it became a copy.
func (b *body) forKnown(uid types.UID, adopted bool) []byte {
	p := b.kept
	if adopted {
		mark := []byte(`"` + refractv1alpha1.AppliedAnnotation + `":"`)
		at := bytes.Index(p.head, mark)
		p.head = slices.Concat(p.head[:at], []byte(`"`+refractv1alpha1.AdoptedAnnotation+`":"true",`), p.head[at:])
	}
	return p.with(`"uid":"` + string(uid) + `"`)
}

func (p *pieces) with(guard string) []byte {
	all := make([]byte, 0, len(p.head)+len(p.rest)+len(guard)+16)
	all = append(all, `{"metadata":{`...)
	all = append(all, guard...)
	all = append(all, ',')
	all = append(all, p.head...)
	all = append(all, ',')
	return append(all, p.rest...)
}
