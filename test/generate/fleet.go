// Package generate makes fleets for tests and benchmarks: clusters, objects and
// policies, as manifests of the kind that people write. The same arguments make
// the same fleet, byte for byte. It knows what is valid and not what Refract
// makes of it, so it can be asked for inputs of any command and any engine.
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

// Fleet is the manifests of a fleet: the documents of files, by their paths with
// slashes. A file whose name ends in .json is written as JSON, any other as YAML.
type Fleet map[string][]Document

// Document is one manifest. It holds what JSON can: maps of this very type,
// []any, string, bool, int64 and float64.
type Document = map[string]any

// Paths returns the paths of all files, sorted.
func (f Fleet) Paths() []string { return slices.Sorted(maps.Keys(f)) }

// Clone returns a copy that shares nothing with f.
func (f Fleet) Clone() Fleet {
	out := make(Fleet, len(f))
	for name, documents := range f {
		for _, d := range documents {
			out[name] = append(out[name], copied(d))
		}
	}
	return out
}

// FS returns the files as they stand now: later changes of f do not show in it.
func (f Fleet) FS() fs.FS {
	files := make(fstest.MapFS, len(f))
	for name, documents := range f {
		files[name] = &fstest.MapFile{Data: text(name, documents), Mode: 0o644}
	}
	return files
}

// WriteDir writes the files below dir, which need not exist. Files that are there
// and not in the fleet stay as they are.
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

// text returns the content of a file. It panics for what a Document cannot hold.
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

// copied returns a deep copy that holds only what a [Document] does: integers
// become int64, and slices []any.
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
