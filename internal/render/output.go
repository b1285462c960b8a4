package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// WriteYAML writes all objects as one stream of YAML documents, each with a
// comment that names its cluster. It can be given to kubectl apply.
func WriteYAML(w io.Writer, r *Result) error {
	for _, c := range r.Clusters {
		for _, object := range c.Objects {
			text, err := yaml.Marshal(object)
			if err != nil {
				return fmt.Errorf("writing YAML: %w", err)
			}
			if _, err := fmt.Fprintf(w, "---\n# cluster: %s\n%s", c.Name, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteJSON writes the result as one JSON document.
func WriteJSON(w io.Writer, r *Result) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// File is a file to be written.
type File struct {
	// Path is relative, with slashes.
	Path    string
	Content []byte
}

// Files returns a file of YAML for each object of each cluster:
// CLUSTER/NAMESPACE/KIND.GROUP-NAME.yaml, with _cluster for the namespace of an
// object that belongs to none. Names are escaped as in URLs where a file could
// not have them. That two objects want the same file is an error.
func Files(r *Result) ([]File, error) {
	var files []File
	taken := map[string]bool{}
	for _, c := range r.Clusters {
		for _, object := range c.Objects {
			text, err := yaml.Marshal(object)
			if err != nil {
				return nil, fmt.Errorf("writing YAML: %w", err)
			}
			name := pathOf(c.Name, &unstructured.Unstructured{Object: object})
			key := strings.ToLower(name) // Not every file system tells Admin from admin.
			if taken[key] {
				return nil, fmt.Errorf("two objects want the file %s", name)
			}
			taken[key] = true
			files = append(files, File{Path: name, Content: text})
		}
	}
	return files, nil
}

func pathOf(cluster string, u *unstructured.Unstructured) string {
	namespace := u.GetNamespace()
	if namespace == "" {
		namespace = "_cluster" // No namespace can be called so.
	}
	gk := u.GroupVersionKind().GroupKind()
	name := strings.ToLower(gk.Kind)
	if gk.Group != "" {
		name += "." + gk.Group
	}
	return path.Join(escape(cluster), escape(namespace), escape(name+"-"+u.GetName())+".yaml")
}

// escape writes every byte that is not safe in the names of files everywhere as
// % and two hexadecimal digits.
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

// WriteDir writes the files below dir and returns the paths of those that were
// not there with the same content. The others are not touched, and neither is
// anything else in dir. A file is never seen half-written.
func WriteDir(dir string, files []File) (written []string, err error) {
	for _, f := range files {
		to := filepath.Join(dir, filepath.FromSlash(f.Path))
		is, err := os.ReadFile(to)
		switch {
		case err == nil && bytes.Equal(is, f.Content):
			continue
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return written, fmt.Errorf("reading what is there: %w", err)
		}
		if err := replace(to, f.Content); err != nil {
			return written, err
		}
		written = append(written, to)
	}
	return written, nil
}

// replace writes a file under another name and then renames it.
func replace(to string, content []byte) (err error) {
	dir := filepath.Dir(to)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, ".refract-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	_, err = temp.Write(content)
	if err := errors.Join(err, temp.Close(), os.Chmod(temp.Name(), 0o644)); err != nil {
		return err
	}
	return os.Rename(temp.Name(), to)
}
