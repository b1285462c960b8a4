// Package generate makes fleets for tests and benchmarks: clusters, objects and policies, as manifests like those of
// users. The same arguments give the same fleet, byte for byte. The package knows the validation rules of manifests,
// but not how Refract renders them, so its fleets are independent inputs for every command and every engine.
package generate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing/fstest"

	"sigs.k8s.io/yaml"
)

// Fleet is the manifests of a fleet: the documents of each file, by slash-separated path. A file whose name ends in
// .json is written as JSON, any other as YAML.
type Fleet map[string][]Document

// Document is a manifest. It contains only JSON types: maps of this type, []any, string, bool, int64 and float64.
type Document = map[string]any

// Paths returns the paths of all files, sorted.
func (f Fleet) Paths() []string { return slices.Sorted(maps.Keys(f)) }

// Clone returns a copy that shares no memory with f.
func (f Fleet) Clone() Fleet {
	out := make(Fleet, len(f))
	for name, documents := range f {
		for _, d := range documents {
			out[name] = append(out[name], copied(d))
		}
	}
	return out
}

// FS returns the files with their present content. It does not show later changes of f.
func (f Fleet) FS() fs.FS {
	files := make(fstest.MapFS, len(f))
	for name, documents := range f {
		files[name] = &fstest.MapFile{Data: text(name, documents), Mode: 0o644}
	}
	return files
}

// WriteDir writes the files below dir, which need not exist. It leaves other files there unchanged.
func (f Fleet) WriteDir(dir string) error {
	for _, name := range f.Paths() {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text(name, f[name]), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// text returns the content of a file. It panics if a document contains types that a [Document] must not contain.
func text(name string, documents []Document) []byte {
	var out bytes.Buffer
	for i, d := range documents {
		data, err := json.MarshalIndent(d, "", "  ")
		if path.Ext(name) != ".json" && err == nil {
			data, err = yaml.Marshal(d)
		}
		if err != nil {
			panic(fmt.Sprintf("%s: document %d: %v", name, i+1, err))
		}
		if path.Ext(name) != ".json" && i > 0 {
			out.WriteString("---\n")
		}
		out.Write(bytes.TrimSpace(data))
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// copied returns a deep copy with the types of a [Document]: it converts integers to int64, and slices to []any.
func copied[T any](v T) T {
	out, _ := plain(v).(T)
	return out
}

func plain(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case Document:
		out := make(Document, len(v))
		for key, value := range v {
			out[key] = plain(value)
		}
		return out
	case []any:
		return plainList(v)
	case []string:
		return plainList(v)
	case []Document:
		return plainList(v)
	default:
		return v
	}
}

func plainList[T any](items []T) []any {
	out := make([]any, len(items))
	for i := range items {
		out[i] = plain(items[i])
	}
	return out
}
