package render

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// WriteYAML writes all objects as one stream of YAML documents, suitable for kubectl apply. A comment names the cluster
// of each document.
func WriteYAML(w io.Writer, r *Result) error {
	out := bufio.NewWriter(w)
	texts := texts{}
	for _, c := range r.Clusters {
		for _, object := range c.Objects {
			text, err := texts.of(object)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(out, "---\n# cluster: %s\n%s", c.Name, text); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// texts caches the YAML of objects, by the address of the map: many clusters share one object.
type texts map[uintptr][]byte

func (t texts) of(object map[string]any) ([]byte, error) {
	at := reflect.ValueOf(object).Pointer()
	if text, ok := t[at]; ok {
		return text, nil
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	t[at] = text
	return text, nil
}

// WriteJSON writes the result as one JSON document.
func WriteJSON(w io.Writer, r *Result) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// File is a file to write.
type File struct {
	// Path is relative, with slashes.
	Path    string
	Content []byte
	// Private makes the file readable for its owner only, because it contains a Secret.
	Private bool
}

// Files returns a YAML file for each object of each cluster, in a folder for each cluster (see [FilesOf]).
func Files(r *Result) ([]File, error) {
	var files []File
	texts := texts{}
	for _, c := range r.Clusters {
		more, err := filesOf(fileName(c.Name, ""), c.Objects, texts)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	return files, nil
}

// FilesOf returns a YAML file for each object: NAMESPACE/KIND.GROUP-NAME.yaml. The folder of cluster-scoped objects is
// _cluster. Characters that not every file system allows are escaped as in URLs, and a name that is too long ends in a
// hash of the full name. The files of Secrets are private. Two objects with the same file name are an error.
func FilesOf(objects []map[string]any) ([]File, error) { return filesOf("", objects, texts{}) }

func filesOf(dir string, objects []map[string]any, texts texts) ([]File, error) {
	files := make([]File, 0, len(objects))
	taken := make(map[string]bool, len(objects))
	for _, object := range objects {
		text, err := texts.of(object)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{Object: object}
		name := path.Join(dir, pathOf(u))
		key := strings.ToLower(name) // Some file systems do not distinguish Admin from admin.
		if taken[key] {
			return nil, fmt.Errorf("two objects want the file %s", name)
		}
		taken[key] = true
		files = append(files, File{Path: name, Content: text, Private: IsSecret(u)})
	}
	return files, nil
}

// IsSecret reports whether an object is a Secret of the core group.
func IsSecret(u *unstructured.Unstructured) bool {
	return u.GetAPIVersion() == "v1" && u.GetKind() == "Secret"
}

func pathOf(u *unstructured.Unstructured) string {
	namespace := u.GetNamespace()
	if namespace == "" {
		namespace = "_cluster" // No namespace can have this name.
	}
	gk := u.GroupVersionKind().GroupKind()
	name := strings.ToLower(gk.Kind)
	if gk.Group != "" {
		name += "." + gk.Group
	}
	return path.Join(fileName(namespace, ""), fileName(name+"-"+u.GetName(), ".yaml"))
}

// longestName is the maximum length of a file name in bytes: that of ext4, XFS, APFS and NTFS (which counts
// characters).
const longestName = 255

// fileName returns the escaped name with the suffix. A name that is too long is cut and gets a ~ and a hash of the full
// name. Escaped names contain no ~, so different names stay different.
func fileName(name, suffix string) string {
	escaped := escape(name)
	if len(escaped)+len(suffix) <= longestName {
		return escaped + suffix
	}
	sum := sha256.Sum256([]byte(name))
	suffix = "~" + hex.EncodeToString(sum[:8]) + suffix
	return escaped[:longestName-len(suffix)] + suffix
}

// escape writes every byte that is not allowed in file names on all systems as % and two hexadecimal digits.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
