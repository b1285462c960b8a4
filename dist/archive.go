package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is one file in an archive. It belongs to root and has the time of the commit.
type file struct {
	name string // Without a leading slash.
	mode int64
	data []byte
	link string // The target of a symbolic link; empty for a regular file.
}

// archive writes the tar.gz for a binary: a folder with the binary, the kubectl plugin, man pages, completions and the
// license.
func (r *release) archive(b binary, completions map[string][]byte) error {
	program, err := os.ReadFile(b.path)
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return err
	}
	files := []file{
		{name: "LICENSE", mode: 0o644, data: license},
		{name: "bin/refract", mode: 0o755, data: program},
		{name: "bin/kubectl-refract", mode: 0o777, link: "refract"},
		{name: "bin/kubectl_complete-refract", mode: 0o777, link: "refract"},
	}
	for shell, text := range completions {
		files = append(files, file{name: "completions/" + shell + "/" + shells[shell], mode: 0o644, data: text})
	}
	pages, err := filepath.Glob(filepath.Join(r.source, "docs", "man", "*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		files = append(files, file{name: "share/man/man1/" + filepath.Base(page), mode: 0o644, data: text})
	}
	path := r.name(b.platform, ".tar.gz")
	folder := strings.TrimSuffix(filepath.Base(path), ".tar.gz") + "/"
	for i := range files {
		files[i].name = folder + files[i].name
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if err := writeTar(zip, files, r.created); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, packed.Bytes(), 0o644)
}

// writeTar writes an archive that depends only on the files and the time: files are sorted by name and belong to root.
// It writes no entries for folders, because tar creates them when it extracts the files.
func writeTar(w io.Writer, files []file, at time.Time) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if f.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return t.Close()
}
