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
	"refract.dev/placement"
)

// maxBody is how many bytes a copy may be written with, as JSON. An API server reads
// 3 MiB, and stores half of that.
const maxBody = 3 << 20

// content is what a copy is applied with: shared by all clusters with the same
// variant.
type content struct {
	gvr  schema.GroupVersionResource
	hash string
	// retained is whether spec.replicas is left to the cluster.
	retained bool
	// size is that of the body in bytes.
	size int
	// body is nil while nobody is about to write the copy, and where there is no room
	// for it: then it is made again, see [renderer.bodyOf].
	body atomic.Pointer[body]
	// covered are the fields of a copy that was found to have all of the body.
	covered atomic.Pointer[member.Ownership]
}

// body is the JSON of a copy.
type body struct {
	// head is the metadata without its opening brace, rest the other members
	// without theirs: what is said of the copy that is there comes before.
	head, rest []byte
	// kept is rest without what is left to the cluster once the copy is there: equal
	// to rest unless replicas are retained.
	kept []byte
}

// hashLength is that of a content hash: 128 bits of SHA-256, in hexadecimal.
const hashLength = 32

// unhashed stands where the hash will be.
var unhashed = bytes.Repeat([]byte{'0'}, hashLength)

// encode adds to a rendered object what marks a copy, and encodes it once for
// all clusters.
func encode(obj *unstructured.Unstructured, gvr schema.GroupVersionResource, source string, keeping *placement.Keeping) (*content, error) {
	root := maps.Clone(obj.Object)
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
	metadata["annotations"] = annotations

	head, err := json.Marshal(metadata)
	if err != nil {
		return nil, fmt.Errorf("encoding metadata: %w", err)
	}
	rest, err := json.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	b := &body{rest: rest[1:], kept: rest[1:]}
	c := &content{size: len(head) + len(rest)}
	if c.size > maxBody {
		return nil, fmt.Errorf("the copy takes %d bytes as JSON, and API servers read %d", c.size, maxBody)
	}
	if keeping.RetainReplicas {
		if c.retained, err = b.retain(root); err != nil {
			return nil, err
		}
		c.size += len(b.kept)
	}
	digest := sha256.New()
	digest.Write(head)
	digest.Write(b.kept)
	hash := hex.EncodeToString(digest.Sum(nil))[:hashLength]
	mark := []byte(`"` + refractv1alpha1.AppliedAnnotation + `":"`)
	at := bytes.Index(head, append(mark, unhashed...))
	copy(head[at+len(mark):], hash)

	// An override may have asked for another version of the type.
	gv, err := schema.ParseGroupVersion(obj.GetAPIVersion())
	if err != nil {
		return nil, fmt.Errorf("apiVersion: %w", err)
	}
	gvr.Version = gv.Version
	b.head = head[1:]
	c.gvr, c.hash = gvr, hash
	c.body.Store(b)
	return c, nil
}

// retain leaves spec.replicas out of what a copy that is there is written with, and
// reports whether the object is one that may have them.
func (b *body) retain(root map[string]any) (retained bool, err error) {
	spec, ok := root["spec"].(map[string]any)
	if !ok {
		return false, nil
	}
	if _, ok := spec["replicas"].(int64); !ok {
		return true, nil
	}
	root, spec = maps.Clone(root), maps.Clone(spec)
	delete(spec, "replicas")
	root["spec"] = spec
	kept, err := json.Marshal(root)
	if err != nil {
		return true, fmt.Errorf("encoding the object: %w", err)
	}
	b.kept = kept[1:]
	return true, nil
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
func (b *body) forNew() []byte { return b.with(`"resourceVersion":"1"`, b.head, b.rest) }

// forKnown is the request body for the copy with this UID. Another object in its
// place makes the API server answer with a conflict. Adopted marks a copy that was
// there before it became one.
func (b *body) forKnown(uid types.UID, adopted bool) []byte {
	head := b.head
	if adopted {
		mark := []byte(`"` + refractv1alpha1.AppliedAnnotation + `":"`)
		at := bytes.Index(head, mark)
		head = slices.Concat(head[:at], []byte(`"`+refractv1alpha1.AdoptedAnnotation+`":"true",`), head[at:])
	}
	return b.with(`"uid":"`+string(uid)+`"`, head, b.kept)
}

func (b *body) with(guard string, head, rest []byte) []byte {
	all := make([]byte, 0, len(head)+len(rest)+len(guard)+16)
	all = append(all, `{"metadata":{`...)
	all = append(all, guard...)
	all = append(all, ',')
	all = append(all, head...)
	all = append(all, ',')
	return append(all, rest...)
}
