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
	"refract.dev/internal/member"
	"refract.dev/local"
	"refract.dev/placement"
	"refract.dev/tree"
)

// maxBody is how many bytes a copy may be written with, as JSON. An API server reads
// 3 MiB, and stores half of that.
const maxBody = 3 << 20

// content is what a copy is applied with: shared by all clusters with the same
// variant.
type content struct {
	gvr  schema.GroupVersionResource
	hash string
	// left are the fields that Refract does not send to a copy that exists: see [leftTo].
	left []tree.Pattern
	// carried are the fields that a copy which exists keeps if Refract owns them: see
	// [applier.bodyForKnown].
	carried []tree.Pattern
	// off is whether it asks for no replicas.
	off bool
	// expires is whether the cluster removes the copy by itself: a Job with ttlSecondsAfterFinished.
	expires bool
	// size is that of the body in bytes.
	size int
	// body is nil while nobody is about to write the copy, and where there is no room
	// for it: then it is made again, see [renderer.bodyOf].
	body atomic.Pointer[body]
	// covered are the fields of a copy that was found to have all of the body.
	covered atomic.Pointer[member.Ownership]
}

// body is the JSON of a copy, for a new one and for one that exists. The two are equal unless
// fields are left to the cluster.
type body struct{ created, kept pieces }

// pieces are the JSON of a copy in two pieces: head is the metadata without its opening brace,
// rest the other members without theirs. What the request says of the existing copy comes
// before head.
type pieces struct{ head, rest []byte }

// hashLength is that of a content hash: 128 bits of SHA-256, in hexadecimal.
const hashLength = 32

// unhashed stands where the hash will be.
var unhashed = bytes.Repeat([]byte{'0'}, hashLength)

// encode adds to a rendered object what marks a copy, and encodes it once for
// all clusters. Left are the fields that a copy that exists is written without; the content
// hash does not depend on them. One that no cluster stores is an error, so that it takes no time of those who write.
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
		return nil, fmt.Errorf("the copy takes %d bytes as JSON, and API servers read %d", c.size, maxBody)
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
		if at := bytes.Index(p.head, append(mark, unhashed...)); at >= 0 { // The two may share their head.
			copy(p.head[at+len(mark):], hash)
		}
	}

	// An override may have asked for another version of the type.
	gv, err := schema.ParseGroupVersion(obj.GetAPIVersion())
	if err != nil {
		return nil, fmt.Errorf("apiVersion: %w", err)
	}
	gvr.Version = gv.Version
	c.gvr, c.hash = gvr, hash
	c.body.Store(b)
	return c, nil
}

// marked encodes an object with what marks a copy. The place of the hash is [unhashed].
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

// withoutLeft returns the object without the fields that are left to the cluster, and whether it
// has any of them.
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

// forNew is the request body for a copy that is not there. An object that is
// there in spite of that makes the API server answer with a conflict: no object
// has ever had this resourceVersion.
func (b *body) forNew() []byte { return b.created.with(`"resourceVersion":"1"`) }

// forKnown is the request body for the copy with this UID. Another object in its
// place makes the API server answer with a conflict. Adopted marks a copy that was
// there before it became one.
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
